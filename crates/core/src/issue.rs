//! Issues that checks and reviewers find in a change.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

/// Severity of an issue. Errors and critical issues fail the review
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
pub enum IssueSeverity {
    /// Informational
    Info,
    /// Should be fixed
    Warning,
    /// Must be fixed
    Error,
    /// Exploitable, or loses data: must be fixed before anything else happens
    Critical,
}

/// Category of an issue
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
pub enum IssueCategory {
    /// Behaviour of the code
    Code,
    /// Tests
    Test,
    /// Readability and style
    Style,
    /// Security
    Security,
    /// Performance
    Performance,
}

/// Problem that a check or a reviewer found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Issue {
    /// Severity of the problem.
    pub severity: IssueSeverity,
    /// Category of the problem.
    pub category: IssueCategory,
    /// Description for people and for the next run.
    pub message: String,
    /// File of the problem; `None` if it is in no single file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line number, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Concrete case that fails: input, expected and actual result. A validator's errors and
    /// critical issues need one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scenario: Option<String>,
}

impl Issue {
    /// Returns `true` if the issue fails a review.
    pub fn is_blocking(&self) -> bool {
        self.severity >= IssueSeverity::Error
    }

    /// Returns `true` if a validator must still name a scenario for this severity.
    pub fn lacks_scenario(&self) -> bool {
        self.is_blocking() && self.scenario.as_ref().is_none_or(|text| text.trim().is_empty())
    }
}
