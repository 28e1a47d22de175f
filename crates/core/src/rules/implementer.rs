//! Agent that implements a task: the one that its author suggests, or its tier's.

use strum::IntoEnumIterator as _;

use super::problem::closest_match;
use super::{AgentSelection, Rules};
use crate::tier::Tier;

/// Reason for refusing the agent that a task suggests.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SuggestedAgentError {
    /// Agent that the configuration does not define.
    #[error("agent `{name}` is not configured; {hint}", hint = known_agents(.suggestion.as_deref(), .known))]
    Unknown {
        /// Suggested name.
        name: String,
        /// Configured name that is similar.
        suggestion: Option<String>,
        /// Configured names.
        known: Vec<String>,
    },
    /// Agent whose work no validator may judge.
    #[error(
        "agent `{name}` cannot implement tasks: no tier validates its work with a different \
         {required}, which `roles.validator_apart` requires"
    )]
    NoIndependentValidator {
        /// Suggested name.
        name: String,
        /// Required difference.
        required: String,
    },
}

fn known_agents(suggestion: Option<&str>, known: &[String]) -> String {
    if let Some(name) = suggestion {
        return format!("did you mean `{name}`?");
    }
    let names: Vec<_> = known.iter().map(|name| format!("`{name}`")).collect();
    format!("use one of {}", names.join(", "))
}

impl Rules {
    /// Checks that the agent that a task suggests is configured and allowed to implement.
    pub fn check_suggested_agent(&self, name: &str) -> Result<(), SuggestedAgentError> {
        if !self.agents.contains_key(name) {
            let known: Vec<String> = self.agents.keys().cloned().collect();
            let suggestion = closest_match(name, &known).cloned();
            return Err(SuggestedAgentError::Unknown { name: name.to_owned(), suggestion, known });
        }
        // A tier whose own agent has no such validator is only a warning of `config check`.
        let is_judged =
            |agent| move |tier| self.has_independent_validator(&self.implementer(agent, tier));
        let is_worse = |tier: &Tier| is_judged(None)(*tier) && !is_judged(Some(name))(*tier);
        if !Tier::iter().any(|tier| is_worse(&tier)) {
            return Ok(());
        }
        let required = self.roles.validator_apart.to_string();
        Err(SuggestedAgentError::NoIndependentValidator { name: name.to_owned(), required })
    }

    /// Returns the agent that implements a task in a tier, and its model.
    ///
    /// A suggested agent requests the model of the nearest tier that names it, stronger ones first.
    /// If no tier does, it chooses its model.
    pub fn implementer(&self, suggested: Option<&str>, tier: Tier) -> AgentSelection {
        let is_own = |tier: Tier, name: &str| self.tiers.get(tier).agent == name;
        let Some(name) = suggested.filter(|name| !is_own(tier, name)) else {
            return tier.into();
        };
        let stronger = Tier::iter().filter(|other| *other > tier);
        let weaker = Tier::iter().rev().filter(|other| *other < tier);
        let named = stronger.chain(weaker).find(|other| is_own(*other, name));
        let model = named.and_then(|other| self.model(other)).map(str::to_owned);
        AgentSelection { tier, agent: Some(name.to_owned()), model }
    }
}
