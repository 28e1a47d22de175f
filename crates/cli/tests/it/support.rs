//! Helpers of several tests: scripts of agents, and output as text.

use tamma_testkit::agent::{AgentStep, Script};
use tamma_testkit::sample_plan;

/// Writes `names.txt`.
pub(crate) fn write_names(content: &str) -> AgentStep {
    AgentStep::Write { path: "names.txt".into(), content: content.to_owned() }
}

/// Agent that plans a small change and makes the check fail.
pub(crate) fn failing_script() -> Script {
    Script::planned(sample_plan(1), [write_names("")])
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}
