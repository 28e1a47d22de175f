//! What is kept of the checks of a commit, for reports and for whoever has to decide.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString};

use super::Verdict;
use crate::gate::Judged;
use crate::ids::{CommitId, Reference};
use crate::issue::Severity;
use crate::tier::Tier;

/// What is kept of one check of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, on its way to the store")]
pub enum Record {
    /// The gates ran.
    Gates(Tested),
    /// The rest was judged.
    Review(Reviewed),
}

impl Record {
    /// What stood against the change, one text for each: what a gate found new, an issue, a criterion,
    /// a file. The same fault of a later commit has the same text.
    pub fn faults(&self) -> BTreeSet<String> {
        match self {
            Self::Gates(tested) => {
                let failed = tested.gates.iter().map(|ran| &ran.judged).filter(|it| it.counts());
                failed.flat_map(faults_of).collect()
            }
            Self::Review(Reviewed { verdict, .. }) => {
                let inputs = &verdict.inputs;
                let mut faults: BTreeSet<_> =
                    inputs.gates.iter().filter(|it| it.counts()).flat_map(faults_of).collect();
                let issues = inputs.issues.iter().filter(|it| it.severity >= Severity::Error);
                faults.extend(issues.map(|issue| match &issue.file {
                    Some(file) => format!("{file}: {}", issue.message),
                    None => issue.message.clone(),
                }));
                let critical = inputs.conformance.unplanned_critical.iter();
                faults.extend(critical.map(|path| format!("{path}: critical and not planned")));
                let unmet = inputs.criteria.iter().filter(|criterion| !criterion.is_met());
                faults.extend(unmet.map(|criterion| format!("not met: {}", criterion.text)));
                faults
            }
        }
    }

    /// The commit that was checked.
    pub fn commit(&self) -> CommitId {
        match self {
            Self::Gates(tested) => tested.commit,
            Self::Review(reviewed) => reviewed.commit,
        }
    }
}

/// What a gate holds against a change: what it named, or itself.
fn faults_of(gate: &Judged) -> Vec<String> {
    let named: Vec<_> = gate
        .new
        .iter()
        .map(|fault| (fault, ""))
        .chain(gate.missing.iter().map(|test| (test, " is missing")))
        .collect();
    if named.is_empty() {
        return vec![format!("{}: {}", gate.name, gate.standing.to_string().replace('_', " "))];
    }
    let text = |(fault, what): (&String, &str)| {
        if *fault == gate.name {
            format!("{fault}: failed")
        } else {
            format!("{}: {fault}{what}", gate.name)
        }
    };
    named.into_iter().map(text).collect()
}

/// What the gates came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tested {
    /// The commit they judged.
    pub commit: CommitId,
    /// The commit they were compared with.
    pub base: CommitId,
    /// All of them, in the order in which they were begun.
    pub gates: Vec<Ran>,
    /// Milliseconds that all of it took.
    pub millis: u64,
}

/// What one gate came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    /// Its result, judged.
    pub judged: Judged,
    /// Its command line.
    pub command: String,
    /// The exit code, if it came to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// Milliseconds that its first run took.
    pub millis: u64,
    /// How many tests it named, where it names them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tests: Option<Tests>,
    /// The tests that passed, by name, where it names them. Evidence is looked up here.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub passed_names: BTreeSet<String>,
    /// Where the base commit's result came from.
    pub baseline: Baseline,
    /// Whether it ran again.
    #[serde(default)]
    pub again: bool,
    /// The end of what it wrote.
    pub output: String,
}

/// How many tests a gate named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tests {
    /// Those that passed.
    pub passed: u32,
    /// Those that failed.
    pub failed: u32,
    /// Those that were not run.
    pub skipped: u32,
}

/// Where the base commit's result of a gate came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Display, EnumString)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Baseline {
    /// Nobody had to know it.
    NotNeeded,
    /// It was known.
    Known,
    /// The gate was run on the base commit.
    Taken,
}

/// What the rest of a review came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reviewed {
    /// The commit it judged.
    pub commit: CommitId,
    /// What it says, with everything it was made from.
    pub verdict: Verdict,
    /// The change itself, as a patch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<Reference>,
    /// Who judged the criteria, if anybody had to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validator: Option<Validator>,
}

/// Who judged the criteria.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validator {
    /// The tier.
    pub tier: Tier,
    /// The agent.
    pub agent: String,
    /// The model, if one was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}
