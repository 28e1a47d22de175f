//! Jobs as activities: local or remote, and their results as events.

use std::time::Duration;

use futures_util::future::FutureExt as _;
use tamma_core::cost::Usage;
use tamma_core::failure::{FailureKind, JobFailure};
use tamma_core::ids::Reason;
use tamma_core::task_loop::{EventKind, Job, JobKind, Outcome, Timestamp};
use temporalio_common::ActivityDefinition;
use temporalio_workflow::{
    ActivityCancellationType, ActivityExecutionError, ActivityOptions, LocalActivityOptions,
    RetryPolicy, TimerOptions, TimerResult, WorkflowCancellationToken, WorkflowContext,
};

use super::{BoxedFuture, TaskWorkflow, publish_search_attributes, retry_policy, sleep_until};
use crate::AGENT_TASK_QUEUE;
use crate::activities::{Activities, JobRequest, JobResult, NON_RETRYABLE};

/// Job to start.
pub(super) struct JobStart {
    pub(super) job_number: u32,
    pub(super) not_before: Option<Timestamp>,
    pub(super) job: Job,
}

/// Finished job.
pub(super) struct FinishedJob {
    pub(super) event_kind: EventKind,
    /// Last step that is known to be saved.
    pub(super) saved_step: Option<u64>,
}

impl JobStart {
    /// Returns whether the job is a local activity: it needs no model, runs no program of the
    /// project, and changes nothing outside.
    pub(super) fn is_inline(&self) -> bool {
        use JobKind as K;
        let plain = matches!(self.job, Job::Learn { use_model: false, .. });
        self.not_before.is_none()
            && (plain
                || matches!(
                    self.job.kind(),
                    K::Admit | K::Prepare | K::Check | K::Brief | K::AwaitDelivery
                ))
    }
}

/// Starts a job, and converts its result to an event.
pub(super) fn run_job(
    ctx: WorkflowContext<TaskWorkflow>,
    start: JobStart,
    stop: WorkflowCancellationToken,
) -> BoxedFuture<FinishedJob> {
    async move {
        let ticket = start.job_number;
        let (end, written) = run_until_finished(&ctx, start, stop).await;
        let (outcome, usage) = match end {
            Ok(end) => end,
            Err(ActivityExecutionError::Cancelled(_)) => (Outcome::Interrupted, None),
            Err(error) => (Outcome::Failed(to_failure(&error)), None),
        };
        FinishedJob {
            event_kind: EventKind::JobFinished { job_number: ticket, usage, outcome },
            saved_step: written,
        }
    }
    .boxed_local()
    .fuse()
}

type ActivityResult = Result<JobResult, ActivityExecutionError>;

/// Result of a job, and the last step that is known to be saved.
type JobEnd = (Result<(Outcome, Option<Usage>), ActivityExecutionError>, Option<u64>);

/// Starts a job once it is due, and requests it again while the worker asks for a delay.
async fn run_until_finished(
    ctx: &WorkflowContext<TaskWorkflow>,
    start: JobStart,
    stop: WorkflowCancellationToken,
) -> JobEnd {
    let interrupted = Ok((Outcome::Interrupted, None));
    if let Some(at) = start.not_before
        && sleep_until(ctx, at, stop.clone()).await == TimerResult::Cancelled
    {
        return (interrupted, None);
    }
    loop {
        let diary = ctx.state(TaskWorkflow::pending_steps);
        let last = diary.steps.last().map(|recorded| recorded.step);
        let errand =
            JobRequest { job_number: start.job_number, job: start.job.clone(), pending: diary };
        let answer = execute_activity(ctx, errand, stop.clone()).await;
        let written = last.filter(|_| answer.is_ok());
        let seconds = match answer {
            Ok(JobResult::Finished { outcome, usage }) => return (Ok((outcome, usage)), written),
            Err(error) => return (Err(error), written),
            Ok(JobResult::RetryAfter { seconds }) => seconds,
        };
        // This can take days, so the search attributes must be current.
        publish_search_attributes(ctx);
        if let Some(step) = written {
            ctx.state_mut(|it| it.mark_saved(step));
        }
        let pause = TimerOptions::builder(Duration::from_secs(u64::from(seconds)))
            .cancellation_token(stop.clone())
            .build();
        if ctx.timer(pause).await == TimerResult::Cancelled {
            return (interrupted, written);
        }
    }
}

/// Calls the activity of a job.
async fn execute_activity(
    ctx: &WorkflowContext<TaskWorkflow>,
    errand: JobRequest,
    stop: WorkflowCancellationToken,
) -> ActivityResult {
    let asks_model = matches!(errand.job, Job::Learn { use_model: true, .. });
    match errand.job.kind() {
        JobKind::Admit => execute_inline(ctx, Activities::admit, errand, stop).await,
        JobKind::Prepare => execute_inline(ctx, Activities::prepare, errand, stop).await,
        JobKind::Check => execute_inline(ctx, Activities::check, errand, stop).await,
        JobKind::Brief => execute_inline(ctx, Activities::brief, errand, stop).await,
        JobKind::AwaitDelivery => {
            execute_inline(ctx, Activities::await_delivery, errand, stop).await
        }
        JobKind::Learn if asks_model => {
            execute_on_worker(ctx, Activities::learn, errand, None, stop).await
        }
        // Without a model, as in all tasks of older editions.
        JobKind::Learn => execute_inline(ctx, Activities::learn, errand, stop).await,
        JobKind::Plan => execute_on_worker(ctx, Activities::plan, errand, None, stop).await,
        JobKind::Implement => {
            execute_on_worker(ctx, Activities::implement, errand, Some(AGENT_TASK_QUEUE), stop)
                .await
        }
        JobKind::Test => execute_on_worker(ctx, Activities::test, errand, None, stop).await,
        JobKind::Review => execute_on_worker(ctx, Activities::review, errand, None, stop).await,
        JobKind::Convene => execute_on_worker(ctx, Activities::convene, errand, None, stop).await,
        JobKind::Deliver => execute_on_worker(ctx, Activities::deliver, errand, None, stop).await,
        JobKind::SaveWork => {
            execute_on_worker(ctx, Activities::save_work, errand, None, stop).await
        }
    }
}

async fn execute_inline<AD>(
    ctx: &WorkflowContext<TaskWorkflow>,
    activity: AD,
    errand: JobRequest,
    stop: WorkflowCancellationToken,
) -> ActivityResult
where
    AD: ActivityDefinition<Input = JobRequest, Output = JobResult>,
{
    let options = LocalActivityOptions::builder()
        .start_to_close_timeout(Duration::from_mins(1))
        .retry_policy(retry_policy())
        .cancellation_token(stop)
        .build();
    ctx.execute_local_activity(activity, errand, options).await
}

async fn execute_on_worker<AD>(
    ctx: &WorkflowContext<TaskWorkflow>,
    activity: AD,
    errand: JobRequest,
    queue: Option<&str>,
    stop: WorkflowCancellationToken,
) -> ActivityResult
where
    AD: ActivityDefinition<Input = JobRequest, Output = JobResult>,
{
    let (heartbeat, limit) = ctx.state(|it| {
        // The worker enforces the job's own limit; this one covers workers that hang.
        let limit = Duration::from_millis(it.rules.scrum_master.task_loop.timeout_ms) * 3;
        (Duration::from_secs(u64::from(it.tuning.heartbeat_seconds)), limit)
    });
    let retries = RetryPolicy::builder()
        .initial_interval(Duration::from_millis(500))
        .maximum_interval(Duration::from_secs(30))
        .non_retryable_error_types([NON_RETRYABLE])
        .build();
    let options = ActivityOptions::with_start_to_close_timeout(limit)
        .heartbeat_timeout(heartbeat)
        .retry_policy(retries)
        .cancellation_type(ActivityCancellationType::WaitCancellationCompleted)
        .cancellation_token(stop)
        .maybe_task_queue(queue)
        .build();
    ctx.execute_activity(activity, errand, options).await
}

/// Returns the worker's own error message, without Temporal's wrapping.
fn root_message(error: &ActivityExecutionError) -> String {
    let Some(mut failure) = error.failure() else { return error.to_string() };
    while let Some(cause) = &failure.cause {
        failure = cause;
    }
    if failure.message.is_empty() { error.to_string() } else { failure.message.clone() }
}

/// Converts a final activity error to a failure for the state machine.
fn to_failure(error: &ActivityExecutionError) -> JobFailure {
    let kind =
        if error.as_timeout().is_some() { FailureKind::TimedOut } else { FailureKind::Crashed };
    let text: String = root_message(error).chars().take(Reason::MAX).collect();
    let reason = text.parse().or_else(|_| "no reason was given".parse());
    // The fallback text is a valid reason.
    #[expect(clippy::expect_used, reason = "the constant is valid")]
    JobFailure { kind, reason: reason.expect("valid") }
}
