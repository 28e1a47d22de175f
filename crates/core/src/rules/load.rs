//! Loading of rules: defaults, overridden by the file, overridden by the environment.
//!
//! Pure: the file's text and the variables are arguments, so the same call serves terminals,
//! servers and tests. The result is either complete rules or a list of all problems.

use std::collections::BTreeMap;

use garde::Validate;
use serde_json::Value as Json;

use super::Rules;
use super::problem::{ConfigFault, ConfigProblem, ConfigProblems, ValueOrigin};
use super::schema::{convert_numbers, schema};
use super::validation::{FileValidator, join_path};
use super::{alias, cross_references, operator_limits, variables, yaml};
use crate::operator::OperatorConfig;

/// Configuration file in memory.
#[derive(Debug, Clone, Copy)]
pub struct ConfigFile<'a> {
    /// Name of the file in messages.
    pub name: &'a str,
    /// Content of the file.
    pub text: &'a str,
}

/// Rules with the origin of each value.
#[derive(Debug, Clone)]
pub struct LoadedRules {
    /// Validated rules.
    pub rules: Rules,
    /// Origin of each path that was set. Paths that are missing here have their default.
    pub origins: BTreeMap<String, ValueOrigin>,
    /// Placeholders for values that came from variables, by path.
    placeholders: BTreeMap<String, String>,
}

/// Configuration value that is safe to show.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// Path of the key, such as `scrum_master.task_loop.max_retries`.
    pub path: String,
    /// Value, or the variable reference that it came from.
    pub value: Json,
    /// Origin of the value.
    pub origin: ValueOrigin,
}

/// Loads the rules.
///
/// The file is merged over the defaults key by key; a list replaces the default list. Without a
/// file, or with an empty one, all values are defaults. A file that asks for more than the operator
/// allows is refused; variables that override it belong to the operator too.
pub fn load(
    file: Option<ConfigFile<'_>>,
    variables: &BTreeMap<String, String>,
    operator: &OperatorConfig,
) -> Result<LoadedRules, ConfigProblems> {
    let schema = schema();
    let name = file.map_or("tamma.yaml", |file| file.name);
    let mut validator = FileValidator::new(&schema, variables, operator, name);
    let mut rules = serde_json::to_value(Rules::default()).unwrap_or_default();
    match file.map(|file| yaml::parse(file.text)) {
        Some(Ok(mut node)) => {
            alias::move_alias(&mut node);
            if let Some(overrides) = validator.check_file(&node) {
                merge(&mut rules, overrides);
            }
        }
        Some(Err(problem)) => validator.problems.push(*problem),
        None => {}
    }
    variables::apply_variables(&mut rules, &mut validator);
    let rules = validate_rules(rules, &mut validator);
    validator.origins.remove("");
    match rules {
        Some(rules) if validator.problems.is_empty() => Ok(LoadedRules {
            rules,
            origins: validator.origins,
            placeholders: validator
                .secret_values
                .into_iter()
                .map(|(path, secret)| (path, secret.placeholder))
                .collect(),
        }),
        _ => {
            // Problems in the file come first, in file order; then the environment.
            validator.problems.sort_by_key(|problem| {
                (
                    problem.variable().is_some(),
                    problem.location(),
                    problem.variable().map(str::to_owned),
                )
            });
            Err(ConfigProblems(validator.problems))
        }
    }
}

/// Deserialises the rules and runs the checks that only their types define.
fn validate_rules(rules: Json, validator: &mut FileValidator<'_>) -> Option<Rules> {
    let mut rules: Rules = match serde_json::from_value(rules) {
        Ok(rules) => rules,
        Err(error) => {
            // Not expected, because the schema check is at least as strict as the types. If it
            // happens, serde's message is better than none.
            let reason = validator.redact(&error.to_string());
            let fault = ConfigFault::Refused { path: validator.file_name.to_owned(), reason };
            validator.problems.push(ConfigProblem { fault, origin: ValueOrigin::Default });
            return None;
        }
    };
    operator_limits::set_prices(&mut rules, validator.operator);
    if let Err(report) = rules.validate() {
        for (path, error) in report.iter() {
            let path = path.to_string();
            let reason = validator.redact(error.message());
            let origin = nearest_origin(&validator.origins, &path);
            validator
                .problems
                .push(ConfigProblem { fault: ConfigFault::Refused { path, reason }, origin });
        }
    }
    cross_references::check_names(&rules, validator);
    cross_references::check_channels(&rules, validator);
    cross_references::check_prices(&rules, validator);
    operator_limits::check_limits(&rules, validator);
    Some(rules)
}

/// Returns the origin of a path, or of the nearest section around it.
pub(super) fn nearest_origin(origins: &BTreeMap<String, ValueOrigin>, path: &str) -> ValueOrigin {
    let mut path = path;
    loop {
        if let Some(origin) = origins.get(path) {
            return origin.clone();
        }
        let Some(end) = path.rfind(['.', '[']) else {
            return ValueOrigin::Default;
        };
        path = &path[..end];
    }
}

fn merge(base: &mut Json, overrides: Json) {
    match (base, overrides) {
        (Json::Object(base), Json::Object(overrides)) => {
            for (key, overrides) in overrides {
                merge(base.entry(key).or_insert(Json::Null), overrides);
            }
        }
        (base, overrides) => *base = overrides,
    }
}

impl LoadedRules {
    /// Returns the origin of the value at `path`.
    pub fn origin(&self, path: &str) -> &ValueOrigin {
        self.origins.get(path).unwrap_or(&ValueOrigin::Default)
    }

    /// Lists every value, safe to show.
    pub fn settings(&self) -> Vec<Setting> {
        let schema = schema();
        let mut rules = serde_json::to_value(&self.rules).unwrap_or_default();
        convert_numbers(&schema, &schema, &mut rules);
        let mut settings = Vec::new();
        self.collect_settings("", &rules, &mut settings);
        settings
    }

    fn collect_settings(&self, path: &str, value: &Json, settings: &mut Vec<Setting>) {
        match value {
            Json::Object(map) if !map.is_empty() => {
                for (key, value) in map {
                    self.collect_settings(&join_path(path, key), value, settings);
                }
            }
            // A list of scalars is one value; a list of sections has one value per key.
            Json::Array(list) if list.iter().any(Json::is_object) => {
                for (index, value) in list.iter().enumerate() {
                    self.collect_settings(&format!("{path}[{index}]"), value, settings);
                }
            }
            value => settings.push(Setting {
                path: path.to_owned(),
                value: self.display_value(path, value),
                origin: self.origin(path).clone(),
            }),
        }
    }

    fn display_value(&self, path: &str, value: &Json) -> Json {
        match (self.placeholders.get(path), value) {
            (Some(placeholder), _) => placeholder.as_str().into(),
            (None, Json::Array(list)) => list
                .iter()
                .enumerate()
                .map(|(index, item)| self.display_value(&format!("{path}[{index}]"), item))
                .collect(),
            (None, value) => value.clone(),
        }
    }
}
