//! Jobs in progress that a worker runs inside a workflow task.

use tamma_core::ids::TaskId;

use crate::connection::Store;
use crate::encoding::read_number;
use crate::error::Result;

impl Store {
    /// Records that a process starts a job. Returns the number of other processes that have started
    /// the job and not ended it, so they probably died.
    pub async fn begin_inline_job(
        &self,
        (task, job_number): (TaskId, u32),
        process: &str,
    ) -> Result<u32> {
        let lost = sqlx::query_scalar!(
            "INSERT INTO inline_jobs (task, ticket, process) VALUES ($1, $2, $3)
             ON CONFLICT (task, ticket) DO UPDATE SET
                process = excluded.process,
                others = other_processes(inline_jobs, excluded.process)
             RETURNING cardinality(others)::bigint AS \"lost!\"",
            task.0,
            i64::from(job_number),
            process,
        )
        .fetch_one(&self.steps)
        .await?;
        Ok(read_number("inline job", lost)?)
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
