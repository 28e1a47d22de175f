//! Live updates of pages, as server-sent events.
//!
//! An event contains the changed parts of a page, rendered with the page's own templates. Its ID is
//! the position in the history. A reconnecting browser sends the last ID and gets the changes since
//! then; if they cannot be determined, it gets everything.

pub(super) mod lists;
pub(super) mod run;

use std::convert::Infallible;
use std::time::Duration;

use askama::Template;
use axum::extract::{Path, Query};
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::{Stream, StreamExt as _, stream};
use serde::Deserialize;
use tamma_core::history::{EntryData, HistoryEntry};
use tamma_core::ids::{Digest, TaskId};
use tamma_store::{LineFilter, LinePosition};
use uuid::Uuid;

use super::labels::NextStepView;
use super::layout::Layout;
use super::log_view::{LineGroup, LogQuery, TailView, group_lines};
use super::permissions::PagePermissions;
use super::session::Session;
use super::task::actions::{ActionInput, ActionScope};
use super::task::question::{AnswerSection, QuestionView};
use super::task::{self, TaskData, TaskPageContext, events};
use super::{PageError, WebState};
use crate::app::{App, Error, PageRequest};
use crate::live::{LineSubscriber, TaskSubscriber};

/// Keep-alive interval, so that proxies do not close an idle stream.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Maximum number of entries or lines per read.
const BATCH_SIZE: u32 = 200;

/// Wraps HTML in an htmx partial that replaces `target`.
fn partial(target: &str, swap: &str, html: &str) -> String {
    format!("<hx-partial hx-target=\"{target}\" hx-swap=\"{swap}\">{html}</hx-partial>")
}

fn sse_response(
    state: WebState,
    events: impl Stream<Item = Result<Event, Infallible>> + Send + 'static,
) -> Response {
    let events = events.take_until(state.stop.cancelled_owned());
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE_INTERVAL)).into_response()
}

/// Query parameters: the open tab of a task page.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TaskLiveQuery {
    part: String,
    /// Position that the page was rendered at, used until the first event.
    #[serde(rename = "seen")]
    position: String,
}

#[derive(Template)]
#[template(path = "_status.html")]
struct StatusFragment {
    layout: Layout,
    task: super::task::TaskHeader,
}

#[derive(Template)]
#[template(path = "_question.html")]
struct QuestionFragment {
    layout: Layout,
    task: super::task::TaskHeader,
    question: QuestionView,
}

/// Link to the open question at the top of the overview.
#[derive(Template)]
#[template(path = "_question_link.html")]
struct QuestionLinkFragment {
    layout: Layout,
    question: QuestionView,
}

#[derive(Template)]
#[template(path = "_cost.html")]
struct CostFragment {
    cost: super::task::CostView,
}

#[derive(Template)]
#[template(path = "_current_run.html")]
struct CurrentRunFragment {
    layout: Layout,
    task: super::task::TaskHeader,
    current_run: Option<super::task::CurrentRunView>,
}

#[derive(Template)]
#[template(path = "_tabs.html")]
struct TabsFragment {
    tabs: Vec<super::layout::Tab>,
}

#[derive(Template)]
#[template(path = "_waiting_badge.html")]
struct WaitingBadge {
    layout: Layout,
}

#[derive(Template)]
#[template(path = "_actions.html")]
struct ActionsFragment {
    layout: Layout,
    actions: Vec<super::task::actions::ActionForm>,
}

/// Notice that a newer change than the displayed one exists.
#[derive(Template)]
#[template(path = "_new_change.html")]
struct NewChangeFragment {
    layout: Layout,
}

#[derive(Template)]
#[template(path = "_event.html")]
struct EventFragment {
    event: events::EventView,
}

/// Lines of a log with the same purpose.
#[derive(Template)]
#[template(path = "_log_group.html")]
struct LogGroupFragment {
    group: LineGroup,
}

/// End of a log.
#[derive(Template)]
#[template(path = "_log_tail.html")]
struct LogTailFragment {
    tail: TailView,
}

/// Position of a browser in the history and log of a task.
#[derive(Clone)]
struct ViewPosition {
    entries: u64,
    lines: LinePosition,
    /// Number and plan of the displayed question; `None` if unknown.
    question: Option<String>,
    /// Hash of the tab content sent last.
    part: Option<Digest>,
    /// Running calls and usage that were sent last.
    tail: String,
}

impl ViewPosition {
    /// Parses an event ID or the position in a page's URL.
    fn parse(text: &str) -> Option<Self> {
        let (entries, lines) = text.trim().split_once(' ')?;
        let (entries, lines) = (entries.parse().ok()?, lines.parse().ok()?);
        Some(Self { entries, lines, question: None, part: None, tail: String::new() })
    }
}

/// Encodes the position of a page for the URL of its live updates.
pub(super) fn encode_position(entries: u64, lines: LinePosition) -> String {
    let text = format!("{entries} {lines}");
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// Returns the number of the open question and its plan; empty without a question.
fn question_key(data: &TaskData) -> String {
    let plan = data.detail.plan.as_ref().map(|plan| plan.hash.clone()).unwrap_or_default();
    let question = data.detail.question.as_ref();
    question.map(|question| format!("{} {plan}", question.number)).unwrap_or_default()
}

/// Streams changes of a task page.
pub(super) async fn task_stream(
    state: WebState,
    session: Session,
    Path(id): Path<Uuid>,
    Query(query): Query<TaskLiveQuery>,
    Query(log_query): Query<LogQuery>,
    headers: HeaderMap,
) -> Result<Response, PageError> {
    let id = TaskId(id);
    // Subscribe before the first read, so that nothing is missed.
    let (watcher, lines) = (state.app.live.subscribe(id), state.app.live.subscribe_lines(id));
    let position = initial_position(&state.app, id, &headers, &query.position).await;
    let position =
        position.map_err(|error| PageError::new(Layout::for_session(&session), error))?;
    let line_filter = log_query.line_filter();
    let line_filter =
        line_filter.map_err(|error| PageError::new(Layout::for_session(&session), error))?;
    let viewer = TaskViewer { app: state.app.clone(), session, id, part: query.part, line_filter };
    let first = (position, watcher, lines, true);
    let parts = stream::unfold(first, move |(mut position, mut watcher, mut lines, mut more)| {
        let viewer = viewer.clone();
        async move {
            loop {
                if !std::mem::take(&mut more)
                    && !wait_for_change(&mut watcher, &mut lines, position.entries).await
                {
                    return None;
                }
                match Box::pin(viewer.render_changes(&mut position)).await {
                    // More changes may remain than fit in one event.
                    Ok(Some(event)) => return Some((Ok(event), (position, watcher, lines, true))),
                    Ok(None) => {}
                    // The browser reconnects with its last event ID.
                    Err(_) => return None,
                }
            }
        }
    });
    Ok(sse_response(state, parts))
}

async fn wait_for_change(
    watcher: &mut TaskSubscriber,
    lines: &mut LineSubscriber,
    entries: u64,
) -> bool {
    tokio::select! {
        more = watcher.wait_for_entries_after(entries) => more,
        more = lines.wait_for_lines() => more,
    }
}

/// Returns the start position: the last event ID, the page's position, or the current one.
async fn initial_position(
    app: &App,
    id: TaskId,
    headers: &HeaderMap,
    page: &str,
) -> Result<ViewPosition, Error> {
    let last_event_id = headers.get("last-event-id").and_then(|value| value.to_str().ok());
    if let Some(position) =
        last_event_id.and_then(ViewPosition::parse).or_else(|| ViewPosition::parse(page))
    {
        app.task_loop(id).await?;
        return Ok(position);
    }
    let data = TaskData::load(app, id).await?;
    let lines = app.resolve_line_position(id, Some("end")).await?;
    let question = Some(question_key(&data));
    let (entries, tail) = (data.detail.card.entries, String::new());
    Ok(ViewPosition { entries, lines, question, part: None, tail })
}

/// Returns whether this entry means that a new change exists.
fn is_new_change(entry: &HistoryEntry) -> bool {
    matches!(entry.data, EntryData::Review(_))
}

/// Browser that displays a task.
#[derive(Clone)]
struct TaskViewer {
    app: App,
    session: Session,
    id: TaskId,
    part: String,
    /// Filter of log lines.
    line_filter: LineFilter,
}

impl TaskViewer {
    /// Renders everything new since `position` as one event; `None` if nothing changed.
    async fn render_changes(&self, position: &mut ViewPosition) -> Result<Option<Event>, Error> {
        let app = &self.app;
        let window = PageRequest { after: Some(position.entries.to_string()), limit: BATCH_SIZE };
        let entries = app.history_page(self.id, &window).await?.entries;
        let lines =
            app.run_lines(self.id, &self.line_filter, position.lines, BATCH_SIZE).await?.lines;
        // Running calls, tokens and cost change without a new line, too.
        let current = app.current_run(self.id).await?;
        let tail = TailView::of_run(current.as_ref().map(|current| &current.run));
        let key = tail.key();
        let has_new_tail = position.tail != key;
        if entries.is_empty() && lines.is_empty() && !has_new_tail {
            return Ok(None);
        }
        position.tail = key;
        let mut parts = Vec::new();
        let mut add = |target: &str, swap: &str, html: askama::Result<String>| {
            parts.extend(html.ok().map(|html| partial(target, swap, &html)));
        };
        if self.part == "log" && has_new_tail {
            add("#tail", "outerMorph", LogTailFragment { tail }.render());
        }
        let data = TaskData::load(app, self.id).await?;
        let mut layout = Layout::for_session(&self.session);
        layout.waiting = app.store.count_waiting(None).await?;
        let mut permissions = PagePermissions::for_session(app, &self.session);
        let context =
            TaskPageContext::new(layout.clone(), &data, &self.part, &mut permissions).await;
        let current_run = CurrentRunFragment {
            layout: layout.clone(),
            task: context.task.clone(),
            current_run: context.current_run,
        };
        add("#doing", "outerMorph", current_run.render());
        if !entries.is_empty() {
            let status = StatusFragment { layout: layout.clone(), task: context.task.clone() };
            add("#status", "outerMorph", status.render());
            add("#cost", "outerMorph", CostFragment { cost: context.cost }.render());
            add("#tabs", "innerMorph", TabsFragment { tabs: context.tabs }.render());
            add("#waiting", "outerMorph", WaitingBadge { layout: layout.clone() }.render());
            if context.task.is_closed {
                // Forms of a closed task can no longer be submitted.
                let forms = ActionsFragment { layout: layout.clone(), actions: context.actions };
                add("#actions", "outerMorph", forms.render());
            }
            // Replace it only if the question is another one: the viewer may be typing an answer.
            let key = question_key(&data);
            if position.question.as_ref() != Some(&key) {
                let (layout, task) = (layout.clone(), context.task);
                let fragment = QuestionFragment { layout, task, question: context.question };
                add("#question", "outerMorph", fragment.render());
                if self.part.is_empty() {
                    let QuestionFragment { layout, question, .. } = fragment;
                    add("#q-top", "outerMorph", QuestionLinkFragment { layout, question }.render());
                }
                position.question = Some(key);
            }
            // Replace it only if it differs, because the viewer may have expanded a section.
            if let Some(html) = task::render_part(app, &layout, &data, &self.part).await? {
                let digest = Digest::of(format!("{}{}", html.part, html.after).as_bytes());
                if position.part.replace(digest) != Some(digest) {
                    add("#part", "innerMorph", Ok(html.part));
                    if self.part.is_empty() {
                        add("#after", "innerMorph", Ok(html.after));
                    }
                }
            }
        }
        for line in &entries {
            if self.part == "events" {
                let event = EventFragment { event: events::EventView::new(line) };
                add("#events", "beforeend", event.render());
            }
            position.entries = line.entry.sequence;
        }
        if self.part == "change" && entries.iter().any(|line| is_new_change(&line.entry)) {
            // The viewer may be commenting on the displayed lines.
            add("#fresh", "innerHTML", NewChangeFragment { layout }.render());
        }
        if self.part == "log" && !lines.is_empty() {
            add("#log-none", "delete", Ok(String::new()));
        }
        if self.part == "log" {
            let previous = position.lines.run.to_string();
            for group in group_lines(self.id.0, &lines, Some(previous.as_str()), &data.runs) {
                add("#log", "beforeend", LogGroupFragment { group }.render());
            }
        }
        if let Some(last) = lines.last().and_then(|line| line.position.parse().ok()) {
            position.lines = last;
        }
        let id = format!("{} {}", position.entries, position.lines);
        Ok(Some(Event::default().id(id).data(parts.concat())))
    }
}
