//! What changes while somebody looks: parts of pages, sent as they change.
//!
//! Each message has the parts that are new, as the same templates write them that wrote the page, and
//! its id says up to where the log is known. A browser that comes back says the last id it has seen,
//! and gets what has changed since; where it cannot be told what that is, it gets everything.

pub(super) mod lists;

use std::convert::Infallible;
use std::time::Duration;

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::{Stream, StreamExt as _, stream};
use serde::Deserialize;
use tamma_core::ids::{Digest, TaskId};
use tamma_core::log::{Entry, Fact};
use tamma_store::{LinePlace, Wanted};
use uuid::Uuid;

use super::door::Visitor;
use super::rights::Rights;
use super::shell::Shell;
use super::task::{self, Around, Known, events, log};
use super::{Hall, Oops};
use crate::app::{App, Error, Window};
use crate::live::{LineWatcher, Watcher};

/// How often a stream says that it is still there, so that nobody in between gives it up.
const PULSE: Duration = Duration::from_secs(15);

/// How many entries or lines are read at once.
const BATCH: u32 = 200;

/// A part of a page in place of the one that is there.
fn partial(target: &str, swap: &str, html: &str) -> String {
    format!("<hx-partial hx-target=\"{target}\" hx-swap=\"{swap}\">{html}</hx-partial>")
}

fn answer(
    hall: Hall,
    events: impl Stream<Item = Result<Event, Infallible>> + Send + 'static,
) -> Response {
    let events = events.take_until(hall.stop.cancelled_owned());
    Sse::new(events).keep_alive(KeepAlive::new().interval(PULSE)).into_response()
}

/// Which part of a task's page is open.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Open {
    part: String,
    /// Up to where the page knows the task, where no message has said so yet.
    seen: String,
}

#[derive(Template)]
#[template(path = "_status.html")]
struct Status {
    shell: Shell,
    task: super::task::About,
}

#[derive(Template)]
#[template(path = "_question.html")]
struct Asked {
    shell: Shell,
    task: super::task::About,
    question: super::task::Question,
}

#[derive(Template)]
#[template(path = "_cost.html")]
struct Costs {
    cost: super::task::Cost,
}

#[derive(Template)]
#[template(path = "_doing.html")]
struct Now {
    shell: Shell,
    task: super::task::About,
    doing: super::task::Doing,
}

#[derive(Template)]
#[template(path = "_tabs.html")]
struct Tabs {
    tabs: Vec<super::shell::Tab>,
}

#[derive(Template)]
#[template(path = "_waiting.html")]
struct Badge {
    shell: Shell,
}

#[derive(Template)]
#[template(path = "_steer.html")]
struct Steer {
    shell: Shell,
    task: super::task::About,
    steer: Vec<super::task::deeds::Deed>,
}

/// That there is another change than the one that is shown.
#[derive(Template)]
#[template(path = "_fresh.html")]
struct Fresh {
    shell: Shell,
}

#[derive(Template)]
#[template(path = "_event.html")]
struct OneEvent {
    event: events::Event,
}

#[derive(Template)]
#[template(path = "_log_line.html")]
struct OneLine {
    line: log::Line,
}

/// Up to where a browser knows a task.
#[derive(Clone)]
struct Seen {
    entries: u64,
    lines: LinePlace,
    /// The question that it shows: its number, and the plan it is about; nothing where that is not
    /// known.
    question: Option<String>,
    /// The part of the page that it was sent last.
    part: Option<Digest>,
}

impl Seen {
    /// As an id of a message, or in the address of a page.
    fn read(text: &str) -> Option<Self> {
        let (entries, lines) = text.trim().split_once(' ')?;
        let (entries, lines) = (entries.parse().ok()?, lines.parse().ok()?);
        Some(Self { entries, lines, question: None, part: None })
    }
}

/// Up to where a page knows a task, for the address of what follows it.
pub(super) fn seen_by_page(entries: u64, lines: LinePlace) -> String {
    let text = format!("{entries} {lines}");
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// What question a task asks: its number, and the plan it is about; empty where it asks none.
fn asked(known: &Known) -> String {
    let plan = known.whole.plan.as_ref().map(|plan| plan.hash.clone()).unwrap_or_default();
    let question = known.whole.question.as_ref();
    question.map(|question| format!("{} {plan}", question.number)).unwrap_or_default()
}

/// Sends the parts of a task's page as they change.
pub(super) async fn task(
    State(hall): State<Hall>,
    visitor: Visitor,
    Path(id): Path<Uuid>,
    Query(open): Query<Open>,
    Query(lines_wanted): Query<log::Asked>,
    headers: HeaderMap,
) -> Result<Response, Oops> {
    let id = TaskId(id);
    // Watched before anything is read, so that nothing is missed in between.
    let (watcher, lines) = (hall.app.live.watch(id), hall.app.live.watch_lines(id));
    let seen = seen(&hall.app, id, &headers, &open.seen).await;
    let seen = seen.map_err(|error| Oops::new(Shell::of(&visitor), error))?;
    let wanted = lines_wanted.wanted();
    let wanted = wanted.map_err(|error| Oops::new(Shell::of(&visitor), error))?;
    let viewer = Viewer { app: hall.app.clone(), visitor, id, part: open.part, wanted };
    let first = (seen, watcher, lines, true);
    let parts = stream::unfold(first, move |(mut seen, mut watcher, mut lines, mut more)| {
        let viewer = viewer.clone();
        async move {
            loop {
                if !std::mem::take(&mut more)
                    && !grown(&mut watcher, &mut lines, seen.entries).await
                {
                    return None;
                }
                match viewer.changed(&mut seen).await {
                    // There may be more than fits in a message.
                    Ok(Some(event)) => return Some((Ok(event), (seen, watcher, lines, true))),
                    Ok(None) => {}
                    // The browser comes again with the last id it knows.
                    Err(_) => return None,
                }
            }
        }
    });
    Ok(answer(hall, parts))
}

async fn grown(watcher: &mut Watcher, lines: &mut LineWatcher, entries: u64) -> bool {
    tokio::select! {
        more = watcher.grown_beyond(entries) => more,
        more = lines.grown() => more,
    }
}

/// What the browser has seen: what it says, what its page had, or what there is now.
async fn seen(app: &App, id: TaskId, headers: &HeaderMap, page: &str) -> Result<Seen, Error> {
    let said = headers.get("last-event-id").and_then(|value| value.to_str().ok());
    if let Some(seen) = said.and_then(Seen::read).or_else(|| Seen::read(page)) {
        app.machine(id).await?;
        return Ok(seen);
    }
    let known = Known::of(app, id).await?;
    let lines = app.place(id, Some("end")).await?;
    let question = Some(asked(&known));
    Ok(Seen { entries: known.whole.card.entries, lines, question, part: None })
}

/// Whether there is another change once this has happened.
fn is_about_a_change(entry: &Entry) -> bool {
    matches!(entry.data, Fact::Review(_))
}

/// A browser that shows a task.
#[derive(Clone)]
struct Viewer {
    app: App,
    visitor: Visitor,
    id: TaskId,
    part: String,
    /// Which lines it shows.
    wanted: Wanted,
}

impl Viewer {
    /// Everything that is new since, as one message; nothing where nothing is.
    async fn changed(&self, seen: &mut Seen) -> Result<Option<Event>, Error> {
        let app = &self.app;
        let window = Window { after: Some(seen.entries.to_string()), limit: BATCH };
        let entries = app.history(self.id, &window).await?.entries;
        let lines = app.lines(self.id, &self.wanted, seen.lines, BATCH).await?.lines;
        if entries.is_empty() && lines.is_empty() {
            return Ok(None);
        }
        let mut parts = Vec::new();
        let mut add = |target: &str, swap: &str, html: askama::Result<String>| {
            parts.extend(html.ok().map(|html| partial(target, swap, &html)));
        };
        let known = Known::of(app, self.id).await?;
        let mut shell = Shell::of(&self.visitor);
        shell.waiting = app.store.waiting(None).await?;
        let mut rights = Rights::of(app, &self.visitor);
        let around = Around::new(shell.clone(), &known, &self.part, &mut rights).await;
        let doing = Now { shell: shell.clone(), task: around.task.clone(), doing: around.doing };
        add("#doing", "outerMorph", doing.render());
        if !entries.is_empty() {
            let status = Status { shell: shell.clone(), task: around.task.clone() };
            add("#status", "outerMorph", status.render());
            add("#cost", "outerMorph", Costs { cost: around.cost }.render());
            add("#tabs", "innerMorph", Tabs { tabs: around.tabs }.render());
            add("#waiting", "outerMorph", Badge { shell: shell.clone() }.render());
            if around.task.ended {
                // What somebody may be writing there cannot be sent any more.
                let (shell, task) = (shell.clone(), around.task.clone());
                add("#steer", "outerMorph", Steer { shell, task, steer: around.steer }.render());
            }
            // Only when it is another one: somebody may be writing in it.
            let asks = asked(&known);
            if seen.question.as_ref() != Some(&asks) {
                let (shell, task) = (shell.clone(), around.task);
                let asked = Asked { shell, task, question: around.question };
                add("#question", "outerMorph", asked.render());
                seen.question = Some(asks);
            }
            // Only when it differs: somebody may have opened something in it.
            if let Some(html) = task::part(app, &shell, &known, &self.part).await? {
                let digest = Digest::of(html.as_bytes());
                if seen.part.replace(digest) != Some(digest) {
                    add("#part", "innerMorph", Ok(html));
                }
            }
        }
        for line in &entries {
            if self.part == "events" {
                let event = OneEvent { event: events::Event::new(&line.entry) };
                add("#events", "beforeend", event.render());
            }
            seen.entries = line.entry.sequence;
        }
        if self.part == "change" && entries.iter().any(|line| is_about_a_change(&line.entry)) {
            // Somebody may be writing comments on the lines that are there.
            add("#fresh", "innerHTML", Fresh { shell }.render());
        }
        if self.part == "log" && !lines.is_empty() {
            add("#log-none", "delete", Ok(String::new()));
        }
        for line in &lines {
            if self.part == "log" {
                let shown = OneLine { line: log::Line::new(line) };
                add("#log", "beforeend", shown.render());
            }
            if let Ok(place) = line.place.parse() {
                seen.lines = place;
            }
        }
        let id = format!("{} {}", seen.entries, seen.lines);
        Ok(Some(Event::default().id(id).data(parts.concat())))
    }
}
