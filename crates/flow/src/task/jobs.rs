//! Jobs as activities: local or remote, and their results as events.

use std::time::Duration;

use futures_util::future::FutureExt as _;
use tamma_core::actor::Actor;
use tamma_core::cost::Usage;
use tamma_core::failure::{FailureKind, JobFailure};
use tamma_core::run_queue;
use tamma_core::task_loop::{Command, EventKind, Job, Outcome, Placement, TaskEvent, Timestamp};
use tamma_core::version::FormatVersion;
use temporalio_common::error::TimeoutType;
use temporalio_workflow::{
    ActivityCancellationType, ActivityExecutionError, ActivityOptions, LocalActivityOptions,
    TimerOptions, TimerResult, WorkflowCancellationToken, WorkflowContext, select,
};

use super::{BoxedFuture, TaskWorkflow, now, sleep_until, uncancellable_wait};
use crate::AGENT_TASK_QUEUE;
use crate::activities::{
    JobActivity, JobRequest, JobResult, has_lost_workers, is_divergence, root_message,
};
use crate::project_turn::project_turn;
use crate::retries::{local_retries, worker_retries};

/// Wait of a job that a worker cannot run yet, such as for another task.
#[derive(Debug, Default)]
pub(super) struct JobWait {
    /// Set while the job waits, which can take days.
    pub(super) is_active: bool,
    /// Set when the wait starts, until the workflow has noticed it.
    pub(super) has_started: bool,
    /// Set when the job may be ready, until it is requested again.
    pub(super) is_woken: bool,
    /// Request for the next workflow of the task, because the history is long.
    pub(super) deferred: Option<Command>,
}

impl JobWait {
    /// Takes the request for the next workflow of the task, which does not wait if this one was
    /// woken.
    pub(super) fn take_deferred(&mut self) -> Option<Command> {
        let mut deferred = self.deferred.take();
        if self.is_woken
            && let Some(Command::StartJob { not_before, .. }) = &mut deferred
        {
            *not_before = None;
        }
        deferred
    }
}

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
        TaskEvent { format: FormatVersion, at: now(&ctx), by: Actor::Tamma, auth: None, kind }
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
    if let Some(at) = not_before {
        let waited = if matches!(request.job, Job::Admit) {
            wait_or_wake(ctx, (at - now(ctx)).to_std().unwrap_or_default(), &stop).await
        } else {
            sleep_until(ctx, at, stop.clone()).await
        };
        if waited == TimerResult::Cancelled {
            return interrupted;
        }
    }
    if let Some(outcome) = ctx.state(|it| it.immediate_outcome(&request.job)) {
        return (outcome, None);
    }
    let (mut last_requested, mut waits) = (0, 0_u32);
    loop {
        // The worker looks whether the job is ready, so earlier signals are of no use.
        ctx.state_mut(|it| it.job_wait.is_woken = false);
        request.pending = ctx.state(TaskWorkflow::pending_steps);
        let last = request.pending.steps.last().map(|record| record.step);
        let result = execute_activity(ctx, request.clone(), stop.clone()).await;
        if let Some(step) = last.filter(|_| result.is_ok()) {
            // The worker saves the steps before it runs the job.
            ctx.state_mut(|it| it.mark_saved(step));
        }
        let requested = match result {
            Ok(JobResult::Finished { outcome, usage, .. }) => return (outcome, usage),
            Ok(JobResult::RetryAfter { seconds }) => seconds,
            Err(ActivityExecutionError::Cancelled(_)) => return interrupted,
            Err(error) if is_divergence(&error) => {
                ctx.state_mut(|it| it.divergence = Some(root_message(&error)));
                return interrupted;
            }
            Err(error) => return (Outcome::Failed(to_failure(&error)), None),
        };
        if requested != last_requested {
            // Workers of another version ask for other waits.
            (last_requested, waits) = (requested, 0);
        }
        let seconds = wait_seconds(requested, waits);
        waits = waits.saturating_add(1);
        // This can take days: alarms must go off, and the history must not grow forever. If it is
        // long, the next workflow of the task requests the job.
        let is_long = ctx.state(|it| ctx.history_length() > it.tuning.history_events);
        let deferred = is_long.then(|| Command::StartJob {
            job_number: request.job_number,
            not_before: Some(now(ctx) + Duration::from_secs(u64::from(seconds))),
            job: request.job.clone(),
        });
        ctx.state_mut(|it| {
            let is_woken = it.job_wait.is_woken;
            it.job_wait = JobWait { is_active: true, has_started: true, is_woken, deferred };
        });
        let waited = wait_or_wake(ctx, Duration::from_secs(u64::from(seconds)), &stop).await;
        ctx.state_mut(|it| it.job_wait = JobWait::default());
        if waited == TimerResult::Cancelled {
            return interrupted;
        }
    }
}

/// Waits for a time, or until somebody wakes the workflow.
async fn wait_or_wake(
    ctx: &WorkflowContext<TaskWorkflow>,
    time: Duration,
    stop: &WorkflowCancellationToken,
) -> TimerResult {
    let token = stop.child_token();
    let options = TimerOptions::builder(time).cancellation_token(token.clone()).build();
    let mut timer = ctx.timer(options).boxed_local().fuse();
    select! {
        waited = &mut timer => waited,
        () = wait_for_wake(ctx).fuse() => {
            token.cancel();
            TimerResult::Fired
        }
    }
}

async fn wait_for_wake(ctx: &WorkflowContext<TaskWorkflow>) {
    let is_woken = |it: &TaskWorkflow| it.job_wait.is_woken;
    let _ = ctx.wait_condition_with_options(is_woken, uncancellable_wait()).await;
}

/// Longest wait before a job that a worker cannot run yet is requested again, in seconds, unless the
/// worker asks for more.
const MAX_WAIT_SECONDS: u32 = 30;

/// Number of times that the wait doubles.
const MAX_DOUBLINGS: u32 = 2;

/// Shortest wait, in seconds, that a worker asks for if somebody wakes the workflow once the job is
/// ready. Requesting it again is only a precaution then.
const PRECAUTION_SECONDS: u32 = 60;

/// Longest wait of that kind, in seconds.
const MAX_PRECAUTION_SECONDS: u32 = 24 * 60 * 60;

/// Returns the seconds before a job is requested again, after some earlier waits.
fn wait_seconds(requested: u32, waits: u32) -> u32 {
    let (longest, doublings) = if requested < PRECAUTION_SECONDS {
        (MAX_WAIT_SECONDS, MAX_DOUBLINGS)
    } else {
        (MAX_PRECAUTION_SECONDS, u32::BITS - 1)
    };
    let doubled = requested.max(1).saturating_mul(1 << waits.min(doublings));
    doubled.min(longest.max(requested))
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
                .retry_policy(local_retries())
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
    loop {
        let (project, priority, since) = ctx.state(|it| {
            let task_loop = &it.task_loop;
            (task_loop.project, task_loop.priority, task_loop.since)
        });
        let waited = now(ctx) - since;
        let level = run_queue::queue_level(priority, waited);
        // Only the queue of the agent pool gets long. A request that waits for too long there moves
        // up a level, at most three times.
        let time = queue.and_then(|_| run_queue::time_at_level(priority, waited)?.to_std().ok());
        let options = ActivityOptions::with_start_to_close_timeout(limit)
            .heartbeat_timeout(heartbeat)
            .retry_policy(worker_retries())
            .cancellation_type(ActivityCancellationType::WaitCancellationCompleted)
            .cancellation_token(stop.clone())
            .maybe_task_queue(queue)
            .maybe_schedule_to_start_timeout(time)
            .priority(project_turn(project, Some(level)))
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
    let kind = if has_lost_workers(error) {
        FailureKind::WorkersLost
    } else if error.as_timeout().is_some() {
        FailureKind::TimedOut
    } else {
        FailureKind::Crashed
    };
    let reason = root_message(error).parse().or_else(|_| "no reason was given".parse());
    // The fallback text is a valid reason.
    #[expect(clippy::expect_used, reason = "the constant is valid")]
    JobFailure { kind, reason: reason.expect("valid") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_day_if_somebody_wakes_the_workflow() {
        let waits = |requested| move |waits| wait_seconds(requested, waits);
        assert_eq!([0, 1, 2, 3, 40].map(waits(10)), [10, 20, 30, 30, 30], "as in old histories");
        assert_eq!([0, 1, 2, 8, 9, 40].map(waits(300)), [300, 600, 1_200, 76_800, 86_400, 86_400]);
        assert_eq!(wait_seconds(0, 0), 1);
        assert_eq!(wait_seconds(200_000, 3), 200_000, "a worker can ask for more");
    }
}
