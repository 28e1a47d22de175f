//! Log tab of a task: output of its agents.

use axum::extract::{Path, Query};
use tamma_core::format::format_usd;
use tamma_core::ids::TaskId;
use uuid::Uuid;

use super::super::layout::{Layout, SelectOption};
use super::super::log_view::{LogQuery, LogView, TailView, run_href, run_state};
use super::super::session::Session;
use super::super::{PageError, PageResult, WebState, render};
use super::{NO_LIVE_PART, TaskPageContext, live_href, task_page};
use crate::dto;

task_page!(LogPage, "task_log.html", { run_list: Vec<RunView>, log: LogView });

struct RunView {
    run: String,
    href: String,
    /// Kind of run, agent, model and result.
    facts: String,
    cost: String,
}

pub(in crate::web) async fn page(
    state: WebState,
    session: Session,
    Path(id): Path<Uuid>,
    Query(query): Query<LogQuery>,
) -> PageResult {
    let (mut context, data) = TaskPageContext::load(&state, &session, id, "log").await?;
    let log = LogView::load(&state.app, TaskId(id), &query, &data.runs).await;
    let mut log = log.map_err(|error| PageError::new(Layout::for_session(&session), error))?;
    log.runs = std::iter::once(SelectOption::new("", "All", &query.run))
        .chain(data.runs.iter().rev().map(|run| {
            SelectOption::new(&run.run, format!("{}, {}", run.run, run.mode), &query.run)
        }))
        .collect();
    let current = data.detail.current_run.as_ref().map(|current| &current.run);
    log.tail = query.is_last_page().then(|| TailView::of_run(current));
    // An earlier page does not grow.
    let part = if query.is_last_page() { "log" } else { NO_LIVE_PART };
    let live = live_href(id, part, data.detail.card.entries, log.last);
    context.live_href = format!("{live}&{}", query.with_before(None));
    let run_list = data.runs.iter().rev().map(|run| run_view(id, run)).collect();
    render(&LogPage::new(context, run_list, log))
}

fn run_view(task: Uuid, run: &dto::RunDetail) -> RunView {
    let agent = match &run.model {
        Some(model) => format!("{} {model}", run.agent),
        None => run.agent.clone(),
    };
    let usd = run.usage.and_then(|usage| usage.usd);
    RunView {
        run: run.run.clone(),
        href: run_href(task, &run.run),
        facts: format!("{}, {agent}. {}", run.mode, run_state(run)),
        cost: usd.map_or_else(|| "cost unknown".to_owned(), format_usd),
    }
}
