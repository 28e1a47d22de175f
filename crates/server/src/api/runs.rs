//! Runs of agents, and what they say and do, now and before.

use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::{Stream, StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use tamma_core::ids::TaskId;
use tamma_store::{LineKind, LinePlace, Wanted};
use utoipa::IntoParams;

use super::Desk;
use super::extract::{Asked, Which, window};
use crate::app::{App, Error, which};
use crate::live::{LineWatcher, Watcher};
use crate::problem::Problem;
use crate::shape::{Present, RunLine, RunLines, Runs};

/// How many lines are read at once.
const BATCH: u32 = 200;

/// How often a stream says that it is still there, so that nobody in between gives it up.
const PULSE: Duration = Duration::from_secs(15);

/// Gives the runs of a task, in their order.
#[utoipa::path(
    get, path = "/tasks/{id}/runs", tag = "runs", operation_id = "runs",
    params(("id" = uuid::Uuid, Path, description = "The task.")),
    responses(
        (status = OK, body = Runs),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "There is no such task."),
    )
)]
pub(super) async fn list(
    State(desk): State<Desk>,
    Which(task): Which,
) -> Result<Json<Runs>, Problem> {
    Ok(Json(desk.app.runs(task).await?))
}

/// Which lines are wanted.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct Part {
    /// The `place` of the last line that is known; `end` for what comes from now on.
    after: Option<String>,
    /// Of this run only: a number such as `4`, or `4.2` for its second attempt.
    run: Option<String>,
    /// Of these kinds only, with commas between them.
    kinds: Option<String>,
    /// How many at most: 1 to 500. A stream ignores it.
    limit: Option<u32>,
}

impl Part {
    fn wanted(&self) -> Result<Wanted, Error> {
        let (ticket, attempt) = match &self.run {
            Some(said) => {
                let (ticket, attempt) = which(said)?;
                (Some(ticket), attempt)
            }
            None => (None, None),
        };
        let names = self.kinds.iter().flat_map(|kinds| kinds.split(','));
        let kinds = names.map(|name| {
            name.trim().parse::<LineKind>().map_err(|_| {
                let name: String = name.chars().take(40).collect();
                Error::invalid(
                    format!("There is no kind of line called `{name}`."),
                    "The kinds are said, thought, tool, plan, progress, asked, refused, model_call \
                     and note.",
                )
            })
        });
        Ok(Wanted { ticket, attempt, kinds: kinds.collect::<Result<_, _>>()? })
    }
}

/// Gives what the runs of a task have said and done, in its order.
///
/// Lines are removed when they are old; transcripts are not.
#[utoipa::path(
    get, path = "/tasks/{id}/lines", tag = "runs", operation_id = "lines",
    params(("id" = uuid::Uuid, Path, description = "The task."), Part),
    responses(
        (status = OK, body = RunLines),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "There is no such task."),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "There is no such place, run or kind."),
    )
)]
pub(super) async fn lines(
    State(desk): State<Desk>,
    Which(task): Which,
    Asked(part): Asked<Part>,
) -> Result<Json<RunLines>, Problem> {
    let limit = window(None, part.limit)?.limit;
    let after = desk.app.place(task, part.after.as_deref()).await?;
    Ok(Json(desk.app.lines(task, &part.wanted()?, after, limit).await?))
}

/// Gives the lines of a task as server-sent events: those after `Last-Event-ID` or `after`, and
/// then those that come, until the task has ended.
///
/// An event `line` has the place of its line as its id, and the line as its data. An event `run`
/// says how the run that is under way stands, an event `task` how the task does, whenever that has
/// changed. A task that has ended and has nothing more to tell is answered with 204, so that clients
/// stop asking.
#[utoipa::path(
    get, path = "/tasks/{id}/lines/stream", tag = "runs", operation_id = "follow_lines",
    params(
        ("id" = uuid::Uuid, Path, description = "The task."), Part,
        ("Last-Event-ID" = Option<String>, Header,
            description = "The place of the last line that is known."),
    ),
    responses(
        (status = OK, body = RunLine, content_type = "text/event-stream"),
        (status = NO_CONTENT, description = "The task has ended, and everything is known."),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "There is no such task."),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "There is no such place, run or kind."),
    )
)]
pub(super) async fn follow(
    State(desk): State<Desk>,
    Which(task): Which,
    headers: HeaderMap,
    Asked(part): Asked<Part>,
) -> Result<Response, Problem> {
    // Watched before anything is read, so that nothing is missed in between.
    let watchers = (desk.app.live.watch(task), desk.app.live.watch_lines(task));
    let known = headers.get("last-event-id").and_then(|id| id.to_str().ok()).map(str::trim);
    let after = desk.app.place(task, known.or(part.after.as_deref())).await?;
    let wanted = part.wanted()?;
    let card = desk.app.card(task).await?;
    if card.state.is_terminal() && desk.app.lines(task, &wanted, after, 1).await?.lines.is_empty() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let follower =
        Follower { app: desk.app, task, wanted, after, watchers, entries: None, run: None };
    let events = follower.events().take_until(desk.stop.cancelled_owned());
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(PULSE)).into_response())
}

/// Somebody who follows the lines of a task.
struct Follower {
    app: App,
    task: TaskId,
    wanted: Wanted,
    /// The last line that was told.
    after: LinePlace,
    watchers: (Watcher, LineWatcher),
    /// How many entries the log had when the task was told.
    entries: Option<u64>,
    /// How the run under way stood when it was told.
    run: Option<Present>,
}

impl Follower {
    fn events(self) -> impl Stream<Item = Result<Event, Infallible>> {
        let batches = stream::unfold(Some(self), |follower| async {
            // The client comes again with the last place it knows.
            let (events, more) = follower?.next().await?;
            Some((stream::iter(events.into_iter().map(Ok)), more))
        });
        batches.flatten()
    }

    /// What there is to tell now, and whether there is more to come. Nothing, when it is over.
    async fn next(mut self) -> Option<(Vec<Event>, Option<Self>)> {
        // The task first: what a run has said is written before the task goes on.
        let card = self.app.card(self.task).await.ok()?;
        let page = self.app.lines(self.task, &self.wanted, self.after, BATCH).await.ok()?;
        let mut events: Vec<_> =
            page.lines.iter().map(|line| event("line", line).id(line.place.clone())).collect();
        if let Some(place) = page.lines.last().and_then(|line| line.place.parse().ok()) {
            self.after = place;
        }
        if page.next.is_some() {
            return Some((events, Some(self)));
        }
        let ended = card.state.is_terminal();
        let run = if ended { None } else { self.app.present(self.task).await.ok()? };
        if let Some(run) = run.filter(|run| self.run.as_ref() != Some(run)) {
            events.push(event("run", &run));
            self.run = Some(run);
        }
        if self.entries != Some(card.entries) {
            self.entries = Some(card.entries);
            events.push(event("task", &card));
        }
        if ended {
            return Some((events, None));
        }
        if events.is_empty() {
            let (log, lines) = &mut self.watchers;
            let more = tokio::select! {
                more = log.grown_beyond(card.entries) => more,
                more = lines.grown() => more,
            };
            return more.then_some((events, Some(self)));
        }
        Some((events, Some(self)))
    }
}

fn event(name: &str, data: &impl Serialize) -> Event {
    // What was read from JSON can be written.
    Event::default().event(name).data(serde_json::to_string(data).unwrap_or_default())
}

/// Gives the transcript of a run as lines of JSON: everything that was seen of it, without secrets.
#[utoipa::path(
    get, path = "/tasks/{id}/runs/{run}/transcript", tag = "runs", operation_id = "transcript",
    params(
        ("id" = uuid::Uuid, Path, description = "The task."),
        ("run" = String, Path,
            description = "The run: a number such as `4`, or `4.2` for its second attempt."),
    ),
    responses(
        (status = OK, body = String, content_type = "application/jsonl",
            description = "One update on each line."),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "There is no such run, it has no transcript yet, or the transcript is \
                kept where this server cannot read it."),
    )
)]
pub(super) async fn transcript(
    State(desk): State<Desk>,
    Path((id, run)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let Ok(task) = id.parse().map(TaskId) else {
        return Err(Error::NotFound { what: "task", key: id }.into());
    };
    let (size, pieces) = desk.app.transcript(task, &run).await?;
    let headers = [
        (header::CONTENT_TYPE, "application/jsonl".to_owned()),
        (header::CONTENT_LENGTH, size.to_string()),
    ];
    Ok((headers, Body::from_stream(pieces)).into_response())
}
