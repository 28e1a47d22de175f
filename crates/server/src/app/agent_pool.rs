//! Status of the agent pool.

use chrono::TimeDelta;
use tamma_core::task_loop::Timestamp;
use tamma_store::{ActiveRun, AgentUsage};

use super::{App, Error};
use crate::clock;
use crate::dto::{AgentPool, AgentStatistics, PoolProvider, PoolRun, PoolWorker};

/// Period of the agent statistics.
const STATS_PERIOD: TimeDelta = TimeDelta::days(7);

impl App {
    /// Returns the status of the agent pool.
    pub(crate) async fn agent_pool(&self) -> Result<AgentPool, Error> {
        let (store, now) = (&self.store, clock::now());
        let mut running = store.active_runs().await?;
        let active_runs = running.len() as u64;
        let usage = store.agent_usage(now - STATS_PERIOD).await?;
        let (leases, blocks) = (store.provider_leases().await?, store.provider_blocks(now).await?);
        let mut workers = Vec::new();
        let mut free_slots = 0;
        for (it, online) in store.workers().await? {
            let is_own = |run: &mut ActiveRun| run.worker.as_ref() == Some(&it.name);
            let runs: Vec<PoolRun> = running.extract_if(.., is_own).map(PoolRun::from).collect();
            if online {
                free_slots += u64::from(it.slots).saturating_sub(runs.len() as u64);
            }
            workers.push(PoolWorker {
                name: it.name,
                online,
                slots: it.slots,
                started_at: it.started_at,
                seen_at: it.seen_at,
                sandbox: it.sandbox,
                runs,
            });
        }
        Ok(AgentPool {
            active_runs,
            free_slots,
            workers,
            orphaned_runs: running.into_iter().map(PoolRun::from).collect(),
            providers: providers(&leases, &blocks),
            agents: usage.into_iter().map(AgentStatistics::from).collect(),
        })
    }
}

fn providers(leases: &[(String, u64)], blocks: &[(String, Timestamp)]) -> Vec<PoolProvider> {
    let mut providers: Vec<PoolProvider> = Vec::new();
    let names = leases.iter().map(|(name, _)| name).chain(blocks.iter().map(|(name, _)| name));
    for name in names {
        if providers.iter().any(|provider| provider.name == *name) {
            continue;
        }
        providers.push(PoolProvider {
            name: name.clone(),
            runs: leases.iter().find(|(key, _)| key == name).map_or(0, |(_, count)| *count),
            blocked_until: blocks.iter().find(|(key, _)| key == name).map(|(_, until)| *until),
        });
    }
    providers
}

impl From<ActiveRun> for PoolRun {
    fn from(it: ActiveRun) -> Self {
        let ActiveRun { task, title, is_phase, agent, model, mode, started_at, worker: _ } = it;
        Self { task: task.0, title, is_phase, agent, model, mode, started_at }
    }
}

impl From<AgentUsage> for AgentStatistics {
    fn from(it: AgentUsage) -> Self {
        let AgentUsage { agent, model, tier, modes, runs, judged, passed, mean_usd } = it;
        Self { agent, model, tier, modes, runs, judged, passed, mean_usd }
    }
}
