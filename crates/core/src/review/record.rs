//! Stored records of the checks of a commit, for reports and decisions.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString};

use super::ReviewVerdict;
use crate::format::humanize;
use crate::gate::GateVerdict;
use crate::ids::{CommitId, Reference};
use crate::issue::{Issue, IssueSeverity};
use crate::tier::Tier;

/// Stored record of one check of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "only one exists at a time, until it is stored")]
pub enum CheckRecord {
    /// Result of the gates.
    Gates(GatesCheck),
    /// Result of the review.
    Review(ReviewCheck),
}

impl CheckRecord {
    /// Returns the faults of the change, one text for each new gate failure, issue, criterion or
    /// file. The same fault of a later commit has the same text.
    pub fn faults(&self) -> BTreeSet<String> {
        match self {
            Self::Gates(tested) => {
                let failed = tested
                    .gates
                    .iter()
                    .map(|record| &record.verdict)
                    .filter(|gate| gate.is_blocking());
                failed.flat_map(gate_faults).collect()
            }
            Self::Review(ReviewCheck { verdict, .. }) => {
                let inputs = &verdict.inputs;
                let mut faults: BTreeSet<_> = inputs
                    .gates
                    .iter()
                    .filter(|gate| gate.is_blocking())
                    .flat_map(gate_faults)
                    .collect();
                let issues =
                    inputs.issues.iter().filter(|issue| issue.severity >= IssueSeverity::Error);
                faults.extend(issues.map(|issue| match &issue.file {
                    Some(file) => format!("{file}: {}", issue.message),
                    None => issue.message.clone(),
                }));
                let critical = inputs.conformance.unplanned_critical.iter();
                faults
                    .extend(critical.map(|path| format!("{path}: critical file not in the plan")));
                let unmet = inputs.criteria.iter().filter(|criterion| !criterion.is_met());
                faults.extend(unmet.map(|criterion| format!("not met: {}", criterion.text)));
                faults
            }
        }
    }

    /// Returns the commit that was checked.
    pub fn commit(&self) -> CommitId {
        match self {
            Self::Gates(tested) => tested.commit,
            Self::Review(reviewed) => reviewed.commit,
        }
    }
}

/// Returns the failures that a gate names, or the gate's own status.
fn gate_faults(gate: &GateVerdict) -> Vec<String> {
    let named: Vec<_> = gate
        .new
        .iter()
        .map(|fault| (fault, ""))
        .chain(gate.missing.iter().map(|test| (test, " is missing")))
        .collect();
    if named.is_empty() {
        return vec![format!("{}: {}", gate.name, humanize(&gate.status))];
    }
    let text = |(fault, suffix): (&String, &str)| {
        if *fault == gate.name {
            format!("{fault}: failed")
        } else {
            format!("{}: {fault}{suffix}", gate.name)
        }
    };
    named.into_iter().map(text).collect()
}

/// Result of all gates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatesCheck {
    /// Commit under test.
    pub commit: CommitId,
    /// Base commit for comparison.
    pub base: CommitId,
    /// Gates, in the order of their start.
    pub gates: Vec<GateRecord>,
    /// Total duration in milliseconds.
    #[serde(rename = "millis")]
    pub duration_ms: u64,
    /// Number of files that the change touches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<u32>,
}

/// Result of one gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateRecord {
    /// Judged result.
    #[serde(rename = "judged")]
    pub verdict: GateVerdict,
    /// Command line.
    pub command: String,
    /// Exit code; `None` if the command was stopped.
    #[serde(rename = "code", default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Duration of the first execution in milliseconds.
    #[serde(rename = "millis")]
    pub duration_ms: u64,
    /// Test counts, if the tool reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tests: Option<TestCounts>,
    /// Names of passed tests, if the tool reports them. Evidence is looked up here.
    #[serde(rename = "passed_names", default, skip_serializing_if = "BTreeSet::is_empty")]
    pub passed_tests: BTreeSet<String>,
    /// Source of the base commit's result.
    pub baseline: BaselineSource,
    /// The gate ran a second time.
    #[serde(rename = "again", default)]
    pub was_rerun: bool,
    /// End of its output.
    pub output: String,
}

/// Test counts of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestCounts {
    /// Passed tests.
    pub passed: u32,
    /// Failed tests.
    pub failed: u32,
    /// Skipped tests.
    pub skipped: u32,
}

/// Source of the base commit's gate result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Display, EnumString)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum BaselineSource {
    /// The result was not needed.
    NotNeeded,
    /// The result was cached.
    #[serde(rename = "known")]
    #[strum(serialize = "known")]
    Cached,
    /// The gate was run on the base commit.
    #[serde(rename = "taken")]
    #[strum(serialize = "taken")]
    Measured,
}

/// Result of the review after the gates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewCheck {
    /// Commit under review.
    pub commit: CommitId,
    /// Verdict with its inputs.
    pub verdict: ReviewVerdict,
    /// Reference to the change as a patch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<Reference>,
    /// The end of the patch is missing, because it is too large. Such a change does not pass.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_diff_truncated: bool,
    /// Agent that judged the criteria; `None` if there was nothing to judge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validator: Option<Validator>,
    /// Second validator, if the first alone reported a critical security issue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second: Option<SecondReview>,
}

/// Judgement of a critical finding by a second validator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecondReview {
    /// Validator that judged the commit again.
    pub validator: Validator,
    /// It reports the critical finding too. Otherwise the finding counts as an error.
    pub confirmed: bool,
    /// Its own issues, for people. Only the confirmation counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub issues: Vec<Issue>,
}

/// Agent that judged the criteria.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validator {
    /// Tier of the agent.
    pub tier: Tier,
    /// Name of the agent.
    pub agent: String,
    /// Model, if one is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}
