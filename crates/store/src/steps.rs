//! Writing of steps: each one completely, in order, exactly once.
//!
//! A task's row counts the stored steps. A writer names the step before its own. If that is not the
//! last stored one, nothing is written. A step can therefore be written again after a crash, or by
//! two workers at once, and is stored once.
//!
//! Temporal retries failed writes; [`Error::is_retryable`](crate::Error::is_retryable) says which
//! errors are worth it.

mod rows;

use sqlx::types::Uuid;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::rules::Rules;
use tamma_core::task::{Task, branch_name};
use tamma_core::task_loop::{Step, StepRecord, TaskLoop};

use self::rows::{Projection, StepRows};
use crate::connection::Store;
use crate::encoding::{json, read};
use crate::error::{Conflict, Error, Result};
use crate::inline_jobs::UnendedStarts;
use crate::job_facts::JobFacts;
use crate::texts::rules_text;

/// Outcome of an idempotent write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// Written by this call.
    Inserted,
    /// Already stored; nothing has changed.
    AlreadyPresent,
}

impl Store {
    /// Inserts a task with the first step of its state machine, and saves its rules without secrets. An
    /// existing task is left unchanged.
    pub async fn insert_task(
        &self,
        task: &Task,
        first: &Step,
        rules: &Rules,
    ) -> Result<WriteOutcome> {
        if first.next.task != task.id || first.next.project != task.project {
            return Err(Conflict::OutOfOrder("the state machine belongs to another task").into());
        }
        let first = [StepRecord::new(0, first.next.since, first.clone())];
        let rows = StepRows::from_steps(&first);
        let added = sqlx::query_file!(
            "queries/receive.sql",
            json(task),
            json(&first[0].next),
            json(&Projection::new(&first[0].next, rules, &rows)),
            json(&rows.entries),
            branch_name(task.id, &task.title),
            rules.version().to_string(),
            rules_text(&rules.without_secrets())?,
        )
        .fetch_one(&self.steps)
        .await?
        .added;
        Ok(if added > 0 { WriteOutcome::Inserted } else { WriteOutcome::AlreadyPresent })
    }

    /// Saves the next steps of one task, usually one.
    ///
    /// Steps that are already stored are skipped; if all are, nothing changes.
    pub async fn save_steps(&self, steps: &[StepRecord], rules: &Rules) -> Result<WriteOutcome> {
        let written = self.save_steps_for_job(steps, rules, None).await?;
        Ok(match written {
            Some(_) => WriteOutcome::Inserted,
            None => WriteOutcome::AlreadyPresent,
        })
    }

    /// Saves the next steps of one task like [`Store::save_steps`], and returns what the job that they
    /// request needs to know, or `None` if they are already stored.
    ///
    /// `process` runs the job inside a workflow task, and is recorded as in
    /// [`Store::begin_inline_job`].
    pub async fn save_steps_for_job(
        &self,
        steps: &[StepRecord],
        rules: &Rules,
        process: Option<&str>,
    ) -> Result<Option<JobFacts>> {
        let mut steps = check_order(steps)?;
        let (task, last) = match steps.last() {
            Some(last) => (last.next.task, last),
            None => return Ok(None),
        };
        loop {
            if let Some(facts) = self.try_write_steps(task, steps, rules, process).await? {
                return Ok(Some(facts));
            }
            // Another writer was faster, or steps are missing.
            let (stored, entries) = self.task_position(task).await?;
            let first = steps.first().unwrap_or(last);
            let (oldest, offered) = (first.step, last.step);
            if stored >= oldest && !self.has_steps(task, steps, stored, entries).await? {
                return Err(Conflict::OtherHistory { task, step: offered }.into());
            }
            if stored == last.step && entries == last.next.entry_count {
                return Ok(None);
            }
            if stored > offered {
                return Err(Conflict::StaleStep { task, stored, offered }.into());
            }
            if stored + 1 < oldest {
                return Err(Conflict::MissingSteps { task, stored, offered: oldest }.into());
            }
            // Skip the stored steps if the rest continues from them.
            steps = &steps[steps.partition_point(|step| step.step <= stored)..];
            let expected = steps.first().map_or(last.next.entry_count, StepRecord::entries_before);
            if entries != expected {
                let (step, stored, offered) = (stored, entries, expected);
                return Err(Conflict::DifferentStep { task, step, stored, offered }.into());
            }
        }
    }

    /// Returns `true` if the stored steps among these have the same content. Times do not count,
    /// because a step that is applied again after a crash has a later one.
    async fn has_steps(
        &self,
        task: TaskId,
        steps: &[StepRecord],
        stored: u64,
        entry_count: u64,
    ) -> Result<bool> {
        let offered = steps.iter().flat_map(|step| &step.entries);
        let offered: Vec<_> = offered.filter(|entry| entry.sequence <= entry_count).collect();
        let same = sqlx::query_scalar!(
            r#"SELECT count(*) AS "count!" FROM entries
             INNER JOIN jsonb_to_recordset($2) AS e (sequence bigint, name text, "from" text, "to" text)
                ON e.sequence = entries.sequence
             WHERE entries.task = $1 AND entries.name = e.name
                AND entries."from" = e."from" AND entries."to" = e."to""#,
            task.0,
            json(&offered),
        )
        .fetch_one(&self.steps)
        .await?;
        if same.unsigned_abs() != offered.len() as u64 {
            return Ok(false);
        }
        let Some(step) = steps.iter().find(|step| step.step == stored) else { return Ok(true) };
        let row = sqlx::query!("SELECT memory, revision FROM tasks WHERE id = $1", task.0)
            .fetch_optional(&self.steps)
            .await?
            .ok_or_else(|| task_not_found(task.0))?;
        // An unreadable one was written by a newer version; its history is the same so far.
        let machine = |json| read::<TaskLoop>("machine", json);
        let (Ok(memory), Ok(next)) = (machine(row.memory), machine(json(&step.next))) else {
            return Ok(true);
        };
        Ok(row.revision.unsigned_abs() != stored || memory.is_same_except_times(&next))
    }

    /// Writes the steps if the task is exactly one step behind them. Returns `None` if it is not.
    async fn try_write_steps(
        &self,
        task: TaskId,
        steps: &[StepRecord],
        rules: &Rules,
        process: Option<&str>,
    ) -> Result<Option<JobFacts>> {
        let ([first, ..], [.., last]) = (steps, steps) else {
            return Ok(None);
        };
        let Some(before) = first.step.checked_sub(1) else {
            return Ok(None);
        };
        let rows = StepRows::from_steps(steps);
        let row = sqlx::query_file!(
            "queries/record.sql",
            task.0,
            to_i64(before),
            to_i64(first.entries_before()),
            to_i64(last.step),
            json(&last.next),
            json(&Projection::new(&last.next, rules, &rows)),
            json(&rows.entries),
            json(&rows.alerts),
            json(&rows.alert_follow_ups),
            json(&rows.approvals),
            json(&rows.iterations),
            json(&rows.usage),
            json(&rows.holds),
            last.next.active_job.map(|job| i64::from(job.job_number)),
            process,
        )
        .fetch_one(&self.steps)
        .await?;
        let starts = match (row.lost, row.starts) {
            (Some(lost), Some(starts)) => Some(
                UnendedStarts::decode(lost, starts).map_err(|it| it.with_key(task.to_string()))?,
            ),
            _ => None,
        };
        row.facts.map(|facts| JobFacts::decode(task, facts, starts)).transpose()
    }

    /// Returns the last stored step of a task and the length of its history.
    pub async fn task_position(&self, task: TaskId) -> Result<(u64, u64)> {
        let row =
            sqlx::query!("SELECT project, revision, entries FROM tasks WHERE id = $1", task.0)
                .fetch_optional(&self.steps)
                .await?
                .filter(|row| self.can_read(ProjectId(row.project)))
                .ok_or_else(|| task_not_found(task.0))?;
        Ok((row.revision.unsigned_abs(), row.entries.unsigned_abs()))
    }
}

pub(crate) fn task_not_found(task: Uuid) -> Error {
    Error::NotFound { what: "task", key: task.to_string() }
}

/// Checks that the steps and their entries are consecutive and belong to one task.
fn check_order(steps: &[StepRecord]) -> Result<&[StepRecord], Conflict> {
    for step in steps {
        let numbers = step.entries.iter().map(|entry| entry.sequence);
        if !numbers.eq(step.entries_before() + 1..=step.next.entry_count) {
            return Err(Conflict::OutOfOrder(
                "the entry numbers do not match the count of the state machine",
            ));
        }
        if step.entries.iter().any(|entry| entry.task != step.next.task) {
            return Err(Conflict::OutOfOrder("an entry belongs to another task"));
        }
    }
    for pair in steps.windows(2) {
        let [one, two] = pair else { continue };
        if one.next.task != two.next.task {
            return Err(Conflict::OutOfOrder("the steps belong to several tasks"));
        }
        if one.step + 1 != two.step || one.next.entry_count != two.entries_before() {
            return Err(Conflict::OutOfOrder("a step is missing"));
        }
    }
    Ok(steps)
}

/// Converts a count to the integer type of the database. No real count reaches the limit.
pub(crate) fn to_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
