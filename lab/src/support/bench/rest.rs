//! Hands at rest: activities that write down what a worker's do, and do no work.
//!
//! The workflow, what it carries and what is written to the store are the product's own. No git, no
//! agent, no gate is run, and nothing is read back that a job would only need for its work.
#![expect(dead_code, reason = "the macro makes constants that nothing names")]

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

/// A commit that there is not.
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// The hands.
#[derive(Clone)]
pub(crate) struct Rest {
    /// Those of the product, for what is written down.
    pub(crate) hands: Activities,
    /// Where plans and answers are kept.
    pub(crate) store: Store,
    /// The plan that every task gets.
    pub(crate) plan: Plan,
    /// The sizes of what short jobs were given, which is in no history.
    pub(crate) seen: Arc<Mutex<Vec<usize>>>,
}

impl Rest {
    async fn perform(
        &self,
        ctx: &ActivityContext,
        errand: JobRequest,
    ) -> anyhow::Result<JobResult> {
        let rules = self.hands.save_steps(&errand.pending).await?;
        let commit: CommitId = COMMIT.parse()?;
        let (task, ticket) = (errand.pending.task, errand.job_number);
        let usage = Usage { tokens: Tokens::default(), cost: Cost::Known(Usd::ZERO) };
        let (outcome, used) = match errand.job {
            Job::Admit => return Ok(JobResult::finished(Outcome::Admitted)),
            Job::Prepare => {
                let pin = Pin { base: commit, policy: errand.pending.policy };
                return Ok(JobResult::finished(Outcome::Prepared(pin)));
            }
            Job::Check { .. } => {
                return Ok(JobResult::finished(Outcome::Checked { blockers: 0, warnings: 0 }));
            }
            Job::AwaitDelivery => return Ok(JobResult::finished(Outcome::DeliveryReady)),
            Job::Learn { .. } => return Ok(JobResult::finished(Outcome::Learned(0))),
            Job::Plan { version, .. } => {
                self.store.save_plan(task, version, &self.plan).await?;
                let kept_at = format!("plan:{version}").parse()?;
                (Outcome::Planned(self.plan.summarize(version, kept_at, &rules)), Some(usage))
            }
            Job::Implement(_) => {
                announce(ctx, ticket).await?;
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
            Job::Brief { .. } | Job::Convene { .. } | Job::SaveWork => {
                anyhow::bail!("a task of the measurement does not come here")
            }
        };
        let answer = JobResult::finished(outcome).with_usage(used);
        // As the worker keeps it.
        self.store.save_job_result(task, ticket, &answer).await?;
        Ok(answer)
    }

    async fn short(
        &self,
        ctx: ActivityContext,
        errand: JobRequest,
    ) -> Result<JobResult, ActivityError> {
        self.see(&errand);
        Ok(self.perform(&ctx, errand).await?)
    }

    async fn long(
        &self,
        ctx: ActivityContext,
        errand: JobRequest,
    ) -> Result<JobResult, ActivityError> {
        Ok(self.perform(&ctx, errand).await?)
    }

    fn see(&self, given: &impl serde::Serialize) {
        if let Ok(mut seen) = self.seen.lock()
            && seen.len() < seen.capacity()
            && let Ok(bytes) = serde_json::to_vec(given)
        {
            seen.push(bytes.len());
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the edge: a worker reads the clock")]
async fn announce(ctx: &ActivityContext, ticket: u32) -> anyhow::Result<()> {
    let Some(handle) = ctx.workflow_handle::<TaskWorkflow>() else { return Ok(()) };
    let id = format!("begun-{ticket}");
    let options = WorkflowExecuteUpdateOptions::builder().update_id(id).build();
    let begun =
        RunStarted { at: chrono::Utc::now(), job_number: ticket, agent: "scripted".parse()? };
    handle
        .execute_update(TaskWorkflow::begun, begun, options)
        .await?
        .map_err(anyhow::Error::msg)?;
    Ok(())
}

#[activities]
impl Rest {
    #[activity(name = names::RECORD)]
    pub(crate) async fn on_record(
        self: Arc<Self>,
        _ctx: ActivityContext,
        diary: PendingSteps,
    ) -> Result<(), ActivityError> {
        self.see(&diary);
        Ok(self.hands.save_steps(&diary).await.map(drop)?)
    }

    #[activity(name = names::ADMIT)]
    pub(crate) async fn on_admit(
        self: Arc<Self>,
        ctx: ActivityContext,
        errand: JobRequest,
    ) -> Result<JobResult, ActivityError> {
        self.short(ctx, errand).await
    }

    #[activity(name = names::PREPARE)]
    pub(crate) async fn on_prepare(
        self: Arc<Self>,
        ctx: ActivityContext,
        errand: JobRequest,
    ) -> Result<JobResult, ActivityError> {
        self.short(ctx, errand).await
    }

    #[activity(name = names::CHECK)]
    pub(crate) async fn on_check(
        self: Arc<Self>,
        ctx: ActivityContext,
        errand: JobRequest,
    ) -> Result<JobResult, ActivityError> {
        self.short(ctx, errand).await
    }

    #[activity(name = names::AWAIT_DELIVERY)]
    pub(crate) async fn on_await_turn(
        self: Arc<Self>,
        ctx: ActivityContext,
        errand: JobRequest,
    ) -> Result<JobResult, ActivityError> {
        self.short(ctx, errand).await
    }

    #[activity(name = names::LEARN)]
    pub(crate) async fn on_learn(
        self: Arc<Self>,
        ctx: ActivityContext,
        errand: JobRequest,
    ) -> Result<JobResult, ActivityError> {
        self.short(ctx, errand).await
    }

    #[activity(name = names::PLAN)]
    pub(crate) async fn on_plan(
        self: Arc<Self>,
        ctx: ActivityContext,
        errand: JobRequest,
    ) -> Result<JobResult, ActivityError> {
        self.long(ctx, errand).await
    }

    #[activity(name = names::IMPLEMENT)]
    pub(crate) async fn on_implement(
        self: Arc<Self>,
        ctx: ActivityContext,
        errand: JobRequest,
    ) -> Result<JobResult, ActivityError> {
        self.long(ctx, errand).await
    }

    #[activity(name = names::TEST)]
    pub(crate) async fn on_test(
        self: Arc<Self>,
        ctx: ActivityContext,
        errand: JobRequest,
    ) -> Result<JobResult, ActivityError> {
        self.long(ctx, errand).await
    }

    #[activity(name = names::REVIEW)]
    pub(crate) async fn on_review(
        self: Arc<Self>,
        ctx: ActivityContext,
        errand: JobRequest,
    ) -> Result<JobResult, ActivityError> {
        self.long(ctx, errand).await
    }

    #[activity(name = names::DELIVER)]
    pub(crate) async fn on_deliver(
        self: Arc<Self>,
        ctx: ActivityContext,
        errand: JobRequest,
    ) -> Result<JobResult, ActivityError> {
        self.long(ctx, errand).await
    }
}
