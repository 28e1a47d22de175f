//! Jobs as activities: local or remote, and their results as events.

use std::time::Duration;

use futures_util::future::FutureExt as _;
use tamma_core::actor::Actor;
use tamma_core::cost::Usage;
use tamma_core::failure::{FailureKind, JobFailure};
use tamma_core::run_queue;
use tamma_core::task_loop::{EventKind, Outcome, Placement, TaskEvent, Timestamp};
use tamma_core::version::FormatVersion;
use temporalio_common::Priority;
use temporalio_common::error::TimeoutType;
use temporalio_workflow::{
    ActivityCancellationType, ActivityExecutionError, ActivityOptions, LocalActivityOptions,
    RetryPolicy, TimerOptions, TimerResult, WorkflowCancellationToken, WorkflowContext,
};

use super::{BoxedFuture, TaskWorkflow, now, publish_search_attributes, retry_policy, sleep_until};
use crate::AGENT_TASK_QUEUE;
use crate::activities::{JobActivity, JobRequest, JobResult, NON_RETRYABLE, root_message};

/// Runs a job, and converts its result to an event.
pub(super) fn run_job(
    ctx: WorkflowContext<TaskWorkflow>,
    request: JobRequest,
    not_before: Option<Timestamp>,
    stop: WorkflowCancellationToken,
) -> BoxedFuture<TaskEvent> {
    async move {
        let job_number = request.job_number;
        let (outcome, usage) = run_until_finished(&ctx, request, not_before, stop).await;
        let kind = EventKind::JobFinished { job_number, usage, outcome };
        TaskEvent { format: FormatVersion, at: now(&ctx), by: Actor::Tamma, kind }
    }
    .boxed_local()
    .fuse()
}

/// Starts a job once it is due, and requests it again while the worker asks for a delay.
async fn run_until_finished(
    ctx: &WorkflowContext<TaskWorkflow>,
    mut request: JobRequest,
    not_before: Option<Timestamp>,
    stop: WorkflowCancellationToken,
) -> (Outcome, Option<Usage>) {
    let interrupted = (Outcome::Interrupted, None);
    if let Some(at) = not_before
        && sleep_until(ctx, at, stop.clone()).await == TimerResult::Cancelled
    {
        return interrupted;
    }
    loop {
        request.pending = ctx.state(TaskWorkflow::pending_steps);
        let last = request.pending.steps.last().map(|record| record.step);
        let result = execute_activity(ctx, request.clone(), stop.clone()).await;
        if let Some(step) = last.filter(|_| result.is_ok()) {
            // The worker saves the steps before it runs the job.
            ctx.state_mut(|it| it.mark_saved(step));
        }
        let seconds = match result {
            Ok(JobResult::Finished { outcome, usage, .. }) => return (outcome, usage),
            Ok(JobResult::RetryAfter { seconds }) => seconds,
            Err(ActivityExecutionError::Cancelled(_)) => return interrupted,
            Err(error) => return (Outcome::Failed(to_failure(&error)), None),
        };
        // This can take days, so the search attributes must be current.
        publish_search_attributes(ctx);
        let delay = TimerOptions::builder(Duration::from_secs(u64::from(seconds)))
            .cancellation_token(stop.clone())
            .build();
        if ctx.timer(delay).await == TimerResult::Cancelled {
            return interrupted;
        }
    }
}

/// Attempts that one activity of a job can have. More than Temporal ever starts.
const MAX_ATTEMPTS: u32 = 100_000;

/// Calls the activity of a job where its placement says.
async fn execute_activity(
    ctx: &WorkflowContext<TaskWorkflow>,
    mut request: JobRequest,
    stop: WorkflowCancellationToken,
) -> Result<JobResult, ActivityExecutionError> {
    let activity = JobActivity(request.job.kind());
    let queue = match request.job.placement() {
        Placement::Inline => {
            let options = LocalActivityOptions::builder()
                .start_to_close_timeout(Duration::from_mins(1))
                .retry_policy(retry_policy())
                .cancellation_token(stop)
                .build();
            return ctx.execute_local_activity(activity, request, options).await;
        }
        Placement::Worker => None,
        Placement::AgentPool => Some(AGENT_TASK_QUEUE),
    };
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
    loop {
        let (priority, since) = ctx.state(|it| (it.task_loop.priority, it.task_loop.since));
        let waited = now(ctx) - since;
        let level = run_queue::queue_level(priority, waited);
        // Only the queue of the agent pool gets long. A request that waits for too long there moves
        // up a level, at most three times.
        let time = queue.and_then(|_| run_queue::time_at_level(priority, waited)?.to_std().ok());
        let options = ActivityOptions::with_start_to_close_timeout(limit)
            .heartbeat_timeout(heartbeat)
            .retry_policy(retries.clone())
            .cancellation_type(ActivityCancellationType::WaitCancellationCompleted)
            .cancellation_token(stop.clone())
            .maybe_task_queue(queue)
            .maybe_schedule_to_start_timeout(time)
            .priority(Priority::builder().priority_key(level).build())
            .build();
        match ctx.execute_activity(activity, request.clone(), options).await {
            Err(error) if has_waited_too_long(&error) => {
                request.earlier_attempts = request.earlier_attempts.saturating_add(MAX_ATTEMPTS);
            }
            result => return result,
        }
    }
}

/// Returns `true` if no worker has started the activity in time.
fn has_waited_too_long(error: &ActivityExecutionError) -> bool {
    error.as_timeout().is_some_and(|it| it.timeout_type() == TimeoutType::ScheduleToStart)
}

/// Converts a final activity error to a failure for the state machine.
fn to_failure(error: &ActivityExecutionError) -> JobFailure {
    let kind =
        if error.as_timeout().is_some() { FailureKind::TimedOut } else { FailureKind::Crashed };
    let reason = root_message(error).parse().or_else(|_| "no reason was given".parse());
    // The fallback text is a valid reason.
    #[expect(clippy::expect_used, reason = "the constant is valid")]
    JobFailure { kind, reason: reason.expect("valid") }
}
