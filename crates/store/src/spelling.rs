//! How values are spelt in the database: as the core serialises them.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Damage, Error};

/// A value as JSON that PostgreSQL takes.
///
/// Its text has no place for the character NUL, which an agent may well print. It is replaced, so
/// that a stray byte never keeps a task from being written.
pub(crate) fn json<T: Serialize>(value: &T) -> Value {
    // The core's values have no maps with odd keys; should one ever fail, nothing is stored of it
    // and the `NOT NULL` of its column says so.
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

/// The word for a variant without fields.
pub(crate) fn word<T: Serialize>(value: &T) -> String {
    match json(value) {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// Reads what [`json`] wrote.
pub(crate) fn read<T: DeserializeOwned>(what: &'static str, json: Value) -> Result<T, Damage> {
    serde_json::from_value(json).map_err(|error| Damage {
        what,
        key: String::new(),
        why: error.to_string(),
    })
}

/// Reads what [`word`] wrote.
pub(crate) fn read_word<T: DeserializeOwned>(
    what: &'static str,
    word: String,
) -> Result<T, Damage> {
    read(what, Value::String(word))
}

/// Reads a number that is never negative.
pub(crate) fn read_number<T: TryFrom<i64>>(what: &'static str, number: i64) -> Result<T, Damage> {
    T::try_from(number).map_err(|_| Damage {
        what,
        key: String::new(),
        why: format!("{number} is out of range"),
    })
}

impl Damage {
    /// Says whose it is.
    pub(crate) fn of(mut self, key: impl Into<String>) -> Self {
        self.key = key.into();
        self
    }
}

impl From<Damage> for Error {
    fn from(damage: Damage) -> Self {
        Self::Corrupt(damage)
    }
}
