//! How things are called and shown on pages.

use chrono::{DateTime, TimeDelta, Utc};
use tamma_core::cost::Usd;
use tamma_core::risk::Factor;
use tamma_core::task_loop::{JobKind, Next, Phase, State};

use crate::clock;
use crate::shape::{Card, Spend};

/// How long something takes or took.
pub(super) fn lasting(time: TimeDelta) -> String {
    let seconds = time.num_seconds().max(0);
    match (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

/// A moment as a clock shows it, with the day where it is another one.
pub(super) fn moment(at: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let form = if at.date_naive() == now.date_naive() { "%H:%M:%S" } else { "%Y-%m-%d %H:%M" };
    at.format(form).to_string()
}

/// Money.
pub(super) fn dollars(usd: Usd) -> String {
    usd.with_cents()
}

/// What was spent, with a sign where it is an estimate.
pub(super) fn spent(spend: &Spend) -> String {
    let about = if spend.estimated { "≈ " } else { "" };
    format!("{about}{}", dollars(spend.usd))
}

/// A name of the machine as people read it.
pub(super) fn plain(name: &impl ToString) -> String {
    name.to_string().replace('_', " ")
}

/// What a state is called on a page.
pub(super) fn state(state: State) -> &'static str {
    match state {
        State::Pending => "waits to begin",
        State::Assigned => "being set up",
        State::Planning => "being planned",
        State::AwaitingApproval => "plan to approve",
        State::Validated => "waits for an engine",
        State::InProgress => "being implemented",
        State::Testing => "gates run",
        State::QualityReview => "under review",
        State::Adjusting => "being adjusted",
        State::CtoIntervention => "before the council",
        State::Approved => "passed",
        State::Committing => "being delivered",
        State::Learning => "being learned from",
        State::HumanEscalation => "needs a person",
        State::Completed => "completed",
        State::Cancelled => "cancelled",
        State::Failed => "given up",
    }
}

/// What moves a task next, in a line. Whom it waits for stands elsewhere.
pub(super) fn next(card: &Card) -> String {
    let now = clock::now();
    let by = |at: DateTime<Utc>| moment(at, now);
    match &card.next {
        None => String::new(),
        Some(Next::Resume { paused_by }) => {
            format!("Paused by {paused_by}; goes on when it is resumed.")
        }
        Some(Next::Answer { cause, .. }) => format!("{}.", capital(&cause.to_string())),
        Some(Next::Stopped { job }) => format!("{}: being stopped.", job_name(*job)),
        Some(Next::Quota { provider, until }) => {
            format!("The quota of {provider} is used up until {}.", by(*until))
        }
        Some(Next::Again { job, at }) => format!("{}: tried again at {}.", job_name(*job), by(*at)),
        Some(Next::Work { job, expected_by: Some(at) }) => {
            format!("{}; expected by {}.", job_name(*job), by(*at))
        }
        Some(Next::Work { job, expected_by: None }) => {
            format!("{}; longer than expected.", job_name(*job))
        }
    }
}

/// What a job does.
fn job_name(job: JobKind) -> &'static str {
    match job {
        JobKind::Admit => "Waits for its turn",
        JobKind::Prepare => "A worker sets it up",
        JobKind::Plan => "A planner reads the repository",
        JobKind::Check => "The plan is held against what the team knows",
        JobKind::Implement => "An engine works on it",
        JobKind::Test => "Gates run",
        JobKind::Review => "The change is reviewed",
        JobKind::Brief => "The failure is written up for the next run",
        JobKind::Convene => "The council studies it",
        JobKind::AwaitTurn => "Waits for its turn to be delivered",
        JobKind::Deliver => "The change is delivered",
        JobKind::Learn => "What can be learned is written down",
        JobKind::Land => "The work is saved",
    }
}

/// With a large first letter.
pub(super) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => String::new(),
    }
}

/// What a factor of the risk looks at.
pub(super) fn factor(factor: Factor) -> &'static str {
    match factor {
        Factor::Files => "Files touched",
        Factor::Complexity => "Complexity",
        Factor::Warnings => "What the team knows",
        Factor::CriticalFiles => "Critical files",
        Factor::FilesThreshold => "Your limit on files",
        Factor::ComplexityThreshold => "Your limit on complexity",
        Factor::CostThreshold => "Your limit on cost",
    }
}

/// The colour and the picture of a task.
pub(super) fn tone(card: &Card) -> &'static str {
    match card.state {
        _ if card.waits_for_person => "wait",
        _ if card.paused => "hold",
        State::Completed => "good",
        State::Failed => "bad",
        State::Cancelled => "hold",
        State::Adjusting | State::CtoIntervention => "warn",
        State::Pending | State::Validated => "idle",
        _ => "work",
    }
}

/// How far along the straight way a task is, for a line of eight steps: one for each phase.
pub(super) fn step(state: State) -> usize {
    match (state, state.phase()) {
        (State::Cancelled | State::Failed, _) => 0,
        (_, Phase::Receive) => 1,
        (_, Phase::Plan) => 2,
        (_, Phase::Approve) => 3,
        (_, Phase::Implement) => 4,
        (_, Phase::Review | Phase::Adjust | Phase::Council | Phase::Alert) => 5,
        (_, Phase::Deliver) => 6,
        (_, Phase::Learn) => 7,
        (_, Phase::Done) => 8,
    }
}

/// A text as paragraphs.
pub(super) fn paragraphs(text: &str) -> Vec<String> {
    text.split("\n\n")
        .flat_map(str::lines)
        .map(str::trim)
        .filter(|it| !it.is_empty())
        .map(str::to_owned)
        .collect()
}

/// "1 task", "2 tasks", "2 entries".
pub(super) fn counted(number: u64, noun: &str) -> String {
    match noun.strip_suffix("try") {
        _ if number == 1 => format!("{number} {noun}"),
        Some(stem) => format!("{number} {stem}tries"),
        None => format!("{number} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_the_two_largest_units() {
        for (seconds, text) in
            [(5, "5 s"), (90, "1 min"), (3_700, "1 h 1 min"), (200_000, "2 d 7 h")]
        {
            assert_eq!(lasting(TimeDelta::seconds(seconds)), text);
        }
    }
}
