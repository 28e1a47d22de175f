//! Pull requests of tasks, with the newest facts that their forge reported.
//!
//! A poller reads facts and records them here. Facts that the task's workflow has not received are
//! delivered again, so a server that dies between both loses nothing. Webhooks and people leave
//! hints, which are counted: an observation covers the hints from before it began, and no others.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::Display;
use tamma_core::forge::{PullRequestFacts, PullRequestStatus};
use tamma_core::ids::{CommitId, ProjectId, TaskId};
use tamma_core::task_loop::Timestamp;
use uuid::Uuid;

use crate::connection::Store;
use crate::encoding::{json, read, read_number, read_word};
use crate::error::{CorruptData, Error, Result};
use crate::listener::{Listener, Notification};
use crate::steps::to_i64;

/// Channel of hints that something changed in a forge.
pub(crate) const HINT_CHANNEL: &str = "tamma_forges";

/// Pull requests of one repository that are observed together.
const MAX_OBSERVED: i64 = 500;

/// Pull request that was opened for a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPullRequest {
    /// Task that it belongs to.
    pub task: TaskId,
    /// Project of the task.
    pub project: ProjectId,
    /// Name of the forge.
    pub forge: String,
    /// Repository in the forge, such as `owner/name`.
    pub repository: String,
    /// Number of the pull request.
    pub number: u64,
    /// Address of its page.
    pub url: String,
    /// Branch with the change.
    pub branch: String,
    /// Branch that it goes to.
    pub base_branch: String,
}

/// Stored status of a pull request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum StoredStatus {
    /// Open.
    Open,
    /// Merged.
    Merged,
    /// Closed without merging.
    Closed,
}

impl From<&PullRequestStatus> for StoredStatus {
    fn from(status: &PullRequestStatus) -> Self {
        match status {
            PullRequestStatus::Open => Self::Open,
            PullRequestStatus::Merged { .. } => Self::Merged,
            PullRequestStatus::Closed { .. } => Self::Closed,
        }
    }
}

/// Pull request with the newest facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPullRequest {
    /// Task that it belongs to.
    pub task: TaskId,
    /// Project of the task.
    pub project: ProjectId,
    /// Name of the forge.
    pub forge: String,
    /// Repository in the forge, such as `owner/name`.
    pub repository: String,
    /// Number of the pull request.
    pub number: u64,
    /// Address of its page.
    pub url: String,
    /// Branch with the change.
    pub branch: String,
    /// Branch that it goes to.
    pub base_branch: String,
    /// Status at the last observation.
    pub status: StoredStatus,
    /// Facts of the last observation.
    pub facts: Option<PullRequestFacts>,
    /// Hash of the facts.
    pub facts_hash: Option<String>,
    /// Validator of the last answer.
    pub cursor: Option<String>,
    /// Number of hints that it changed. Observations carry it back.
    pub hints: u64,
    /// A webhook or a person says that it changed since the last observation.
    pub is_dirty: bool,
    /// Last observation, also one that found nothing new.
    pub observed_at: Option<Timestamp>,
    /// Last read without a cursor.
    pub read_at: Option<Timestamp>,
    /// Hash of the facts that the workflow has received.
    pub delivered: Option<String>,
    /// Commit of the merge on the base branch.
    pub merged_commit: Option<CommitId>,
    /// Time at which the merge was observed.
    pub merged_at: Option<Timestamp>,
    /// Time at which it was opened.
    pub opened_at: Timestamp,
}

/// Filter of a list of pull requests. Empty fields match everything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PullRequestFilter {
    /// Project of the task.
    pub project: Option<ProjectId>,
    /// Only pull requests with this status.
    pub status: Option<StoredStatus>,
}

/// Subscription to hints; see [`Store::forge_hints`].
#[derive(Debug)]
pub struct ForgeHints {
    listener: Listener,
}

struct Row {
    task: Uuid,
    project: Uuid,
    forge: String,
    repository: String,
    number: i64,
    url: String,
    branch: String,
    base_branch: String,
    status: String,
    facts: Option<Value>,
    facts_hash: Option<String>,
    cursor: Option<String>,
    hints: i64,
    hints_seen: i64,
    observed_at: Option<Timestamp>,
    read_at: Option<Timestamp>,
    delivered: Option<String>,
    merged_commit: Option<String>,
    merged_at: Option<Timestamp>,
    opened_at: Timestamp,
}

/// Selects pull requests that match an SQL condition.
macro_rules! rows {
    ($rest:tt $(, $argument:expr)* $(,)?) => {
        sqlx::query_as!(
            Row,
            "SELECT
                task, project, forge, repository, number, url, branch, base_branch, status, facts,
                facts_hash, cursor, hints, hints_seen, observed_at, read_at, delivered,
                merged_commit, merged_at, opened_at
             FROM pull_requests WHERE " + $rest
            $(, $argument)*
        )
    };
}

impl Store {
    /// Saves the pull request of a task. A task that opens another one replaces it; the same one
    /// keeps its facts.
    pub async fn save_pull_request(&self, opened: &NewPullRequest) -> Result<()> {
        sqlx::query!(
            "INSERT INTO pull_requests AS stored
                (task, project, forge, repository, number, url, branch, base_branch)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
             ON CONFLICT (task) DO UPDATE SET
                forge = excluded.forge, repository = excluded.repository,
                number = excluded.number, url = excluded.url, branch = excluded.branch,
                base_branch = excluded.base_branch, status = 'open', facts = NULL,
                facts_hash = NULL, cursor = NULL, hints = stored.hints + 1, observed_at = NULL,
                read_at = NULL, delivered = NULL, merged_commit = NULL, merged_at = NULL,
                watched_until = NULL, traced_to = NULL, base_checked = false, opened_at = now()
             WHERE (stored.forge, lower(stored.repository), stored.number)
                <> (excluded.forge, lower(excluded.repository), excluded.number)",
            opened.task.0,
            opened.project.0,
            opened.forge,
            opened.repository,
            to_i64(opened.number),
            opened.url,
            opened.branch,
            opened.base_branch,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Returns the pull request of a task, if it has one.
    pub async fn pull_request(&self, task: TaskId) -> Result<Option<StoredPullRequest>> {
        let row = rows!("task = $1", task.0).fetch_optional(&self.reads).await?;
        row.filter(|row| self.can_read(ProjectId(row.project))).map(read_row).transpose()
    }

    /// Returns pull requests, newest first.
    pub async fn pull_requests(
        &self,
        filter: &PullRequestFilter,
        limit: u32,
    ) -> Result<Vec<StoredPullRequest>> {
        let rows = rows!(
            "($1::uuid IS NULL OR project = $1) AND ($2::text IS NULL OR status = $2)
             AND ($4::bool OR project = ANY($5::uuid []))
             ORDER BY opened_at DESC, task LIMIT $3",
            filter.project.map(|project| project.0),
            filter.status.map(|status| status.to_string()),
            i64::from(limit),
            self.reads_all(),
            self.readable_projects(),
        );
        rows.fetch_all(&self.lists).await?.into_iter().map(read_row).collect()
    }

    /// Returns the pull requests of these tasks, for lists of tasks.
    pub async fn pull_requests_of(&self, tasks: &[TaskId]) -> Result<Vec<StoredPullRequest>> {
        let tasks: Vec<_> = tasks.iter().map(|task| task.0).collect();
        let rows = rows!(
            "task = ANY($1) AND ($2::bool OR project = ANY($3::uuid []))",
            &tasks[..],
            self.reads_all(),
            self.readable_projects(),
        );
        rows.fetch_all(&self.lists).await?.into_iter().map(read_row).collect()
    }

    /// Returns open pull requests of a repository that have a hint, or that were not observed since a
    /// time. Those with hints come first, then those that wait longest.
    ///
    /// Closed ones of live tasks are included 5 min later, because people can reopen them.
    pub async fn pull_requests_to_observe(
        &self,
        forge: &str,
        repository: &str,
        before: Timestamp,
    ) -> Result<Vec<StoredPullRequest>> {
        let rows = rows!(
            "forge = $1 AND lower(repository) = lower($2) AND status <> 'merged'
             AND (
                hints > hints_seen OR observed_at IS NULL
                OR observed_at < CASE
                    WHEN status = 'open' THEN $3::timestamptz
                    ELSE $3::timestamptz - interval '5 minutes'
                END
             )
             AND (
                status = 'open'
                OR NOT EXISTS (
                    SELECT FROM tasks WHERE tasks.id = pull_requests.task AND NOT tasks.live
                )
             )
             ORDER BY hints > hints_seen DESC, observed_at NULLS FIRST LIMIT $4",
            forge,
            repository,
            before,
            MAX_OBSERVED,
        );
        rows.fetch_all(&self.steps).await?.into_iter().map(read_row).collect()
    }

    /// Returns pull requests of a forge whose newest facts their workflow has not received.
    pub async fn undelivered_pull_requests(&self, forge: &str) -> Result<Vec<StoredPullRequest>> {
        let rows = rows!(
            "forge = $1 AND facts_hash IS NOT NULL AND delivered IS DISTINCT FROM facts_hash
             ORDER BY observed_at LIMIT $2",
            forge,
            MAX_OBSERVED,
        );
        rows.fetch_all(&self.steps).await?.into_iter().map(read_row).collect()
    }

    /// Records facts about a pull request, which was read before the request to the forge. Returns
    /// the hash of the facts if the workflow has not received them.
    ///
    /// `complete` says that they were read without a cursor. A merge is final: an older answer that
    /// arrives late does not replace it.
    pub async fn record_observation(
        &self,
        observed: &StoredPullRequest,
        facts: &PullRequestFacts,
        cursor: Option<&str>,
        complete: bool,
    ) -> Result<Option<String>> {
        let merged = match &facts.status {
            PullRequestStatus::Merged { commit, .. } => Some(commit.to_string()),
            PullRequestStatus::Open | PullRequestStatus::Closed { .. } => None,
        };
        let row = sqlx::query!(
            "UPDATE pull_requests SET
                status = $3, facts = $4, facts_hash = md5($4::jsonb::text), cursor = $5,
                hints_seen = greatest(hints_seen, $6), observed_at = clock_timestamp(),
                read_at = CASE WHEN $7 THEN clock_timestamp() ELSE read_at END,
                merged_commit = $8,
                merged_at = CASE WHEN $8::text IS NULL THEN NULL ELSE clock_timestamp() END
             WHERE task = $1 AND number = $2 AND status <> 'merged'
             RETURNING facts_hash AS \"facts_hash!\", delivered",
            observed.task.0,
            to_i64(observed.number),
            StoredStatus::from(&facts.status).to_string(),
            json(facts),
            cursor,
            to_i64(observed.hints),
            complete,
            merged,
        )
        .fetch_optional(&self.steps)
        .await?;
        let row = row.filter(|row| row.delivered.as_deref() != Some(row.facts_hash.as_str()));
        Ok(row.map(|row| row.facts_hash))
    }

    /// Records that pull requests did not change since their cursors.
    pub async fn record_unchanged(&self, observed: &[StoredPullRequest]) -> Result<()> {
        let tasks: Vec<_> = observed.iter().map(|it| it.task.0).collect();
        let hints: Vec<_> = observed.iter().map(|it| to_i64(it.hints)).collect();
        sqlx::query!(
            "UPDATE pull_requests SET
                hints_seen = greatest(hints_seen, seen.hints), observed_at = clock_timestamp()
             FROM unnest($1::uuid [], $2::bigint []) AS seen (task, hints)
             WHERE pull_requests.task = seen.task",
            &tasks[..],
            &hints[..],
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Leaves a hint that a pull request changed. Returns `false` if Tamma did not open it.
    pub async fn mark_pull_request_dirty(
        &self,
        forge: &str,
        repository: &str,
        number: u64,
    ) -> Result<bool> {
        let marked = sqlx::query_scalar!(
            "WITH marked AS (
                UPDATE pull_requests SET hints = hints + 1
                WHERE forge = $1 AND lower(repository) = lower($2) AND number = $3
                RETURNING forge
             ),
             told AS (SELECT pg_notify($4, forge) AS done FROM marked)
             SELECT count(*) AS \"count!\" FROM told",
            forge,
            repository,
            to_i64(number),
            HINT_CHANNEL,
        )
        .fetch_one(&self.steps)
        .await?;
        Ok(marked > 0)
    }

    /// Leaves a hint that some pull request of a repository changed: for webhooks that name a commit
    /// only.
    pub async fn mark_repository_dirty(&self, forge: &str, repository: &str) -> Result<bool> {
        let marked = sqlx::query_scalar!(
            "WITH marked AS (
                UPDATE pull_requests SET hints = hints + 1
                WHERE forge = $1 AND lower(repository) = lower($2) AND status = 'open'
                RETURNING forge
             ),
             told AS (SELECT pg_notify($3, forge) AS done FROM marked)
             SELECT count(*) AS \"count!\" FROM told",
            forge,
            repository,
            HINT_CHANNEL,
        )
        .fetch_one(&self.steps)
        .await?;
        Ok(marked > 0)
    }

    /// Records that the workflow of a task has received the facts with this hash.
    pub async fn set_delivered(&self, task: TaskId, hash: &str) -> Result<()> {
        sqlx::query!("UPDATE pull_requests SET delivered = $2 WHERE task = $1", task.0, hash)
            .execute(&self.steps)
            .await?;
        Ok(())
    }

    /// Subscribes to hints about pull requests and issues, from all servers.
    pub async fn forge_hints(&self) -> Result<ForgeHints> {
        Ok(ForgeHints { listener: Listener::open(&self.lists, HINT_CHANNEL).await? })
    }
}

impl ForgeHints {
    /// Waits for the next hint, and returns the name of its forge. Returns `None` after a
    /// reconnection, when hints of any forge may have been missed.
    ///
    /// Fails only if the database rejects the subscription.
    pub async fn next(&mut self) -> Result<Option<String>> {
        Ok(match self.listener.next().await? {
            Notification::Payload(forge) => Some(forge),
            Notification::Reconnected => None,
        })
    }
}

fn read_row(row: Row) -> Result<StoredPullRequest> {
    let what = "pull request";
    let key = row.task.to_string();
    let decode = move || -> Result<StoredPullRequest, CorruptData> {
        Ok(StoredPullRequest {
            task: TaskId(row.task),
            project: ProjectId(row.project),
            forge: row.forge,
            repository: row.repository,
            number: read_number(what, row.number)?,
            url: row.url,
            branch: row.branch,
            base_branch: row.base_branch,
            status: read_word(what, row.status)?,
            facts: row.facts.map(|facts| read(what, facts)).transpose()?,
            facts_hash: row.facts_hash,
            cursor: row.cursor,
            hints: read_number(what, row.hints)?,
            is_dirty: row.hints > row.hints_seen,
            observed_at: row.observed_at,
            read_at: row.read_at,
            delivered: row.delivered,
            merged_commit: row.merged_commit.map(|it| read_word(what, it)).transpose()?,
            merged_at: row.merged_at,
            opened_at: row.opened_at,
        })
    };
    decode().map_err(|damage| Error::Corrupt(damage.with_key(key)))
}
