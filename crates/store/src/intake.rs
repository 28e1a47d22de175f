//! Issues that became tasks, and the position of the poller in each repository.

use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::task_loop::Timestamp;
use uuid::Uuid;

use crate::connection::Store;
use crate::encoding::read_number;
use crate::error::{Error, Result};
use crate::pull_requests::HINT_CHANNEL;
use crate::steps::to_i64;

/// Position of the poller in a repository.
#[derive(Debug, Clone, PartialEq)]
pub struct ForgeCursor {
    /// Name of the forge.
    pub forge: String,
    /// Repository in the forge, such as `owner/name`.
    pub repository: String,
    /// Issues changed until then were looked at; `None` before the first look.
    pub intake_until: Option<Timestamp>,
    /// Number of hints that an issue changed. Saving the cursor covers them.
    pub hints: u64,
    /// A webhook says that an issue changed since the cursor was saved.
    pub is_dirty: bool,
    /// No request before then.
    pub blocked_until: Option<Timestamp>,
    /// Part of the quota that is left, from 0 to 1.
    pub quota_left: Option<f64>,
    /// Last time that the poller worked on the repository.
    pub polled_at: Option<Timestamp>,
}

/// Issue that became a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssueTask {
    /// Name of the forge.
    pub forge: String,
    /// Repository in the forge, such as `owner/name`.
    pub repository: String,
    /// Number of the issue.
    pub number: u64,
    /// Task. It may not exist yet: a server can die after the claim.
    pub task: TaskId,
    /// Project of the task.
    pub project: ProjectId,
    /// Address of the issue's page.
    pub url: String,
    /// Hash of the title and the text that the task has.
    pub revision: String,
    /// Last comment that reached the task.
    pub last_comment: Option<String>,
}

struct Row {
    forge: String,
    repository: String,
    number: i64,
    task: Uuid,
    project: Uuid,
    url: String,
    revision: String,
    last_comment: Option<String>,
}

/// Selects issues that match an SQL condition.
macro_rules! rows {
    ($rest:tt $(, $argument:expr)* $(,)?) => {
        sqlx::query_as!(
            Row,
            "SELECT forge, repository, number, task, project, url, revision, last_comment
             FROM issue_tasks WHERE " + $rest
            $(, $argument)*
        )
    };
}

impl Store {
    /// Returns the position of the poller in a repository. An unknown repository is at the start.
    pub async fn forge_cursor(&self, forge: &str, repository: &str) -> Result<ForgeCursor> {
        let row = sqlx::query!(
            "SELECT intake_until, hints, hints_seen, blocked_until, quota_left, polled_at
             FROM forge_cursors WHERE forge = $1 AND repository = lower($2)",
            forge,
            repository,
        )
        .fetch_optional(&self.steps)
        .await?;
        let mut cursor = ForgeCursor {
            forge: forge.to_owned(),
            repository: repository.to_owned(),
            intake_until: None,
            hints: 0,
            is_dirty: true,
            blocked_until: None,
            quota_left: None,
            polled_at: None,
        };
        if let Some(row) = row {
            cursor.intake_until = row.intake_until;
            cursor.hints = row.hints.unsigned_abs();
            cursor.is_dirty = row.hints > row.hints_seen;
            cursor.blocked_until = row.blocked_until;
            cursor.quota_left = row.quota_left;
            cursor.polled_at = row.polled_at;
        }
        Ok(cursor)
    }

    /// Saves the position of the poller. Hints that came after the cursor was read stay.
    pub async fn save_forge_cursor(&self, cursor: &ForgeCursor) -> Result<()> {
        sqlx::query!(
            "INSERT INTO forge_cursors AS stored
                (
                    forge, repository, intake_until, hints, hints_seen, blocked_until, quota_left,
                    polled_at
                )
             VALUES ($1, lower($2), $3, $4, $4, $5, $6, clock_timestamp())
             ON CONFLICT (forge, repository) DO UPDATE SET
                intake_until = excluded.intake_until,
                hints_seen = greatest(stored.hints_seen, excluded.hints_seen),
                blocked_until = excluded.blocked_until, quota_left = excluded.quota_left,
                polled_at = excluded.polled_at",
            cursor.forge,
            cursor.repository,
            cursor.intake_until,
            to_i64(cursor.hints),
            cursor.blocked_until,
            cursor.quota_left,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Leaves a hint that an issue of a repository changed.
    pub async fn mark_intake_dirty(&self, forge: &str, repository: &str) -> Result<()> {
        sqlx::query!(
            "WITH marked AS (
                INSERT INTO forge_cursors AS stored (forge, repository) VALUES ($1, lower($2))
                ON CONFLICT (forge, repository) DO UPDATE SET hints = stored.hints + 1
                RETURNING forge
             )
             SELECT pg_notify($3, forge) FROM marked",
            forge,
            repository,
            HINT_CHANNEL,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Claims an issue for a task. Returns `false` if it has a task already.
    ///
    /// The claim comes before the task. A server that dies in between leaves a claim; whoever finds
    /// it creates the task with the claimed ID.
    pub async fn claim_issue(&self, issue: &IssueTask) -> Result<bool> {
        let claimed = sqlx::query!(
            "INSERT INTO issue_tasks
                (forge, repository, number, task, project, url, revision, last_comment)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
             ON CONFLICT (forge, lower(repository), number) DO NOTHING",
            issue.forge,
            issue.repository,
            to_i64(issue.number),
            issue.task.0,
            issue.project.0,
            issue.url,
            issue.revision,
            issue.last_comment,
        )
        .execute(&self.steps)
        .await?;
        Ok(claimed.rows_affected() > 0)
    }

    /// Returns the task of an issue, if it has one.
    pub async fn issue_task(
        &self,
        forge: &str,
        repository: &str,
        number: u64,
    ) -> Result<Option<IssueTask>> {
        let row = rows!(
            "forge = $1 AND lower(repository) = lower($2) AND number = $3",
            forge,
            repository,
            to_i64(number)
        );
        let row = row.fetch_optional(&self.steps).await?;
        row.filter(|row| self.can_read(ProjectId(row.project))).map(read_row).transpose()
    }

    /// Returns the issue that a task came from, if any.
    pub async fn issue_of_task(&self, task: TaskId) -> Result<Option<IssueTask>> {
        let row = rows!("task = $1", task.0).fetch_optional(&self.reads).await?;
        row.filter(|row| self.can_read(ProjectId(row.project))).map(read_row).transpose()
    }

    /// Saves the revision and the last comment that reached the task of an issue.
    pub async fn update_issue_task(&self, issue: &IssueTask) -> Result<()> {
        sqlx::query!(
            "UPDATE issue_tasks SET revision = $2, last_comment = $3 WHERE task = $1",
            issue.task.0,
            issue.revision,
            issue.last_comment,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }
}

fn read_row(row: Row) -> Result<IssueTask> {
    let number = read_number("issue", row.number)
        .map_err(|damage| Error::Corrupt(damage.with_key(row.task.to_string())))?;
    Ok(IssueTask {
        forge: row.forge,
        repository: row.repository,
        number,
        task: TaskId(row.task),
        project: ProjectId(row.project),
        url: row.url,
        revision: row.revision,
        last_comment: row.last_comment,
    })
}
