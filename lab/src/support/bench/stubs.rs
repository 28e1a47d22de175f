//! Stub activities: write the same rows as a worker's activities, and do no work.
//!
//! The workflow, its payloads and the writes are Tamma's own. No git command, agent or gate runs, and
//! nothing is read that only a real job needs.
#![expect(dead_code, reason = "the macro generates unused constants")]

use std::sync::{Arc, Mutex};

use tamma_core::approval::Pin;
use tamma_core::cost::{Cost, Tokens, Usage, Usd};
use tamma_core::ids::CommitId;
use tamma_core::plan::Plan;
use tamma_core::review::{Fingerprint, GateCounts, ReviewSummary};
use tamma_core::task_loop::{Job, Outcome};
use tamma_flow::activities::{JobRequest, JobResult, PendingSteps, names};
use tamma_flow::{RunStarted, TaskWorkflow};
use tamma_store::Store;
use tamma_worker::Activities;
use temporalio_client::WorkflowExecuteUpdateOptions;
use temporalio_macros::activities;
use temporalio_sdk::activities::{ActivityContext, ActivityError};

/// Invented commit.
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Stub activities.
#[derive(Clone)]
pub(crate) struct StubActivities {
    /// Tamma's activities, which save the steps.
    pub(crate) activities: Activities,
    /// Store for plans and results.
    pub(crate) store: Store,
    /// Plan of every task.
    pub(crate) plan: Plan,
    /// Input sizes of local activities, which no history contains.
    pub(crate) local_inputs: Arc<Mutex<Vec<usize>>>,
}

impl StubActivities {
    async fn perform(
        &self,
        ctx: &ActivityContext,
        request: JobRequest,
    ) -> anyhow::Result<JobResult> {
        let rules = self.activities.save_steps(&request.pending).await?;
        let commit: CommitId = COMMIT.parse()?;
        let (task, job_number) = (request.pending.task, request.job_number);
        let usage = Usage { tokens: Tokens::default(), cost: Cost::Known(Usd::ZERO) };
        let (outcome, used) = match request.job {
            Job::Admit => return Ok(JobResult::finished(Outcome::Admitted)),
            Job::Prepare => {
                let pin = Pin { base: commit, policy: request.pending.policy, prompts: None };
                return Ok(JobResult::finished(Outcome::Prepared(pin)));
            }
            Job::Check { .. } => {
                return Ok(JobResult::finished(Outcome::Checked { blockers: 0, warnings: 0 }));
            }
            Job::AwaitDelivery => return Ok(JobResult::finished(Outcome::DeliveryReady)),
            Job::Learn { .. } => return Ok(JobResult::finished(Outcome::Learned(0))),
            Job::Plan { version, .. } => {
                self.store.save_plan(task, (version, Some(job_number)), &self.plan).await?;
                let kept_at = format!("plan:{version}").parse()?;
                (Outcome::Planned(self.plan.summarize(version, kept_at, &rules)), Some(usage))
            }
            Job::Implement(_) => {
                announce(ctx, job_number).await?;
                (Outcome::RunFinished(commit), Some(usage))
            }
            Job::Test { .. } => {
                (Outcome::Tested(GateCounts { passed: 1, ..GateCounts::default() }), None)
            }
            Job::Review { .. } => {
                let summary = ReviewSummary {
                    passed: true,
                    score: 100,
                    blocking: 0,
                    unmet_criteria: 0,
                    security_critical: false,
                };
                let fingerprint = Fingerprint::default();
                (Outcome::Reviewed { summary, fingerprint }, Some(usage))
            }
            Job::Deliver { commit } => (Outcome::Delivered(commit), None),
            Job::Brief { .. } | Job::Convene { .. } | Job::PullRequest(_) | Job::SaveWork => {
                anyhow::bail!("unexpected job in a measurement")
            }
        };
        let answer = JobResult::finished(outcome).with_usage(used);
        // The worker stores results in this format.
        self.store.save_job_result(task, job_number, &answer).await?;
        Ok(answer)
    }

    async fn local(
        &self,
        ctx: ActivityContext,
        request: JobRequest,
    ) -> Result<JobResult, ActivityError> {
        self.record_input(&request);
        Ok(self.perform(&ctx, request).await?)
    }

    async fn regular(
        &self,
        ctx: ActivityContext,
        request: JobRequest,
    ) -> Result<JobResult, ActivityError> {
        Ok(self.perform(&ctx, request).await?)
    }

    fn record_input(&self, input: &impl serde::Serialize) {
        if let Ok(mut sizes) = self.local_inputs.lock()
            && sizes.len() < sizes.capacity()
            && let Ok(bytes) = serde_json::to_vec(input)
        {
            sizes.push(bytes.len());
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a worker reads the clock")]
async fn announce(ctx: &ActivityContext, job_number: u32) -> anyhow::Result<()> {
    let Some(handle) = ctx.workflow_handle::<TaskWorkflow>() else { return Ok(()) };
    let id = format!("begun-{job_number}");
    let options = WorkflowExecuteUpdateOptions::builder().update_id(id).build();
    let started = RunStarted { at: chrono::Utc::now(), job_number, agent: "scripted".parse()? };
    handle
        .execute_update(TaskWorkflow::announce_run, started, options)
        .await?
        .map_err(anyhow::Error::msg)?;
    Ok(())
}

#[activities]
impl StubActivities {
    #[activity(name = names::RECORD)]
    pub(crate) async fn on_record(
        self: Arc<Self>,
        _ctx: ActivityContext,
        pending: PendingSteps,
    ) -> Result<(), ActivityError> {
        self.record_input(&pending);
        Ok(self.activities.save_steps(&pending).await.map(drop)?)
    }

    #[activity(name = names::ADMIT)]
    pub(crate) async fn on_admit(
        self: Arc<Self>,
        ctx: ActivityContext,
        request: JobRequest,
    ) -> Result<JobResult, ActivityError> {
        self.local(ctx, request).await
    }

    #[activity(name = names::PREPARE)]
    pub(crate) async fn on_prepare(
        self: Arc<Self>,
        ctx: ActivityContext,
        request: JobRequest,
    ) -> Result<JobResult, ActivityError> {
        self.local(ctx, request).await
    }

    #[activity(name = names::CHECK)]
    pub(crate) async fn on_check(
        self: Arc<Self>,
        ctx: ActivityContext,
        request: JobRequest,
    ) -> Result<JobResult, ActivityError> {
        self.local(ctx, request).await
    }

    #[activity(name = names::AWAIT_DELIVERY)]
    pub(crate) async fn on_await_delivery(
        self: Arc<Self>,
        ctx: ActivityContext,
        request: JobRequest,
    ) -> Result<JobResult, ActivityError> {
        self.local(ctx, request).await
    }

    #[activity(name = names::LEARN)]
    pub(crate) async fn on_learn(
        self: Arc<Self>,
        ctx: ActivityContext,
        request: JobRequest,
    ) -> Result<JobResult, ActivityError> {
        self.local(ctx, request).await
    }

    #[activity(name = names::PLAN)]
    pub(crate) async fn on_plan(
        self: Arc<Self>,
        ctx: ActivityContext,
        request: JobRequest,
    ) -> Result<JobResult, ActivityError> {
        self.regular(ctx, request).await
    }

    #[activity(name = names::IMPLEMENT)]
    pub(crate) async fn on_implement(
        self: Arc<Self>,
        ctx: ActivityContext,
        request: JobRequest,
    ) -> Result<JobResult, ActivityError> {
        self.regular(ctx, request).await
    }

    #[activity(name = names::TEST)]
    pub(crate) async fn on_test(
        self: Arc<Self>,
        ctx: ActivityContext,
        request: JobRequest,
    ) -> Result<JobResult, ActivityError> {
        self.regular(ctx, request).await
    }

    #[activity(name = names::REVIEW)]
    pub(crate) async fn on_review(
        self: Arc<Self>,
        ctx: ActivityContext,
        request: JobRequest,
    ) -> Result<JobResult, ActivityError> {
        self.regular(ctx, request).await
    }

    #[activity(name = names::DELIVER)]
    pub(crate) async fn on_deliver(
        self: Arc<Self>,
        ctx: ActivityContext,
        request: JobRequest,
    ) -> Result<JobResult, ActivityError> {
        self.regular(ctx, request).await
    }
}
