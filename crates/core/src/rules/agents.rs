//! Agents: which programs may do the work, and what each of them is given.
//!
//! The well-known ones are built in, so that a file needs none. A file's entry is laid over the
//! built-in one of the same name key by key.

use std::collections::BTreeMap;

use garde::Validate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Rules;
use crate::tier::Tier;

/// How an agent is started. It speaks the Agent Client Protocol on its standard input and output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct AgentRules {
    /// The program: a name that is found on the worker's `PATH`, or a whole path. Every agent has
    /// one; those that are built in bring theirs.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(min = 1, max = 1_000))]
    #[garde(skip)]
    pub command: String,
    /// Its arguments. They are shown to anybody, so a secret belongs in `env`.
    #[garde(inner(length(max = 1_000)))]
    pub args: Vec<String>,
    /// Variables that it gets. Their values may be secret, so they are no part of the rules' version.
    #[garde(custom(are_variables))]
    pub env: BTreeMap<String, String>,
    /// Names of variables of the worker's own environment that it gets as well. It gets no others.
    #[garde(inner(length(min = 1, max = 100)))]
    pub inherit: Vec<String>,
    /// Who serves its models. All agents of a provider wait while its quota is used up. Without
    /// one, the agent's name stands for it.
    #[garde(length(max = 100))]
    pub provider: String,
}

impl Default for AgentRules {
    fn default() -> Self {
        Self {
            command: String::new(),
            args: Vec::new(),
            env: BTreeMap::new(),
            inherit: ["PATH", "HOME", "LANG", "TERM"].map(str::to_owned).to_vec(),
            provider: String::new(),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is garde's")]
fn are_variables(env: &BTreeMap<String, String>, (): &()) -> garde::Result {
    match env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
        None => Ok(()),
        Some(_) => Err(garde::Error::new(
            "the name of a variable is not empty, and has no `=` in it: write `NAME: value`",
        )),
    }
}

/// The agents that are built in, by name.
pub(super) fn built_in() -> BTreeMap<String, AgentRules> {
    [
        ("claude-code", "claude-agent-acp", None, "anthropic"),
        ("codex", "codex-acp", None, "openai"),
        ("gemini", "gemini", Some("--acp"), "google"),
        ("opencode", "opencode", Some("acp"), "opencode"),
    ]
    .map(|(name, command, argument, provider)| {
        let agent = AgentRules {
            command: command.to_owned(),
            args: argument.into_iter().map(str::to_owned).collect(),
            provider: provider.to_owned(),
            ..AgentRules::default()
        };
        (name.to_owned(), agent)
    })
    .into()
}

/// Which tier does the work beside the implementation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct Roles {
    /// The tier that plans.
    #[garde(skip)]
    pub planner: Tier,
    /// The tier that judges whether a change meets the acceptance criteria.
    #[garde(skip)]
    pub validator: Tier,
}

impl Default for Roles {
    fn default() -> Self {
        Self { planner: Tier::Moderate, validator: Tier::Simple }
    }
}

/// What a worker runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct Engines {
    /// How many agents a worker runs at once.
    #[garde(range(min = 1, max = 1_000))]
    pub slots: u16,
}

impl Default for Engines {
    fn default() -> Self {
        Self { slots: 2 }
    }
}

impl Rules {
    /// The agent of a tier, by name. Rules that were loaded have one for every tier.
    pub fn agent(&self, tier: Tier) -> Option<(&str, &AgentRules)> {
        let name = &self.tiers.get(tier).agent;
        self.agents.get_key_value(name).map(|(name, agent)| (name.as_str(), agent))
    }

    /// Who serves the models of a tier.
    pub fn provider(&self, tier: Tier) -> &str {
        match self.agent(tier) {
            Some((_, agent)) if !agent.provider.is_empty() => &agent.provider,
            _ => &self.tiers.get(tier).agent,
        }
    }
}
