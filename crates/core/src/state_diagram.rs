//! State diagram, rendered from the transition table as Mermaid in Markdown.

use std::fmt::Write as _;

use strum::IntoEnumIterator;

use crate::rules::Rules;
use crate::state::{Phase, State, Trigger};
use crate::task_loop::table;

/// Renders the state machine as a diagram and a table of its states.
///
/// Three triggers apply in nearly every state and would hide the rest, so they are listed below the
/// diagram instead.
pub fn render() -> String {
    let mut out = String::from(
        "# State machine\n\n\
         Generated from `crates/core/src/task_loop/table.rs` by `just gen`. Do not edit: a test compares \
         it.\n\n\
         ```mermaid\nstateDiagram-v2\n    [*] --> pending\n",
    );
    for from in State::iter() {
        for to in State::iter() {
            let labels = trigger_labels(from, to);
            if !labels.is_empty() {
                push_line(&mut out, &format!("    {from} --> {to}: {}", labels.join(", ")));
            }
        }
    }
    for end in State::iter().filter(|state| state.is_terminal()) {
        push_line(&mut out, &format!("    {end} --> [*]"));
    }
    push_line(&mut out, "```\n\nNot drawn, because they apply in nearly every state:\n");
    for on in [Trigger::Alerted, Trigger::Cancelled, Trigger::TaskChanged] {
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
    let everywhere = [Trigger::Alerted, Trigger::Cancelled, Trigger::TaskChanged];
    Trigger::iter()
        .filter(|on| !everywhere.contains(on) && table::allows(from, *on, to))
        .map(|on| on.to_string())
        .collect()
}

fn push_line(out: &mut String, text: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{text}");
}
