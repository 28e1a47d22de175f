//! Model calls that the gateway metered.

use serde::{Serialize, Serializer};
use tamma_core::cost::{Cost, Tokens, Usage};
use tamma_core::ids::TaskId;
use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::encoding::{read_number, read_word, word};
use crate::error::{CorruptData, Result};
use crate::runs::{RunNumber, read_usage};

/// One call to a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelCall {
    /// Number of the call within its run, from 1.
    pub sequence: u64,
    /// Time of the request.
    pub at: Timestamp,
    /// Name of the model.
    pub model: String,
    /// HTTP status of the response.
    pub status: u16,
    /// Token counts, if the response reports them.
    pub tokens: Option<Tokens>,
    /// Cost, if it could be determined.
    pub cost: Cost,
    /// Time to the first byte of the response, in milliseconds.
    pub first_byte_ms: Option<u64>,
    /// Total duration, in milliseconds.
    pub took_ms: u64,
    /// Remark for people, such as an error.
    pub note: Option<String>,
}

/// Usage of earlier attempts at a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EarlierUsage {
    /// Tokens and cost.
    pub usage: Usage,
    /// Set if the gateway did not meter all of it.
    pub is_estimated: bool,
}

/// Column values of a call.
#[derive(Serialize)]
struct ModelCallRow<'a> {
    sequence: u64,
    at: Timestamp,
    model: &'a str,
    status: u16,
    tokens_input: Option<u64>,
    tokens_cached: Option<u64>,
    tokens_output: Option<u64>,
    cost_usd: Option<String>,
    first_byte_ms: Option<u64>,
    took_ms: u64,
    note: Option<&'a str>,
}

impl Serialize for ModelCall {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let cost_usd = match self.cost {
            Cost::Known(usd) => Some(word(&usd)),
            Cost::Unknown => None,
        };
        let row = ModelCallRow {
            sequence: self.sequence,
            at: self.at,
            model: &self.model,
            status: self.status,
            tokens_input: self.tokens.map(|tokens| tokens.input),
            tokens_cached: self.tokens.map(|tokens| tokens.cached),
            tokens_output: self.tokens.map(|tokens| tokens.output),
            cost_usd,
            first_byte_ms: self.first_byte_ms,
            took_ms: self.took_ms,
            note: self.note.as_deref(),
        };
        row.serialize(serializer)
    }
}

impl Store {
    /// Returns the model calls of a run, in order.
    pub async fn model_calls(&self, task: TaskId, run: RunNumber) -> Result<Vec<ModelCall>> {
        let rows = sqlx::query!(
            r#"
            SELECT
                sequence, at, model, status, tokens_input, tokens_cached, tokens_output,
                cost_usd::text AS cost, first_byte_ms, took_ms, note
            FROM model_calls
            WHERE task = $1 AND ticket = $2 AND attempt = $3
                AND at >= (SELECT created_at - interval '1 day' FROM tasks WHERE id = $1)
            ORDER BY sequence
            "#,
            task.0,
            i64::from(run.job_number),
            i64::from(run.attempt),
        )
        .fetch_all(&self.lists)
        .await?;
        let what = "model call";
        let calls = rows.into_iter().map(|row| {
            let tokens = (row.tokens_input, row.tokens_cached, row.tokens_output);
            let cost = match row.cost {
                Some(cost) => Cost::Known(read_word(what, cost)?),
                None => Cost::Unknown,
            };
            Ok(ModelCall {
                sequence: read_number(what, row.sequence)?,
                at: row.at,
                model: row.model,
                status: read_number(what, row.status.into())?,
                tokens: read_usage(what, tokens, None)?.map(|usage| usage.tokens),
                cost,
                first_byte_ms: row.first_byte_ms.map(|ms| read_number(what, ms)).transpose()?,
                took_ms: read_number(what, row.took_ms)?,
                note: row.note,
            })
        });
        let calls = calls.collect::<Result<_, CorruptData>>();
        calls.map_err(|damage| damage.with_key(task.to_string()).into())
    }

    /// Returns the usage of the attempts at a job before this one, without that of `known`, metered or as their
    /// agents reported it; `None` if there is none. An attempt of unknown cost counts as much as the estimate,
    /// at least, as in its reservation.
    pub async fn earlier_usage(
        &self,
        task: TaskId,
        run: RunNumber,
        known: u32,
    ) -> Result<Option<EarlierUsage>> {
        let row = sqlx::query!(
            r#"
            WITH calls AS (
                SELECT
                    attempt,
                    count(*) FILTER (WHERE cost_usd IS NULL) AS unpriced,
                    sum(cost_usd) AS usd,
                    sum(tokens_input)::bigint AS input,
                    sum(tokens_cached)::bigint AS cached,
                    sum(tokens_output)::bigint AS output
                FROM model_calls
                WHERE task = $1 AND ticket = $2 AND attempt < $3 AND attempt <> $4
                    AND at >= (
                        SELECT min(started_at) - interval '1 day' FROM runs
                        WHERE task = $1 AND ticket = $2
                    )
                GROUP BY attempt
            ),
            attempts AS (
                SELECT
                    greatest(runs.tokens_input, calls.input) AS input,
                    greatest(runs.tokens_cached, calls.cached) AS cached,
                    greatest(runs.tokens_output, calls.output) AS output,
                    greatest(runs.cost_usd, calls.usd) AS usd,
                    calls.attempt IS NULL AS is_unmetered,
                    r.estimate_usd AS estimate,
                    coalesce(calls.unpriced > 0, FALSE) OR (
                        -- The agent worked, and neither the gateway nor it has said what that costs.
                        calls.attempt IS NULL AND runs.cost_usd IS NULL AND (
                            runs.tokens_input IS NOT NULL
                            OR (runs.session IS NOT NULL AND NOT coalesce(r.metered, TRUE))
                        )
                    ) AS is_unpriced
                FROM runs
                LEFT JOIN calls ON calls.attempt = runs.attempt
                LEFT JOIN run_reservations AS r ON r.task = runs.task AND r.ticket = runs.ticket
                WHERE
                    runs.task = $1 AND runs.ticket = $2
                    AND runs.attempt < $3 AND runs.attempt <> $4
            )
            SELECT
                count(*) AS "attempts!",
                coalesce(bool_or(is_unpriced AND estimate IS NULL), FALSE) AS "is_unknown!",
                coalesce(bool_or(is_unpriced OR is_unmetered), FALSE) AS "is_estimated!",
                coalesce(sum(input), 0)::bigint AS "input!",
                coalesce(sum(cached), 0)::bigint AS "cached!",
                coalesce(sum(output), 0)::bigint AS "output!",
                coalesce(
                    sum(CASE WHEN is_unpriced THEN greatest(usd, estimate) ELSE usd END), 0
                )::text AS "usd!"
            FROM attempts
            WHERE is_unpriced OR input IS NOT NULL OR usd IS NOT NULL
            "#,
            task.0,
            i64::from(run.job_number),
            i64::from(run.attempt),
            i64::from(known),
        )
        .fetch_one(&self.steps)
        .await?;
        if row.attempts == 0 {
            return Ok(None);
        }
        let read = || -> Result<EarlierUsage, CorruptData> {
            let what = "usage of attempts";
            let tokens = Tokens {
                input: read_number(what, row.input)?,
                cached: read_number(what, row.cached)?,
                output: read_number(what, row.output)?,
                ..Tokens::default()
            };
            let sum = Cost::Known(read_word(what, row.usd.clone())?);
            let cost = if row.is_unknown { Cost::Unknown } else { sum };
            Ok(EarlierUsage { usage: Usage { tokens, cost }, is_estimated: row.is_estimated })
        };
        let usage = read().map_err(|damage| damage.with_key(task.to_string()))?;
        Ok(Some(usage))
    }
}
