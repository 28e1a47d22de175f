//! Job results. A job that is requested again after a crash returns the stored one.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tamma_core::ids::TaskId;

use crate::connection::Store;
use crate::encoding::{json, read, read_number};
use crate::error::{CorruptData, Error, Result};

impl Store {
    /// Saves the result of a job. An existing result stays in place.
    pub async fn save_job_result(
        &self,
        task: TaskId,
        job_number: u32,
        result: &(impl Serialize + Sync),
    ) -> Result<()> {
        sqlx::query!(
            "INSERT INTO answers (task, ticket, answer) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
            task.0,
            i64::from(job_number),
            json(result),
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Returns the result of a job, if one is stored.
    pub async fn job_result<T: DeserializeOwned>(
        &self,
        task: TaskId,
        job_number: u32,
    ) -> Result<Option<T>> {
        let row = sqlx::query_scalar!(
            "SELECT answer FROM answers WHERE task = $1 AND ticket = $2",
            task.0,
            i64::from(job_number),
        )
        .fetch_optional(&self.reads)
        .await?;
        row.map(|json| decode_result(task, json)).transpose()
    }

    /// Returns the results of a task's jobs by job number, newest first.
    pub async fn job_results<T: DeserializeOwned>(&self, task: TaskId) -> Result<Vec<(u32, T)>> {
        let rows = sqlx::query!(
            "SELECT ticket, answer FROM answers WHERE task = $1 ORDER BY ticket DESC LIMIT 100",
            task.0,
        )
        .fetch_all(&self.reads)
        .await?;
        let damaged = |damage: CorruptData| Error::Corrupt(damage.with_key(task.to_string()));
        rows.into_iter()
            .map(|row| {
                let job_number = read_number("answer", row.ticket).map_err(damaged)?;
                Ok((job_number, decode_result(task, row.answer)?))
            })
            .collect()
    }
}

fn decode_result<T: DeserializeOwned>(task: TaskId, json: serde_json::Value) -> Result<T> {
    read("answer", json).map_err(|damage| Error::Corrupt(damage.with_key(task.to_string())))
}
