//! Plans: proposed changes, file by file.
//!
//! A plan is identified by the hash of its content. People approve that hash, and only the plan
//! with that hash runs. The state machine carries only a [`PlanSummary`].

mod adjustment;
mod signal_estimate;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString};

use crate::complexity::{self, Complexity, ComplexityFactor, PlanSignals, Signals};
use crate::cost::Usd;
use crate::ids::{PlanHash, Reference};
use crate::rules::{Rules, count_critical_files};
use crate::task::Task;

pub use adjustment::{AdjustmentError, EDITABLE_FIELDS, PlanAdjustment};
pub use signal_estimate::{EstimateFacts, estimate_signals};

/// Plan as the planner submits it
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Result of the change, in one or two sentences
    pub summary: String,
    /// Approach, with its reasons
    pub approach: String,
    /// Every file that will be created, changed or deleted
    pub file_changes: Vec<FileChange>,
    /// Tests that will show that the change works
    pub testing_strategy: String,
    /// Signals for the complexity score
    #[serde(default)]
    pub signals: PlanSignals,
    /// Expected tokens of the implementation
    #[serde(default)]
    pub estimated_tokens: Option<u64>,
    /// Expected cost of the implementation, in dollars
    #[serde(default)]
    pub estimated_cost_usd: Option<Usd>,
    /// Possible problems
    #[serde(default)]
    pub risks: Vec<String>,
    /// Dependencies that do not exist yet
    #[serde(default)]
    pub dependencies: Vec<String>,
    /// Existing tests that will be removed, skipped or expect a different result: names as the test
    /// reports give them, or test files. All other tests must keep passing unchanged
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub test_changes: Vec<String>,
    /// Acceptance criteria for a task that has none, each checkable on its own. They are numbered
    /// C1, C2 and so on, and apply once the plan is approved
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub criteria: Vec<String>,
    /// Assumptions that the plan rests on
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assumptions: Vec<String>,
    /// Open questions to the person who approves the plan. The plan must hold without an answer
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<String>,
    /// Test that verifies each criterion
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verification: Vec<PlannedTest>,
    /// Signals that Tamma estimated, because the planner left them out
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    pub estimated_signals: Vec<ComplexityFactor>,
}

/// Test that verifies a criterion
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlannedTest {
    /// ID of the criterion, such as `C1`
    pub criterion: String,
    /// Name of a test, or a command with its expected result
    pub test: String,
}

/// One file of a plan
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileChange {
    /// Path from the repository root, with forward slashes
    pub path: String,
    /// Action on the file
    pub action: FileAction,
    /// Change in the file
    pub description: String,
    /// Approximate number of changed lines
    #[serde(default)]
    pub estimated_lines: u32,
}

/// Action on a file
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
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum FileAction {
    /// Create a new file
    Create,
    /// Change an existing file
    Modify,
    /// Delete the file
    Delete,
}

/// Validation error of a plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Required field that is empty.
    #[error("`{0}` is empty")]
    EmptyField(&'static str),
    /// Plan without file changes.
    #[error("`file_changes` is empty: list the files that will change")]
    NoFiles,
    /// Path that is not inside the repository.
    #[error(
        "`{0}` is not a path in the repository: write it from the root, with `/` and without `..`"
    )]
    InvalidPath(String),
    /// Path that is listed more than once.
    #[error("`{0}` is listed twice: describe each file once")]
    DuplicatePath(String),
    /// Field that a planner must submit, even if it is empty.
    #[error("`{0}` is missing: {hint}", hint = required_field_hint(.0))]
    MissingField(&'static str),
    /// Signals without a grade. They are requested once more, and then estimated.
    #[error("`signals` lacks {names}: grade each of them; the signals choose the model", names = quote_factors(.0))]
    MissingSignals(Vec<ComplexityFactor>),
    /// Task without criteria, and a plan that proposes none.
    #[error("`criteria` is empty: the task has none, so propose criteria that can be checked")]
    NoCriteria,
    /// Plan that proposes criteria for a task that has its own.
    #[error("`criteria` must be empty: the task has criteria of its own")]
    ForeignCriteria,
    /// Criterion that no planned test verifies.
    #[error("`verification` has no test for {0}: name the test that fails without the change")]
    Unverified(String),
    /// Planned test for a criterion that does not exist.
    #[error("`verification` names `{0}`, which is not a criterion of this task")]
    UnknownCriterion(String),
    /// File to change or delete that the repository does not have.
    #[error(
        "`{path}` does not exist at the base commit, so it cannot be `{action}`: correct the path, \
         use `create`, or leave it out"
    )]
    MissingFile {
        /// Path in the plan.
        path: String,
        /// Planned action.
        action: FileAction,
    },
    /// File to create that the repository has already.
    #[error("`{0}` exists at the base commit, so it cannot be `create`: use `modify`")]
    ExistingFile(String),
}

/// Fields that a planner must submit, besides those that every plan needs.
pub const PLANNER_FIELDS: [&str; 5] =
    ["signals", "test_changes", "assumptions", "questions", "verification"];

/// Fields of `signals` that a planner must grade.
pub const SIGNAL_FIELDS: [&str; 5] = ["modules", "novelty", "tests", "security", "ambiguity"];

fn quote_factors(factors: &[ComplexityFactor]) -> String {
    let names: Vec<_> = factors.iter().map(|factor| format!("`{factor}`")).collect();
    names.join(", ")
}

fn required_field_hint(field: &str) -> &'static str {
    match field {
        "test_changes" => "list existing tests that must change, or write `[]`",
        "assumptions" => "write down what you take for granted, or write `[]`",
        "questions" => "write down what a person should answer, or write `[]`",
        _ => "name a test for each criterion",
    }
}

/// Facts that the plan of a planner is checked against.
#[derive(Clone, Copy)]
pub struct PlanFacts<'a> {
    /// Names of the fields that were submitted.
    pub fields: &'a [&'a str],
    /// Number of the task's own acceptance criteria.
    pub task_criteria: usize,
    /// The planner was asked for missing signals before, so they are estimated now.
    pub signals_requested: bool,
    /// Function that tells whether a file exists at the base commit.
    pub path_exists: &'a dyn Fn(&str) -> bool,
}

impl Plan {
    /// Returns the hash of the content.
    ///
    /// Fields are serialised in declaration order, so the same content has the same hash on every
    /// machine. A field that is added later must be skipped while it is empty; otherwise the hash
    /// of every existing plan changes.
    pub fn hash(&self) -> PlanHash {
        // Serialising a plan to memory cannot fail. If it ever did, the hash of empty input would
        // match no approval, which is the safe side.
        PlanHash::of(&serde_json::to_vec(self).unwrap_or_default())
    }

    /// Returns all validation errors, so that the planner can fix them at once.
    pub fn validate(&self) -> Vec<PlanError> {
        let mut errors = Vec::new();
        for (name, text) in [
            ("summary", &self.summary),
            ("approach", &self.approach),
            ("testing_strategy", &self.testing_strategy),
        ] {
            if text.trim().is_empty() {
                errors.push(PlanError::EmptyField(name));
            }
        }
        if self.file_changes.is_empty() {
            errors.push(PlanError::NoFiles);
        }
        for (index, change) in self.file_changes.iter().enumerate() {
            if !is_repository_path(&change.path) {
                errors.push(PlanError::InvalidPath(change.path.clone()));
            } else if self.file_changes[..index].iter().any(|other| other.path == change.path) {
                errors.push(PlanError::DuplicatePath(change.path.clone()));
            }
        }
        errors
    }

    /// Returns all errors of a plan that a planner submits. Plans that people bring with a task
    /// need only pass [`Plan::validate`], because a planner completes them.
    pub fn validate_submission(&self, facts: PlanFacts<'_>) -> Vec<PlanError> {
        let mut errors = self.validate();
        // A missing signal is an error of its own.
        let is_missing =
            |field: &&'static str| *field != "signals" && !facts.fields.contains(field);
        errors.extend(PLANNER_FIELDS.into_iter().filter(is_missing).map(PlanError::MissingField));
        let ungraded = self.signals.missing();
        if !ungraded.is_empty() && !facts.signals_requested {
            errors.push(PlanError::MissingSignals(ungraded));
        }
        let is_blank = |text: &String| text.trim().is_empty();
        if facts.task_criteria > 0 && !self.criteria.is_empty() {
            errors.push(PlanError::ForeignCriteria);
        } else if facts.task_criteria == 0
            && (self.criteria.is_empty() || self.criteria.iter().any(is_blank))
        {
            errors.push(PlanError::NoCriteria);
        }
        if facts.fields.contains(&"verification") {
            errors.extend(self.verification_errors(facts.task_criteria.max(self.criteria.len())));
        }
        for change in self.file_changes.iter().filter(|it| is_repository_path(&it.path)) {
            let (path, action) = (change.path.clone(), change.action);
            match (action, (facts.path_exists)(&path)) {
                (FileAction::Create, true) => errors.push(PlanError::ExistingFile(path)),
                (FileAction::Modify | FileAction::Delete, false) => {
                    errors.push(PlanError::MissingFile { path, action });
                }
                _ => {}
            }
        }
        errors
    }

    /// Compares the planned tests with the criteria, which are `C1` to the given number.
    fn verification_errors(&self, criteria: usize) -> Vec<PlanError> {
        let ids: Vec<String> = (0..criteria).map(criterion_id).collect();
        let verifies = |id: &String| {
            let of = |it: &PlannedTest| it.criterion == *id && !it.test.trim().is_empty();
            self.verification.iter().any(of)
        };
        let unknown = self.verification.iter().map(|it| &it.criterion);
        let unknown = unknown.filter(|id| !ids.contains(id)).cloned();
        let unknown = unknown.map(PlanError::UnknownCriterion);
        let unverified = ids.iter().filter(|id| !verifies(id)).cloned();
        unverified.map(PlanError::Unverified).chain(unknown).collect()
    }

    /// Returns the criteria that apply to a task with this plan: its own, or the proposed ones.
    pub fn criteria_of<'a>(&'a self, task: &'a Task) -> &'a [String] {
        match task.acceptance_criteria.as_slice() {
            [] => &self.criteria,
            own => own,
        }
    }

    /// Computes the complexity. The number of files is counted instead of taken from the planner,
    /// and missing signals of old plans are estimated from the plan alone.
    pub fn complexity(&self) -> Complexity {
        let estimated = estimate_signals(self, &EstimateFacts::default());
        complexity::assess(&self.signals.or(&estimated))
    }

    /// Estimates the signals that the planner has not graded, and names them in the plan.
    pub fn complete_signals(&mut self, facts: &EstimateFacts<'_>) {
        self.estimated_signals = self.signals.missing();
        if !self.estimated_signals.is_empty() {
            let files = self.signals.files;
            let complete = self.signals.or(&estimate_signals(self, facts));
            self.signals = PlanSignals::from(Signals { files, ..complete });
        }
    }

    /// Returns the summary that the state machine carries.
    pub fn summarize(&self, version: u32, stored_at: Reference, rules: &Rules) -> PlanSummary {
        let paths = self.file_changes.iter().map(|change| change.path.as_str());
        PlanSummary {
            hash: self.hash(),
            version,
            stored_at,
            file_count: u16::try_from(self.file_changes.len()).unwrap_or(u16::MAX),
            critical_file_count: count_critical_files(paths, rules),
            complexity_score: self.complexity().score,
            estimated_cost: self.estimated_cost_usd,
        }
    }
}

/// Returns the ID of a criterion by its position among the criteria: `C1`, `C2` and so on.
pub fn criterion_id(index: usize) -> String {
    format!("C{}", index.saturating_add(1))
}

fn is_repository_path(path: &str) -> bool {
    !path.trim().is_empty()
        && !path.contains('\\')
        && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// Facts of a plan that the state machine carries: enough to assess the risk and find the content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanSummary {
    /// Hash of the content.
    pub hash: PlanHash,
    /// Version, from 1.
    pub version: u32,
    /// Reference to the stored plan.
    #[serde(rename = "kept_at")]
    pub stored_at: Reference,
    /// Number of files in the plan.
    #[serde(rename = "files")]
    pub file_count: u16,
    /// Number of those files that are configured as critical.
    #[serde(rename = "critical_files")]
    pub critical_file_count: u16,
    /// Complexity score, 0 to 14.
    #[serde(rename = "complexity")]
    pub complexity_score: u8,
    /// Planner's cost estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_cost: Option<Usd>,
}
