//! Labels of the pages.

use chrono::{DateTime, Utc};
use tamma_core::format::capitalize;
use tamma_core::risk::RiskFactor;
use tamma_core::task_loop::{JobKind, NextStep, Phase, State};

use super::layout::DisplayTime;
use crate::dto::{ChecksSummary, TaskCard};

/// Formats a time of day in UTC, with the date if it is not today. Pages show it in the time zone of
/// the browser if JavaScript is on.
pub(super) fn format_time(at: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let is_today = at.date_naive() == now.date_naive();
    at.format(if is_today { "%H:%M UTC" } else { "%Y-%m-%d %H:%M UTC" }).to_string()
}

/// Returns the label of a state.
pub(super) fn state_label(state: State) -> &'static str {
    state.label()
}

/// Next step of a task.
#[derive(Clone)]
pub(super) enum NextStepView {
    /// The task is closed.
    None,
    /// A person must answer this question.
    Decision(String),
    Text(String),
    /// Text, followed by the time when the step is due or starts.
    Timed(String, DisplayTime),
}

impl NextStepView {
    pub(super) fn new(card: &TaskCard) -> Self {
        let timed =
            |text: String, at: &DateTime<Utc>| Self::Timed(text, DisplayTime::absolute(*at));
        match &card.next {
            None => Self::None,
            Some(NextStep::Resume { paused_by }) => Self::Text(format!("Paused by {paused_by}")),
            Some(NextStep::Answer { cause, .. }) => Self::Decision(capitalize(&cause.to_string())),
            Some(NextStep::JobStopping { job }) => {
                Self::Text(format!("{} (stopping)", job_label(*job)))
            }
            Some(NextStep::Quota { provider, until }) => {
                timed(format!("Waiting for {provider}'s quota to reset at"), until)
            }
            Some(NextStep::PullRequest { number, stage }) => {
                Self::Text(format!("Pull request #{number}: {}", stage.description()))
            }
            Some(NextStep::RetryJob { at, .. }) => timed("Retrying at".to_owned(), at),
            Some(NextStep::AgentSlot { expected_by: Some(at) }) => {
                timed("Waiting for an agent slot, due by".to_owned(), at)
            }
            Some(NextStep::AgentSlot { expected_by: None }) => {
                Self::Text("Waiting for an agent slot, overdue".to_owned())
            }
            Some(NextStep::JobRunning { job, expected_by: Some(at) }) => {
                timed(format!("{}, due by", job_label(*job)), at)
            }
            Some(NextStep::JobRunning { job, expected_by: None }) => {
                Self::Text(format!("{}, overdue", job_label(*job)))
            }
        }
    }
}

/// Returns the title of the decision that a task waits for.
pub(super) fn decision_title(card: &TaskCard) -> String {
    match &card.next {
        Some(NextStep::Answer { cause, .. }) => capitalize(&cause.to_string()),
        _ => capitalize(state_label(card.state)),
    }
}

/// Returns the label of a job.
fn job_label(job: JobKind) -> &'static str {
    match job {
        JobKind::Admit => "Waiting to start",
        JobKind::Prepare => "Preparing the worktree",
        JobKind::Plan => "Planning",
        JobKind::Check => "Checking the plan",
        JobKind::Implement => "Agent running",
        JobKind::Test => "Running gates",
        JobKind::Review => "Reviewing the change",
        JobKind::Brief => "Preparing the next run",
        JobKind::Convene => "Council in session",
        JobKind::AwaitDelivery => "Waiting to deliver",
        JobKind::Deliver => "Delivering the change",
        JobKind::PullRequest => "Updating the pull request",
        JobKind::Learn => "Capturing lessons",
        JobKind::SaveWork => "Saving the work",
    }
}

/// Returns the label of a summary of checks.
pub(super) fn checks_label(checks: ChecksSummary) -> &'static str {
    match checks {
        ChecksSummary::None => "no checks",
        ChecksSummary::Pending => "checks running",
        ChecksSummary::Passed => "checks passed",
        ChecksSummary::Failed => "checks failed",
    }
}

/// Returns the tone of a summary of checks.
pub(super) fn checks_tone(checks: ChecksSummary) -> &'static str {
    match checks {
        ChecksSummary::None => "idle",
        ChecksSummary::Pending => "work",
        ChecksSummary::Passed => "good",
        ChecksSummary::Failed => "bad",
    }
}

/// Returns the label of a risk factor.
pub(super) fn risk_factor_label(factor: RiskFactor) -> &'static str {
    match factor {
        RiskFactor::Files => "Files changed",
        RiskFactor::Complexity => "Complexity",
        RiskFactor::Warnings => "Knowledge warnings",
        RiskFactor::CriticalFiles => "Critical files",
        RiskFactor::FilesThreshold => "File limit",
        RiskFactor::ComplexityThreshold => "Complexity limit",
        RiskFactor::CostThreshold => "Cost limit",
    }
}

/// Returns the tone of a task, which selects its colour and icon.
pub(super) fn task_tone(card: &TaskCard) -> &'static str {
    match card.state {
        _ if card.waits_for_person => "wait",
        _ if card.paused => "hold",
        State::Completed => "good",
        State::Failed => "bad",
        State::Cancelled => "off",
        State::Adjusting | State::CtoIntervention => "warn",
        State::Pending | State::Validated => "idle",
        _ => "work",
    }
}

/// Returns the progress of a task, from 1 to 8 along the phases; 0 if it was cancelled or failed.
pub(super) fn progress_step(state: State) -> usize {
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

/// Splits text into lines, without empty ones.
pub(super) fn paragraphs(text: &str) -> Vec<String> {
    text.split("\n\n")
        .flat_map(str::lines)
        .map(str::trim)
        .filter(|it| !it.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Returns the first eight digits of a hash.
pub(super) fn short_hash(hash: &(impl ToString + ?Sized)) -> String {
    hash.to_string().chars().take(8).collect()
}
