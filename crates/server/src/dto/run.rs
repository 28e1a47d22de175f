//! Agent runs and their log lines.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tamma_core::cost::{Cost, Usd};
use tamma_core::tier::Tier;
use tamma_store::{LineKind, RunEnd};
use utoipa::ToSchema;

/// Runs of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunList {
    /// Runs, oldest first.
    pub runs: Vec<RunDetail>,
}

/// Agent run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunDetail {
    /// Run number: the job number, followed by the attempt unless it is the first.
    #[schema(example = "4.2")]
    pub run: String,
    /// Job number.
    #[serde(rename = "ticket")]
    pub job_number: u32,
    /// Attempt, from 1.
    pub attempt: u32,
    /// Agent name from the rules.
    pub agent: String,
    /// Model name; `null` if unknown.
    pub model: Option<String>,
    /// Tier of the agent.
    #[schema(value_type = Option<String>)]
    pub tier: Option<Tier>,
    /// Purpose: plan, implement, validate or advise.
    pub mode: String,
    /// Session ID of the agent.
    pub session: Option<String>,
    /// Start time.
    pub started_at: DateTime<Utc>,
    /// End time; `null` while it runs.
    pub ended_at: Option<DateTime<Utc>>,
    /// Result: finished, crashed, `timed_out`, cancelled, unavailable, quota, `over_budget` or
    /// asked; `null` while it runs.
    #[schema(value_type = Option<String>)]
    pub end: Option<RunEnd>,
    /// Reason for the result.
    pub reason: Option<String>,
    /// Usage; `null` if unknown, which is not zero.
    pub usage: Option<RunUsage>,
    /// Number of metered model calls.
    pub calls: u64,
    /// Sequence number of the last log line.
    pub lines: u64,
    /// `true` if a transcript is available.
    pub transcript: bool,
    /// Tool calls that run now. A call becomes a log line when it ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub running: Vec<RunningCall>,
}

/// Tool call that has not ended yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunningCall {
    /// Title, such as a command line.
    pub title: String,
    /// Kind of tool, as the agent names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Start of the call.
    pub since: DateTime<Utc>,
}

/// Usage of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunUsage {
    /// Input tokens that were not read from a cache, including those written to it.
    pub input: u64,
    /// Input tokens read from a cache.
    pub cached: u64,
    /// Share of the input that was read from a cache, in percent; omitted without input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 86)]
    pub cached_percent: Option<u8>,
    /// Output tokens.
    pub output: u64,
    /// US dollars; `null` if unknown, which is not zero.
    #[schema(value_type = Option<String>, example = "0.42")]
    pub usd: Option<Usd>,
    /// `true` if Tamma metered the usage; otherwise the agent reported it.
    pub metered: bool,
}

/// Current run of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CurrentRun {
    /// Run, with its values so far.
    #[serde(flatten)]
    pub run: RunDetail,
    /// Running tool call, or else the latest log line about the agent's activity.
    #[serde(rename = "doing")]
    pub current_line: Option<RunLine>,
}

/// Page of a task's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunLines {
    /// Lines, oldest first.
    pub lines: Vec<RunLine>,
    /// Value of `after` for the next page; omitted on the last page, and with `before`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Value of `before` for the page before; omitted on the first page, and without `before`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
}

/// Log line of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunLine {
    /// Position in the log of the task.
    #[schema(example = "4.1.17")]
    #[serde(rename = "place")]
    pub position: String,
    /// Run number.
    #[schema(example = "4")]
    pub run: String,
    /// Time of the event.
    pub at: DateTime<Utc>,
    /// Kind of line: said, thought, tool, plan, progress, asked, document, refused, `model_call` or
    /// note.
    #[schema(value_type = String)]
    pub kind: LineKind,
    /// Text, without secrets or control characters other than tabs and line breaks.
    pub text: String,
    /// Structured details, for programs. A tool call has its status, input, output and edits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub data: Option<Value>,
}

impl From<tamma_store::RunRecord> for RunDetail {
    fn from(it: tamma_store::RunRecord) -> Self {
        let usage = it.usage.map(|usage| RunUsage {
            input: usage.tokens.input,
            cached: usage.tokens.cached,
            cached_percent: usage.tokens.cached_percent(),
            output: usage.tokens.output,
            usd: match usage.cost {
                Cost::Known(usd) => Some(usd),
                Cost::Unknown => None,
            },
            metered: it.metered,
        });
        Self {
            run: it.number.to_string(),
            job_number: it.number.job_number,
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
            running: it.running.into_iter().map(RunningCall::from).collect(),
        }
    }
}

impl From<tamma_store::RunningCall> for RunningCall {
    fn from(it: tamma_store::RunningCall) -> Self {
        Self { title: it.title, kind: it.kind, since: it.since }
    }
}

impl From<tamma_store::RunLine> for RunLine {
    fn from(it: tamma_store::RunLine) -> Self {
        Self {
            position: it.position.to_string(),
            run: it.position.run.to_string(),
            at: it.at,
            kind: it.kind,
            text: it.text,
            data: it.data,
        }
    }
}
