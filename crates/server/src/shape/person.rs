//! People who have a token of their own.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Somebody who is to get a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPerson {
    /// Their name, as `people` in `tamma.yaml` has it and as it is written in the log.
    pub name: String,
}

/// Somebody who has got a token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Welcome {
    /// Their name.
    pub name: String,
    /// The token. It is shown this once.
    pub token: String,
}

impl std::fmt::Debug for Welcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Welcome").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Somebody whose token is taken away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Revocation {
    /// Their name.
    pub name: String,
}

/// Everybody who has a token or had one, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Persons {
    /// They.
    pub people: Vec<Person>,
}

/// Somebody who has a token, or had one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Person {
    /// Their name.
    pub name: String,
    /// Who gave it to them.
    pub added_by: String,
    /// When.
    pub added_at: DateTime<Utc>,
    /// Who took it away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_by: Option<String>,
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<DateTime<Utc>>,
}

impl From<tamma_store::Person> for Person {
    fn from(person: tamma_store::Person) -> Self {
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
