//! Personal access tokens.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Request to issue a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPerson {
    /// Name of the person. Roles are granted to this name.
    pub name: String,
}

/// Newly issued token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IssuedToken {
    /// Name of the person.
    pub name: String,
    /// Token; shown only once.
    pub token: String,
}

impl std::fmt::Debug for IssuedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Welcome").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Link that signs a person in to the web UI.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SignInLink {
    /// Path on the server. It works once.
    pub path: String,
    /// Complete URL, if the server has a public one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

impl std::fmt::Debug for SignInLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignInLink").finish_non_exhaustive()
    }
}

/// Request to revoke a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRevocation {
    /// Name of the person.
    pub name: String,
}

/// Everyone who has or had a token, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PersonList {
    /// Tokens, sorted by name.
    pub people: Vec<PersonRecord>,
}

/// Person who has or had a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PersonRecord {
    /// Name of the person.
    pub name: String,
    /// Operator who issued it.
    pub added_by: String,
    /// Time of issue.
    pub added_at: DateTime<Utc>,
    /// Operator who revoked it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_by: Option<String>,
    /// Time of revocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<DateTime<Utc>>,
}

impl From<tamma_store::PersonToken> for PersonRecord {
    fn from(person: tamma_store::PersonToken) -> Self {
        let (revoked_by, revoked_at) = person.revoked.unzip();
        Self {
            name: person.name.to_string(),
            added_by: person.added_by.to_string(),
            added_at: person.added_at,
            revoked_by: revoked_by.map(|name| name.to_string()),
            revoked_at,
        }
    }
}
