//! The state diagram in the documentation matches the code.
#![expect(clippy::disallowed_methods, reason = "the diagram is a file")]

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
fn the_state_diagram_draws_or_lists_every_transition() {
    use tamma_core::task_loop::table;
    let diagram = tamma_core::state_diagram::render();
    for (from, on, to) in table::transitions() {
        let drawn = diagram.lines().any(|line| {
            line.starts_with(&format!("    {from} --> {to}:")) && line.contains(&on.to_string())
        });
        let named = diagram.lines().any(|line| {
            line.starts_with(&format!("- **{on}** → `{to}`")) && line.contains(&format!("`{from}`"))
        });
        assert!(drawn != named, "{from} --{on}--> {to}");
    }
    for end in ["completed", "cancelled", "failed"] {
        assert!(diagram.contains(&format!("    {end} --> [*]\n")));
    }
    for row in [
        "| Implement | `in_progress` | 4 h |",
        "| Plan | `planning` | 30 min |",
        "| Alert | `human_escalation` | none |",
    ] {
        assert!(diagram.contains(row), "{row}");
    }
}
