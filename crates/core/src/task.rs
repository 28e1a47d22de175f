//! A task: one piece of work for one repository, as its author described it.
//!
//! The machine itself never reads these words; it only carries the task's id. They are for the
//! planner, the prompts, the knowledge check and people.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

use crate::ids::{ProjectId, TaskId};

/// What kind of work it is.
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
pub enum TaskType {
    /// Something new.
    Feature,
    /// Something broken.
    Bugfix,
    /// The same behaviour in a better shape.
    Refactor,
    /// Only tests.
    Test,
    /// Only words.
    Docs,
    /// Upkeep.
    Chore,
}

/// How urgent it is. Later variants go first.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
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
pub enum Priority {
    /// When there is nothing else.
    Low,
    /// In its turn.
    #[default]
    Medium,
    /// Before the others.
    High,
    /// Now.
    Critical,
}

/// One piece of work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Its identity, which is also the id of its workflow.
    pub id: TaskId,
    /// The repository it is for.
    pub project: ProjectId,
    /// One line.
    pub title: String,
    /// As much as the author had to say.
    #[serde(default)]
    pub description: String,
    /// What kind of work it is.
    pub r#type: TaskType,
    /// How urgent it is.
    #[serde(default)]
    pub priority: Priority,
    /// What must be true at the end, each judged on its own.
    #[serde(default)]
    pub acceptance_criteria: Vec<String>,
    /// Words to find it by.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Tasks that must be completed first.
    #[serde(default)]
    pub depends_on: Vec<TaskId>,
    /// The agent its author would choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggested_agent: Option<String>,
    /// The issue it comes from, in whatever tracker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issue_url: Option<String>,
    /// Whatever else its author's tools want to keep with it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}
