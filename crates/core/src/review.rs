//! The review: what our own checks say of one exact commit, and what it scores.
//!
//! Nothing here believes the agent. Gates are judged against the base commit and a second run
//! ([`gate`](crate::gate)), the added lines by what they must not have in them ([`patterns`]), the files against
//! the plan ([`conformance`]), and every acceptance criterion needs [`evidence`]. The verdict carries all of it, so that it can be shown and explained; the machine
//! carries only its [`Summary`], and the [`Fingerprint`] by which it sees that it goes in circles.
//! Running the checks, and running them again, is the caller's job.

pub mod conformance;
pub mod evidence;
mod fingerprint;
pub mod patch;
pub mod patterns;
pub mod record;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter};

pub use self::fingerprint::Fingerprint;
use crate::gate::Judged;
use crate::issue::{Category, Issue, Severity};
use crate::review::conformance::Conformance;
use crate::review::evidence::Doubt;

/// What the validator says of one acceptance criterion.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// It is met, and this shows it: a file and a line, or a test that passed.
    Met {
        /// What can be seen there.
        evidence: String,
        /// The file to look at, from the root of the repository.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<String>,
        /// The line in it, counted from 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        line: Option<u32>,
        /// The test that shows it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        test: Option<String>,
    },
    /// It is not met.
    Unmet {
        /// What is missing.
        why: String,
    },
    /// The validator said nothing about it.
    #[default]
    Unjudged,
}

/// An acceptance criterion with what the validator says of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Criterion {
    /// What must be true, in the author's words.
    pub text: String,
    /// What the validator says.
    pub judgement: Judgement,
    /// Why what it says does not count: what it points at is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<Doubt>,
}

impl Criterion {
    /// Whether it is met and shown to be. A claim without evidence is only a claim.
    pub fn is_met(&self) -> bool {
        matches!(self.judgement, Judgement::Met { .. }) && self.doubt.is_none()
    }
}

/// Puts the criteria of a task together with what the validator said of them. Every claim is in
/// doubt until it is [weighed](evidence::Ground::weigh).
///
/// The task decides which criteria there are: one that the validator passed over is there,
/// unjudged, and one that it made up is not.
pub fn criteria(wanted: &[String], said: &BTreeMap<String, Judgement>) -> Vec<Criterion> {
    wanted
        .iter()
        .map(|text| {
            let judgement = said.get(text).cloned().unwrap_or_default();
            let is_claim = matches!(judgement, Judgement::Met { .. });
            let doubt = is_claim.then_some(Doubt::Nowhere);
            Criterion { text: text.clone(), judgement, doubt }
        })
        .collect()
}

/// Everything that a verdict is made from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inputs {
    /// The gates, judged.
    pub gates: Vec<Judged>,
    /// What was found, by gates, patterns and reviewers.
    pub issues: Vec<Issue>,
    /// The task's criteria, judged.
    pub criteria: Vec<Criterion>,
    /// The change against the plan.
    pub conformance: Conformance,
}

/// Why points were taken off.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    Display,
    EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Deduction {
    /// 25 for every gate that failed or ran out of time.
    FailedGates,
    /// 40 for every critical issue.
    CriticalIssues,
    /// 15 for every error.
    Errors,
    /// 3 for every warning.
    Warnings,
    /// 20 for every criterion that is not shown to be met.
    UnmetCriteria,
    /// 30 for every critical file that the plan did not name.
    UnplannedCriticalFiles,
    /// 30 for every file that decides how gates run and that the plan did not name.
    UnplannedGuardedFiles,
    /// 3 for every other file that was touched without a plan or in another way than planned.
    PlanDrift,
}

/// What the review says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Whether the change may go on. The score does not decide this.
    pub passed: bool,
    /// 0 to 100, for comparing one attempt with another.
    pub score: u8,
    /// Every deduction that counted, with the points it took off.
    pub deductions: Vec<(Deduction, u8)>,
    /// What it was made from, for showing and for the next run's brief.
    pub inputs: Inputs,
}

/// What the machine carries of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Whether the change may go on.
    pub passed: bool,
    /// 0 to 100.
    pub score: u8,
    /// Failed gates, errors and worse, and critical and guarded files that nobody planned.
    pub blocking: u16,
    /// Criteria that are not shown to be met.
    pub unmet: u16,
    /// Whether a critical issue of security was found.
    pub security_critical: bool,
}

/// What the gates came to, by how each failure is classed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gates {
    /// Gates that passed.
    pub passed: u16,
    /// Gates that failed because of the change. Only these count.
    pub failed: u16,
    /// Gates that fail on the base commit too.
    pub pre_existing: u16,
    /// Gates that passed when run again.
    pub flaky: u16,
    /// Whether one of those that failed found a critical security fault.
    pub security_critical: bool,
    /// What the failure looks like, if it is one.
    #[serde(default)]
    pub fingerprint: Fingerprint,
}

/// Judges a change.
pub fn verdict(inputs: Inputs) -> Verdict {
    let of = |severity| inputs.issues.iter().filter(|issue| issue.severity == severity).count();
    let deductions: Vec<_> = [
        (Deduction::FailedGates, failed_gates(&inputs), 25),
        (Deduction::CriticalIssues, of(Severity::Critical), 40),
        (Deduction::Errors, of(Severity::Error), 15),
        (Deduction::Warnings, of(Severity::Warning), 3),
        (Deduction::UnmetCriteria, unmet(&inputs), 20),
        (Deduction::UnplannedCriticalFiles, inputs.conformance.unplanned_critical.len(), 30),
        (Deduction::UnplannedGuardedFiles, inputs.conformance.unplanned_guarded.len(), 30),
        (Deduction::PlanDrift, inputs.conformance.drift(), 3),
    ]
    .into_iter()
    .filter(|(_, count, _)| *count > 0)
    .map(|(deduction, count, each)| {
        // A score has no more than 100 points to lose, whatever the count.
        (deduction, u8::try_from(count.saturating_mul(each)).map_or(100, |points| points.min(100)))
    })
    .collect();
    Verdict {
        passed: blocking(&inputs) == 0 && unmet(&inputs) == 0,
        score: deductions.iter().fold(100, |score: u8, (_, points)| score.saturating_sub(*points)),
        deductions,
        inputs,
    }
}

impl Verdict {
    /// What the machine carries of it.
    pub fn summary(&self) -> Summary {
        let count = |number| u16::try_from(number).unwrap_or(u16::MAX);
        Summary {
            passed: self.passed,
            score: self.score,
            blocking: count(blocking(&self.inputs)),
            unmet: count(unmet(&self.inputs)),
            security_critical: self.inputs.issues.iter().any(|issue| {
                issue.severity == Severity::Critical && issue.category == Category::Security
            }),
        }
    }
}

fn failed_gates(inputs: &Inputs) -> usize {
    inputs.gates.iter().filter(|gate| gate.counts()).count()
}

fn unmet(inputs: &Inputs) -> usize {
    inputs.criteria.iter().filter(|criterion| !criterion.is_met()).count()
}

fn blocking(inputs: &Inputs) -> usize {
    failed_gates(inputs)
        + inputs.issues.iter().filter(|issue| issue.blocks()).count()
        + inputs.conformance.unplanned_critical.len()
        + inputs.conformance.unplanned_guarded.len()
}
