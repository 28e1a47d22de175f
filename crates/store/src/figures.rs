//! Figures for people: what was spent and where, and what runs at the moment.

use chrono::NaiveDate;
use tamma_core::cost::Usd;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::task_loop::Timestamp;
use tamma_core::tier::Tier;

use crate::connection::Store;
use crate::error::{Damage, Result};
use crate::spelling::read_word;

/// What was spent on a day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaySpend {
    /// The day, in UTC.
    pub day: NaiveDate,
    /// Dollars that are known.
    pub usd: Usd,
    /// Jobs whose cost nobody could tell.
    pub unknown: u64,
}

/// What was spent on something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpendOn {
    /// On what: a kind of job, or a task's title.
    pub what: String,
    /// The task, where it is one.
    pub task: Option<TaskId>,
    /// Dollars that are known.
    pub usd: Usd,
}

/// A run that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// The task.
    pub task: TaskId,
    /// Its title.
    pub title: String,
    /// The agent.
    pub agent: String,
    /// The model, if it is known.
    pub model: Option<String>,
    /// What it is for.
    pub mode: String,
    /// Since when.
    pub started_at: Timestamp,
    /// The worker that does it, if that is known.
    pub worker: Option<String>,
}

/// How an agent did with a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineUse {
    /// The agent.
    pub agent: String,
    /// The model, if it is known.
    pub model: Option<String>,
    /// The tier it stood for.
    pub tier: Option<Tier>,
    /// What it was for.
    pub modes: Vec<String>,
    /// How many runs.
    pub runs: u64,
    /// How many tasks it was the first to implement and were judged.
    pub judged: u64,
    /// How many of those passed their first review.
    pub passed: u64,
    /// What one has cost on average, where that is known.
    pub mean_usd: Option<Usd>,
}

impl Store {
    /// What was spent on each day since a moment.
    pub async fn spend_by_day(
        &self,
        project: Option<ProjectId>,
        since: Timestamp,
    ) -> Result<Vec<DaySpend>> {
        let rows = sqlx::query!(
            "SELECT
                (at AT TIME ZONE 'UTC')::date AS \"day!\",
                coalesce(sum(cost_usd), 0)::text AS \"usd!\",
                count(*) FILTER (WHERE cost_usd IS NULL) AS \"unknown!\"
             FROM usage WHERE ($1::uuid IS NULL OR project = $1) AND at >= $2
             GROUP BY 1 ORDER BY 1",
            project.map(|project| project.0),
            since,
        )
        .fetch_all(&self.lists)
        .await?;
        rows.into_iter()
            .map(|row| {
                let usd = read_word("spend", row.usd)?;
                Ok(DaySpend { day: row.day, usd, unknown: row.unknown.unsigned_abs() })
            })
            .collect()
    }

    /// What was spent on each kind of job since a moment, the most first.
    pub async fn spend_by_job(
        &self,
        project: Option<ProjectId>,
        since: Timestamp,
    ) -> Result<Vec<SpendOn>> {
        let rows = sqlx::query!(
            "SELECT job, coalesce(sum(cost_usd), 0)::text AS \"usd!\"
             FROM usage WHERE ($1::uuid IS NULL OR project = $1) AND at >= $2
             GROUP BY job ORDER BY sum(cost_usd) DESC NULLS LAST",
            project.map(|project| project.0),
            since,
        )
        .fetch_all(&self.lists)
        .await?;
        rows.into_iter()
            .map(|row| {
                let usd = read_word("spend", row.usd)?;
                Ok(SpendOn { what: row.job, task: None, usd })
            })
            .collect()
    }

    /// The tasks that have cost the most since a moment.
    pub async fn dearest_tasks(
        &self,
        project: Option<ProjectId>,
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<SpendOn>> {
        let rows = sqlx::query!(
            "SELECT tasks.id, tasks.title, spent.usd::text AS \"usd!\"
             FROM (
                SELECT task, sum(cost_usd) AS usd
                FROM usage WHERE ($1::uuid IS NULL OR project = $1) AND at >= $2
                GROUP BY task
             ) AS spent
             JOIN tasks ON tasks.id = spent.task
             WHERE spent.usd > 0 ORDER BY spent.usd DESC LIMIT $3",
            project.map(|project| project.0),
            since,
            i64::from(limit),
        )
        .fetch_all(&self.lists)
        .await?;
        rows.into_iter()
            .map(|row| {
                let usd = read_word("spend", row.usd)?;
                Ok(SpendOn { what: row.title, task: Some(TaskId(row.id)), usd })
            })
            .collect()
    }

    /// Runs that are under way, the oldest first.
    pub async fn running(&self) -> Result<Vec<Running>> {
        let rows = sqlx::query!(
            "SELECT runs.task, tasks.title, runs.agent, runs.model, runs.mode, runs.started_at,
                runs.worker
             FROM runs JOIN tasks ON tasks.id = runs.task
             WHERE runs.ended_at IS NULL AND tasks.live
             ORDER BY runs.started_at LIMIT 500"
        )
        .fetch_all(&self.lists)
        .await?;
        let running = rows.into_iter().map(|row| Running {
            task: TaskId(row.task),
            title: row.title,
            agent: row.agent,
            model: row.model,
            mode: row.mode,
            started_at: row.started_at,
            worker: row.worker,
        });
        Ok(running.collect())
    }

    /// How each agent did with each model since a moment.
    pub async fn engine_use(&self, since: Timestamp) -> Result<Vec<EngineUse>> {
        let rows = sqlx::query!(
            "SELECT
                runs.agent, runs.model, runs.tier, array_agg(DISTINCT runs.mode) AS \"modes!\",
                count(*) AS \"runs!\",
                count(DISTINCT first.task) AS \"judged!\",
                count(DISTINCT first.task) FILTER (WHERE first.outcome = 'passed') AS \"passed!\",
                avg(runs.cost_usd)::text AS mean
             FROM runs
             -- The first iteration of its task, where this run was in it.
             LEFT JOIN iterations AS first ON
                first.task = runs.task AND first.number = 1 AND first.outcome IS NOT NULL
                AND runs.mode = 'implement'
                AND runs.started_at BETWEEN first.started_at AND first.judged_at
             WHERE runs.started_at >= $1
             GROUP BY runs.agent, runs.model, runs.tier ORDER BY 1, 3, 2",
            since,
        )
        .fetch_all(&self.lists)
        .await?;
        rows.into_iter()
            .map(|row| {
                let read = || -> Result<_, Damage> {
                    Ok(EngineUse {
                        agent: row.agent,
                        model: row.model,
                        tier: row.tier.map(|tier| read_word("tier", tier)).transpose()?,
                        modes: row.modes,
                        runs: row.runs.unsigned_abs(),
                        judged: row.judged.unsigned_abs(),
                        passed: row.passed.unsigned_abs(),
                        mean_usd: row.mean.map(|mean| read_word("spend", mean)).transpose()?,
                    })
                };
                Ok(read()?)
            })
            .collect()
    }

    /// Providers that nobody may ask at the moment, and until when.
    pub async fn holds(&self, now: Timestamp) -> Result<Vec<(String, Timestamp)>> {
        let rows =
            sqlx::query!("SELECT provider, until FROM holds WHERE until > $1 ORDER BY 1", now)
                .fetch_all(&self.lists)
                .await?;
        Ok(rows.into_iter().map(|row| (row.provider, row.until)).collect())
    }

    /// Who has places, and how many, by what they are for.
    pub async fn places(&self, now: Timestamp) -> Result<Vec<(String, u64)>> {
        let rows = sqlx::query!(
            "SELECT key, count(*) AS \"count!\" FROM leases
             WHERE kind = 'provider' AND until > $1 GROUP BY key ORDER BY key",
            now
        )
        .fetch_all(&self.lists)
        .await?;
        Ok(rows.into_iter().map(|row| (row.key, row.count.unsigned_abs())).collect())
    }
}
