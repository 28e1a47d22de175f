//! Removal of old data that nothing needs any more.

use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::error::Result;

/// Rows per statement. Few rows hold locks for a short time only.
const BATCH: i64 = 5_000;

/// Times before which data is removed. `None` keeps everything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetentionCutoffs {
    /// Job results, gate results and failures of closed tasks, and gate results of base commits, which
    /// can be computed again.
    pub job_results: Option<Timestamp>,
    /// Metered model calls, by whole months.
    pub model_calls: Option<Timestamp>,
    /// Deliveries of alerts that have ended, with their attempts.
    pub deliveries: Option<Timestamp>,
    /// Accepted webhooks, and settled effects and merge queue entries of closed tasks.
    pub forge_records: Option<Timestamp>,
    /// Texts that no open task refers to, and comments on lines of closed tasks.
    pub texts: Option<Timestamp>,
}

/// Number of removed rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemovedRows {
    /// Job results.
    pub job_results: u64,
    /// Gate results.
    pub checks: u64,
    /// Gate results of base commits.
    pub baselines: u64,
    /// Failures that lessons are derived from.
    pub faults: u64,
    /// Months of model calls.
    pub model_call_months: u64,
    /// Deliveries.
    pub deliveries: u64,
    /// Accepted webhooks.
    pub webhooks: u64,
    /// Settled effects outside.
    pub effects: u64,
    /// Settled merge queue entries.
    pub queue_entries: u64,
    /// Texts.
    pub texts: u64,
    /// Comments on lines.
    pub comments: u64,
    /// Unsent drafts of comments.
    pub drafts: u64,
    /// Marks of viewed files.
    pub viewed_files: u64,
    /// Runs that ended without removing their running tool calls.
    pub running_calls: u64,
    /// Starts of jobs inside workflow tasks that no later step has removed.
    pub inline_jobs: u64,
}

/// Deletes rows of tasks and stories that are not open.
macro_rules! of_closed_tasks {
    ($table:literal) => {
        concat!(
            "DELETE FROM ",
            $table,
            " AS old WHERE (old.task, old.ticket) IN (
                SELECT task, ticket FROM ",
            $table,
            " AS one
                WHERE at < $1
                    AND NOT EXISTS (SELECT FROM tasks WHERE tasks.id = one.task AND tasks.live)
                    AND NOT EXISTS (
                        SELECT FROM pipelines WHERE pipelines.id = one.task AND pipelines.live
                    )
                LIMIT $2
            )"
        )
    };
}

impl Store {
    /// Removes data from before the given times. It can be interrupted and repeated.
    pub async fn apply_retention(&self, cutoffs: &RetentionCutoffs) -> Result<RemovedRows> {
        let mut removed = self.remove_open_task_rows().await?;
        if let Some(before) = cutoffs.job_results {
            removed.job_results =
                self.delete_in_batches(of_closed_tasks!("answers"), before).await?;
            removed.checks = self.delete_in_batches(of_closed_tasks!("checks"), before).await?;
            let sql = "DELETE FROM baselines WHERE (project, commit, gate) IN (
                           SELECT project, commit, gate FROM baselines WHERE at < $1 LIMIT $2
                       )";
            removed.baselines = self.delete_in_batches(sql, before).await?;
            let sql = "DELETE FROM faults WHERE (project, digest, task) IN (
                           SELECT one.project, one.digest, one.task FROM faults AS one
                           WHERE one.at < $1 AND NOT EXISTS (
                               SELECT FROM tasks WHERE tasks.id = one.task AND tasks.live
                           )
                           LIMIT $2
                       )";
            removed.faults = self.delete_in_batches(sql, before).await?;
        }
        if let Some(before) = cutoffs.deliveries {
            let sql = "DELETE FROM deliveries WHERE id IN (
                           SELECT id FROM deliveries WHERE ended_at < $1 LIMIT $2
                       )";
            removed.deliveries = self.delete_in_batches(sql, before).await?;
        }
        if let Some(before) = cutoffs.forge_records {
            let sql = "DELETE FROM webhook_deliveries WHERE (forge, delivery) IN (
                           SELECT forge, delivery FROM webhook_deliveries
                           WHERE received_at < $1 LIMIT $2
                       )";
            removed.webhooks = self.delete_in_batches(sql, before).await?;
            // An open task may still ask for its effects.
            let sql = "DELETE FROM outward_effect WHERE key IN (
                           SELECT one.key FROM outward_effect AS one
                           WHERE one.settled_at < $1 AND NOT EXISTS (
                               SELECT FROM tasks WHERE tasks.id = one.task AND tasks.live
                           )
                           LIMIT $2
                       )";
            removed.effects = self.delete_in_batches(sql, before).await?;
            let sql = "DELETE FROM merge_queue_entries WHERE (task, head) IN (
                           SELECT one.task, one.head FROM merge_queue_entries AS one
                           WHERE one.settled_at < $1 AND NOT EXISTS (
                               SELECT FROM tasks WHERE tasks.id = one.task AND tasks.live
                           )
                           LIMIT $2
                       )";
            removed.queue_entries = self.delete_in_batches(sql, before).await?;
        }
        if let Some(before) = cutoffs.model_calls {
            let months: i32 = sqlx::query_scalar("SELECT forget_model_calls($1)")
                .bind(before)
                .fetch_one(&self.steps)
                .await?;
            removed.model_call_months = months.unsigned_abs().into();
        }
        // Last, because job results refer to texts.
        if let Some(before) = cutoffs.texts {
            let texts: i64 = sqlx::query_scalar("SELECT forget_texts($1)")
                .bind(before)
                .fetch_one(&self.steps)
                .await?;
            removed.texts = texts.unsigned_abs();
            let sql = "DELETE FROM line_comments WHERE id IN (
                           SELECT one.id FROM line_comments AS one
                           WHERE one.at < $1 AND NOT EXISTS (
                               SELECT FROM tasks WHERE tasks.id = one.task AND tasks.live
                           )
                           LIMIT $2
                       )";
            removed.comments = self.delete_in_batches(sql, before).await?;
        }
        Ok(removed)
    }

    /// Removes rows that only an open task needs from closed ones. Nobody can send a draft about a
    /// closed task, or continue its review.
    async fn remove_open_task_rows(&self) -> Result<RemovedRows> {
        let drafts = "DELETE FROM comment_drafts USING tasks
                      WHERE tasks.id = comment_drafts.task AND NOT tasks.live";
        let viewed = "DELETE FROM viewed_files USING tasks
                      WHERE tasks.id = viewed_files.task AND NOT tasks.live";
        // The last job of a task of an older edition has no later step that removes its start.
        let inline_jobs = "DELETE FROM inline_jobs
                           WHERE NOT EXISTS (
                               SELECT FROM tasks WHERE tasks.id = inline_jobs.task AND tasks.live
                           )";
        // The worker of such a run was lost.
        let running = "UPDATE runs SET running = NULL
                       WHERE running IS NOT NULL
                           AND NOT EXISTS (
                               SELECT FROM tasks WHERE tasks.id = runs.task AND tasks.live
                           )
                           AND NOT EXISTS (
                               SELECT FROM pipelines
                               WHERE pipelines.id = runs.task AND pipelines.live
                           )";
        Ok(RemovedRows {
            drafts: sqlx::query(drafts).execute(&self.steps).await?.rows_affected(),
            viewed_files: sqlx::query(viewed).execute(&self.steps).await?.rows_affected(),
            running_calls: sqlx::query(running).execute(&self.steps).await?.rows_affected(),
            inline_jobs: sqlx::query(inline_jobs).execute(&self.steps).await?.rows_affected(),
            ..RemovedRows::default()
        })
    }

    async fn delete_in_batches(&self, sql: &'static str, before: Timestamp) -> Result<u64> {
        let mut removed = 0;
        loop {
            let done = sqlx::query(sql).bind(before).bind(BATCH).execute(&self.steps).await?;
            removed += done.rows_affected();
            if done.rows_affected() < BATCH.unsigned_abs() {
                return Ok(removed);
            }
        }
    }
}
