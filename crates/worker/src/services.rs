//! Services of a worker that jobs use.

use std::sync::Arc;

use tamma_connect::forge::Forges;
use tamma_engine::egress::EgressProxy;
use tamma_engine::process::ProcessRecords;
use tamma_store::{EarlierUsage, Store};

use crate::config::WorkerConfig;
use crate::content_cache::ContentCache;
use crate::error::Error;
use crate::job_context::JobContext;
use crate::knowledge_context::Knowledge;
use crate::maintenance::MaintenanceSwitch;
use crate::prompts::PromptSet;
use crate::repositories::Repositories;
use crate::retry::retry_until_stopped;
use crate::run_budget::run_number;
use crate::running_attempts::RunningAttempts;
use crate::runs::AgentRunner;

/// Services of a worker. Clones share their state.
#[derive(Clone)]
pub(crate) struct Services {
    pub(crate) config: Arc<WorkerConfig>,
    pub(crate) store: Store,
    /// Attempts on this worker, so that a later one can stop them.
    pub(crate) attempts: RunningAttempts,
    /// Processes on this machine, so that another attempt can stop them.
    pub(crate) processes: ProcessRecords,
    /// Network access of sandboxes.
    pub(crate) egress: EgressProxy,
    pub(crate) repositories: Repositories,
    /// Forges of the operator.
    pub(crate) forges: Forges,
    pub(crate) knowledge: Knowledge,
    /// Plans and prompts.
    pub(crate) contents: ContentCache,
    pub(crate) agents: AgentRunner,
    pub(crate) maintenance: MaintenanceSwitch,
}

impl Services {
    /// Opens all services of a worker.
    pub(crate) async fn open(
        config: WorkerConfig,
        store: Store,
        processes: ProcessRecords,
    ) -> Result<Self, Error> {
        let config = Arc::new(config);
        let forges = Forges::open(&config.forges);
        let repositories =
            Repositories::open(config.clone(), store.clone(), forges.clone()).await?;
        let knowledge = Knowledge::new(&store, &config);
        let contents = ContentCache::new(&store);
        let hosts = &config.operator.sandbox.hosts;
        let egress = EgressProxy::open(&config.data_dir, hosts, config.https_proxy()).await?;
        let agents = AgentRunner::open(
            config.clone(),
            store.clone(),
            (knowledge.clone(), contents.clone()),
            (processes.clone(), egress.clone()),
        );
        let agents = agents.await?;
        Ok(Self {
            config,
            store,
            attempts: RunningAttempts::default(),
            processes,
            egress,
            repositories,
            forges,
            knowledge,
            contents,
            agents,
            maintenance: MaintenanceSwitch::default(),
        })
    }

    /// Returns the usage of the attempts at the job before this one, without that of `known`. Without it, the
    /// result must be kept all the same, whatever happens to the database.
    pub(crate) async fn usage_before(&self, ctx: &JobContext, known: u32) -> Option<EarlierUsage> {
        if ctx.attempt == 1 {
            return None;
        }
        let run = ctx.run_id();
        let (task, number) = (run.task, run_number(run));
        let read = || self.store.earlier_usage(task, number, known);
        match retry_until_stopped(&ctx.stop, read).await {
            Ok(usage) => usage,
            Err(error) => {
                tracing::warn!(%run, %error, "failed to count the usage of earlier attempts");
                None
            }
        }
    }

    /// Returns the prompts that a task is pinned to. Tasks from before prompts were pinned use the
    /// built-in ones.
    pub(crate) async fn prompts(&self, ctx: &JobContext) -> Result<PromptSet, Error> {
        match ctx.task_loop.pin.and_then(|pin| pin.prompts) {
            Some(digest) => PromptSet::parse(&self.contents.text(digest).await?),
            None => Ok(PromptSet::default()),
        }
    }

    /// Stops processes of earlier attempts of a job.
    pub(crate) async fn stop_earlier_attempts(&self, ctx: &JobContext) -> Result<(), Error> {
        Ok(self.processes.take_over(ctx.run_id(), self.config.timeouts.stop).await?)
    }
}
