//! Authors of events, and how they were authenticated.

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::Display;

use crate::ids::Name;

/// Author of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    /// Person, authenticated before the event was created.
    Person(Name),
    /// Tamma itself.
    Tamma,
    /// Council of models.
    Council,
}

/// Authentication of the person behind an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authentication {
    /// Method that identified the person.
    pub method: AuthMethod,
    /// Interface that took the request.
    pub via: RequestInterface,
}

/// Method that identified a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum AuthMethod {
    /// Personal access token.
    OwnToken,
    /// Server's token, with the name given in the request. Operators can give any name.
    ServerToken,
    /// Access token of a service account.
    ServiceToken,
    /// Sign-in with an identity provider.
    IdentityProvider,
    /// Account of a forge, which the forge authenticated. It has the rights of a member at most.
    ForgeAccount,
}

/// Interface that took a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum RequestInterface {
    /// JSON API, which the command line uses too.
    Api,
    /// Web UI, in a session that was opened with the token.
    Web,
    /// Confirmed action of the chat, in the terminal or the web UI.
    Chat,
    /// MCP server.
    Mcp,
    /// Issue in a forge: its label, text or comments.
    Issue,
}

/// Formats the authentication for people, such as `own token, web session`.
impl fmt::Display for Authentication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let method = match self.method {
            AuthMethod::OwnToken => "own token",
            AuthMethod::ServerToken => "server token",
            AuthMethod::ServiceToken => "service token",
            AuthMethod::IdentityProvider => "identity provider",
            AuthMethod::ForgeAccount => "forge account",
        };
        let via = match self.via {
            RequestInterface::Api => "API",
            RequestInterface::Web => "web session",
            RequestInterface::Chat => "chat",
            RequestInterface::Mcp => "MCP",
            RequestInterface::Issue => "issue",
        };
        write!(f, "{method}, {via}")
    }
}
