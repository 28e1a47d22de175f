//! What has just been written, as it is written.
//!
//! The database notifies every listener of a task's newest entry. A notification can be lost with
//! its connection, so after every connection the tasks that were written meanwhile are told of
//! too. A change may therefore come twice, and it may stand for several; its number says up to
//! where the log can now be read. Connecting again is done here, for as long as it takes.

use std::collections::VecDeque;
use std::time::Duration;

use chrono::TimeDelta;
use sqlx::postgres::PgListener;
use tamma_core::ids::TaskId;
use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::error::Result;

const CHANNEL: &str = "tamma_entries";

/// How far back a gap is looked for beyond the last change: transactions do not end in the order
/// of their clocks.
const OVERLAP: TimeDelta = TimeDelta::seconds(30);

const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

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
    listener: Option<PgListener>,
    /// Until when everything was told, by the database's clock.
    told: Timestamp,
    missed: VecDeque<Change>,
}

impl Store {
    /// Listens. Everything that is written from now on is told.
    pub async fn changes(&self) -> Result<Changes> {
        let mut listener = PgListener::connect_with(&self.lists).await?;
        listener.listen(CHANNEL).await?;
        let told = self.now().await?;
        Ok(Changes { store: self.clone(), listener: Some(listener), told, missed: VecDeque::new() })
    }

    /// The time of the database.
    async fn now(&self) -> Result<Timestamp> {
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
        let mut wait = FIRST_WAIT;
        loop {
            match self.attempt().await {
                Ok(Some(change)) => return Ok(change),
                Ok(None) => {}
                Err(error) if error.is_retryable() => {
                    self.listener = None;
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(LONGEST_WAIT);
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn attempt(&mut self) -> Result<Option<Change>> {
        if let Some(change) = self.missed.pop_front() {
            return Ok(Some(change));
        }
        let Some(listener) = &mut self.listener else {
            let mut listener = PgListener::connect_with(&self.store.lists).await?;
            listener.listen(CHANNEL).await?;
            let now = self.store.now().await?;
            self.missed = self.store.written_since(self.told - OVERLAP).await?;
            self.told = now;
            self.listener = Some(listener);
            return Ok(None);
        };
        if let Some(notification) = listener.try_recv().await? {
            return Ok(read(notification.payload()));
        }
        // The connection is gone, and so is what was sent to it.
        self.listener = None;
        Ok(None)
    }
}

/// Reads a notification. One that is not ours is passed over.
fn read(payload: &str) -> Option<Change> {
    let (task, sequence) = payload.split_once(' ')?;
    Some(Change { task: TaskId(task.parse().ok()?), sequence: sequence.parse().ok()? })
}
