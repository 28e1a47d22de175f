//! Problem documents (RFC 9457), the error format of the API.
//!
//! A problem is written for the person who receives it: what failed, why, and how to fix it.
//! Internal causes go to the server log instead, because they can contain addresses or secrets.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Media type of a problem document.
pub const PROBLEM_MEDIA_TYPE: &str = "application/problem+json";

/// Value of `Retry-After` on 503 responses, in seconds.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("2");

/// Value of `Retry-After` on 429 responses, in seconds.
const THROTTLED_SECONDS: HeaderValue = HeaderValue::from_static("60");

/// Problem document (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Stable identifier of the problem type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Summary, the same for every problem of this type.
    pub title: String,
    /// HTTP status code.
    pub status: u16,
    /// Explanation of this occurrence.
    pub detail: String,
    /// Suggested fix.
    #[serde(rename = "what_to_do", default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Individual errors, such as those of a configuration file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<FileProblem>,
}

/// Error at one position of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileProblem {
    /// Error message.
    pub message: String,
    /// Suggested fix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// Line number, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// Column number, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
}

impl Problem {
    /// Creates a problem whose type is `tamma:` followed by `kind`.
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
            hint: None,
            problems: Vec::new(),
        }
    }

    /// Adds a suggested fix.
    pub(crate) fn hint(mut self, what_to_do: impl Into<String>) -> Self {
        self.hint = Some(what_to_do.into());
        self
    }

    /// Creates a problem for a request that cannot be parsed.
    pub(crate) fn unreadable(status: StatusCode, detail: impl Into<String>) -> Self {
        Self::new(status, "unreadable", "Cannot read the request", detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // Strings and numbers always serialise.
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let kind = [(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_MEDIA_TYPE))];
        let mut response = (status, kind, body).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER_SECONDS);
        }
        if status == StatusCode::TOO_MANY_REQUESTS {
            response.headers_mut().insert(header::RETRY_AFTER, THROTTLED_SECONDS);
        }
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}
