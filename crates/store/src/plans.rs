//! Plans: all versions, with their exact text.

use sqlx::types::Json;
use tamma_core::ids::{PlanHash, TaskId};
use tamma_core::plan::{Plan, PlanSummary};
use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::error::{Conflict, CorruptData, Error, Result};
use crate::steps::WriteOutcome;

impl Store {
    /// Saves a plan that a person has edited, and that is stored as a text, as a version of the
    /// task's plan. Plans of planners are saved already.
    pub async fn save_edited_plan(&self, task: TaskId, plan: &PlanSummary) -> Result<()> {
        if plan.stored_at.plan_version().is_some() {
            return Ok(());
        }
        let text = self.text(&plan.stored_at).await?;
        let content = serde_json::from_str(&text).map_err(|error| CorruptData {
            what: "edited plan",
            key: task.to_string(),
            reason: error.to_string(),
        })?;
        self.save_plan(task, (plan.version, None), &content).await?;
        Ok(())
    }

    /// Saves a version of a task's plan, made by the planner of a job or edited by a person.
    ///
    /// Saving the same plan again changes nothing. It replaces the plan of an earlier job, which no longer
    /// counts: otherwise, a later job would make another version. Other content under the same version is
    /// refused. A person's edit with the same content keeps the row, which the history may name already.
    pub async fn save_plan(
        &self,
        task: TaskId,
        (version, job_number): (u32, Option<u32>),
        plan: &Plan,
    ) -> Result<WriteOutcome> {
        let number = i32::try_from(version).unwrap_or(i32::MAX);
        let hash = plan.hash().to_string();
        let saved = sqlx::query!(
            "INSERT INTO plans (task, version, hash, content, job_number)
             VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (task, version) DO UPDATE SET
                hash = excluded.hash, content = excluded.content,
                job_number = excluded.job_number, created_at = excluded.created_at
             WHERE plans.job_number < coalesce(excluded.job_number, 9223372036854775807)
                AND (excluded.job_number IS NOT NULL OR plans.hash <> excluded.hash)",
            task.0,
            number,
            hash,
            Json(plan) as _,
            job_number.map(i64::from),
        )
        .execute(&self.steps)
        .await?;
        if saved.rows_affected() > 0 {
            return Ok(WriteOutcome::Inserted);
        }
        let stored = sqlx::query_scalar!(
            "SELECT hash FROM plans WHERE task = $1 AND version = $2",
            task.0,
            number
        )
        .fetch_one(&self.steps)
        .await?;
        if stored == hash {
            Ok(WriteOutcome::AlreadyPresent)
        } else {
            Err(Conflict::DifferentPlan { task, version }.into())
        }
    }

    /// Returns a version of a task's plan if the planner of this job made it.
    pub async fn plan_of_job(
        &self,
        task: TaskId,
        version: u32,
        job_number: u32,
    ) -> Result<Option<Plan>> {
        let row = sqlx::query!(
            // Workers of earlier versions save no job.
            "SELECT hash, content::text AS \"content!\" FROM plans
             WHERE task = $1 AND version = $2 AND (job_number = $3 OR job_number IS NULL)",
            task.0,
            i32::try_from(version).unwrap_or(i32::MAX),
            i64::from(job_number),
        )
        .fetch_optional(&self.reads)
        .await?;
        Ok(row.map(|row| read(task, &row.hash, &row.content)).transpose()?)
    }

    /// Returns one version of a task's plan.
    pub async fn plan(&self, task: TaskId, version: u32) -> Result<Plan> {
        let row = sqlx::query!(
            "SELECT hash, content::text AS \"content!\" FROM plans WHERE task = $1 AND version = $2",
            task.0,
            i32::try_from(version).unwrap_or(i32::MAX),
        )
        .fetch_optional(&self.reads)
        .await?
        .ok_or_else(|| not_found(format!("{task} version {version}")))?;
        Ok(read(task, &row.hash, &row.content)?)
    }

    /// Returns all versions of a task's plan in order, each with the time of its submission.
    pub async fn plan_versions(&self, task: TaskId) -> Result<Vec<(u32, Timestamp, Plan)>> {
        let rows = sqlx::query!(
            "SELECT version, created_at, hash, content::text AS \"content!\" FROM plans
             WHERE task = $1 ORDER BY version",
            task.0,
        )
        .fetch_all(&self.reads)
        .await?;
        let version = |row: i32| row.unsigned_abs();
        rows.into_iter()
            .map(|row| {
                Ok((version(row.version), row.created_at, read(task, &row.hash, &row.content)?))
            })
            .collect()
    }

    /// Returns the newest version of a task's plan with this hash.
    pub async fn plan_by_hash(&self, task: TaskId, hash: PlanHash) -> Result<(u32, Plan)> {
        let row = sqlx::query!(
            "SELECT version, hash, content::text AS \"content!\" FROM plans
             WHERE task = $1 AND hash = $2 ORDER BY version DESC LIMIT 1",
            task.0,
            hash.to_string(),
        )
        .fetch_optional(&self.reads)
        .await?
        .ok_or_else(|| not_found(format!("{task} hash {hash}")))?;
        Ok((row.version.unsigned_abs(), read(task, &row.hash, &row.content)?))
    }
}

fn not_found(key: String) -> Error {
    Error::NotFound { what: "plan", key }
}

/// Parses a plan and verifies its hash, so that only the approved content is used.
fn read(task: TaskId, hash: &str, content: &str) -> Result<Plan, CorruptData> {
    let damage = |reason| CorruptData { what: "plan", key: task.to_string(), reason };
    let plan: Plan = serde_json::from_str(content).map_err(|error| damage(error.to_string()))?;
    if plan.hash().to_string() == hash {
        Ok(plan)
    } else {
        Err(damage("the content does not match its hash".to_owned()))
    }
}
