//! Plan conformance: planned files compared with touched files.
//!
//! People approved a list of files. Nobody approved a critical file outside that list, so it fails
//! the review. A file that affects how gates run, or that instructs agents, fails it too, because
//! changing it can hide any other fault. All other deviations are only shown, because plans are rarely perfect.

use std::collections::{BTreeMap, BTreeSet};

use globset::{Glob, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};

use crate::plan::{FileAction, FileChange};
use crate::rules::{Rules, is_critical, is_instruction_file};

/// File whose planned and actual actions differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanMismatch {
    /// Path of the file.
    pub path: String,
    /// Planned action.
    pub planned: FileAction,
    /// Actual action.
    #[serde(rename = "done")]
    pub actual: FileAction,
}

/// Differences between a change and its plan, ordered by path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conformance {
    /// Unplanned critical files. Each fails the review.
    pub unplanned_critical: Vec<String>,
    /// Unplanned files that affect how gates run, or instruct agents. Each fails the review.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unplanned_guarded: Vec<String>,
    /// Other unplanned files.
    pub unplanned: Vec<String>,
    /// Planned files without a change.
    pub untouched: Vec<String>,
    /// Files whose planned and actual actions differ.
    pub mismatched: Vec<PlanMismatch>,
}

impl Conformance {
    /// Returns the number of files that deserve a warning. Planned files without a change do not.
    pub fn deviation_count(&self) -> usize {
        self.unplanned.len() + self.mismatched.len()
    }
}

/// Compares touched files with the plan.
pub fn compare(
    planned: &[FileChange],
    touched: &BTreeMap<String, FileAction>,
    rules: &Rules,
) -> Conformance {
    let planned: BTreeMap<&str, FileAction> =
        planned.iter().map(|change| (change.path.as_str(), change.action)).collect();
    let mut conformance = Conformance {
        untouched: planned
            .keys()
            .filter(|path| !touched.contains_key(**path))
            .map(|path| (*path).to_owned())
            .collect(),
        ..Conformance::default()
    };
    let guard = GuardedFiles::from_rules(rules);
    for (path, &done) in touched {
        match planned.get(path.as_str()) {
            Some(&planned) if planned == done => {}
            Some(&planned) => {
                conformance.mismatched.push(PlanMismatch {
                    path: path.clone(),
                    planned,
                    actual: done,
                });
            }
            None if is_critical(path, rules) => {
                conformance.unplanned_critical.push(path.clone());
            }
            None if guard.contains(path) || is_instruction_file(path) => {
                conformance.unplanned_guarded.push(path.clone());
            }
            None => conformance.unplanned.push(path.clone()),
        }
    }
    conformance
}

/// Files that affect how gates run: configured ones, and files that a gate's command names or could
/// load instead of the program it names.
struct GuardedFiles<'a> {
    globs: GlobSet,
    command_words: BTreeSet<&'a str>,
    /// A command changes directory, so names can be relative to another folder.
    changes_directory: bool,
}

impl<'a> GuardedFiles<'a> {
    fn from_rules(rules: &'a Rules) -> Self {
        // Loaded rules contain only valid globs.
        let globs = rules.review.guarded.iter().filter_map(|glob| Glob::new(glob).ok());
        let globs = globs.fold(GlobSetBuilder::new(), |mut set, glob| {
            set.add(glob);
            set
        });
        let is_between = |letter: char| letter.is_whitespace() || "'\"`;&|()<>=,".contains(letter);
        let command_words: BTreeSet<_> = rules
            .gates
            .values()
            .flat_map(|gate| gate.command.split(is_between))
            .map(|word| word.trim_start_matches("./").trim_end_matches('/'))
            .filter(|word| !word.is_empty())
            .collect();
        let changes_directory = command_words.contains("cd");
        Self { globs: globs.build().unwrap_or_default(), command_words, changes_directory }
    }

    fn contains(&self, path: &str) -> bool {
        let is_in_command = |name: &str| self.command_words.contains(name);
        // `python -m pytest` runs a `pytest.py` in the repository.
        let module = match path.rsplit_once('/') {
            None => path.split_once('.').map(|(stem, _)| stem),
            Some((folder, "__init__.py" | "__main__.py")) => Some(folder),
            Some(_) => None,
        };
        let in_subdirectory = || {
            let mut at = path;
            std::iter::from_fn(|| {
                at = at.split_once('/')?.1;
                Some(at)
            })
            .any(is_in_command)
        };
        self.globs.is_match(path)
            || is_in_command(path)
            || module.is_some_and(is_in_command)
            || (self.changes_directory && in_subdirectory())
    }
}
