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
mod registration;
mod review;
mod save_work;
mod test;

use std::sync::Arc;

use tamma_core::rules::Rules;
use tamma_core::task::Task;
use tamma_core::task_loop::{Job, Outcome, TaskLoop};
use tamma_engine::process::ProcessRecords;
use tamma_flow::activities::{JobRequest, JobResult, PendingSteps};
use tamma_store::Store;
use tokio_util::sync::CancellationToken;

use crate::config::WorkerConfig;
use crate::error::Error;
use crate::job_context::{JobContext, WorkflowCallbacks};
use crate::pipeline::PipelineActivities;
use crate::results::Results;
use crate::services::Services;
use crate::step_writer::StepWriter;

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

    /// Returns the activities of pipelines, which share the services of this worker.
    pub fn pipelines(&self) -> PipelineActivities {
        PipelineActivities::new(self.services.clone(), self.results.unsaved())
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
        let key = (request.pending.task, request.job_number);
        if attempt > 1
            && let Some(result) = self.results.of_earlier_attempt(key, &stop).await?
        {
            return Ok(result.without_report());
        }
        let rules = self.save_steps(&request.pending).await?;
        let (task, task_loop) = self.load_task(&request).await?;
        let fault_injection = self.services.config.fault_injection.clone();
        let ctx = JobContext {
            request,
            attempt,
            stop,
            callbacks: callbacks.into(),
            rules,
            task_loop,
            task,
            fault_injection,
        };
        ctx.fault_point("written down")?;
        let result = match Box::pin(dispatch(&self.services, &ctx)).await {
            Err(Error::Setup(failed)) => failed.into_result(),
            result => result?,
        };
        ctx.fault_point("done")?;
        self.results.save(key, &result, &ctx.stop).await?;
        Ok(result.without_report())
    }

    /// Saves pending steps idempotently, and returns their rules.
    pub async fn save_steps(&self, pending: &PendingSteps) -> Result<Arc<Rules>, Error> {
        self.steps.save(pending).await
    }

    /// Returns the task of a request, and its state machine when the job was requested.
    async fn load_task(&self, request: &JobRequest) -> Result<(Task, TaskLoop), Error> {
        let (store, pending) = (&self.services.store, &request.pending);
        let task = match &pending.submission {
            Some(submission) => submission.task.clone(),
            None => store.submitted_task(pending.task).await?,
        };
        // The last pending step requested the job; without pending steps, it is already stored.
        let task_loop = if let Some(last) = pending.steps.last() {
            last.next.clone()
        } else {
            let stored = store.task(pending.task).await?;
            stored.task_loop.map_err(tamma_store::Error::Corrupt)?
        };
        Ok((task, task_loop))
    }
}

/// Does the work of a job.
async fn dispatch(services: &Services, ctx: &JobContext) -> Result<JobResult, Error> {
    match &ctx.request.job {
        Job::Admit => admit::admit(services, ctx).await,
        Job::Prepare => prepare::prepare(services, ctx).await,
        Job::Plan { version, from, note } => {
            plan::plan(services, ctx, *version, from.as_ref(), note.as_ref()).await
        }
        Job::Check { plan } => check::check(services, ctx, plan).await,
        Job::Implement(spec) => Box::pin(implement::implement(services, ctx, spec)).await,
        Job::Test { commit, risk } => test::test(services, ctx, *commit, *risk).await,
        Job::Review { commit, unconfirmed } => {
            review::review(services, ctx, *commit, unconfirmed.as_ref()).await
        }
        Job::Brief { decision, note } => brief::brief(services, ctx, decision, note.as_ref()).await,
        Job::Convene { council_number, seat, opinions } => {
            council::convene(services, ctx, *council_number, *seat, opinions).await
        }
        // Delivery to a task's own branch needs no lock. The merge queue is planned.
        Job::AwaitDelivery => Ok(JobResult::finished(Outcome::DeliveryReady)),
        Job::Deliver { commit } => deliver::deliver(services, ctx, *commit).await,
        Job::Learn { ending, use_model } => learn::learn(services, ctx, *ending, *use_model).await,
        Job::SaveWork => save_work::save_work(services, ctx).await,
    }
}
