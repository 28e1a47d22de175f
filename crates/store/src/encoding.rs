//! Encoding of values in the database. Serde names from the core are used as they are.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{CorruptData, Error};

/// Encodes a value as JSON that PostgreSQL accepts.
///
/// PostgreSQL text cannot contain NUL, which agents may print. It is replaced, so that a stray byte
/// never blocks the write of a task.
pub(crate) fn json<T: Serialize>(value: &T) -> Value {
    // Values of the core have no maps with non-string keys. If one fails anyway, the `NOT NULL`
    // constraint of its column reports it.
    let mut json = serde_json::to_value(value).unwrap_or(Value::Null);
    replace_nul(&mut json);
    json
}

fn replace_nul(json: &mut Value) {
    match json {
        Value::String(text) if text.contains('\0') => *text = text.replace('\0', "\u{fffd}"),
        Value::Array(items) => items.iter_mut().for_each(replace_nul),
        Value::Object(fields) => fields.values_mut().for_each(replace_nul),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Encodes a variant without fields as its serde name.
pub(crate) fn word<T: Serialize>(value: &T) -> String {
    match json(value) {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// Decodes a value encoded by [`json`].
pub(crate) fn read<T: DeserializeOwned>(what: &'static str, json: Value) -> Result<T, CorruptData> {
    serde_json::from_value(json).map_err(|error| CorruptData {
        what,
        key: String::new(),
        reason: error.to_string(),
    })
}

/// Decodes a variant encoded by [`word`].
pub(crate) fn read_word<T: DeserializeOwned>(
    what: &'static str,
    word: String,
) -> Result<T, CorruptData> {
    read(what, Value::String(word))
}

/// Decodes a number that is never negative.
pub(crate) fn read_number<T: TryFrom<i64>>(
    what: &'static str,
    number: i64,
) -> Result<T, CorruptData> {
    T::try_from(number).map_err(|_| CorruptData {
        what,
        key: String::new(),
        reason: format!("{number} is out of range"),
    })
}

impl CorruptData {
    /// Adds the key of the item to the error.
    pub(crate) fn with_key(mut self, key: impl Into<String>) -> Self {
        self.key = key.into();
        self
    }
}

impl From<CorruptData> for Error {
    fn from(damage: CorruptData) -> Self {
        Self::Corrupt(damage)
    }
}
