//! Reading the rules: the defaults, the file over them, the environment over both.
//!
//! This is pure. The text of the file and the variables come in as arguments, so the same call
//! serves a terminal, a daemon and a test. Nothing is retried and nothing is half accepted: either
//! there are rules, or there is a list of everything that is wrong.

use std::collections::BTreeMap;

use garde::Validate;
use serde_json::Value as Json;

use super::Rules;
use super::check::{Walk, join};
use super::problem::{Fault, Origin, Problem, Problems};
use super::schema::{schema, with_numbers};
use super::{names, tree, variables};

/// A file that has been read.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// What it is called in messages.
    pub name: &'a str,
    /// What it says.
    pub text: &'a str,
}

/// Rules, and where they came from.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The rules.
    pub rules: Rules,
    /// Where each path was set. What is not here is a default.
    pub origins: BTreeMap<String, Origin>,
    /// What is shown in place of values that came out of variables.
    shown: BTreeMap<String, String>,
}

/// One value, as it may be shown to anybody.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// Its path, such as `scrum_master.task_loop.max_retries`.
    pub path: String,
    /// The value; for one that came out of a variable, the variable.
    pub value: Json,
    /// Where it came from.
    pub origin: Origin,
}

/// Reads the rules.
///
/// The file is laid over the defaults key by key; a list replaces the whole list. Without a file,
/// or with an empty one, the defaults hold.
pub fn load(
    file: Option<Source<'_>>,
    variables: &BTreeMap<String, String>,
) -> Result<Loaded, Problems> {
    let schema = schema();
    let mut walk = Walk::new(&schema, variables, file.map_or("tamma.yaml", |file| file.name));
    let mut rules = serde_json::to_value(Rules::default()).unwrap_or_default();
    match file.map(|file| tree::read(file.text)) {
        Some(Ok(node)) => {
            if let Some(over) = walk.file(&node) {
                lay_over(&mut rules, over);
            }
        }
        Some(Err(problem)) => walk.problems.push(*problem),
        None => {}
    }
    variables::apply(&mut rules, &mut walk);
    let rules = judge(rules, &mut walk);
    walk.origins.remove("");
    match rules {
        Some(rules) if walk.problems.is_empty() => Ok(Loaded {
            rules,
            origins: walk.origins,
            shown: walk.hidden.into_iter().map(|(path, hidden)| (path, hidden.shown)).collect(),
        }),
        _ => {
            // In the order of the file, and after it the environment.
            walk.problems.sort_by_key(|problem| {
                (
                    problem.variable().is_some(),
                    problem.place(),
                    problem.variable().map(str::to_owned),
                )
            });
            Err(Problems(walk.problems))
        }
    }
}

/// The final word: the types, and the rules that only they know.
fn judge(rules: Json, walk: &mut Walk<'_>) -> Option<Rules> {
    let rules: Rules = match serde_json::from_value(rules) {
        Ok(rules) => rules,
        Err(error) => {
            // The walk is at least as strict as the types, so this is not expected to happen. If
            // it does, the user is better served by serde's words than by silence.
            let reason = walk.redact(&error.to_string());
            let fault = Fault::Refused { path: walk.file.to_owned(), reason };
            walk.problems.push(Problem { fault, origin: Origin::Default });
            return None;
        }
    };
    if let Err(report) = rules.validate() {
        for (path, error) in report.iter() {
            let path = path.to_string();
            let reason = walk.redact(error.message());
            let origin = nearest(&walk.origins, &path);
            walk.problems.push(Problem { fault: Fault::Refused { path, reason }, origin });
        }
    }
    names::check(&rules, walk);
    Some(rules)
}

/// Where a path was set, or else the section it is in.
pub(super) fn nearest(origins: &BTreeMap<String, Origin>, path: &str) -> Origin {
    let mut path = path;
    loop {
        if let Some(origin) = origins.get(path) {
            return origin.clone();
        }
        let Some(end) = path.rfind(['.', '[']) else {
            return Origin::Default;
        };
        path = &path[..end];
    }
}

fn lay_over(under: &mut Json, over: Json) {
    match (under, over) {
        (Json::Object(under), Json::Object(over)) => {
            for (key, over) in over {
                lay_over(under.entry(key).or_insert(Json::Null), over);
            }
        }
        (under, over) => *under = over,
    }
}

impl Loaded {
    /// Where the value at a path came from.
    pub fn origin(&self, path: &str) -> &Origin {
        self.origins.get(path).unwrap_or(&Origin::Default)
    }

    /// Every value, one by one, as it may be shown to anybody.
    pub fn settings(&self) -> Vec<Setting> {
        let schema = schema();
        let mut rules = serde_json::to_value(&self.rules).unwrap_or_default();
        with_numbers(&schema, &schema, &mut rules);
        let mut settings = Vec::new();
        self.collect("", &rules, &mut settings);
        settings
    }

    fn collect(&self, path: &str, value: &Json, settings: &mut Vec<Setting>) {
        match value {
            Json::Object(map) if !map.is_empty() => {
                for (key, value) in map {
                    self.collect(&join(path, key), value, settings);
                }
            }
            // A list of words is one value; a list of sections is many.
            Json::Array(list) if list.iter().any(Json::is_object) => {
                for (index, value) in list.iter().enumerate() {
                    self.collect(&format!("{path}[{index}]"), value, settings);
                }
            }
            value => settings.push(Setting {
                path: path.to_owned(),
                value: self.show(path, value),
                origin: self.origin(path).clone(),
            }),
        }
    }

    fn show(&self, path: &str, value: &Json) -> Json {
        match (self.shown.get(path), value) {
            (Some(shown), _) => shown.as_str().into(),
            (None, Json::Array(list)) => list
                .iter()
                .enumerate()
                .map(|(index, item)| self.show(&format!("{path}[{index}]"), item))
                .collect(),
            (None, value) => value.clone(),
        }
    }
}
