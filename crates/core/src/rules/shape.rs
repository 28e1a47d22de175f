//! What the schema asks of a value, in the few forms our types have.
//!
//! The schema comes from the types, so walking a file along it finds what is wrong without a
//! second description of the configuration that could differ from the first.

use serde_json::{Map, Value};

use super::problem::quoted;

/// What one place in the schema asks for.
#[derive(Debug)]
pub(super) struct Shape<'a> {
    pub(super) kind: Kind<'a>,
    /// Whether `null` will do as well.
    pub(super) nullable: bool,
}

#[derive(Debug)]
pub(super) enum Kind<'a> {
    /// A section with keys that are known.
    Section {
        keys: &'a Map<String, Value>,
        required: Vec<&'a str>,
    },
    /// A section whose keys are names of the user's own.
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
    /// Something the schema does not say; serde has the word.
    Any,
}

impl<'a> Shape<'a> {
    /// Reads a part of a schema.
    pub(super) fn of(root: &'a Value, schema: &'a Value) -> Self {
        if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
            let definition =
                name.strip_prefix("#/$defs/").and_then(|name| root.get("$defs")?.get(name));
            // Our types do not refer to themselves, so this ends.
            return definition
                .map_or(Self { kind: Kind::Any, nullable: true }, |to| Self::of(root, to));
        }
        if let Some(alternatives) = schema.get("anyOf").and_then(Value::as_array) {
            let is_null = |one: &&Value| one.get("type").is_some_and(|kind| kind == "null");
            let nullable = alternatives.iter().any(|one| is_null(&one));
            return match alternatives.iter().find(|one| !is_null(one)) {
                Some(inner) => Self { nullable, ..Self::of(root, inner) },
                None => Self { kind: Kind::Any, nullable },
            };
        }
        let types: Vec<&str> = match schema.get("type") {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let nullable = types.contains(&"null");
        let kind = match types.iter().find(|kind| **kind != "null") {
            _ if schema.get("oneOf").is_some() || schema.get("enum").is_some() => choice(schema),
            Some(&"object") => section(schema),
            Some(&"array") => schema.get("items").map_or(Kind::Any, |items| Kind::List { items }),
            Some(&"boolean") => Kind::Bool,
            Some(&"integer") => integer(schema),
            Some(&"number") => Kind::Number {
                min: limit(schema, "minimum").unwrap_or(f64::NEG_INFINITY),
                max: limit(schema, "maximum").unwrap_or(f64::INFINITY),
            },
            Some(&"string") => Kind::Text {
                min: schema.get("minLength").and_then(Value::as_u64).unwrap_or(0),
                max: schema.get("maxLength").and_then(Value::as_u64).unwrap_or(u64::MAX),
            },
            _ => Kind::Any,
        };
        Self { kind, nullable }
    }

    /// The shape of a key inside of this one.
    pub(super) fn key(&self, root: &'a Value, key: &str) -> Option<Self> {
        match &self.kind {
            Kind::Section { keys, .. } => keys.get(key).map(|schema| Self::of(root, schema)),
            Kind::Table { values } => Some(Self::of(root, values)),
            _ => None,
        }
    }

    /// What would be right here, to stand after "must be".
    pub(super) fn expected(&self) -> String {
        let what = match &self.kind {
            Kind::Section { .. } | Kind::Table { .. } => "a section of keys".to_owned(),
            Kind::List { .. } => "a list".to_owned(),
            Kind::Choice(choices) => format!("one of {}", quoted(choices)),
            Kind::Bool => "`true` or `false`".to_owned(),
            Kind::Integer { min, max } => match (*min, *max) {
                (0, max) if max >= i128::from(u64::MAX) => "a whole number".to_owned(),
                (min, max) if max >= i128::from(u64::MAX) => format!("a whole number from {min}"),
                (min, max) => format!("a whole number from {min} to {max}"),
            },
            Kind::Number { min, max } if min.is_finite() && max.is_finite() => {
                format!("a number from {min} to {max}")
            }
            Kind::Number { min, .. } if min.is_finite() => format!("a number from {min}"),
            Kind::Number { .. } => "a number".to_owned(),
            Kind::Text { min: 0, max: u64::MAX } => "a text".to_owned(),
            Kind::Text { min: 0, max } => format!("a text of at most {max} characters"),
            Kind::Text { min, max: u64::MAX } => format!("a text of at least {min} characters"),
            Kind::Text { min, max } => format!("a text of {min} to {max} characters"),
            Kind::Any => "a value".to_owned(),
        };
        if self.nullable { format!("{what}, or `null`") } else { what }
    }
}

fn choice(schema: &Value) -> Kind<'_> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let listed =
        |value: &Value| value.as_array().into_iter().flatten().filter_map(text).collect::<Vec<_>>();
    let mut choices = Vec::new();
    for one in schema.get("oneOf").and_then(Value::as_array).into_iter().flatten() {
        choices.extend(one.get("const").and_then(text));
        choices.extend(one.get("enum").map(listed).unwrap_or_default());
    }
    choices.extend(schema.get("enum").map(listed).unwrap_or_default());
    Kind::Choice(choices)
}

fn section(schema: &Value) -> Kind<'_> {
    if let Some(keys) = schema.get("properties").and_then(Value::as_object) {
        let required = schema.get("required").and_then(Value::as_array);
        return Kind::Section {
            keys,
            required: required.into_iter().flatten().filter_map(Value::as_str).collect(),
        };
    }
    match schema.get("additionalProperties") {
        Some(values) if values.is_object() => Kind::Table { values },
        _ => Kind::Any,
    }
}

fn integer(schema: &Value) -> Kind<'_> {
    // Where no rule sets a limit, the width of the type does.
    let (low, high) = match schema.get("format").and_then(Value::as_str) {
        Some("uint8") => (0, i128::from(u8::MAX)),
        Some("uint16") => (0, i128::from(u16::MAX)),
        Some("uint32") => (0, i128::from(u32::MAX)),
        Some("uint64" | "uint") => (0, i128::from(u64::MAX)),
        _ => (i128::from(i64::MIN), i128::from(i64::MAX)),
    };
    let whole = |key| {
        let limit = schema.get(key)?;
        limit.as_i64().map(i128::from).or_else(|| limit.as_u64().map(i128::from))
    };
    Kind::Integer { min: whole("minimum").unwrap_or(low), max: whole("maximum").unwrap_or(high) }
}

fn limit(schema: &Value, key: &str) -> Option<f64> {
    schema.get(key).and_then(Value::as_f64)
}
