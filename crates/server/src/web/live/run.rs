//! Live updates of a run's page: new lines, running calls, tokens and cost.

use askama::Template;
use axum::extract::{Path, Query};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::response::sse::Event;
use futures_util::stream;
use serde::Deserialize;
use tamma_core::ids::TaskId;
use tamma_store::{LineFilter, LinePosition, RunNumber};

use super::{BATCH_SIZE, LogGroupFragment, LogTailFragment, partial, sse_response};
use crate::app::{App, Error, parse_run_id};
use crate::web::layout::Layout;
use crate::web::log_view::{LogQuery, TailView, group_lines};
use crate::web::runs::{RunFactsView, own_lines};
use crate::web::session::Session;
use crate::web::{PageError, WebState};

/// Query parameters: the position that the page was rendered at.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::web) struct RunLiveQuery {
    seen: String,
}

/// Browser that displays a run.
struct RunViewer {
    app: App,
    task: TaskId,
    number: RunNumber,
    filter: LineFilter,
    position: LinePosition,
    /// Content of the tail that was sent last.
    tail: String,
}

/// Streams changes of a run's page.
pub(in crate::web) async fn run_stream(
    state: WebState,
    session: Session,
    Path(id): Path<String>,
    Query(live_query): Query<RunLiveQuery>,
    Query(query): Query<LogQuery>,
    headers: HeaderMap,
) -> Result<Response, PageError> {
    let failed = |error: Error| PageError::new(Layout::for_session(&session), error);
    let not_found = || Error::NotFound { what: "run", key: id.chars().take(80).collect() };
    let (task, number) = parse_run_id(&id).ok_or_else(not_found).map_err(failed)?;
    // Subscribe before the first read, so that nothing is missed.
    let lines = state.app.live.subscribe_lines(task);
    let run = state.app.run(task, number).await.map_err(failed)?;
    let last_event_id = headers.get("last-event-id").and_then(|value| value.to_str().ok());
    let mut positions = last_event_id.into_iter().chain([live_query.seen.as_str()]);
    let position = positions.find_map(|text| text.trim().parse().ok());
    let viewer = RunViewer {
        app: state.app.clone(),
        task,
        number,
        filter: own_lines(query, &run).line_filter().map_err(failed)?,
        position: position.unwrap_or(LinePosition::START),
        tail: String::new(),
    };
    let events =
        stream::unfold((viewer, lines, true), |(mut viewer, mut lines, mut more)| async move {
            loop {
                if !std::mem::take(&mut more) && !lines.wait_for_lines().await {
                    return None;
                }
                match viewer.render_changes().await {
                    // More lines may remain than fit in one event.
                    Ok(Some(event)) => return Some((Ok(event), (viewer, lines, true))),
                    Ok(None) => {}
                    // The browser reconnects with its last event ID.
                    Err(_) => return None,
                }
            }
        });
    Ok(sse_response(state, events))
}

impl RunViewer {
    /// Renders everything new as one event; `None` if nothing changed.
    async fn render_changes(&mut self) -> Result<Option<Event>, Error> {
        // Read the run first: its lines are stored before it ends.
        let run = self.app.run(self.task, self.number).await?;
        let page = self.app.run_lines(self.task, &self.filter, self.position, BATCH_SIZE).await?;
        let tail = TailView::of_run(Some(&run));
        let key = tail.key();
        let mut parts = Vec::new();
        let mut add = |target: &str, swap: &str, html: askama::Result<String>| {
            parts.extend(html.ok().map(|html| partial(target, swap, &html)));
        };
        if !page.lines.is_empty() {
            add("#log-none", "delete", Ok(String::new()));
        }
        for group in group_lines(self.task.0, &page.lines, Some(run.run.as_str()), &[]) {
            add("#log", "beforeend", LogGroupFragment { group }.render());
        }
        if self.tail != key {
            add("#run-facts", "outerMorph", RunFactsView::new(self.task.0, &run).render());
            add("#tail", "outerMorph", LogTailFragment { tail }.render());
            self.tail = key;
        }
        if let Some(position) = page.lines.last().and_then(|line| line.position.parse().ok()) {
            self.position = position;
        }
        let event = Event::default().id(self.position.to_string()).data(parts.concat());
        Ok((!parts.is_empty()).then_some(event))
    }
}
