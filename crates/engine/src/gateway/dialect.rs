//! The providers' protocols, as far as the gateway must understand them.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Json, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::secret::Secret;

/// What a response may be long if the request does not say it.
const DEFAULT_OUTPUT: u64 = 32_000;

/// Whose protocol a call speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Dialect {
    /// Anthropic messages.
    Anthropic,
    /// OpenAI chat completions.
    Chat,
    /// OpenAI responses.
    Responses,
    /// Gemini.
    Gemini,
}

/// What a request wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Errand {
    /// A model is called.
    Call(Dialect),
    /// Something that costs nothing: a list of models, a count of tokens.
    Free(Dialect),
}

/// What a request wants, told by its path; nothing if that is nothing for an agent to want.
pub(super) fn errand(get: bool, path: &str) -> Option<Errand> {
    // What a path hides must not make it another one upstream.
    let hidden = ["..", "//", "%2e", "%2f", "%2E", "%2F", "\\"];
    if hidden.iter().any(|part| path.contains(part)) {
        return None;
    }
    if get {
        let (before, last) = path.rsplit_once('/')?;
        let listed = last == "models" || before.ends_with("/models");
        let dialect = if path.contains("/v1beta/") { Dialect::Gemini } else { Dialect::Chat };
        return listed.then_some(Errand::Free(dialect));
    }
    [
        ("/messages", Errand::Call(Dialect::Anthropic)),
        ("/messages/count_tokens", Errand::Free(Dialect::Anthropic)),
        ("/chat/completions", Errand::Call(Dialect::Chat)),
        ("/responses", Errand::Call(Dialect::Responses)),
        ("/responses/compact", Errand::Call(Dialect::Responses)),
        (":generateContent", Errand::Call(Dialect::Gemini)),
        (":streamGenerateContent", Errand::Call(Dialect::Gemini)),
        (":countTokens", Errand::Free(Dialect::Gemini)),
    ]
    .into_iter()
    .find_map(|(end, errand)| path.ends_with(end).then_some(errand))
}

impl Dialect {
    /// The protocol that a path is most likely of, for an answer that there is no provider's for.
    pub(super) fn guess(path: &str) -> Self {
        match errand(false, path).or_else(|| errand(true, path)) {
            Some(Errand::Call(dialect) | Errand::Free(dialect)) => dialect,
            None => Self::Chat,
        }
    }

    /// The model that a call is for.
    pub(super) fn model(self, path: &str, body: &Value) -> Option<String> {
        match self {
            Self::Gemini => {
                path.rsplit('/').next()?.split_once(':').map(|(model, _)| model.to_owned())
            }
            _ => body.get("model")?.as_str().map(str::to_owned),
        }
    }

    /// How many tokens the response has at most.
    pub(super) fn most_output(self, body: &Value) -> u64 {
        let paths: &[&str] = match self {
            Self::Anthropic => &["/max_tokens"],
            Self::Chat => &["/max_completion_tokens", "/max_tokens"],
            Self::Responses => &["/max_output_tokens"],
            Self::Gemini => &["/generationConfig/maxOutputTokens"],
        };
        let said = paths.iter().find_map(|path| body.pointer(path)?.as_u64());
        let each = said.unwrap_or(DEFAULT_OUTPUT);
        let answers = ["/n", "/generationConfig/candidateCount"];
        let answers = answers.iter().find_map(|path| body.pointer(path)?.as_u64());
        each.saturating_mul(answers.unwrap_or(1).max(1))
    }

    /// Asks for the usage, where it is only told to those who ask. Whether the body has changed.
    pub(super) fn ask_for_usage(self, body: &mut Value) -> bool {
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

    /// The header that the provider wants its key in.
    pub(super) fn key(self, key: &Secret) -> Option<(HeaderName, HeaderValue)> {
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

    /// An error of our own, in the form that an agent of this protocol understands.
    pub(super) fn error(self, status: StatusCode, message: &str) -> Response {
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
    fn only_calls_and_what_is_free_are_passed_on() {
        let call = |dialect| Some(Errand::Call(dialect));
        assert_eq!(errand(false, "/v1/messages"), call(Dialect::Anthropic));
        assert_eq!(errand(false, "/v1/chat/completions"), call(Dialect::Chat));
        let gemini = "/v1beta/models/gemini-2.5-pro:streamGenerateContent";
        assert_eq!(errand(false, gemini), call(Dialect::Gemini));
        let count = "/v1/messages/count_tokens";
        assert_eq!(errand(false, count), Some(Errand::Free(Dialect::Anthropic)));
        assert_eq!(errand(true, "/v1/models"), Some(Errand::Free(Dialect::Chat)));
        for path in ["/v1/files", "/v1/messages/batches", "/v1/models/../files/messages"] {
            assert_eq!(errand(false, path), None, "{path}");
        }
        assert_eq!(errand(true, "/v1/files"), None);
    }

    #[test]
    fn usage_is_asked_for_in_a_stream_that_does_not_ask() {
        let asked = |mut body: Value| (Dialect::Chat.ask_for_usage(&mut body), body);
        assert!(!asked(json!({ "model": "m" })).0);
        let told = json!({ "stream": true, "stream_options": { "include_usage": true } });
        assert!(!asked(told).0);
        let (changed, body) = asked(json!({ "stream": true, "stream_options": { "a": 1 } }));
        let options = json!({ "a": 1, "include_usage": true });
        assert_eq!((changed, &body["stream_options"]), (true, &options));
        let (changed, body) = asked(json!({ "stream": true, "stream_options": null }));
        assert_eq!((changed, &body["stream_options"]), (true, &json!({ "include_usage": true })));
    }
}
