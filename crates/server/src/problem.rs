//! What goes wrong, in the form of RFC 9457.
//!
//! A problem is written for the person who gets it: what happened, why, and what to do. What is
//! only for us goes to the log of the program, since it may have an address or a secret in it.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The media type of a problem.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// Seconds after which a client may ask again when something is not available.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("2");

/// Something that went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// What kind of problem it is: a name that does not change.
    #[serde(rename = "type")]
    pub kind: String,
    /// What happened, the same for every problem of its kind.
    pub title: String,
    /// The status code of the answer.
    pub status: u16,
    /// What happened this time, and why.
    pub detail: String,
    /// What the person who asked can do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what_to_do: Option<String>,
    /// The single faults, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Fault>,
}

/// One of several faults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Fault {
    /// What is wrong.
    pub message: String,
    /// What would be right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// The line of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The column in that line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
}

impl Problem {
    /// A problem of a kind.
    pub(crate) fn new(
        status: StatusCode,
        kind: &str,
        title: &str,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            kind: format!("tamma:{kind}"),
            title: title.to_owned(),
            status: status.as_u16(),
            detail: detail.into(),
            what_to_do: None,
            problems: Vec::new(),
        }
    }

    /// Says what to do about it.
    pub(crate) fn hint(mut self, what_to_do: impl Into<String>) -> Self {
        self.what_to_do = Some(what_to_do.into());
        self
    }

    /// The request cannot be read.
    pub(crate) fn unreadable(status: StatusCode, detail: impl Into<String>) -> Self {
        Self::new(status, "unreadable", "The request cannot be read", detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // A problem is made of texts and numbers, which can always be written.
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let kind = [(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE))];
        let mut response = (status, kind, body).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}
