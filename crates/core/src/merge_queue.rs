//! Merge queue: changes that land on one branch, each tested exactly as it lands.
//!
//! Entries are merged onto the newest commit of the branch in one batch, and that exact commit is
//! tested. If it passes, the branch advances to it, never by force. If it fails, the batch is split, and
//! both halves are built again. A single entry that fails twice goes back to its task with the log, so
//! it blocks nobody; the failure of its tree is remembered while the batch is being split, successes
//! never are. After landing, the tree of the branch is compared with the tested one.
//!
//! [`step()`] is pure; its caller merges, tests, pushes and tells the tasks.

mod step;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use strum::Display;

pub use self::step::{BatchBuilt, BuiltCommit, QueueCommand, QueueEvent, QueueRefusal, step};
use crate::ids::{CommitId, Digest, Name, PolicyVersion, ProjectId, Reference, TaskId};
use crate::level::RiskLevel;
use crate::run_queue::WaitingRun;
use crate::task::Priority;
use crate::time::Timestamp;

/// Most flaky builds that a queue remembers.
const MAX_FLAKY: usize = 20;

/// Branch that a merge queue lands changes on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct QueueAddress {
    /// Project whose mirror and rules the queue uses.
    pub project: ProjectId,
    /// Name of the forge.
    pub forge: String,
    /// Repository in the forge, such as `owner/name`, in lower case.
    pub repository: String,
    /// Branch.
    pub branch: String,
}

impl fmt::Display for QueueAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.forge, self.repository, self.branch)
    }
}

impl QueueAddress {
    /// Returns the address of a branch's queue. Forges do not tell repositories apart by case, so there
    /// is one for each in lower case.
    pub fn new(project: ProjectId, forge: String, repository: &str, branch: String) -> Self {
        Self { project, forge, repository: repository.to_lowercase(), branch }
    }

    /// Returns the task ID under which the gates of the queue run. It is derived from the name, so it
    /// is the same on every worker, and no task has it.
    pub fn as_task(&self) -> TaskId {
        let digest = Digest::of(format!("merge-queue/{}/{self}", self.project).as_bytes());
        let hex = digest.to_string();
        let number = u128::from_str_radix(&hex[..32], 16).unwrap_or_default();
        TaskId(uuid::Builder::from_custom_bytes(number.to_be_bytes()).into_uuid())
    }
}

/// Entry of a merge queue, named by its task and the commit that was approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EntryKey {
    /// Task of the change.
    pub task: TaskId,
    /// Approved commit. Another commit is another entry.
    pub head: CommitId,
}

/// Change that waits to land.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeEntry {
    /// Task and approved commit.
    pub key: EntryKey,
    /// Rules that the change was approved under. Their gates must pass.
    pub policy: PolicyVersion,
    /// Risk of the change, which selects the gates.
    #[serde(default)]
    pub risk: RiskLevel,
    /// Priority of the task.
    pub priority: Priority,
    /// Start of its wait.
    pub queued_at: Timestamp,
    /// Time before which it is not tried again, because something about it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
}

impl MergeEntry {
    /// Returns the sort key at a time: priority with ageing first, then arrival.
    fn order(&self, at: Timestamp) -> (std::cmp::Reverse<i64>, Timestamp, EntryKey) {
        let run =
            WaitingRun { holder: String::new(), priority: self.priority, since: self.queued_at };
        (std::cmp::Reverse(run.rank(at)), self.queued_at, self.key)
    }
}

/// State of a merge queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeQueue {
    /// Most entries that are tested together.
    pub batch: u8,
    /// Entries that have not landed and were not returned.
    pub entries: Vec<MergeEntry>,
    /// Parts of a failed batch that are built next; the last one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Vec<EntryKey>>,
    /// Current build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<QueueBuild>,
    /// Trees that failed twice, with their logs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failed_trees: BTreeMap<String, Reference>,
    /// Builds that failed and then passed, newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flaky: Vec<FlakyBuild>,
    /// Commit of the branch that is known to pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub green_tip: Option<CommitId>,
    /// Commit of the branch that fails by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub red_tip: Option<CommitId>,
    /// Reason for a pause. Nothing is built while it is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<QueuePause>,
    /// Number of the last build.
    #[serde(default)]
    pub last_build: u64,
    /// Totals of the queue.
    #[serde(default)]
    pub totals: QueueTotals,
}

impl MergeQueue {
    /// Returns an empty queue.
    pub fn new(batch: u8) -> Self {
        Self { batch: batch.max(1), ..Self::default() }
    }

    /// Returns an entry.
    pub fn entry(&self, key: EntryKey) -> Option<&MergeEntry> {
        self.entries.iter().find(|it| it.key == key)
    }

    /// Returns `true` if the entry is part of the current build.
    pub fn is_building(&self, key: EntryKey) -> bool {
        self.build.as_ref().is_some_and(|build| build.entries.contains(&key))
    }

    /// Returns the entries in the order in which they are tried at a time.
    pub fn ordered(&self, at: Timestamp) -> Vec<&MergeEntry> {
        let part = |key: EntryKey| {
            let from_top = self.parts.iter().rev().position(|part| part.contains(&key));
            (!self.is_building(key), from_top.unwrap_or(self.parts.len()))
        };
        let mut entries: Vec<_> = self.entries.iter().collect();
        entries.sort_by_key(|it| (part(it.key), it.order(at)));
        entries
    }

    /// Returns why the queue needs a person, if it does. A person who paused it knows why. It ends when
    /// the queue is resumed, or when the branch passes.
    pub fn question(&self) -> Option<String> {
        if let Some(pause) = &self.pause {
            return pause.by.is_none().then(|| pause.reason.clone());
        }
        let tip = self.red_tip.filter(|_| !self.entries.is_empty())?;
        Some(red_tip_text(tip))
    }

    /// Returns the time at which the queue needs a [`QueueEvent::Tick`], if it waits for one.
    pub fn wake_at(&self) -> Option<Timestamp> {
        if self.build.is_some() || self.pause.is_some() {
            return None;
        }
        self.entries.iter().filter_map(|it| it.not_before).min()
    }
}

/// Describes a branch that fails by itself.
fn red_tip_text(tip: CommitId) -> String {
    format!(
        "the branch fails its gates at {tip} without any change; fix it, or land a change that does"
    )
}

/// Build of a batch, from the merge to the landing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueBuild {
    /// Number of the build, which names its branch.
    pub number: u64,
    /// Entries in it, in the order in which they are merged.
    pub entries: Vec<EntryKey>,
    /// Step that is under way.
    pub phase: BuildPhase,
    /// Commits of the build, once it is built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<BuiltCommit>,
    /// Log of the first failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<Reference>,
    /// Set if the build is no longer wanted. Its entries are built again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_discarded: bool,
    /// Start of the build.
    pub started_at: Timestamp,
}

/// Step of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum BuildPhase {
    /// Entries are merged onto the branch.
    Building,
    /// Gates run on the merged commit.
    Testing,
    /// Gates run on the same commit again, because they failed.
    Retesting,
    /// Gates run on the branch itself, because a single entry failed on it.
    TestingBase,
    /// Gates run on the branch itself again.
    RetestingBase,
    /// Branch advances to the tested commit.
    Advancing,
    /// Landed tree is compared with the tested one.
    Verifying,
}

/// Build that failed and then passed on the same commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlakyBuild {
    /// Number of the build.
    pub number: u64,
    /// Tested commit.
    pub commit: CommitId,
    /// Log of the failure.
    pub log: Reference,
    /// Time of the second result.
    pub at: Timestamp,
}

/// Pause of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePause {
    /// Reason, for people.
    pub reason: String,
    /// Person who paused it; `None` if Tamma did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Name>,
    /// The branch does not have the tested tree, so something changed it on the way.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_incident: bool,
    /// Start of the pause.
    pub at: Timestamp,
}

/// Totals of a queue since it was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueTotals {
    /// Entries that landed.
    #[serde(default)]
    pub landed: u64,
    /// Entries that went back to their task.
    #[serde(default)]
    pub returned: u64,
    /// Runs of the gates.
    #[serde(default)]
    pub gate_runs: u64,
    /// Builds that were thrown away because the branch moved.
    #[serde(default)]
    pub rebuilt: u64,
}

/// Reason why an entry goes back to its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ReturnReason {
    /// It conflicts with the branch.
    Conflict,
    /// Gates fail with it.
    Failed,
}
