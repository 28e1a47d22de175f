//! What our own checks said of commits: of those that tasks made, and of those they start from.

use tamma_core::gate::GateResult;
use tamma_core::ids::{CommitId, Digest, ProjectId, TaskId};
use tamma_core::review::record::Record;
use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::error::{Damage, Error, Result};
use crate::spelling::{json, read, read_number};

/// One check of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The job that made it.
    pub ticket: u32,
    /// The iteration that was checked, from 1.
    pub iteration: u16,
    /// What it said.
    pub record: Record,
    /// When.
    pub at: Timestamp,
}

impl Store {
    /// Keeps what a check said. The first of a job stays.
    pub async fn keep_check(
        &self,
        task: TaskId,
        ticket: u32,
        iteration: u16,
        record: &Record,
    ) -> Result<()> {
        sqlx::query!(
            "INSERT INTO checks (task, ticket, iteration, record) VALUES ($1, $2, $3, $4)
             ON CONFLICT DO NOTHING",
            task.0,
            i64::from(ticket),
            i32::from(iteration),
            json(record),
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// What the checks of a task's commits said, in their order.
    pub async fn checks(&self, task: TaskId) -> Result<Vec<Check>> {
        let rows = sqlx::query!(
            "SELECT ticket, iteration, record, at FROM checks WHERE task = $1 ORDER BY ticket",
            task.0,
        )
        .fetch_all(&self.steps)
        .await?;
        let what = "check";
        rows.into_iter()
            .map(|row| {
                Ok(Check {
                    ticket: read_number(what, row.ticket)?,
                    iteration: read_number(what, row.iteration.into())?,
                    record: read(what, row.record)?,
                    at: row.at,
                })
            })
            .collect::<Result<_, Damage>>()
            .map_err(|damage| damage.of(task.to_string()).into())
    }

    /// Keeps what a gate says of a commit that work starts from. `gate` is the hash of how it is run.
    /// The first result stays.
    pub async fn keep_baseline(
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

    /// What a gate says of a commit that work starts from, if that is known.
    pub async fn baseline(
        &self,
        project: ProjectId,
        commit: CommitId,
        gate: Digest,
    ) -> Result<Option<GateResult>> {
        let found = sqlx::query_scalar!(
            "SELECT result FROM baselines WHERE project = $1 AND commit = $2 AND gate = $3",
            project.0,
            commit.to_string(),
            gate.to_string(),
        )
        .fetch_optional(&self.steps)
        .await?;
        let damaged = |damage: Damage| Error::Corrupt(damage.of(commit.to_string()));
        found.map(|result| read("baseline", result).map_err(damaged)).transpose()
    }
}
