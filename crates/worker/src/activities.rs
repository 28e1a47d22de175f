//! Activities of the workflow: the steps common to all jobs.
//!
//! Each job is a function in a file below. It gets the worker's [`Services`] and its [`JobContext`].

mod admit;
mod attempts;
mod brief;
mod check;
mod council;
mod deliver;
mod implement;
mod learn;
mod plan;
mod prepare;
mod pull_request;
mod registration;
mod review;
mod save_work;
mod test;
mod wake;

use std::sync::Arc;
use std::time::Duration;

use tamma_core::cost::{Cost, Usage, Usd};
use tamma_core::ids::TaskId;
use tamma_core::rules::Rules;
use tamma_core::task_loop::{Job, JobKind, Outcome, Placement, TaskLoop};
use tamma_engine::process::{ProcessRecords, RunId, this_process};
use tamma_flow::activities::{JobRequest, JobResult, PendingSteps};
use tamma_store::{JobFacts, Store};
use tamma_telemetry::{names, registry};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::aftercare::Aftercare;
use crate::clock::now;
use crate::config::WorkerConfig;
use crate::error::Error;
use crate::heartbeats::too_many_lost;
use crate::job_context::{JobContext, WorkflowCallbacks};
use crate::maintenance::{self, MaintenanceSwitch};
use crate::merge_queue::MergeQueueActivities;
use crate::pipeline::PipelineActivities;
use crate::repositories::Repositories;
use crate::results::Results;
use crate::running_attempts::RunningAttempt;
use crate::services::Services;
use crate::step_writer::{StepWriter, as_divergence};
use crate::task_trace;

/// Activities of a worker. Clones share their state.
#[derive(Clone)]
pub struct Activities {
    services: Services,
    steps: StepWriter,
    results: Results,
}

impl Activities {
    /// Creates the activities with a data directory and a store.
    pub async fn new(
        config: WorkerConfig,
        store: Store,
        records: ProcessRecords,
    ) -> Result<Self, Error> {
        let results = Results::open(&config, store.clone()).await?;
        let services = Services::open(config, store, records).await?;
        let steps = StepWriter::new(services.store.clone(), services.repositories.clone());
        Ok(Self { services, steps, results })
    }

    /// Returns the repositories of this worker, for their maintenance.
    pub(crate) fn repositories(&self) -> Repositories {
        self.services.repositories.clone()
    }

    /// Returns the switch that keeps agents from starting during maintenance.
    pub(crate) fn maintenance(&self) -> MaintenanceSwitch {
        self.services.maintenance.clone()
    }

    /// Returns the aftercare of merged changes, which shares the repositories of this worker.
    pub(crate) fn aftercare(&self) -> Aftercare {
        let Services { config, store, repositories, forges, .. } = &self.services;
        Aftercare::new(store.clone(), repositories.clone(), forges.clone(), &config.name)
    }

    /// Returns the activities of pipelines, which share the services of this worker.
    pub fn pipelines(&self) -> PipelineActivities {
        PipelineActivities::new(self.services.clone(), self.results.unsaved())
    }

    /// Returns the activities of merge queues, which share the services of this worker.
    pub fn merge_queues(&self) -> MergeQueueActivities {
        MergeQueueActivities::new(self.services.clone())
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
        callbacks: impl Into<WorkflowCallbacks>,
    ) -> Result<JobResult, Error> {
        let (task, number, kind) = (request.pending.task, request.job_number, request.job.kind());
        // At this level, log lines of every level have the task.
        let span = tracing::error_span!("job", %task, job = %kind, number, attempt);
        let (started, started_at) = (Instant::now(), now());
        let job = Box::pin(self.perform_job(request, attempt, stop, callbacks.into()));
        let result = job.instrument(span).await;
        count_job(kind, &result, started.elapsed());
        let has_failed = matches!(&result, Err(error) if !matches!(error, Error::Stopped));
        if has_failed {
            // The error itself is logged where Temporal gets it, outside of the span.
            tracing::warn!(%task, job = %kind, number, attempt, "job attempt failed");
        }
        let error = has_failed.then(|| "error".to_owned());
        let key = (task, number, attempt);
        task_trace::record_job(key, &kind.to_string(), (started_at, now()), error);
        result
    }

    async fn perform_job(
        &self,
        request: JobRequest,
        attempt: u32,
        stop: CancellationToken,
        callbacks: WorkflowCallbacks,
    ) -> Result<JobResult, Error> {
        let key = (request.pending.task, request.job_number);
        // A job inside a workflow task starts no agent or gate. If the workflow task is lost, the job is
        // repeated with the same number, and nobody can tell which of the two is the current one.
        let running = match request.job.placement() {
            Placement::Inline => None,
            Placement::Worker | Placement::AgentPool => {
                let run = RunId { task: key.0, job_number: key.1, generation: attempt };
                Some(self.services.attempts.begin(run, &stop).await?)
            }
        };
        if attempt > 1
            && let Some(result) = self.results.of_earlier_attempt(key, &stop).await?
        {
            return Ok(result.without_report());
        }
        let process = can_kill_its_worker(&request.job).then(this_process);
        let saved = self.steps.save(&request.pending, process).await?;
        let LoadedJob { facts, task_loop, is_past } =
            self.load_job(&request, saved.has_later_steps, saved.facts).await?;
        if is_past {
            if let Some(result) = self.results.of_earlier_attempt(key, &stop).await? {
                return Ok(result.without_report());
            }
        } else if let Some(process) = process {
            self.check_unended_starts(key, process, &facts).await?;
        }
        let fault_injection = self.services.config.fault_injection.clone();
        let abandoned = running.as_ref().map(RunningAttempt::abandoned).unwrap_or_default();
        let ctx = JobContext {
            request,
            attempt,
            stop,
            abandoned,
            callbacks,
            rules: saved.rules,
            task_loop,
            task: facts.task,
            registered_project: facts.project,
            knowledge_revision: Some(facts.knowledge_revision),
            fault_injection,
        };
        ctx.fault_point("written down")?;
        let _slot = match ctx.request.job.placement() {
            Placement::AgentPool => Some(self.services.agents.agent_slot(&ctx).await?),
            Placement::Inline | Placement::Worker => None,
        };
        if self.services.maintenance.defers(&ctx.request.job) {
            return Ok(JobResult::RetryAfter { seconds: maintenance::RETRY_SECONDS });
        }
        let result = match Box::pin(dispatch(&self.services, &ctx)).await {
            Err(Error::Setup(failed)) => failed.into_result(),
            result => result?,
        };
        ctx.fault_point("done")?;
        // Probably it failed because it was stopped, and a later attempt must not return that.
        if ctx.stop.is_cancelled() && is_failure(&result) {
            return Err(Error::Stopped);
        }
        let result = self.with_earlier_usage(&ctx, result).await;
        ctx.check_not_abandoned()?;
        self.results.save(key, &result, &ctx.stop).await?;
        Ok(result.without_report())
    }

    /// Fails if a job inside a workflow task was started too often without an end, or too many processes ended
    /// during it. The start of the job is recorded with its steps, or here if they were stored already.
    async fn check_unended_starts(
        &self,
        key: (TaskId, u32),
        process: &str,
        facts: &JobFacts,
    ) -> Result<(), Error> {
        let starts = match facts.unended_starts {
            Some(starts) => starts,
            None => self.services.store.begin_inline_job(key, process).await?,
        };
        too_many_lost(starts.lost_processes, starts.earlier).map_or(Ok(()), Err)
    }

    /// Records the end of a job inside a workflow task that has failed. The next step of the task
    /// records the end of one that succeeded. A failure only counts one process too many.
    async fn end_inline_job(&self, key: (TaskId, u32)) {
        if let Err(error) = self.services.store.end_inline_job(key).await {
            tracing::warn!(task = %key.0, %error, "failed to record the end of a job");
        }
    }

    /// Adds the usage of earlier attempts at the job, whose workers died or which were stopped, to its
    /// result.
    async fn with_earlier_usage(&self, ctx: &JobContext, result: JobResult) -> JobResult {
        match self.services.usage_before(ctx, ctx.attempt).await {
            Some(earlier) => add_earlier_usage(result, earlier.usage),
            None => result,
        }
    }

    /// Saves pending steps idempotently, and returns their rules.
    pub async fn save_steps(&self, pending: &PendingSteps) -> Result<Arc<Rules>, Error> {
        Ok(self.steps.save(pending, None).await?.rules)
    }

    /// Loads what a requested job needs.
    ///
    /// Fails if the database no longer expects the job: a workflow that was reset or restored repeats
    /// jobs of the past, which must not run again. Jobs inside workflow tasks are an exception. If a
    /// workflow task is lost, Temporal repeats its jobs, and the database may have the next steps
    /// already. Repeating them does no harm, or their result is stored.
    async fn load_job(
        &self,
        request: &JobRequest,
        has_later_steps: bool,
        facts: Option<JobFacts>,
    ) -> Result<LoadedJob, Error> {
        // The last pending step requested the job; without pending steps, it is already stored.
        let requested = request.pending.steps.last().map(|last| &last.next);
        if let (Some(facts), Some(requested)) = (facts, requested) {
            return Ok(LoadedJob { facts, task_loop: requested.clone(), is_past: false });
        }
        let stored = self.services.store.stored_job(request.pending.task).await;
        let stored = stored.map_err(|error| as_divergence(error.into()))?;
        // The last lessons of tasks of older editions are no active job.
        let is_last = stored.task_loop.state.is_terminal() && request.job.kind() == JobKind::Learn;
        let is_active = stored.task_loop.has_job(request.job_number) || is_last;
        let is_past = (has_later_steps || requested.is_none()) && !is_active;
        let is_repeatable = requested.is_some() && request.job.placement() == Placement::Inline;
        if is_past && !is_repeatable {
            return Err(Error::Diverged(format!("job {} is not active", request.job_number)));
        }
        let task_loop = requested.cloned().unwrap_or(stored.task_loop);
        Ok(LoadedJob { facts: stored.facts, task_loop, is_past })
    }
}

/// What a job needs to know.
struct LoadedJob {
    facts: JobFacts,
    /// State machine of the task when the job was requested.
    task_loop: TaskLoop,
    /// Set if the database has passed the job.
    is_past: bool,
}

/// Returns `true` for a job inside a workflow task that reads files, texts or repositories, and could
/// need much memory.
fn can_kill_its_worker(job: &Job) -> bool {
    let is_harmless = matches!(job.kind(), JobKind::Admit | JobKind::AwaitDelivery);
    job.placement() == Placement::Inline && !is_harmless
}

/// Adds the usage of earlier attempts to the result of their job. Without usage of its own, a failed
/// attempt may have cost something that nobody knows.
fn add_earlier_usage(result: JobResult, earlier: Usage) -> JobResult {
    let JobResult::Finished { outcome, usage, .. } = &result else { return result };
    let no_run = Usage { cost: Cost::Known(Usd::ZERO), ..Usage::default() };
    let own = match (usage, outcome) {
        (Some(usage), _) => *usage,
        (None, Outcome::Failed(_)) => Usage::default(),
        (None, _) => no_run,
    };
    result.with_usage(Some(own + earlier))
}

/// Returns `true` if a job ended without having done its work.
fn is_failure(result: &JobResult) -> bool {
    matches!(result, JobResult::Finished { outcome: Outcome::Failed(_), .. })
}

/// Adds a job to the metrics. An error makes Temporal try it again.
fn count_job(kind: JobKind, result: &Result<JobResult, Error>, duration: Duration) {
    let job = kind.to_string();
    let outcome = match result {
        Ok(JobResult::Finished { outcome, .. }) => outcome.to_string(),
        Ok(JobResult::RetryAfter { .. }) => "retry_after".to_owned(),
        Err(Error::Stopped) => "stopped".to_owned(),
        Err(_) => "error".to_owned(),
    };
    let labels = [("job", job.as_str()), ("outcome", outcome.as_str())];
    registry().add(&names::JOBS, &labels, 1.0);
    registry().observe(&names::JOB_DURATION, &[("job", job.as_str())], duration.as_secs_f64());
}

/// Does the work of a job.
async fn dispatch(services: &Services, ctx: &JobContext) -> Result<JobResult, Error> {
    match &ctx.request.job {
        Job::Admit => admit::admit(services, ctx).await,
        Job::Prepare => prepare::prepare(services, ctx).await,
        Job::Plan { version, from, note } => {
            Box::pin(plan::plan(services, ctx, *version, from.as_ref(), note.as_ref())).await
        }
        Job::Check { plan } => check::check(services, ctx, plan).await,
        Job::Implement(spec) => Box::pin(implement::implement(services, ctx, spec)).await,
        Job::Test { commit, risk } => test::test(services, ctx, *commit, *risk).await,
        Job::Review { commit, unconfirmed } => {
            Box::pin(review::review(services, ctx, *commit, unconfirmed.as_ref())).await
        }
        Job::Brief { decision, note } => brief::brief(services, ctx, decision, note.as_ref()).await,
        Job::Convene { council_number, seat, opinions } => {
            Box::pin(council::convene(services, ctx, *council_number, *seat, opinions)).await
        }
        // Delivery to a task's own branch needs no lock. Merges wait in the merge queue.
        Job::AwaitDelivery => Ok(JobResult::finished(Outcome::DeliveryReady)),
        Job::Deliver { commit } => Box::pin(deliver::deliver(services, ctx, *commit)).await,
        Job::PullRequest(job) => Box::pin(pull_request::run(services, ctx, job)).await,
        Job::Learn { ending, use_model } => learn::learn(services, ctx, *ending, *use_model).await,
        Job::SaveWork => save_work::save_work(services, ctx).await,
    }
}

#[cfg(test)]
mod tests {
    use tamma_core::cost::Tokens;

    use super::*;

    #[test]
    fn a_result_includes_the_usage_of_attempts_whose_worker_died() {
        let usage = |input, cents| Usage {
            tokens: Tokens { input, ..Tokens::default() },
            cost: Cost::Known(Usd::from_cents(cents)),
        };
        let usage_of = |result: JobResult| match result {
            JobResult::Finished { usage, .. } => usage,
            JobResult::RetryAfter { .. } => None,
        };
        let result = JobResult::finished(Outcome::Admitted).with_usage(Some(usage(1, 100)));
        let earlier = usage(20, 50);
        let sum = add_earlier_usage(result.clone(), earlier);
        assert_eq!(usage_of(sum), Some(usage(21, 150)));
        let unpriced = Usage { cost: Cost::Unknown, ..earlier };
        let unpriced = usage_of(add_earlier_usage(result, unpriced));
        assert_eq!(unpriced.map(|usage| usage.cost), Some(Cost::Unknown));
        // The agent has ended, and only its worker died: nothing more was used.
        let recovered = JobResult::finished(Outcome::Admitted);
        assert_eq!(usage_of(add_earlier_usage(recovered, earlier)), Some(earlier));
    }
}
