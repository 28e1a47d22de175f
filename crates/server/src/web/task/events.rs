//! Everything that has happened to a task, in its order.

use axum::extract::{Path, Query, State};
use serde::Deserialize;
use tamma_core::actor::Actor;
use tamma_core::ids::TaskId;
use tamma_core::log::{Entry, EntryName, Fact};
use uuid::Uuid;

use super::super::door::Visitor;
use super::super::shell::{Shell, When};
use super::super::words::capital;
use super::super::{Hall, Oops, Page, render, words};
use super::{Around, ELSEWHERE, live, task_page};
use crate::app::Window;

/// How many are shown at once.
const PART: u32 = 500;

task_page!(EventsPage, "task_events.html", {
    events_words: String, events: Vec<Event>, more_href: String,
});

/// One entry of the log.
pub(in crate::web) struct Event {
    pub(in crate::web) sequence: u64,
    pub(in crate::web) name: String,
    pub(in crate::web) words: String,
    pub(in crate::web) from: String,
    pub(in crate::web) to: String,
    pub(in crate::web) actor: String,
    pub(in crate::web) reason: String,
    pub(in crate::web) data: String,
    pub(in crate::web) tone: &'static str,
    pub(in crate::web) at: When,
}

impl Event {
    pub(in crate::web) fn new(entry: &Entry) -> Self {
        let name = entry.name.to_string();
        let words = name.trim_start_matches("SM_").to_ascii_lowercase().replace('_', " ");
        let moved = entry.from != entry.to;
        let state = |state| if moved { words::plain(&state) } else { String::new() };
        Self {
            sequence: entry.sequence,
            words: capital(&words),
            name,
            from: state(entry.from),
            to: state(entry.to),
            actor: match &entry.actor {
                Actor::Person(name) => name.to_string(),
                _ => String::new(),
            },
            reason: entry.reason.as_deref().unwrap_or_default().to_owned(),
            data: match &entry.data {
                Fact::None => String::new(),
                data => serde_json::to_string_pretty(data).unwrap_or_default(),
            },
            tone: tone(entry.name),
            at: When::clock(entry.at),
        }
    }
}

fn tone(name: EntryName) -> &'static str {
    use EntryName as N;
    match name {
        N::SmApprovalRequested | N::SmAlertSent | N::SmQuestionAsked => "wait",
        N::SmPlanInvalid
        | N::SmImplementationFailed
        | N::SmGatesFailed
        | N::SmReviewFailed
        | N::SmDeliveryFailed
        | N::SmTaskFailed
        | N::SmErrorOccurred => "bad",
        N::SmReviewPassed | N::SmApprovalGranted | N::SmDelivered | N::SmTaskCompleted => "good",
        _ => "idle",
    }
}

/// Where to go on.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::web) struct From {
    after: Option<String>,
}

pub(in crate::web) async fn page(
    State(hall): State<Hall>,
    visitor: Visitor,
    Path(id): Path<Uuid>,
    Query(from): Query<From>,
) -> Page {
    let (mut around, known) = Around::of(&hall, &visitor, id, "events").await?;
    let window = Window { after: from.after, limit: PART };
    let part = hall.app.history(TaskId(id), &window).await;
    let part = part.map_err(|error| Oops::new(Shell::of(&visitor), error))?;
    let count = words::counted(known.whole.card.entries, "entry");
    // What comes next is added below what is here, unless there is something in between.
    let here = if part.next.is_none() { "events" } else { ELSEWHERE };
    let last = part.entries.last().map_or(known.whole.card.entries, |line| line.entry.sequence);
    around.live = live(id, here, last, known.lines);
    let events = part.entries.iter().map(|line| Event::new(&line.entry)).collect();
    let more = part.next.map(|next| format!("?after={next}")).unwrap_or_default();
    render(&EventsPage::new(around, format!("{count}, append-only, in their order"), events, more))
}
