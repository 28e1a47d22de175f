//! Registration of the activities with Temporal, from the table in `tamma-flow`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::future::BoxFuture;
use tamma_core::task_loop::Placement;
use tamma_flow::TaskWorkflow;
use tamma_flow::activities::{JobRequest, JobResult, PendingSteps, names};
use temporalio_client::WorkflowExecuteUpdateOptions;
use temporalio_client::errors::WorkflowUpdateError;
use temporalio_common::ActivityDefinition;
use temporalio_sdk::activities::{
    ActivityContext, ActivityDefinitions, ActivityError, ActivityImplementer, ExecutableActivity,
};
use tokio_util::sync::CancellationToken;

use super::wake::wake_dependants;
use super::{Activities, can_kill_its_worker};
use crate::activity_registration::registered;
use crate::error::Error;
use crate::heartbeats::with_heartbeats;
use crate::job_context::{AnnounceStart, OpenQuestionUpdate, WorkflowCallbacks};
use crate::namespaces::namespace_of;

/// Attempts to wake the tasks that wait for a completed one.
const MAX_WAKE_ATTEMPTS: u32 = 10;

/// Returns whether the workflow has refused an update, so that a retry cannot succeed.
fn is_refusal(error: &WorkflowUpdateError) -> bool {
    matches!(error, WorkflowUpdateError::Failed(_))
}

/// Runs a job as a local activity. Other workers do not try it again after it has killed too many.
async fn run_inline(
    activities: Arc<Activities>,
    ctx: ActivityContext,
    request: JobRequest,
) -> Result<JobResult, ActivityError> {
    let announce: AnnounceStart = Arc::new(|_| Box::pin(async { Ok(()) }));
    let attempt = ctx.info().attempt.saturating_add(request.earlier_attempts);
    let stop = CancellationToken::new();
    let key = (request.pending.task, request.job_number);
    let is_counted = can_kill_its_worker(&request.job);
    // Boxed, because the future of a job with agents is large.
    let result = Box::pin(activities.run_job(request, attempt, stop, announce)).await;
    // A refusal must not start the count again if its workflow task is lost, too.
    let is_refusal = matches!(result, Err(Error::LostWorkers(_) | Error::LostAttempts(_)));
    if is_counted && result.is_err() && !is_refusal {
        activities.end_inline_job(key).await;
    }
    result.map_err(Error::into_activity_error)
}

/// Runs a job with heartbeats, and stops it on cancellation.
async fn run_with_heartbeats(
    activities: Arc<Activities>,
    ctx: ActivityContext,
    request: JobRequest,
) -> Result<JobResult, ActivityError> {
    let activity = ctx.clone();
    let announce: AnnounceStart = Arc::new(move |run_started| {
        let handle = activity.workflow_handle::<TaskWorkflow>();
        Box::pin(async move {
            let Some(handle) = handle else { return Ok(()) };
            let id = format!("begun-{}", run_started.job_number);
            let options = WorkflowExecuteUpdateOptions::builder().update_id(id).build();
            match handle.execute_update(TaskWorkflow::announce_run, run_started, options).await {
                Ok(_) => Ok(()),
                // The state machine already knows about the run, or no longer wants it.
                Err(error) if is_refusal(&error) => Ok(()),
                Err(error) => Err(Error::Temporal(error.to_string())),
            }
        })
    });
    let callbacks = WorkflowCallbacks {
        announce_start: announce,
        open_question: question_update(&ctx),
        temporal: Some(ctx.client()),
    };
    let earlier = request.earlier_attempts;
    with_heartbeats(ctx, |attempt, stop| async move {
        let attempt = attempt.saturating_add(earlier);
        activities.run_job(request, attempt, stop, callbacks).await
    })
    .await
}

/// Returns the callback that opens a question in the workflow.
fn question_update(ctx: &ActivityContext) -> OpenQuestionUpdate {
    let activity = ctx.clone();
    let asked = AtomicU32::new(0);
    Arc::new(move |opened| {
        let handle = activity.workflow_handle::<TaskWorkflow>();
        let attempt = activity.info().attempt;
        // Temporal ignores an update with a known ID, and a question can be asked again after
        // another one has closed it. The state machine ignores a question that is open already.
        let number = asked.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let Some(handle) = handle else { return Ok(false) };
            let id = format!("question-{}-{attempt}-{number}", opened.job_number);
            let options = WorkflowExecuteUpdateOptions::builder().update_id(id).build();
            match handle.execute_update(TaskWorkflow::open_question, opened, options).await {
                Ok(response) => Ok(response.is_ok()),
                Err(error) if is_refusal(&error) => Ok(false),
                Err(error) => Err(Error::Temporal(error.to_string())),
            }
        })
    })
}

/// Saves the namespace of a task that no server has started, such as one of a story.
async fn save_namespace(
    activities: &Activities,
    ctx: &ActivityContext,
    pending: &PendingSteps,
) -> Result<(), ActivityError> {
    let is_first = pending.steps.first().is_some_and(|record| record.step == 0);
    let Some(namespace) = namespace_of(&ctx.client()).filter(|_| is_first) else {
        return Ok(());
    };
    let saved = activities.services.store.save_workflow_namespace(pending.task.0, &namespace).await;
    saved.map_err(|error| Error::from(error).into_activity_error())
}

/// Runs a job where its placement says.
async fn run_activity(
    activities: Arc<Activities>,
    ctx: ActivityContext,
    request: JobRequest,
) -> Result<JobResult, ActivityError> {
    save_namespace(&activities, &ctx, &request.pending).await?;
    match request.job.placement() {
        Placement::Inline => run_inline(activities, ctx, request).await,
        Placement::Worker | Placement::AgentPool => {
            run_with_heartbeats(activities, ctx, request).await
        }
    }
}

/// Marker of the activity that saves steps.
struct Record;

impl ActivityDefinition for Record {
    type Input = PendingSteps;
    type Output = ();

    fn name(&self) -> &str {
        names::RECORD
    }
}

impl ExecutableActivity for Record {
    type Implementer = Activities;
    const REQUIRES_INSTANCE: bool = true;

    fn definition() -> Self {
        Self
    }

    fn execute(
        receiver: Option<Arc<Activities>>,
        ctx: ActivityContext,
        pending: PendingSteps,
    ) -> BoxFuture<'static, Result<(), ActivityError>> {
        Box::pin(async move {
            let activities = registered(receiver)?;
            save_namespace(&activities, &ctx, &pending).await?;
            let saved = activities.save_steps(&pending).await;
            saved.map(drop).map_err(Error::into_activity_error)?;
            let store = &activities.services.store;
            match wake_dependants(store, &ctx.client(), &pending).await {
                // They ask by themselves, so the task need not wait for them.
                Err(error) if ctx.info().attempt >= MAX_WAKE_ATTEMPTS => {
                    tracing::warn!(task = %pending.task, %error, "failed to wake waiting tasks");
                    Ok(())
                }
                woken => woken.map_err(Error::into_activity_error),
            }
        })
    }
}

/// Declares a marker for each row of the table, because the SDK registers activities by type.
macro_rules! register_job_activities {
    ($($kind:ident $constant:ident $name:literal,)*) => {
        $(
            struct $kind;

            impl ActivityDefinition for $kind {
                type Input = JobRequest;
                type Output = JobResult;

                fn name(&self) -> &str {
                    names::$constant
                }
            }

            impl ExecutableActivity for $kind {
                type Implementer = Activities;
                const REQUIRES_INSTANCE: bool = true;

                fn definition() -> Self {
                    Self
                }

                fn execute(
                    receiver: Option<Arc<Activities>>,
                    ctx: ActivityContext,
                    request: JobRequest,
                ) -> BoxFuture<'static, Result<JobResult, ActivityError>> {
                    Box::pin(async move { run_activity(registered(receiver)?, ctx, request).await })
                }
            }
        )*

        impl ActivityImplementer for Activities {
            fn register_all(self: Arc<Self>, definitions: &mut ActivityDefinitions) {
                definitions.register_activity::<Record>(self.clone());
                $(definitions.register_activity::<$kind>(self.clone());)*
            }
        }
    };
}

tamma_flow::job_activities!(register_job_activities);
