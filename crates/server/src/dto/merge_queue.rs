//! Merge queues.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Merge queues of the readable projects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MergeQueueList {
    /// Queues, by name.
    pub queues: Vec<MergeQueueView>,
}

/// Merge queue of one branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MergeQueueView {
    /// Project.
    pub project: Uuid,
    /// Name of the forge.
    pub forge: String,
    /// Repository in the forge, such as `owner/name`.
    pub repository: String,
    /// Branch that changes land on.
    pub branch: String,
    /// Reason for a pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
    /// Person who paused it; without one, Tamma did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_by: Option<String>,
    /// The branch has another tree than the one that was tested.
    pub incident: bool,
    /// Reason why the queue needs a person: it stopped by itself, or its branch fails. It is in the inbox
    /// until the queue goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// Current build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<QueueBuildView>,
    /// Open entries, in the order in which they are tried, then the newest that have ended.
    pub entries: Vec<QueueEntryView>,
    /// Number of changes that landed.
    pub landed: u64,
    /// Number of changes that went back to their task.
    pub returned: u64,
    /// Number of runs of the gates.
    pub gate_runs: u64,
    /// Number of builds that failed and then passed on the same commit.
    pub flaky: u64,
    /// Last change of the queue.
    pub updated_at: DateTime<Utc>,
}

/// Build of a merge queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueBuildView {
    /// Number of the build.
    pub number: u64,
    /// Step that is under way: `building`, `testing`, `retesting`, `testing_base`, `retesting_base`,
    /// `advancing` or `verifying`.
    pub phase: String,
    /// Tested commit, once it is built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Number of entries in it.
    pub entries: u64,
    /// Start of the build.
    pub started_at: DateTime<Utc>,
}

/// Change in a merge queue, or one that has left it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueEntryView {
    /// Task.
    pub task: Uuid,
    /// Title of the task, if it is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Approved commit.
    pub head: String,
    /// Priority of the task.
    pub priority: String,
    /// `waiting`, `testing`, `landed`, `returned` or `left`.
    pub state: String,
    /// Reason of a return.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Commit of the branch that contains it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landed_commit: Option<String>,
    /// Start of its wait.
    pub queued_at: DateTime<Utc>,
    /// End of its wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled_at: Option<DateTime<Utc>>,
}

/// Action on a merge queue. Names of repositories contain slashes, so the queue is in the body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MergeQueueActionBody {
    /// Name of the forge.
    pub forge: String,
    /// Repository in the forge, such as `owner/name`.
    pub repository: String,
    /// Branch that changes land on.
    pub branch: String,
    /// Reason for a pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
