//! Workers that report to the database.

use chrono::TimeDelta;
use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::encoding::read_number;
use crate::error::{CorruptData, Result};
use crate::schema::newest_version;

/// Time after its last heartbeat until a worker or a server counts as offline. They report every 10 s.
pub(crate) const ONLINE_TIMEOUT: TimeDelta = TimeDelta::seconds(60);

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
    /// Newest version of the schema that its program knows; `None` from workers that do not report it.
    pub schema_version: Option<i64>,
}

impl Store {
    /// Records a heartbeat of a worker, with the isolation of agents on its machine in words. Returns
    /// `true` during maintenance.
    pub async fn record_heartbeat(&self, name: &str, slots: u32, sandbox: &str) -> Result<bool> {
        // Workers that died without signing off are removed after a day.
        let is_maintained = sqlx::query_scalar!(
            "WITH gone AS (
                DELETE FROM workers WHERE seen_at < clock_timestamp() - interval '1 day'
             )
             INSERT INTO workers (name, slots, sandbox, schema_version, started_at, seen_at)
             VALUES ($1, $2, $3, $4, clock_timestamp(), clock_timestamp())
             ON CONFLICT (name) DO UPDATE SET
                slots = excluded.slots, sandbox = excluded.sandbox,
                schema_version = excluded.schema_version, seen_at = excluded.seen_at
             RETURNING EXISTS (SELECT FROM maintenance) AS \"is_maintained!\"",
            name,
            i32::try_from(slots).unwrap_or(i32::MAX),
            sandbox,
            newest_version(),
        )
        .fetch_one(&self.lists)
        .await?;
        Ok(is_maintained)
    }

    /// Removes a worker that shuts down.
    pub async fn remove_worker(&self, name: &str) -> Result<()> {
        sqlx::query!("DELETE FROM workers WHERE name = $1", name).execute(&self.lists).await?;
        Ok(())
    }

    /// Returns current and recent workers by name, each with `true` if it is online.
    pub async fn workers(&self) -> Result<Vec<(Worker, bool)>> {
        let rows = sqlx::query!(
            "SELECT name, slots, sandbox, schema_version, started_at, seen_at,
                clock_timestamp() AS \"now!\"
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
                schema_version: row.schema_version,
            };
            Ok((worker, is_there))
        });
        Ok(workers.collect::<Result<_, CorruptData>>()?)
    }
}
