//! Knowledge base: recommendations, prohibitions, conventions and lessons.
//!
//! An entry takes effect only if a person approved it, only until it expires, and only within its
//! scope. [`check()`] compares a task and its plan with the entries before the plan goes to
//! approval. [`check_added_lines`] compares the change with them afterwards. Both give the reasons
//! of every match.

mod check;
mod content_warning;
pub mod embeddings;
pub mod import;
mod index;
pub mod markdown;
mod negation;
mod stems;

use std::fmt;

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

pub(crate) use self::check::split_words;
pub use self::check::{
    EntryMatch, KnowledgeFindings, ProhibitionViolation, check, check_added_lines,
};
pub use self::content_warning::{ContentWarning, content_warnings};
pub use self::index::KnowledgeIndex;
use crate::ids::{KnowledgeId, Name, ProjectId, Reference};
use crate::plan::FileAction;
use crate::task::TaskType;

/// Kind of a knowledge entry.
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
pub enum EntryKind {
    /// Advice on how to do something.
    Recommendation,
    /// Something that must never be done.
    Prohibition,
    /// Practice of the project.
    Convention,
    /// Lesson from an earlier task.
    Learning,
}

/// Scope in which an entry applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryScope {
    /// One project.
    Project(ProjectId),
    /// All projects.
    Organisation,
}

impl EntryScope {
    /// Returns true if the scope includes a project.
    pub fn covers(self, project: ProjectId) -> bool {
        match self {
            Self::Project(id) => id == project,
            Self::Organisation => true,
        }
    }
}

/// Severity of ignoring an entry.
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
pub enum EntrySeverity {
    /// Matter of taste.
    Low,
    /// Costs someone an hour.
    Medium,
    /// Breaks something.
    High,
    /// Blocks the plan until a person decides.
    Critical,
}

/// Status of an entry.
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
    Display,
    EnumString,
    EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum EntryStatus {
    /// Proposed; has no effect.
    Pending,
    /// Approved by a person; in effect.
    Approved,
    /// Rejected by a person; has no effect. A repeated proposal is merged into it.
    Rejected,
    /// No longer in effect.
    Retired,
}

impl EntryStatus {
    /// Returns true if a person can move an entry from this status to `to`.
    ///
    /// A rejected or retired entry can only become a proposal again: an entry takes effect only if
    /// a person approves a pending one.
    pub fn can_become(self, to: Self) -> bool {
        matches!(
            (self, to),
            (Self::Pending, Self::Approved | Self::Rejected)
                | (Self::Approved, Self::Retired)
                | (Self::Rejected | Self::Retired, Self::Pending)
        )
    }
}

/// Entry of the knowledge base.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnowledgeEntry {
    /// ID of the entry.
    pub id: KnowledgeId,
    /// Kind of the entry.
    pub kind: EntryKind,
    /// Text, as shown to people and agents.
    pub text: String,
    /// Scope in which it applies.
    pub scope: EntryScope,
    /// Globs of the files it applies to, from the root. Empty: any path.
    #[serde(default)]
    pub globs: Vec<String>,
    /// Task types it applies to. Empty: any type.
    #[serde(default)]
    pub task_types: Vec<TaskType>,
    /// Keywords that a plan must mention. Empty: any plan.
    #[serde(default)]
    pub keywords: Vec<String>,
    /// Planned actions on files under its globs. Empty: any action.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<FileAction>,
    /// Regular expression for code that it applies to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// Severity of ignoring it.
    pub severity: EntrySeverity,
    /// Contact for questions. `None` for a lesson until someone approves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Name>,
    /// Sources that it is based on.
    #[serde(default)]
    pub evidence: Vec<Reference>,
    /// Status.
    pub status: EntryStatus,
    /// Time from which it is no longer in effect; `None` for no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<DateTime<Utc>>,
    /// Origin of an entry that a task has proposed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<LessonOrigin>,
}

/// Event that triggers a lesson.
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
    Display,
    EnumString,
    EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum LessonTrigger {
    /// Task succeeded at once.
    Success,
    /// Task failed.
    Failure,
    /// Task succeeded after failures.
    Improvement,
}

/// Origin of an entry that a task has proposed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LessonOrigin {
    /// Title, one line.
    pub title: String,
    /// Event that triggered the lesson.
    pub occasion: LessonTrigger,
}

impl KnowledgeEntry {
    /// Returns true if the entry is in effect for a project at `now`. At `expires_at` it no longer
    /// is.
    pub fn is_in_force(&self, project: ProjectId, now: DateTime<Utc>) -> bool {
        self.status == EntryStatus::Approved
            && self.scope.covers(project)
            && self.expires_at.is_none_or(|expiry| now < expiry)
    }
}

/// Reason why an entry matched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MatchReason {
    /// Path matches a glob.
    Path {
        /// Glob of the entry.
        glob: String,
        /// Path in the plan or change.
        path: String,
    },
    /// Task has a type of the entry.
    TaskType(TaskType),
    /// Plan mentions a keyword.
    Keyword(String),
    /// Code matches the pattern.
    Pattern {
        /// Pattern of the entry.
        pattern: String,
        /// Matching text, truncated.
        found: String,
    },
    /// No condition matches, but the plan shares these words with the entry.
    Words(Vec<String>),
    /// No condition matches and no word is shared, but the embeddings are similar.
    #[serde(rename = "meaning")]
    Embedding,
    /// Glob or pattern is invalid. It counts as a match, because something undecidable must not
    /// pass.
    Undecidable {
        /// Invalid glob or pattern.
        condition: String,
    },
}

impl fmt::Display for MatchReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path { glob, path } => write!(f, "`{path}` matches `{glob}`"),
            Self::TaskType(kind) => write!(f, "task type is {kind}"),
            Self::Keyword(word) => write!(f, "mentions `{word}`"),
            Self::Pattern { pattern, found } => write!(f, "`{found}` matches `{pattern}`"),
            Self::Words(words) => write!(f, "shares the words `{}`", words.join("`, `")),
            Self::Embedding => f.write_str("similar meaning"),
            Self::Undecidable { condition } => {
                write!(
                    f,
                    "cannot evaluate `{condition}`: not a valid glob or pattern; fix the entry"
                )
            }
        }
    }
}
