//! Jobs in progress that a worker runs inside a workflow task.

use tamma_core::ids::TaskId;

use crate::connection::Store;
use crate::encoding::read_number;
use crate::error::{CorruptData, Result};

/// Starts of a job inside a workflow task that have not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnendedStarts {
    /// Processes that have started the job and not ended it, without the current one. They probably died.
    pub lost_processes: u32,
    /// Starts before the current one.
    pub earlier: u32,
}

impl UnendedStarts {
    /// Decodes the columns of a row.
    pub(crate) fn decode(lost: i64, starts: i64) -> std::result::Result<Self, CorruptData> {
        let number = |value| read_number::<u32>("inline job", value);
        let earlier = number(starts)?.saturating_sub(1);
        Ok(Self { lost_processes: number(lost)?, earlier })
    }
}

impl Store {
    /// Records that a process starts a job.
    pub async fn begin_inline_job(
        &self,
        (task, job_number): (TaskId, u32),
        process: &str,
    ) -> Result<UnendedStarts> {
        let row = sqlx::query!(
            "INSERT INTO inline_jobs (task, ticket, process) VALUES ($1, $2, $3)
             ON CONFLICT (task, ticket) DO UPDATE SET
                process = excluded.process,
                others = other_processes(inline_jobs, excluded.process),
                starts = inline_jobs.starts + 1
             RETURNING cardinality(others)::bigint AS \"lost!\", starts",
            task.0,
            i64::from(job_number),
            process,
        )
        .fetch_one(&self.steps)
        .await?;
        Ok(UnendedStarts::decode(row.lost, row.starts)?)
    }

    /// Records that a job has ended, with or without success.
    pub async fn end_inline_job(&self, (task, job_number): (TaskId, u32)) -> Result<()> {
        sqlx::query!(
            "DELETE FROM inline_jobs WHERE task = $1 AND ticket = $2",
            task.0,
            i64::from(job_number),
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }
}
