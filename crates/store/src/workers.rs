//! Workers that report to the database.

use chrono::TimeDelta;
use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::encoding::read_number;
use crate::error::{CorruptData, Result};

/// Time after its last heartbeat until a worker counts as offline. Workers report every 10 s.
const ONLINE_TIMEOUT: TimeDelta = TimeDelta::seconds(60);

/// Worker, as it last reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    /// Name that the worker chose.
    pub name: String,
    /// Number of agent slots.
    pub slots: u32,
    /// Start time of the worker.
    pub started_at: Timestamp,
    /// Time of the last heartbeat.
    pub seen_at: Timestamp,
    /// Isolation of agents on its machine, in words; `None` from workers that do not report it.
    pub sandbox: Option<String>,
}

impl Store {
    /// Records a heartbeat of a worker, with the isolation of agents on its machine in words.
    pub async fn record_heartbeat(&self, name: &str, slots: u32, sandbox: &str) -> Result<()> {
        // Workers that died without signing off are removed after a day.
        sqlx::query!(
            "WITH gone AS (
                DELETE FROM workers WHERE seen_at < clock_timestamp() - interval '1 day'
             )
             INSERT INTO workers (name, slots, sandbox, started_at, seen_at)
             VALUES ($1, $2, $3, clock_timestamp(), clock_timestamp())
             ON CONFLICT (name) DO UPDATE SET
                slots = excluded.slots, sandbox = excluded.sandbox, seen_at = excluded.seen_at",
            name,
            i32::try_from(slots).unwrap_or(i32::MAX),
            sandbox,
        )
        .execute(&self.lists)
        .await?;
        Ok(())
    }

    /// Removes a worker that shuts down.
    pub async fn remove_worker(&self, name: &str) -> Result<()> {
        sqlx::query!("DELETE FROM workers WHERE name = $1", name).execute(&self.lists).await?;
        Ok(())
    }

    /// Returns current and recent workers by name, each with `true` if it is online.
    pub async fn workers(&self) -> Result<Vec<(Worker, bool)>> {
        let rows = sqlx::query!(
            "SELECT name, slots, sandbox, started_at, seen_at, clock_timestamp() AS \"now!\"
             FROM workers ORDER BY name"
        )
        .fetch_all(&self.steps)
        .await?;
        let workers = rows.into_iter().map(|row| {
            let is_there = row.now - row.seen_at <= ONLINE_TIMEOUT;
            let worker = Worker {
                name: row.name,
                slots: read_number("worker", row.slots.into())?,
                started_at: row.started_at,
                seen_at: row.seen_at,
                sandbox: row.sandbox,
            };
            Ok((worker, is_there))
        });
        Ok(workers.collect::<Result<_, CorruptData>>()?)
    }
}
