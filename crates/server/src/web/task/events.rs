//! History tab of a task.

use axum::extract::{Path, Query};
use serde::Deserialize;
use tamma_core::actor::Actor;
use tamma_core::format::{capitalize, pluralize};
use tamma_core::history::{EntryData, EntryName};
use tamma_core::ids::TaskId;
use uuid::Uuid;

use super::super::html::SafeHtml;
use super::super::labels::state_label;
use super::super::layout::{DisplayTime, Layout};
use super::super::session::Session;
use super::super::{PageError, PageResult, WebState, markdown, render};
use super::{NO_LIVE_PART, TaskPageContext, live_href, task_page};
use crate::app::PageRequest;
use crate::dto::RecordedEntry;

/// Page size of the history.
const PAGE_SIZE: u32 = 500;

task_page!(EventsPage, "task_events.html", {
    events_summary: String, events: Vec<EventView>, more_href: Option<String>,
});

/// History entry of a task.
pub(in crate::web) struct EventView {
    pub(in crate::web) sequence: u64,
    pub(in crate::web) name: String,
    pub(in crate::web) title: String,
    /// States before and after; `None` if the state did not change.
    pub(in crate::web) transition: Option<(&'static str, &'static str)>,
    /// Person who caused it; `None` for Tamma itself.
    pub(in crate::web) actor: Option<String>,
    /// Authentication of that person.
    pub(in crate::web) auth: Option<String>,
    pub(in crate::web) reason: Option<String>,
    /// Words of the person, or the question of the agent.
    pub(in crate::web) words: Option<SafeHtml>,
    /// Data of the entry, as JSON.
    pub(in crate::web) data: Option<String>,
    pub(in crate::web) tone: &'static str,
    pub(in crate::web) at: DisplayTime,
}

impl EventView {
    pub(in crate::web) fn new(line: &RecordedEntry) -> Self {
        let entry = &line.entry;
        Self {
            sequence: entry.sequence,
            title: capitalize(&entry.name.label()),
            name: entry.name.to_string(),
            transition: (entry.from != entry.to)
                .then(|| (state_label(entry.from), state_label(entry.to))),
            actor: match &entry.actor {
                Actor::Person(name) => Some(name.to_string()),
                _ => None,
            },
            auth: entry.auth.map(|auth| auth.to_string()),
            reason: entry.reason.as_deref().map(str::to_owned),
            words: line.text.as_deref().map(markdown::to_html),
            data: match &entry.data {
                EntryData::None => None,
                // The words say more than their reference.
                EntryData::Stored(_) if line.text.is_some() => None,
                data => serde_json::to_string_pretty(data).ok(),
            },
            tone: tone(entry.name),
            at: DisplayTime::absolute(entry.at),
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

/// Query parameters of the history tab.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::web) struct EventsQuery {
    after: Option<String>,
}

pub(in crate::web) async fn page(
    state: WebState,
    session: Session,
    Path(id): Path<Uuid>,
    Query(from): Query<EventsQuery>,
) -> PageResult {
    let (mut context, data) = TaskPageContext::load(&state, &session, id, "events").await?;
    let window = PageRequest { after: from.after, limit: PAGE_SIZE };
    let part = state.app.history_page(TaskId(id), &window).await;
    let part = part.map_err(|error| PageError::new(Layout::for_session(&session), error))?;
    let count = pluralize(data.detail.card.entries, "entry");
    // Live updates append entries only if the last page is shown.
    let here = if part.next.is_none() { "events" } else { NO_LIVE_PART };
    let last = part.entries.last().map_or(data.detail.card.entries, |line| line.entry.sequence);
    context.live_href = live_href(id, here, last, data.lines);
    let events = part.entries.iter().map(EventView::new).collect();
    let more = part.next.map(|next| format!("?after={next}"));
    render(&EventsPage::new(context, format!("{count}, oldest first"), events, more))
}
