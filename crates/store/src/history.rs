//! History: entries of a task, and export of everything.

use chrono::TimeDelta;
use futures_util::{Stream, StreamExt as _};
use serde_json::{Value, json};
use sqlx::types::Uuid;
use tamma_core::history::HistoryEntry;
use tamma_core::ids::TaskId;
use tamma_core::task_loop::{State, Timestamp};

use crate::connection::Store;
use crate::encoding::{read, read_word};
use crate::error::{CorruptData, Error, Result};
use crate::steps::to_i64;

/// History entry with the time at which it was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedEntry {
    /// Entry as the state machine wrote it.
    pub entry: HistoryEntry,
    /// Time of the write, by the database's clock.
    pub recorded_at: Timestamp,
    /// Stored words of a person, or the question of an agent, that the entry refers to. `None` if it
    /// refers to none, or if they were removed.
    pub text: Option<String>,
}

struct Row {
    task: Uuid,
    sequence: i64,
    at: Timestamp,
    at_nanos: i16,
    recorded_at: Timestamp,
    format: i16,
    name: String,
    from: String,
    to: String,
    on: Option<String>,
    actor: Value,
    auth: Option<Value>,
    reason: Option<String>,
    data: Option<Value>,
    hash: Option<String>,
    text: Option<String>,
}

/// Selects history rows that match an SQL condition.
macro_rules! rows {
    ($rest:tt $(, $argument:expr)* $(,)?) => {
        sqlx::query_as!(
            Row,
            "SELECT
                task, sequence, at, at_nanos, recorded_at, format, name, \"from\", \"to\", \"on\",
                actor, auth, reason, data, encode(hash, 'hex') AS hash,
                CASE
                    WHEN entries.actor ->> 'person' IS NOT NULL
                        OR entries.name = 'SM_QUESTION_ASKED'
                        THEN text_content(substr(entries.data ->> 'kept', 6))
                END AS text
             FROM entries WHERE " + $rest
            $(, $argument)*
        )
    };
}

impl Store {
    /// Returns the states that a task has entered, in order, each with its time.
    pub async fn entered_states(&self, task: TaskId) -> Result<Vec<(State, Timestamp)>> {
        let rows = sqlx::query!(
            "SELECT \"to\", at FROM entries
             WHERE task = $1 AND (sequence = 1 OR \"from\" <> \"to\") ORDER BY sequence",
            task.0,
        )
        .fetch_all(&self.lists)
        .await?;
        let state =
            |text| read_word("state", text).map_err(|damage| damage.with_key(task.to_string()));
        rows.into_iter().map(|row| Ok((state(row.to)?, row.at))).collect()
    }

    /// Returns at most `limit` entries of a task after a sequence number, in order.
    pub async fn history(
        &self,
        task: TaskId,
        after: u64,
        limit: u32,
    ) -> Result<Vec<RecordedEntry>> {
        let rows = rows!(
            // No entry is older than its task, so older partitions can be skipped.
            "task = $1 AND sequence > $2 AND at >= (SELECT created_at FROM tasks WHERE id = $1)
             AND ($4::bool OR project = ANY($5::uuid []))
             ORDER BY sequence LIMIT $3",
            task.0,
            to_i64(after),
            i64::from(limit),
            self.reads_all(),
            self.readable_projects(),
        )
        .fetch_all(&self.reads)
        .await?;
        Ok(rows.into_iter().map(recorded_entry).collect::<Result<_, CorruptData>>()?)
    }

    /// Streams the entries of one task or of all tasks as JSON lines, in order within each task.
    ///
    /// Entries unknown to this version are exported as stored.
    pub fn export(&self, task: Option<TaskId>) -> impl Stream<Item = Result<String>> + use<'_> {
        rows!(
            "($1::uuid IS NULL OR task = $1) AND ($2::bool OR project = ANY($3::uuid []))
             ORDER BY task, sequence",
            task.map(|task| task.0),
            self.reads_all(),
            self.readable_projects(),
        )
        .fetch(&self.lists)
        .map(|row| row.map(|row| entry_json(row).to_string()).map_err(Error::from))
    }
}

/// Returns an entry in its serialised form, with the time of the write, its hash and its words.
fn entry_json(row: Row) -> Value {
    let at = row.at + TimeDelta::nanoseconds(row.at_nanos.into());
    let mut entry = json!({
        "format": row.format,
        "task": row.task,
        "sequence": row.sequence,
        "at": at,
        "name": row.name,
        "from": row.from,
        "to": row.to,
        "actor": row.actor,
        "recorded_at": row.recorded_at,
    });
    let optional = [
        ("on", row.on.map(Value::String)),
        ("auth", row.auth),
        ("reason", row.reason.map(Value::String)),
        ("data", row.data),
        ("hash", row.hash.map(Value::String)),
        ("text", row.text.map(Value::String)),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            entry[name] = value;
        }
    }
    entry
}

fn recorded_entry(mut row: Row) -> Result<RecordedEntry, CorruptData> {
    let (recorded_at, text) = (row.recorded_at, row.text.take());
    let key = format!("{} {}", row.task, row.sequence);
    let entry = read("entry", entry_json(row)).map_err(|damage| damage.with_key(key))?;
    Ok(RecordedEntry { entry, recorded_at, text })
}
