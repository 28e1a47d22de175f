//! API dialects of model providers, as far as the gateway needs them.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Json, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::secret::Secret;

/// Assumed maximum of output tokens if the request has none.
const DEFAULT_MAX_OUTPUT_TOKENS: u64 = 32_000;

/// API dialect of a model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Dialect {
    /// Anthropic Messages API.
    Anthropic,
    /// OpenAI Chat Completions API.
    Chat,
    /// OpenAI Responses API.
    Responses,
    /// Gemini API.
    Gemini,
}

/// Kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestKind {
    /// Model call.
    Call(Dialect),
    /// Free request, such as a list of models or a token count.
    Free(Dialect),
}

/// Classifies a request by its path. Returns `None` if agents are not allowed to make it.
pub(super) fn classify_request(get: bool, path: &str) -> Option<RequestKind> {
    // An encoded path could resolve to another one at the provider.
    let hidden = ["..", "//", "%2e", "%2f", "%2E", "%2F", "\\"];
    if hidden.iter().any(|part| path.contains(part)) {
        return None;
    }
    if get {
        let (before, last) = path.rsplit_once('/')?;
        let listed = last == "models" || before.ends_with("/models");
        let dialect = if path.contains("/v1beta/") { Dialect::Gemini } else { Dialect::Chat };
        return listed.then_some(RequestKind::Free(dialect));
    }
    [
        ("/messages", RequestKind::Call(Dialect::Anthropic)),
        ("/messages/count_tokens", RequestKind::Free(Dialect::Anthropic)),
        ("/chat/completions", RequestKind::Call(Dialect::Chat)),
        ("/responses", RequestKind::Call(Dialect::Responses)),
        ("/responses/compact", RequestKind::Call(Dialect::Responses)),
        (":generateContent", RequestKind::Call(Dialect::Gemini)),
        (":streamGenerateContent", RequestKind::Call(Dialect::Gemini)),
        (":countTokens", RequestKind::Free(Dialect::Gemini)),
    ]
    .into_iter()
    .find_map(|(end, kind)| path.ends_with(end).then_some(kind))
}

impl Dialect {
    /// Guesses the dialect of a path, for errors of the gateway itself.
    pub(super) fn guess(path: &str) -> Self {
        match classify_request(false, path).or_else(|| classify_request(true, path)) {
            Some(RequestKind::Call(dialect) | RequestKind::Free(dialect)) => dialect,
            None => Self::Chat,
        }
    }

    /// Returns the model of a call.
    pub(super) fn model(self, path: &str, body: &Value) -> Option<String> {
        match self {
            Self::Gemini => {
                path.rsplit('/').next()?.split_once(':').map(|(model, _)| model.to_owned())
            }
            _ => body.get("model")?.as_str().map(str::to_owned),
        }
    }

    /// Returns the maximum number of output tokens.
    pub(super) fn max_output_tokens(self, body: &Value) -> u64 {
        let paths: &[&str] = match self {
            Self::Anthropic => &["/max_tokens"],
            Self::Chat => &["/max_completion_tokens", "/max_tokens"],
            Self::Responses => &["/max_output_tokens"],
            Self::Gemini => &["/generationConfig/maxOutputTokens"],
        };
        let limit = paths.iter().find_map(|path| body.pointer(path)?.as_u64());
        let each = limit.unwrap_or(DEFAULT_MAX_OUTPUT_TOKENS);
        let candidates = ["/n", "/generationConfig/candidateCount"];
        let candidates = candidates.iter().find_map(|path| body.pointer(path)?.as_u64());
        each.saturating_mul(candidates.unwrap_or(1).max(1))
    }

    /// Requests usage in streams that report it only on request. Returns `true` if the body
    /// changed.
    pub(super) fn request_usage(self, body: &mut Value) -> bool {
        if self != Self::Chat || body.get("stream") != Some(&Value::Bool(true)) {
            return false;
        }
        if body.pointer("/stream_options/include_usage") == Some(&Value::Bool(true)) {
            return false;
        }
        if !body["stream_options"].is_object() {
            body["stream_options"] = json!({});
        }
        body["stream_options"]["include_usage"] = Value::Bool(true);
        true
    }

    /// Returns the authentication header of the provider.
    pub(super) fn auth_header(self, key: &Secret) -> Option<(HeaderName, HeaderValue)> {
        let (name, text) = match self {
            Self::Anthropic => (HeaderName::from_static("x-api-key"), key.expose().to_owned()),
            Self::Gemini => (HeaderName::from_static("x-goog-api-key"), key.expose().to_owned()),
            Self::Chat | Self::Responses => {
                (header::AUTHORIZATION, format!("Bearer {}", key.expose()))
            }
        };
        let mut value = HeaderValue::try_from(text).ok()?;
        value.set_sensitive(true);
        Some((name, value))
    }

    /// Builds an error response of the gateway in this dialect.
    pub(super) fn error_response(self, status: StatusCode, message: &str) -> Response {
        let kind = match status.as_u16() {
            400 => "invalid_request_error",
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            _ => "api_error",
        };
        let body = match self {
            Self::Anthropic => {
                json!({ "type": "error", "error": { "type": kind, "message": message } })
            }
            Self::Chat | Self::Responses => {
                json!({ "error": { "message": message, "type": kind, "code": kind, "param": null } })
            }
            Self::Gemini => {
                let name = match status.as_u16() {
                    400 | 413 => "INVALID_ARGUMENT",
                    401 => "UNAUTHENTICATED",
                    403 => "PERMISSION_DENIED",
                    404 => "NOT_FOUND",
                    _ => "UNAVAILABLE",
                };
                json!({ "error": { "code": status.as_u16(), "status": name, "message": message } })
            }
        };
        (status, Json(body)).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_model_calls_and_free_requests_are_forwarded() {
        let call = |dialect| Some(RequestKind::Call(dialect));
        assert_eq!(classify_request(false, "/v1/messages"), call(Dialect::Anthropic));
        assert_eq!(classify_request(false, "/v1/chat/completions"), call(Dialect::Chat));
        let gemini = "/v1beta/models/gemini-2.5-pro:streamGenerateContent";
        assert_eq!(classify_request(false, gemini), call(Dialect::Gemini));
        let count = "/v1/messages/count_tokens";
        assert_eq!(classify_request(false, count), Some(RequestKind::Free(Dialect::Anthropic)));
        assert_eq!(classify_request(true, "/v1/models"), Some(RequestKind::Free(Dialect::Chat)));
        for path in ["/v1/files", "/v1/messages/batches", "/v1/models/../files/messages"] {
            assert_eq!(classify_request(false, path), None, "{path}");
        }
        assert_eq!(classify_request(true, "/v1/files"), None);
    }

    #[test]
    fn usage_is_requested_in_streams() {
        let request_usage = |mut body: Value| (Dialect::Chat.request_usage(&mut body), body);
        assert!(!request_usage(json!({ "model": "m" })).0);
        let already_requested =
            json!({ "stream": true, "stream_options": { "include_usage": true } });
        assert!(!request_usage(already_requested).0);
        let (changed, body) =
            request_usage(json!({ "stream": true, "stream_options": { "a": 1 } }));
        let options = json!({ "a": 1, "include_usage": true });
        assert_eq!((changed, &body["stream_options"]), (true, &options));
        let (changed, body) = request_usage(json!({ "stream": true, "stream_options": null }));
        assert_eq!((changed, &body["stream_options"]), (true, &json!({ "include_usage": true })));
    }
}
