//! Log lines of runs, written as they happen.
//!
//! Lines are for following a run. Old ones are deleted; the transcript is the complete record.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::{Postgres, Transaction};
use tamma_core::ids::TaskId;
use tamma_core::task_loop::Timestamp;

use crate::connection::{Store, begin};
use crate::encoding::{read_number, read_word, word};
use crate::error::{CorruptData, Result};
use crate::listener::{Listener, Notification};
use crate::runs::RunNumber;

const CHANNEL: &str = "tamma_lines";

/// Kind of a log line.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumString,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum LineKind {
    /// Message of the agent.
    Said,
    /// Reasoning of the agent.
    Thought,
    /// Tool call that has ended.
    Tool,
    /// Agent's own plan.
    Plan,
    /// Progress as the agent reports it.
    Progress,
    /// Permission request of the agent, with the answer.
    Asked,
    /// Plan, verdict or result that the agent submitted.
    Document,
    /// Submission that was rejected.
    Refused,
    /// Model call.
    ModelCall,
    /// Remark by Tamma, or a kind that this version does not know.
    #[serde(other)]
    Note,
}

/// Log line to write.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NewLine {
    /// Number of the line within its run, from 1.
    pub sequence: u64,
    /// Time of the event.
    pub at: Timestamp,
    /// Kind of the line.
    pub kind: LineKind,
    /// Text for people.
    pub text: String,
    /// Structured data for programs.
    pub data: Option<Value>,
}

/// Stored log line.
#[derive(Debug, Clone, PartialEq)]
pub struct RunLine {
    /// Position among the task's lines.
    pub position: LinePosition,
    /// Time of the event.
    pub at: Timestamp,
    /// Kind of the line.
    pub kind: LineKind,
    /// Text for people.
    pub text: String,
    /// Structured data for programs.
    pub data: Option<Value>,
}

/// Position among the log lines of a task, ordered by run and line number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinePosition {
    /// Run that the line belongs to.
    pub run: RunNumber,
    /// Number of the line within its run.
    pub sequence: u64,
}

impl LinePosition {
    /// Position before the first line.
    pub const START: Self = Self { run: RunNumber { job_number: 0, attempt: 0 }, sequence: 0 };

    /// Position after the last line.
    pub const END: Self =
        Self { run: RunNumber { job_number: u32::MAX, attempt: u32::MAX }, sequence: u64::MAX };
}

/// Text that is not a line position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a line position; use JOB.ATTEMPT.LINE, such as 4.1.20")]
pub struct InvalidLinePosition;

impl fmt::Display for LinePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.run.job_number, self.run.attempt, self.sequence)
    }
}

impl FromStr for LinePosition {
    type Err = InvalidLinePosition;
    fn from_str(text: &str) -> Result<Self, InvalidLinePosition> {
        let mut parts = text.splitn(3, '.').map(str::parse::<u64>);
        let mut next = || parts.next().and_then(Result::ok).ok_or(InvalidLinePosition);
        let (job_number, attempt, sequence) = (next()?, next()?, next()?);
        let small = |number: u64| u32::try_from(number).map_err(|_| InvalidLinePosition);
        Ok(Self {
            run: RunNumber { job_number: small(job_number)?, attempt: small(attempt)? },
            sequence,
        })
    }
}

/// Filter of log lines. Empty fields match every line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LineFilter {
    /// Job number to show.
    pub job_number: Option<u32>,
    /// Attempt to show.
    pub attempt: Option<u32>,
    /// Kinds to show.
    pub kinds: Vec<LineKind>,
    /// Text to find, in any case; `None` or empty for every line.
    pub text: Option<String>,
    /// Only lines without the status `completed`, if `true`: failed tool calls, denials and
    /// rejections, depending on `kinds`.
    pub failed: bool,
}

struct Row {
    ticket: i64,
    attempt: i64,
    sequence: i64,
    at: Timestamp,
    kind: String,
    text: String,
    data: Option<Value>,
}

impl Store {
    /// Returns at most `limit` lines of a task after a position, in order.
    pub async fn lines(
        &self,
        task: TaskId,
        wanted: &LineFilter,
        after: LinePosition,
        limit: u32,
    ) -> Result<Vec<RunLine>> {
        let kinds: Vec<_> = wanted.kinds.iter().map(word).collect();
        let rows = sqlx::query_as!(
            Row,
            "SELECT ticket, attempt, sequence, at, kind, text, data FROM run_lines
             WHERE task = $1 AND (ticket, attempt, sequence) > ($2, $3, $4)
                AND ($5::bigint IS NULL OR ticket = $5)
                AND ($6::bigint IS NULL OR attempt = $6)
                AND (cardinality($7::text[]) = 0 OR kind = ANY($7))
                AND ($9::text IS NULL OR strpos(lower(text), lower($9)) > 0)
                AND (NOT $10 OR coalesce(data ->> 'status', 'failed') <> 'completed')
                -- No line is older than its task, whatever the clocks of two machines say, so that
                -- older partitions are not looked at.
                AND at >= (SELECT created_at - interval '1 day' FROM tasks WHERE id = $1)
             ORDER BY ticket, attempt, sequence LIMIT $8",
            task.0,
            i64::from(after.run.job_number),
            i64::from(after.run.attempt),
            i64::try_from(after.sequence).unwrap_or(i64::MAX),
            wanted.job_number.map(i64::from),
            wanted.attempt.map(i64::from),
            &kinds,
            i64::from(limit),
            wanted.text.as_deref().filter(|text| !text.is_empty()),
            wanted.failed,
        )
        .fetch_all(&mut *self.begin_in_index_order().await?)
        .await?;
        let lines = rows.into_iter().map(run_line).collect::<Result<_, CorruptData>>();
        lines.map_err(|damage| damage.with_key(task.to_string()).into())
    }

    /// Returns the last `limit` lines of a task before a position, in order. The number of earlier
    /// lines does not matter: the index is read backwards.
    pub async fn lines_before(
        &self,
        task: TaskId,
        wanted: &LineFilter,
        before: LinePosition,
        limit: u32,
    ) -> Result<Vec<RunLine>> {
        let kinds: Vec<_> = wanted.kinds.iter().map(word).collect();
        // Lines of later runs are not read.
        let before = match wanted.job_number {
            Some(job_number) => {
                let attempt = wanted.attempt.unwrap_or(u32::MAX);
                let run = RunNumber { job_number, attempt };
                before.min(LinePosition { run, sequence: u64::MAX })
            }
            None => before,
        };
        let rows = sqlx::query_as!(
            Row,
            "SELECT ticket, attempt, sequence, at, kind, text, data FROM run_lines
             WHERE task = $1 AND (ticket, attempt, sequence) < ($2, $3, $4)
                AND ($5::bigint IS NULL OR ticket = $5)
                AND ($6::bigint IS NULL OR attempt = $6)
                AND (cardinality($7::text[]) = 0 OR kind = ANY($7))
                AND ($9::text IS NULL OR strpos(lower(text), lower($9)) > 0)
                AND (NOT $10 OR coalesce(data ->> 'status', 'failed') <> 'completed')
                AND at >= (SELECT created_at - interval '1 day' FROM tasks WHERE id = $1)
             ORDER BY ticket DESC, attempt DESC, sequence DESC LIMIT $8",
            task.0,
            i64::from(before.run.job_number),
            i64::from(before.run.attempt),
            i64::try_from(before.sequence).unwrap_or(i64::MAX),
            wanted.job_number.map(i64::from),
            wanted.attempt.map(i64::from),
            &kinds,
            i64::from(limit),
            wanted.text.as_deref().filter(|text| !text.is_empty()),
            wanted.failed,
        )
        .fetch_all(&mut *self.begin_in_index_order().await?)
        .await?;
        let lines = rows.into_iter().rev().map(run_line).collect::<Result<_, CorruptData>>();
        lines.map_err(|damage| damage.with_key(task.to_string()).into())
    }

    /// Returns the last line of a run of the given kinds, or of any kind if `kinds` is empty.
    pub async fn last_line(
        &self,
        task: TaskId,
        run: RunNumber,
        kinds: &[LineKind],
    ) -> Result<Option<RunLine>> {
        let kinds: Vec<_> = kinds.iter().map(word).collect();
        let row = sqlx::query_as!(
            Row,
            "SELECT ticket, attempt, sequence, at, kind, text, data FROM run_lines
             WHERE task = $1 AND ticket = $2 AND attempt = $3
                AND (cardinality($4::text[]) = 0 OR kind = ANY($4))
                AND at >= (SELECT created_at - interval '1 day' FROM tasks WHERE id = $1)
             ORDER BY sequence DESC LIMIT 1",
            task.0,
            i64::from(run.job_number),
            i64::from(run.attempt),
            &kinds,
        )
        .fetch_optional(&mut *self.begin_in_index_order().await?)
        .await?;
        let last = row.map(run_line).transpose();
        last.map_err(|damage: CorruptData| damage.with_key(task.to_string()).into())
    }

    /// Begins a transaction whose queries read an index in its order, and stop at their limit.
    ///
    /// Until autovacuum has seen a new partition, PostgreSQL expects a handful of lines in it, and
    /// would read and sort all lines of a task to return the last page.
    async fn begin_in_index_order(&self) -> Result<Transaction<'static, Postgres>> {
        begin(&self.lists, "BEGIN READ ONLY; SET LOCAL enable_sort = off").await
    }

    /// Deletes the lines of months that ended before a time and returns the number of months.
    /// Transcripts are kept.
    pub async fn delete_lines(&self, before: Timestamp) -> Result<u32> {
        let months = sqlx::query_scalar!(r#"SELECT forget_run_lines($1) AS "months!""#, before)
            .fetch_one(&self.steps)
            .await?;
        Ok(months.unsigned_abs())
    }

    /// Subscribes to new log lines. Every line written from now on is reported.
    pub async fn line_changes(&self) -> Result<LineChanges> {
        Ok(LineChanges(Listener::open(&self.lists, CHANNEL).await?))
    }
}

fn run_line(row: Row) -> Result<RunLine, CorruptData> {
    let what = "line";
    let run = RunNumber {
        job_number: read_number(what, row.ticket)?,
        attempt: read_number(what, row.attempt)?,
    };
    Ok(RunLine {
        position: LinePosition { run, sequence: read_number(what, row.sequence)? },
        at: row.at,
        kind: read_word(what, row.kind)?,
        text: row.text,
        data: row.data,
    })
}

/// Notification about log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineChange {
    /// Run of this task has new lines or another status.
    Appended(TaskId),
    /// Connection was lost in between, so any task may have new lines.
    Unknown,
}

/// Stream of line changes; see [`Store::line_changes`].
#[derive(Debug)]
pub struct LineChanges(Listener);

impl LineChanges {
    /// Waits for the next change, also while the database is unavailable.
    ///
    /// Fails only if the database rejects the subscription.
    pub async fn next(&mut self) -> Result<LineChange> {
        loop {
            let Notification::Payload(note) = self.0.next().await? else {
                return Ok(LineChange::Unknown);
            };
            // Skip payloads that are not ours.
            if let Some(id) = note.split(' ').next().and_then(|id| id.parse().ok()) {
                return Ok(LineChange::Appended(TaskId(id)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_reads_what_it_wrote_and_is_ordered_by_run() {
        let position = |job_number, attempt, sequence| LinePosition {
            run: RunNumber { job_number, attempt },
            sequence,
        };
        assert_eq!("4.2.17".parse(), Ok(position(4, 2, 17)));
        assert_eq!(position(4, 2, 17).to_string(), "4.2.17");
        assert!(position(4, 2, 17) < position(4, 3, 1) && position(4, 3, 1) < position(5, 1, 1));
        for text in ["", "4.2", "4.2.x", "4.2.1.1", "4294967296.1.1"] {
            assert_eq!(text.parse::<LinePosition>(), Err(InvalidLinePosition), "{text}");
        }
    }

    #[test]
    fn a_kind_of_a_newer_program_is_a_note() {
        let kind: LineKind = serde_json::from_str(r#""sung""#).expect("a kind");
        assert_eq!(kind, LineKind::Note);
    }
}
