//! Merge queues: current builds, waiting changes, pause and resume.

use askama::Template;
use tamma_core::access::Permission;
use tamma_core::format::{capitalize, pluralize};

use super::form_fields::FormFields;
use super::layout::{DisplayTime, Layout, Notice};
use super::permissions::PagePermissions;
use super::session::{Session, redirect_with_notice};
use super::{PageError, PageResult, WebState, render};
use crate::app::{App, Error};
use crate::dto::{MergeQueueActionBody, MergeQueueView, QueueEntryView};

#[derive(Template)]
#[template(path = "merge_queues.html")]
struct MergeQueuesPage {
    layout: Layout,
    live_href: &'static str,
    queues: QueuesView,
}

/// Queues, as live updates replace them.
#[derive(Template)]
#[template(path = "_merge_queues.html")]
pub(super) struct QueuesView {
    layout: Layout,
    summary: String,
    queues: Vec<QueueSection>,
}

struct QueueSection {
    id: usize,
    view: MergeQueueView,
    tone: &'static str,
    status: String,
    totals: String,
    can_act: bool,
    rows: Vec<EntryRow>,
}

struct EntryRow {
    href: String,
    title: String,
    head: String,
    state: String,
    tone: &'static str,
    priority: String,
    note: String,
    since: DisplayTime,
}

pub(super) async fn page(state: WebState, session: Session) -> PageResult {
    let layout = Layout::for_page(&state, &session, "merge-queues").await?;
    let permissions = PagePermissions::for_session(&state.app, &session);
    let queues = QueuesView::load(&state.app, &layout, &permissions).await;
    let queues = queues.map_err(|error| PageError::new(Layout::for_session(&session), error))?;
    render(&MergeQueuesPage { layout, live_href: "/live/merge-queues", queues })
}

/// Pauses or resumes a queue, then shows the page again.
pub(super) async fn submit_action(
    state: WebState,
    session: Session,
    fields: FormFields,
) -> PageResult {
    let submitted = async {
        let pause = match fields.text("action").as_str() {
            "pause" => true,
            "resume" => false,
            _ => return Err(Error::invalid("Unknown action.", "Use the buttons on the page.")),
        };
        let by = session.acting_person()?;
        let body = MergeQueueActionBody {
            forge: fields.text("forge"),
            repository: fields.text("repository"),
            branch: fields.text("branch"),
            reason: Some(fields.text("reason")),
        };
        state.app.act_on_merge_queue(&by, body, pause).await?;
        Ok(pause)
    };
    let pause = submitted
        .await
        .map_err(|error: Error| PageError::new(Layout::for_session(&session), error))?;
    let text = if pause { "Merge queue paused." } else { "Merge queue resumed." };
    redirect_with_notice("/merge-queues", &Notice::success(text))
}

impl QueuesView {
    pub(super) async fn load(
        app: &App,
        layout: &Layout,
        permissions: &PagePermissions,
    ) -> Result<Self, Error> {
        let views = app.merge_queues().await?;
        let waiting: usize = views.iter().map(|it| open_entries(it).count()).sum();
        let paused = views.iter().filter(|it| it.paused.is_some()).count();
        let summary = format!(
            "{}, {} in the queue, {paused} paused",
            pluralize(views.len(), "queue"),
            pluralize(waiting, "change")
        );
        let queues = views.into_iter().enumerate().map(|(id, view)| {
            let can_act = permissions.allows(view.project, Permission::Decide);
            section(id, view, can_act)
        });
        Ok(Self { layout: layout.clone(), summary, queues: queues.collect() })
    }
}

fn open_entries(view: &MergeQueueView) -> impl Iterator<Item = &QueueEntryView> {
    view.entries.iter().filter(|it| it.settled_at.is_none())
}

fn section(id: usize, view: MergeQueueView, can_act: bool) -> QueueSection {
    let (tone, status) = match (&view.paused, &view.build) {
        (Some(_), _) if view.incident => ("bad", "Incident".to_owned()),
        (Some(_), _) => ("wait", "Paused".to_owned()),
        (None, Some(build)) => {
            let phase = capitalize(&build.phase.replace('_', " "));
            ("wait", format!("{phase} {}", pluralize(build.entries, "change")))
        }
        (None, None) => ("good", "Idle".to_owned()),
    };
    let totals = format!(
        "{} landed, {} returned, {} gate runs, {} flaky",
        view.landed, view.returned, view.gate_runs, view.flaky
    );
    let rows = view.entries.iter().map(entry_row).collect();
    QueueSection { id, view, tone, status, totals, can_act, rows }
}

fn entry_row(entry: &QueueEntryView) -> EntryRow {
    let tone = match entry.state.as_str() {
        "testing" => "wait",
        "landed" => "good",
        "returned" => "bad",
        _ => "none",
    };
    EntryRow {
        href: format!("/tasks/{}", entry.task),
        title: entry.title.clone().unwrap_or_else(|| entry.task.to_string()),
        head: entry.head.chars().take(12).collect(),
        state: capitalize(&entry.state),
        tone,
        priority: capitalize(&entry.priority),
        note: entry.reason.clone().unwrap_or_default(),
        since: DisplayTime::ago(entry.settled_at.unwrap_or(entry.queued_at)),
    }
}
