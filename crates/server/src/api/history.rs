//! Task history: pages, live events and export.

use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::{Stream, StreamExt as _, stream};
use serde::Deserialize;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::time::Timestamp;
use tamma_core::update_clock::UpdateClock;
use tamma_store::{ListedTask, Store, TaskFilter};
use tokio::sync::mpsc;
use utoipa::IntoParams;
use uuid::Uuid;

use super::ApiState;
use super::extract::{QueryParams, TaskPath, page_request};
use crate::app::{App, Error, PageRequest};
use crate::clock;
use crate::dto::{HistoryPage, RecordedEntry, TaskUpdate};
use crate::live::TaskSubscriber;
use crate::problem::Problem;

/// Number of entries per query.
const BATCH_SIZE: u32 = 200;

/// Interval of keep-alive comments, so that proxies do not close idle streams.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Page of a task's history.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct HistoryQuery {
    /// `next` value of the previous page, or the sequence number of the last known entry.
    after: Option<String>,
    /// Maximum number of items, 1 to 500; default 50.
    limit: Option<u32>,
}

/// Returns the history of a task, oldest first.
#[utoipa::path(
    get, path = "/tasks/{id}/history", tag = "log", operation_id = "history",
    params(("id" = uuid::Uuid, Path, description = "Task ID."), HistoryQuery),
    responses(
        (status = OK, body = HistoryPage),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "Task not found."),
    )
)]
pub(super) async fn list(
    state: ApiState,
    TaskPath(task): TaskPath,
    QueryParams(query): QueryParams<HistoryQuery>,
) -> Result<Json<HistoryPage>, Problem> {
    Ok(Json(state.app.history_page(task, &page_request(query.after, query.limit)?).await?))
}

/// Streams the history of a task as server-sent events: entries after `Last-Event-ID`, then new
/// entries until the task is closed.
///
/// The ID of each `entry` event is the sequence number of its entry; the data is the entry. Between
/// entries, an `update` event has the status of the task every `update_interval_seconds`, unless
/// `proactive_updates` is off. If the task is
/// closed and has no further entries, the response is 204, so that clients stop reconnecting.
#[utoipa::path(
    get, path = "/tasks/{id}/events", tag = "log", operation_id = "events",
    params(
        ("id" = uuid::Uuid, Path, description = "Task ID."),
        ("Last-Event-ID" = Option<u64>, Header, description = "Last known sequence number."),
    ),
    responses(
        (status = OK, body = RecordedEntry, content_type = "text/event-stream"),
        (status = NO_CONTENT, description = "The task is closed and has no further entries."),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "Task not found."),
    )
)]
pub(super) async fn events(
    state: ApiState,
    TaskPath(task): TaskPath,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let after = match headers.get("last-event-id") {
        Some(id) => {
            id.to_str().ok().and_then(|id| id.trim().parse().ok()).ok_or_else(invalid_event_id)?
        }
        None => 0,
    };
    // Subscribe before reading, so that no entry is missed.
    let watcher = state.app.live.subscribe(task);
    let card = state.app.task_card(task).await?;
    if card.state.is_terminal() && card.entries <= after {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let clock = state.app.update_clock(task).await?;
    let entries = stream_entries(state.app, task, after, watcher, clock)
        .take_until(state.stop.cancelled_owned());
    Ok(Sse::new(entries).keep_alive(KeepAlive::new().interval(KEEP_ALIVE_INTERVAL)).into_response())
}

fn invalid_event_id() -> Error {
    Error::invalid("`Last-Event-ID` is not a sequence number.", "Omit it to receive all entries.")
}

/// Streams entries after a sequence number until the task is closed, and regular updates between
/// them.
fn stream_entries(
    app: App,
    task: TaskId,
    after: u64,
    watcher: TaskSubscriber,
    clock: Option<UpdateClock>,
) -> impl Stream<Item = Result<Event, Infallible>> {
    let entries = stream::unfold(Some((app, after, watcher, clock)), move |it| async move {
        let (app, after, mut watcher, mut clock) = it?;
        loop {
            let window = PageRequest { after: Some(after.to_string()), limit: BATCH_SIZE };
            // On errors the stream ends; the client reconnects with its last ID.
            let lines = app.history_page(task, &window).await.ok()?.entries;
            if let Some(last) = lines.last() {
                let (after, ended) = (last.entry.sequence, last.entry.to.is_terminal());
                let more = (!ended).then_some((app, after, watcher, clock));
                let events: Vec<_> = lines.iter().map(|line| Ok(entry_event(line))).collect();
                return Some((stream::iter(events), more));
            }
            tokio::select! {
                is_open = watcher.wait_for_entries_after(after) => {
                    if !is_open {
                        return None;
                    }
                }
                now = next_update(clock.as_mut(), clock::now, tokio::time::sleep) => {
                    if let Some(update) = app.task_update(task, now).await.ok()? {
                        let events = vec![Ok(update_event(&update))];
                        return Some((stream::iter(events), Some((app, after, watcher, clock))));
                    }
                }
            }
        }
    });
    entries.flatten()
}

/// Waits until an update is due, schedules the one after it, and returns the time; forever without a
/// clock. `now` and `sleep` are the time of this machine, except in tests.
async fn next_update<S: Future<Output = ()>>(
    clock: Option<&mut UpdateClock>,
    now: impl Fn() -> Timestamp,
    sleep: impl Fn(Duration) -> S,
) -> Timestamp {
    let Some(clock) = clock else { return std::future::pending().await };
    loop {
        let time = now();
        if clock.is_due(time) {
            return time;
        }
        sleep((clock.next() - time).to_std().unwrap_or_default()).await;
    }
}

/// Builds an event without an ID, so that a client resumes after the last entry.
fn update_event(update: &TaskUpdate) -> Event {
    Event::default().event("update").data(serde_json::to_string(update).unwrap_or_default())
}

fn entry_event(line: &RecordedEntry) -> Event {
    let id = line.entry.sequence.to_string();
    // Entries come from JSON, so they always serialise.
    let data = serde_json::to_string(line).unwrap_or_default();
    Event::default().id(id).event("entry").data(data)
}

/// Scope of an export.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct ExportQuery {
    /// Task ID.
    task: Option<Uuid>,
    /// Project ID or name.
    project: Option<String>,
}

/// Exports history as JSON lines. The entries of each task are in order.
#[utoipa::path(
    get, path = "/export", tag = "log", operation_id = "export", params(ExportQuery),
    responses(
        (status = OK, body = String, content_type = "application/jsonl",
            description = "One entry per line."),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "Task or project not found."),
    )
)]
pub(super) async fn export(
    state: ApiState,
    QueryParams(query): QueryParams<ExportQuery>,
) -> Result<Response, Problem> {
    let store = state.app.store.clone();
    let scope = match (query.task, query.project) {
        (Some(task), _) => {
            store.task_position(TaskId(task)).await.map_err(Error::from)?;
            ExportScope::Task(TaskId(task))
        }
        (None, Some(project)) => {
            ExportScope::Project(state.app.resolve_project(Some(&project)).await?.id)
        }
        (None, None) => {
            store.ping().await.map_err(Error::from)?;
            ExportScope::All
        }
    };
    // A small buffer, so that memory use stays constant.
    let (send, mut lines) = mpsc::channel(64);
    tokio::spawn(async move {
        if let Err(error) = export_scope(&store, scope, &send).await {
            tracing::warn!(%error, "export failed");
            // Aborts the body, so that the client notices the incomplete export.
            let _ = send.send(Err(std::io::Error::other("export failed"))).await;
        }
    });
    let body = Body::from_stream(stream::poll_fn(move |cx| lines.poll_recv(cx)));
    Ok(([(header::CONTENT_TYPE, "application/jsonl")], body).into_response())
}

#[derive(Clone, Copy)]
enum ExportScope {
    Task(TaskId),
    Project(ProjectId),
    All,
}

type LineSender = mpsc::Sender<Result<String, std::io::Error>>;

async fn export_scope(
    store: &Store,
    scope: ExportScope,
    out: &LineSender,
) -> tamma_store::Result<()> {
    let project = match scope {
        ExportScope::All => return export_history(store, None, out).await.map(drop),
        ExportScope::Task(task) => return export_history(store, Some(task), out).await.map(drop),
        ExportScope::Project(project) => project,
    };
    let filter = TaskFilter { project: Some(project), ..TaskFilter::default() };
    let mut after = None;
    loop {
        let page = store.tasks(&filter, after, BATCH_SIZE).await?;
        for listed in page.tasks {
            let task = match listed {
                ListedTask::Card(card) => card.task,
                ListedTask::Damaged { task, .. } => task,
            };
            if !export_history(store, Some(task), out).await? {
                return Ok(());
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// Exports the history of one task, or of all. Returns `false` if the client has disconnected.
async fn export_history(
    store: &Store,
    task: Option<TaskId>,
    out: &LineSender,
) -> tamma_store::Result<bool> {
    let mut lines = std::pin::pin!(store.export(task));
    while let Some(line) = lines.next().await {
        if out.send(Ok(format!("{}\n", line?))).await.is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use chrono::{DateTime, TimeDelta};
    use tamma_core::rules::UserInteraction;

    use super::*;

    #[tokio::test]
    async fn a_day_has_one_update_per_configured_interval() {
        let start = DateTime::UNIX_EPOCH;
        let end = start + TimeDelta::days(1);
        for seconds in [1_u32, 7, 30, 3_600] {
            let rules =
                UserInteraction { update_interval_seconds: seconds, ..UserInteraction::default() };
            let mut clock = rules.update_clock(start);
            let time = Cell::new(start);
            // Sleeping takes no time here. Half of the sleeps end early, as timers may.
            let early = Cell::new(false);
            let sleep = |left: Duration| {
                let half = early.replace(!early.get()) && left > Duration::from_millis(1);
                let left = if half { left / 2 } else { left };
                time.set(time.get() + TimeDelta::from_std(left).expect("short"));
                std::future::ready(())
            };
            let mut updates = Vec::new();
            while time.get() < end {
                updates.push(next_update(clock.as_mut(), || time.get(), sleep).await);
            }
            let interval = TimeDelta::seconds(seconds.into());
            let expected = (1..).map(|count| start + interval * count).take(updates.len());
            assert!(updates.iter().copied().eq(expected), "every {seconds} s: {updates:?}");
            let count = 86_400_usize.div_ceil(usize::try_from(seconds).expect("small"));
            assert_eq!(updates.len(), count, "every {seconds} s");
        }
    }

    #[tokio::test]
    async fn without_proactive_updates_there_is_none() {
        let rules = UserInteraction { proactive_updates: false, ..UserInteraction::default() };
        let mut clock = rules.update_clock(DateTime::UNIX_EPOCH);
        let now = || DateTime::UNIX_EPOCH + TimeDelta::days(1);
        let update = next_update(clock.as_mut(), now, |_| std::future::ready(()));
        assert_eq!(futures_util::FutureExt::now_or_never(update), None);
    }
}
