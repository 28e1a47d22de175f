//! The log: the history of a task, the export of everything, and the figures made from it.

use chrono::TimeDelta;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use sqlx::types::Uuid;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::log::Entry;
use tamma_core::metrics::{Logged, Metrics, compute};
use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::error::{Damage, Error, Result};
use crate::record::signed;
use crate::spelling::read;

/// An entry with the moment it was written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The entry.
    pub entry: Entry,
    /// When it was written down, by the database's clock.
    pub recorded_at: Timestamp,
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
    reason: Option<String>,
    data: Option<Value>,
}

/// The rows of entries for which some SQL holds.
macro_rules! rows {
    ($rest:tt $(, $argument:expr)* $(,)?) => {
        sqlx::query_as!(
            Row,
            "SELECT
                task, sequence, at, at_nanos, recorded_at, format, name, \"from\", \"to\", \"on\",
                actor, reason, data
             FROM entries WHERE " + $rest
            $(, $argument)*
        )
    };
}

impl Store {
    /// A task's entries after a number, in their order, at most so many.
    pub async fn history(&self, task: TaskId, after: u64, limit: u32) -> Result<Vec<Line>> {
        let rows = rows!(
            // No entry is older than its task, so that older partitions are not looked at.
            "task = $1 AND sequence > $2 AND at >= (SELECT created_at FROM tasks WHERE id = $1)
             ORDER BY sequence LIMIT $3",
            task.0,
            signed(after),
            i64::from(limit),
        )
        .fetch_all(&self.steps)
        .await?;
        Ok(rows.into_iter().map(line).collect::<Result<_, Damage>>()?)
    }

    /// The entries of one task, or of all, as lines of JSON, each task's in their order. An entry
    /// that this program does not know is exported as it is stored.
    pub fn export(&self, task: Option<TaskId>) -> impl Stream<Item = Result<String>> + use<'_> {
        rows!("($1::uuid IS NULL OR task = $1) ORDER BY task, sequence", task.map(|task| task.0))
            .fetch(&self.lists)
            .map(|row| row.map(|row| stored(row).to_string()).map_err(Error::from))
    }

    /// How well a project goes, or all of them, by the entries since a moment, and before another one
    /// if one is named.
    pub async fn metrics(
        &self,
        project: Option<ProjectId>,
        since: Timestamp,
        before: Option<Timestamp>,
    ) -> Result<Metrics> {
        let lines: Vec<Line> = rows!(
            "($1::uuid IS NULL OR project = $1) AND at >= $2
             AND ($3::timestamptz IS NULL OR at < $3) ORDER BY task, sequence",
            project.map(|project| project.0),
            since,
            before,
        )
        .fetch(&self.lists)
        .map_err(Error::from)
        // What cannot be read has no figure; it must not take away those of all the others.
        .try_filter_map(|row| async { Ok(line(row).ok()) })
        .try_collect()
        .await?;
        let logged = lines.iter().map(|line| Logged { entry: &line.entry, at: line.recorded_at });
        Ok(compute(logged))
    }
}

/// An entry as the core serialises it, and when it was written down.
fn stored(row: Row) -> Value {
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
        ("reason", row.reason.map(Value::String)),
        ("data", row.data),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            entry[name] = value;
        }
    }
    entry
}

fn line(row: Row) -> Result<Line, Damage> {
    let recorded_at = row.recorded_at;
    let key = format!("{} {}", row.task, row.sequence);
    let entry = read("entry", stored(row)).map_err(|damage| damage.of(key))?;
    Ok(Line { entry, recorded_at })
}
