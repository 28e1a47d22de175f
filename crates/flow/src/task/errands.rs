//! Jobs as activities: which kind each is, and what its end means to the machine.

use std::time::Duration;

use futures_util::future::FutureExt as _;
use tamma_core::cost::Usage;
use tamma_core::failure::{Failure, FailureKind};
use tamma_core::ids::Reason;
use tamma_core::task_loop::{Job, JobKind, Outcome, Timestamp, What};
use temporalio_common::ActivityDefinition;
use temporalio_workflow::{
    ActivityCancellationType, ActivityExecutionError, ActivityOptions, LocalActivityOptions,
    RetryPolicy, TimerOptions, TimerResult, WorkflowCancellationToken, WorkflowContext,
};

use super::{Pending, TaskFlow, patiently, publish, sleep_until};
use crate::ENGINES;
use crate::port::{Answer, Errand, FINAL, Hands};

/// A job that is to be begun.
pub(super) struct Start {
    pub(super) ticket: u32,
    pub(super) not_before: Option<Timestamp>,
    pub(super) job: Job,
}

/// A job that has ended.
pub(super) struct Ended {
    pub(super) what: What,
    /// Everything up to this step is written down.
    pub(super) written: Option<u64>,
}

impl Start {
    /// Whether it is done in the workflow's own task: it asks no model, runs no program of the
    /// project's and changes nothing outside.
    pub(super) fn is_short(&self) -> bool {
        use JobKind as K;
        let plain = matches!(self.job, Job::Learn { model: false, .. });
        self.not_before.is_none()
            && (plain
                || matches!(
                    self.job.kind(),
                    K::Admit | K::Prepare | K::Check | K::Brief | K::AwaitTurn
                ))
    }
}

/// Begins a job, and turns its end into what the machine is told.
pub(super) fn run(
    ctx: WorkflowContext<TaskFlow>,
    start: Start,
    stop: WorkflowCancellationToken,
) -> Pending<Ended> {
    async move {
        let ticket = start.ticket;
        let (end, written) = until_ended(&ctx, start, stop).await;
        let (outcome, usage) = match end {
            Ok(end) => end,
            Err(ActivityExecutionError::Cancelled(_)) => (Outcome::Interrupted, None),
            Err(error) => (Outcome::Failed(failure(&error)), None),
        };
        Ended { what: What::Done { ticket, usage, outcome }, written }
    }
    .boxed_local()
    .fuse()
}

type Answered = Result<Answer, ActivityExecutionError>;

/// How a job ended, and up to which step everything is written down.
type End = (Result<(Outcome, Option<Usage>), ActivityExecutionError>, Option<u64>);

/// Begins a job when it may begin, and asks again for as long as the worker has to wait.
async fn until_ended(
    ctx: &WorkflowContext<TaskFlow>,
    start: Start,
    stop: WorkflowCancellationToken,
) -> End {
    let interrupted = Ok((Outcome::Interrupted, None));
    if let Some(at) = start.not_before
        && sleep_until(ctx, at, stop.clone()).await == TimerResult::Cancelled
    {
        return (interrupted, None);
    }
    loop {
        let diary = ctx.state(TaskFlow::diary);
        let last = diary.steps.last().map(|recorded| recorded.step);
        let errand = Errand { ticket: start.ticket, job: start.job.clone(), diary };
        let answer = call(ctx, errand, stop.clone()).await;
        let written = last.filter(|_| answer.is_ok());
        let seconds = match answer {
            Ok(Answer::Ended { outcome, usage }) => return (Ok((outcome, usage)), written),
            Err(error) => return (Err(error), written),
            Ok(Answer::Later { seconds }) => seconds,
        };
        // This can take days, so people must see where it waits.
        publish(ctx);
        if let Some(step) = written {
            ctx.state_mut(|it| it.is_written(step));
        }
        let pause = TimerOptions::builder(Duration::from_secs(u64::from(seconds)))
            .cancellation_token(stop.clone())
            .build();
        if ctx.timer(pause).await == TimerResult::Cancelled {
            return (interrupted, written);
        }
    }
}

/// Which activity does which job.
async fn call(
    ctx: &WorkflowContext<TaskFlow>,
    errand: Errand,
    stop: WorkflowCancellationToken,
) -> Answered {
    let asks_model = matches!(errand.job, Job::Learn { model: true, .. });
    match errand.job.kind() {
        JobKind::Admit => short(ctx, Hands::admit, errand, stop).await,
        JobKind::Prepare => short(ctx, Hands::prepare, errand, stop).await,
        JobKind::Check => short(ctx, Hands::check, errand, stop).await,
        JobKind::Brief => short(ctx, Hands::brief, errand, stop).await,
        JobKind::AwaitTurn => short(ctx, Hands::await_turn, errand, stop).await,
        JobKind::Learn if asks_model => long(ctx, Hands::learn, errand, None, stop).await,
        // Without a model, as all tasks of older editions are.
        JobKind::Learn => short(ctx, Hands::learn, errand, stop).await,
        JobKind::Plan => long(ctx, Hands::plan, errand, None, stop).await,
        JobKind::Implement => long(ctx, Hands::implement, errand, Some(ENGINES), stop).await,
        JobKind::Test => long(ctx, Hands::test, errand, None, stop).await,
        JobKind::Review => long(ctx, Hands::review, errand, None, stop).await,
        JobKind::Convene => long(ctx, Hands::convene, errand, None, stop).await,
        JobKind::Deliver => long(ctx, Hands::deliver, errand, None, stop).await,
        JobKind::Land => long(ctx, Hands::land, errand, None, stop).await,
    }
}

async fn short<AD>(
    ctx: &WorkflowContext<TaskFlow>,
    activity: AD,
    errand: Errand,
    stop: WorkflowCancellationToken,
) -> Answered
where
    AD: ActivityDefinition<Input = Errand, Output = Answer>,
{
    let options = LocalActivityOptions::builder()
        .start_to_close_timeout(Duration::from_mins(1))
        .retry_policy(patiently())
        .cancellation_token(stop)
        .build();
    ctx.execute_local_activity(activity, errand, options).await
}

async fn long<AD>(
    ctx: &WorkflowContext<TaskFlow>,
    activity: AD,
    errand: Errand,
    queue: Option<&str>,
    stop: WorkflowCancellationToken,
) -> Answered
where
    AD: ActivityDefinition<Input = Errand, Output = Answer>,
{
    let (heartbeat, limit) = ctx.state(|it| {
        // The worker keeps to the limit of the job; this one is for a worker that does not.
        let limit = Duration::from_millis(it.rules.scrum_master.task_loop.timeout_ms) * 3;
        (Duration::from_secs(u64::from(it.pace.heartbeat_seconds)), limit)
    });
    let retries = RetryPolicy::builder()
        .initial_interval(Duration::from_millis(500))
        .maximum_interval(Duration::from_secs(30))
        .non_retryable_error_types([FINAL])
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

/// The words of the worker itself, without the wrapping of the engine.
fn words(error: &ActivityExecutionError) -> String {
    let Some(mut failure) = error.failure() else { return error.to_string() };
    while let Some(cause) = &failure.cause {
        failure = cause;
    }
    if failure.message.is_empty() { error.to_string() } else { failure.message.clone() }
}

/// What the machine is told of an activity that failed for good.
fn failure(error: &ActivityExecutionError) -> Failure {
    let kind =
        if error.as_timeout().is_some() { FailureKind::TimedOut } else { FailureKind::Crashed };
    let text: String = words(error).chars().take(Reason::MAX).collect();
    let reason = text.parse().or_else(|_| "no reason was given".parse());
    // The second text is a valid reason.
    #[expect(clippy::expect_used, reason = "a constant that is valid")]
    Failure { kind, reason: reason.expect("valid") }
}
