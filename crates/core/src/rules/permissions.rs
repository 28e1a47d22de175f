//! Permission rules for agents, in short form.
//!
//! A rule is an access kind and a pattern, such as `command: cargo *` or `write: migrations/**`.
//! Deny overrides ask, and ask overrides allow, in any order. This module only parses them; the
//! engine enforces them.

use garde::Validate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

/// Role that an agent runs in.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Display, EnumString, EnumIter,
)]
#[strum(serialize_all = "snake_case")]
pub enum AgentRole {
    /// Writes a plan.
    Planner,
    /// Changes files.
    Implementer,
    /// Judges a change.
    Validator,
    /// Analyses a stuck task.
    Council,
}

/// Permissions of agents, by role, on top of the defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct AgentPermissions {
    /// Agent that writes plans.
    #[garde(dive)]
    pub planner: PermissionLists,
    /// Agent that changes files.
    #[garde(dive)]
    pub implementer: PermissionLists,
    /// Agent that judges changes.
    #[garde(dive)]
    pub validator: PermissionLists,
    /// Agents that analyse a stuck task.
    #[garde(dive)]
    pub council: PermissionLists,
}

impl AgentPermissions {
    /// Returns the permissions of a role.
    pub fn get(&self, role: AgentRole) -> &PermissionLists {
        match role {
            AgentRole::Planner => &self.planner,
            AgentRole::Implementer => &self.implementer,
            AgentRole::Validator => &self.validator,
            AgentRole::Council => &self.council,
        }
    }
}

/// Permission rules: `read: path`, `write: path`, `command: line`, `tool: name` or `network: host`.
/// `*` matches anything. `deny` overrides `ask`, and `ask` overrides `allow`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
pub struct PermissionLists {
    /// Allowed without asking.
    #[garde(inner(custom(is_permission_rule)))]
    pub allow: Vec<String>,
    /// Allowed once a person agrees.
    #[garde(inner(custom(is_permission_rule)))]
    pub ask: Vec<String>,
    /// Always refused.
    #[garde(inner(custom(is_permission_rule)))]
    pub deny: Vec<String>,
}

/// Kind of access that a permission rule covers.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Display, EnumString, EnumIter,
)]
#[strum(serialize_all = "snake_case")]
pub enum AccessKind {
    /// Read a file.
    Read,
    /// Change, create, move or delete a file.
    Write,
    /// Run a command.
    Command,
    /// Use any other tool.
    Tool,
    /// Connect to a host.
    Network,
}

/// Parsed permission rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionRule {
    /// Kind of access.
    pub access: AccessKind,
    /// Pattern; `*` matches anything. A path is relative to the root of the worktree, or absolute.
    pub pattern: String,
}

impl PermissionRule {
    /// Parses a rule. The error says how to fix it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (access, pattern) = text
            .split_once(':')
            .and_then(|(access, pattern)| Some((access.trim().parse().ok()?, pattern.trim())))
            .ok_or_else(|| {
                format!(
                    "`{text}` has no known access kind: write `read: path`, `write: path`, \
                     `command: line`, `tool: name` or `network: host`"
                )
            })?;
        let rule = Self { access, pattern: pattern.to_owned() };
        rule.validation_error().map_or(Ok(rule), |error| Err(format!("`{text}` {error}")))
    }

    fn validation_error(&self) -> Option<&'static str> {
        let path = matches!(self.access, AccessKind::Read | AccessKind::Write);
        if self.pattern.is_empty() {
            return Some("has no pattern: use `*` to match anything");
        }
        if self.pattern.chars().count() > 500 || self.pattern.chars().any(char::is_control) {
            return Some("is longer than 500 characters or contains a control character");
        }
        if path && self.pattern.contains(['?', '[', ']', '{', '}', '!', '\\']) {
            return Some("contains an unsupported wildcard: use only `*` and `**`");
        }
        if path && self.pattern.split('/').any(|part| part == ".." || part == ".") {
            return Some("contains `.` or `..`: write the path from the root of the repository");
        }
        None
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature required by garde")]
fn is_permission_rule(text: &str, (): &()) -> garde::Result {
    PermissionRule::parse(text).map(drop).map_err(garde::Error::new)
}
