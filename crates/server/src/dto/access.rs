//! Roles of people in projects.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Request to grant a role in a project, or to take it away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AccessGrant {
    /// Project ID or name; optional if only one project is registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Name of the person, as their token has it; omitted for everybody who has a token and no role
    /// of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub person: Option<String>,
    /// Role: viewer, member or approver; omitted to take the role away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
}

/// Request to import the roles in a repository's `tamma.yaml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AccessImport {
    /// Project ID or name; optional if only one project is registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
}

/// Roles by project, and how they came about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccessList {
    /// Current roles.
    pub projects: Vec<ProjectAccess>,
    /// Newest changes, newest first.
    pub changes: Vec<AccessRecord>,
}

/// Roles in one project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProjectAccess {
    /// Name of the project.
    pub project: String,
    /// Role of everybody who has a token and is not named; omitted if they have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub everybody: Option<String>,
    /// Roles by name.
    pub named: BTreeMap<String, String>,
}

/// Change of a role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccessRecord {
    /// Name of the project.
    pub project: String,
    /// Name of the person; omitted for everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub person: Option<String>,
    /// New role; omitted if it was taken away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Operator who made the change.
    pub by: String,
    /// Method that identified the operator.
    pub auth_method: String,
    /// `granted`, `revoked` or `imported`.
    pub source: String,
    /// Time of the change.
    pub at: DateTime<Utc>,
}

/// Decision about an action of a person on a task, with its reasons.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccessCheck {
    /// Name of the person.
    pub person: String,
    /// Action in question.
    pub action: String,
    /// Name of the project of the task.
    pub project: String,
    /// Set if the person can do it.
    pub allowed: bool,
    /// Permission that the action requires.
    pub permission: String,
    /// Lowest role that has the permission.
    pub required_role: String,
    /// Role of the person in the project; omitted without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Where the role comes from, and what stands in the way, one sentence each.
    pub reasons: Vec<String>,
}
