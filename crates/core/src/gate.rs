//! Gates: deterministic checks of a change, judged against the base commit.
//!
//! A gate reports what fails, but not why. A failure that the base commit has too is
//! *pre-existing*, and one that disappears when the gate runs again is *flaky*. Neither counts
//! against the change, and both are shown. A failure that cannot be classified counts.
//!
//! A removed test cannot fail. So every test that ran on the base commit must still run, and its
//! base version must still pass, unless the plan says otherwise.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

/// Type of a gate
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
    JsonSchema,
    Display,
    EnumString,
    EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum GateKind {
    /// Tests
    Tests,
    /// Type checker
    Types,
    /// Linter
    Lint,
    /// Security scanner
    Security,
    /// Secret scanner
    Secrets,
    /// Formatter
    Format,
    /// Build
    Build,
    /// Any other command
    Command,
}

/// Result of one execution of a gate.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum GateOutcome {
    /// No findings.
    Passed,
    /// Findings, or an error of the gate itself.
    Failed,
    /// Stopped at its time limit.
    TimedOut,
}

/// One execution of a gate on one commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateResult {
    /// Configured name.
    pub name: String,
    /// Subject of the gate.
    pub kind: GateKind,
    /// Result of the execution.
    pub outcome: GateOutcome,
    /// Names of failing tests or findings, if the tool reports them.
    #[serde(default)]
    pub failures: BTreeSet<String>,
    /// Names of passed tests, if the tool reports them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub passed: BTreeSet<String>,
    /// Names of skipped tests, if the tool reports them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub skipped: BTreeSet<String>,
}

impl GateResult {
    /// Returns the names of all failures, or the gate's own name if it failed without naming any.
    fn failure_names(&self) -> BTreeSet<String> {
        match self.outcome {
            // Findings of a passed gate, such as a linter's hints, are not failures.
            GateOutcome::Passed => BTreeSet::new(),
            GateOutcome::Failed if self.failures.is_empty() => BTreeSet::from([self.name.clone()]),
            GateOutcome::Failed | GateOutcome::TimedOut => self.failures.clone(),
        }
    }

    /// Merges two executions on the same commit. A test that failed in either one counts as failed.
    #[must_use]
    pub fn merged_with(&self, other: &Self) -> Self {
        let both = |field: fn(&Self) -> &BTreeSet<String>| field(self) | field(other);
        let failures = &self.failure_names() | &other.failure_names();
        let passed = both(|run| &run.passed);
        let skipped = &(&both(|run| &run.skipped) - &passed) - &failures;
        let outcome = self.outcome.max(other.outcome);
        Self { name: self.name.clone(), kind: self.kind, outcome, failures, passed, skipped }
    }

    /// Returns the tests that were executed; empty for gates without tests.
    fn executed_tests(&self) -> BTreeSet<String> {
        // Findings of a linter have names too, but a missing finding is good.
        if self.passed.is_empty() && self.kind != GateKind::Tests {
            return BTreeSet::new();
        }
        let failed = self.failures.iter().filter(|name| **name != self.name).cloned();
        self.passed.iter().cloned().chain(failed).collect()
    }

    /// Returns the tests that ran on the base commit and do not run here.
    fn missing_tests(&self, baseline: &Self) -> BTreeSet<String> {
        let names = |run: &Self| run.passed.len() + run.failures.len() + run.skipped.len();
        // A gate that was stopped or names nothing has failed; it says nothing about single tests.
        if self.outcome == GateOutcome::TimedOut
            || (self.outcome == GateOutcome::Failed && names(self) == 0)
        {
            return BTreeSet::new();
        }
        &(&baseline.executed_tests() - &self.passed) - &self.failures
    }

    /// Removes failures that pass now. Base versions of tests are judged by the result: a test that
    /// the change fixes must pass in its base version too. Otherwise the test was fixed instead of
    /// the code.
    #[must_use]
    pub fn without_failures(&self, passing: &BTreeSet<String>) -> Self {
        let failures = &self.failures - passing;
        let outcome = match self.outcome {
            GateOutcome::Failed if failures.is_empty() && !self.failures.is_empty() => {
                GateOutcome::Passed
            }
            outcome => outcome,
        };
        Self { outcome, failures, ..self.clone() }
    }

    /// Returns `true` if a failure of an earlier execution is still present in this one.
    ///
    /// Only a complete execution that names its failures can show that one of them is gone. A
    /// failure without a name is gone only if the whole gate passes.
    fn still_fails(&self, earlier: &Self, name: &str) -> bool {
        match self.outcome {
            GateOutcome::Passed => false,
            GateOutcome::TimedOut => true,
            GateOutcome::Failed => {
                self.failures.is_empty()
                    || earlier.failures.is_empty()
                    || self.failures.contains(name)
            }
        }
    }
}

/// Meaning of a gate's result for the change.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum GateStatus {
    /// No failures.
    Passed,
    /// Every failure exists on the base commit too.
    PreExisting,
    /// No new failure occurred twice.
    Flaky,
    /// The change broke something.
    Failed,
    /// Timed out, although the base commit did not.
    TimedOut,
    /// Did not run, because the change touches none of its paths. It says nothing.
    NotApplicable,
}

/// Judged result of a gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateVerdict {
    /// Configured name.
    pub name: String,
    /// Subject of the gate.
    pub kind: GateKind,
    /// Meaning of the result for the change.
    #[serde(rename = "standing")]
    pub status: GateStatus,
    /// New failures. A gate that timed out keeps the failures found until then.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub new: BTreeSet<String>,
    /// Failures that the base commit has too.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub pre_existing: BTreeSet<String>,
    /// Failures that disappeared when the gate ran again.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub flaky: BTreeSet<String>,
    /// Tests of the base commit that the change removes or skips without a plan.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub missing: BTreeSet<String>,
}

impl GateVerdict {
    /// Returns the verdict of a gate that did not run.
    pub fn not_applicable(name: &str, kind: GateKind) -> Self {
        let (new, pre_existing) = (BTreeSet::new(), BTreeSet::new());
        let (flaky, missing, status) =
            (BTreeSet::new(), BTreeSet::new(), GateStatus::NotApplicable);
        Self { name: name.to_owned(), kind, status, new, pre_existing, flaky, missing }
    }

    /// Returns `true` if the result counts against the change.
    pub fn is_blocking(&self) -> bool {
        matches!(self.status, GateStatus::Failed | GateStatus::TimedOut)
    }
}

/// Judges a gate's result against its baseline and a second execution.
pub fn classify(
    result: &GateResult,
    baseline: Option<&GateResult>,
    rerun: Option<&GateResult>,
) -> GateVerdict {
    let baseline_failures = baseline.map(GateResult::failure_names).unwrap_or_default();
    let (pre_existing, not_in_baseline): (BTreeSet<_>, BTreeSet<_>) =
        result.failure_names().into_iter().partition(|name| baseline_failures.contains(name));
    let (new, flaky): (BTreeSet<_>, BTreeSet<_>) = not_in_baseline
        .into_iter()
        .partition(|name| rerun.is_none_or(|rerun| rerun.still_fails(result, name)));

    let ended_with =
        |run: Option<&GateResult>, outcome| run.is_some_and(|run| run.outcome == outcome);
    let status = match result.outcome {
        GateOutcome::Passed => GateStatus::Passed,
        GateOutcome::TimedOut if !ended_with(baseline, GateOutcome::TimedOut) => {
            if ended_with(rerun, GateOutcome::Passed) {
                GateStatus::Flaky
            } else {
                GateStatus::TimedOut
            }
        }
        // Also if both commits time out: failures found until then are judged by name.
        _ if !new.is_empty() => GateStatus::Failed,
        _ if !flaky.is_empty() => GateStatus::Flaky,
        _ => GateStatus::PreExisting,
    };
    let (name, kind, missing) = (result.name.clone(), result.kind, BTreeSet::new());
    GateVerdict { name, kind, status, new, pre_existing, flaky, missing }
}

/// Judges a result like [`classify`], and also finds missing tests: tests that ran on the base
/// commit, do not run now and are not in `planned`.
pub fn judge(
    result: &GateResult,
    baseline: Option<&GateResult>,
    rerun: Option<&GateResult>,
    planned: &[String],
) -> GateVerdict {
    let mut verdict = classify(result, baseline, rerun);
    let Some(baseline) = baseline else { return verdict };
    let absent =
        result.missing_tests(baseline).into_iter().filter(|test| !is_planned_test(planned, test));
    let absent_in_rerun = rerun.filter(|rerun| rerun.outcome != GateOutcome::TimedOut);
    let absent_in_rerun = absent_in_rerun.map(|rerun| rerun.missing_tests(baseline));
    // An execution that stopped at its first failure skipped the rest; the second one may have run
    // it.
    let (missing, reappeared): (BTreeSet<_>, BTreeSet<_>) = absent.partition(|test| {
        absent_in_rerun.as_ref().is_none_or(|absent_in_rerun| absent_in_rerun.contains(test))
    });
    if !missing.is_empty() && verdict.status != GateStatus::TimedOut {
        verdict.status = GateStatus::Failed;
    } else if !reappeared.is_empty() && !verdict.is_blocking() {
        verdict.status = GateStatus::Flaky;
    }
    verdict.missing = missing;
    verdict.flaky.extend(reappeared);
    verdict
}

/// Judges the change with the base versions of the tests. Tests in `planned` may fail.
pub fn judge_with_base_tests(
    result: &GateResult,
    baseline: Option<&GateResult>,
    rerun: Option<&GateResult>,
    planned: &[String],
) -> GateVerdict {
    let mut verdict = classify(result, baseline, rerun);
    verdict.new.retain(|test| !is_planned_test(planned, test));
    if verdict.status == GateStatus::Failed && verdict.new.is_empty() {
        verdict.status = match (verdict.flaky.is_empty(), verdict.pre_existing.is_empty()) {
            (false, _) => GateStatus::Flaky,
            (true, false) => GateStatus::PreExisting,
            (true, true) => GateStatus::Passed,
        };
    }
    verdict
}

/// Returns `true` if the plan's list names a test: by its reported name, by the last part of that
/// name, or by the file that contains it.
pub fn is_planned_test(planned: &[String], test: &str) -> bool {
    let segments = || test.split(['/', '.', ':', ' ', '>']).filter(|segment| !segment.is_empty());
    planned.iter().filter(|entry| !entry.is_empty()).any(|entry| {
        let is_last = test.strip_suffix(entry.as_str());
        let is_last =
            is_last.is_some_and(|rest| rest.is_empty() || rest.ends_with([':', '>', ' ']));
        let file = entry.rsplit('/').next().unwrap_or(entry);
        let stem = file
            .split_once('.')
            .filter(|(stem, ending)| !stem.is_empty() && is_file_extension(ending));
        is_last
            || test.contains(entry.as_str()) && entry.contains('/')
            || stem.is_some_and(|(stem, _)| segments().any(|segment| segment == stem))
    })
}

/// Returns `true` for text that can be a file extension, such as `py` or `test.ts`.
fn is_file_extension(text: &str) -> bool {
    text.split('.').all(|part| {
        (1..=5).contains(&part.len()) && part.chars().all(|letter| letter.is_ascii_alphanumeric())
    })
}
