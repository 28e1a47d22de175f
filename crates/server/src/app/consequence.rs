//! Consequence of an answer, computed by the state machine.
//!
//! A sentence that is written by hand becomes wrong as soon as a rule changes. Here, the machine makes
//! the step that the answer would cause, and the sentence describes the task after it. Nothing is
//! saved.

use tamma_core::actor::Actor;
use tamma_core::budget::Grant;
use tamma_core::cost::Usd;
use tamma_core::escalation::EscalationAction;
use tamma_core::format::pluralize;
use tamma_core::ids::{Name, Reason, Reference};
use tamma_core::rules::{DeliveryMode, Rules};
use tamma_core::task_loop::{
    Action, AnswerKind, EventKind, State, TaskEvent, TaskLoop, Timestamp, step,
};
use tamma_core::version::FormatVersion;

/// Text in place of the one that the person would write. The machine does not read it.
const PLACEHOLDER: &str = "preview";

/// Describes what an answer of a person would cause now. `None` if the answer needs more input.
pub(crate) fn preview_answer(
    before: &TaskLoop,
    rules: &Rules,
    person: &Name,
    answer: AnswerKind,
    at: Timestamp,
) -> Option<String> {
    let action = preview_action(before, answer)?;
    let event = TaskEvent {
        format: FormatVersion,
        at,
        by: Actor::Person(person.clone()),
        auth: None,
        kind: EventKind::ActionRequested(action),
    };
    Some(match step(before, &event, rules) {
        Ok(made) => describe_step(before, &made.next, rules),
        Err(refusal) => format!("Not possible now: {refusal}."),
    })
}

/// Returns the action of an answer with placeholders. `None` if its consequence depends on the input.
fn preview_action(before: &TaskLoop, answer: AnswerKind) -> Option<Action> {
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

/// Describes a task after a step.
fn describe_step(before: &TaskLoop, next: &TaskLoop, rules: &Rules) -> String {
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
        State::Planning => new_plan,
        State::AwaitingApproval if next.open_question.is_some() => {
            let level = next.risk_level().unwrap_or_default();
            let needed = usize::from(rules.ceremony.get(level).approvers);
            let left = needed.saturating_sub(next.approvals.len());
            format!("{} more needed before an agent starts.", pluralize(left, "approval"))
        }
        State::AwaitingApproval => {
            format!("Plan {version} is checked again and then needs approval.")
        }
        State::Validated => {
            format!("A {}-tier agent starts when a slot is free.", next.tier)
        }
        State::InProgress => "The agent gets it and continues.".to_owned(),
        State::Testing => "The gates run again on the same commit.".to_owned(),
        State::QualityReview => "The change is reviewed again.".to_owned(),
        State::Adjusting => describe_rework(before, next, &new_plan),
        State::CtoIntervention => {
            let reason = next.decision.filter(|it| it.action == EscalationAction::Council);
            match reason {
                Some(decision) => format!("The council meets first ({decision})."),
                None => "The council meets, and the task returns to this decision or its work."
                    .to_owned(),
            }
        }
        State::Approved | State::Committing => describe_delivery(next, rules),
        State::AwaitingMerge => "Tamma continues with the pull request.".to_owned(),
        State::Learning | State::Completed => {
            "The step counts as done, and the task is completed.".to_owned()
        }
        State::HumanEscalation => match &next.open_question {
            Some(question) => {
                format!("The task stops and asks a person: {}.", question.cause)
            }
            None => "The task stops and asks a person.".to_owned(),
        },
        State::Cancelled => "The task stops for good. Its work stays on its branch.".to_owned(),
        State::Failed => {
            "The task ends as failed. Its work stays on its branch, and lessons are captured."
                .to_owned()
        }
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
