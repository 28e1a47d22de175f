//! One answer, before it is put into the words of a protocol.

use serde_json::Value;
use tamma_core::cost::Tokens;

use super::offer::Resolved;
use super::{Dialect, anthropic, chat, gemini, responses};

/// What is answered to one request.
pub(super) struct Answer {
    /// The mark of the step, which is in every id.
    pub(super) mark: String,
    /// The model that was asked for.
    pub(super) model: String,
    /// What it says.
    pub(super) text: Option<String>,
    /// The tools that it calls.
    pub(super) calls: Vec<Resolved>,
    /// Why it stops, if not because it has said all.
    pub(super) stop: Option<String>,
    /// What it has read and written.
    pub(super) tokens: Tokens,
    /// Whether it says what it has read and written.
    pub(super) told: bool,
}

/// An answer in the words of a protocol: as one piece, and as the events of a stream.
pub(super) struct Worded {
    /// In one piece.
    pub(super) whole: Value,
    /// As events.
    pub(super) events: Vec<String>,
}

impl Answer {
    /// In the words of a protocol.
    pub(super) fn worded(&self, dialect: Dialect) -> Worded {
        match dialect {
            Dialect::Anthropic => anthropic::worded(self),
            Dialect::Chat => chat::worded(self),
            Dialect::Responses => responses::worded(self),
            Dialect::Gemini => gemini::worded(self),
        }
    }

    /// The usage, or nothing where it is not told.
    pub(super) fn usage(&self, usage: Value) -> Value {
        if self.told { usage } else { Value::Null }
    }

    /// The id of a call.
    pub(super) fn call_id(&self, kind: &str, number: usize) -> String {
        format!("{kind}_{}_{number}", self.mark)
    }
}

/// An event of a stream.
pub(super) fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// An event of a stream that has a name, which its data has too.
pub(super) fn named_event(name: &str, mut data: Value) -> String {
    if let Some(data) = data.as_object_mut() {
        data.insert("type".to_owned(), name.into());
    }
    format!("event: {name}\ndata: {data}\n\n")
}
