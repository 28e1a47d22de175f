//! Plan conformance: the files that were planned against the files that were touched.
//!
//! People approved a list of files. A critical file outside that list was approved by nobody, so
//! it fails the review; any other difference is only shown, because plans are rarely perfect.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::plan::{Action, FileChange};
use crate::risk;
use crate::rules::Rules;

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
    for (path, &done) in touched {
        match planned.get(path.as_str()) {
            Some(&planned) if planned == done => {}
            Some(&planned) => {
                conformance.mismatched.push(Mismatch { path: path.clone(), planned, done });
            }
            None if risk::is_critical(path, rules) => {
                conformance.unplanned_critical.push(path.clone());
            }
            None => conformance.unplanned.push(path.clone()),
        }
    }
    conformance
}
