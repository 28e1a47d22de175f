//! Gates: deterministic checks of the change, each judged against what was there before.
//!
//! A gate says what fails; it cannot say whose fault that is. A failure that the base commit has
//! too is *pre-existing*, one that is gone when the gate runs again is *flaky*; neither counts
//! against the change, and both are shown. Where it cannot be told, the failure counts.

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
