//! The reference of `tamma.yaml` for people, written from the same schema that checks it.

use std::fmt::Write as _;

use serde_json::Value;

use super::check::join;
use super::problem::quoted;
use super::schema::{schema, with_numbers};
use super::shape::{Kind, Shape};
use super::{Rules, VARIABLES};

const OPENING: &str = "\
<!-- Written by `tamma config reference`. Do not edit: change the types in crates/core/src/rules.rs
     and run: just gen -->

# Configuration

`tamma.yaml` stands in the root of a repository. Every key has a default, so a file says only what
differs; sections are laid over the defaults key by key, and a list replaces the whole list. A value
may name variables: `${NAME}`, or `${NAME:-fallback}` for one that may be missing; `$${` is a plain
`${`. The environment stands over the file: see the end of this page.

`tamma config check` finds mistakes, `tamma config show` tells where each value comes from, and
`tamma config schema` writes the JSON schema for editors.
";

const VARIABLES_OPENING: &str = "
## Environment variables

Each of these stands over the file. One that is set to nothing counts as not set.

| Variable | Sets | Meaning |
| --- | --- | --- |
";

/// The reference, as Markdown.
pub fn reference() -> String {
    let schema = schema();
    let mut defaults = serde_json::to_value(Rules::default()).unwrap_or_default();
    with_numbers(&schema, &schema, &mut defaults);
    let mut page = OPENING.to_owned();
    section(&mut page, &schema, &schema, "", Some(&defaults));
    page.push_str(VARIABLES_OPENING);
    for variable in VARIABLES {
        let (name, path, doc) = (variable.name, variable.target.path(), variable.doc);
        line(&mut page, &[&format!("`{name}`"), &format!("`{path}`"), doc]);
    }
    page
}

/// Writes a section, and then those in it.
fn section(page: &mut String, root: &Value, schema: &Value, path: &str, default: Option<&Value>) {
    let Kind::Section { keys, required } = Shape::of(root, schema).kind else {
        return;
    };
    let mut inner = Vec::new();
    let mut rows = String::new();
    for (key, schema) in keys {
        let shape = Shape::of(root, schema);
        let path = join(path, key);
        let default_here = default.and_then(|default| default.get(key)).or(schema.get("default"));
        match shape.kind {
            Kind::Section { .. } => {
                inner.push((path, schema, default_here));
                continue;
            }
            Kind::List { items } => inner.push((format!("{path}[]"), items, None)),
            Kind::Table { values } => inner.push((format!("{path}.<name>"), values, None)),
            _ => {}
        }
        let default = match default_here {
            _ if required.contains(&key.as_str()) => "required".to_owned(),
            // What is built in has names; the values are in the schema and in the example.
            Some(Value::Object(table)) if !table.is_empty() => quoted(table.keys()),
            Some(default) => format!("`{default}`"),
            None => String::new(),
        };
        line(&mut rows, &[&format!("`{key}`"), &shape.expected(), &default, &describe(schema)]);
    }
    if !path.is_empty() {
        let _ = write!(page, "\n## `{path}`\n\n{}\n", meaning(root, schema));
    }
    if !rows.is_empty() {
        page.push_str("\n| Key | Value | Default | Meaning |\n| --- | --- | --- | --- |\n");
        page.push_str(&rows);
    }
    for (path, schema, default) in inner {
        section(page, root, schema, &path, default);
    }
}

/// What a section is for: what is said where it is used, or else what is said of its type.
fn meaning(root: &Value, schema: &Value) -> String {
    let said = describe(schema);
    let definition = schema
        .get("$ref")
        .and_then(Value::as_str)
        .and_then(|name| root.pointer(name.strip_prefix('#')?));
    if said.is_empty() { definition.map(describe).unwrap_or_default() } else { said }
}

fn describe(schema: &Value) -> String {
    schema.get("description").and_then(Value::as_str).unwrap_or_default().replace('\n', " ")
}

fn line(page: &mut String, cells: &[&str]) {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    let _ = writeln!(page, "| {} |", cells.join(" | "));
}
