//! Evidence: whether what a validator points at is there.
//!
//! A validator is an agent too, and may make up what it saw. What it names is therefore looked up:
//! the file and the line at the commit, the test among those that passed in this commit's gates.
//! That it also shows what it is said to show is the validator's word; that it exists is not.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Criterion, Judgement};

/// Why a claim shows nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Doubt {
    /// It says nothing.
    #[error("no evidence was given")]
    Nothing,
    /// It says something that nobody can look up.
    #[error("the evidence names neither a file nor a test")]
    Nowhere,
    /// It names a file that is not there.
    #[error("there is no file `{file}` in the commit")]
    NoFile {
        /// The file.
        file: String,
    },
    /// It names a line that is not there.
    #[error("`{file}` has {lines} lines, so there is no line {line}")]
    NoLine {
        /// The file.
        file: String,
        /// The line.
        line: u32,
        /// How many it has.
        lines: u32,
    },
    /// It names a test that did not pass.
    #[error("no test `{test}` passed in the gates of this commit")]
    NoTest {
        /// The test.
        test: String,
    },
    /// It names a test and nothing else, and no gate says which tests there are.
    #[error("no gate says which tests passed, so the test `{test}` cannot be looked up")]
    UnknownTest {
        /// The test.
        test: String,
    },
}

/// What claims are held against.
#[derive(Debug, Clone, Default)]
pub struct Ground {
    /// The tests that passed in the commit's gates, by name.
    pub passed: BTreeSet<String>,
    /// The files that claims name and the commit has, with the number of their lines.
    pub files: BTreeMap<String, u32>,
}

impl Ground {
    /// Marks every claim that shows nothing.
    ///
    /// Everything that a claim names must be there. Only where no gate names its tests, a test is
    /// passed over if there is a file beside it.
    #[must_use]
    pub fn weigh(&self, criteria: Vec<Criterion>) -> Vec<Criterion> {
        criteria
            .into_iter()
            .map(|criterion| Criterion { doubt: self.doubt(&criterion.judgement), ..criterion })
            .collect()
    }

    fn doubt(&self, judgement: &Judgement) -> Option<Doubt> {
        let Judgement::Met { evidence, file, line, test } = judgement else { return None };
        let file = file.as_deref().map(plain).filter(|file| !file.is_empty());
        let test = test.as_deref().map(str::trim).filter(|test| !test.is_empty());
        if evidence.trim().is_empty() {
            return Some(Doubt::Nothing);
        }
        if let Some(file) = file {
            let of = || file.to_owned();
            let Some(&lines) = self.files.get(file) else {
                return Some(Doubt::NoFile { file: of() });
            };
            if let Some(line) = line.filter(|line| !(1..=lines).contains(line)) {
                return Some(Doubt::NoLine { file: of(), line, lines });
            }
        }
        match (file, test) {
            (None, None) => Some(Doubt::Nowhere),
            (Some(_), None) => None,
            (Some(_), Some(_)) if self.passed.is_empty() => None,
            (None, Some(test)) if self.passed.is_empty() => {
                Some(Doubt::UnknownTest { test: test.to_owned() })
            }
            (_, Some(test)) if self.passed.iter().any(|name| is_called(name, test)) => None,
            (_, Some(test)) => Some(Doubt::NoTest { test: test.to_owned() }),
        }
    }
}

/// The files that claims name, to be looked up.
pub fn named<'a>(criteria: impl IntoIterator<Item = &'a Criterion>) -> BTreeSet<&'a str> {
    criteria
        .into_iter()
        .filter_map(|criterion| match &criterion.judgement {
            Judgement::Met { file, .. } => file.as_deref().map(plain),
            Judgement::Unmet { .. } | Judgement::Unjudged => None,
        })
        .filter(|file| !file.is_empty())
        .collect()
}

fn plain(file: &str) -> &str {
    let file = file.trim();
    file.strip_prefix("./").unwrap_or(file)
}

/// Whether a test goes by a name: its whole one, or the end of it, from the start of a word. Tools
/// put the file, the class or the module before it, each in its own way.
fn is_called(whole: &str, name: &str) -> bool {
    whole.strip_suffix(name).is_some_and(|before| {
        before.chars().next_back().is_none_or(|last| !last.is_alphanumeric() && last != '_')
    })
}
