//! Consequence of an action, computed by the state machine.
//!
//! A sentence that is written by hand becomes wrong as soon as a rule changes. Here, the machine makes
//! the step that the action would cause, and the sentence describes the task after it. Nothing is
//! saved.

use tamma_core::actor::Actor;
use tamma_core::budget::{self, Grant};
use tamma_core::cause::AlertCause;
use tamma_core::cost::Usd;
use tamma_core::escalation::{EscalationAction, EscalationReason};
use tamma_core::format::{format_usd, pluralize};
use tamma_core::ids::{Name, Reason, Reference, TaskId};
use tamma_core::pull_request::{PullRequestJob, PullRequestState};
use tamma_core::rules::{DeliveryMode, Rules};
use tamma_core::task_loop::{
    Action, AnswerKind, Command, EventKind, Job, JobKind, NextStep, Refusal, State, Step,
    TaskEvent, TaskLoop, Timestamp, Trigger, step,
};
use tamma_core::version::FormatVersion;

use super::{App, Error};
use crate::clock;

/// Text in place of the one that the person would write. The machine does not read it.
const PLACEHOLDER: &str = "preview";

/// Sentence about every task that is paused after the action.
const NOTHING_STARTS: &str = "Nothing new starts until the task is resumed.";

impl App {
    /// Describes what an action of a person would cause now.
    pub(crate) async fn preview(
        &self,
        id: TaskId,
        person: &Name,
        previewed: PreviewedAction,
    ) -> Result<String, Error> {
        let task_loop = self.task_loop(id).await?;
        let rules = self.task_rules(&task_loop).await?;
        let now = clock::now();
        Ok(match previewed {
            PreviewedAction::Answer(answer) => {
                preview_answer(&task_loop, &rules, person, answer, now)
            }
            PreviewedAction::Action(action) => {
                preview_action(&task_loop, &rules, person, *action, now)
            }
        })
    }
}

/// Action whose consequence is asked for.
pub(crate) enum PreviewedAction {
    /// Answer whose consequence does not depend on its text.
    Answer(AnswerKind),
    /// Action with its arguments.
    Action(Box<Action>),
}

/// Describes what an answer of a person would cause now, whatever they write.
pub(crate) fn preview_answer(
    before: &TaskLoop,
    rules: &Rules,
    person: &Name,
    answer: AnswerKind,
    at: Timestamp,
) -> String {
    if answer == AnswerKind::RollBack {
        return "The task continues from the state that you choose.".to_owned();
    }
    let Some(action) = placeholder_action(before, answer) else {
        // There is no plan or no commit to decide on.
        let (state, action) = (before.state, answer.label().to_owned());
        return not_possible(&Refusal::WrongState { state, action });
    };
    preview_action(before, rules, person, action, at)
}

/// Describes what an action of a person would cause now.
pub(crate) fn preview_action(
    before: &TaskLoop,
    rules: &Rules,
    person: &Name,
    action: Action,
    at: Timestamp,
) -> String {
    let is_control = matches!(action, Action::Pause | Action::Resume | Action::Rate { .. });
    let is_acknowledgement = matches!(action, Action::Acknowledge);
    let is_retry = matches!(action, Action::Retry { .. });
    let is_exception = matches!(action, Action::Override { .. } | Action::Skip { .. });
    let event = TaskEvent {
        format: FormatVersion,
        at,
        by: Actor::Person(person.clone()),
        auth: None,
        kind: EventKind::ActionRequested(action),
    };
    match step(before, &event, rules) {
        Ok(made) if is_control => describe_control(before, &made, rules, person),
        Ok(_) if is_acknowledgement => "Reminders stop. The question stays open.".to_owned(),
        Ok(made) => {
            let mut text = match before.active_job.filter(|_| made.next.state == before.state) {
                Some(job) if is_retry => {
                    format!("{} starts again without waiting.", job_name(job.kind))
                }
                _ => describe_step(before, &made, rules),
            };
            if is_exception {
                text.push_str(" Your name and reason are recorded.");
            }
            if made.next.paused.is_some() && !made.next.state.is_terminal() {
                text = format!("{text} {NOTHING_STARTS}");
            }
            text
        }
        Err(refusal) => not_possible(&refusal),
    }
}

fn not_possible(refusal: &Refusal) -> String {
    format!("Not possible now: {refusal}.")
}

/// Returns the action of an answer with placeholders. `None` if there is nothing that it can be about.
fn placeholder_action(before: &TaskLoop, answer: AnswerKind) -> Option<Action> {
    let reason: Reason = PLACEHOLDER.parse().ok()?;
    let text: Reference = PLACEHOLDER.parse().ok()?;
    // Enough for every limit.
    let grant = Grant { iterations: 1, usd: Usd::from_cents(100), tokens: 1 };
    Some(match answer {
        AnswerKind::Approve => Action::Approve { scope: before.current_scope()?, reason: None },
        AnswerKind::Reject => Action::Reject { scope: before.current_scope()?, reason },
        AnswerKind::RevisePlan => {
            Action::RevisePlan { scope: before.current_scope()?, changes: text }
        }
        AnswerKind::Override => Action::Override { scope: before.current_scope()?, reason },
        AnswerKind::Accept => Action::Accept { commit: before.commit?, reason: None },
        AnswerKind::RequestChanges => {
            Action::RequestChanges { commit: before.commit?, comments: text }
        }
        AnswerKind::Reply => Action::Reply { reply: text },
        AnswerKind::Continue => Action::Continue { grant },
        AnswerKind::Retry => Action::Retry { grant },
        AnswerKind::ChangeTask => Action::ChangeTask { request: text },
        AnswerKind::Skip => Action::Skip { reason },
        AnswerKind::Convene => Action::Convene { question: text },
        AnswerKind::Cancel => Action::Cancel { reason },
        AnswerKind::Abandon => Action::Abandon { reason },
        // The person chooses the state.
        AnswerKind::RollBack => return None,
    })
}

/// Describes a task after an action that leaves it in its state: paused, resumed or rated.
fn describe_control(before: &TaskLoop, made: &Step, rules: &Rules, person: &Name) -> String {
    let next = &made.next;
    if next.state.is_terminal() {
        return match before.ratings.get(person) {
            Some(stars) => format!("Replaces your rating of {stars} in the metrics."),
            None => "Your rating counts in the metrics. You can change it later.".to_owned(),
        };
    }
    if next.paused.is_some() {
        let later = NOTHING_STARTS;
        let stops = made.commands.iter().any(|it| matches!(it, Command::StopJob { .. }));
        return match next.active_job {
            Some(job) if stops => {
                format!("{} stops, and its work is saved. {later}", job_name(job.kind))
            }
            Some(job) => format!("{} ends first. {later}", job_name(job.kind)),
            None if next.open_question.is_some() => {
                format!("Reminders stop, and you can still answer. {later}")
            }
            None => later.to_owned(),
        };
    }
    match next.next_step(rules) {
        Some(NextStep::JobRunning { job, .. }) => format!("{} continues.", job_name(job)),
        Some(NextStep::Answer { cause, .. }) => format!("The task waits for an answer: {cause}."),
        Some(next_step) => format!("The task goes on: {next_step}."),
        None => "The task goes on.".to_owned(),
    }
}

/// Returns the subject of a sentence about a job.
fn job_name(job: JobKind) -> &'static str {
    match job {
        JobKind::Admit | JobKind::Prepare => "The preparation",
        JobKind::Plan => "The planner",
        JobKind::Check => "The check of the plan",
        JobKind::Implement => "The agent",
        JobKind::Test => "The test run",
        JobKind::Review => "The review",
        JobKind::Brief => "The failure brief",
        JobKind::Convene => "The council",
        JobKind::AwaitDelivery | JobKind::Deliver => "The delivery",
        JobKind::PullRequest => "The work on the pull request",
        JobKind::Learn => "The capture of lessons",
        JobKind::SaveWork => "The saving of work",
    }
}

/// Describes a task after a step.
fn describe_step(before: &TaskLoop, made: &Step, rules: &Rules) -> String {
    let next = &made.next;
    let version = next.plan.as_ref().map_or(0, |plan| plan.version);
    let new_plan = format!(
        "The planner writes plan {}, which is checked and approved like any other. Nothing runs \
         until then.",
        version + 1
    );
    match next.state {
        State::Pending | State::Assigned => {
            "The new request is used when the task starts.".to_owned()
        }
        State::Planning => describe_replanning(before, made, &new_plan),
        State::AwaitingApproval if next.open_question.is_some() => {
            let level = next.risk_level().unwrap_or_default();
            let needed = usize::from(rules.ceremony.get(level).approvers);
            let left = needed.saturating_sub(next.approvals.len());
            format!("{} more needed before an agent starts.", pluralize(left, "approval"))
        }
        State::AwaitingApproval => {
            format!("Plan {version} is checked again and then needs approval.")
        }
        State::Validated => describe_start(next, rules),
        State::InProgress => "The agent gets it and continues.".to_owned(),
        State::Testing => "The gates run again on the same commit.".to_owned(),
        State::QualityReview => "The change is reviewed again.".to_owned(),
        State::Adjusting => describe_rework(before, next, &new_plan),
        State::CtoIntervention => {
            let decision = next.decision.filter(|it| it.action == EscalationAction::Council);
            match decision.filter(|it| it.reason != EscalationReason::Requested) {
                Some(decision) => format!("The council meets first ({decision})."),
                None => describe_council(next, rules),
            }
        }
        State::Approved | State::Committing => describe_delivery(next, rules),
        State::AwaitingMerge => match next.pull_request.as_deref() {
            Some(memory) => describe_pull_request(next, memory),
            None => "Tamma continues with the pull request.".to_owned(),
        },
        State::Learning | State::Completed => {
            let open = next.pull_request.as_ref().is_some_and(|memory| !memory.is_over());
            let rest = if open { ", and the pull request stays as it is" } else { "" };
            format!("The step counts as done. The task is completed{rest}.")
        }
        State::HumanEscalation => match &next.open_question {
            Some(question) if question.cause == AlertCause::Rejected => {
                format!("Plan {version} will not run. A person chooses what happens next.")
            }
            Some(question) => {
                format!("The task stops and asks a person: {}.", question.cause)
            }
            None => "The task stops and asks a person.".to_owned(),
        },
        State::Cancelled => format!("The task stops for good. {}", describe_rest(made)),
        State::Failed => format!("The task ends as failed. {}", describe_rest(made)),
    }
}

/// Describes the start of an agent, and what it can spend.
fn describe_start(next: &TaskLoop, rules: &Rules) -> String {
    let limit = budget::task_limit(next.risk_level(), &next.granted, rules);
    let left = budget::remaining(&next.spend, &limit).usd;
    let limit = left.map(|usd| format!(" It can spend up to {} more.", format_usd(usd)));
    let tier = next.tier;
    format!("A {tier}-tier agent starts when a slot is free.{}", limit.unwrap_or_default())
}

/// Describes why the planner writes a new plan, and what it gets.
fn describe_replanning(before: &TaskLoop, made: &Step, new_plan: &str) -> String {
    let entered = made.entries.iter().find(|entry| entry.to == State::Planning);
    match entered.and_then(|entry| entry.trigger) {
        Some(Trigger::RevisionRequested) => {
            let version = before.plan.as_ref().map_or(0, |plan| plan.version);
            format!(
                "The request stays. The planner gets your comments on plan {version}. {new_plan}"
            )
        }
        Some(Trigger::TaskChanged) => {
            let stops = made.commands.iter().any(|it| matches!(it, Command::StopJob { .. }));
            let stopped = before.active_job.filter(|_| stops);
            let stopped = stopped.map(|job| format!("{} stops. ", job_name(job.kind)));
            let is_forgotten = before.tier_failures > made.next.tier_failures;
            let forgotten = if is_forgotten { " Earlier failures no longer count." } else { "" };
            format!(
                "{}The planner gets your new request.{forgotten} {new_plan}",
                stopped.unwrap_or_default()
            )
        }
        _ => new_plan.to_owned(),
    }
}

/// Describes what stays of a closed task.
fn describe_rest(made: &Step) -> &'static str {
    let is_learning = |it: &Command| matches!(it, Command::StartJob { job: Job::Learn { .. }, .. });
    if made.commands.iter().any(is_learning) {
        "Its work stays on its branch, and lessons are captured."
    } else {
        "Its work stays on its branch."
    }
}

/// Describes a council that a person convened.
fn describe_council(next: &TaskLoop, rules: &Rules) -> String {
    let members = pluralize(rules.council.members.len(), "model");
    let returns = next.council.as_ref().map(|call| {
        let state = call.return_state.to_string().replace('_', " ");
        format!(" Then it returns to {state}.")
    });
    let max = rules.scrum_master.task_loop.max_councils;
    let left = pluralize(max.saturating_sub(next.councils), "council");
    format!(
        "{members} and a chair analyse the task.{} {left} left after this one.",
        returns.unwrap_or_default()
    )
}

/// Describes the next step of a pull request.
fn describe_pull_request(next: &TaskLoop, memory: &PullRequestState) -> String {
    let is_running = next.active_job.is_some_and(|job| job.kind == JobKind::PullRequest);
    match memory.job.as_deref().filter(|_| is_running) {
        Some(PullRequestJob::TriageChecks { checks, .. }) => format!(
            "{} compared with the base, and may run again.",
            match checks.len() {
                1 => "The failed check is".to_owned(),
                count => format!("{count} failed checks are"),
            }
        ),
        Some(PullRequestJob::CollectFeedback { .. }) => {
            "The agent gets the feedback and reworks the change.".to_owned()
        }
        Some(PullRequestJob::Rebase { .. }) => {
            "The commits are put on the new base. Gates and review run again.".to_owned()
        }
        Some(PullRequestJob::Merge { .. }) => {
            "Tamma merges the pull request, or adds it to the merge queue.".to_owned()
        }
        Some(PullRequestJob::Adopt { .. }) => {
            "Their commits become part of the change. Gates and review run again.".to_owned()
        }
        None => format!("The pull request goes on: {}.", memory.stage.description()),
    }
}

/// Describes the decision after a change was sent back.
fn describe_rework(before: &TaskLoop, next: &TaskLoop, new_plan: &str) -> String {
    let tier = if next.tier == before.tier {
        format!("A {}-tier agent", next.tier)
    } else {
        format!("An agent of the {} tier, instead of {},", next.tier, before.tier)
    };
    match next.decision.map(|decision| decision.action) {
        Some(EscalationAction::Iterate(_)) if next.is_approved() => {
            format!("{tier} reworks the change with your comments. Gates and review run again.")
        }
        Some(EscalationAction::Iterate(_)) => {
            format!("The plan needs approval again. {tier} then reworks the change.")
        }
        Some(decision @ EscalationAction::Escalate(_)) => {
            let reason = next.decision.map(|it| it.to_string()).unwrap_or_default();
            let reason =
                reason.strip_prefix(&format!("{decision}: ")).unwrap_or(&reason).to_owned();
            format!("{new_plan} It is for the {} tier ({reason}).", next.tier)
        }
        _ => new_plan.to_owned(),
    }
}

fn describe_delivery(next: &TaskLoop, rules: &Rules) -> String {
    let commit = next.commit.map(|commit| commit.to_string()).unwrap_or_default();
    let commit: String = commit.chars().take(8).collect();
    match rules.delivery.mode_for(next.risk_level().unwrap_or_default()) {
        DeliveryMode::Branch => format!("Commit {commit} is delivered to the task's branch."),
        DeliveryMode::PullRequest => {
            format!("Commit {commit} goes into a pull request, which a person merges.")
        }
        DeliveryMode::Merge => format!(
            "Commit {commit} goes into a pull request, which is merged when its checks and reviews \
             allow it."
        ),
    }
}

#[cfg(test)]
mod tests {
    use tamma_core::task_loop::Pause;
    use tamma_testkit::sample::sample_task_loop;

    use super::*;

    /// Returns a new task with its rules, and a person.
    fn received_task() -> (TaskLoop, Rules, Name) {
        (sample_task_loop(), Rules::default(), "Ada".parse().expect("name"))
    }

    #[test]
    fn a_pause_a_resume_and_a_rating_are_described_by_the_step_that_they_cause() {
        let (open, rules, ada) = received_task();
        let at = Timestamp::UNIX_EPOCH;
        let preview =
            |before: &TaskLoop, action: Action| preview_action(before, &rules, &ada, action, at);
        let rate = || Action::Rate { stars: 5, reason: None };
        assert_eq!(
            preview(&open, Action::Pause),
            "The preparation stops, and its work is saved. Nothing new starts until the task is \
             resumed."
        );
        assert!(preview(&open, Action::Resume).starts_with("Not possible now: "));
        assert!(preview(&open, rate()).starts_with("Not possible now: "));
        let paused = Some(Pause { by: ada.clone(), at });
        let paused = TaskLoop { paused, ..open.clone() };
        assert_eq!(preview(&paused, Action::Resume), "The preparation continues.");
        let mut closed = TaskLoop { state: State::Completed, active_job: None, ..open };
        assert!(preview(&closed, rate()).starts_with("Your rating counts"));
        closed.ratings.insert(ada.clone(), 3);
        assert_eq!(preview(&closed, rate()), "Replaces your rating of 3 in the metrics.");
        assert!(preview(&closed, Action::Pause).starts_with("Not possible now: "));
    }

    #[test]
    fn a_task_without_a_plan_or_a_commit_has_nothing_to_decide_on() {
        let (open, rules, ada) = received_task();
        let at = Timestamp::UNIX_EPOCH;
        for answer in [AnswerKind::Approve, AnswerKind::Reject, AnswerKind::Accept] {
            let text = preview_answer(&open, &rules, &ada, answer, at);
            assert!(text.starts_with("Not possible now: "), "{text}");
        }
        let text = preview_answer(&open, &rules, &ada, AnswerKind::RollBack, at);
        assert_eq!(text, "The task continues from the state that you choose.");
    }

    #[test]
    fn an_answer_to_a_paused_task_says_that_nothing_starts() {
        let (open, rules, ada) = received_task();
        let at = Timestamp::UNIX_EPOCH;
        let paused = TaskLoop { paused: Some(Pause { by: ada.clone(), at }), ..open };
        let text = preview_answer(&paused, &rules, &ada, AnswerKind::ChangeTask, at);
        assert_eq!(text, format!("The new request is used when the task starts. {NOTHING_STARTS}"));
        let text = preview_answer(&paused, &rules, &ada, AnswerKind::Cancel, at);
        assert!(!text.contains(NOTHING_STARTS), "{text}");
    }

    #[test]
    fn a_retry_of_work_that_waits_skips_the_wait() {
        let (mut open, rules, ada) = received_task();
        let at = Timestamp::UNIX_EPOCH;
        let retry = || Action::Retry { grant: Grant::default() };
        assert!(preview_action(&open, &rules, &ada, retry(), at).starts_with("Not possible now: "));
        let job = open.active_job.as_mut().expect("a job");
        job.not_before = Some(at + chrono::TimeDelta::hours(1));
        let text = preview_action(&open, &rules, &ada, retry(), at);
        assert_eq!(text, "The preparation starts again without waiting.");
    }
}
