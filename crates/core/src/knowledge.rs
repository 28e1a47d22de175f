//! What the team knows: recommendations, prohibitions, conventions and learnings.
//!
//! Only what a person approved counts, only until it expires, and only where its scope reaches;
//! everything else is inert. [`check()`] holds a task and its plan against the entries before
//! anybody is asked to approve the plan, and [`added_lines`] holds the change against them
//! afterwards. Both say for every match what matched what.

mod check;
mod hazard;
pub mod import;
mod index;
pub mod markdown;
pub mod meaning;
mod mention;
mod stems;

use std::fmt;

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

pub(crate) use self::check::words;
pub use self::check::{Findings, Match, Violation, added_lines, check};
pub use self::hazard::{Hazard, hazards};
pub use self::index::Index;
use crate::ids::{KnowledgeId, Name, ProjectId, Reference};
use crate::plan::Action;
use crate::task::TaskType;

/// What an entry is.
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
    /// Do it this way.
    Recommendation,
    /// Never do this.
    Prohibition,
    /// This is how it is done here.
    Convention,
    /// This is what happened, and what came of it.
    Learning,
}

/// Where an entry holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// In one project.
    Project(ProjectId),
    /// In all of them.
    Organisation,
}

impl Scope {
    /// Whether it reaches a project.
    pub fn covers(self, project: ProjectId) -> bool {
        match self {
            Self::Project(id) => id == project,
            Self::Organisation => true,
        }
    }
}

/// How bad it is to ignore an entry.
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
    /// A matter of taste.
    Low,
    /// It costs somebody an hour.
    Medium,
    /// It breaks something.
    High,
    /// A plan that does it does not go on without a person.
    Critical,
}

/// Where an entry stands.
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
pub enum Status {
    /// Somebody or something proposed it. It has no effect.
    Pending,
    /// A person approved it. It counts.
    Approved,
    /// A person turned it down. It has no effect, and proposing it again finds it here.
    Rejected,
    /// It counted once and no longer does.
    Retired,
}

impl Status {
    /// Whether a person may move an entry from this status to another.
    ///
    /// What was turned down or retired can be taken up again, but only as a proposal: the one way
    /// to have effect is a person's approval of a pending entry.
    pub fn may_become(self, to: Self) -> bool {
        matches!(
            (self, to),
            (Self::Pending, Self::Approved | Self::Rejected)
                | (Self::Approved, Self::Retired)
                | (Self::Rejected | Self::Retired, Self::Pending)
        )
    }
}

/// One thing that the team knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its identity.
    pub id: KnowledgeId,
    /// What it is.
    pub kind: Kind,
    /// What it says.
    pub text: String,
    /// Where it holds.
    pub scope: Scope,
    /// The paths it is about, as globs from the root.
    #[serde(default)]
    pub globs: Vec<String>,
    /// The kinds of task it is about.
    #[serde(default)]
    pub task_types: Vec<TaskType>,
    /// The words it is about.
    #[serde(default)]
    pub keywords: Vec<String>,
    /// What is planned to happen to files under its globs; nothing where anything counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<Action>,
    /// The code it is about, as a regular expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// How bad it is to ignore it.
    pub severity: Severity,
    /// Who answers questions about it. A lesson has nobody until somebody approves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Name>,
    /// What it is based on.
    #[serde(default)]
    pub evidence: Vec<Reference>,
    /// Where it stands.
    pub status: Status,
    /// When it stops counting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<DateTime<Utc>>,
}

impl Entry {
    /// Whether it counts for a project at a moment. At the moment it expires it no longer does.
    pub fn is_in_force(&self, project: ProjectId, now: DateTime<Utc>) -> bool {
        self.status == Status::Approved
            && self.scope.covers(project)
            && self.expires_at.is_none_or(|expiry| now < expiry)
    }
}

/// Why an entry matched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MatchReason {
    /// A path is under a glob.
    Path {
        /// The entry's glob.
        glob: String,
        /// The path.
        path: String,
    },
    /// The task is of a type.
    TaskType(TaskType),
    /// A keyword is among the words.
    Keyword(String),
    /// The pattern matches.
    Pattern {
        /// The entry's pattern.
        pattern: String,
        /// What it matched, cut to a readable length.
        found: String,
    },
    /// No condition holds, but these words of the entry are the plan's as well.
    Words(Vec<String>),
    /// No condition holds and no word is shared, but a model says that they mean much the same.
    Meaning,
    /// A glob or a pattern is not one, so nobody can tell. It counts as matched: what cannot be
    /// decided must not pass.
    Undecidable {
        /// The text that cannot be read.
        condition: String,
    },
}

impl fmt::Display for MatchReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path { glob, path } => write!(f, "`{path}` is under `{glob}`"),
            Self::TaskType(kind) => write!(f, "the task is a {kind}"),
            Self::Keyword(word) => write!(f, "it speaks of `{word}`"),
            Self::Pattern { pattern, found } => write!(f, "`{found}` matches `{pattern}`"),
            Self::Words(words) => write!(f, "it shares `{}`", words.join("`, `")),
            Self::Meaning => f.write_str("it means much the same"),
            Self::Undecidable { condition } => {
                write!(
                    f,
                    "cannot be decided: `{condition}` is not a glob or pattern; mend the entry"
                )
            }
        }
    }
}
