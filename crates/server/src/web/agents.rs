//! Agents and workers: active runs, free slots and exhausted quotas.

use askama::Template;
use tamma_core::format::{format_duration, format_usd, pluralize};
use tamma_core::tier::Tier;

use super::layout::{DisplayTime, Layout};
use super::session::Session;
use super::{PageError, PageResult, WebState, labels, render};
use crate::app::{App, Error};
use crate::clock;
use crate::dto::{AgentStatistics, PoolProvider, PoolRun, PoolWorker};

#[derive(Template)]
#[template(path = "agents.html")]
struct AgentsPage {
    layout: Layout,
    live_href: &'static str,
    pool: AgentPoolView,
}

/// Workers, providers and agents, as live updates replace them.
#[derive(Template)]
#[template(path = "_agent_pool.html")]
pub(super) struct AgentPoolView {
    layout: Layout,
    summary: String,
    workers: Vec<WorkerView>,
    providers: Vec<ProviderView>,
    agents: Vec<AgentStats>,
}

struct WorkerView {
    id: usize,
    name: String,
    tone: &'static str,
    status: String,
    /// Isolation of agents, if the worker reports it.
    sandbox: Option<String>,
    busy_slots: usize,
    slot_count: usize,
    slot_views: Vec<SlotView>,
}

enum SlotView {
    Free,
    Busy { href: String, title: String, run_summary: String, since: DisplayTime },
}

struct ProviderView {
    id: usize,
    name: String,
    tone: &'static str,
    run_count: String,
    status: String,
}

struct AgentStats {
    agent: String,
    tier: Option<Tier>,
    model: Option<String>,
    runs: u64,
    first_pass: String,
    cost: String,
    roles: String,
}

pub(super) async fn page(state: WebState, session: Session) -> PageResult {
    let layout = Layout::for_page(&state, &session, "engines").await?;
    let pool = AgentPoolView::load(&state.app, &layout).await;
    let pool = pool.map_err(|error| PageError::new(Layout::for_session(&session), error))?;
    render(&AgentsPage { layout, live_href: "/live/engines", pool })
}

impl AgentPoolView {
    pub(super) async fn load(app: &App, layout: &Layout) -> Result<Self, Error> {
        let pool = app.agent_pool().await?;
        let mut workers: Vec<WorkerView> = Vec::new();
        for it in &pool.workers {
            workers.push(worker_view(workers.len(), it));
        }
        if !pool.orphaned_runs.is_empty() {
            // Their worker is gone, and no other worker has resumed them yet.
            workers.push(WorkerView {
                id: workers.len(),
                name: "No worker".to_owned(),
                tone: "bad",
                status: "The worker of these runs is offline. Another worker will resume them."
                    .to_owned(),
                sandbox: None,
                busy_slots: pool.orphaned_runs.len(),
                slot_count: pool.orphaned_runs.len(),
                slot_views: pool.orphaned_runs.iter().map(busy_slot).collect(),
            });
        }
        let (active, free) =
            (pluralize(pool.active_runs, "run"), pluralize(pool.free_slots, "slot"));
        Ok(Self {
            layout: layout.clone(),
            summary: format!("{active} active, {free} free"),
            workers,
            providers: pool.providers.into_iter().enumerate().map(provider_view).collect(),
            agents: pool.agents.into_iter().map(agent_stats).collect(),
        })
    }
}

fn provider_view((id, it): (usize, PoolProvider)) -> ProviderView {
    ProviderView {
        id,
        name: it.name,
        tone: if it.blocked_until.is_some() { "hold" } else { "work" },
        run_count: pluralize(it.runs, "run"),
        status: match it.blocked_until {
            Some(until) => {
                let until = labels::format_time(until, clock::now());
                format!("Quota exhausted until {until}; no new runs start")
            }
            None => "Available".to_owned(),
        },
    }
}

fn worker_view(id: usize, it: &PoolWorker) -> WorkerView {
    let slots = usize::try_from(it.slots).unwrap_or(usize::MAX);
    let ago = |at| format_duration(clock::now() - at);
    let free = (it.runs.len()..slots).map(|_| SlotView::Free);
    WorkerView {
        id,
        name: it.name.clone(),
        tone: match (it.online, it.runs.len() >= slots) {
            (false, _) => "bad",
            (true, true) => "work",
            (true, false) => "idle",
        },
        status: if it.online {
            format!("Online for {}", ago(it.started_at))
        } else {
            format!("Offline for {}", ago(it.seen_at))
        },
        sandbox: it.sandbox.clone(),
        busy_slots: it.runs.len(),
        slot_count: slots,
        slot_views: it.runs.iter().map(busy_slot).chain(free).collect(),
    }
}

/// Builds the view of a slot with a run.
fn busy_slot(run: &PoolRun) -> SlotView {
    let model = run.model.as_ref().map(|model| format!(", {model}")).unwrap_or_default();
    let folder = if run.is_phase { "pipelines" } else { "tasks" };
    SlotView::Busy {
        href: format!("/{folder}/{}", run.task),
        title: run.title.clone(),
        run_summary: format!("{} with {}{model}", run.mode, run.agent),
        since: DisplayTime::elapsed(run.started_at),
    }
}

fn agent_stats(it: AgentStatistics) -> AgentStats {
    let share = (it.passed * 100).checked_div(it.judged);
    AgentStats {
        agent: it.agent,
        tier: it.tier,
        model: it.model,
        runs: it.runs,
        first_pass: share
            .map_or_else(|| "no data".to_owned(), |share| format!("{share}% of {}", it.judged)),
        cost: it.mean_usd.map_or_else(|| "unknown".to_owned(), format_usd),
        roles: it.modes.join(", "),
    }
}
