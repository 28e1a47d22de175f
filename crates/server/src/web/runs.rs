//! Page of one run: its facts and its complete log, to share with people who can read the task.

use askama::Template;
use axum::extract::{Path, Query};
use tamma_core::format::{capitalize, humanize};
use tamma_store::RunEnd;
use uuid::Uuid;

use super::layout::{DisplayTime, Layout};
use super::log_view::{LogQuery, LogView, TailView, run_state, usage_text};
use super::session::Session;
use super::{PageError, PageResult, WebState, render};
use crate::app::{App, Error, parse_run_id};
use crate::dto;

#[derive(Template)]
#[template(path = "run.html")]
struct RunPage {
    layout: Layout,
    live_href: String,
    task: RunTask,
    run: RunFactsView,
    log: LogView,
}

/// Task of a run.
struct RunTask {
    id: Uuid,
    short_id: String,
    title: String,
}

/// Facts of a run, as live updates replace them.
#[derive(Template)]
#[template(path = "_run_facts.html")]
pub(super) struct RunFactsView {
    pub(super) title: String,
    pub(super) state: String,
    pub(super) tone: &'static str,
    pub(super) agent: String,
    pub(super) usage: String,
    pub(super) started: DisplayTime,
    /// Raw transcript; `None` while the run is active.
    pub(super) transcript_href: Option<String>,
}

impl RunFactsView {
    pub(super) fn new(task: Uuid, run: &dto::RunDetail) -> Self {
        let parts = [Some(run.agent.clone()), run.model.clone()];
        let tier = run.tier.map(|tier| format!("{tier} tier"));
        let agent: Vec<_> = parts.into_iter().chain([tier]).flatten().collect();
        Self {
            title: format!("Run {}: {}", run.run, capitalize(&humanize(&run.mode))),
            state: run_state(run),
            tone: match run.end {
                None => "work",
                Some(RunEnd::Finished) => "good",
                Some(RunEnd::Asked | RunEnd::Quota | RunEnd::PlanWrong) => "wait",
                Some(RunEnd::Cancelled) => "off",
                Some(_) => "bad",
            },
            agent: agent.join(" · "),
            usage: usage_text(run),
            started: DisplayTime::absolute(run.started_at),
            transcript_href: run
                .transcript
                .then(|| format!("/api/v1/tasks/{task}/runs/{}/transcript", run.run)),
        }
    }
}

/// Returns the query of a run's log: only its own lines.
pub(super) fn own_lines(mut query: LogQuery, run: &dto::RunDetail) -> LogQuery {
    query.run = format!("{}.{}", run.job_number, run.attempt);
    query
}

pub(super) async fn page(
    state: WebState,
    session: Session,
    Path(id): Path<String>,
    Query(query): Query<LogQuery>,
) -> PageResult {
    let layout = Layout::for_page(&state, &session, "board").await?;
    let page = load(&state.app, layout, &id, query).await;
    render(&page.map_err(|error| PageError::new(Layout::for_session(&session), error))?)
}

async fn load(app: &App, layout: Layout, id: &str, query: LogQuery) -> Result<RunPage, Error> {
    let not_found = || Error::NotFound { what: "run", key: id.chars().take(80).collect() };
    let (task, number) = parse_run_id(id).ok_or_else(not_found)?;
    let run = app.run(task, number).await?;
    let card = app.task_card(task).await?;
    let query = own_lines(query, &run);
    let mut log = LogView::load(app, task, &query, std::slice::from_ref(&run)).await?;
    log.tail = query.is_last_page().then(|| TailView::of_run(Some(&run)));
    if run.lines > 0 && !query.is_filtered() {
        log.empty_text = "The log lines were removed. The raw transcript has them.";
    }
    // An earlier page does not grow, and neither does a run that has ended.
    let live_href = if query.is_last_page() && run.ended_at.is_none() {
        format!("/live/runs/{id}?seen={}&{}", log.last, query.with_before(None))
    } else {
        String::new()
    };
    Ok(RunPage {
        layout,
        live_href,
        task: RunTask { id: card.id, short_id: card.short, title: card.title },
        run: RunFactsView::new(task.0, &run),
        log,
    })
}
