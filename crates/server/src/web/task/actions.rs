//! Action forms of a task, each with its consequence.

use strum::IntoEnumIterator as _;
use tamma_core::cause::AlertCause;
use tamma_core::format::{format_usd, humanize, pluralize};
use tamma_core::task_loop::{AnswerKind, State};

use super::TaskData;
use crate::clock;
use crate::web::board::serialized_name;
use crate::web::labels;

/// Form of one action.
#[derive(Default)]
pub(in crate::web) struct ActionForm {
    pub(in crate::web) name: &'static str,
    pub(in crate::web) action: &'static str,
    /// Consequence of the action, in one sentence.
    pub(in crate::web) consequence: String,
    pub(in crate::web) button: String,
    pub(in crate::web) style: &'static str,
    /// Name of the text field; empty if the action takes no text.
    pub(in crate::web) text_field: &'static str,
    pub(in crate::web) label: &'static str,
    pub(in crate::web) is_required: bool,
    pub(in crate::web) plan: String,
    pub(in crate::web) commit: String,
    /// Scope of the decision, such as the plan or commit it covers.
    pub(in crate::web) scope_note: String,
    pub(in crate::web) is_open: bool,
    pub(in crate::web) asks_grant: bool,
    pub(in crate::web) target_states: StateOptions,
    pub(in crate::web) takes_line_comments: bool,
    pub(in crate::web) form_id: &'static str,
    pub(in crate::web) link_text: &'static str,
    pub(in crate::web) link_href: String,
    /// Idempotency key: a repeated submission has no further effect.
    pub(in crate::web) idempotency_key: String,
}

/// States that a task can be rolled back to.
#[derive(Default)]
pub(in crate::web) struct StateOptions {
    pub(in crate::web) any: bool,
    pub(in crate::web) list: Vec<StateOption>,
}

pub(in crate::web) struct StateOption {
    pub(in crate::web) value: String,
    pub(in crate::web) text: String,
}

/// Builds the forms that answer the open question.
pub(super) fn answer_forms(known: &TaskData, answers: &[AnswerKind]) -> Vec<ActionForm> {
    let first = answers.first().copied();
    answers
        .iter()
        .map(|answer| {
            let deed = answer_form(known, *answer);
            let is_first = Some(*answer) == first;
            let weight = match (is_first, deed.style) {
                (true, "") => "primary",
                (_, weight) => weight,
            };
            ActionForm {
                is_open: is_first,
                style: weight,
                idempotency_key: clock::new_id().to_string(),
                ..deed
            }
        })
        .collect()
}

#[expect(clippy::too_many_lines, reason = "one form per answer")]
fn answer_form(known: &TaskData, answer: AnswerKind) -> ActionForm {
    let plan = known.detail.plan.as_ref();
    let hash = plan.map(|plan| plan.hash.clone()).unwrap_or_default();
    let version = plan.map_or(0, |plan| plan.version);
    let commit = known.detail.commit.clone().unwrap_or_default();
    let left = known.budget_limit().usd.map(|limit| {
        let spent = known.detail.card.spend.usd;
        format_usd(limit.saturating_sub(spent))
    });
    let may_spend =
        left.map(|left| format!(" It can spend up to {left} more.")).unwrap_or_default();
    let why = |deed: ActionForm, required| ActionForm {
        text_field: "reason",
        label: "Reason",
        is_required: required,
        ..deed
    };
    let about_plan = format!("Covers plan {version} ({}) only.", labels::short_hash(&hash));
    match answer {
        AnswerKind::Approve => why(
            ActionForm {
                name: "Approve",
                action: "approve",
                consequence: format!(
                    "A {}-tier agent starts when a slot is free.{may_spend}",
                    known.task_loop.tier
                ),
                button: format!("Approve plan {version}"),
                scope_note: format!(
                    "Covers plan {version} ({}) with its base commit and rules. If any of them \
                     changes, approval is needed again.",
                    labels::short_hash(&hash)
                ),
                plan: hash,
                ..ActionForm::default()
            },
            false,
        ),
        AnswerKind::Reject => why(
            ActionForm {
                name: "Reject",
                action: "reject",
                consequence:
                    "This plan will not run. The task waits for someone to choose the next step."
                        .to_owned(),
                button: format!("Reject plan {version}"),
                style: "danger",
                plan: hash,
                ..ActionForm::default()
            },
            true,
        ),
        AnswerKind::RevisePlan => ActionForm {
            name: "Revise plan",
            action: "ask_changes",
            consequence: format!(
                "The planner writes plan {}, which needs approval again. Nothing runs until \
                 then.",
                version + 1
            ),
            button: "Revise plan".to_owned(),
            text_field: "changes",
            label: "What should change?",
            is_required: true,
            scope_note: about_plan,
            plan: hash,
            link_text: "Edit the plan",
            link_href: format!("/tasks/{}/plan/edit", known.detail.card.id),
            ..ActionForm::default()
        },
        AnswerKind::Override => why(
            ActionForm {
                name: "Override",
                action: "override",
                consequence:
                    "The prohibition is lifted for this plan only, which then needs approval. Your \
                       name and reason are recorded."
                        .to_owned(),
                button: "Override prohibition".to_owned(),
                style: "danger",
                scope_note: about_plan,
                plan: hash,
                ..ActionForm::default()
            },
            true,
        ),
        AnswerKind::Accept => why(
            ActionForm {
                name: "Accept",
                action: "accept",
                consequence: format!(
                    "Commit {} is delivered to the task's branch.",
                    labels::short_hash(&commit)
                ),
                button: "Accept change".to_owned(),
                scope_note: format!(
                    "Covers commit {} only. A new commit needs a new review.",
                    labels::short_hash(&commit)
                ),
                commit,
                ..ActionForm::default()
            },
            false,
        ),
        AnswerKind::RequestChanges => ActionForm {
            name: "Request changes",
            action: "rework",
            consequence:
                "Your comments go to the agent, which reworks the change. Gates and review run \
                   again."
                    .to_owned(),
            button: "Request changes".to_owned(),
            text_field: "comments",
            label: "What should change?",
            takes_line_comments: true,
            form_id: "rework",
            commit,
            ..ActionForm::default()
        },
        AnswerKind::Reply => ActionForm {
            name: "Reply",
            action: "reply",
            consequence: "Your reply goes to the agent, and the task continues.".to_owned(),
            button: "Send reply".to_owned(),
            text_field: "text",
            label: "Your reply",
            is_required: true,
            ..ActionForm::default()
        },
        AnswerKind::Continue => ActionForm {
            name: "Continue",
            action: "continue",
            consequence: "The task continues where it stopped, with the additional limits below."
                .to_owned(),
            button: "Continue".to_owned(),
            asks_grant: true,
            ..ActionForm::default()
        },
        AnswerKind::Retry => ActionForm {
            name: "Retry",
            action: "retry",
            consequence: "The failed step runs again.".to_owned(),
            button: "Retry".to_owned(),
            asks_grant: !matches!(
                known.detail.question.as_ref().map(|question| question.cause),
                Some(AlertCause::Blocked(_) | AlertCause::Rejected)
            ),
            ..ActionForm::default()
        },
        AnswerKind::ChangeTask => modify_form("Edit the request and replan."),
        AnswerKind::RollBack => why(
            ActionForm {
                name: "Roll back",
                action: "roll_back",
                consequence: "The task returns to an earlier state and continues from there."
                    .to_owned(),
                button: "Roll back".to_owned(),
                target_states: rollback_states(known),
                ..ActionForm::default()
            },
            true,
        ),
        AnswerKind::Skip => why(
            ActionForm {
                name: "Skip",
                action: "skip",
                consequence: "The failed step counts as done. Your name and reason are recorded."
                    .to_owned(),
                button: "Skip step".to_owned(),
                style: "danger",
                ..ActionForm::default()
            },
            true,
        ),
        AnswerKind::Cancel => cancel_form("The task stops for good. Its work stays on its branch."),
        AnswerKind::Abandon => why(
            ActionForm {
                name: "Abandon",
                action: "abandon",
                consequence:
                    "The task ends as failed. Its work stays on its branch, and lessons are \
                       captured."
                        .to_owned(),
                button: "Abandon task".to_owned(),
                style: "danger",
                ..ActionForm::default()
            },
            true,
        ),
    }
}

/// Returns the states that a task can be rolled back to: those before the one it came from.
fn rollback_states(known: &TaskData) -> StateOptions {
    let from = known.task_loop.open_question.as_ref().map(|question| question.from_state);
    let place = from.and_then(|from| State::MAIN_PATH.iter().position(|one| *one == from));
    let list: Vec<_> = State::iter()
        .filter(|state| [State::Planning, State::Validated].contains(state))
        .filter(|state| {
            let at = State::MAIN_PATH.iter().position(|one| one == state);
            place.is_none_or(|place| at.is_some_and(|at| at < place))
        })
        .map(|state| StateOption { value: serialized_name(&state), text: humanize(&state) })
        .collect();
    StateOptions { any: !list.is_empty(), list }
}

fn modify_form(what: &str) -> ActionForm {
    ActionForm {
        name: "Change task",
        action: "modify",
        consequence: what.to_owned(),
        button: "Save and replan".to_owned(),
        text_field: "note",
        label: "New request",
        is_required: true,
        ..ActionForm::default()
    }
}

fn cancel_form(what: &str) -> ActionForm {
    ActionForm {
        name: "Cancel task",
        action: "cancel",
        consequence: what.to_owned(),
        button: "Cancel task".to_owned(),
        style: "danger",
        text_field: "reason",
        label: "Reason",
        is_required: true,
        ..ActionForm::default()
    }
}

/// Builds the forms that are always available.
pub(super) fn control_forms(known: &TaskData) -> Vec<ActionForm> {
    let card = &known.detail.card;
    if card.state.is_terminal() {
        return Vec::new();
    }
    let first = if card.paused {
        ActionForm {
            name: "Resume",
            action: "resume",
            consequence: "Continues where it stopped.".to_owned(),
            button: "Resume".to_owned(),
            style: "primary",
            ..ActionForm::default()
        }
    } else {
        ActionForm {
            name: "Pause",
            action: "pause",
            consequence: "Keeps state and work until resumed.".to_owned(),
            button: "Pause".to_owned(),
            ..ActionForm::default()
        }
    };
    let deeds = [
        first,
        modify_form("Edit the request and replan."),
        cancel_form("The task stops for good. Its work stays on its branch."),
    ];
    deeds
        .into_iter()
        .map(|deed| ActionForm { idempotency_key: clock::new_id().to_string(), ..deed })
        .collect()
}

/// Returns the facts that a person needs to answer the question.
pub(super) fn decision_context(known: &TaskData) -> Vec<String> {
    let Some(question) = &known.detail.question else { return Vec::new() };
    let mut lines = Vec::new();
    if let (AlertCause::ApprovalNeeded { .. }, Some(plan)) = (question.cause, &known.detail.plan) {
        let files = pluralize(plan.files, "file");
        let warnings = known.detail.risk_report.as_ref().map_or(0, |report| report.warnings);
        lines.push(format!(
            "Plan {} changes {files}. The knowledge check raised {}.",
            plan.version,
            match warnings {
                0 => "no warnings".to_owned(),
                count => pluralize(count, "warning"),
            }
        ));
    }
    if let Some(commit) = &known.detail.commit {
        lines.push(format!("Latest commit: {}", labels::short_hash(commit)));
    }
    lines
}
