//! Gate results of commits: those that tasks produced, and the base commits.

use tamma_core::gate::GateResult;
use tamma_core::ids::{CommitId, Digest, ProjectId, TaskId};
use tamma_core::review::record::CheckRecord;
use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::encoding::{json, read, read_number};
use crate::error::{CorruptData, Error, Result};
use crate::texts::NewText;

/// Check of one commit of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitCheck {
    /// Number of the job that ran the check.
    pub job_number: u32,
    /// Iteration whose change was checked, from 1.
    pub iteration: u16,
    /// Results of the gates.
    pub record: CheckRecord,
    /// Time at which it was saved.
    pub at: Timestamp,
}

impl Store {
    /// Saves the check of a job. An existing one stays in place.
    pub async fn save_check(
        &self,
        task: TaskId,
        job_number: u32,
        iteration: u16,
        record: &CheckRecord,
    ) -> Result<()> {
        sqlx::query!(
            "INSERT INTO checks (task, ticket, iteration, record) VALUES ($1, $2, $3, $4)
             ON CONFLICT DO NOTHING",
            task.0,
            i64::from(job_number),
            i32::from(iteration),
            json(record),
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Saves the check of a job with a text that it refers to. An existing check stays in place.
    pub async fn save_check_with_text(
        &self,
        (task, job_number): (TaskId, u32),
        iteration: u16,
        record: &CheckRecord,
        text: &NewText,
    ) -> Result<()> {
        sqlx::query!(
            "WITH saved AS (
                INSERT INTO texts (hash, content) VALUES ($5, $6)
                ON CONFLICT (hash) DO UPDATE SET created_at = now()
                WHERE texts.created_at < now() - interval '1 day'
             )
             INSERT INTO checks (task, ticket, iteration, record) VALUES ($1, $2, $3, $4)
             ON CONFLICT DO NOTHING",
            task.0,
            i64::from(job_number),
            i32::from(iteration),
            json(record),
            text.hash,
            text.content,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Returns the checks of a task's commits, in order.
    pub async fn checks(&self, task: TaskId) -> Result<Vec<CommitCheck>> {
        let rows = sqlx::query!(
            "SELECT ticket, iteration, record, at FROM checks WHERE task = $1 ORDER BY ticket",
            task.0,
        )
        .fetch_all(&self.reads)
        .await?;
        let what = "check";
        rows.into_iter()
            .map(|row| {
                Ok(CommitCheck {
                    job_number: read_number(what, row.ticket)?,
                    iteration: read_number(what, row.iteration.into())?,
                    record: read(what, row.record)?,
                    at: row.at,
                })
            })
            .collect::<Result<_, CorruptData>>()
            .map_err(|damage| damage.with_key(task.to_string()).into())
    }

    /// Saves the result of a gate on a base commit. `gate` is the hash of its definition. An
    /// existing result stays in place.
    pub async fn save_baseline(
        &self,
        project: ProjectId,
        commit: CommitId,
        gate: Digest,
        result: &GateResult,
    ) -> Result<()> {
        sqlx::query!(
            "INSERT INTO baselines (project, commit, gate, result) VALUES ($1, $2, $3, $4)
             ON CONFLICT DO NOTHING",
            project.0,
            commit.to_string(),
            gate.to_string(),
            json(result),
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Returns the result of a gate on a base commit, if it is stored.
    pub async fn baseline(
        &self,
        project: ProjectId,
        commit: CommitId,
        gate: Digest,
    ) -> Result<Option<GateResult>> {
        let result = sqlx::query_scalar!(
            "SELECT result FROM baselines WHERE project = $1 AND commit = $2 AND gate = $3",
            project.0,
            commit.to_string(),
            gate.to_string(),
        )
        .fetch_optional(&self.steps)
        .await?;
        let damaged = |damage: CorruptData| Error::Corrupt(damage.with_key(commit.to_string()));
        result.map(|result| read("baseline", result).map_err(damaged)).transpose()
    }
}
