//! Validation of a file against the schema.
//!
//! Collects every problem, and builds a value from the valid parts so that they can be checked
//! further.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json};

use super::operator_limits::{self, VariablePlace};
use super::problem::{ConfigFault, ConfigProblem, SourceLocation, ValueOrigin};
use super::value_check::{describe_value, truncate};
use super::value_schema::{ValueKind, ValueSchema};
use super::variables::expand_variables;
use super::yaml::{YamlKey, YamlNode, YamlValue};
use crate::operator::OperatorConfig;

/// Validation of one file, with everything collected so far.
pub(super) struct FileValidator<'a> {
    /// Complete schema.
    pub(super) schema: &'a Json,
    pub(super) variables: &'a BTreeMap<String, String>,
    /// Limits of the operator.
    pub(super) operator: &'a OperatorConfig,
    /// Name of the file in messages.
    pub(super) file_name: &'a str,
    pub(super) problems: Vec<ConfigProblem>,
    /// Origin of each path that was set, including lists and sections.
    pub(super) origins: BTreeMap<String, ValueOrigin>,
    /// Values that came from variables, by path.
    pub(super) secret_values: BTreeMap<String, SecretValue>,
    /// Variables that the file refers to.
    pub(super) referenced_variables: BTreeSet<String>,
}

/// Value that is never shown, with its placeholder.
pub(super) struct SecretValue {
    pub(super) placeholder: String,
    value: String,
}

impl<'a> FileValidator<'a> {
    pub(super) fn new(
        schema: &'a Json,
        variables: &'a BTreeMap<String, String>,
        operator: &'a OperatorConfig,
        file_name: &'a str,
    ) -> Self {
        Self {
            schema,
            variables,
            operator,
            file_name,
            problems: Vec::new(),
            origins: BTreeMap::new(),
            secret_values: BTreeMap::new(),
            referenced_variables: BTreeSet::new(),
        }
    }

    /// Checks a complete file and returns its valid part.
    pub(super) fn check_file(&mut self, node: &YamlNode) -> Option<Json> {
        let root = self.schema;
        self.check_node(node, &ValueSchema::parse(root, root), "")
    }

    /// Marks a value that must never be shown.
    pub(super) fn hide_value(&mut self, path: String, placeholder: String, value: &str) {
        self.secret_values.insert(path, SecretValue { placeholder, value: value.to_owned() });
    }

    /// Replaces secret values in a message from another library.
    pub(super) fn redact(&self, message: &str) -> String {
        let mut secrets: Vec<&SecretValue> = self.secret_values.values().collect();
        // Longest first: a value can be part of a longer one.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.value.len()));
        secrets
            .iter()
            .filter(|secret| !secret.value.is_empty())
            .fold(message.to_owned(), |text, secret| {
                text.replace(&secret.value, &secret.placeholder)
            })
    }

    fn report(&mut self, location: SourceLocation, fault: ConfigFault) {
        self.problems.push(ConfigProblem { fault, origin: ValueOrigin::File(location) });
    }

    fn check_node(
        &mut self,
        node: &YamlNode,
        schema: &ValueSchema<'a>,
        path: &str,
    ) -> Option<Json> {
        self.origins.insert(path.to_owned(), ValueOrigin::File(node.location));
        match (&schema.kind, &node.value) {
            // A section in which everything is commented out counts as empty.
            (ValueKind::Table { .. }, YamlValue::Null) => None,
            (ValueKind::Section { required, .. }, YamlValue::Null) => {
                self.report_missing_keys(node.location, &[], required, schema, path);
                None
            }
            (ValueKind::Section { required, .. }, YamlValue::Map(pairs)) => {
                let section = self.check_section(pairs, schema, path);
                self.report_missing_keys(node.location, pairs, required, schema, path);
                // A section without a required key cannot be checked further.
                let complete = required.iter().all(|key| section.contains_key(*key));
                complete.then_some(Json::Object(section))
            }
            (ValueKind::Table { .. }, YamlValue::Map(pairs)) => {
                Some(Json::Object(self.check_section(pairs, schema, path)))
            }
            (ValueKind::List { items }, YamlValue::List(list)) => {
                let schema = ValueSchema::parse(self.schema, items);
                let values: Vec<Option<Json>> = list
                    .iter()
                    .enumerate()
                    .map(|(index, item)| {
                        self.check_node(item, &schema, &format!("{path}[{index}]"))
                    })
                    .collect();
                // Without this item, the others would be reported under the wrong index.
                values.into_iter().collect::<Option<Vec<Json>>>().map(Json::Array)
            }
            (_, YamlValue::Text(text)) if text.contains("${") => {
                self.check_text(text, node, schema, path)
            }
            (_, value) => {
                let name = if path.is_empty() { self.file_name } else { path };
                match schema.check_value(value, name, &describe_value(value)) {
                    Ok(value) => Some(value),
                    Err(fault) => {
                        self.report(node.location, fault);
                        None
                    }
                }
            }
        }
    }

    /// Reports the required keys that a section does not have.
    fn report_missing_keys(
        &mut self,
        location: SourceLocation,
        pairs: &[(YamlKey, YamlNode)],
        required: &[&str],
        schema: &ValueSchema<'a>,
        path: &str,
    ) {
        for key in required {
            if !pairs.iter().any(|(present, _)| present.name == *key) {
                let expected = schema
                    .key_schema(self.schema, key)
                    .map(|key_schema| key_schema.describe_expected());
                let fault = ConfigFault::MissingKey {
                    path: path.to_owned(),
                    key: (*key).to_owned(),
                    expected: expected.unwrap_or_default(),
                };
                self.report(location, fault);
            }
        }
    }

    fn check_section(
        &mut self,
        pairs: &[(YamlKey, YamlNode)],
        schema: &ValueSchema<'a>,
        path: &str,
    ) -> Map<String, Json> {
        let mut first_locations: BTreeMap<&str, SourceLocation> = BTreeMap::new();
        let mut section = Map::new();
        for (key, node) in pairs {
            if let Some(first) = first_locations.get(key.name.as_str()) {
                let fault =
                    ConfigFault::DuplicateKey { key: truncate(&key.name), first_line: first.line };
                self.report(key.location, fault);
                continue;
            }
            first_locations.insert(&key.name, key.location);
            match schema.key_schema(self.schema, &key.name) {
                Some(schema) => {
                    let path = join_path(path, &key.name);
                    section.extend(
                        self.check_node(node, &schema, &path)
                            .map(|value| (key.name.clone(), value)),
                    );
                }
                None if path.is_empty() && operator_limits::is_operator_key(&key.name) => {
                    self.report(key.location, operator_limits::operator_key_fault(&key.name));
                }
                None => self.report(
                    key.location,
                    ConfigFault::UnknownKey {
                        key: truncate(&key.name),
                        section: format!(
                            "`{}`",
                            if path.is_empty() { self.file_name } else { path }
                        ),
                        known: match &schema.kind {
                            ValueKind::Section { keys, .. } => keys.keys().cloned().collect(),
                            _ => Vec::new(),
                        },
                    },
                ),
            }
        }
        section
    }

    /// Checks a text that refers to variables.
    fn check_text(
        &mut self,
        text: &str,
        node: &YamlNode,
        schema: &ValueSchema<'a>,
        path: &str,
    ) -> Option<Json> {
        let mut names = BTreeSet::new();
        let expanded = expand_variables(text, self.variables, |name| {
            names.insert(name.to_owned());
        });
        let place = VariablePlace::of(path);
        let forbidden =
            names.iter().filter_map(|name| place.refuse(name, text, path, self.operator));
        let forbidden: Vec<ConfigFault> = forbidden.collect();
        self.referenced_variables.extend(names);
        let faults = match expanded {
            // Nothing else is said about a variable that the file must not use.
            _ if !forbidden.is_empty() => forbidden,
            Ok(expanded) => {
                self.hide_value(path.to_owned(), text.to_owned(), &expanded);
                match schema.check_text_value(
                    &expanded,
                    path,
                    &format!("the value of `{}`", truncate(text)),
                ) {
                    Ok(value) => return Some(value),
                    Err(fault) => vec![fault],
                }
            }
            Err(faults) => faults,
        };
        for fault in faults {
            self.report(node.location, fault);
        }
        None
    }
}

/// Returns the path of a key in a section.
pub(super) fn join_path(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
