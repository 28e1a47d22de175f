//! Makes strikes, and ends what they have changed.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use tamma_testkit::Cluster;
use tamma_testkit::cluster::DATABASE_HOST;
use tamma_testkit::tamma_process::TammaProcess;
use tokio::time::sleep;

use super::machine::MachineAbilities;
use super::models::Models;
use super::strike::{Strike, Victims};
use super::{MODEL_KEY, WORKER_ARGS};
use crate::support::leftover;

/// Duration of outages that end by themselves: longer than the heartbeat timeout of a worker, which is
/// 3 s here, so that another worker gets its tasks.
pub(super) const OUTAGE: Duration = Duration::from_secs(6);

/// Number of kills of a storm. A job fails after five workers that died with it.
const STORM: usize = 3;

/// Pause between the kills of a storm.
const STORM_PAUSE: Duration = Duration::from_millis(500);

/// Delay of the database's packets, in milliseconds.
const DELAY: u32 = 150;

/// Delay of each commit on a slow disk, in microseconds.
const COMMIT_DELAY: u32 = 100_000;

/// Host of Temporal's frontend.
const FRONTEND: &str = "temporal-frontend";

/// Hosts of Temporal's history.
const HISTORY: [&str; 2] = ["temporal-1", "temporal-2"];

/// Makes strikes against a cluster.
#[derive(Debug)]
pub(crate) struct Striker {
    pub(crate) cluster: Cluster,
    models: Models,
    machine: MachineAbilities,
    /// Number that chooses the victim among equals.
    victim: usize,
}

impl Striker {
    /// Starts the models of the cluster's agents.
    pub(crate) async fn new(mut cluster: Cluster, machine: MachineAbilities) -> Result<Self> {
        let models = Models::start(&mut cluster).await?;
        Ok(Self { cluster, models, machine, victim: 0 })
    }

    /// Returns the URL of the model on each host.
    pub(crate) fn upstream(&self) -> &str {
        &self.models.upstream
    }

    /// Returns why a strike is not possible here; `None` if it is.
    pub(crate) fn why_not(&self, strike: Strike) -> Result<Option<String>> {
        self.machine.why_not(strike, &self.cluster)
    }

    /// Chooses the victim of the next strike among equals by a number, and returns the tasks that depend
    /// on it; `None` stands for all tasks in flight.
    pub(crate) fn aim(&mut self, strike: Strike, victim: usize) -> Option<BTreeSet<String>> {
        self.victim = victim;
        let runs = leftover::runs().into_iter();
        match strike.victims() {
            Victims::All => None,
            Victims::Runs => Some(runs.map(|run| run.task).collect()),
            Victims::OneWorker => {
                let at = self.worker_index(strike);
                let pid = self.cluster.workers_mut().get(at).and_then(TammaProcess::pid);
                let runs = runs.filter(|run| pid.is_some_and(|pid| run.descends_from(pid)));
                Some(runs.map(|run| run.task).collect())
            }
        }
    }

    /// Makes a strike and ends it. Killed processes run again when it returns. `tasks` are those in flight:
    /// other runs on this machine are left alone.
    pub(crate) async fn strike(&mut self, strike: Strike, tasks: &[String]) -> Result<()> {
        self.attempt(strike, tasks).await.with_context(|| format!("the strike `{strike}` failed"))
    }

    async fn attempt(&mut self, strike: Strike, tasks: &[String]) -> Result<()> {
        match strike {
            Strike::KillWorker => restart(self.worker(strike)?).await,
            Strike::KillWorkers => {
                for worker in self.cluster.workers_mut() {
                    worker.kill().await?;
                }
                self.start_workers().await
            }
            Strike::KillServer => {
                let servers = self.cluster.servers_mut();
                let at = self.victim % servers.len().max(1);
                restart(servers.get_mut(at).context("no server")?).await
            }
            Strike::KillFrontend => self.restart_node(0).await,
            Strike::KillHistory => self.restart_node(1 + self.victim % HISTORY.len()).await,
            Strike::KillTemporal => self.restart_temporal().await,
            Strike::KillPostgres => {
                self.cluster.postgres_mut()?.restart().await?;
                self.cluster.reconnect().await
            }
            Strike::FailOver => {
                self.cluster.postgres_mut()?.fail_over().await?;
                self.cluster.reconnect().await?;
                self.cluster.postgres_mut()?.add_standby().await
            }
            Strike::KillAgents => {
                let runs = leftover::runs().into_iter().filter(|run| tasks.contains(&run.task));
                let pids: Vec<_> = runs.map(|run| run.pid).collect();
                leftover::kill_all(&pids).await
            }
            Strike::LoseModels => self.models.lose().await,
            Strike::WorkerStorm | Strike::ServerStorm | Strike::TemporalStorm => {
                for _ in 0..STORM {
                    self.storm(strike).await?;
                    sleep(STORM_PAUSE).await;
                }
                Ok(())
            }
            Strike::IsolateWorker
            | Strike::LoseRequests
            | Strike::LoseResponses
            | Strike::SplitTemporal => self.cut(strike).await,
            Strike::DelayDatabase => {
                let network = self.cluster.network()?;
                network.delay(DATABASE_HOST, DELAY).await?;
                sleep(OUTAGE).await;
                network.end_delay(DATABASE_HOST).await
            }
            Strike::TwoOwners => {
                let pid = process_id(self.worker(strike)?)?;
                kill_process(pid, Signal::STOP)?;
                sleep(OUTAGE).await;
                Ok(kill_process(pid, Signal::CONT)?)
            }
            Strike::ClockAhead => self.change_clock(strike, "+3600s").await,
            Strike::ClockBehind => self.change_clock(strike, "-3600s").await,
            Strike::FullDisk => {
                let disk = self.machine.disk.as_ref().map_err(|error| anyhow!("{error}"))?;
                disk.fill()?;
                sleep(OUTAGE).await;
                disk.free()
            }
            Strike::MemoryLimit => limit_memory(process_id(self.worker(strike)?)?).await,
            Strike::SlowDisk => {
                self.set_commit_delay(COMMIT_DELAY).await?;
                sleep(OUTAGE).await;
                self.set_commit_delay(0).await
            }
        }
    }

    /// Makes one kill of a storm.
    async fn storm(&mut self, strike: Strike) -> Result<()> {
        match strike {
            Strike::ServerStorm => {
                for server in self.cluster.servers_mut() {
                    restart(server).await?;
                }
                Ok(())
            }
            Strike::TemporalStorm => self.restart_node(1 + self.victim % HISTORY.len()).await,
            _ => restart(self.worker(strike)?).await,
        }
    }

    async fn restart_temporal(&mut self) -> Result<()> {
        let nodes = self.cluster.temporal_cluster_mut()?.nodes_mut();
        for node in nodes.iter_mut() {
            node.kill().await?;
        }
        // The frontend only answers once it finds the other services.
        for node in nodes.iter_mut().rev() {
            node.restart().await?;
        }
        Ok(())
    }

    /// Restarts `tamma` processes that ended without being killed, and returns their hosts.
    pub(crate) async fn revive(&mut self) -> Result<Vec<String>> {
        let mut ended = Vec::new();
        for server in self.cluster.servers_mut() {
            revive(server, &mut ended).await?;
        }
        for worker in self.cluster.workers_mut() {
            revive(worker, &mut ended).await?;
        }
        Ok(ended)
    }

    /// Cuts links for a while.
    async fn cut(&mut self, strike: Strike) -> Result<()> {
        let worker = self.worker(strike)?.host().to_owned();
        let worker = worker.as_str();
        let links = match strike {
            Strike::LoseRequests => vec![(worker, FRONTEND)],
            Strike::LoseResponses => vec![(DATABASE_HOST, worker)],
            Strike::SplitTemporal => vec![(HISTORY[0], HISTORY[1]), (HISTORY[1], HISTORY[0])],
            _ => [FRONTEND, DATABASE_HOST]
                .into_iter()
                .flat_map(|other| [(worker, other), (other, worker)])
                .collect(),
        };
        let network = self.cluster.network()?;
        for (from, to) in &links {
            network.cut(from, to).await?;
        }
        sleep(OUTAGE).await;
        for (from, to) in &links {
            network.mend(from, to).await?;
        }
        Ok(())
    }

    /// Replaces a worker for a while by one with another clock.
    async fn change_clock(&mut self, strike: Strike, offset: &str) -> Result<()> {
        let library = self.machine.clock.as_ref().map_err(|error| anyhow!("{error}"))?;
        let library = library.display().to_string();
        let worker = self.worker(strike)?;
        worker.kill().await?;
        let name = worker.host().to_owned();
        let mut other = self
            .cluster
            .new_worker(&name)?
            .with_args(&WORKER_ARGS)
            .with_env(MODEL_KEY.0, MODEL_KEY.1)
            .with_env("LD_PRELOAD", library)
            .with_env("FAKETIME", offset)
            .with_env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        other.start().await?;
        sleep(OUTAGE).await;
        other.kill().await?;
        self.worker(strike)?.start().await
    }

    /// Delays commits, or ends this. The cluster runs with `commit_siblings=0`, so each commit waits.
    async fn set_commit_delay(&self, microseconds: u32) -> Result<()> {
        let postgres = self.cluster.postgres()?;
        let change = format!("ALTER SYSTEM SET commit_delay = {microseconds}");
        postgres.query("postgres", &change).await?;
        postgres.query("postgres", "SELECT pg_reload_conf()").await.map(drop)
    }

    async fn start_workers(&mut self) -> Result<()> {
        for worker in self.cluster.workers_mut() {
            worker.start().await?;
        }
        Ok(())
    }

    async fn restart_node(&mut self, at: usize) -> Result<()> {
        let nodes = self.cluster.temporal_cluster_mut()?.nodes_mut();
        nodes.get_mut(at).context("Temporal has no such node")?.restart().await
    }

    fn worker(&mut self, strike: Strike) -> Result<&mut TammaProcess> {
        let at = self.worker_index(strike);
        self.cluster.workers_mut().get_mut(at).context("the cluster has no such worker")
    }

    /// Returns the worker to strike. The last one has the small disk.
    fn worker_index(&mut self, strike: Strike) -> usize {
        let workers = self.cluster.workers_mut().len().max(1);
        if strike == Strike::FullDisk { workers - 1 } else { self.victim % workers }
    }
}

async fn restart(process: &mut TammaProcess) -> Result<()> {
    process.kill().await?;
    process.start().await
}

async fn revive(process: &mut TammaProcess, ended: &mut Vec<String>) -> Result<()> {
    if !process.is_running()? {
        ended.push(process.host().to_owned());
        restart(process).await?;
    }
    Ok(())
}

fn process_id(process: &TammaProcess) -> Result<Pid> {
    let pid = process.pid().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    pid.context("the worker does not run")
}

/// Refuses more address space to a process for a while, which may end it.
async fn limit_memory(pid: Pid) -> Result<()> {
    let limit = |current| Rlimit { current, maximum: None };
    prlimit(Some(pid), Resource::As, limit(Some(memory(pid)?)))?;
    sleep(OUTAGE).await;
    // It may have ended.
    let _ = prlimit(Some(pid), Resource::As, limit(None));
    Ok(())
}

/// Returns the address space that a process uses, in bytes.
fn memory(pid: Pid) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()))?;
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kilobytes =
        size.and_then(|size| size.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    Ok(kilobytes.context("the worker has no memory")? * 1024)
}
