//! Log tab of a task: output of its agents.

use axum::extract::{Path, Query};
use serde::Deserialize;
use tamma_core::format::{format_duration, format_usd, humanize, pluralize};
use tamma_core::ids::TaskId;
use tamma_store::{LineFilter, LineKind, LinePosition};
use uuid::Uuid;

use super::super::layout::{DisplayTime, Layout, SelectOption};
use super::super::session::Session;
use super::super::{PageError, PageResult, WebState, render};
use super::{TaskPageContext, live_href, task_page};
use crate::app::{Error, parse_run_number};
use crate::dto;

/// Number of lines shown; older ones are left out.
const MAX_LINES: u32 = 500;

/// Kinds of lines shown by default.
const DEFAULT_KINDS: [LineKind; 7] = [
    LineKind::Said,
    LineKind::Tool,
    LineKind::Plan,
    LineKind::Progress,
    LineKind::Asked,
    LineKind::Refused,
    LineKind::Note,
];

task_page!(LogPage, "task_log.html", {
    runs: Vec<SelectOption>, kinds: Vec<SelectOption>, run_list: Vec<RunView>, log: LogView,
});

struct RunView {
    run: String,
    /// Kind of run, agent, model and result.
    facts: String,
    cost: String,
    /// `None` without a transcript.
    transcript_href: Option<String>,
}

struct LogView {
    lines: Vec<LogLineView>,
    end_text: String,
}

/// Log line.
pub(in crate::web) struct LogLineView {
    pub(in crate::web) anchor: String,
    pub(in crate::web) kind: String,
    pub(in crate::web) kind_label: &'static str,
    pub(in crate::web) at: DisplayTime,
    pub(in crate::web) text: String,
}

impl LogLineView {
    pub(in crate::web) fn new(line: &dto::RunLine) -> Self {
        Self {
            anchor: line.position.replace('.', "-"),
            kind: super::super::board::serialized_name(&line.kind),
            kind_label: match line.kind {
                LineKind::Said => "message",
                LineKind::Thought => "thought",
                LineKind::Tool => "tool",
                LineKind::Plan => "plan",
                LineKind::Progress => "progress",
                LineKind::Asked => "permission",
                LineKind::Refused => "refused",
                LineKind::ModelCall => "model",
                LineKind::Note => "note",
            },
            at: DisplayTime::of_log_line(line.at),
            text: line.text.clone(),
        }
    }
}

/// Query parameters of the log tab.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(in crate::web) struct LogQuery {
    run: String,
    kinds: String,
}

impl LogQuery {
    pub(in crate::web) fn line_filter(&self) -> Result<LineFilter, Error> {
        let (job_number, attempt) = match self.run.as_str() {
            "" => (None, None),
            run => {
                let (job_number, attempt) = parse_run_number(run)?;
                (Some(job_number), attempt)
            }
        };
        let kinds = if self.kinds == "all" { Vec::new() } else { DEFAULT_KINDS.to_vec() };
        Ok(LineFilter { job_number, attempt, kinds })
    }
}

pub(in crate::web) async fn page(
    state: WebState,
    session: Session,
    Path(id): Path<Uuid>,
    Query(query): Query<LogQuery>,
) -> PageResult {
    let (mut context, data) = TaskPageContext::load(&state, &session, id, "log").await?;
    let lines = async {
        let filter = query.line_filter()?;
        // Reads to the end and shows the newest lines.
        let mut lines = Vec::new();
        let mut after = LinePosition::START;
        loop {
            let part = state.app.run_lines(TaskId(id), &filter, after, MAX_LINES).await?;
            lines.extend(part.lines);
            match part.next {
                Some(next) => {
                    after = state.app.resolve_line_position(TaskId(id), Some(&next)).await?;
                }
                None => return Ok::<_, Error>(lines),
            }
        }
    };
    let lines =
        lines.await.map_err(|error| PageError::new(Layout::for_session(&session), error))?;
    let last =
        lines.last().and_then(|line| line.position.parse().ok()).unwrap_or(LinePosition::START);
    let query_string = form_urlencoded::Serializer::new(String::new())
        .append_pair("run", &query.run)
        .append_pair("kinds", &query.kinds)
        .finish();
    context.live_href =
        format!("{}&{query_string}", live_href(id, "log", data.detail.card.entries, last));
    let skip = lines.len().saturating_sub(MAX_LINES as usize);
    let end_text = match (data.detail.current_run.is_some(), skip) {
        (true, _) => "A run is in progress.".to_owned(),
        (false, 0) => "No run in progress.".to_owned(),
        (false, skip) => {
            format!("No run in progress. {} not shown.", pluralize(skip, "earlier line"))
        }
    };
    let runs = std::iter::once(SelectOption::new("", "All", &query.run))
        .chain(data.runs.iter().rev().map(|run| {
            SelectOption::new(&run.run, format!("{}, {}", run.run, run.mode), &query.run)
        }))
        .collect();
    let kinds = vec![
        SelectOption::new("", "Messages and actions", &query.kinds),
        SelectOption::new("all", "All, including thoughts and model calls", &query.kinds),
    ];
    let log = LogView { lines: lines.iter().skip(skip).map(LogLineView::new).collect(), end_text };
    let run_list = data.runs.iter().rev().map(|run| run_view(id, run)).collect();
    render(&LogPage::new(context, runs, kinds, run_list, log))
}

fn run_view(task: Uuid, run: &dto::RunDetail) -> RunView {
    let result = match (run.end, run.ended_at) {
        (Some(end), Some(at)) => {
            // A normal end needs no reason.
            let reason = run.reason.as_ref().filter(|reason| *reason != "end_turn");
            let reason = reason.map(|reason| format!(": {reason}"));
            let took = format_duration(at - run.started_at);
            format!("{} after {took}{}", humanize(&end), reason.unwrap_or_default())
        }
        _ => format!("running for {}", format_duration(crate::clock::now() - run.started_at)),
    };
    let usd = run.usage.and_then(|usage| usage.usd);
    let agent = match &run.model {
        Some(model) => format!("{} {model}", run.agent),
        None => run.agent.clone(),
    };
    RunView {
        run: run.run.clone(),
        facts: format!("{}, {agent}, {result}", run.mode),
        cost: usd.map_or_else(|| "cost unknown".to_owned(), format_usd),
        transcript_href: run
            .transcript
            .then(|| format!("/api/v1/tasks/{task}/runs/{}/transcript", run.run)),
    }
}
