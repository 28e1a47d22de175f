//! What has happened to a task, and what happens to it now.

use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::{Stream, StreamExt as _, stream};
use serde::Deserialize;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_store::{Filter, Listed, Store};
use tokio::sync::mpsc;
use utoipa::IntoParams;
use uuid::Uuid;

use super::Desk;
use super::extract::{Asked, Which, window};
use crate::app::{App, Error, Window};
use crate::live::Watcher;
use crate::problem::Problem;
use crate::shape::{History, Line};

/// How many entries are read at once.
const BATCH: u32 = 200;

/// How often a stream says that it is still there, so that nobody in between gives it up.
const PULSE: Duration = Duration::from_secs(15);

/// Which part of the log is wanted.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct Part {
    /// What the last answer gave as `next`, or the number of the last entry that is known.
    after: Option<String>,
    /// How many at most: 1 to 500.
    limit: Option<u32>,
}

/// Gives the log of a task, in its order.
#[utoipa::path(
    get, path = "/tasks/{id}/history", tag = "log", operation_id = "history",
    params(("id" = uuid::Uuid, Path, description = "The task."), Part),
    responses(
        (status = OK, body = History),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "There is no such task."),
    )
)]
pub(super) async fn history(
    State(desk): State<Desk>,
    Which(task): Which,
    Asked(part): Asked<Part>,
) -> Result<Json<History>, Problem> {
    Ok(Json(desk.app.history(task, &window(part.after, part.limit)?).await?))
}

/// Gives the log of a task as server-sent events: what has happened after `Last-Event-ID`, and
/// then what happens, until the task has ended.
///
/// Every event has the number of its entry as its id, and the entry as its data. A task that has
/// ended and has nothing more to tell is answered with 204, so that clients stop asking.
#[utoipa::path(
    get, path = "/tasks/{id}/events", tag = "log", operation_id = "events",
    params(
        ("id" = uuid::Uuid, Path, description = "The task."),
        ("Last-Event-ID" = Option<u64>, Header, description = "The last entry that is known."),
    ),
    responses(
        (status = OK, body = Line, content_type = "text/event-stream"),
        (status = NO_CONTENT, description = "The task has ended, and everything is known."),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "There is no such task."),
    )
)]
pub(super) async fn events(
    State(desk): State<Desk>,
    Which(task): Which,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let after = match headers.get("last-event-id") {
        Some(id) => id.to_str().ok().and_then(|id| id.trim().parse().ok()).ok_or_else(no_id)?,
        None => 0,
    };
    // Watched before anything is read, so that nothing is missed in between.
    let watcher = desk.app.live.watch(task);
    let card = desk.app.card(task).await?;
    if card.state.is_terminal() && card.entries <= after {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let entries = follow(desk.app, task, after, watcher).take_until(desk.stop.cancelled_owned());
    Ok(Sse::new(entries).keep_alive(KeepAlive::new().interval(PULSE)).into_response())
}

fn no_id() -> Error {
    Error::invalid("`Last-Event-ID` is the number of an entry.", "Leave it out to get them all.")
}

/// A task's entries after a number, those that come too, until the task has ended.
fn follow(
    app: App,
    task: TaskId,
    after: u64,
    watcher: Watcher,
) -> impl Stream<Item = Result<Event, Infallible>> {
    let entries = stream::unfold(Some((app, after, watcher)), move |it| async move {
        let (app, after, mut watcher) = it?;
        loop {
            let window = Window { after: Some(after.to_string()), limit: BATCH };
            // The client comes again with the last number it knows.
            let lines = app.history(task, &window).await.ok()?.entries;
            if let Some(last) = lines.last() {
                let (after, ended) = (last.entry.sequence, last.entry.to.is_terminal());
                let more = (!ended).then_some((app, after, watcher));
                return Some((stream::iter(lines.into_iter().map(|line| Ok(event(&line)))), more));
            }
            if !watcher.grown_beyond(after).await {
                return None;
            }
        }
    });
    entries.flatten()
}

fn event(line: &Line) -> Event {
    let id = line.entry.sequence.to_string();
    // An entry was read from JSON, so it can be written.
    let data = serde_json::to_string(line).unwrap_or_default();
    Event::default().id(id).event("entry").data(data)
}

/// Whose log is exported.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct Whose {
    /// Of this task only.
    task: Option<Uuid>,
    /// Of the tasks of this project only: its id or its name.
    project: Option<String>,
}

/// Exports the log as lines of JSON, each task's entries in their order.
#[utoipa::path(
    get, path = "/export", tag = "log", operation_id = "export", params(Whose),
    responses(
        (status = OK, body = String, content_type = "application/jsonl",
            description = "One entry on each line."),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "There is no such task or project."),
    )
)]
pub(super) async fn export(
    State(desk): State<Desk>,
    Asked(whose): Asked<Whose>,
) -> Result<Response, Problem> {
    let store = desk.app.store.clone();
    let scope = match (whose.task, whose.project) {
        (Some(task), _) => {
            store.position(TaskId(task)).await.map_err(Error::from)?;
            Scope::Task(TaskId(task))
        }
        (None, Some(project)) => Scope::Project(desk.app.project(Some(&project)).await?.id),
        (None, None) => {
            store.ping().await.map_err(Error::from)?;
            Scope::All
        }
    };
    // A few lines ahead of the reader, and no more.
    let (send, mut lines) = mpsc::channel(64);
    tokio::spawn(async move {
        if let Err(error) = write_out(&store, scope, &send).await {
            tracing::warn!(%error, "an export broke off");
            // The body breaks off, so that nobody takes it for whole.
            let _ = send.send(Err(std::io::Error::other("the export broke off"))).await;
        }
    });
    let body = Body::from_stream(stream::poll_fn(move |cx| lines.poll_recv(cx)));
    Ok(([(header::CONTENT_TYPE, "application/jsonl")], body).into_response())
}

#[derive(Clone, Copy)]
enum Scope {
    Task(TaskId),
    Project(ProjectId),
    All,
}

type Lines = mpsc::Sender<Result<String, std::io::Error>>;

async fn write_out(store: &Store, scope: Scope, out: &Lines) -> tamma_store::Result<()> {
    let project = match scope {
        Scope::All => return write_log(store, None, out).await.map(drop),
        Scope::Task(task) => return write_log(store, Some(task), out).await.map(drop),
        Scope::Project(project) => project,
    };
    let filter = Filter { project: Some(project), ..Filter::default() };
    let mut after = None;
    loop {
        let page = store.tasks(&filter, after, BATCH).await?;
        for listed in page.tasks {
            let task = match listed {
                Listed::Card(card) => card.task,
                Listed::Damaged { task, .. } => task,
            };
            if !write_log(store, Some(task), out).await? {
                return Ok(());
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// Writes one log. Returns whether anybody still reads.
async fn write_log(store: &Store, task: Option<TaskId>, out: &Lines) -> tamma_store::Result<bool> {
    let mut lines = std::pin::pin!(store.export(task));
    while let Some(line) = lines.next().await {
        if out.send(Ok(format!("{}\n", line?))).await.is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}
