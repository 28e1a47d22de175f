//! What has just been written, as it is written.
//!
//! The database notifies every listener of a task's newest entry. A notification can be lost with
//! its connection, so after every connection the tasks that were written meanwhile are told of
//! too. A change may therefore come twice, and it may stand for several; its number says up to
//! where the log can now be read.

use std::collections::VecDeque;

use chrono::TimeDelta;
use tamma_core::ids::TaskId;
use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::ear::{Ear, Heard};
use crate::error::Result;

const CHANNEL: &str = "tamma_entries";

/// How far back a gap is looked for beyond the last change: transactions do not end in the order
/// of their clocks.
const OVERLAP: TimeDelta = TimeDelta::seconds(30);

/// A task whose log has grown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Change {
    /// The task.
    pub task: TaskId,
    /// The number of its newest entry.
    pub sequence: u64,
}

/// What has just been written. See [`Store::changes`].
#[derive(Debug)]
pub struct Changes {
    store: Store,
    ear: Ear,
    /// Until when everything was told, by the database's clock.
    told: Timestamp,
    missed: VecDeque<Change>,
}

impl Store {
    /// Listens. Everything that is written from now on is told.
    pub async fn changes(&self) -> Result<Changes> {
        let ear = Ear::open(&self.lists, CHANNEL).await?;
        let told = self.now().await?;
        Ok(Changes { store: self.clone(), ear, told, missed: VecDeque::new() })
    }

    /// Tasks that were written since a moment of the database's clock or a little before it, the oldest
    /// change first: none is missed because its transaction ended late, and some may be known already.
    pub async fn changed_since(&self, since: Timestamp) -> Result<Vec<Change>> {
        Ok(self.written_since(since - OVERLAP).await?.into())
    }

    /// The time of the database.
    pub async fn now(&self) -> Result<Timestamp> {
        let now = sqlx::query_scalar!(r#"SELECT clock_timestamp() AS "now!""#);
        Ok(now.fetch_one(&self.lists).await?)
    }

    /// Tasks that were written since a moment of the database's clock.
    async fn written_since(&self, since: Timestamp) -> Result<VecDeque<Change>> {
        let rows = sqlx::query!(
            "SELECT id, entries FROM tasks WHERE updated_at >= $1 ORDER BY updated_at",
            since
        )
        .fetch_all(&self.lists)
        .await?;
        let change =
            |id, entries: i64| Change { task: TaskId(id), sequence: entries.unsigned_abs() };
        Ok(rows.into_iter().map(|row| change(row.id, row.entries)).collect())
    }
}

impl Changes {
    /// The next change. Waits until there is one, also while the database is away; fails only
    /// where the database refuses to be listened to.
    pub async fn next(&mut self) -> Result<Change> {
        loop {
            if let Some(change) = self.missed.pop_front() {
                return Ok(change);
            }
            match self.ear.next().await? {
                Heard::Note(note) => self.missed.extend(read(&note)),
                Heard::Anew => {
                    if let Err(error) = self.catch_up().await {
                        self.ear.again(error).await?;
                    }
                }
            }
        }
    }

    /// Looks for what was written while nobody listened.
    async fn catch_up(&mut self) -> Result<()> {
        let now = self.store.now().await?;
        self.missed = self.store.written_since(self.told - OVERLAP).await?;
        self.told = now;
        Ok(())
    }
}

/// Reads a notification. One that is not ours is passed over.
fn read(payload: &str) -> Option<Change> {
    let (task, sequence) = payload.split_once(' ')?;
    Some(Change { task: TaskId(task.parse().ok()?), sequence: sequence.parse().ok()? })
}
