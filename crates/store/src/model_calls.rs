//! Calls of models that were counted on their way.

use serde::{Serialize, Serializer};
use tamma_core::cost::{Cost, Tokens, Usage};
use tamma_core::ids::TaskId;
use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::error::{Damage, Result};
use crate::runs::{RunNumber, read_usage};
use crate::spelling::{read_number, read_word, word};

/// One call of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelCall {
    /// Its number in the run, from 1.
    pub sequence: u64,
    /// When it was asked.
    pub at: Timestamp,
    /// The model.
    pub model: String,
    /// The status code of the answer.
    pub status: u16,
    /// The tokens, if the answer says how many.
    pub tokens: Option<Tokens>,
    /// The cost, if it could be told.
    pub cost: Cost,
    /// How long it took until the first byte of the answer, in milliseconds.
    pub first_byte_ms: Option<u64>,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// What there is to say about it.
    pub note: Option<String>,
}

/// A call as its row.
#[derive(Serialize)]
struct Written<'a> {
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
        let row = Written {
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

/// What the model calls of a run come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Calls {
    /// Which run.
    pub run: RunNumber,
    /// How many calls.
    pub calls: u64,
    /// How many of them nobody could price.
    pub unknown: u64,
    /// Their tokens, and the sum of the costs that are known.
    pub usage: Usage,
}

impl Store {
    /// The model calls of a run, in their order.
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
            i64::from(run.ticket),
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
        let calls = calls.collect::<Result<_, Damage>>();
        calls.map_err(|damage| damage.of(task.to_string()).into())
    }

    /// What the model calls of a task's runs come to, run by run, in their order.
    pub async fn metered(&self, task: TaskId) -> Result<Vec<Calls>> {
        let rows = sqlx::query!(
            r#"
            SELECT
                ticket, attempt, count(*) AS "calls!",
                count(*) FILTER (WHERE cost_usd IS NULL) AS "unknown!",
                coalesce(sum(tokens_input), 0)::bigint AS "input!",
                coalesce(sum(tokens_cached), 0)::bigint AS "cached!",
                coalesce(sum(tokens_output), 0)::bigint AS "output!",
                coalesce(sum(cost_usd), 0)::text AS "usd!"
            FROM model_calls
            WHERE task = $1
                AND at >= (SELECT created_at - interval '1 day' FROM tasks WHERE id = $1)
            GROUP BY ticket, attempt ORDER BY ticket, attempt
            "#,
            task.0,
        )
        .fetch_all(&self.lists)
        .await?;
        let what = "model call";
        let sums = rows.into_iter().map(|row| {
            let run = RunNumber {
                ticket: read_number(what, row.ticket)?,
                attempt: read_number(what, row.attempt)?,
            };
            let tokens = Tokens {
                input: read_number(what, row.input)?,
                cached: read_number(what, row.cached)?,
                output: read_number(what, row.output)?,
            };
            Ok(Calls {
                run,
                calls: read_number(what, row.calls)?,
                unknown: read_number(what, row.unknown)?,
                usage: Usage { tokens, cost: Cost::Known(read_word(what, row.usd)?) },
            })
        });
        let sums = sums.collect::<Result<_, Damage>>();
        sums.map_err(|damage| damage.of(task.to_string()).into())
    }
}
