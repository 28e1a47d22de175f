//! Agents and workers: active runs, free slots and exhausted quotas.

use askama::Template;
use axum::extract::State;
use chrono::TimeDelta;
use tamma_core::format::{format_duration, format_usd, pluralize};
use tamma_core::task_loop::Timestamp;
use tamma_core::tier::Tier;
use tamma_store::{ActiveRun, AgentUsage, Worker};
use uuid::Uuid;

use super::layout::{DisplayTime, Layout};
use super::session::Session;
use super::{PageError, PageResult, WebState, labels, render};
use crate::app::{App, Error};
use crate::clock;

/// Period of the agent statistics.
const STATS_PERIOD: TimeDelta = TimeDelta::days(7);

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
    busy_slots: usize,
    slot_count: usize,
    slot_views: Vec<SlotView>,
}

enum SlotView {
    Free,
    Busy { task: Uuid, title: String, run_summary: String, since: DisplayTime },
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

pub(super) async fn page(State(state): State<WebState>, session: Session) -> PageResult {
    let layout = Layout::for_page(&state, &session, "engines").await?;
    let pool = AgentPoolView::load(&state.app, &layout).await;
    let pool = pool.map_err(|error| PageError::new(Layout::for_session(&session), error))?;
    render(&AgentsPage { layout, live_href: "/live/engines", pool })
}

impl AgentPoolView {
    pub(super) async fn load(app: &App, layout: &Layout) -> Result<Self, Error> {
        let (store, now) = (&app.store, clock::now());
        let mut running = store.active_runs().await?;
        let usage = store.agent_usage(now - STATS_PERIOD).await?;
        let (blocks, leases) =
            (store.provider_blocks(now).await?, store.provider_leases(now).await?);
        let active = pluralize(running.len(), "run");
        let mut workers: Vec<WorkerView> = Vec::new();
        for (it, is_online) in store.workers().await? {
            let is_own = |run: &mut ActiveRun| run.worker.as_ref() == Some(&it.name);
            let own_runs: Vec<ActiveRun> = running.extract_if(.., is_own).collect();
            workers.push(worker_view(workers.len(), &it, is_online, &own_runs));
        }
        if !running.is_empty() {
            // Their worker is gone, and no other worker has resumed them yet.
            workers.push(WorkerView {
                id: workers.len(),
                name: "No worker".to_owned(),
                tone: "bad",
                status: "The worker of these runs is offline. Another worker will resume them."
                    .to_owned(),
                busy_slots: running.len(),
                slot_count: running.len(),
                slot_views: running.iter().map(busy_slot).collect(),
            });
        }
        let free: usize =
            workers.iter().map(|it| it.slot_count.saturating_sub(it.busy_slots)).sum();
        Ok(Self {
            layout: layout.clone(),
            summary: format!("{active} active, {} free", pluralize(free, "slot")),
            workers,
            providers: provider_views(&leases, &blocks),
            agents: usage.into_iter().map(agent_stats).collect(),
        })
    }
}

fn provider_views(leases: &[(String, u64)], blocks: &[(String, Timestamp)]) -> Vec<ProviderView> {
    let mut providers: Vec<ProviderView> = Vec::new();
    let names = leases.iter().map(|(name, _)| name).chain(blocks.iter().map(|(name, _)| name));
    for name in names {
        if providers.iter().any(|provider| provider.name == *name) {
            continue;
        }
        let run_count = leases.iter().find(|(key, _)| key == name).map_or(0, |(_, count)| *count);
        let blocked_until = blocks.iter().find(|(key, _)| key == name).map(|(_, until)| *until);
        providers.push(ProviderView {
            id: providers.len(),
            name: name.clone(),
            tone: if blocked_until.is_some() { "hold" } else { "work" },
            run_count: pluralize(run_count, "run"),
            status: match blocked_until {
                Some(until) => {
                    let until = labels::format_time(until, clock::now());
                    format!("Quota exhausted until {until}; no new runs start")
                }
                None => "Available".to_owned(),
            },
        });
    }
    providers
}

fn worker_view(id: usize, it: &Worker, is_online: bool, running: &[ActiveRun]) -> WorkerView {
    let slots = usize::try_from(it.slots).unwrap_or(usize::MAX);
    let ago = |at| format_duration(clock::now() - at);
    let free = (running.len()..slots).map(|_| SlotView::Free);
    WorkerView {
        id,
        name: it.name.clone(),
        tone: match (is_online, running.len() >= slots) {
            (false, _) => "bad",
            (true, true) => "work",
            (true, false) => "idle",
        },
        status: if is_online {
            format!("Online for {}", ago(it.started_at))
        } else {
            format!("Offline for {}", ago(it.seen_at))
        },
        busy_slots: running.len(),
        slot_count: slots,
        slot_views: running.iter().map(busy_slot).chain(free).collect(),
    }
}

/// Builds the view of a slot with a run.
fn busy_slot(run: &ActiveRun) -> SlotView {
    let model = run.model.as_ref().map(|model| format!(", {model}")).unwrap_or_default();
    SlotView::Busy {
        task: run.task.0,
        title: run.title.clone(),
        run_summary: format!("{} with {}{model}", run.mode, run.agent),
        since: DisplayTime::elapsed(run.started_at),
    }
}

fn agent_stats(it: AgentUsage) -> AgentStats {
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
