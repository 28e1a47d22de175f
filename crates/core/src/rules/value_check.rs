//! Checks of single values against the schema.

use serde_json::{Number, Value as Json, json};

use super::problem::{ConfigFault, closest_match};
use super::value_schema::{ValueKind, ValueSchema};
use super::yaml::YamlValue;

/// Longest text shown in messages, in characters; the rest is cut.
const MAX_SHOWN_CHARS: usize = 60;

impl ValueSchema<'_> {
    /// Checks the text of a variable. The schema decides which type it is parsed as.
    pub(super) fn check_text_value(
        &self,
        text: &str,
        path: &str,
        found: &str,
    ) -> Result<Json, ConfigFault> {
        let trimmed = text.trim();
        let value = match &self.kind {
            _ if self.nullable && trimmed == "null" => Some(YamlValue::Null),
            ValueKind::Bool => trimmed.parse().ok().map(YamlValue::Bool),
            ValueKind::Integer { .. } => trimmed.parse().ok().map(YamlValue::Integer),
            ValueKind::Number { .. } => {
                trimmed.parse().ok().filter(|number: &f64| number.is_finite()).map(YamlValue::Float)
            }
            ValueKind::Choice(_) => Some(YamlValue::Text(trimmed.to_owned())),
            _ => None,
        };
        let value = value.unwrap_or_else(|| YamlValue::Text(text.to_owned()));
        self.check_value(&value, path, found).map_err(|fault| match fault {
            // The suggestion and the help text would reveal the value of the variable.
            ConfigFault::UnknownChoice { path, found, choices, .. } => {
                ConfigFault::UnknownChoice { path, found, suggestion: None, choices }
            }
            ConfigFault::WrongType { path, expected, found, .. } => {
                ConfigFault::WrongType { path, expected, found, help: None }
            }
            other => other,
        })
    }

    /// Checks a single value. `found` describes it in messages.
    pub(super) fn check_value(
        &self,
        value: &YamlValue,
        path: &str,
        found: &str,
    ) -> Result<Json, ConfigFault> {
        let out_of_range = || ConfigFault::OutOfRange {
            path: path.to_owned(),
            expected: self.describe_expected(),
            found: found.to_owned(),
        };
        match (&self.kind, value) {
            (_, YamlValue::Null) if self.nullable => Ok(Json::Null),
            (ValueKind::Bool | ValueKind::Any, YamlValue::Bool(value)) => Ok(json!(value)),
            (ValueKind::Integer { min, max }, YamlValue::Integer(value)) => {
                if (min..=max).contains(&value) {
                    Number::from_i128(*value).map(Json::Number).ok_or_else(out_of_range)
                } else {
                    Err(out_of_range())
                }
            }
            (ValueKind::Number { min, max }, YamlValue::Integer(_) | YamlValue::Float(_)) => {
                let number = match value {
                    #[expect(clippy::cast_precision_loss, reason = "only the limits are compared")]
                    YamlValue::Integer(integer) => *integer as f64,
                    YamlValue::Float(number) => *number,
                    _ => f64::NAN,
                };
                if (min..=max).contains(&&number) {
                    Number::from_f64(number).map(Json::Number).ok_or_else(out_of_range)
                } else {
                    Err(out_of_range())
                }
            }
            (ValueKind::Choice(choices), YamlValue::Text(text)) => {
                if choices.contains(text) {
                    Ok(json!(text))
                } else {
                    Err(ConfigFault::UnknownChoice {
                        path: path.to_owned(),
                        found: found.to_owned(),
                        suggestion: closest_match(text, choices).cloned(),
                        choices: choices.clone(),
                    })
                }
            }
            (ValueKind::Text { min, max }, YamlValue::Text(text)) => {
                let length = u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
                if (min..=max).contains(&&length) { Ok(json!(text)) } else { Err(out_of_range()) }
            }
            (ValueKind::Any, YamlValue::Text(text)) => Ok(json!(text)),
            _ => Err(ConfigFault::WrongType {
                path: path.to_owned(),
                expected: self.describe_expected(),
                found: found.to_owned(),
                help: self.type_help(value),
            }),
        }
    }

    /// Suggests a fix for a value of the wrong type, if one is likely.
    fn type_help(&self, value: &YamlValue) -> Option<String> {
        match (&self.kind, value) {
            (ValueKind::List { .. }, YamlValue::Null) => Some(
                "write `[]` for an empty list, or remove the key to use the default".to_owned(),
            ),
            (_, YamlValue::Null) => Some("remove the key to use the default".to_owned()),
            (ValueKind::List { .. }, YamlValue::Text(text)) => {
                Some(format!("write a list with one item: `[{}]`", truncate(text)))
            }
            (ValueKind::Bool, YamlValue::Text(text)) => match text.to_lowercase().as_str() {
                "yes" | "on" | "y" | "true" => Some("write `true`".to_owned()),
                "no" | "off" | "n" | "false" => Some("write `false`".to_owned()),
                _ => None,
            },
            (ValueKind::Integer { .. } | ValueKind::Number { .. }, YamlValue::Text(text)) => {
                let number = text.trim();
                number.parse::<f64>().ok().map(|_| format!("write it without quotes: `{number}`"))
            }
            (
                ValueKind::Text { .. },
                YamlValue::Integer(_) | YamlValue::Float(_) | YamlValue::Bool(_),
            ) => Some("put the value in quotes".to_owned()),
            (ValueKind::Section { .. } | ValueKind::Table { .. }, _) => {
                Some("put its keys on separate, indented lines below it".to_owned())
            }
            _ => None,
        }
    }
}

/// Describes a value for messages.
pub(super) fn describe_value(value: &YamlValue) -> String {
    match value {
        YamlValue::Null => "empty".to_owned(),
        YamlValue::Bool(value) => format!("`{value}`"),
        YamlValue::Integer(value) => value.to_string(),
        YamlValue::Float(value) => value.to_string(),
        YamlValue::Text(text) if text.is_empty() => "an empty string".to_owned(),
        YamlValue::Text(text) => format!("`{}`", truncate(text)),
        YamlValue::List(_) => "a list".to_owned(),
        YamlValue::Map(_) => "a section".to_owned(),
    }
}

/// Escapes and truncates a text for one line of a terminal.
pub(super) fn truncate(text: &str) -> String {
    let mut shown: String =
        text.chars().take(MAX_SHOWN_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(MAX_SHOWN_CHARS).is_some() {
        shown.push('…');
    }
    shown
}
