//! Live notifications about tasks whose history has grown.
//!
//! The database notifies every listener of a task's newest entry. Notifications can be lost with a
//! connection, so tasks changed since then are read after every reconnection.
//!
//! A change can therefore be reported twice, and one report can cover several changes. Its sequence
//! number says how far the history can be read.

use std::collections::VecDeque;

use chrono::TimeDelta;
use tamma_core::ids::TaskId;
use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::error::Result;
use crate::listener::{Listener, Notification};

const CHANNEL: &str = "tamma_entries";

/// Overlap when catching up, because transactions do not commit in the order of their timestamps.
const OVERLAP: TimeDelta = TimeDelta::seconds(30);

/// Task whose history has grown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TaskChange {
    /// ID of the task.
    pub task: TaskId,
    /// Sequence number of its newest entry.
    pub sequence: u64,
}

/// Stream of task changes; see [`Store::task_changes`].
#[derive(Debug)]
pub struct TaskChanges {
    store: Store,
    listener: Listener,
    /// Time up to which all changes were reported, by the database's clock.
    caught_up_to: Timestamp,
    pending: VecDeque<TaskChange>,
}

impl Store {
    /// Subscribes to task changes. Every change from now on is reported.
    pub async fn task_changes(&self) -> Result<TaskChanges> {
        let listener = Listener::open(&self.lists, CHANNEL).await?;
        let caught_up_to = self.now().await?;
        Ok(TaskChanges { store: self.clone(), listener, caught_up_to, pending: VecDeque::new() })
    }

    /// Returns tasks and pipelines that changed since shortly before `since`, oldest change first.
    ///
    /// Transactions can commit late, so the range overlaps and the caller may know some of them
    /// already. `since` is by the database's clock.
    pub async fn changed_since(&self, since: Timestamp) -> Result<Vec<TaskChange>> {
        Ok(self.written_since(since - OVERLAP).await?.into())
    }

    /// Returns the current time of the database.
    pub async fn now(&self) -> Result<Timestamp> {
        let now = sqlx::query_scalar!(r#"SELECT clock_timestamp() AS "now!""#);
        Ok(now.fetch_one(&self.lists).await?)
    }

    /// Returns tasks and pipelines that changed since a time, by the database's clock.
    async fn written_since(&self, since: Timestamp) -> Result<VecDeque<TaskChange>> {
        let rows = sqlx::query!(
            "SELECT id AS \"id!\", entries AS \"entries!\" FROM (
                SELECT id, entries, updated_at FROM tasks WHERE updated_at >= $1
                UNION ALL
                SELECT id, version, updated_at FROM pipelines WHERE updated_at >= $1
             ) AS changed ORDER BY updated_at",
            since
        )
        .fetch_all(&self.lists)
        .await?;
        let change =
            |id, entries: i64| TaskChange { task: TaskId(id), sequence: entries.unsigned_abs() };
        Ok(rows.into_iter().map(|row| change(row.id, row.entries)).collect())
    }
}

impl TaskChanges {
    /// Waits for the next change, also while the database is unavailable.
    ///
    /// Fails only if the database rejects the subscription.
    pub async fn next(&mut self) -> Result<TaskChange> {
        loop {
            if let Some(change) = self.pending.pop_front() {
                return Ok(change);
            }
            match self.listener.next().await? {
                Notification::Payload(note) => self.pending.extend(parse_notification(&note)),
                Notification::Reconnected => {
                    if let Err(error) = self.catch_up().await {
                        self.listener.reconnect_after(error).await?;
                    }
                }
            }
        }
    }

    /// Reads the changes made while the connection was down.
    async fn catch_up(&mut self) -> Result<()> {
        let now = self.store.now().await?;
        self.pending = self.store.written_since(self.caught_up_to - OVERLAP).await?;
        self.caught_up_to = now;
        Ok(())
    }
}

/// Parses a notification payload; `None` if it is not one of ours.
fn parse_notification(payload: &str) -> Option<TaskChange> {
    let (task, sequence) = payload.split_once(' ')?;
    Some(TaskChange { task: TaskId(task.parse().ok()?), sequence: sequence.parse().ok()? })
}
