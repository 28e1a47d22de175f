//! What a person may do with a task, each with what follows from it, said before the click.

use strum::IntoEnumIterator as _;
use tamma_core::cause::Cause;
use tamma_core::task_loop::{Answer, State};

use super::Known;
use crate::clock;
use crate::web::board::word;
use crate::web::words;

/// One thing that may be done, as a form.
#[derive(Default)]
pub(in crate::web) struct Deed {
    pub(in crate::web) name: &'static str,
    pub(in crate::web) action: &'static str,
    /// What follows from it.
    pub(in crate::web) what: String,
    pub(in crate::web) button: String,
    pub(in crate::web) weight: &'static str,
    /// The field of the text it takes; empty where it takes none.
    pub(in crate::web) text: &'static str,
    pub(in crate::web) label: &'static str,
    pub(in crate::web) required: bool,
    pub(in crate::web) plan: String,
    pub(in crate::web) commit: String,
    /// What it is bound to.
    pub(in crate::web) bound: String,
    pub(in crate::web) open: bool,
    pub(in crate::web) grant: bool,
    pub(in crate::web) states: States,
    pub(in crate::web) lines: bool,
    pub(in crate::web) form: &'static str,
    pub(in crate::web) link: &'static str,
    pub(in crate::web) link_href: String,
    /// Makes a repeated request the same request.
    pub(in crate::web) key: String,
}

/// States to choose from.
#[derive(Default)]
pub(in crate::web) struct States {
    pub(in crate::web) any: bool,
    pub(in crate::web) list: Vec<StateChoice>,
}

pub(in crate::web) struct StateChoice {
    pub(in crate::web) value: String,
    pub(in crate::web) text: String,
}

/// What may be answered to the open question.
pub(super) fn answers(known: &Known, answers: &[Answer]) -> Vec<Deed> {
    let first = answers.first().copied();
    answers
        .iter()
        .map(|answer| {
            let deed = answer_deed(known, *answer);
            let is_first = Some(*answer) == first;
            let weight = match (is_first, deed.weight) {
                (true, "") => "primary",
                (_, weight) => weight,
            };
            Deed { open: is_first, weight, key: clock::new_id().to_string(), ..deed }
        })
        .collect()
}

#[expect(clippy::too_many_lines, reason = "one answer after the other")]
fn answer_deed(known: &Known, answer: Answer) -> Deed {
    let plan = known.whole.plan.as_ref();
    let hash = plan.map(|plan| plan.hash.clone()).unwrap_or_default();
    let version = plan.map_or(0, |plan| plan.version);
    let commit = known.whole.commit.clone().unwrap_or_default();
    let first = |text: &str| text.chars().take(8).collect::<String>();
    let left = known.limit().usd.map(|limit| {
        let spent = known.whole.card.spend.usd;
        words::dollars(limit.less(spent))
    });
    let may_spend =
        left.map(|left| format!(" It may spend up to {left} more.")).unwrap_or_default();
    let why = |deed: Deed, required| Deed { text: "reason", label: "Why", required, ..deed };
    let about_plan = format!("About plan {version} ({}).", first(&hash));
    match answer {
        Answer::Approve => why(
            Deed {
                name: "Approve",
                action: "approve",
                what: format!(
                    "An engine of tier {} starts as soon as a place is free.{may_spend}",
                    known.machine.tier
                ),
                button: format!("Approve plan {version}"),
                bound: format!(
                    "Bound to plan {version} ({}), the base and the rules: if one of them changes, \
                     it is void.",
                    first(&hash)
                ),
                plan: hash,
                ..Deed::default()
            },
            false,
        ),
        Answer::Reject => why(
            Deed {
                name: "Reject",
                action: "reject",
                what: "This plan never runs. The task waits for a person to say how to go on."
                    .to_owned(),
                button: format!("Reject plan {version}"),
                weight: "danger",
                plan: hash,
                ..Deed::default()
            },
            true,
        ),
        Answer::AskChanges => Deed {
            name: "Ask for changes",
            action: "ask_changes",
            what: format!(
                "The planner writes version {}. It is checked and comes back here; nothing runs \
                 meanwhile.",
                version + 1
            ),
            button: "Ask for changes".to_owned(),
            text: "changes",
            label: "What is to be changed",
            required: true,
            bound: about_plan,
            plan: hash,
            link: "Change field by field",
            link_href: format!("/tasks/{}/plan/edit", known.whole.card.id),
            ..Deed::default()
        },
        Answer::Override => why(
            Deed {
                name: "Override",
                action: "override",
                what:
                    "The prohibition is lifted for this plan, and for this plan only. It goes on \
                       to its approval. Your name and your reason are kept."
                        .to_owned(),
                button: "Lift the prohibition".to_owned(),
                weight: "danger",
                bound: about_plan,
                plan: hash,
                ..Deed::default()
            },
            true,
        ),
        Answer::Accept => why(
            Deed {
                name: "Accept",
                action: "accept",
                what: "The change is delivered.".to_owned(),
                button: format!("Accept {}", first(&commit)),
                bound: format!("Bound to commit {}: a new commit asks again.", first(&commit)),
                commit,
                ..Deed::default()
            },
            false,
        ),
        Answer::Rework => Deed {
            name: "Send back",
            action: "rework",
            what:
                "The agent gets your comments, each with its line, and runs once more. Gates and \
                   review follow."
                    .to_owned(),
            button: "Send back".to_owned(),
            text: "comments",
            label: "What is to be different",
            lines: true,
            form: "rework",
            commit,
            ..Deed::default()
        },
        Answer::Reply => Deed {
            name: "Reply",
            action: "reply",
            what: "The agent reads your words, and the task goes on.".to_owned(),
            button: "Send the reply".to_owned(),
            text: "text",
            label: "Your reply",
            required: true,
            ..Deed::default()
        },
        Answer::Continue => Deed {
            name: "Continue",
            action: "continue",
            what: "Goes on where it stopped. What it may use beyond its limits stands below."
                .to_owned(),
            button: "Continue with this much more".to_owned(),
            grant: true,
            ..Deed::default()
        },
        Answer::Retry => Deed {
            name: "Retry",
            action: "retry",
            what: "What failed is tried once more.".to_owned(),
            button: "Retry".to_owned(),
            grant: !matches!(
                known.whole.question.as_ref().map(|question| question.cause),
                Some(Cause::Blocked(_) | Cause::Rejected)
            ),
            ..Deed::default()
        },
        Answer::Modify => {
            modify("What is wanted changes; the planner starts again from your words.")
        }
        Answer::RollBack => why(
            Deed {
                name: "Roll back",
                action: "roll_back",
                what: "Goes back to an earlier state, and from there on again.".to_owned(),
                button: "Roll back".to_owned(),
                states: back(known),
                ..Deed::default()
            },
            true,
        ),
        Answer::Skip => why(
            Deed {
                name: "Skip",
                action: "skip",
                what: "The step that failed is taken as done. Your name and your reason are kept."
                    .to_owned(),
                button: "Skip the step".to_owned(),
                weight: "danger",
                ..Deed::default()
            },
            true,
        ),
        Answer::Cancel => cancel("The task ends as cancelled. Its work stays on its branch."),
        Answer::Abandon => why(
            Deed {
                name: "Abandon",
                action: "abandon",
                what: "The task ends as given up. Its work stays on its branch, and what can be \
                       learned from it is written down."
                    .to_owned(),
                button: "Abandon the task".to_owned(),
                weight: "danger",
                ..Deed::default()
            },
            true,
        ),
    }
}

/// The states that a task may go back to: those of the straight way before the one it came from.
fn back(known: &Known) -> States {
    let from = known.machine.question.as_ref().map(|question| question.from);
    let place = from.and_then(|from| State::MAIN_WAY.iter().position(|one| *one == from));
    let list: Vec<_> = State::iter()
        .filter(|state| [State::Planning, State::Validated].contains(state))
        .filter(|state| {
            let at = State::MAIN_WAY.iter().position(|one| one == state);
            place.is_none_or(|place| at.is_some_and(|at| at < place))
        })
        .map(|state| StateChoice { value: word(&state), text: words::plain(&state) })
        .collect();
    States { any: !list.is_empty(), list }
}

fn modify(what: &str) -> Deed {
    Deed {
        name: "Modify",
        action: "modify",
        what: what.to_owned(),
        button: "Change what is wanted".to_owned(),
        text: "note",
        label: "What is wanted now",
        required: true,
        ..Deed::default()
    }
}

fn cancel(what: &str) -> Deed {
    Deed {
        name: "Cancel",
        action: "cancel",
        what: what.to_owned(),
        button: "Cancel the task".to_owned(),
        weight: "danger",
        text: "reason",
        label: "Why",
        required: true,
        ..Deed::default()
    }
}

/// What may be asked of a task at any time.
pub(super) fn steer(known: &Known) -> Vec<Deed> {
    let card = &known.whole.card;
    if card.state.is_terminal() {
        return Vec::new();
    }
    let first = if card.paused {
        Deed {
            name: "Resume",
            action: "resume",
            what: "goes on from where it was".to_owned(),
            button: "Resume".to_owned(),
            weight: "primary",
            ..Deed::default()
        }
    } else {
        Deed {
            name: "Pause",
            action: "pause",
            what: "keeps state and work; resuming goes on from here".to_owned(),
            button: "Pause".to_owned(),
            ..Deed::default()
        }
    };
    let deeds = [
        first,
        modify("say what is wanted now; a new plan is made"),
        cancel("ends it for good; its work stays on the branch"),
    ];
    deeds.into_iter().map(|deed| Deed { key: clock::new_id().to_string(), ..deed }).collect()
}

/// What a person should know before they answer.
pub(super) fn why(known: &Known) -> Vec<String> {
    let Some(question) = &known.whole.question else { return Vec::new() };
    let mut lines = Vec::new();
    if let (Cause::ApprovalNeeded { .. }, Some(plan)) = (question.cause, &known.whole.plan) {
        let files = words::counted(plan.files.into(), "file");
        let warnings = known.whole.risk_report.as_ref().map_or(0, |report| report.warnings);
        lines.push(format!(
            "Version {} touches {files}, and what the team knows gave {}.",
            plan.version,
            words::counted(warnings.into(), "warning")
        ));
    }
    if let Some(commit) = &known.whole.commit {
        let first: String = commit.chars().take(8).collect();
        lines.push(format!("Its newest commit is {first}."));
    }
    lines
}
