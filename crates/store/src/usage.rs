//! What jobs have used: tokens, and money where it is known.

use tamma_core::cost::{Cost, Tokens, Usage, Usd};
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::task_loop::{JobKind, Timestamp};

use crate::connection::Store;
use crate::error::{Damage, Result};
use crate::record::{Written, no_task, signed};
use crate::spelling::{read_number, read_word, word};

/// What one job has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    /// The number of the job.
    pub ticket: u32,
    /// What kind of job it was.
    pub job: JobKind,
    /// When it ended.
    pub at: Timestamp,
    /// What it used.
    pub usage: Usage,
}

/// What jobs have used together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Total {
    /// How many jobs.
    pub jobs: u64,
    /// Tokens of all kinds.
    pub tokens: u64,
    /// Dollars that are known.
    pub usd: Usd,
    /// Jobs whose cost nobody could tell, which is not zero.
    pub unknown: u64,
}

impl Store {
    /// Books what a job has used that no step tells of: the lesson of a task that has ended. The
    /// same ticket is booked once.
    pub async fn book(&self, task: TaskId, used: &Used) -> Result<Written> {
        let cost = match used.usage.cost {
            Cost::Known(usd) => Some(word(&usd)),
            Cost::Unknown => None,
        };
        let Tokens { input, cached, output } = used.usage.tokens;
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
            i64::from(used.ticket),
            word(&used.job),
            used.at,
            signed(input),
            signed(cached),
            signed(output),
            cost,
        )
        .fetch_one(&self.steps)
        .await?;
        match (row.owners, row.booked) {
            (0, _) => Err(no_task(task.0)),
            (_, 0) => Ok(Written::Before),
            _ => Ok(Written::Now),
        }
    }

    /// What a task's jobs have used, one by one, in their order.
    pub async fn usage(&self, task: TaskId) -> Result<Vec<Used>> {
        let rows = sqlx::query!(
            r#"
            SELECT
                ticket, job, at, tokens_input, tokens_cached, tokens_output,
                cost_usd::text AS cost
            FROM usage WHERE task = $1 ORDER BY ticket
            "#,
            task.0
        )
        .fetch_all(&self.steps)
        .await?;
        rows.into_iter()
            .map(|row| {
                Ok(Used {
                    ticket: read_number("usage", row.ticket)?,
                    job: read_word("usage", row.job)?,
                    at: row.at,
                    usage: Usage {
                        tokens: Tokens {
                            input: read_number("usage", row.tokens_input)?,
                            cached: read_number("usage", row.tokens_cached)?,
                            output: read_number("usage", row.tokens_output)?,
                        },
                        cost: match row.cost {
                            Some(cost) => Cost::Known(read_word("usage", cost)?),
                            None => Cost::Unknown,
                        },
                    },
                })
            })
            .collect::<Result<_, Damage>>()
            .map_err(|damage| damage.of(task.to_string()).into())
    }

    /// What a project's jobs have used together since a moment.
    pub async fn spent(&self, project: ProjectId, since: Timestamp) -> Result<Total> {
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
        .fetch_one(&self.steps)
        .await?;
        let total = || {
            Ok::<_, Damage>(Total {
                jobs: read_number("usage", row.jobs)?,
                tokens: read_number("usage", row.tokens)?,
                usd: read_word("usage", row.usd)?,
                unknown: read_number("usage", row.unknown)?,
            })
        };
        total().map_err(|damage| damage.of(project.to_string()).into())
    }
}
