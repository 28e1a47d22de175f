//! Activity interface of the merge queue's workflow.
//!
//! Serialised names are part of recorded workflow histories, so they never change.

use serde::{Deserialize, Serialize};
use tamma_core::ids::{CommitId, Reference};
use tamma_core::merge_queue::{
    BatchBuilt, BuiltCommit, EntryKey, MergeEntry, MergeQueue, QueueAddress, ReturnReason,
};
use tamma_core::time::Timestamp;
use temporalio_common::ActivityDefinition;

/// Activity names. Recorded histories contain them, so they never change.
pub mod names {
    /// Name of [`RecordQueueActivity`](super::RecordQueueActivity).
    pub const RECORD: &str = "queue_record";
    /// Name of [`BuildBatchActivity`](super::BuildBatchActivity).
    pub const BUILD: &str = "queue_build";
    /// Name of [`QueueGatesActivity`](super::QueueGatesActivity).
    pub const GATES: &str = "queue_gates";
    /// Name of [`AdvanceActivity`](super::AdvanceActivity).
    pub const ADVANCE: &str = "queue_advance";
    /// Name of [`VerifyLandedActivity`](super::VerifyLandedActivity).
    pub const VERIFY: &str = "queue_verify";
    /// Name of [`SettleActivity`](super::SettleActivity).
    pub const SETTLE: &str = "queue_settle";
}

/// Queue as the database keeps it, for people. The next snapshot replaces it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueSnapshot {
    /// Branch.
    pub queue: QueueAddress,
    /// State.
    pub state: MergeQueue,
    /// Time of the snapshot.
    pub at: Timestamp,
}

/// Request to merge entries onto the branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildBatchRequest {
    /// Branch.
    pub queue: QueueAddress,
    /// Number of the build.
    pub number: u64,
    /// Entries, in order.
    pub entries: Vec<MergeEntry>,
}

/// Request to run the gates of some entries on a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueGatesRequest {
    /// Branch.
    pub queue: QueueAddress,
    /// Number of the build.
    pub number: u64,
    /// Commit to test.
    pub commit: CommitId,
    /// Commit that the build starts from.
    pub base: CommitId,
    /// Run on this commit, from 1.
    pub attempt: u8,
    /// Entries whose rules select the gates.
    pub entries: Vec<MergeEntry>,
}

/// Result of the gates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueGatesResult {
    /// All gates passed.
    pub passed: bool,
    /// Stored log.
    pub log: Reference,
}

/// Request to advance the branch to the tested commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdvanceRequest {
    /// Branch.
    pub queue: QueueAddress,
    /// Number of the build.
    pub number: u64,
    /// Commits of the build.
    pub commit: BuiltCommit,
    /// Entries in it.
    pub entries: Vec<MergeEntry>,
}

/// Result of an advance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdvanceResult {
    /// Branch has the tested commit.
    Advanced,
    /// Branch has another commit, or something about an entry is unknown. The batch is built again.
    TipMoved,
    /// Entries are no longer wanted. The branch was not advanced.
    Left(Vec<EntryKey>),
}

/// Request to read the branch after landing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifyLandedRequest {
    /// Branch.
    pub queue: QueueAddress,
    /// Commits of the build.
    pub commit: BuiltCommit,
}

/// Request to tell tasks and people what became of entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettleRequest {
    /// Branch.
    pub queue: QueueAddress,
    /// What to tell.
    pub settlements: Vec<Settlement>,
}

/// What became of an entry, or of the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Settlement {
    /// Change is in the branch.
    Landed {
        /// Entry.
        entry: MergeEntry,
        /// Commit of the branch.
        commit: CommitId,
    },
    /// Change goes back to its task.
    Returned {
        /// Entry.
        entry: MergeEntry,
        /// Reason.
        reason: ReturnReason,
        /// Stored log or conflict.
        log: Reference,
    },
    /// Entry is no longer wanted.
    Dropped {
        /// Entry.
        entry: MergeEntry,
    },
    /// Queue needs people.
    Alert {
        /// Reason.
        reason: String,
        /// Entries that wait.
        waiting: Vec<EntryKey>,
    },
}

macro_rules! define_activity {
    ($(#[$doc:meta])* $type:ident $name:ident $input:ty => $output:ty) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $type;

        impl ActivityDefinition for $type {
            type Input = $input;
            type Output = $output;

            fn name(&self) -> &str {
                names::$name
            }
        }
    };
}

define_activity! {
    /// Activity that saves the state of a queue.
    RecordQueueActivity RECORD QueueSnapshot => ()
}
define_activity! {
    /// Activity that merges entries onto the branch.
    BuildBatchActivity BUILD BuildBatchRequest => BatchBuilt
}
define_activity! {
    /// Activity that runs the gates on a commit.
    QueueGatesActivity GATES QueueGatesRequest => QueueGatesResult
}
define_activity! {
    /// Activity that advances the branch.
    AdvanceActivity ADVANCE AdvanceRequest => AdvanceResult
}
define_activity! {
    /// Activity that reads the branch after landing, and returns the tree of the tested commit in it.
    VerifyLandedActivity VERIFY VerifyLandedRequest => Option<String>
}
define_activity! {
    /// Activity that tells tasks and people what became of entries.
    SettleActivity SETTLE SettleRequest => ()
}
