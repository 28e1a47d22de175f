//! Typed view of the JSON schema, limited to the forms that our types use.
//!
//! The schema is derived from the types, so validation needs no second description of the
//! configuration that could differ from it.

use serde_json::{Map, Value};

use super::problem::quote_list;

/// Requirements of the schema for one value.
#[derive(Debug)]
pub(super) struct ValueSchema<'a> {
    pub(super) kind: ValueKind<'a>,
    /// `null` is accepted as well.
    pub(super) nullable: bool,
}

#[derive(Debug)]
pub(super) enum ValueKind<'a> {
    /// Section with fixed keys.
    Section {
        keys: &'a Map<String, Value>,
        required: Vec<&'a str>,
    },
    /// Section with keys chosen by the user.
    Table {
        values: &'a Value,
    },
    List {
        items: &'a Value,
    },
    Choice(Vec<String>),
    Bool,
    Integer {
        min: i128,
        max: i128,
    },
    Number {
        min: f64,
        max: f64,
    },
    Text {
        min: u64,
        max: u64,
    },
    /// Not restricted by the schema; serde checks the value.
    Any,
}

impl<'a> ValueSchema<'a> {
    /// Parses a part of a schema.
    pub(super) fn parse(root: &'a Value, schema: &'a Value) -> Self {
        if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
            let definition =
                name.strip_prefix("#/$defs/").and_then(|name| root.get("$defs")?.get(name));
            // Terminates, because our types are not recursive.
            return definition
                .map_or(Self { kind: ValueKind::Any, nullable: true }, |definition| {
                    Self::parse(root, definition)
                });
        }
        if let Some(alternatives) = schema.get("anyOf").and_then(Value::as_array) {
            let is_null =
                |alternative: &&Value| alternative.get("type").is_some_and(|kind| kind == "null");
            let nullable = alternatives.iter().any(|alternative| is_null(&alternative));
            return match alternatives.iter().find(|alternative| !is_null(alternative)) {
                Some(alternative) => Self { nullable, ..Self::parse(root, alternative) },
                None => Self { kind: ValueKind::Any, nullable },
            };
        }
        let types: Vec<&str> = match schema.get("type") {
            Some(Value::String(name)) => vec![name],
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let nullable = types.contains(&"null");
        let kind = match types.iter().find(|kind| **kind != "null") {
            _ if schema.get("oneOf").is_some() || schema.get("enum").is_some() => {
                choice_kind(schema)
            }
            Some(&"object") => section_kind(schema),
            Some(&"array") => {
                schema.get("items").map_or(ValueKind::Any, |items| ValueKind::List { items })
            }
            Some(&"boolean") => ValueKind::Bool,
            Some(&"integer") => integer_kind(schema),
            Some(&"number") => ValueKind::Number {
                min: number_limit(schema, "minimum").unwrap_or(f64::NEG_INFINITY),
                max: number_limit(schema, "maximum").unwrap_or(f64::INFINITY),
            },
            Some(&"string") => ValueKind::Text {
                min: schema.get("minLength").and_then(Value::as_u64).unwrap_or(0),
                max: schema.get("maxLength").and_then(Value::as_u64).unwrap_or(u64::MAX),
            },
            _ => ValueKind::Any,
        };
        Self { kind, nullable }
    }

    /// Returns the schema of a key in this section.
    pub(super) fn key_schema(&self, root: &'a Value, key: &str) -> Option<Self> {
        match &self.kind {
            ValueKind::Section { keys, .. } => {
                keys.get(key).map(|schema| Self::parse(root, schema))
            }
            ValueKind::Table { values } => Some(Self::parse(root, values)),
            _ => None,
        }
    }

    /// Describes a valid value, to follow "must be".
    pub(super) fn describe_expected(&self) -> String {
        let description = match &self.kind {
            ValueKind::Section { .. } | ValueKind::Table { .. } => "a section".to_owned(),
            ValueKind::List { .. } => "a list".to_owned(),
            ValueKind::Choice(choices) => format!("one of {}", quote_list(choices)),
            ValueKind::Bool => "`true` or `false`".to_owned(),
            ValueKind::Integer { min, max } => match (*min, *max) {
                (0, max) if max >= i128::from(u64::MAX) => "an integer".to_owned(),
                (min, max) if max >= i128::from(u64::MAX) => {
                    format!("an integer of at least {min}")
                }
                (min, max) => format!("an integer from {min} to {max}"),
            },
            ValueKind::Number { min, max } if min.is_finite() && max.is_finite() => {
                format!("a number from {min} to {max}")
            }
            ValueKind::Number { min, .. } if min.is_finite() => {
                format!("a number of at least {min}")
            }
            ValueKind::Number { .. } => "a number".to_owned(),
            ValueKind::Text { min: 0, max: u64::MAX } => "a string".to_owned(),
            ValueKind::Text { min: 0, max } => format!("a string of at most {max} characters"),
            ValueKind::Text { min, max: u64::MAX } => {
                format!("a string of at least {min} characters")
            }
            ValueKind::Text { min, max } => format!("a string of {min} to {max} characters"),
            ValueKind::Any => "a value".to_owned(),
        };
        if self.nullable { format!("{description}, or `null`") } else { description }
    }
}

fn choice_kind(schema: &Value) -> ValueKind<'_> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let to_texts =
        |value: &Value| value.as_array().into_iter().flatten().filter_map(text).collect::<Vec<_>>();
    let mut choices = Vec::new();
    for alternative in schema.get("oneOf").and_then(Value::as_array).into_iter().flatten() {
        choices.extend(alternative.get("const").and_then(text));
        choices.extend(alternative.get("enum").map(to_texts).unwrap_or_default());
    }
    choices.extend(schema.get("enum").map(to_texts).unwrap_or_default());
    ValueKind::Choice(choices)
}

fn section_kind(schema: &Value) -> ValueKind<'_> {
    if let Some(keys) = schema.get("properties").and_then(Value::as_object) {
        let required = schema.get("required").and_then(Value::as_array);
        return ValueKind::Section {
            keys,
            required: required.into_iter().flatten().filter_map(Value::as_str).collect(),
        };
    }
    match schema.get("additionalProperties") {
        Some(values) if values.is_object() => ValueKind::Table { values },
        _ => ValueKind::Any,
    }
}

fn integer_kind(schema: &Value) -> ValueKind<'_> {
    // Without an explicit limit, the width of the integer type decides.
    let (low, high) = match schema.get("format").and_then(Value::as_str) {
        Some("uint8") => (0, i128::from(u8::MAX)),
        Some("uint16") => (0, i128::from(u16::MAX)),
        Some("uint32") => (0, i128::from(u32::MAX)),
        Some("uint64" | "uint") => (0, i128::from(u64::MAX)),
        _ => (i128::from(i64::MIN), i128::from(i64::MAX)),
    };
    let explicit_limit = |key| {
        let limit = schema.get(key)?;
        limit.as_i64().map(i128::from).or_else(|| limit.as_u64().map(i128::from))
    };
    ValueKind::Integer {
        min: explicit_limit("minimum").unwrap_or(low),
        max: explicit_limit("maximum").unwrap_or(high),
    }
}

fn number_limit(schema: &Value, key: &str) -> Option<f64> {
    schema.get(key).and_then(Value::as_f64)
}
