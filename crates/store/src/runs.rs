//! Agent runs: start, end and usage.
//!
//! An *iteration* is one implementation run and the review of its change. A *run* is one agent
//! execution for any job. Every attempt at a job is a run of its own.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tamma_core::cost::{Cost, Tokens, Usage};
use tamma_core::ids::TaskId;
use tamma_core::task_loop::Timestamp;
use tamma_core::tier::Tier;

use crate::connection::Store;
use crate::encoding::{json, read, read_number, read_word, word};
use crate::error::{CorruptData, Error, Result};
use crate::lines::NewLine;
use crate::model_calls::ModelCall;
use crate::steps::{task_not_found, to_i64};

/// Identity of a run within its task, such as `4` or `4.2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunNumber {
    /// Number of its job.
    pub job_number: u32,
    /// Number of the attempt at the job, from 1.
    pub attempt: u32,
}

/// Text that is not a run number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a run number; use a number such as 4, or 4.2 for the second attempt")]
pub struct InvalidRunNumber(String);

impl fmt::Display for RunNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.attempt {
            1 => write!(f, "{}", self.job_number),
            later => write!(f, "{}.{later}", self.job_number),
        }
    }
}

impl FromStr for RunNumber {
    type Err = InvalidRunNumber;
    fn from_str(text: &str) -> Result<Self, InvalidRunNumber> {
        let (job_number, attempt) = text.split_once('.').unwrap_or((text, "1"));
        match (job_number.parse(), attempt.parse()) {
            (Ok(job_number), Ok(attempt)) => Ok(Self { job_number, attempt }),
            _ => Err(InvalidRunNumber(text.chars().take(40).collect())),
        }
    }
}

/// Outcome of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum RunEnd {
    /// Agent reported that it is done.
    Finished,
    /// Agent process died or failed.
    Crashed,
    /// Time limit was exceeded.
    TimedOut,
    /// Run was cancelled.
    Cancelled,
    /// Agent could not be started.
    Unavailable,
    /// Provider's quota is exhausted.
    Quota,
    /// Budget of the run is spent.
    OverBudget,
    /// Agent asked a person a question.
    Asked,
    /// Model refused the work.
    Refused,
    /// Agent disputed the plan.
    PlanWrong,
}

/// Run to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRun {
    /// Task that the run belongs to.
    pub task: TaskId,
    /// Number of the run within the task.
    pub number: RunNumber,
    /// Start of the run.
    pub at: Timestamp,
    /// Name of the agent in the rules.
    pub agent: String,
    /// Requested model, if any.
    pub model: Option<String>,
    /// Tier that the agent runs as.
    pub tier: Option<Tier>,
    /// Purpose: plan, implement, validate or advise.
    pub mode: String,
    /// Name of its worker.
    pub worker: Option<String>,
}

/// Run with its current status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRecord {
    /// Number of the run within its task.
    pub number: RunNumber,
    /// Name of the agent in the rules.
    pub agent: String,
    /// Model, if known.
    pub model: Option<String>,
    /// Tier that the agent ran as.
    pub tier: Option<Tier>,
    /// Purpose: plan, implement, validate or advise.
    pub mode: String,
    /// Agent's ID of the session.
    pub session: Option<String>,
    /// Start of the run.
    pub started_at: Timestamp,
    /// End of the run; `None` while it is active.
    pub ended_at: Option<Timestamp>,
    /// Outcome; `None` while it is active.
    pub end: Option<RunEnd>,
    /// Reason for the outcome.
    pub reason: Option<String>,
    /// Usage so far. `None` means unknown, which is not zero.
    pub usage: Option<Usage>,
    /// `true` if the gateway metered the usage, `false` if the agent reported it.
    pub metered: bool,
    /// Object key of the transcript, once it is complete.
    pub transcript: Option<String>,
    /// Number of the last log line.
    pub lines: u64,
    /// Number of metered model calls.
    pub calls: u64,
    /// Tool calls that run now; empty once the run has ended.
    pub running: Vec<RunningCall>,
}

/// End of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedRun {
    /// Time of the end.
    pub at: Timestamp,
    /// Outcome of the run.
    pub end: RunEnd,
    /// Reason for the outcome.
    pub reason: Option<String>,
    /// Usage, if known; the flag is `true` if the gateway metered it.
    pub usage: Option<(Usage, bool)>,
    /// Object key of the transcript, if it was stored.
    pub transcript: Option<String>,
}

/// New information about a run since the last update.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunUpdate {
    /// New log lines, in order.
    pub lines: Vec<NewLine>,
    /// New model calls, in order.
    pub calls: Vec<ModelCall>,
    /// Agent's ID of the session.
    pub session: Option<String>,
    /// Model in use.
    pub model: Option<String>,
    /// Usage so far; the flag is `true` if the gateway metered it.
    pub usage: Option<(Usage, bool)>,
    /// Tool calls that run now; `None` if they have not changed.
    pub running: Option<Vec<RunningCall>>,
}

/// Tool call that has not ended yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningCall {
    /// Title, such as a command line.
    pub title: String,
    /// Kind of tool, as the agent names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Start of the call.
    pub since: Timestamp,
}

#[derive(Deserialize)]
struct Row {
    ticket: i64,
    attempt: i64,
    agent: String,
    model: Option<String>,
    tier: Option<String>,
    mode: String,
    session: Option<String>,
    started_at: Timestamp,
    ended_at: Option<Timestamp>,
    outcome: Option<String>,
    reason: Option<String>,
    tokens_input: Option<i64>,
    tokens_cached: Option<i64>,
    tokens_output: Option<i64>,
    cost: Option<String>,
    metered: bool,
    transcript: Option<String>,
    lines: i64,
    calls: i64,
    running: Option<serde_json::Value>,
}

/// Selects runs that match an SQL condition.
macro_rules! rows {
    ($rest:tt $(, $argument:expr)* $(,)?) => {
        sqlx::query_as!(
            Row,
            "SELECT
                ticket, attempt, agent, model, tier, mode, session, started_at, ended_at, outcome,
                reason, tokens_input, tokens_cached, tokens_output, cost_usd::text AS cost, metered,
                transcript, lines, calls, running
             FROM runs WHERE " + $rest
            $(, $argument)*
        )
    };
}

impl Store {
    /// Starts a run and returns the number of its last log line: 0 unless it was started before.
    ///
    /// Earlier runs of the task without an end have lost their worker, so they are ended here.
    pub async fn begin_run(&self, run: &NewRun) -> Result<u64> {
        let lines = sqlx::query_scalar!(
            "
            WITH owner AS (
                SELECT id, project FROM tasks WHERE id = $1
                UNION ALL
                SELECT id, project FROM pipelines WHERE id = $1
            ),
            lost AS (
                UPDATE runs SET
                    ended_at = $4, outcome = 'crashed', reason = 'its worker was lost'
                WHERE task = $1 AND ended_at IS NULL AND (ticket, attempt) < ($2, $3)
            )
            INSERT INTO runs
            (task, ticket, attempt, project, started_at, agent, model, tier, mode, worker, metered)
            SELECT id, $2, $3, project, $4, $5, $6, $7, $8, $9, false FROM owner
            ON CONFLICT (task, ticket, attempt) DO UPDATE SET
                agent = excluded.agent, model = excluded.model, tier = excluded.tier,
                mode = excluded.mode, worker = excluded.worker, ended_at = NULL, outcome = NULL,
                reason = NULL
            RETURNING lines
            ",
            run.task.0,
            i64::from(run.number.job_number),
            i64::from(run.number.attempt),
            run.at,
            run.agent,
            run.model.as_deref(),
            run.tier.as_ref().map(word),
            run.mode,
            run.worker.as_deref(),
        )
        .fetch_optional(&self.steps)
        .await?
        .ok_or_else(|| task_not_found(run.task.0))?;
        Ok(lines.unsigned_abs())
    }

    /// Appends an update to a run. Repeating an update has no effect.
    pub async fn append_run_update(
        &self,
        task: TaskId,
        run: RunNumber,
        news: &RunUpdate,
    ) -> Result<()> {
        let last_line = news.lines.last().map_or(0, |line| line.sequence);
        let last_call = news.calls.last().map_or(0, |call| call.sequence);
        let row = sqlx::query_file!(
            "queries/append.sql",
            task.0,
            i64::from(run.job_number),
            i64::from(run.attempt),
            json(&news.lines),
            json(&news.calls),
            to_i64(last_line),
            to_i64(last_call),
            news.session.as_deref().map(strip_nul),
            news.model.as_deref().map(strip_nul),
            usage_json(news.usage),
            news.running.as_ref().map(json),
        )
        .fetch_one(&self.steps)
        .await?;
        if row.runs == 0 { Err(run_not_found(task, run)) } else { Ok(()) }
    }

    /// Ends a run. Final usage replaces the usage reported while it ran.
    pub async fn end_run(&self, task: TaskId, run: RunNumber, ended: &EndedRun) -> Result<()> {
        self.finish_run(task, run, &RunUpdate::default(), ended).await
    }

    /// Appends the last update to a run, ends it and settles its reservation. Repeating it has no
    /// effect.
    pub async fn finish_run(
        &self,
        task: TaskId,
        run: RunNumber,
        news: &RunUpdate,
        ended: &EndedRun,
    ) -> Result<()> {
        let last_line = news.lines.last().map_or(0, |line| line.sequence);
        let last_call = news.calls.last().map_or(0, |call| call.sequence);
        let is_known = sqlx::query_scalar!(
            r#"SELECT end_run(
                $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14
             ) AS "is_known!""#,
            task.0,
            i64::from(run.job_number),
            i64::from(run.attempt),
            json(&news.lines),
            json(&news.calls),
            to_i64(last_line),
            to_i64(last_call),
            news.session.as_deref().map(strip_nul),
            news.model.as_deref().map(strip_nul),
            usage_json(ended.usage.or(news.usage)),
            ended.at,
            word(&ended.end),
            ended.reason.as_deref().map(strip_nul),
            ended.transcript.as_deref(),
        )
        .fetch_one(&self.steps)
        .await?;
        if is_known { Ok(()) } else { Err(run_not_found(task, run)) }
    }

    /// Saves the object key of a transcript for a run that ended without one.
    pub async fn save_transcript_key(&self, task: TaskId, run: RunNumber, at: &str) -> Result<()> {
        sqlx::query!(
            "UPDATE runs SET transcript = $4 WHERE task = $1 AND ticket = $2 AND attempt = $3",
            task.0,
            i64::from(run.job_number),
            i64::from(run.attempt),
            at,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Returns the runs of a task, in order.
    pub async fn runs(&self, task: TaskId) -> Result<Vec<RunRecord>> {
        let rows = rows!("task = $1 ORDER BY ticket, attempt", task.0).fetch_all(&self.reads);
        let runs = rows.await?.into_iter().map(run_record).collect::<Result<_, CorruptData>>();
        runs.map_err(|damage| damage.with_key(task.to_string()).into())
    }

    /// Returns the latest run of a task, if any.
    pub async fn latest_run(&self, task: TaskId) -> Result<Option<RunRecord>> {
        let row = rows!("task = $1 ORDER BY ticket DESC, attempt DESC LIMIT 1", task.0)
            .fetch_optional(&self.reads);
        let latest = row.await?.map(run_record).transpose();
        latest.map_err(|damage: CorruptData| damage.with_key(task.to_string()).into())
    }
}

/// Encodes the usage of a run as a statement parameter.
fn usage_json(usage: Option<(Usage, bool)>) -> serde_json::Value {
    let Some((Usage { tokens, cost }, metered)) = usage else { return json!({ "told": false }) };
    json!({
        "told": true,
        "tokens_input": tokens.input,
        "tokens_cached": tokens.cached,
        "tokens_output": tokens.output,
        "cost_usd": match cost { Cost::Known(usd) => Some(word(&usd)), Cost::Unknown => None },
        "metered": metered,
    })
}

/// Replaces the NUL characters that PostgreSQL does not accept.
fn strip_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// Decodes a run that a function of the database returned.
pub(crate) fn decode_run(task: TaskId, run: serde_json::Value) -> Result<RunRecord> {
    let record = read("run", run).and_then(run_record);
    record.map_err(|damage| damage.with_key(task.to_string()).into())
}

fn run_record(row: Row) -> Result<RunRecord, CorruptData> {
    let what = "run";
    Ok(RunRecord {
        number: RunNumber {
            job_number: read_number(what, row.ticket)?,
            attempt: read_number(what, row.attempt)?,
        },
        agent: row.agent,
        model: row.model,
        tier: row.tier.map(|tier| read_word(what, tier)).transpose()?,
        mode: row.mode,
        session: row.session,
        started_at: row.started_at,
        ended_at: row.ended_at,
        end: row.outcome.map(|end| read_word(what, end)).transpose()?,
        reason: row.reason,
        usage: read_usage(
            what,
            (row.tokens_input, row.tokens_cached, row.tokens_output),
            row.cost,
        )?,
        metered: row.metered,
        transcript: row.transcript,
        lines: row.lines.unsigned_abs(),
        calls: row.calls.unsigned_abs(),
        // Only for people who look on: what cannot be read is left out.
        running: row
            .running
            .filter(|_| row.ended_at.is_none())
            .and_then(|calls| serde_json::from_value(calls).ok())
            .unwrap_or_default(),
    })
}

/// Decodes usage; `None` if none was reported.
pub(crate) fn read_usage(
    what: &'static str,
    (input, cached, output): (Option<i64>, Option<i64>, Option<i64>),
    cost: Option<String>,
) -> Result<Option<Usage>, CorruptData> {
    if input.is_none() && cost.is_none() {
        return Ok(None);
    }
    let number = |number: Option<i64>| read_number(what, number.unwrap_or_default());
    let (input, cached, output) = (number(input)?, number(cached)?, number(output)?);
    // Cache writes are stored as part of the input. The cost, which is stored, too, counts them.
    let tokens = Tokens { input, cached, output, ..Tokens::default() };
    let cost = match cost {
        Some(cost) => Cost::Known(read_word(what, cost)?),
        None => Cost::Unknown,
    };
    Ok(Some(Usage { tokens, cost }))
}

fn run_not_found(task: TaskId, run: RunNumber) -> Error {
    Error::NotFound { what: "run", key: format!("{run} of task {task}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_named_by_its_job_number_and_a_later_attempt() {
        for (text, job_number, attempt) in [("4", 4, 1), ("4.2", 4, 2)] {
            let number = RunNumber { job_number, attempt };
            assert_eq!(text.parse(), Ok(number));
            assert_eq!(number.to_string(), text);
        }
        for text in ["", "x", "4.", "-1", "4.2.1"] {
            assert!(text.parse::<RunNumber>().is_err(), "{text}");
        }
    }
}
