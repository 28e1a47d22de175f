//! Organisations, and the roles of people in them.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Organisation to add.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewOrganisation {
    /// Unique name: 1 to 40 of a-z, 0-9 and `-`.
    pub name: String,
    /// Temporal namespace of its workflows, which can exist already. Omitted, one named `tamma-` and the
    /// name is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Request to grant a role in an organisation, or to take it away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OrganisationGrant {
    /// Organisation ID or name.
    pub organisation: String,
    /// Name of the person, as their token has it.
    pub person: String,
    /// Role: viewer, member, approver or administrator; omitted to take the role away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
}

/// Request to give a project to an organisation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProjectTransfer {
    /// Project ID or name.
    pub project: String,
    /// ID or name of the new organisation.
    pub organisation: String,
}

/// Organisations that the caller administers; for operators, all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OrganisationList {
    /// Organisations, sorted by name.
    pub organisations: Vec<OrganisationView>,
}

/// Organisation with its projects and roles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OrganisationView {
    /// Organisation ID.
    pub id: Uuid,
    /// Unique name.
    pub name: String,
    /// Temporal namespace of its workflows; omitted for that of the installation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Names of its projects.
    pub projects: Vec<String>,
    /// Roles in the organisation, by name of the person. Roles in single projects are not among them.
    pub roles: BTreeMap<String, String>,
    /// Operator who added it; omitted for the default organisation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// Time at which it was added.
    pub created_at: DateTime<Utc>,
}
