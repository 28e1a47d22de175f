//! Responses, independent of the protocol.

use serde_json::Value;
use tamma_core::cost::Tokens;

use super::offered_tools::ResolvedCall;
use super::{Dialect, anthropic, chat, gemini, responses};

/// Response to one request.
pub(super) struct ModelResponse {
    /// Marker of the step, part of every ID.
    pub(super) step_marker: String,
    /// Requested model.
    pub(super) model: String,
    /// Text of the response.
    pub(super) text: Option<String>,
    /// Tool calls of the response.
    pub(super) calls: Vec<ResolvedCall>,
    /// Stop reason other than a normal end.
    pub(super) stop: Option<String>,
    /// Token counts.
    pub(super) tokens: Tokens,
    /// `true` if the response reports the counts.
    pub(super) reports_usage: bool,
}

/// Response encoded for a protocol: as one body, and as the events of a stream.
pub(super) struct EncodedResponse {
    /// Complete body.
    pub(super) body: Value,
    /// Events of the stream.
    pub(super) events: Vec<String>,
}

impl ModelResponse {
    /// Encodes the response for a protocol.
    pub(super) fn encode(&self, dialect: Dialect) -> EncodedResponse {
        match dialect {
            Dialect::Anthropic => anthropic::encode(self),
            Dialect::Chat => chat::encode(self),
            Dialect::Responses => responses::encode(self),
            Dialect::Gemini => gemini::encode(self),
        }
    }

    /// Returns the usage, or null if the counts are omitted.
    pub(super) fn usage(&self, usage: Value) -> Value {
        if self.reports_usage { usage } else { Value::Null }
    }

    /// Returns the ID of a call.
    pub(super) fn call_id(&self, kind: &str, number: usize) -> String {
        format!("{kind}_{}_{number}", self.step_marker)
    }
}

/// Formats a server-sent event.
pub(super) fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// Formats a named server-sent event. Its data contains the name too.
pub(super) fn named_event(name: &str, mut data: Value) -> String {
    if let Some(data) = data.as_object_mut() {
        data.insert("type".to_owned(), name.into());
    }
    format!("event: {name}\ndata: {data}\n\n")
}
