//! Agent runs, their log lines and transcripts.

use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::{Stream, StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use tamma_core::ids::TaskId;
use tamma_store::{LineFilter, LineKind, LinePosition};
use utoipa::IntoParams;

use super::ApiState;
use super::extract::{QueryParams, TaskPath, page_request};
use crate::app::{App, Error, parse_run_number};
use crate::dto::{CurrentRun, RunLine, RunLines, RunList};
use crate::live::{LineSubscriber, TaskSubscriber};
use crate::problem::Problem;

/// Number of lines per query.
const BATCH_SIZE: u32 = 200;

/// Interval of keep-alive comments, so that proxies do not close idle streams.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Lists the runs of a task, oldest first.
#[utoipa::path(
    get, path = "/tasks/{id}/runs", tag = "runs", operation_id = "runs",
    params(("id" = uuid::Uuid, Path, description = "Task ID.")),
    responses(
        (status = OK, body = RunList),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "Task not found."),
    )
)]
pub(super) async fn list(
    state: ApiState,
    TaskPath(task): TaskPath,
) -> Result<Json<RunList>, Problem> {
    Ok(Json(state.app.runs(task).await?))
}

/// Filter for log lines.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct LineQuery {
    /// `place` of the last known line, or `end` for new lines only.
    after: Option<String>,
    /// Returns the last lines before this `place`, or before the `end` of the log. Not together with
    /// `after`, and ignored by the stream.
    before: Option<String>,
    /// Run number, such as `4`, or `4.2` for its second attempt.
    run: Option<String>,
    /// Kinds of lines, separated by commas.
    kinds: Option<String>,
    /// Text to find, in any case.
    text: Option<String>,
    /// Maximum number of lines, 1 to 500; default 50. Ignored by the stream.
    limit: Option<u32>,
}

impl LineQuery {
    fn to_filter(&self) -> Result<LineFilter, Error> {
        let (job_number, attempt) = match &self.run {
            Some(run) => {
                let (job_number, attempt) = parse_run_number(run)?;
                (Some(job_number), attempt)
            }
            None => (None, None),
        };
        let names = self.kinds.iter().flat_map(|kinds| kinds.split(','));
        let kinds = names.map(|name| {
            name.trim().parse::<LineKind>().map_err(|_| {
                let name: String = name.chars().take(40).collect();
                Error::invalid(
                    format!("Unknown line kind `{name}`."),
                    "Use one of: said, thought, tool, plan, progress, asked, document, refused, \
                     model_call, note.",
                )
            })
        });
        let (kinds, text) = (kinds.collect::<Result<_, _>>()?, self.text.clone());
        Ok(LineFilter { job_number, attempt, kinds, text, failed: false })
    }
}

/// Returns the log of a task's runs, oldest lines first.
///
/// `before=end` returns the last page, however long the log is. Old lines are removed; transcripts
/// stay.
#[utoipa::path(
    get, path = "/tasks/{id}/lines", tag = "runs", operation_id = "lines",
    params(("id" = uuid::Uuid, Path, description = "Task ID."), LineQuery),
    responses(
        (status = OK, body = RunLines),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "Task not found."),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "Unknown position, run or kind."),
    )
)]
pub(super) async fn lines(
    state: ApiState,
    TaskPath(task): TaskPath,
    QueryParams(query): QueryParams<LineQuery>,
) -> Result<Json<RunLines>, Problem> {
    let limit = page_request(None, query.limit)?.limit;
    if let Some(before) = &query.before {
        if query.after.is_some() {
            return Err(Error::invalid(
                "`after` and `before` exclude each other.",
                "Pass one of them.",
            )
            .into());
        }
        let before = App::parse_end_position(before)?;
        let lines = state.app.run_lines_before(task, &query.to_filter()?, before, limit).await?;
        return Ok(Json(lines));
    }
    let after = state.app.resolve_line_position(task, query.after.as_deref()).await?;
    Ok(Json(state.app.run_lines(task, &query.to_filter()?, after, limit).await?))
}

/// Streams the log of a task as server-sent events: lines after `Last-Event-ID` or `after`, then
/// new lines until the task is closed.
///
/// The ID of a `line` event is the position of its line; the data is the line. `run` and `task`
/// events carry the current run and the task whenever they have changed. If the task is closed and
/// has no further lines, the response is 204, so that clients stop reconnecting.
#[utoipa::path(
    get, path = "/tasks/{id}/lines/stream", tag = "runs", operation_id = "follow_lines",
    params(
        ("id" = uuid::Uuid, Path, description = "Task ID."), LineQuery,
        ("Last-Event-ID" = Option<String>, Header,
            description = "Position of the last known line."),
    ),
    responses(
        (status = OK, body = RunLine, content_type = "text/event-stream"),
        (status = NO_CONTENT, description = "The task is closed and has no further lines."),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "Task not found."),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "Unknown position, run or kind."),
    )
)]
pub(super) async fn follow(
    state: ApiState,
    TaskPath(task): TaskPath,
    headers: HeaderMap,
    QueryParams(query): QueryParams<LineQuery>,
) -> Result<Response, Problem> {
    // Subscribe before reading, so that no line is missed.
    let subscribers = (state.app.live.subscribe(task), state.app.live.subscribe_lines(task));
    let last_event_id = headers.get("last-event-id").and_then(|id| id.to_str().ok()).map(str::trim);
    let after =
        state.app.resolve_line_position(task, last_event_id.or(query.after.as_deref())).await?;
    let filter = query.to_filter()?;
    let card = state.app.task_card(task).await?;
    if card.state.is_terminal()
        && state.app.run_lines(task, &filter, after, 1).await?.lines.is_empty()
    {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let subscriber = RunSubscriber {
        app: state.app,
        task,
        filter,
        after,
        subscribers,
        entries: None,
        run: None,
    };
    let events = subscriber.events().take_until(state.stop.cancelled_owned());
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE_INTERVAL)).into_response())
}

/// Client that follows the log of a task.
struct RunSubscriber {
    app: App,
    task: TaskId,
    filter: LineFilter,
    /// Position of the last line sent.
    after: LinePosition,
    subscribers: (TaskSubscriber, LineSubscriber),
    /// Number of history entries when the last `task` event was sent.
    entries: Option<u64>,
    /// Content of the last `run` event.
    run: Option<CurrentRun>,
}

impl RunSubscriber {
    fn events(self) -> impl Stream<Item = Result<Event, Infallible>> {
        let batches = stream::unfold(Some(self), |subscriber| async {
            // On errors the stream ends; the client reconnects with its last position.
            let (events, more) = subscriber?.next_batch().await?;
            Some((stream::iter(events.into_iter().map(Ok)), more))
        });
        batches.flatten()
    }

    /// Returns the next events, and itself unless the stream is complete. `None` ends the stream.
    async fn next_batch(mut self) -> Option<(Vec<Event>, Option<Self>)> {
        // Read the task first: lines are stored before the task advances.
        let card = self.app.task_card(self.task).await.ok()?;
        let page =
            self.app.run_lines(self.task, &self.filter, self.after, BATCH_SIZE).await.ok()?;
        let mut events: Vec<_> = page
            .lines
            .iter()
            .map(|line| sse_event("line", line).id(line.position.clone()))
            .collect();
        if let Some(position) = page.lines.last().and_then(|line| line.position.parse().ok()) {
            self.after = position;
        }
        if page.next.is_some() {
            return Some((events, Some(self)));
        }
        let ended = card.state.is_terminal();
        let run = if ended { None } else { self.app.current_run(self.task).await.ok()? };
        if let Some(run) = run.filter(|run| self.run.as_ref() != Some(run)) {
            events.push(sse_event("run", &run));
            self.run = Some(run);
        }
        if self.entries != Some(card.entries) {
            self.entries = Some(card.entries);
            events.push(sse_event("task", &card));
        }
        if ended {
            return Some((events, None));
        }
        if events.is_empty() {
            let (log, lines) = &mut self.subscribers;
            let more = tokio::select! {
                more = log.wait_for_entries_after(card.entries) => more,
                more = lines.wait_for_lines() => more,
            };
            return more.then_some((events, Some(self)));
        }
        Some((events, Some(self)))
    }
}

fn sse_event(name: &str, data: &impl Serialize) -> Event {
    // The data comes from JSON, so it always serialises.
    Event::default().event(name).data(serde_json::to_string(data).unwrap_or_default())
}

/// Returns the transcript of a run as JSON lines: its complete record, without secrets.
#[utoipa::path(
    get, path = "/tasks/{id}/runs/{run}/transcript", tag = "runs", operation_id = "transcript",
    params(
        ("id" = uuid::Uuid, Path, description = "Task ID."),
        ("run" = String, Path,
            description = "Run number, such as `4`, or `4.2` for its second attempt."),
    ),
    responses(
        (status = OK, body = String, content_type = "application/jsonl",
            description = "One update per line."),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "Run not found, no transcript yet, or the transcript is stored where \
                this server cannot read it."),
    )
)]
pub(super) async fn transcript(
    state: ApiState,
    Path((id, run)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let Ok(task) = id.parse().map(TaskId) else {
        return Err(Error::NotFound { what: "task", key: id }.into());
    };
    let (size, pieces) = state.app.transcript(task, &run).await?;
    let headers = [
        (header::CONTENT_TYPE, "application/jsonl".to_owned()),
        (header::CONTENT_LENGTH, size.to_string()),
    ];
    Ok((headers, Body::from_stream(pieces)).into_response())
}
