//! Issues: what a check or a reviewer finds in a change.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

/// How bad an issue is. Errors and worse fail the review.
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
pub enum Severity {
    /// Good to know.
    Info,
    /// Worth mending.
    Warning,
    /// Must be mended.
    Error,
    /// Must be mended before anything else happens.
    Critical,
}

/// What an issue is about.
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
pub enum Category {
    /// What the code does.
    Code,
    /// How it is tested.
    Test,
    /// How it reads.
    Style,
    /// What it lets others do.
    Security,
    /// How fast it is.
    Performance,
}

/// One thing that a check or a reviewer found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Issue {
    /// How bad it is.
    pub severity: Severity,
    /// What it is about.
    pub category: Category,
    /// What is wrong, for people and for the next run.
    pub message: String,
    /// The file it is in, if it is in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

impl Issue {
    pub(crate) fn blocks(&self) -> bool {
        self.severity >= Severity::Error
    }
}
