//! Runs of agents, and what they say and do.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tamma_core::cost::{Cost, Usd};
use tamma_core::tier::Tier;
use tamma_store::{LineKind, RunEnd};
use utoipa::ToSchema;

/// The runs of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Runs {
    /// The runs, in their order.
    pub runs: Vec<Run>,
}

/// One run of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Run {
    /// Its number: the ticket of its job, and the attempt where it is not the first.
    #[schema(example = "4.2")]
    pub run: String,
    /// The ticket of its job.
    pub ticket: u32,
    /// How often the job had been taken up.
    pub attempt: u32,
    /// The agent, as the rules call it.
    pub agent: String,
    /// The model, if it is known.
    pub model: Option<String>,
    /// How strong an engine it had.
    #[schema(value_type = Option<String>)]
    pub tier: Option<Tier>,
    /// What it was for: plan, implement, validate or advise.
    pub mode: String,
    /// The agent's name for its session.
    pub session: Option<String>,
    /// When it started.
    pub started_at: DateTime<Utc>,
    /// When it ended; nothing while it runs.
    pub ended_at: Option<DateTime<Utc>>,
    /// How it ended: finished, crashed, `timed_out`, cancelled, unavailable, quota,
    /// `over_budget` or asked; nothing while it runs.
    #[schema(value_type = Option<String>)]
    pub end: Option<RunEnd>,
    /// Why it ended so.
    pub reason: Option<String>,
    /// What it has used; nothing where nobody has said so, which is not zero.
    pub usage: Option<RunUsage>,
    /// How many model calls were counted.
    pub calls: u64,
    /// The number of its last line.
    pub lines: u64,
    /// Whether its transcript is kept.
    pub transcript: bool,
}

/// What a run has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunUsage {
    /// Tokens that were read at the full price.
    pub input: u64,
    /// Tokens that were read from a cache.
    pub cached: u64,
    /// Tokens that were written.
    pub output: u64,
    /// US dollars; nothing where nobody could tell, which is not zero.
    #[schema(value_type = Option<String>, example = "0.42")]
    pub usd: Option<Usd>,
    /// Whether Tamma has counted this itself. If not, it is what the agent says.
    pub metered: bool,
}

/// The run that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Present {
    /// The run, as far as it has come.
    #[serde(flatten)]
    pub run: Run,
    /// What the agent does at the moment: its last line.
    pub doing: Option<RunLine>,
}

/// Part of what the runs of a task have said and done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunLines {
    /// The lines, in their order.
    pub lines: Vec<RunLine>,
    /// What to pass as `after` for the rest, if there may be more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Something that a run has said or done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunLine {
    /// Its place among the lines of the task.
    #[schema(example = "4.1.17")]
    pub place: String,
    /// The number of the run.
    #[schema(example = "4")]
    pub run: String,
    /// When it happened.
    pub at: DateTime<Utc>,
    /// What kind of thing it is: said, thought, tool, plan, progress, asked, refused, `model_call`
    /// or note.
    #[schema(value_type = String)]
    pub kind: LineKind,
    /// For people. It has no secrets and no control characters in it but tabs and new lines.
    pub text: String,
    /// The same for programs, where there is more to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub data: Option<Value>,
}

impl From<tamma_store::Run> for Run {
    fn from(it: tamma_store::Run) -> Self {
        let usage = it.usage.map(|usage| RunUsage {
            input: usage.tokens.input,
            cached: usage.tokens.cached,
            output: usage.tokens.output,
            usd: match usage.cost {
                Cost::Known(usd) => Some(usd),
                Cost::Unknown => None,
            },
            metered: it.metered,
        });
        Self {
            run: it.number.to_string(),
            ticket: it.number.ticket,
            attempt: it.number.attempt,
            agent: it.agent,
            model: it.model,
            tier: it.tier,
            mode: it.mode,
            session: it.session,
            started_at: it.started_at,
            ended_at: it.ended_at,
            end: it.end,
            reason: it.reason,
            usage,
            calls: it.calls,
            lines: it.lines,
            transcript: it.transcript.is_some(),
        }
    }
}

impl From<tamma_store::RunLine> for RunLine {
    fn from(it: tamma_store::RunLine) -> Self {
        Self {
            place: it.place.to_string(),
            run: it.place.run.to_string(),
            at: it.at,
            kind: it.kind,
            text: it.text,
            data: it.data,
        }
    }
}
