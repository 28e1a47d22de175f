//! Permissions: what agents may do beside the defaults, in a short form.
//!
//! A line is a kind and a pattern, such as `command: cargo *` or `write: migrations/**`. Deny stands
//! over ask, and ask over allow, wherever the lines are. What they mean is decided elsewhere; here
//! they are only read.

use garde::Validate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

/// What an agent is run as.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Display, EnumString, EnumIter,
)]
#[strum(serialize_all = "snake_case")]
pub enum AgentRole {
    /// It writes a plan.
    Planner,
    /// It changes files.
    Implementer,
    /// It judges a change.
    Validator,
    /// It gives advice.
    Council,
}

/// What agents may do, by what they are run as.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct Permissions {
    /// Of the agent that writes a plan.
    #[garde(dive)]
    pub planner: Lines,
    /// Of the agent that changes files.
    #[garde(dive)]
    pub implementer: Lines,
    /// Of the agent that judges a change.
    #[garde(dive)]
    pub validator: Lines,
    /// Of the agents that give advice.
    #[garde(dive)]
    pub council: Lines,
}

impl Permissions {
    /// Those of a role.
    pub fn get(&self, role: AgentRole) -> &Lines {
        match role {
            AgentRole::Planner => &self.planner,
            AgentRole::Implementer => &self.implementer,
            AgentRole::Validator => &self.validator,
            AgentRole::Council => &self.council,
        }
    }
}

/// What is allowed, asked for and denied: `read: path`, `write: path`, `command: line`, `tool: name`
/// or `network: host`, where `*` stands for anything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct Lines {
    /// What needs no question.
    #[garde(inner(custom(is_line)))]
    pub allow: Vec<String>,
    /// What a person is asked about first.
    #[garde(inner(custom(is_line)))]
    pub ask: Vec<String>,
    /// What is never done.
    #[garde(inner(custom(is_line)))]
    pub deny: Vec<String>,
}

/// What kind of thing a line is about.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Display, EnumString, EnumIter,
)]
#[strum(serialize_all = "snake_case")]
pub enum Deed {
    /// To look at a file.
    Read,
    /// To change, make, move or delete a file.
    Write,
    /// To run a command.
    Command,
    /// To use a tool that is none of these.
    Tool,
    /// To reach a host.
    Network,
}

/// One line, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// What it is about.
    pub deed: Deed,
    /// Which ones, with `*` for anything. A path is from the root of the worktree, or a whole one.
    pub pattern: String,
}

impl Line {
    /// Reads a line. An error says what would be right.
    pub fn read(text: &str) -> Result<Self, String> {
        let (deed, pattern) = text
            .split_once(':')
            .and_then(|(deed, pattern)| Some((deed.trim().parse().ok()?, pattern.trim())))
            .ok_or_else(|| {
                format!(
                    "`{text}` does not say what it is about: write `read: path`, `write: path`, \
                     `command: line`, `tool: name` or `network: host`"
                )
            })?;
        let line = Self { deed, pattern: pattern.to_owned() };
        line.flaw().map_or(Ok(line), |flaw| Err(format!("`{text}` {flaw}")))
    }

    fn flaw(&self) -> Option<&'static str> {
        let path = matches!(self.deed, Deed::Read | Deed::Write);
        if self.pattern.is_empty() {
            return Some("names nothing: `*` stands for anything");
        }
        if self.pattern.chars().count() > 500 || self.pattern.chars().any(char::is_control) {
            return Some("is too long, or has a control character in it");
        }
        if path && self.pattern.contains(['?', '[', ']', '{', '}', '!', '\\']) {
            return Some(
                "has a sign that means nothing here: only `*` and `**` stand for something",
            );
        }
        if path && self.pattern.split('/').any(|part| part == ".." || part == ".") {
            return Some(
                "leads around: write the path from the root of the repository, without dots",
            );
        }
        None
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is garde's")]
fn is_line(text: &str, (): &()) -> garde::Result {
    Line::read(text).map(drop).map_err(garde::Error::new)
}
