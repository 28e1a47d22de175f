//! The JSON schema of `tamma.yaml`, for editors and for our own reading of it.

use std::collections::BTreeSet;

use serde_json::{Number, Value};

use super::Rules;
use super::shape::{Kind, Shape};

/// The schema of `tamma.yaml`, in the 2020-12 draft.
pub fn schema() -> Value {
    let mut schema = schemars::schema_for!(Rules).to_value();
    schema["$id"] = "tamma.schema.json".into();
    schema["title"] = "tamma.yaml".into();
    // A file is laid over the defaults, so it may leave out any key, except in what has no
    // default to be laid over: an item of a list, an entry of a table.
    let mut whole = BTreeSet::new();
    gather_items(&schema, &mut whole);
    if let Some(definitions) = schema["$defs"].as_object_mut() {
        for (name, definition) in definitions {
            if let Some(definition) = definition.as_object_mut()
                && !whole.contains(name)
            {
                definition.remove("required");
            }
        }
    }
    let types = schema.clone();
    mend_defaults(&types, &mut schema);
    schema
}

/// Gathers the names of definitions that stand for items and entries.
fn gather_items(schema: &Value, names: &mut BTreeSet<String>) {
    match schema {
        Value::Object(map) => {
            for (key, value) in map {
                if (key == "items" || key == "additionalProperties")
                    && let Some(reference) = value.get("$ref").and_then(Value::as_str)
                {
                    names.insert(reference.trim_start_matches("#/$defs/").to_owned());
                }
                gather_items(value, names);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| gather_items(value, names)),
        _ => {}
    }
}

/// Writes defaults the way a file would. Money is a text in our JSON, so that no cent is lost, but
/// a number in the file, and an editor would find fault with the former.
fn mend_defaults(root: &Value, schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if let Some(mut default) = map.remove("default") {
                with_numbers(root, &Value::Object(map.clone()), &mut default);
                map.insert("default".to_owned(), default);
            }
            map.values_mut().for_each(|value| mend_defaults(root, value));
        }
        Value::Array(list) => list.iter_mut().for_each(|value| mend_defaults(root, value)),
        _ => {}
    }
}

/// Turns texts into numbers wherever the schema asks for numbers.
pub(super) fn with_numbers(root: &Value, schema: &Value, value: &mut Value) {
    let shape = Shape::of(root, schema);
    match (&shape.kind, value) {
        (Kind::Number { .. }, value) => {
            let number =
                value.as_str().and_then(|text| text.parse().ok()).and_then(Number::from_f64);
            if let Some(number) = number {
                *value = Value::Number(number);
            }
        }
        (Kind::Section { keys, .. }, Value::Object(map)) => {
            for (key, value) in map {
                if let Some(schema) = keys.get(key) {
                    with_numbers(root, schema, value);
                }
            }
        }
        (Kind::Table { values }, Value::Object(map)) => {
            for value in map.values_mut() {
                with_numbers(root, values, value);
            }
        }
        (Kind::List { items }, Value::Array(list)) => {
            for value in list {
                with_numbers(root, items, value);
            }
        }
        _ => {}
    }
}
