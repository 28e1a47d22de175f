//! Access tokens with a label, a limit and an end.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Request to create an access token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// Label, such as the program or machine that uses it.
    pub label: String,
    /// Owner; omitted for yourself. Others are for operators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub person: Option<String>,
    /// Highest role that the token can use: viewer, member or approver; omitted for those of its owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// IDs or names of the projects in which it can be used; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub projects: Vec<String>,
    /// End; omitted if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<DateTime<Utc>>,
}

/// Newly created token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedToken {
    /// Token; shown only once.
    pub secret: String,
    /// Facts about it.
    pub token: TokenView,
}

impl std::fmt::Debug for CreatedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedToken").field("token", &self.token).finish_non_exhaustive()
    }
}

/// Access tokens, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenList {
    /// Tokens, also those that have ended.
    pub tokens: Vec<TokenView>,
}

/// Access token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenView {
    /// ID, which is not secret.
    pub id: Uuid,
    /// Owner.
    pub person: String,
    /// Label.
    pub label: String,
    /// Highest role that it can use; omitted for those of its owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// IDs of the projects in which it can be used; omitted for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub projects: Option<Vec<Uuid>>,
    /// Person who created it.
    pub created_by: String,
    /// Time of its creation.
    pub created_at: DateTime<Utc>,
    /// End; omitted if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<DateTime<Utc>>,
    /// Time of the last request, to the minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<DateTime<Utc>>,
    /// Time of the revocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<DateTime<Utc>>,
    /// Set if the account of its owner is deactivated, so that it counts for nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub account_deactivated: bool,
}

impl From<tamma_store::AccessToken> for TokenView {
    fn from(token: tamma_store::AccessToken) -> Self {
        let role = token.limit.as_ref().map(|limit| limit.role.to_string());
        let projects = token.limit.and_then(|limit| limit.projects);
        Self {
            id: token.id,
            person: token.person.to_string(),
            label: token.label,
            role,
            projects: projects.map(|all| all.into_iter().map(|project| project.0).collect()),
            created_by: token.created_by.to_string(),
            created_at: token.created_at,
            expires_at: token.expires_at,
            last_used_at: token.last_used_at,
            revoked_at: token.revoked.map(|(_, at)| at),
            account_deactivated: false,
        }
    }
}

/// Request to revoke an access token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenId {
    /// ID of the token.
    pub id: Uuid,
}
