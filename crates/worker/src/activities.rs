//! Activities of the workflow, and the steps common to all jobs.

mod admit;
mod attempts;
mod brief;
mod check;
mod cleanup;
mod council;
mod deliver;
mod disk_space;
mod implement;
mod learn;
mod plan;
mod prepare;
mod registration;
mod review;
mod save_work;
mod test;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::Utc;
use futures::future::BoxFuture;
use tamma_core::ids::{CommitId, PolicyVersion, TaskId};
use tamma_core::plan::Plan;
use tamma_core::rules::Rules;
use tamma_core::task::Task;
use tamma_core::task_loop::{Job, Outcome, Step, StepRecord, TaskLoop, Timestamp};
use tamma_engine::gateway::Gateway;
use tamma_engine::git::Git;
use tamma_engine::mirror::{KnownCommits, Mirror};
use tamma_engine::process::{ProcessRecords, RunId};
use tamma_engine::worktree::{LatestWork, Worktree};
use tamma_flow::RunStarted;
use tamma_flow::activities::{JobRequest, JobResult, PendingSteps};
use tamma_store::{Conflict, KnowledgeCache, Store};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::WorkerConfig;
use crate::embeddings::EmbeddingCache;
use crate::error::Error;
use crate::project_context::ProjectContext;
use crate::unsaved_results::UnsavedResults;

/// Name of the gateway's socket in the data directory.
const GATEWAY_SOCKET: &str = "gateway.sock";

/// Maximum delay between attempts to save a job result.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);

/// Activities of a worker. Clones share their state.
#[derive(Clone)]
pub struct Activities {
    pub(crate) config: Arc<WorkerConfig>,
    pub(crate) store: Store,
    /// Cache of approved knowledge entries.
    pub(crate) knowledge: KnowledgeCache,
    /// Embeddings of knowledge entries, if a model is configured.
    pub(crate) embeddings: EmbeddingCache,
    pub(crate) git: Git,
    pub(crate) processes: ProcessRecords,
    unsaved_results: UnsavedResults,
    /// Proxy through which agents reach models and agent tools.
    pub(crate) gateway: Gateway,
    /// Commits that the mirrors on this machine are known to have.
    mirror_cache: KnownCommits,
    /// Limit on read-only agents, which the agent task queue does not count.
    pub(crate) read_only_slots: Arc<Semaphore>,
    /// Rules by version. They are immutable, and there are few.
    rules_cache: Arc<Mutex<BTreeMap<PolicyVersion, Arc<Rules>>>>,
}

/// Callback that notifies the workflow that a run has started.
pub type AnnounceStart =
    Arc<dyn Fn(RunStarted) -> BoxFuture<'static, Result<(), Error>> + Send + Sync>;

/// Job in progress on this worker: the request, and everything that is known about its task.
#[derive(Clone)]
pub(crate) struct JobContext {
    /// Request of the workflow.
    pub(crate) request: JobRequest,
    /// Attempt number, from 1.
    pub(crate) attempt: u32,
    /// Cancelled when the job must stop.
    pub(crate) stop: CancellationToken,
    pub(crate) announce_start: AnnounceStart,
    /// Rules that the task is pinned to.
    pub(crate) rules: Arc<Rules>,
    /// State machine when the job was requested.
    pub(crate) task_loop: TaskLoop,
    pub(crate) task: Task,
}

impl JobContext {
    /// Returns the ID for processes of this job.
    pub(crate) fn run_id(&self) -> RunId {
        let JobRequest { job_number, pending, .. } = &self.request;
        RunId { task: pending.task, job_number: *job_number, generation: self.attempt }
    }

    /// Returns the base commit of the task.
    pub(crate) fn base(&self) -> Result<CommitId, Error> {
        let pin = self
            .task_loop
            .pin
            .ok_or_else(|| Error::Internal("the task has no base commit yet".to_owned()))?;
        Ok(pin.base)
    }

    /// Returns where the newest work of the task is, as far as the job implies it. A job that names
    /// a commit judges that commit. Before the first run there is no work. Otherwise the repository
    /// must be asked, because an earlier attempt may have run on another host.
    fn newest_work(&self) -> LatestWork {
        match &self.request.job {
            Job::Test { commit, .. } | Job::Review { commit } => LatestWork::Commit(*commit),
            _ if !self.task_loop.has_work && self.attempt == 1 => LatestWork::NoWork,
            _ => LatestWork::Unknown,
        }
    }
}

impl Activities {
    /// Creates the activities with a data directory and a store.
    pub async fn new(
        config: WorkerConfig,
        store: Store,
        records: ProcessRecords,
    ) -> Result<Self, Error> {
        Ok(Self {
            git: Git::find("git").await?,
            unsaved_results: UnsavedResults::open(&config.data_dir).await?,
            gateway: Gateway::open(Some(&config.data_dir.join(GATEWAY_SOCKET))).await?,
            read_only_slots: Arc::new(Semaphore::new(config.slots.max(1))),
            embeddings: EmbeddingCache::new(&config.environment),
            config: Arc::new(config),
            knowledge: KnowledgeCache::new(&store),
            store,
            processes: records,
            mirror_cache: KnownCommits::default(),
            rules_cache: Arc::default(),
        })
    }

    /// Runs a job: saves pending steps, does the work, and stores the result before returning it.
    ///
    /// A retried job may already have a result, which is then returned. The returned result has no
    /// report, because it becomes part of the workflow's history.
    pub async fn run_job(
        &self,
        request: JobRequest,
        attempt: u32,
        stop: CancellationToken,
        announce_start: AnnounceStart,
    ) -> Result<JobResult, Error> {
        let key = (request.pending.task, request.job_number);
        if attempt > 1 {
            if let Some(result) = self.store.job_result::<JobResult>(key.0, key.1).await? {
                return Ok(result.without_report());
            }
            if let Some(result) = self.unsaved_results.load(key.0, key.1).await? {
                // The job finished earlier; only its result is not stored yet.
                return self.save_result(key, result, &stop).await;
            }
        }
        let rules = self.save_steps(&request.pending).await?;
        self.fault_point("written down")?;
        let (task, task_loop) = self.task_of(&request).await?;
        let context = JobContext {
            request,
            attempt,
            stop: stop.clone(),
            announce_start,
            rules,
            task_loop,
            task,
        };
        let result = self.dispatch(context).await?;
        self.fault_point("done")?;
        if should_save(&result) {
            self.unsaved_results.put(key.0, key.1, &result).await?;
            self.fault_point("answer put aside")?;
            return self.save_result(key, result, &stop).await;
        }
        Ok(result.without_report())
    }

    /// Stores a result for all workers and removes the local copy.
    async fn save_result(
        &self,
        (task, job_number): (TaskId, u32),
        result: JobResult,
        stop: &CancellationToken,
    ) -> Result<JobResult, Error> {
        let save = || self.store.save_job_result(task, job_number, &result);
        self.retry_until_stopped(stop, save).await?;
        self.fault_point("answer kept")?;
        self.unsaved_results.clear(task, job_number).await?;
        Ok(result.without_report())
    }

    /// Returns the task of a request, and its state machine when the job was requested.
    async fn task_of(&self, request: &JobRequest) -> Result<(Task, TaskLoop), Error> {
        let PendingSteps { task: id, submission, steps, .. } = &request.pending;
        let task = match submission {
            Some(submission) => submission.task.clone(),
            None => self.store.submitted_task(*id).await?,
        };
        // The last pending step requested the job; without pending steps, it is already stored.
        let task_loop = match steps.last() {
            Some(last) => last.next.clone(),
            None => self.store.task(*id).await?.task_loop.map_err(tamma_store::Error::Corrupt)?,
        };
        Ok((task, task_loop))
    }

    async fn dispatch(&self, work: JobContext) -> Result<JobResult, Error> {
        match &work.request.job {
            Job::Admit => self.admit(&work).await,
            Job::Prepare => self.prepare(&work).await,
            Job::Plan { version, from, note } => {
                self.plan(&work, *version, from.as_ref(), note.as_ref()).await
            }
            Job::Check { plan } => self.check(&work, plan).await,
            Job::Implement(order) => self.implement(&work, order).await,
            Job::Test { commit, risk } => self.test(&work, *commit, *risk).await,
            Job::Review { commit } => self.review(&work, *commit).await,
            Job::Brief { decision, note } => self.brief(&work, decision, note.as_ref()).await,
            Job::Convene { council_number: council, seat, opinions } => {
                self.convene(&work, *council, *seat, opinions).await
            }
            // Delivery to a task's own branch needs no lock. The merge queue is planned.
            Job::AwaitDelivery => Ok(JobResult::finished(Outcome::DeliveryReady)),
            Job::Deliver { commit } => self.deliver(&work, *commit).await,
            Job::Learn { ending, use_model: model } => self.learn(&work, *ending, *model).await,
            Job::SaveWork => self.save_work(&work).await,
        }
    }

    /// Saves pending steps idempotently, and returns their rules.
    pub async fn save_steps(&self, pending: &PendingSteps) -> Result<Arc<Rules>, Error> {
        let rules = match &pending.submission {
            Some(submission) => {
                self.store.save_rules(&submission.rules).await?;
                Arc::new(submission.rules.clone())
            }
            None => self.rules(pending.policy).await?,
        };
        let mut steps = &pending.steps[..];
        // Step 0 inserts the task itself.
        if let Some((first, rest)) = steps.split_first().filter(|(first, _)| first.step == 0) {
            if let Some(submission) = &pending.submission {
                let StepRecord { next, commands, entries, .. } = first.clone();
                let first = Step { next, commands, entries };
                self.store.insert_task(&submission.task, &first, &rules).await?;
            }
            steps = rest;
        }
        match self.store.save_steps(steps, &rules).await {
            // Later steps are stored, so these are too.
            Err(tamma_store::Error::Conflict(Conflict::StaleStep { .. })) => {}
            saved => drop(saved?),
        }
        if let Some(last) = pending.steps.last()
            && last.next.state.is_terminal()
        {
            self.start_cleanup(pending.project, &last.next);
        }
        Ok(rules)
    }

    async fn rules(&self, version: PolicyVersion) -> Result<Arc<Rules>, Error> {
        let known = |rules: &Mutex<BTreeMap<PolicyVersion, Arc<Rules>>>| {
            rules.lock().ok().and_then(|rules| rules.get(&version).cloned())
        };
        if let Some(rules) = known(&self.rules_cache) {
            return Ok(rules);
        }
        let rules = Arc::new(self.store.rules(version).await?);
        if let Ok(mut all) = self.rules_cache.lock() {
            all.insert(version, rules.clone());
        }
        Ok(rules)
    }

    /// Loads the project of a job.
    pub(crate) async fn project_context(&self, work: &JobContext) -> Result<ProjectContext, Error> {
        let project = self.store.project(work.request.pending.project).await?;
        ProjectContext::load(project, &self.config.environment).await
    }

    /// Opens the mirror of a project's repository.
    pub(crate) async fn mirror(&self, site: &ProjectContext) -> Result<Mirror, Error> {
        site.mirror(&self.git, &self.config.data_dir, &self.mirror_cache).await
    }

    /// Opens the worktree of a task with its newest work, from any worker.
    pub(crate) async fn worktree(
        &self,
        work: &JobContext,
        site: &ProjectContext,
    ) -> Result<Worktree, Error> {
        let mirror = self.mirror(site).await?;
        Ok(Worktree::open_at(&mirror, work.task.id, work.base()?, work.newest_work()).await?)
    }

    /// Returns the current plan of the task.
    pub(crate) async fn current_plan(&self, work: &JobContext) -> Result<Plan, Error> {
        let outline = work.task_loop.plan.as_ref();
        let outline =
            outline.ok_or_else(|| Error::Internal("the task has no plan yet".to_owned()))?;
        Ok(self.store.plan_by_hash(work.task.id, outline.hash).await?.1)
    }

    /// Retries a write until the database is available. Without this, Temporal would restart the
    /// whole job and pay for its run again.
    pub(crate) async fn retry_until_stopped<T, F>(
        &self,
        stop: &CancellationToken,
        write: impl Fn() -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = tamma_store::Result<T>>,
    {
        let mut pause = Duration::from_millis(100);
        loop {
            match write().await {
                Err(error) if error.is_retryable() => {
                    tracing::warn!(%error, "failed to save job result; retrying");
                }
                written => return Ok(written?),
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(MAX_RETRY_DELAY),
                () = stop.cancelled() => return Err(Error::Stopped),
            }
        }
    }

    /// Fails here if a test injects a fault.
    pub(crate) fn fault_point(&self, step: &'static str) -> Result<(), Error> {
        self.config.fault_injection.fault_point(step)
    }
}

/// Returns whether the job has finished, and repeating it would cost something or do harm.
fn should_save(result: &JobResult) -> bool {
    match result {
        JobResult::Finished { outcome, .. } => !matches!(
            outcome,
            Outcome::Admitted
                | Outcome::Prepared(_)
                | Outcome::Checked { .. }
                | Outcome::DeliveryReady
        ),
        JobResult::RetryAfter { .. } => false,
    }
}

/// Returns the current time.
#[expect(clippy::disallowed_methods, reason = "workers are allowed to read the clock")]
pub(crate) fn now() -> Timestamp {
    Utc::now()
}
