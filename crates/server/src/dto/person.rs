//! Personal access tokens.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Request to issue a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPerson {
    /// Name of the person. Roles are granted to this name.
    pub name: String,
    /// Set to create a service account, for a program that cannot sign in.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub service: bool,
}

/// Newly issued token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IssuedToken {
    /// Name of the person.
    pub name: String,
    /// Token; shown only once.
    pub token: String,
    /// Roles that the name already has, by name of the project.
    #[serde(default)]
    pub roles: BTreeMap<String, String>,
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
    /// Accounts: service accounts, people from identity providers, and deactivated ones, by name.
    #[serde(default)]
    pub accounts: Vec<AccountView>,
}

/// Account of a person or a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccountView {
    /// Name.
    pub name: String,
    /// `person` or `service`.
    pub kind: String,
    /// Operator who created it, or the person at their first sign-in.
    pub created_by: String,
    /// Time of its creation.
    pub created_at: DateTime<Utc>,
    /// Operator who deactivated it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deactivated_by: Option<String>,
    /// Time of the deactivation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deactivated_at: Option<DateTime<Utc>>,
    /// Issuers of identity providers, with the subject at each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub identities: Vec<IdentityView>,
}

/// Subject at an identity provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IdentityView {
    /// Issuer of the provider.
    pub issuer: String,
    /// Subject, as the provider's tokens have it.
    pub subject: String,
}

impl From<tamma_store::Account> for AccountView {
    fn from(account: tamma_store::Account) -> Self {
        let (deactivated_by, deactivated_at) = account.deactivated.unzip();
        let identity = |(issuer, subject)| IdentityView { issuer, subject };
        Self {
            name: account.name.to_string(),
            kind: account.kind.to_string(),
            created_by: account.created_by.to_string(),
            created_at: account.created_at,
            deactivated_by: deactivated_by.map(|name| name.to_string()),
            deactivated_at,
            identities: account.identities.into_iter().map(identity).collect(),
        }
    }
}

/// Account to deactivate, or to activate again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AccountName {
    /// Name of the person or service account.
    pub name: String,
}

/// Request to link a subject at an identity provider to a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IdentityLink {
    /// Name of the person.
    pub name: String,
    /// Name of the provider in operator.yaml.
    pub provider: String,
    /// Subject, as the provider's tokens have it.
    pub subject: String,
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
    /// Time of the last request, to the minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<DateTime<Utc>>,
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
            last_used_at: person.last_used_at,
            revoked_by: revoked_by.map(|name| name.to_string()),
            revoked_at,
        }
    }
}
