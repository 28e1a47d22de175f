//! Permissions of people and agents in a project.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Effective permissions in a project: roles of people from the store, and those of agents from the
/// defaults and the rules in its `tamma.yaml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EffectivePermissions {
    /// Name of the project.
    pub project: String,
    /// Roles of people.
    pub people: PersonPermissions,
    /// Permissions of agents, by role.
    pub agents: Vec<RolePermissions>,
}

/// Roles of people in a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PersonPermissions {
    /// Role of everyone who is not named; `none` if they have none.
    pub everybody: String,
    /// Roles by name.
    pub named: BTreeMap<String, String>,
    /// Permissions of each role: `read`, `work` (add and control tasks), `decide` and `operate`.
    pub roles: BTreeMap<String, Vec<String>>,
    /// Role of the person who asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub you: Option<String>,
}

/// Permissions of one role of agents. Requests that match none of them are denied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolePermissions {
    /// Role: planner, implementer, validator or council.
    pub role: String,
    /// Permissions, strongest effect first: deny overrides ask, and ask overrides allow.
    pub permissions: Vec<AgentPermission>,
}

/// One permission of a role of agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentPermission {
    /// `allow`, `ask` or `deny`.
    pub effect: String,
    /// `read`, `write`, `command`, `tool` or `network`.
    pub access: String,
    /// Rule in the syntax of `tamma.yaml`; omitted for defaults that have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Reason that agents and people see.
    pub reason: String,
    /// `true` if Tamma sets it, `false` if `tamma.yaml` does.
    pub default: bool,
}
