//! Plans: every version, to the letter.

use sqlx::types::Json;
use tamma_core::ids::{PlanHash, TaskId};
use tamma_core::plan::Plan;
use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::error::{Conflict, Damage, Error, Result};
use crate::record::Written;

impl Store {
    /// Keeps a version of a task's plan. The same plan again changes nothing; another one under the
    /// same number is refused.
    pub async fn save_plan(&self, task: TaskId, version: u32, plan: &Plan) -> Result<Written> {
        let number = i32::try_from(version).unwrap_or(i32::MAX);
        let hash = plan.hash().to_string();
        let saved = sqlx::query!(
            "INSERT INTO plans (task, version, hash, content) VALUES ($1, $2, $3, $4)
             ON CONFLICT (task, version) DO NOTHING",
            task.0,
            number,
            hash,
            Json(plan) as _,
        )
        .execute(&self.steps)
        .await?;
        if saved.rows_affected() > 0 {
            return Ok(Written::Now);
        }
        let stored = sqlx::query_scalar!(
            "SELECT hash FROM plans WHERE task = $1 AND version = $2",
            task.0,
            number
        )
        .fetch_one(&self.steps)
        .await?;
        if stored == hash {
            Ok(Written::Before)
        } else {
            Err(Conflict::OtherPlan { task, version }.into())
        }
    }

    /// One version of a task's plan.
    pub async fn plan(&self, task: TaskId, version: u32) -> Result<Plan> {
        let row = sqlx::query!(
            "SELECT hash, content::text AS \"content!\" FROM plans WHERE task = $1 AND version = $2",
            task.0,
            i32::try_from(version).unwrap_or(i32::MAX),
        )
        .fetch_optional(&self.steps)
        .await?
        .ok_or_else(|| not_found(format!("{task} version {version}")))?;
        Ok(read(task, &row.hash, &row.content)?)
    }

    /// Every version of a task's plan, in their order, with when each was handed in.
    pub async fn plan_versions(&self, task: TaskId) -> Result<Vec<(u32, Timestamp, Plan)>> {
        let rows = sqlx::query!(
            "SELECT version, created_at, hash, content::text AS \"content!\" FROM plans
             WHERE task = $1 ORDER BY version",
            task.0,
        )
        .fetch_all(&self.steps)
        .await?;
        let version = |row: i32| row.unsigned_abs();
        rows.into_iter()
            .map(|row| {
                Ok((version(row.version), row.created_at, read(task, &row.hash, &row.content)?))
            })
            .collect()
    }

    /// A task's plan with a hash, and its version: the newest, where a later one says the same.
    pub async fn plan_by_hash(&self, task: TaskId, hash: PlanHash) -> Result<(u32, Plan)> {
        let row = sqlx::query!(
            "SELECT version, hash, content::text AS \"content!\" FROM plans
             WHERE task = $1 AND hash = $2 ORDER BY version DESC LIMIT 1",
            task.0,
            hash.to_string(),
        )
        .fetch_optional(&self.steps)
        .await?
        .ok_or_else(|| not_found(format!("{task} hash {hash}")))?;
        Ok((row.version.unsigned_abs(), read(task, &row.hash, &row.content)?))
    }
}

fn not_found(key: String) -> Error {
    Error::NotFound { what: "plan", key }
}

/// Reads a plan, and makes sure that it still says what was approved.
fn read(task: TaskId, hash: &str, content: &str) -> Result<Plan, Damage> {
    let damage = |why| Damage { what: "plan", key: task.to_string(), why };
    let plan: Plan = serde_json::from_str(content).map_err(|error| damage(error.to_string()))?;
    if plan.hash().to_string() == hash {
        Ok(plan)
    } else {
        Err(damage("its content does not have its hash".to_owned()))
    }
}
