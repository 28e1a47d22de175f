//! Merge queues: their entries, and the state that their workflows show.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::{Display, IntoEnumIterator as _};
use tamma_core::ids::{CommitId, ProjectId, Reference, TaskId};
use tamma_core::task::Priority;
use tamma_core::task_loop::Timestamp;
use uuid::Uuid;

use crate::connection::Store;
use crate::encoding::{json, read_word};
use crate::error::{CorruptData, Error, Result};

/// Longest stored reason, in characters.
const MAX_REASON: usize = 2_000;

/// Merge queue: one per repository and branch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MergeQueueId {
    /// Name of the forge.
    pub forge: String,
    /// Repository in the forge, such as `owner/name`.
    pub repository: String,
    /// Branch that changes land on.
    pub branch: String,
}

/// Change to add to a merge queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewQueueEntry {
    /// Queue.
    pub queue: MergeQueueId,
    /// Task of the change.
    pub task: TaskId,
    /// Project of the task.
    pub project: ProjectId,
    /// Head that was judged. Another head is another entry.
    pub head: CommitId,
    /// Priority of the task.
    pub priority: Priority,
}

/// Change in a merge queue, or one that has left it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueEntry {
    /// Queue.
    pub queue: MergeQueueId,
    /// Task of the change.
    pub task: TaskId,
    /// Project of the task.
    pub project: ProjectId,
    /// Head that was judged.
    pub head: CommitId,
    /// Priority of the task.
    pub priority: Priority,
    /// State.
    pub state: QueueEntryState,
    /// Reason why it was returned or left.
    pub reason: Option<String>,
    /// Log that goes with the reason.
    pub log: Option<Reference>,
    /// Commit that contains it on the branch.
    pub landed_commit: Option<CommitId>,
    /// Time at which it was added.
    pub queued_at: Timestamp,
    /// Time at which it landed, was returned or left.
    pub settled_at: Option<Timestamp>,
}

/// State of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum QueueEntryState {
    /// Waits for a batch.
    Waiting,
    /// Part of the batch that is tested.
    Testing,
    /// Is on the branch.
    Landed,
    /// Failed alone, and went back to its task.
    Returned,
    /// Is not wanted any more: its head moved, or its task or pull request ended.
    Left,
}

/// End of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueSettlement {
    /// Landed as part of this commit.
    Landed(CommitId),
    /// Went back to its task.
    Returned {
        /// Reason, in one line.
        reason: String,
        /// Log of the failure.
        log: Option<Reference>,
    },
    /// Is not wanted any more.
    Left {
        /// Reason, in one line.
        reason: String,
    },
}

/// Filter of entries. Empty fields match everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueEntryFilter {
    /// Queue.
    pub queue: Option<MergeQueueId>,
    /// Task.
    pub task: Option<TaskId>,
    /// Only entries that wait or are tested, if `true`.
    pub open: bool,
}

/// Merge queue, as its workflow saw it last.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredMergeQueue {
    /// Queue.
    pub id: MergeQueueId,
    /// Project whose rules it follows.
    pub project: ProjectId,
    /// Reason for a pause; `None` while it runs.
    pub paused: Option<String>,
    /// State, as the workflow saved it.
    pub state: Value,
    /// Last change.
    pub updated_at: Timestamp,
    /// Temporal namespace of its workflow; `None` for that of the installation.
    pub namespace: Option<String>,
}

struct Row {
    forge: String,
    repository: String,
    branch: String,
    task: Uuid,
    project: Uuid,
    head: String,
    priority: i16,
    state: String,
    reason: Option<String>,
    log: Option<String>,
    landed_commit: Option<String>,
    queued_at: Timestamp,
    settled_at: Option<Timestamp>,
}

impl Store {
    /// Adds a change to a merge queue. Returns `false` if it is there already, or has landed. One
    /// that was returned or has left starts again at the end.
    pub async fn enqueue_merge(&self, entry: &NewQueueEntry) -> Result<bool> {
        let added = sqlx::query!(
            "INSERT INTO merge_queue_entries AS stored
                (forge, repository, branch, task, head, project, priority, state)
             VALUES ($1, $2, $3, $4, $5, $6, $7, 'waiting')
             ON CONFLICT (task, head) DO UPDATE SET
                forge = excluded.forge, repository = excluded.repository,
                branch = excluded.branch, priority = excluded.priority, state = 'waiting',
                reason = NULL, log = NULL, queued_at = clock_timestamp(), settled_at = NULL
             WHERE stored.state IN ('returned', 'left')",
            entry.queue.forge,
            entry.queue.repository,
            entry.queue.branch,
            entry.task.0,
            entry.head.to_string(),
            entry.project.0,
            rank(entry.priority),
        )
        .execute(&self.steps)
        .await?;
        Ok(added.rows_affected() > 0)
    }

    /// Returns entries of merge queues: open ones first, in the order in which they are tested, then
    /// the newest of the others.
    pub async fn merge_queue_entries(
        &self,
        filter: &QueueEntryFilter,
        limit: u32,
    ) -> Result<Vec<QueueEntry>> {
        let queue = filter.queue.as_ref();
        let rows = sqlx::query_as!(
            Row,
            "SELECT
                forge, repository, branch, task, project, head, priority, state, reason, log,
                landed_commit, queued_at, settled_at
             FROM merge_queue_entries
             WHERE ($1::text IS NULL OR (forge = $1 AND repository = $2 AND branch = $3))
                AND ($4::uuid IS NULL OR task = $4)
                AND (NOT $5::bool OR settled_at IS NULL)
                AND ($6::bool OR project = ANY($7::uuid []))
             ORDER BY
                settled_at DESC NULLS FIRST, state = 'testing' DESC, priority DESC, queued_at, task
             LIMIT $8",
            queue.map(|queue| queue.forge.as_str()),
            queue.map(|queue| queue.repository.as_str()),
            queue.map(|queue| queue.branch.as_str()),
            filter.task.map(|task| task.0),
            filter.open,
            self.reads_all(),
            self.readable_projects(),
            i64::from(limit),
        )
        .fetch_all(&self.lists)
        .await?;
        rows.into_iter().map(read_row).collect()
    }

    /// Marks entries as part of the batch that is tested, and the other open ones of the queue as
    /// waiting.
    pub async fn set_queue_batch(
        &self,
        queue: &MergeQueueId,
        batch: &[(TaskId, CommitId)],
    ) -> Result<()> {
        let tasks: Vec<_> = batch.iter().map(|(task, _)| task.0).collect();
        let heads: Vec<_> = batch.iter().map(|(_, head)| head.to_string()).collect();
        sqlx::query!(
            "UPDATE merge_queue_entries SET
                state = CASE
                    WHEN (task, head) IN (
                        SELECT batch.task, batch.head
                        FROM unnest($4::uuid [], $5::text []) AS batch (task, head)
                    ) THEN 'testing' ELSE 'waiting'
                END
             WHERE forge = $1 AND repository = $2 AND branch = $3 AND settled_at IS NULL",
            queue.forge,
            queue.repository,
            queue.branch,
            &tasks[..],
            &heads[..],
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Ends an entry. Returns `false` if it has ended already; that end stays.
    pub async fn settle_queue_entry(
        &self,
        task: TaskId,
        head: CommitId,
        settlement: &QueueSettlement,
    ) -> Result<bool> {
        let (state, reason, log, commit) = match settlement {
            QueueSettlement::Landed(commit) => (QueueEntryState::Landed, None, None, Some(commit)),
            QueueSettlement::Returned { reason, log } => {
                (QueueEntryState::Returned, Some(reason), log.as_ref(), None)
            }
            QueueSettlement::Left { reason } => (QueueEntryState::Left, Some(reason), None, None),
        };
        let settled = sqlx::query!(
            "UPDATE merge_queue_entries SET
                state = $3, reason = $4, log = $5, landed_commit = $6,
                settled_at = clock_timestamp()
             WHERE task = $1 AND head = $2 AND settled_at IS NULL",
            task.0,
            head.to_string(),
            state.to_string(),
            reason.map(|reason| bounded(reason.as_str())),
            log.map(Reference::as_str),
            commit.map(ToString::to_string),
        )
        .execute(&self.steps)
        .await?;
        Ok(settled.rows_affected() > 0)
    }

    /// Adds a note to the reason of an entry, for people.
    pub async fn note_queue_entry(&self, task: TaskId, head: CommitId, note: &str) -> Result<()> {
        sqlx::query!(
            "UPDATE merge_queue_entries SET reason = concat_ws('; ', reason, $3::text)
             WHERE task = $1 AND head = $2 AND (reason IS NULL OR strpos(reason, $3) = 0)",
            task.0,
            head.to_string(),
            bounded(note),
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Saves the state of a merge queue for people to see. A pause stays.
    pub async fn save_merge_queue<S: Serialize + Sync>(
        &self,
        queue: &MergeQueueId,
        project: ProjectId,
        state: &S,
    ) -> Result<()> {
        sqlx::query!(
            "INSERT INTO merge_queues (forge, repository, branch, project, state)
             VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (forge, repository, branch) DO UPDATE SET
                project = excluded.project, state = excluded.state,
                updated_at = clock_timestamp()",
            queue.forge,
            queue.repository,
            queue.branch,
            project.0,
            json(state),
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Returns the merge queues, by name.
    pub async fn merge_queues(&self) -> Result<Vec<StoredMergeQueue>> {
        let rows = sqlx::query!(
            "SELECT forge, repository, branch, project, paused, state, updated_at, namespace
             FROM merge_queues
             WHERE $1::bool OR project = ANY($2::uuid [])
             ORDER BY forge, repository, branch",
            self.reads_all(),
            self.readable_projects(),
        )
        .fetch_all(&self.lists)
        .await?;
        let queues = rows.into_iter().map(|row| StoredMergeQueue {
            id: MergeQueueId { forge: row.forge, repository: row.repository, branch: row.branch },
            project: ProjectId(row.project),
            paused: row.paused,
            state: row.state,
            updated_at: row.updated_at,
            namespace: row.namespace,
        });
        Ok(queues.collect())
    }

    /// Returns a merge queue, if it exists.
    pub async fn merge_queue(&self, queue: &MergeQueueId) -> Result<Option<StoredMergeQueue>> {
        let row = sqlx::query!(
            "SELECT project, paused, state, updated_at, namespace FROM merge_queues
             WHERE forge = $1 AND repository = $2 AND branch = $3",
            queue.forge,
            queue.repository,
            queue.branch,
        )
        .fetch_optional(&self.reads)
        .await?
        .filter(|row| self.can_read(ProjectId(row.project)));
        Ok(row.map(|row| StoredMergeQueue {
            id: queue.clone(),
            project: ProjectId(row.project),
            paused: row.paused,
            state: row.state,
            updated_at: row.updated_at,
            namespace: row.namespace,
        }))
    }

    /// Pauses a merge queue with a reason, or lets it go on. Returns `false` if there is no such
    /// queue.
    pub async fn set_merge_queue_paused(
        &self,
        queue: &MergeQueueId,
        reason: Option<&str>,
    ) -> Result<bool> {
        let changed = sqlx::query!(
            "UPDATE merge_queues SET paused = $4, updated_at = clock_timestamp()
             WHERE forge = $1 AND repository = $2 AND branch = $3",
            queue.forge,
            queue.repository,
            queue.branch,
            reason.map(bounded),
        )
        .execute(&self.steps)
        .await?;
        Ok(changed.rows_affected() > 0)
    }
}

/// Removes bytes that PostgreSQL refuses, and the end of a long reason.
fn bounded(reason: &str) -> String {
    reason.replace('\0', "").chars().take(MAX_REASON).collect()
}

/// Returns the stored number of a priority. Larger is more urgent.
fn rank(priority: Priority) -> i16 {
    match priority {
        Priority::Low => 0,
        Priority::Medium => 1,
        Priority::High => 2,
        Priority::Critical => 3,
    }
}

fn read_row(row: Row) -> Result<QueueEntry> {
    let what = "merge queue entry";
    let key = row.task.to_string();
    let decode = move || -> Result<QueueEntry, CorruptData> {
        let priority = Priority::iter().find(|priority| rank(*priority) == row.priority);
        Ok(QueueEntry {
            queue: MergeQueueId {
                forge: row.forge,
                repository: row.repository,
                branch: row.branch,
            },
            task: TaskId(row.task),
            project: ProjectId(row.project),
            head: read_word(what, row.head)?,
            priority: priority.unwrap_or_default(),
            state: read_word(what, row.state)?,
            reason: row.reason,
            log: row.log.map(|log| read_word(what, log)).transpose()?,
            landed_commit: row.landed_commit.map(|it| read_word(what, it)).transpose()?,
            queued_at: row.queued_at,
            settled_at: row.settled_at,
        })
    };
    decode().map_err(|damage| Error::Corrupt(damage.with_key(key)))
}
