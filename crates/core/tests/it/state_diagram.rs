//! The state diagram in the documentation matches the code.
#![expect(clippy::disallowed_methods, reason = "the diagram is a file")]

use std::collections::BTreeSet;

use strum::IntoEnumIterator as _;
use tamma_core::task_loop::{State, Trigger, table};

#[test]
fn the_documented_state_diagram_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/machine.md");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        text == tamma_core::state_diagram::render(),
        "docs/machine.md is out of date; run: just gen"
    );
}

#[test]
fn the_picture_of_the_state_machine_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/pictures/machine.svg");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        text == tamma_core::state_diagram::draw(),
        "docs/pictures/machine.svg is out of date; run: just gen"
    );
}

#[test]
fn the_picture_has_every_state_and_one_arrow_per_pair_of_states_that_it_draws() {
    let picture = tamma_core::state_diagram::draw();
    let apart = [State::CtoIntervention, State::HumanEscalation, State::Cancelled, State::Failed];
    let mut arrows = BTreeSet::new();
    for (from, on, to) in table::transitions() {
        let everywhere = [Trigger::TaskChanged, Trigger::PullRequestChanged];
        if ![from, to].iter().any(|it| apart.contains(it)) && !everywhere.contains(&on) {
            assert!(picture.contains(&on.to_string()), "{on}");
            arrows.insert((from, to));
        }
    }
    assert_eq!(picture.matches("class=\"arrow\"").count(), arrows.len());
    for state in State::iter() {
        let (class, name) = ("class=\"state\"", format!(">{state}</text>"));
        let is_name = |line: &&str| line.contains(class) && line.ends_with(&name);
        assert_eq!(picture.lines().filter(is_name).count(), 1, "{state}");
    }
}

#[test]
fn the_state_diagram_lists_every_transition() {
    let diagram = tamma_core::state_diagram::render();
    for (from, on, to) in table::transitions() {
        let drawn = diagram.lines().any(|line| {
            line.starts_with(&format!("| `{from}` | `{to}` | ")) && line.contains(&on.to_string())
        });
        let named = diagram.lines().any(|line| {
            line.starts_with(&format!("- **{on}** → `{to}`")) && line.contains(&format!("`{from}`"))
        });
        assert!(drawn != named, "{from} --{on}--> {to}");
    }
    for row in [
        "| Implement | `in_progress` | 4 h |",
        "| Plan | `planning` | 30 min |",
        "| Alert | `human_escalation` | none |",
    ] {
        assert!(diagram.contains(row), "{row}");
    }
}
