//! Plans: proposed changes, file by file.
//!
//! A plan is identified by the hash of its content. People approve that hash, and only the plan
//! with that hash runs. The state machine carries only a [`PlanSummary`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString};

use crate::complexity::{self, Complexity, Signals};
use crate::cost::Usd;
use crate::ids::{PlanHash, Reference};
use crate::rules::{Rules, count_critical_files};

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
    pub signals: Signals,
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

    /// Computes the complexity. The number of files is counted instead of taken from the planner.
    pub fn complexity(&self) -> Complexity {
        let files = u16::try_from(self.file_changes.len()).unwrap_or(u16::MAX);
        complexity::assess(&Signals { files, ..self.signals })
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
