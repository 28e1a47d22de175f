//! What a run says and does, line by line, as it happens.
//!
//! Lines are for looking on. They are removed when they are old; the transcript has everything.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tamma_core::ids::TaskId;
use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::ear::{Ear, Heard};
use crate::error::{Damage, Result};
use crate::runs::RunNumber;
use crate::spelling::{read_number, read_word, word};

const CHANNEL: &str = "tamma_lines";

/// What kind of thing a line tells.
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
    /// What the agent says.
    Said,
    /// What the agent thinks.
    Thought,
    /// A tool call began or changed.
    Tool,
    /// The agent's own plan.
    Plan,
    /// How far the agent says that it is.
    Progress,
    /// The agent asked for something, and got an answer.
    Asked,
    /// What was handed in could not be taken.
    Refused,
    /// A model was called.
    ModelCall,
    /// Something that Tamma says about the run; or a kind that this program does not know.
    #[serde(other)]
    Note,
}

/// A line to be written.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NewLine {
    /// Its number in the run, from 1.
    pub sequence: u64,
    /// When it happened.
    pub at: Timestamp,
    /// What kind of thing it tells.
    pub kind: LineKind,
    /// For people.
    pub text: String,
    /// For programs.
    pub data: Option<Value>,
}

/// A line, with its place.
#[derive(Debug, Clone, PartialEq)]
pub struct RunLine {
    /// Where it is among the task's lines.
    pub place: LinePlace,
    /// When it happened.
    pub at: Timestamp,
    /// What kind of thing it tells.
    pub kind: LineKind,
    /// For people.
    pub text: String,
    /// For programs.
    pub data: Option<Value>,
}

/// A place among the lines of a task: they are ordered by run, and in a run by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinePlace {
    /// The run.
    pub run: RunNumber,
    /// The number in the run.
    pub sequence: u64,
}

impl LinePlace {
    /// Before every line.
    pub const START: Self = Self { run: RunNumber { ticket: 0, attempt: 0 }, sequence: 0 };
}

/// A text that is no place among lines.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("that is no place among the lines of a task")]
pub struct NoLinePlace;

impl fmt::Display for LinePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.run.ticket, self.run.attempt, self.sequence)
    }
}

impl FromStr for LinePlace {
    type Err = NoLinePlace;
    fn from_str(text: &str) -> Result<Self, NoLinePlace> {
        let mut parts = text.splitn(3, '.').map(str::parse::<u64>);
        let mut next = || parts.next().and_then(Result::ok).ok_or(NoLinePlace);
        let (ticket, attempt, sequence) = (next()?, next()?, next()?);
        let small = |number: u64| u32::try_from(number).map_err(|_| NoLinePlace);
        Ok(Self { run: RunNumber { ticket: small(ticket)?, attempt: small(attempt)? }, sequence })
    }
}

/// Which lines of a task are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Of this ticket only.
    pub ticket: Option<u32>,
    /// Of this attempt only.
    pub attempt: Option<u32>,
    /// Of these kinds; of all where none is named.
    pub kinds: Vec<LineKind>,
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
    /// A task's lines after a place, in their order, at most so many.
    pub async fn lines(
        &self,
        task: TaskId,
        wanted: &Wanted,
        after: LinePlace,
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
                -- No line is older than its task, whatever the clocks of two machines say, so that
                -- older partitions are not looked at.
                AND at >= (SELECT created_at - interval '1 day' FROM tasks WHERE id = $1)
             ORDER BY ticket, attempt, sequence LIMIT $8",
            task.0,
            i64::from(after.run.ticket),
            i64::from(after.run.attempt),
            i64::try_from(after.sequence).unwrap_or(i64::MAX),
            wanted.ticket.map(i64::from),
            wanted.attempt.map(i64::from),
            &kinds,
            i64::from(limit),
        )
        .fetch_all(&self.lists)
        .await?;
        let lines = rows.into_iter().map(line).collect::<Result<_, Damage>>();
        lines.map_err(|damage| damage.of(task.to_string()).into())
    }

    /// The last line of a run that is of one of some kinds; of any kind where none is named.
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
            i64::from(run.ticket),
            i64::from(run.attempt),
            &kinds,
        )
        .fetch_optional(&self.lists)
        .await?;
        let last = row.map(line).transpose();
        last.map_err(|damage: Damage| damage.of(task.to_string()).into())
    }

    /// Removes the lines of months that were over before a moment, and returns how many months.
    /// The transcripts stay.
    pub async fn forget_lines(&self, before: Timestamp) -> Result<u32> {
        let months = sqlx::query_scalar!(r#"SELECT forget_run_lines($1) AS "months!""#, before)
            .fetch_one(&self.steps)
            .await?;
        Ok(months.unsigned_abs())
    }

    /// Listens for new lines. Everything that is written from now on is told.
    pub async fn line_changes(&self) -> Result<LineChanges> {
        Ok(LineChanges(Ear::open(&self.lists, CHANNEL).await?))
    }
}

fn line(row: Row) -> Result<RunLine, Damage> {
    let what = "line";
    let run = RunNumber {
        ticket: read_number(what, row.ticket)?,
        attempt: read_number(what, row.attempt)?,
    };
    Ok(RunLine {
        place: LinePlace { run, sequence: read_number(what, row.sequence)? },
        at: row.at,
        kind: read_word(what, row.kind)?,
        text: row.text,
        data: row.data,
    })
}

/// That lines were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineChange {
    /// A run of the task has new lines, or another state.
    Grown(TaskId),
    /// The connection was lost meanwhile: any task may have new lines.
    Unknown,
}

/// Lines as they are written. See [`Store::line_changes`].
#[derive(Debug)]
pub struct LineChanges(Ear);

impl LineChanges {
    /// The next change. Waits until there is one, also while the database is away; fails only
    /// where the database refuses to be listened to.
    pub async fn next(&mut self) -> Result<LineChange> {
        loop {
            let Heard::Note(note) = self.0.next().await? else { return Ok(LineChange::Unknown) };
            // One that is not ours is passed over.
            if let Some(id) = note.split(' ').next().and_then(|id| id.parse().ok()) {
                return Ok(LineChange::Grown(TaskId(id)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_reads_what_it_wrote_and_is_ordered_by_run() {
        let place =
            |ticket, attempt, sequence| LinePlace { run: RunNumber { ticket, attempt }, sequence };
        assert_eq!("4.2.17".parse(), Ok(place(4, 2, 17)));
        assert_eq!(place(4, 2, 17).to_string(), "4.2.17");
        assert!(place(4, 2, 17) < place(4, 3, 1) && place(4, 3, 1) < place(5, 1, 1));
        for text in ["", "4.2", "4.2.x", "4.2.1.1", "4294967296.1.1"] {
            assert_eq!(text.parse::<LinePlace>(), Err(NoLinePlace), "{text}");
        }
    }

    #[test]
    fn a_kind_of_a_newer_program_is_a_note() {
        let kind: LineKind = serde_json::from_str(r#""sung""#).expect("a kind");
        assert_eq!(kind, LineKind::Note);
    }
}
