//! Agents of the ACP registry that are not built in.
//!
//! `registry.json` is a snapshot of `github.com/agentclientprotocol/registry` at commit 3de1678. IDs,
//! names, arguments and variables are the registry's. The names of programs that it starts with `npx`
//! are from their npm packages, and the folders of their sign-in from public documentation and issue
//! threads; an agent whose folder nothing names is left out.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

/// Snapshot of the registry.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentRegistry {
    /// Date of the snapshot.
    pub(crate) date: String,
    pub(crate) agents: Vec<RegistryAgent>,
}

/// Agent of the registry.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RegistryAgent {
    /// Name in the registry and in the configuration.
    pub(crate) id: String,
    /// Name for people.
    pub(crate) name: String,
    /// Program that speaks ACP.
    pub(crate) program: String,
    pub(crate) args: Vec<String>,
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// Paths in the home folder that a signed-in agent needs.
    pub(crate) home: Vec<String>,
}

static REGISTRY: LazyLock<AgentRegistry> = LazyLock::new(|| {
    // A test fails if it cannot be parsed.
    serde_json::from_str(include_str!("registry.json")).unwrap_or_default()
});

/// Returns the snapshot.
pub(crate) fn registry() -> &'static AgentRegistry {
    &REGISTRY
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::BUILT_IN_AGENTS;

    #[test]
    fn the_snapshot_can_be_parsed_and_repeats_no_built_in_agent() {
        assert!(!registry().agents.is_empty() && !registry().date.is_empty());
        for agent in &registry().agents {
            assert!(BUILT_IN_AGENTS.iter().all(|known| known.name != agent.id), "{agent:?}");
            assert!(!agent.program.is_empty() && !agent.home.is_empty(), "{agent:?}");
        }
    }
}
