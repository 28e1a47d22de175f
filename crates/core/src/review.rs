//! Review: verdict and score of one exact commit.
//!
//! Nothing here relies on the agent's claims. Gates are judged against the base commit and a second
//! execution ([`gate`](crate::gate)), added lines against prohibited [`patterns`], and files
//! against the plan ([`conformance`]). Every acceptance criterion needs [`evidence`]. The verdict
//! keeps all inputs, so that it can be shown and explained. The state machine carries only a
//! [`ReviewSummary`], and a [`Fingerprint`] to detect repeated failures. Callers run the checks.

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
use crate::gate::GateVerdict;
use crate::issue::{Issue, IssueCategory, IssueSeverity};
pub use crate::plan::criterion_id;
use crate::review::conformance::Conformance;
use crate::review::evidence::EvidenceError;

/// Validator's judgement of one acceptance criterion.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CriterionJudgement {
    /// Met, with evidence: a file and line, or a passed test.
    Met {
        /// Explanation of the evidence.
        evidence: String,
        /// File of the evidence, from the repository root.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<String>,
        /// Line of the evidence, from 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        line: Option<u32>,
        /// Test that shows it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        test: Option<String>,
    },
    /// Not met.
    Unmet {
        /// Explanation of the gap.
        #[serde(rename = "why")]
        reason: String,
    },
    /// Not judged by the validator.
    #[default]
    Unjudged,
}

/// Acceptance criterion with its judgement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Criterion {
    /// Criterion in the author's words.
    pub text: String,
    /// Judgement of the validator.
    pub judgement: CriterionJudgement,
    /// Reason why the evidence does not count.
    #[serde(rename = "doubt", default, skip_serializing_if = "Option::is_none")]
    pub evidence_error: Option<EvidenceError>,
}

impl Criterion {
    /// Returns `true` if the criterion is met with valid evidence.
    pub fn is_met(&self) -> bool {
        matches!(self.judgement, CriterionJudgement::Met { .. }) && self.evidence_error.is_none()
    }
}

/// Combines the criteria of a task with the validator's judgements, by
/// [criterion ID](criterion_id). Every claim lacks evidence until it is
/// [checked](evidence::EvidenceIndex::check_criteria).
///
/// The task determines the criteria. A criterion that the validator left out is unjudged, and one
/// that it invented is ignored.
pub fn judge_criteria(
    wanted: &[String],
    said: &BTreeMap<String, CriterionJudgement>,
) -> Vec<Criterion> {
    wanted
        .iter()
        .enumerate()
        .map(|(index, text)| {
            let judgement = said.get(&criterion_id(index)).cloned().unwrap_or_default();
            let is_claim = matches!(judgement, CriterionJudgement::Met { .. });
            let doubt = is_claim.then_some(EvidenceError::NoLocation);
            Criterion { text: text.clone(), judgement, evidence_error: doubt }
        })
        .collect()
}

/// Returns a validator's issues as they count: an error or a critical issue without a concrete
/// failing scenario is a warning.
#[must_use]
pub fn weigh_validator_issues(issues: Vec<Issue>) -> Vec<Issue> {
    let weigh = |issue: Issue| {
        if issue.lacks_scenario() {
            Issue { severity: IssueSeverity::Warning, ..issue }
        } else {
            issue
        }
    };
    issues.into_iter().map(weigh).collect()
}

/// Returns `true` if one of the issues would halt the task.
pub fn has_security_critical(issues: &[Issue]) -> bool {
    issues.iter().any(is_security_critical)
}

/// Returns the issues of a validator after a second one has judged the same commit. A critical
/// security issue that the second does not report is an error, which does not halt the task.
///
/// The second validator confirms an issue with a critical security issue of its own in the same
/// file. If one of the two names no file, that is enough.
#[must_use]
pub fn confirm_critical_issues(first: Vec<Issue>, second: &[Issue]) -> Vec<Issue> {
    let confirms = |issue: &Issue| {
        second.iter().filter(|other| is_security_critical(other)).any(|other| {
            match (&issue.file, &other.file) {
                (Some(file), Some(other)) => file == other,
                (None, _) | (_, None) => true,
            }
        })
    };
    let judge = |issue: Issue| {
        if is_security_critical(&issue) && !confirms(&issue) {
            Issue { severity: IssueSeverity::Error, ..issue }
        } else {
            issue
        }
    };
    first.into_iter().map(judge).collect()
}

fn is_security_critical(issue: &Issue) -> bool {
    issue.severity == IssueSeverity::Critical && issue.category == IssueCategory::Security
}

/// Number of failing tests and other errors of a change. Fewer tests are better; with as many tests,
/// fewer errors are.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct FailureCount {
    /// Failing and missing tests.
    pub tests: u32,
    /// Other failures: findings of other gates, gates that name no failure, blocking issues and
    /// criteria that are not met.
    pub errors: u32,
}

/// Inputs of a verdict.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewInputs {
    /// Judged gates.
    pub gates: Vec<GateVerdict>,
    /// Findings of gates, patterns and reviewers.
    pub issues: Vec<Issue>,
    /// Judged acceptance criteria.
    pub criteria: Vec<Criterion>,
    /// Comparison of the change with the plan.
    pub conformance: Conformance,
    /// Suggestions of the validator for later. They block nothing and cost no points.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<String>,
}

/// Reason for a deduction from the score.
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
    /// 25 points per gate that failed or timed out.
    FailedGates,
    /// 40 points per critical issue.
    CriticalIssues,
    /// 15 points per error.
    Errors,
    /// 3 points per warning.
    Warnings,
    /// 20 points per criterion without valid evidence.
    UnmetCriteria,
    /// 30 points per unplanned critical file.
    UnplannedCriticalFiles,
    /// 30 points per unplanned file that affects how gates run.
    UnplannedGuardedFiles,
    /// 3 points per other file that deviates from the plan.
    PlanDrift,
}

/// Verdict of a review.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewVerdict {
    /// The change passed. The score does not decide this.
    pub passed: bool,
    /// Score, 0 to 100, for comparing attempts.
    pub score: u8,
    /// Deductions that apply, with their points.
    pub deductions: Vec<(Deduction, u8)>,
    /// Inputs, for display and for the failure brief.
    pub inputs: ReviewInputs,
}

/// Part of a verdict that the state machine carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewSummary {
    /// The change passed.
    pub passed: bool,
    /// Score, 0 to 100.
    pub score: u8,
    /// Failed gates, errors, critical issues, and unplanned critical or guarded files.
    pub blocking: u16,
    /// Criteria without valid evidence.
    #[serde(rename = "unmet")]
    pub unmet_criteria: u16,
    /// The review found a critical security issue.
    pub security_critical: bool,
}

impl ReviewSummary {
    /// Returns the failures that a review counts. All tests have passed before a review.
    pub fn failing(&self) -> FailureCount {
        FailureCount { tests: 0, errors: u32::from(self.blocking) + u32::from(self.unmet_criteria) }
    }
}

/// Gate counts, by classification.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateCounts {
    /// Passed gates.
    pub passed: u16,
    /// Gates that failed because of the change. Only these count.
    pub failed: u16,
    /// Gates that fail on the base commit too.
    pub pre_existing: u16,
    /// Gates that passed when run again.
    pub flaky: u16,
    /// A failed gate found a critical security issue.
    pub security_critical: bool,
    /// Fingerprint of the failure; empty if the gates passed.
    #[serde(default)]
    pub fingerprint: Fingerprint,
    /// Number of failing tests and errors; `None` if the gates passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<FailureCount>,
}

/// Evaluates a change.
pub fn evaluate(inputs: ReviewInputs) -> ReviewVerdict {
    let count_of =
        |severity| inputs.issues.iter().filter(|issue| issue.severity == severity).count();
    let deductions: Vec<_> = [
        (Deduction::FailedGates, count_failed_gates(&inputs), 25),
        (Deduction::CriticalIssues, count_of(IssueSeverity::Critical), 40),
        (Deduction::Errors, count_of(IssueSeverity::Error), 15),
        (Deduction::Warnings, count_of(IssueSeverity::Warning), 3),
        (Deduction::UnmetCriteria, count_unmet_criteria(&inputs), 20),
        (Deduction::UnplannedCriticalFiles, inputs.conformance.unplanned_critical.len(), 30),
        (Deduction::UnplannedGuardedFiles, inputs.conformance.unplanned_guarded.len(), 30),
        (Deduction::PlanDrift, inputs.conformance.deviation_count(), 3),
    ]
    .into_iter()
    .filter(|(_, count, _)| *count > 0)
    .map(|(deduction, count, each)| {
        // The score has 100 points to lose, so larger deductions are cut off.
        (deduction, u8::try_from(count.saturating_mul(each)).map_or(100, |points| points.min(100)))
    })
    .collect();
    ReviewVerdict {
        passed: count_blocking(&inputs) == 0 && count_unmet_criteria(&inputs) == 0,
        score: deductions.iter().fold(100, |score: u8, (_, points)| score.saturating_sub(*points)),
        deductions,
        inputs,
    }
}

impl ReviewVerdict {
    /// Returns the part that the state machine carries.
    pub fn summarize(&self) -> ReviewSummary {
        let count = |number| u16::try_from(number).unwrap_or(u16::MAX);
        ReviewSummary {
            passed: self.passed,
            score: self.score,
            blocking: count(count_blocking(&self.inputs)),
            unmet_criteria: count(count_unmet_criteria(&self.inputs)),
            security_critical: has_security_critical(&self.inputs.issues),
        }
    }
}

fn count_failed_gates(inputs: &ReviewInputs) -> usize {
    inputs.gates.iter().filter(|gate| gate.is_blocking()).count()
}

fn count_unmet_criteria(inputs: &ReviewInputs) -> usize {
    inputs.criteria.iter().filter(|criterion| !criterion.is_met()).count()
}

fn count_blocking(inputs: &ReviewInputs) -> usize {
    count_failed_gates(inputs)
        + inputs.issues.iter().filter(|issue| issue.is_blocking()).count()
        + inputs.conformance.unplanned_critical.len()
        + inputs.conformance.unplanned_guarded.len()
}
