//! Statistics for people: spend, active runs, and the use of agents and providers.

use chrono::NaiveDate;
use tamma_core::cost::Usd;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::task_loop::Timestamp;
use tamma_core::tier::Tier;

use crate::connection::Store;
use crate::encoding::read_word;
use crate::error::{CorruptData, Result};

/// Spend of one day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DailySpend {
    /// Day in UTC.
    pub day: NaiveDate,
    /// Sum of the known costs.
    pub usd: Usd,
    /// Number of jobs with unknown cost.
    pub unpriced_jobs: u64,
}

/// Spend on a job type or a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpendItem {
    /// Job type, or title of the task.
    pub what: String,
    /// ID of the task; `None` for a job type.
    pub task: Option<TaskId>,
    /// Sum of the known costs.
    pub usd: Usd,
    /// Number of jobs with unknown cost.
    pub unpriced_jobs: u64,
}

/// Run in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveRun {
    /// Task or pipeline that the run belongs to.
    pub task: TaskId,
    /// Title of the task, or ID of the story.
    pub title: String,
    /// Set if it is a phase of a pipeline.
    pub is_phase: bool,
    /// Name of the agent.
    pub agent: String,
    /// Model, if known.
    pub model: Option<String>,
    /// Purpose of the run, such as `plan` or `implement`.
    pub mode: String,
    /// Start of the run.
    pub started_at: Timestamp,
    /// Name of its worker, if known.
    pub worker: Option<String>,
}

/// Results of one agent with one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentUsage {
    /// Name of the agent.
    pub agent: String,
    /// Model, if known.
    pub model: Option<String>,
    /// Tier that it ran as.
    pub tier: Option<Tier>,
    /// Purposes of its runs, such as `plan` or `implement`.
    pub modes: Vec<String>,
    /// Number of runs.
    pub runs: u64,
    /// Number of reviewed tasks whose first implementation it made.
    pub judged: u64,
    /// Number of those that passed their first review.
    pub passed: u64,
    /// Mean cost of a run; `None` if no cost is known.
    pub mean_usd: Option<Usd>,
}

impl Store {
    /// Returns the spend of each day since a time.
    pub async fn spend_by_day(
        &self,
        project: Option<ProjectId>,
        since: Timestamp,
    ) -> Result<Vec<DailySpend>> {
        let rows = sqlx::query!(
            "SELECT
                (at AT TIME ZONE 'UTC')::date AS \"day!\",
                coalesce(sum(cost_usd), 0)::text AS \"usd!\",
                count(*) FILTER (WHERE cost_usd IS NULL) AS \"unknown!\"
             FROM usage WHERE ($1::uuid IS NULL OR project = $1) AND at >= $2
                AND ($3::bool OR project = ANY($4::uuid []))
             GROUP BY 1 ORDER BY 1",
            project.map(|project| project.0),
            since,
            self.reads_all(),
            self.readable_projects(),
        )
        .fetch_all(&self.lists)
        .await?;
        rows.into_iter()
            .map(|row| {
                let usd = read_word("spend", row.usd)?;
                Ok(DailySpend { day: row.day, usd, unpriced_jobs: row.unknown.unsigned_abs() })
            })
            .collect()
    }

    /// Returns the spend of each job type since a time, highest first.
    pub async fn spend_by_job(
        &self,
        project: Option<ProjectId>,
        since: Timestamp,
    ) -> Result<Vec<SpendItem>> {
        let rows = sqlx::query!(
            "SELECT job, coalesce(sum(cost_usd), 0)::text AS \"usd!\",
                count(*) FILTER (WHERE cost_usd IS NULL) AS \"unknown!\"
             FROM usage WHERE ($1::uuid IS NULL OR project = $1) AND at >= $2
                AND ($3::bool OR project = ANY($4::uuid []))
             GROUP BY job ORDER BY sum(cost_usd) DESC NULLS LAST, job",
            project.map(|project| project.0),
            since,
            self.reads_all(),
            self.readable_projects(),
        )
        .fetch_all(&self.lists)
        .await?;
        rows.into_iter()
            .map(|row| {
                let usd = read_word("spend", row.usd)?;
                let unpriced_jobs = row.unknown.unsigned_abs();
                Ok(SpendItem { what: row.job, task: None, usd, unpriced_jobs })
            })
            .collect()
    }

    /// Returns the most expensive tasks since a time.
    pub async fn costliest_tasks(
        &self,
        project: Option<ProjectId>,
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<SpendItem>> {
        let rows = sqlx::query!(
            "SELECT tasks.id, tasks.title, spent.usd::text AS \"usd!\",
                spent.unknown AS \"unknown!\"
             FROM (
                SELECT task, sum(cost_usd) AS usd,
                    count(*) FILTER (WHERE cost_usd IS NULL) AS unknown
                FROM usage WHERE ($1::uuid IS NULL OR project = $1) AND at >= $2
                    AND ($4::bool OR project = ANY($5::uuid []))
                GROUP BY task
             ) AS spent
             JOIN tasks ON tasks.id = spent.task
             WHERE spent.usd > 0 ORDER BY spent.usd DESC LIMIT $3",
            project.map(|project| project.0),
            since,
            i64::from(limit),
            self.reads_all(),
            self.readable_projects(),
        )
        .fetch_all(&self.lists)
        .await?;
        rows.into_iter()
            .map(|row| {
                let usd = read_word("spend", row.usd)?;
                let (task, unpriced_jobs) = (Some(TaskId(row.id)), row.unknown.unsigned_abs());
                Ok(SpendItem { what: row.title, task, usd, unpriced_jobs })
            })
            .collect()
    }

    /// Returns the runs of tasks and pipelines in progress, oldest first.
    pub async fn active_runs(&self) -> Result<Vec<ActiveRun>> {
        let rows = sqlx::query!(
            "SELECT runs.task, coalesce(tasks.title, pipelines.story_id) AS \"title!\",
                tasks.id IS NULL AS \"is_phase!\", runs.agent, runs.model, runs.mode,
                runs.started_at, runs.worker
             FROM runs
             LEFT JOIN tasks ON tasks.id = runs.task AND tasks.live
             LEFT JOIN pipelines ON pipelines.id = runs.task AND pipelines.live
             WHERE runs.ended_at IS NULL AND (tasks.id IS NOT NULL OR pipelines.id IS NOT NULL)
                AND ($1::bool OR runs.project = ANY($2::uuid []))
             ORDER BY runs.started_at LIMIT 500",
            self.reads_all(),
            self.readable_projects(),
        )
        .fetch_all(&self.lists)
        .await?;
        let running = rows.into_iter().map(|row| ActiveRun {
            task: TaskId(row.task),
            title: row.title,
            is_phase: row.is_phase,
            agent: row.agent,
            model: row.model,
            mode: row.mode,
            started_at: row.started_at,
            worker: row.worker,
        });
        Ok(running.collect())
    }

    /// Returns the results of each agent with each model since a time.
    pub async fn agent_usage(&self, since: Timestamp) -> Result<Vec<AgentUsage>> {
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
             WHERE runs.started_at >= $1 AND ($2::bool OR runs.project = ANY($3::uuid []))
             GROUP BY runs.agent, runs.model, runs.tier ORDER BY 1, 3, 2",
            since,
            self.reads_all(),
            self.readable_projects(),
        )
        .fetch_all(&self.lists)
        .await?;
        rows.into_iter()
            .map(|row| {
                let read = || -> Result<_, CorruptData> {
                    Ok(AgentUsage {
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

    /// Returns the providers that are blocked at `now`, each with the end of its block.
    pub async fn provider_blocks(&self, now: Timestamp) -> Result<Vec<(String, Timestamp)>> {
        let rows =
            sqlx::query!("SELECT provider, until FROM holds WHERE until > $1 ORDER BY 1", now)
                .fetch_all(&self.steps)
                .await?;
        Ok(rows.into_iter().map(|row| (row.provider, row.until)).collect())
    }

    /// Returns the number of unexpired leases by provider.
    pub async fn provider_leases(&self) -> Result<Vec<(String, u64)>> {
        let rows = sqlx::query!(
            "SELECT key, count(*) AS \"count!\" FROM leases
             WHERE kind = 'provider' AND until > clock_timestamp() GROUP BY key ORDER BY key"
        )
        .fetch_all(&self.steps)
        .await?;
        Ok(rows.into_iter().map(|row| (row.key, row.count.unsigned_abs())).collect())
    }
}
