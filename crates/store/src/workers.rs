//! Workers that are there.

use chrono::TimeDelta;
use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::error::{Damage, Result};
use crate::spelling::read_number;

/// How long a worker counts as there after it has said so. It says so every ten seconds.
const PATIENCE: TimeDelta = TimeDelta::seconds(60);

/// A worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    /// What it calls itself.
    pub name: String,
    /// How many runs it does at once.
    pub slots: u32,
    /// Since when it is there.
    pub started_at: Timestamp,
    /// When it last said so.
    pub seen_at: Timestamp,
}

impl Store {
    /// A worker is there.
    pub async fn worker_is_there(&self, name: &str, slots: u32) -> Result<()> {
        // Those that died without a word are forgotten after a day.
        sqlx::query!(
            "WITH gone AS (
                DELETE FROM workers WHERE seen_at < clock_timestamp() - interval '1 day'
             )
             INSERT INTO workers (name, slots, started_at, seen_at)
             VALUES ($1, $2, clock_timestamp(), clock_timestamp())
             ON CONFLICT (name) DO UPDATE SET slots = excluded.slots, seen_at = excluded.seen_at",
            name,
            i32::try_from(slots).unwrap_or(i32::MAX),
        )
        .execute(&self.lists)
        .await?;
        Ok(())
    }

    /// A worker has gone.
    pub async fn worker_is_gone(&self, name: &str) -> Result<()> {
        sqlx::query!("DELETE FROM workers WHERE name = $1", name).execute(&self.lists).await?;
        Ok(())
    }

    /// The workers that are there or were until lately, by name; with each whether it still says so.
    pub async fn workers(&self) -> Result<Vec<(Worker, bool)>> {
        let rows = sqlx::query!(
            "SELECT name, slots, started_at, seen_at, clock_timestamp() AS \"now!\"
             FROM workers ORDER BY name"
        )
        .fetch_all(&self.lists)
        .await?;
        let workers = rows.into_iter().map(|row| {
            let is_there = row.now - row.seen_at <= PATIENCE;
            let worker = Worker {
                name: row.name,
                slots: read_number("worker", row.slots.into())?,
                started_at: row.started_at,
                seen_at: row.seen_at,
            };
            Ok((worker, is_there))
        });
        Ok(workers.collect::<Result<_, Damage>>()?)
    }
}
