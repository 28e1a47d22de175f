//! Task: one unit of work on one repository, as its author described it.
//!
//! The state machine carries only the task's ID. The text is for the planner, the prompts, the
//! knowledge check and people.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

use crate::ids::{ProjectId, TaskId, short_id};

/// Maximum length of a title, in characters.
pub const MAX_TITLE_CHARS: usize = 200;

/// Returns `true` if a text can be the title of a task: one line that is not too long.
pub fn is_title(text: &str) -> bool {
    let length = text.trim().chars().count();
    (1..=MAX_TITLE_CHARS).contains(&length) && !text.contains(char::is_control)
}

/// Start of every branch that Tamma makes.
const BRANCH_PREFIX: &str = "tamma/";

/// Maximum length of the part of a branch name that comes from the title, in bytes.
const MAX_SLUG_BYTES: usize = 40;

/// Returns the name for the branch of a new task, such as `tamma/1a2b3c4d-greet-people-by-name`.
///
/// The name is stored with the task and never made again, because titles can be edited. It has only
/// lower-case letters, digits and hyphens after its prefix, so every title gives a valid git ref.
pub fn branch_name(task: TaskId, title: &str) -> String {
    let (short, slug) = (short_id(task.0), slug(title));
    if slug.is_empty() {
        format!("{BRANCH_PREFIX}{short}")
    } else {
        format!("{BRANCH_PREFIX}{short}-{slug}")
    }
}

/// Returns the branch of a task that was stored without a name, by an earlier version.
pub fn unnamed_branch(task: TaskId) -> String {
    format!("{BRANCH_PREFIX}{task}")
}

/// Returns `true` if a branch can be that of a task, whatever its title was.
pub fn is_branch_of(task: TaskId, branch: &str) -> bool {
    let Some(name) = branch.strip_prefix(BRANCH_PREFIX) else { return false };
    let after_id = name.strip_prefix(short_id(task.0).as_str());
    name == task.to_string() || after_id.is_some_and(|it| it.is_empty() || it.starts_with('-'))
}

/// Returns the ASCII words of a title, as many as fit, with hyphens between them.
fn slug(title: &str) -> String {
    let mut slug = String::new();
    let words = title.split(|it: char| !it.is_ascii_alphanumeric() && !matches!(it, '\'' | '’'));
    for word in words {
        let word: String = word.chars().filter(char::is_ascii_alphanumeric).collect();
        let hyphen = usize::from(!slug.is_empty());
        if word.is_empty() {
            continue;
        }
        if slug.len() + hyphen + word.len() > MAX_SLUG_BYTES {
            // A long first word is better than none.
            if slug.is_empty() {
                slug = word.chars().take(MAX_SLUG_BYTES).collect();
            }
            break;
        }
        if !slug.is_empty() {
            slug.push('-');
        }
        slug.push_str(&word);
    }
    slug.to_ascii_lowercase()
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

/// Checks the labels of a task.
pub fn check_labels(labels: &[String]) -> Result<(), TaskEditError> {
    if labels.len() > MAX_LABELS {
        return Err(TaskEditError::TooManyLabels);
    }
    match labels.iter().find(|label| !is_label(label)) {
        Some(label) => Err(TaskEditError::Label(label.chars().take(MAX_LABEL_CHARS).collect())),
        None => Ok(()),
    }
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
        check_labels(self.labels.as_deref().unwrap_or_default())
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    const TASK: TaskId = TaskId(Uuid::from_u128(0x0192_a000_0000_7000_8000_0000_1a2b_3c4d));

    #[test]
    fn a_branch_is_named_after_its_task() {
        let long = "a".repeat(MAX_TITLE_CHARS);
        for (title, name) in [
            ("Greet people by name", "1a2b3c4d-greet-people-by-name"),
            ("It's  here: fix #42!", "1a2b3c4d-its-here-fix-42"),
            ("Größe der Grüße", "1a2b3c4d-gr-e-der-gr-e"),
            ("日本語", "1a2b3c4d"),
            ("", "1a2b3c4d"),
            ("--upload-pack=touch x", "1a2b3c4d-upload-pack-touch-x"),
            ("../../HEAD.lock@{1}", "1a2b3c4d-head-lock-1"),
            ("a\nb\0c\u{202e}d", "1a2b3c4d-a-b-c-d"),
            ("$(rm -rf ~); `id`", "1a2b3c4d-rm-rf-id"),
            (
                "One two three four five six seven eight nine ten eleven",
                "1a2b3c4d-one-two-three-four-five-six-seven-eight",
            ),
            (long.as_str(), "1a2b3c4d-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
        ] {
            assert_eq!(branch_name(TASK, title), format!("tamma/{name}"), "{title:?}");
        }
    }

    #[test]
    fn a_branch_belongs_to_one_task_under_every_title() {
        let other = TaskId(Uuid::from_u128(0x0192_a000_0000_7000_8000_0000_1a2b_3c4e));
        for branch in [branch_name(TASK, "Greet"), branch_name(TASK, "?"), unnamed_branch(TASK)] {
            assert!(is_branch_of(TASK, &branch), "{branch}");
            assert!(!is_branch_of(other, &branch), "{branch}");
        }
        for branch in ["main", "tamma/1a2b3c4dx", "tamma/1a2b3c4", "1a2b3c4d-greet", "tamma/queue"]
        {
            assert!(!is_branch_of(TASK, branch), "{branch}");
        }
    }

    proptest! {
        #[test]
        fn every_title_gives_a_valid_ref(title in any::<String>()) {
            let name = branch_name(TASK, &title);
            let rest = name.strip_prefix("tamma/1a2b3c4d").unwrap();
            prop_assert!(rest.len() <= 1 + MAX_SLUG_BYTES, "{name}");
            prop_assert!(rest.is_empty() || rest.starts_with('-'), "{name}");
            prop_assert!(!rest.ends_with('-') && !rest.contains("--"), "{name}");
            let is_safe = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-';
            prop_assert!(rest.chars().all(is_safe), "{name}");
        }
    }
}
