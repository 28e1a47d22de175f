//! Writing what the machine did: every step once, in its order, whole.
//!
//! A task's row counts the steps that are written. A writer names the step before its own, and
//! where that is not the last one, nothing is written. So a step can be written again after a
//! crash, by two at once or by one that was thought dead, and is there once.
//!
//! Writing again is the durable loop's job; [`Error::is_retryable`](crate::Error::is_retryable)
//! says when.

mod rows;

use sqlx::types::Uuid;
use tamma_core::ids::TaskId;
use tamma_core::log::Entry;
use tamma_core::rules::Rules;
use tamma_core::task::Task;
use tamma_core::task_loop::{Command, Step, TaskLoop, Timestamp};

use self::rows::{Projection, Rows};
use crate::connection::Store;
use crate::error::{Conflict, Error, Result};
use crate::spelling::json;
use crate::usage::Used;

/// One step of a task's machine, as it is written.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// The number of the step: how many events the machine has taken. [`Store::receive`] writes
    /// step 0.
    pub step: u64,
    /// When the event happened.
    pub at: Timestamp,
    /// The machine after it.
    pub next: &'a TaskLoop,
    /// What it wrote down.
    pub entries: &'a [Entry],
    /// What it wants done: alerts are opened and settled, providers held.
    pub commands: &'a [Command],
    /// What the job that ended has used, if one has.
    pub used: Option<Used>,
}

impl<'a> Record<'a> {
    /// The record of a step that used nothing.
    pub fn new(number: u64, at: Timestamp, step: &'a Step) -> Self {
        let Step { next, commands, entries } = step;
        Self { step: number, at, next, entries, commands, used: None }
    }

    /// How many entries the log had before the step.
    fn entries_before(&self) -> u64 {
        self.next.entries.saturating_sub(self.entries.len() as u64)
    }
}

/// Whether something was written now or had been before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It is new.
    Now,
    /// It was there already, and nothing has changed.
    Before,
}

impl Store {
    /// Writes a new task with the first step of its machine. One that is there is left as it is.
    pub async fn receive(&self, task: &Task, first: &Step, rules: &Rules) -> Result<Written> {
        if first.next.task != task.id || first.next.project != task.project {
            return Err(Conflict::Disorder("the machine is of another task").into());
        }
        let at = first.next.since;
        let rows = Rows::of(&[Record::new(0, at, first)]);
        let added = sqlx::query_file!(
            "queries/receive.sql",
            json(task),
            json(&first.next),
            json(&Projection::of(&first.next, rules, rows.failures)),
            json(&rows.entries),
        )
        .fetch_one(&self.steps)
        .await?
        .added;
        Ok(if added > 0 { Written::Now } else { Written::Before })
    }

    /// Writes the next steps of one task: usually one. Those that are there already are passed
    /// over; if all are, nothing changes.
    pub async fn record(&self, steps: &[Record<'_>], rules: &Rules) -> Result<Written> {
        let mut steps = in_order(steps)?;
        let (task, last) = match steps.last() {
            Some(last) => (last.next.task, *last),
            None => return Ok(Written::Before),
        };
        loop {
            if self.write(task, steps, rules).await? {
                return Ok(Written::Now);
            }
            // Somebody has written in between, or there is something missing.
            let (stored, entries) = self.position(task).await?;
            if stored == last.step && entries == last.next.entries {
                return Ok(Written::Before);
            }
            let first = steps.first().unwrap_or(&last);
            let (oldest, offered) = (first.step, last.step);
            if stored > offered {
                return Err(Conflict::Older { task, stored, offered }.into());
            }
            if stored + 1 < oldest {
                return Err(Conflict::Gap { task, stored, offered: oldest }.into());
            }
            // What is there already is passed over, if the rest goes on from it.
            steps = &steps[steps.partition_point(|step| step.step <= stored)..];
            let expected = steps.first().map_or(last.next.entries, Record::entries_before);
            if entries != expected {
                let (step, stored, offered) = (stored, entries, expected);
                return Err(Conflict::Different { task, step, stored, offered }.into());
            }
        }
    }

    /// Writes steps if the task is right before them. Returns whether it was.
    async fn write(&self, task: TaskId, steps: &[Record<'_>], rules: &Rules) -> Result<bool> {
        let ([first, ..], [.., last]) = (steps, steps) else {
            return Ok(false);
        };
        let Some(before) = first.step.checked_sub(1) else {
            return Ok(false);
        };
        let rows = Rows::of(steps);
        let moved = sqlx::query_file!(
            "queries/record.sql",
            task.0,
            signed(before),
            signed(first.entries_before()),
            signed(last.step),
            json(last.next),
            json(&Projection::of(last.next, rules, rows.failures)),
            json(&rows.entries),
            json(&rows.alerts),
            json(&rows.followed),
            json(&rows.approvals),
            json(&rows.iterations),
            json(&rows.usage),
            json(&rows.holds),
        )
        .fetch_one(&self.steps)
        .await?
        .moved;
        Ok(moved > 0)
    }

    /// The last step of a task that is written, and how many entries its log has.
    pub async fn position(&self, task: TaskId) -> Result<(u64, u64)> {
        let row = sqlx::query!("SELECT revision, entries FROM tasks WHERE id = $1", task.0)
            .fetch_optional(&self.steps)
            .await?
            .ok_or_else(|| no_task(task.0))?;
        Ok((row.revision.unsigned_abs(), row.entries.unsigned_abs()))
    }
}

pub(crate) fn no_task(task: Uuid) -> Error {
    Error::NotFound { what: "task", key: task.to_string() }
}

/// Sees to it that steps are of one task and follow each other, in number and in their entries.
fn in_order<'a, 'b>(steps: &'a [Record<'b>]) -> Result<&'a [Record<'b>], Conflict> {
    for step in steps {
        let numbers = step.entries.iter().map(|entry| entry.sequence);
        if !numbers.eq(step.entries_before() + 1..=step.next.entries) {
            return Err(Conflict::Disorder(
                "the entries of a step are not numbered as its machine counts",
            ));
        }
        if step.entries.iter().any(|entry| entry.task != step.next.task) {
            return Err(Conflict::Disorder("an entry is of another task"));
        }
    }
    for pair in steps.windows(2) {
        let [one, two] = pair else { continue };
        if one.next.task != two.next.task {
            return Err(Conflict::Disorder("they are of several tasks"));
        }
        if one.step + 1 != two.step || one.next.entries != two.entries_before() {
            return Err(Conflict::Disorder("there is one missing between two of them"));
        }
    }
    Ok(steps)
}

/// A count as the database has it. No count comes near the limit.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
