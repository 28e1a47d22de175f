//! Gates: deterministic checks of the change, each judged against what was there before.
//!
//! A gate says what fails; it cannot say whose fault that is. A failure that the base commit has
//! too is *pre-existing*, one that is gone when the gate runs again is *flaky*; neither counts
//! against the change, and both are shown. Where it cannot be told, the failure counts.
//!
//! A test that no longer runs cannot fail, so what ran on the base commit must still run, and in its
//! old version still pass, unless the plan says that it will not.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

/// What a gate checks.
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
pub enum Kind {
    /// The tests pass.
    Tests,
    /// The types agree.
    Types,
    /// The linter is content.
    Lint,
    /// No known weakness is in it.
    Security,
    /// No secret is in it.
    Secrets,
    /// It is formatted.
    Format,
    /// It builds.
    Build,
    /// Whatever else the project asks for.
    Command,
}

/// How one run of a gate ended.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Outcome {
    /// It found nothing.
    Passed,
    /// It found something, or could not do its work.
    Failed,
    /// It was stopped before it was done.
    TimedOut,
}

/// One run of a gate on one commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateResult {
    /// What the project calls it.
    pub name: String,
    /// What it checks.
    pub kind: Kind,
    /// How it ended.
    pub outcome: Outcome,
    /// The failing tests or findings by name, where the tool names them.
    #[serde(default)]
    pub failures: BTreeSet<String>,
    /// The tests that passed by name, where the tool names them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub passed: BTreeSet<String>,
    /// The tests that were not run by name, where the tool names them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub skipped: BTreeSet<String>,
}

impl GateResult {
    /// What failed by name, or the gate itself where it failed without naming anything.
    fn faults(&self) -> BTreeSet<String> {
        match self.outcome {
            // Findings that do not make a gate fail, such as a linter's hints, are no faults.
            Outcome::Passed => BTreeSet::new(),
            Outcome::Failed if self.failures.is_empty() => BTreeSet::from([self.name.clone()]),
            Outcome::Failed | Outcome::TimedOut => self.failures.clone(),
        }
    }

    /// This run and another of the same gate on the same commit as one: what failed in either of
    /// them is known to fail.
    #[must_use]
    pub fn joined(&self, other: &Self) -> Self {
        let both = |of: fn(&Self) -> &BTreeSet<String>| of(self) | of(other);
        let failures = &self.faults() | &other.faults();
        let passed = both(|run| &run.passed);
        let skipped = &(&both(|run| &run.skipped) - &passed) - &failures;
        let outcome = self.outcome.max(other.outcome);
        Self { name: self.name.clone(), kind: self.kind, outcome, failures, passed, skipped }
    }

    /// The tests that ran, where these are tests.
    fn ran(&self) -> BTreeSet<String> {
        // A linter's findings have names too, and it is good when they are gone.
        if self.passed.is_empty() && self.kind != Kind::Tests {
            return BTreeSet::new();
        }
        let failed = self.failures.iter().filter(|name| **name != self.name).cloned();
        self.passed.iter().cloned().chain(failed).collect()
    }

    /// The tests that ran on the base commit and do not run here.
    fn lacks(&self, baseline: &Self) -> BTreeSet<String> {
        let names = |run: &Self| run.passed.len() + run.failures.len() + run.skipped.len();
        // One that broke off, or that names nothing, has failed and says nothing about single tests.
        if self.outcome == Outcome::TimedOut
            || (self.outcome == Outcome::Failed && names(self) == 0)
        {
            return BTreeSet::new();
        }
        &(&baseline.ran() - &self.passed) - &self.failures
    }

    /// The same, as if what passes now had not failed. By this the tests as they were are judged: one
    /// that the change makes pass must pass as it was, too, or the test was mended and not the code.
    #[must_use]
    pub fn without(&self, passing: &BTreeSet<String>) -> Self {
        let failures = &self.failures - passing;
        let outcome = match self.outcome {
            Outcome::Failed if failures.is_empty() && !self.failures.is_empty() => Outcome::Passed,
            outcome => outcome,
        };
        Self { outcome, failures, ..self.clone() }
    }

    /// Whether a fault of an earlier run is still there in this one.
    ///
    /// Only a run that came to its end and names what failed can show that one thing no longer
    /// does; and a failure without a name is gone only when the whole gate passes.
    fn repeats(&self, earlier: &Self, fault: &str) -> bool {
        match self.outcome {
            Outcome::Passed => false,
            Outcome::TimedOut => true,
            Outcome::Failed => {
                self.failures.is_empty()
                    || earlier.failures.is_empty()
                    || self.failures.contains(fault)
            }
        }
    }
}

/// What a gate's result means for the change.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Standing {
    /// Nothing failed.
    Passed,
    /// All that failed, fails on the base commit too.
    PreExisting,
    /// Nothing new failed twice; what failed once deserves a look.
    Flaky,
    /// The change broke something.
    Failed,
    /// It did not end in time, and it did on the base commit.
    TimedOut,
}

/// A gate's result, judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    /// What the project calls the gate.
    pub name: String,
    /// What it checks.
    pub kind: Kind,
    /// What its result means for the change.
    pub standing: Standing,
    /// What the change broke. A gate that timed out keeps what it had found until then.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub new: BTreeSet<String>,
    /// What the base commit has too.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub pre_existing: BTreeSet<String>,
    /// What was gone when the gate ran again.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub flaky: BTreeSet<String>,
    /// Tests that ran on the base commit, and that the change has removed or skips without a plan.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub missing: BTreeSet<String>,
}

impl Judged {
    /// Whether it counts against the change.
    pub fn counts(&self) -> bool {
        matches!(self.standing, Standing::Failed | Standing::TimedOut)
    }
}

/// Judges a gate's result by the same gate's result on the base commit and by a second run.
pub fn classify(
    result: &GateResult,
    baseline: Option<&GateResult>,
    rerun: Option<&GateResult>,
) -> Judged {
    let known = baseline.map(GateResult::faults).unwrap_or_default();
    let (pre_existing, fresh): (BTreeSet<_>, BTreeSet<_>) =
        result.faults().into_iter().partition(|fault| known.contains(fault));
    let (new, flaky): (BTreeSet<_>, BTreeSet<_>) =
        fresh.into_iter().partition(|fault| rerun.is_none_or(|rerun| rerun.repeats(result, fault)));

    let ended = |run: Option<&GateResult>, outcome| run.is_some_and(|run| run.outcome == outcome);
    let standing = match result.outcome {
        Outcome::Passed => Standing::Passed,
        Outcome::TimedOut if !ended(baseline, Outcome::TimedOut) => {
            if ended(rerun, Outcome::Passed) { Standing::Flaky } else { Standing::TimedOut }
        }
        // Also when both commits run out of time: what was found until then is judged by name.
        _ if !new.is_empty() => Standing::Failed,
        _ if !flaky.is_empty() => Standing::Flaky,
        _ => Standing::PreExisting,
    };
    let (name, kind, missing) = (result.name.clone(), result.kind, BTreeSet::new());
    Judged { name, kind, standing, new, pre_existing, flaky, missing }
}

/// Judges a gate's result as [`classify`] does, and by the tests that are missing: those that ran on
/// the base commit, do not run now, and that `planned` does not name.
pub fn judge(
    result: &GateResult,
    baseline: Option<&GateResult>,
    rerun: Option<&GateResult>,
    planned: &[String],
) -> Judged {
    let mut judged = classify(result, baseline, rerun);
    let Some(baseline) = baseline else { return judged };
    let gone = result.lacks(baseline).into_iter().filter(|test| !names(planned, test));
    let still = rerun.filter(|rerun| rerun.outcome != Outcome::TimedOut);
    let still = still.map(|rerun| rerun.lacks(baseline));
    // A run that stopped at its first failure has not run the rest; the second one may have.
    let (missing, back): (BTreeSet<_>, BTreeSet<_>) =
        gone.partition(|test| still.as_ref().is_none_or(|still| still.contains(test)));
    if !missing.is_empty() && judged.standing != Standing::TimedOut {
        judged.standing = Standing::Failed;
    } else if !back.is_empty() && !judged.counts() {
        judged.standing = Standing::Flaky;
    }
    judged.missing = missing;
    judged.flaky.extend(back);
    judged
}

/// Judges a run of the change with the tests as they were on the base commit. What `planned` names may
/// fail there.
pub fn judge_old_tests(
    result: &GateResult,
    baseline: Option<&GateResult>,
    rerun: Option<&GateResult>,
    planned: &[String],
) -> Judged {
    let mut judged = classify(result, baseline, rerun);
    judged.new.retain(|test| !names(planned, test));
    if judged.standing == Standing::Failed && judged.new.is_empty() {
        judged.standing = match (judged.flaky.is_empty(), judged.pre_existing.is_empty()) {
            (false, _) => Standing::Flaky,
            (true, false) => Standing::PreExisting,
            (true, true) => Standing::Passed,
        };
    }
    judged
}

/// Whether a plan's list of tests names one: by the name that reports give it, by the last part of
/// that, or by the file that it is in, whose name is a part of the test's.
pub fn names(planned: &[String], test: &str) -> bool {
    let parts = || test.split(['/', '.', ':', ' ', '>']).filter(|part| !part.is_empty());
    planned.iter().filter(|entry| !entry.is_empty()).any(|entry| {
        let is_last = test.strip_suffix(entry.as_str());
        let is_last =
            is_last.is_some_and(|rest| rest.is_empty() || rest.ends_with([':', '>', ' ']));
        let file = entry.rsplit('/').next().unwrap_or(entry);
        let stem =
            file.split_once('.').filter(|(stem, ending)| !stem.is_empty() && is_ending(ending));
        is_last
            || test.contains(entry.as_str()) && entry.contains('/')
            || stem.is_some_and(|(stem, _)| parts().any(|part| part == stem))
    })
}

/// Whether this can be the ending of a file's name, such as `py` or `test.ts`.
fn is_ending(text: &str) -> bool {
    text.split('.').all(|part| {
        (1..=5).contains(&part.len()) && part.chars().all(|letter| letter.is_ascii_alphanumeric())
    })
}
