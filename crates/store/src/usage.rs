//! Usage of jobs: tokens, and cost where it is known.

use tamma_core::cost::{Cost, Tokens, Usage, Usd};
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::task_loop::{JobUsage, Timestamp};

use crate::connection::Store;
use crate::encoding::{read_number, read_word, word};
use crate::error::{CorruptData, Result};
use crate::steps::{WriteOutcome, task_not_found, to_i64};

/// Total usage of several jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageTotal {
    /// Number of jobs.
    pub jobs: u64,
    /// Tokens of all kinds.
    pub tokens: u64,
    /// Sum of the known costs.
    pub usd: Usd,
    /// Number of jobs with unknown cost, which is not zero.
    pub unpriced_jobs: u64,
}

impl Store {
    /// Records the usage of a job that no step reports: capturing the lessons of an ended task.
    ///
    /// Recording the same job number again changes nothing.
    pub async fn record_usage(
        &self,
        task: TaskId,
        at: Timestamp,
        used: &JobUsage,
    ) -> Result<WriteOutcome> {
        let cost = match used.usage.cost {
            Cost::Known(usd) => Some(word(&usd)),
            Cost::Unknown => None,
        };
        // Cache writes are part of the input.
        let Tokens { input, cached, output, .. } = used.usage.tokens;
        let row = sqlx::query!(
            r#"
            WITH owner AS (SELECT id, project FROM tasks WHERE id = $1),
            booked AS (
                INSERT INTO usage
                (task, ticket, project, job, at, tokens_input, tokens_cached, tokens_output, cost_usd)
                SELECT id, $2, project, $3, $4, $5, $6, $7, $8::text::numeric FROM owner
                ON CONFLICT (task, ticket) DO NOTHING
                RETURNING task
            )
            SELECT
                (SELECT count(*) FROM owner) AS "owners!",
                (SELECT count(*) FROM booked) AS "booked!"
            "#,
            task.0,
            i64::from(used.job_number),
            word(&used.job),
            at,
            to_i64(input),
            to_i64(cached),
            to_i64(output),
            cost,
        )
        .fetch_one(&self.steps)
        .await?;
        match (row.owners, row.booked) {
            (0, _) => Err(task_not_found(task.0)),
            (_, 0) => Ok(WriteOutcome::AlreadyPresent),
            _ => Ok(WriteOutcome::Inserted),
        }
    }

    /// Returns the usage of each job of a task with the end of the job, in order.
    pub async fn usage(&self, task: TaskId) -> Result<Vec<(Timestamp, JobUsage)>> {
        let rows = sqlx::query!(
            r#"
            SELECT
                ticket, job, at, tokens_input, tokens_cached, tokens_output,
                cost_usd::text AS cost
            FROM usage WHERE task = $1 ORDER BY ticket
            "#,
            task.0
        )
        .fetch_all(&self.reads)
        .await?;
        rows.into_iter()
            .map(|row| {
                let used = JobUsage {
                    job_number: read_number("usage", row.ticket)?,
                    job: read_word("usage", row.job)?,
                    usage: Usage {
                        tokens: Tokens {
                            input: read_number("usage", row.tokens_input)?,
                            cached: read_number("usage", row.tokens_cached)?,
                            output: read_number("usage", row.tokens_output)?,
                            ..Tokens::default()
                        },
                        cost: match row.cost {
                            Some(cost) => Cost::Known(read_word("usage", cost)?),
                            None => Cost::Unknown,
                        },
                    },
                };
                Ok((row.at, used))
            })
            .collect::<Result<_, CorruptData>>()
            .map_err(|damage| damage.with_key(task.to_string()).into())
    }

    /// Returns the total usage of a project since a time.
    pub async fn usage_since(&self, project: ProjectId, since: Timestamp) -> Result<UsageTotal> {
        let row = sqlx::query!(
            r#"
            SELECT
                count(*) AS "jobs!",
                coalesce(sum(tokens_input + tokens_cached + tokens_output), 0)::bigint AS "tokens!",
                coalesce(sum(cost_usd), 0)::text AS "usd!",
                count(*) FILTER (WHERE cost_usd IS NULL) AS "unknown!"
            FROM usage WHERE project = $1 AND at >= $2
            "#,
            project.0,
            since,
        )
        .fetch_one(&self.reads)
        .await?;
        let total = || {
            Ok::<_, CorruptData>(UsageTotal {
                jobs: read_number("usage", row.jobs)?,
                tokens: read_number("usage", row.tokens)?,
                usd: read_word("usage", row.usd)?,
                unpriced_jobs: read_number("usage", row.unknown)?,
            })
        };
        total().map_err(|damage| damage.with_key(project.to_string()).into())
    }
}
