//! Evidence: checks that everything a validator refers to exists.
//!
//! A validator is an agent and can invent its observations. So each file and line is looked up in
//! the commit, and each test among the tests that passed in its gates. Only the existence of
//! evidence is verified here; its meaning is the validator's judgement.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Criterion, CriterionJudgement};

/// Reason why evidence does not count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum EvidenceError {
    /// No explanation was given.
    #[error("no evidence given")]
    #[serde(rename = "nothing")]
    Empty,
    /// Neither a file nor a test was named.
    #[error("the evidence names neither a file nor a test")]
    #[serde(rename = "nowhere")]
    NoLocation,
    /// The file does not exist.
    #[error("the commit has no file `{file}`")]
    #[serde(rename = "no_file")]
    FileNotFound {
        /// Path of the file.
        file: String,
    },
    /// The line does not exist.
    #[error("`{file}` has no line {line}; it has {lines}")]
    #[serde(rename = "no_line")]
    LineNotFound {
        /// Path of the file.
        file: String,
        /// Line number.
        line: u32,
        /// Number of lines in the file.
        lines: u32,
    },
    /// The test did not pass.
    #[error("no test `{test}` passed in the gates of this commit")]
    #[serde(rename = "no_test")]
    TestNotPassed {
        /// Name of the test.
        test: String,
    },
    /// Only a test was named, and no gate reports test names.
    #[error("test `{test}` cannot be verified: no gate reports test names")]
    #[serde(rename = "unknown_test")]
    TestUnverifiable {
        /// Name of the test.
        test: String,
    },
}

/// Facts that evidence is checked against.
#[derive(Debug, Clone, Default)]
pub struct EvidenceIndex {
    /// Names of the tests that passed in the commit's gates.
    pub passed_tests: BTreeSet<String>,
    /// Files that claims refer to and the commit contains, with their number of lines.
    pub file_lines: BTreeMap<String, u32>,
}

impl EvidenceIndex {
    /// Checks the evidence of every criterion.
    ///
    /// Everything that a claim names must exist. A test is not checked if no gate reports test
    /// names and the claim also names a file.
    #[must_use]
    pub fn check_criteria(&self, criteria: Vec<Criterion>) -> Vec<Criterion> {
        criteria
            .into_iter()
            .map(|criterion| Criterion {
                evidence_error: self.check_judgement(&criterion.judgement),
                ..criterion
            })
            .collect()
    }

    fn check_judgement(&self, judgement: &CriterionJudgement) -> Option<EvidenceError> {
        let CriterionJudgement::Met { evidence, file, line, test } = judgement else { return None };
        let file = file.as_deref().map(normalize_path).filter(|file| !file.is_empty());
        let test = test.as_deref().map(str::trim).filter(|test| !test.is_empty());
        if evidence.trim().is_empty() {
            return Some(EvidenceError::Empty);
        }
        if let Some(file) = file {
            let owned_file = || file.to_owned();
            let Some(&lines) = self.file_lines.get(file) else {
                return Some(EvidenceError::FileNotFound { file: owned_file() });
            };
            if let Some(line) = line.filter(|line| !(1..=lines).contains(line)) {
                return Some(EvidenceError::LineNotFound { file: owned_file(), line, lines });
            }
        }
        match (file, test) {
            (None, None) => Some(EvidenceError::NoLocation),
            (Some(_), None) => None,
            (Some(_), Some(_)) if self.passed_tests.is_empty() => None,
            (None, Some(test)) if self.passed_tests.is_empty() => {
                Some(EvidenceError::TestUnverifiable { test: test.to_owned() })
            }
            (_, Some(test))
                if self.passed_tests.iter().any(|name| matches_test_name(name, test)) =>
            {
                None
            }
            (_, Some(test)) => Some(EvidenceError::TestNotPassed { test: test.to_owned() }),
        }
    }
}

/// Returns the files that claims refer to.
pub fn referenced_files<'a>(
    criteria: impl IntoIterator<Item = &'a Criterion>,
) -> BTreeSet<&'a str> {
    criteria
        .into_iter()
        .filter_map(|criterion| match &criterion.judgement {
            CriterionJudgement::Met { file, .. } => file.as_deref().map(normalize_path),
            CriterionJudgement::Unmet { .. } | CriterionJudgement::Unjudged => None,
        })
        .filter(|file| !file.is_empty())
        .collect()
}

fn normalize_path(file: &str) -> &str {
    let file = file.trim();
    file.strip_prefix("./").unwrap_or(file)
}

/// Returns `true` if a name matches a test: the whole name, or its end from the start of a word.
/// Tools put the file, class or module before it in different ways.
fn matches_test_name(full_name: &str, name: &str) -> bool {
    full_name.strip_suffix(name).is_some_and(|before| {
        before.chars().next_back().is_none_or(|last| !last.is_alphanumeric() && last != '_')
    })
}
