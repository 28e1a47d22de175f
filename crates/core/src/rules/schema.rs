//! JSON schema of `tamma.yaml`, for editors and for our own validation.

use std::collections::BTreeSet;

use serde_json::{Number, Value};

use super::value_schema::{ValueKind, ValueSchema};
use super::{Rules, alias};

/// Returns the schema of `tamma.yaml` (JSON Schema 2020-12).
pub fn schema() -> Value {
    let mut schema = schemars::schema_for!(Rules).to_value();
    schema["$id"] = "tamma.schema.json".into();
    schema["title"] = "tamma.yaml".into();
    // The file is merged over the defaults, so every key is optional, except in list items and
    // table entries: they have no default to merge with.
    let mut item_definitions = BTreeSet::new();
    collect_item_definitions(&schema, &mut item_definitions);
    if let Some(definitions) = schema["$defs"].as_object_mut() {
        for (name, definition) in definitions {
            if let Some(definition) = definition.as_object_mut()
                && !item_definitions.contains(name)
            {
                definition.remove("required");
            }
        }
    }
    alias::add_to_schema(&mut schema);
    let types = schema.clone();
    convert_defaults(&types, &mut schema);
    schema
}

/// Collects the names of definitions that are used as list items or table entries.
fn collect_item_definitions(schema: &Value, names: &mut BTreeSet<String>) {
    match schema {
        Value::Object(map) => {
            for (key, value) in map {
                if (key == "items" || key == "additionalProperties")
                    && let Some(reference) = value.get("$ref").and_then(Value::as_str)
                {
                    names.insert(reference.trim_start_matches("#/$defs/").to_owned());
                }
                collect_item_definitions(value, names);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| collect_item_definitions(value, names)),
        _ => {}
    }
}

/// Converts defaults to the form used in the file. Amounts of money are strings in our JSON, so
/// that no cent is lost, but numbers in the file.
fn convert_defaults(root: &Value, schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if let Some(mut default) = map.remove("default") {
                convert_numbers(root, &Value::Object(map.clone()), &mut default);
                map.insert("default".to_owned(), default);
            }
            map.values_mut().for_each(|value| convert_defaults(root, value));
        }
        Value::Array(list) => list.iter_mut().for_each(|value| convert_defaults(root, value)),
        _ => {}
    }
}

/// Converts strings to numbers where the schema requires numbers.
pub(super) fn convert_numbers(root: &Value, schema: &Value, value: &mut Value) {
    let value_schema = ValueSchema::parse(root, schema);
    match (&value_schema.kind, value) {
        (ValueKind::Number { .. }, value) => {
            let number =
                value.as_str().and_then(|text| text.parse().ok()).and_then(Number::from_f64);
            if let Some(number) = number {
                *value = Value::Number(number);
            }
        }
        (ValueKind::Section { keys, .. }, Value::Object(map)) => {
            for (key, value) in map {
                if let Some(schema) = keys.get(key) {
                    convert_numbers(root, schema, value);
                }
            }
        }
        (ValueKind::Table { values }, Value::Object(map)) => {
            for value in map.values_mut() {
                convert_numbers(root, values, value);
            }
        }
        (ValueKind::List { items }, Value::Array(list)) => {
            for value in list {
                convert_numbers(root, items, value);
            }
        }
        _ => {}
    }
}
