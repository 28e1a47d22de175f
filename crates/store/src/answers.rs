//! What jobs answered, so that a job that is asked again after a crash answers the same.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tamma_core::ids::TaskId;

use crate::connection::Store;
use crate::error::{Damage, Error, Result};
use crate::spelling::{json, read, read_number};

impl Store {
    /// Keeps what a job answered. The first answer stays.
    pub async fn save_answer(
        &self,
        task: TaskId,
        ticket: u32,
        answer: &(impl Serialize + Sync),
    ) -> Result<()> {
        sqlx::query!(
            "INSERT INTO answers (task, ticket, answer) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
            task.0,
            i64::from(ticket),
            json(answer),
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// What a job answered, if it has.
    pub async fn answer<T: DeserializeOwned>(
        &self,
        task: TaskId,
        ticket: u32,
    ) -> Result<Option<T>> {
        let found = sqlx::query_scalar!(
            "SELECT answer FROM answers WHERE task = $1 AND ticket = $2",
            task.0,
            i64::from(ticket),
        )
        .fetch_optional(&self.steps)
        .await?;
        found.map(|answer| kept(task, answer)).transpose()
    }

    /// What the jobs of a task answered, by their tickets, the newest first.
    pub async fn answers<T: DeserializeOwned>(&self, task: TaskId) -> Result<Vec<(u32, T)>> {
        let found = sqlx::query!(
            "SELECT ticket, answer FROM answers WHERE task = $1 ORDER BY ticket DESC LIMIT 100",
            task.0,
        )
        .fetch_all(&self.steps)
        .await?;
        let damaged = |damage: Damage| Error::Corrupt(damage.of(task.to_string()));
        found
            .into_iter()
            .map(|row| {
                let ticket = read_number("answer", row.ticket).map_err(damaged)?;
                Ok((ticket, kept(task, row.answer)?))
            })
            .collect()
    }
}

fn kept<T: DeserializeOwned>(task: TaskId, answer: serde_json::Value) -> Result<T> {
    read("answer", answer).map_err(|damage| Error::Corrupt(damage.of(task.to_string())))
}
