//! The machine drawn from its own table, as Mermaid in Markdown.

use std::fmt::Write as _;

use strum::IntoEnumIterator;

use crate::rules::Rules;
use crate::state::{Phase, State, Trigger};
use crate::task_loop::table;

/// What the machine looks like: a diagram, and a table of the states.
///
/// Three kinds of arrow leave nearly every state, and would hide the rest: they are described
/// below the diagram and not drawn.
pub fn draw() -> String {
    let mut out = String::from(
        "# The machine\n\n\
         Drawn from `crates/core/src/task_loop/table.rs` by `just gen`. Do not edit: a test compares \
         it.\n\n\
         ```mermaid\nstateDiagram-v2\n    [*] --> pending\n",
    );
    for from in State::iter() {
        for to in State::iter() {
            let labels = labels(from, to);
            if !labels.is_empty() {
                line(&mut out, &format!("    {from} --> {to}: {}", labels.join(", ")));
            }
        }
    }
    for end in State::iter().filter(|state| state.is_terminal()) {
        line(&mut out, &format!("    {end} --> [*]"));
    }
    line(&mut out, "```\n\nNot drawn, because they leave nearly every state:\n");
    for on in [Trigger::Alerted, Trigger::Cancelled, Trigger::Modified] {
        let arrows: Vec<_> = table::arrows().filter(|arrow| arrow.1 == on).collect();
        let from: Vec<_> = arrows.iter().map(|(from, ..)| format!("`{from}`")).collect();
        if let Some((.., to)) = arrows.first() {
            line(&mut out, &format!("- **{on}** → `{to}`, from {}.", from.join(", ")));
        }
    }
    line(&mut out, "\n| phase | state | soft timeout |\n| --- | --- | --- |");
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
            line(&mut out, &format!("| {phase} | `{state}` | {timeout} |"));
        }
    }
    out
}

fn labels(from: State, to: State) -> Vec<String> {
    let everywhere = [Trigger::Alerted, Trigger::Cancelled, Trigger::Modified];
    Trigger::iter()
        .filter(|on| !everywhere.contains(on) && table::allows(from, *on, to))
        .map(|on| on.to_string())
        .collect()
}

fn line(out: &mut String, text: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{text}");
}
