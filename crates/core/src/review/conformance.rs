//! Plan conformance: the files that were planned against the files that were touched.
//!
//! People approved a list of files. A critical file outside that list was approved by nobody, so
//! it fails the review; so does one that decides how gates run, because whoever can change the judge
//! needs no other lie. Any other difference is only shown, because plans are rarely perfect.

use std::collections::{BTreeMap, BTreeSet};

use globset::{Glob, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};

use crate::plan::{Action, FileChange};
use crate::rules::{Rules, is_critical};

/// A file that was planned one way and touched another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mismatch {
    /// Where it is.
    pub path: String,
    /// What was to happen to it.
    pub planned: Action,
    /// What did.
    pub done: Action,
}

/// How a change differs from its plan. Everything is in the order of the paths.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conformance {
    /// Critical files that were touched and not planned. Each fails the review.
    pub unplanned_critical: Vec<String>,
    /// Files that decide how gates run, and were touched and not planned. Each fails the review.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unplanned_guarded: Vec<String>,
    /// Other files that were touched and not planned.
    pub unplanned: Vec<String>,
    /// Files that were planned and not touched.
    pub untouched: Vec<String>,
    /// Files that were planned one way and touched another.
    pub mismatched: Vec<Mismatch>,
}

impl Conformance {
    /// How many files are worth a warning. A file that turned out not to need a change is not.
    pub fn drift(&self) -> usize {
        self.unplanned.len() + self.mismatched.len()
    }
}

/// Compares what was touched with what was planned.
pub fn compare(
    planned: &[FileChange],
    touched: &BTreeMap<String, Action>,
    rules: &Rules,
) -> Conformance {
    let planned: BTreeMap<&str, Action> =
        planned.iter().map(|change| (change.path.as_str(), change.action)).collect();
    let mut conformance = Conformance {
        untouched: planned
            .keys()
            .filter(|path| !touched.contains_key(**path))
            .map(|path| (*path).to_owned())
            .collect(),
        ..Conformance::default()
    };
    let guard = Guard::of(rules);
    for (path, &done) in touched {
        match planned.get(path.as_str()) {
            Some(&planned) if planned == done => {}
            Some(&planned) => {
                conformance.mismatched.push(Mismatch { path: path.clone(), planned, done });
            }
            None if is_critical(path, rules) => {
                conformance.unplanned_critical.push(path.clone());
            }
            None if guard.holds(path) => conformance.unplanned_guarded.push(path.clone()),
            None => conformance.unplanned.push(path.clone()),
        }
    }
    conformance
}

/// The files that decide how gates run: those that the rules name, and those that a gate's command
/// names or would take for a program it names.
struct Guard<'a> {
    globs: GlobSet,
    words: BTreeSet<&'a str>,
    /// Whether a command changes its folder, so that a name may be meant from there.
    moves: bool,
}

impl<'a> Guard<'a> {
    fn of(rules: &'a Rules) -> Self {
        // Rules that were loaded have no glob that cannot be read.
        let globs = rules.review.guarded.iter().filter_map(|glob| Glob::new(glob).ok());
        let globs = globs.fold(GlobSetBuilder::new(), |mut set, glob| {
            set.add(glob);
            set
        });
        let is_between = |letter: char| letter.is_whitespace() || "'\"`;&|()<>=,".contains(letter);
        let words: BTreeSet<_> = rules
            .gates
            .values()
            .flat_map(|gate| gate.command.split(is_between))
            .map(|word| word.trim_start_matches("./").trim_end_matches('/'))
            .filter(|word| !word.is_empty())
            .collect();
        let moves = words.contains("cd");
        Self { globs: globs.build().unwrap_or_default(), words, moves }
    }

    fn holds(&self, path: &str) -> bool {
        let named = |name: &str| self.words.contains(name);
        // `pytest.py` beside the code is what `python -m pytest` runs.
        let shadow = match path.rsplit_once('/') {
            None => path.split_once('.').map(|(stem, _)| stem),
            Some((folder, "__init__.py" | "__main__.py")) => Some(folder),
            Some(_) => None,
        };
        let from_there = || {
            let mut at = path;
            std::iter::from_fn(|| {
                at = at.split_once('/')?.1;
                Some(at)
            })
            .any(named)
        };
        self.globs.is_match(path)
            || named(path)
            || shadow.is_some_and(named)
            || (self.moves && from_there())
    }
}
