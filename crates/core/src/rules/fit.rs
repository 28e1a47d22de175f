//! Whether a single value fits its key, and what is wrong if it does not.

use serde_json::{Number, Value as Json, json};

use super::problem::{Fault, closest};
use super::shape::{Kind, Shape};
use super::tree::Value;

/// Longer texts are cut in messages.
const SHOWN: usize = 60;

impl Shape<'_> {
    /// Fits a text from a variable, which cannot say what type it has: the key does.
    pub(super) fn fit_text(&self, text: &str, path: &str, found: &str) -> Result<Json, Fault> {
        let trimmed = text.trim();
        let value = match &self.kind {
            _ if self.nullable && trimmed == "null" => Some(Value::Null),
            Kind::Bool => trimmed.parse().ok().map(Value::Bool),
            Kind::Integer { .. } => trimmed.parse().ok().map(Value::Integer),
            Kind::Number { .. } => {
                trimmed.parse().ok().filter(|number: &f64| number.is_finite()).map(Value::Float)
            }
            Kind::Choice(_) => Some(Value::Text(trimmed.to_owned())),
            _ => None,
        };
        let value = value.unwrap_or_else(|| Value::Text(text.to_owned()));
        self.fit(&value, path, found).map_err(|fault| match fault {
            // Both would tell what the variable holds.
            Fault::UnknownChoice { path, found, choices, .. } => {
                Fault::UnknownChoice { path, found, meant: None, choices }
            }
            Fault::WrongType { path, expected, found, .. } => {
                Fault::WrongType { path, expected, found, help: None }
            }
            other => other,
        })
    }

    /// Fits a single value. `found` is how the value is told to people.
    pub(super) fn fit(&self, value: &Value, path: &str, found: &str) -> Result<Json, Fault> {
        let out_of_range = || Fault::OutOfRange {
            path: path.to_owned(),
            expected: self.expected(),
            found: found.to_owned(),
        };
        match (&self.kind, value) {
            (_, Value::Null) if self.nullable => Ok(Json::Null),
            (Kind::Bool | Kind::Any, Value::Bool(value)) => Ok(json!(value)),
            (Kind::Integer { min, max }, Value::Integer(value)) => {
                if (min..=max).contains(&value) {
                    Number::from_i128(*value).map(Json::Number).ok_or_else(out_of_range)
                } else {
                    Err(out_of_range())
                }
            }
            (Kind::Number { min, max }, Value::Integer(_) | Value::Float(_)) => {
                let number = match value {
                    #[expect(clippy::cast_precision_loss, reason = "only the limits are compared")]
                    Value::Integer(whole) => *whole as f64,
                    Value::Float(number) => *number,
                    _ => f64::NAN,
                };
                if (min..=max).contains(&&number) {
                    Number::from_f64(number).map(Json::Number).ok_or_else(out_of_range)
                } else {
                    Err(out_of_range())
                }
            }
            (Kind::Choice(choices), Value::Text(text)) => {
                if choices.contains(text) {
                    Ok(json!(text))
                } else {
                    Err(Fault::UnknownChoice {
                        path: path.to_owned(),
                        found: found.to_owned(),
                        meant: closest(text, choices).cloned(),
                        choices: choices.clone(),
                    })
                }
            }
            (Kind::Text { min, max }, Value::Text(text)) => {
                let length = u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
                if (min..=max).contains(&&length) { Ok(json!(text)) } else { Err(out_of_range()) }
            }
            (Kind::Any, Value::Text(text)) => Ok(json!(text)),
            _ => Err(Fault::WrongType {
                path: path.to_owned(),
                expected: self.expected(),
                found: found.to_owned(),
                help: self.help(value),
            }),
        }
    }

    /// What to write instead of a value of the wrong type, where it can be guessed.
    fn help(&self, value: &Value) -> Option<String> {
        match (&self.kind, value) {
            (Kind::List { .. }, Value::Null) => {
                Some("write `[]` for an empty list, or remove the key for the default".to_owned())
            }
            (_, Value::Null) => Some("remove the key to have the default".to_owned()),
            (Kind::List { .. }, Value::Text(text)) => {
                Some(format!("write a list of one: `[{}]`", cut(text)))
            }
            (Kind::Bool, Value::Text(text)) => match text.to_lowercase().as_str() {
                "yes" | "on" | "y" | "true" => Some("write `true`".to_owned()),
                "no" | "off" | "n" | "false" => Some("write `false`".to_owned()),
                _ => None,
            },
            (Kind::Integer { .. } | Kind::Number { .. }, Value::Text(text)) => {
                let bare = text.trim();
                bare.parse::<f64>().ok().map(|_| format!("write it without quotes: `{bare}`"))
            }
            (Kind::Text { .. }, Value::Integer(_) | Value::Float(_) | Value::Bool(_)) => {
                Some("put it in quotes".to_owned())
            }
            (Kind::Section { .. } | Kind::Table { .. }, _) => {
                Some("put its keys on lines of their own below it, further to the right".to_owned())
            }
            _ => None,
        }
    }
}

/// How a value is told to people.
pub(super) fn found(value: &Value) -> String {
    match value {
        Value::Null => "empty".to_owned(),
        Value::Bool(value) => format!("`{value}`"),
        Value::Integer(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::Text(text) if text.is_empty() => "an empty text".to_owned(),
        Value::Text(text) => format!("`{}`", cut(text)),
        Value::List(_) => "a list".to_owned(),
        Value::Map(_) => "a section of keys".to_owned(),
    }
}

/// A text fit for one line of a terminal.
pub(super) fn cut(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}
