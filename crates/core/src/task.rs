//! Task: one unit of work on one repository, as its author described it.
//!
//! The state machine carries only the task's ID. The text is for the planner, the prompts, the
//! knowledge check and people.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

use crate::ids::{ProjectId, TaskId};

/// Maximum length of a title, in characters.
pub const MAX_TITLE_CHARS: usize = 200;

/// Returns `true` if a text can be the title of a task: one line that is not too long.
pub fn is_title(text: &str) -> bool {
    let length = text.trim().chars().count();
    (1..=MAX_TITLE_CHARS).contains(&length) && !text.contains(char::is_control)
}

/// Maximum number of labels of a task.
pub const MAX_LABELS: usize = 20;

/// Maximum length of a label, in characters.
pub const MAX_LABEL_CHARS: usize = 50;

/// Returns `true` if a text can be a label: short, on one line and without a comma, which separates
/// labels in forms.
pub fn is_label(text: &str) -> bool {
    let length = text.chars().count();
    (1..=MAX_LABEL_CHARS).contains(&length)
        && text.trim() == text
        && !text.contains(|character: char| character.is_control() || character == ',')
}

/// Edit of a task's title, priority or labels. `None` leaves a field as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskEdit {
    /// New title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// New priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// New labels, which replace all earlier ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<String>>,
}

impl TaskEdit {
    /// Checks that the edit changes something, and that its values are valid.
    pub fn validate(&self) -> Result<(), TaskEditError> {
        if *self == Self::default() {
            return Err(TaskEditError::Empty);
        }
        if self.title.as_deref().is_some_and(|title| !is_title(title)) {
            return Err(TaskEditError::Title);
        }
        let labels = self.labels.as_deref().unwrap_or_default();
        if labels.len() > MAX_LABELS {
            return Err(TaskEditError::TooManyLabels);
        }
        match labels.iter().find(|label| !is_label(label)) {
            Some(label) => Err(TaskEditError::Label(label.chars().take(MAX_LABEL_CHARS).collect())),
            None => Ok(()),
        }
    }
}

/// Reason why an edit is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TaskEditError {
    /// Nothing to change.
    #[error("the edit changes nothing; give a title, a priority or labels")]
    Empty,
    /// Title that is empty, too long or not one line.
    #[error("a title is one line of 1 to {max} characters", max = MAX_TITLE_CHARS)]
    Title,
    /// More labels than a task can have.
    #[error("a task has at most {max} labels", max = MAX_LABELS)]
    TooManyLabels,
    /// Label that is empty, too long, or has a comma or a control character.
    #[error("`{0}` is not a label; use 1 to {max} characters without a comma", max = MAX_LABEL_CHARS)]
    Label(String),
}

/// Type of a task
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
    /// New functionality
    Feature,
    /// Bug fix
    Bugfix,
    /// Same behaviour, better structure
    Refactor,
    /// Tests only
    Test,
    /// Documentation only
    Docs,
    /// Maintenance
    Chore,
}

/// Priority of a task; higher ones start first
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
    /// Only if nothing else is waiting
    Low,
    /// Normal order
    #[default]
    Medium,
    /// Before normal tasks
    High,
    /// Before all others
    Critical,
}

/// Unit of work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Task ID, which is also the ID of its workflow.
    pub id: TaskId,
    /// Project of the task.
    pub project: ProjectId,
    /// Title, one line.
    pub title: String,
    /// Description; may be empty.
    #[serde(default)]
    pub description: String,
    /// Type of the task.
    pub r#type: TaskType,
    /// Priority of the task.
    #[serde(default)]
    pub priority: Priority,
    /// Acceptance criteria, each judged on its own.
    #[serde(default)]
    pub acceptance_criteria: Vec<String>,
    /// Labels for filters.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Tasks that must be completed first.
    #[serde(default)]
    pub depends_on: Vec<TaskId>,
    /// Agent that the author prefers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggested_agent: Option<String>,
    /// URL of the issue that the task comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issue_url: Option<String>,
    /// Number of the issue that the task comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issue_number: Option<u64>,
    /// Further values that external tools attach to the task.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}
