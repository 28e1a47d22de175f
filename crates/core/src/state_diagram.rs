//! State diagram, rendered from the transition table: a page in Markdown, and its picture.

mod picture;

use std::fmt::Write as _;

use strum::IntoEnumIterator;

use crate::rules::Rules;
use crate::state::{Phase, State, Trigger};
use crate::task_loop::table;

pub use picture::draw;

/// Triggers that apply in nearly every state. They would hide the rest, so they are listed apart.
const EVERYWHERE: [Trigger; 3] = [Trigger::Alerted, Trigger::Cancelled, Trigger::TaskChanged];

/// Renders the page of the state machine: its picture, all transitions and all states.
pub fn render() -> String {
    let mut out = String::from(
        "# State machine\n\n\
         Generated from `crates/core/src/task_loop/table.rs` by `just gen`. Do not edit: a test compares \
         it.\n\n\
         ![States of a task: the main path from pending to completed, with the returns to earlier states \
         on the left and rework on the right](pictures/machine.svg)\n\n\
         The picture has no arrows from and to the states with a dashed border, nor those of `pull request \
         changed`: nearly every state has them. The table and the list below it have every transition.\n\n\
         | from | to | trigger |\n| --- | --- | --- |\n",
    );
    for from in State::iter() {
        for to in State::iter() {
            let labels = trigger_labels(from, to);
            if !labels.is_empty() {
                push_line(&mut out, &format!("| `{from}` | `{to}` | {} |", labels.join(", ")));
            }
        }
    }
    push_line(&mut out, "\nNot in the table, because they apply in nearly every state:\n");
    for on in EVERYWHERE {
        let arrows: Vec<_> = table::transitions().filter(|arrow| arrow.1 == on).collect();
        let from: Vec<_> = arrows.iter().map(|(from, ..)| format!("`{from}`")).collect();
        if let Some((.., to)) = arrows.first() {
            push_line(&mut out, &format!("- **{on}** → `{to}`, from {}.", from.join(", ")));
        }
    }
    push_line(&mut out, "\n| phase | state | soft timeout |\n| --- | --- | --- |");
    let limits = Rules::default().scrum_master.task_loop.state_timeouts;
    for phase in Phase::iter() {
        for state in State::iter().filter(|state| state.phase() == phase) {
            let timeout = state.soft_timeout(&limits).map_or("none".to_owned(), |minutes| {
                if minutes % 60 == 0 {
                    format!("{} h", minutes / 60)
                } else {
                    format!("{minutes} min")
                }
            });
            push_line(&mut out, &format!("| {phase} | `{state}` | {timeout} |"));
        }
    }
    out
}

fn trigger_labels(from: State, to: State) -> Vec<String> {
    Trigger::iter()
        .filter(|on| !EVERYWHERE.contains(on) && table::allows(from, *on, to))
        .map(|on| on.to_string())
        .collect()
}

fn push_line(out: &mut String, text: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{text}");
}
