//! Sessions, and sign-in with identity providers.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Sessions, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionList {
    /// Sessions that are open.
    pub sessions: Vec<SessionView>,
}

/// Session of a browser or of the command line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionView {
    /// ID, which is not secret.
    pub id: String,
    /// Person who signed in.
    pub person: String,
    /// `web` or `cli`.
    pub kind: String,
    /// Method of the sign-in, as in the history of tasks.
    pub auth_method: String,
    /// Program, as it calls itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Time of the sign-in.
    pub created_at: DateTime<Utc>,
    /// Time of the last request, to the minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<DateTime<Utc>>,
    /// End of the session.
    pub expires_at: DateTime<Utc>,
}

impl From<tamma_store::OpenSession> for SessionView {
    fn from(session: tamma_store::OpenSession) -> Self {
        Self {
            id: session.id,
            person: session.person.to_string(),
            kind: session.kind.to_string(),
            auth_method: session.method.to_string(),
            client: session.client,
            created_at: session.created_at,
            last_used_at: session.last_used_at,
            expires_at: session.expires_at,
        }
    }
}

/// Request to revoke a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionId {
    /// ID of the session; `current` for the one of the request.
    pub id: String,
}

/// Identity providers, in the order of the sign-in page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderList {
    /// Providers.
    pub providers: Vec<ProviderView>,
}

/// Identity provider that people can sign in with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderView {
    /// Name in paths and commands.
    pub name: String,
    /// Name for people.
    pub label: String,
}

/// Request to sign in a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRequest {
    /// Program and machine, for the list of sessions.
    #[serde(default)]
    pub client: Option<String>,
}

/// Device that waits for its person.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSignIn {
    /// Secret with which the device asks for its session.
    pub secret: String,
    /// Code that the person enters.
    pub user_code: String,
    /// Address at which the person enters it.
    pub verification_uri: String,
    /// Address that contains the code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification_uri_complete: Option<String>,
    /// Time between two questions, in seconds.
    pub interval_seconds: i32,
    /// Time until the code expires, in seconds.
    pub expires_in_seconds: i64,
}

/// Question of a device.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DevicePoll {
    /// Secret of the device.
    pub secret: String,
}

/// Device whose person has signed in.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedInDevice {
    /// Name of the person.
    pub person: String,
    /// Token of the session.
    pub token: String,
    /// End of the session.
    pub expires_at: DateTime<Utc>,
}
