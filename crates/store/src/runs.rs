//! Runs of agents: what each was, how it ended, and what it used.
//!
//! An *iteration* is the loop's view: a change and the review of it. A run is one agent's life, in
//! whatever mode; every attempt at a job is one of its own.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tamma_core::cost::{Cost, Tokens, Usage};
use tamma_core::ids::TaskId;
use tamma_core::task_loop::Timestamp;
use tamma_core::tier::Tier;

use crate::connection::Store;
use crate::error::{Damage, Error, Result};
use crate::lines::NewLine;
use crate::model_calls::ModelCall;
use crate::record::{no_task, signed};
use crate::spelling::{json, read_number, read_word, word};

/// Which run of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunNumber {
    /// The ticket of its job.
    pub ticket: u32,
    /// How often the job has been taken up, this time included.
    pub attempt: u32,
}

/// A text that is no number of a run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the number of a run: write it like 4, or 4.2 for the second attempt")]
pub struct NoRunNumber(String);

impl fmt::Display for RunNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.attempt {
            1 => write!(f, "{}", self.ticket),
            later => write!(f, "{}.{later}", self.ticket),
        }
    }
}

impl FromStr for RunNumber {
    type Err = NoRunNumber;
    fn from_str(text: &str) -> Result<Self, NoRunNumber> {
        let (ticket, attempt) = text.split_once('.').unwrap_or((text, "1"));
        match (ticket.parse(), attempt.parse()) {
            (Ok(ticket), Ok(attempt)) => Ok(Self { ticket, attempt }),
            _ => Err(NoRunNumber(text.chars().take(40).collect())),
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum RunEnd {
    /// The agent says that it is done.
    Finished,
    /// The agent died, or could not go on.
    Crashed,
    /// It took longer than it may.
    TimedOut,
    /// It was told to stop.
    Cancelled,
    /// It could not be started.
    Unavailable,
    /// The provider's quota is used up.
    Quota,
    /// It has spent what it may.
    OverBudget,
    /// It has a question to a person.
    Asked,
}

/// A run that begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRun {
    /// The task.
    pub task: TaskId,
    /// Which run of it.
    pub number: RunNumber,
    /// When it starts.
    pub at: Timestamp,
    /// The agent, as the rules call it.
    pub agent: String,
    /// The model, if one is asked for.
    pub model: Option<String>,
    /// How strong an engine it is.
    pub tier: Option<Tier>,
    /// What it is for: plan, implement, validate or advise.
    pub mode: String,
    /// The worker that does it, as it calls itself.
    pub worker: Option<String>,
}

/// A run, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Which run of its task.
    pub number: RunNumber,
    /// The agent, as the rules call it.
    pub agent: String,
    /// The model, if it is known.
    pub model: Option<String>,
    /// How strong an engine it had.
    pub tier: Option<Tier>,
    /// What it was for: plan, implement, validate or advise.
    pub mode: String,
    /// The agent's name for its session.
    pub session: Option<String>,
    /// When it started.
    pub started_at: Timestamp,
    /// When it ended; nothing while it runs.
    pub ended_at: Option<Timestamp>,
    /// How it ended; nothing while it runs.
    pub end: Option<RunEnd>,
    /// Why it ended so.
    pub reason: Option<String>,
    /// What it has used. Nothing said is not nothing used.
    pub usage: Option<Usage>,
    /// Whether we have counted that ourselves, or the agent says so.
    pub metered: bool,
    /// Where the transcript is among the objects, once it is whole.
    pub transcript: Option<String>,
    /// The number of its last line.
    pub lines: u64,
    /// How many model calls were counted.
    pub calls: u64,
}

/// How a run ended, with what there is to say about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedRun {
    /// When.
    pub at: Timestamp,
    /// How.
    pub end: RunEnd,
    /// Why.
    pub reason: Option<String>,
    /// What it used, if that is known, and whether we have counted it ourselves.
    pub usage: Option<(Usage, bool)>,
    /// Where the transcript is among the objects, if it is there.
    pub transcript: Option<String>,
}

/// What has become known of a run since the last time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct News {
    /// New lines, in their order.
    pub lines: Vec<NewLine>,
    /// New model calls, in their order.
    pub calls: Vec<ModelCall>,
    /// The agent's name for its session.
    pub session: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// What it has used so far, and whether we have counted it ourselves.
    pub usage: Option<(Usage, bool)>,
}

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
}

/// The rows of runs for which some SQL holds.
macro_rules! rows {
    ($rest:tt $(, $argument:expr)* $(,)?) => {
        sqlx::query_as!(
            Row,
            "SELECT
                ticket, attempt, agent, model, tier, mode, session, started_at, ended_at, outcome,
                reason, tokens_input, tokens_cached, tokens_output, cost_usd::text AS cost, metered,
                transcript, lines, calls
             FROM runs WHERE " + $rest
            $(, $argument)*
        )
    };
}

impl Store {
    /// Begins a run, and returns the number of its last line: 0, unless it had begun before.
    ///
    /// Runs of the task that were begun earlier and have no end have lost their worker.
    pub async fn begin_run(&self, run: &NewRun) -> Result<u64> {
        let lines = sqlx::query_scalar!(
            "
            WITH owner AS (SELECT id, project FROM tasks WHERE id = $1),
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
            i64::from(run.number.ticket),
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
        .ok_or_else(|| no_task(run.task.0))?;
        Ok(lines.unsigned_abs())
    }

    /// Adds what has become known of a run. The same news may come again; it is written once.
    pub async fn tell(&self, task: TaskId, run: RunNumber, news: &News) -> Result<()> {
        let last_line = news.lines.last().map_or(0, |line| line.sequence);
        let last_call = news.calls.last().map_or(0, |call| call.sequence);
        let row = sqlx::query_file!(
            "queries/append.sql",
            task.0,
            i64::from(run.ticket),
            i64::from(run.attempt),
            json(&news.lines),
            json(&news.calls),
            signed(last_line),
            signed(last_call),
            news.session.as_deref().map(plain),
            news.model.as_deref().map(plain),
            used(news.usage),
        )
        .fetch_one(&self.steps)
        .await?;
        if row.runs == 0 { Err(no_run(task, run)) } else { Ok(()) }
    }

    /// Ends a run. What is said of its usage stands over what was said while it ran.
    pub async fn end_run(&self, task: TaskId, run: RunNumber, ended: &EndedRun) -> Result<()> {
        let row = sqlx::query!(
            r#"
            WITH run AS (
                UPDATE runs SET
                    ended_at = $4,
                    outcome = $5,
                    reason = $6,
                    transcript = coalesce($7, runs.transcript),
                    tokens_input = CASE WHEN u.told THEN u.tokens_input ELSE runs.tokens_input END,
                    tokens_cached =
                        CASE WHEN u.told THEN u.tokens_cached ELSE runs.tokens_cached END,
                    tokens_output =
                        CASE WHEN u.told THEN u.tokens_output ELSE runs.tokens_output END,
                    cost_usd = CASE WHEN u.told THEN u.cost_usd ELSE runs.cost_usd END,
                    metered = CASE WHEN u.told THEN u.metered ELSE runs.metered END
                FROM jsonb_to_record($8) AS u (
                    told boolean, tokens_input bigint, tokens_cached bigint, tokens_output bigint,
                    cost_usd numeric, metered boolean
                )
                WHERE task = $1 AND ticket = $2 AND attempt = $3
                RETURNING task, ticket, attempt
            ),
            told AS (
                SELECT pg_notify('tamma_lines', task || ' ' || ticket || ' ' || attempt) AS done
                FROM run
            )
            SELECT count(*) AS "runs!" FROM told
            "#,
            task.0,
            i64::from(run.ticket),
            i64::from(run.attempt),
            ended.at,
            word(&ended.end),
            ended.reason.as_deref().map(plain),
            ended.transcript.as_deref(),
            used(ended.usage),
        )
        .fetch_one(&self.steps)
        .await?;
        if row.runs == 0 { Err(no_run(task, run)) } else { Ok(()) }
    }

    /// Says where the transcript of a run is that has ended without saying so.
    pub async fn keep_transcript(&self, task: TaskId, run: RunNumber, at: &str) -> Result<()> {
        sqlx::query!(
            "UPDATE runs SET transcript = $4 WHERE task = $1 AND ticket = $2 AND attempt = $3",
            task.0,
            i64::from(run.ticket),
            i64::from(run.attempt),
            at,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// The runs of a task, in their order.
    pub async fn runs(&self, task: TaskId) -> Result<Vec<Run>> {
        let rows = rows!("task = $1 ORDER BY ticket, attempt", task.0).fetch_all(&self.steps);
        let runs = rows.await?.into_iter().map(run).collect::<Result<_, Damage>>();
        runs.map_err(|damage| damage.of(task.to_string()).into())
    }

    /// The latest run of a task, if there was one.
    pub async fn latest_run(&self, task: TaskId) -> Result<Option<Run>> {
        let row = rows!("task = $1 ORDER BY ticket DESC, attempt DESC LIMIT 1", task.0)
            .fetch_optional(&self.steps);
        let latest = row.await?.map(run).transpose();
        latest.map_err(|damage: Damage| damage.of(task.to_string()).into())
    }
}

/// What a run has used, as the statements take it.
fn used(usage: Option<(Usage, bool)>) -> serde_json::Value {
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

/// A text that PostgreSQL takes.
fn plain(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

fn run(row: Row) -> Result<Run, Damage> {
    let what = "run";
    Ok(Run {
        number: RunNumber {
            ticket: read_number(what, row.ticket)?,
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
    })
}

/// What was used, if anybody has said anything about it.
pub(crate) fn read_usage(
    what: &'static str,
    (input, cached, output): (Option<i64>, Option<i64>, Option<i64>),
    cost: Option<String>,
) -> Result<Option<Usage>, Damage> {
    if input.is_none() && cost.is_none() {
        return Ok(None);
    }
    let number = |number: Option<i64>| read_number(what, number.unwrap_or_default());
    let tokens = Tokens { input: number(input)?, cached: number(cached)?, output: number(output)? };
    let cost = match cost {
        Some(cost) => Cost::Known(read_word(what, cost)?),
        None => Cost::Unknown,
    };
    Ok(Some(Usage { tokens, cost }))
}

fn no_run(task: TaskId, run: RunNumber) -> Error {
    Error::NotFound { what: "run", key: format!("{run} of {task}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_named_by_its_ticket_and_a_later_attempt() {
        for (text, ticket, attempt) in [("4", 4, 1), ("4.2", 4, 2)] {
            let number = RunNumber { ticket, attempt };
            assert_eq!(text.parse(), Ok(number));
            assert_eq!(number.to_string(), text);
        }
        for text in ["", "x", "4.", "-1", "4.2.1"] {
            assert!(text.parse::<RunNumber>().is_err(), "{text}");
        }
    }
}
