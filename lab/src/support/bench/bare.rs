//! Bare Temporal workflow that makes the same calls as a task, and nothing else.
//!
//! Its input is the call sequence of a real task, extracted by [`super::history`]. It repeats the calls
//! with payloads of the same size. Its activities do nothing, or start the child processes of the task.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{FutureExt as _, LocalBoxFuture};
use serde::{Deserialize, Serialize};
use tamma_flow::search_attributes;
use temporalio_client::WorkflowExecuteUpdateOptions;
use temporalio_common::error::ApplicationFailure;
use temporalio_common::search_attributes::SearchAttributeUpdate;
use temporalio_macros::{activities, workflow, workflow_methods};
use temporalio_sdk::activities::{ActivityContext, ActivityError};
use temporalio_workflow::{
    ActivityOptions, LocalActivityOptions, TimerOptions, WorkflowCancellationToken,
    WorkflowContext, WorkflowContextView, WorkflowResult,
};

use super::children::ChildPlayer;

/// Task queue of the bare workflows and their activities.
pub(crate) const QUEUE: &str = "bench";

/// Second task queue, with a limited number of slots.
pub(crate) const AGENT_QUEUE: &str = "bench-agents";

/// Prefix of workflow IDs, before the ID of the task.
const ID_PREFIX: &str = "bare-";

/// Result of a workflow whose activities failed.
const FAILED: &str = "failed";

/// Returns the workflow ID of a task.
pub(crate) fn workflow_id(task: impl std::fmt::Display) -> String {
    format!("{ID_PREFIX}{task}")
}

/// Returns `true` if an activity of the workflow with this result failed.
pub(crate) fn is_failure(result: &str) -> bool {
    result == FAILED
}

/// Call of a workflow to Temporal. Sizes are payload bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WorkflowCall {
    /// Runs a local activity, with the sizes of input and result.
    Local(usize, usize),
    /// Starts a regular activity.
    Start(ActivityCall),
    /// Waits for the regular activity.
    Await,
    /// Waits for an update.
    ReceiveUpdate,
    /// Responds to the update.
    CompleteUpdate,
    /// Updates search attributes.
    Upsert(Vec<(String, String)>),
    /// Starts a timer with this number of seconds.
    StartTimer(u64),
    /// Cancels the timer.
    CancelTimer,
}

/// Regular activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ActivityCall {
    /// `true` if it runs on the second queue.
    pub(crate) on_agent_queue: bool,
    /// Size of the input.
    pub(crate) input: usize,
    /// Size of the result.
    pub(crate) result: usize,
    /// Sizes of the update that it sends and of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) update: Option<(usize, usize)>,
}

/// Input of a bare workflow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallSequence {
    /// Calls, in order.
    pub(crate) calls: Vec<WorkflowCall>,
    /// Size of the workflow's result.
    pub(crate) result: usize,
    /// Padding.
    pub(crate) filler: String,
}

/// Payload of a given size, with the size of the expected result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SizedPayload {
    /// Position of the call in its sequence.
    call: usize,
    result: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    update: Option<(usize, usize)>,
    filler: String,
}

impl CallSequence {
    /// Pads the serialised input to a number of bytes.
    #[must_use]
    pub(crate) fn padded(mut self, bytes: usize) -> Self {
        let now = serde_json::to_vec(&self).map_or(0, |json| json.len());
        self.filler = filler(self.calls.len(), bytes.saturating_sub(now));
        self
    }
}

impl SizedPayload {
    fn new(call: usize, size: usize, result: usize, update: Option<(usize, usize)>) -> Self {
        let mut payload = Self { call, result, update, filler: String::new() };
        let now = serde_json::to_vec(&payload).map_or(0, |json| json.len());
        payload.filler = filler(2 * call, size.saturating_sub(now));
        payload
    }
}

/// Returns the result of a call, which takes this number of bytes as JSON.
fn text(call: usize, bytes: usize) -> String {
    filler(2 * call + 1, bytes.saturating_sub(2))
}

/// Returns a text of this length that compresses to three quarters at best, also beside those of other
/// seeds. The sizes that it stands for are those of compressed and encrypted payloads.
fn filler(seed: usize, length: usize) -> String {
    let seed = u64::try_from(seed).unwrap_or_default().wrapping_add(1);
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let next = || {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'0' + u8::try_from(state % 64).unwrap_or_default())
    };
    std::iter::repeat_with(next).filter(|letter| *letter != '\\').take(length).collect()
}

/// Workflow that repeats a call sequence.
#[workflow]
pub(crate) struct BareWorkflow {
    sequence: CallSequence,
    received: u32,
    completed: u32,
    failed: bool,
}

#[workflow_methods]
impl BareWorkflow {
    #[init]
    fn new(_ctx: &WorkflowContextView, sequence: CallSequence) -> Self {
        Self { sequence, received: 0, completed: 0, failed: false }
    }

    #[run(name = "bare")]
    pub(crate) async fn run(ctx: &mut WorkflowContext<Self>) -> WorkflowResult<String> {
        let (calls, result) = ctx.state(|it| (it.sequence.calls.clone(), it.sequence.result));
        let mut job: LocalBoxFuture<'static, ()> = std::future::ready(()).boxed_local();
        let mut timer: LocalBoxFuture<'static, ()> = std::future::ready(()).boxed_local();
        let mut token = WorkflowCancellationToken::new();
        let (mut updates, count) = (0, calls.len());
        for (position, call) in calls.into_iter().enumerate() {
            match call {
                WorkflowCall::Local(input, result) => {
                    let options = LocalActivityOptions::builder()
                        .start_to_close_timeout(Duration::from_mins(1))
                        .build();
                    let payload = SizedPayload::new(position, input, result, None);
                    ctx.execute_local_activity(BareActivities::on_local, payload, options).await?;
                }
                WorkflowCall::Start(activity) => {
                    let here = ctx.clone();
                    job = async move {
                        let queue = activity.on_agent_queue.then_some(AGENT_QUEUE);
                        let options =
                            ActivityOptions::with_start_to_close_timeout(Duration::from_hours(1))
                                // Processes of many tasks share few cores.
                                .heartbeat_timeout(Duration::from_mins(10))
                                .maybe_task_queue(queue)
                                .build();
                        let ActivityCall { input, result, update, .. } = activity;
                        let payload = SizedPayload::new(position, input, result, update);
                        let job = here.execute_activity(BareActivities::on_job, payload, options);
                        if job.await.is_err() {
                            here.state_mut(|it| it.failed = true);
                        }
                    }
                    .boxed_local();
                    poll_once(&mut job).await;
                }
                WorkflowCall::Await => job = finish(&mut job).await,
                WorkflowCall::ReceiveUpdate => {
                    updates += 1;
                    let _ = ctx.wait_condition(move |it| it.received >= updates).await;
                }
                WorkflowCall::CompleteUpdate => ctx.state_mut(|it| it.completed += 1),
                WorkflowCall::Upsert(pairs) => {
                    ctx.upsert_search_attributes(pairs.iter().filter_map(attribute));
                }
                WorkflowCall::StartTimer(seconds) => {
                    token = WorkflowCancellationToken::new();
                    let options = TimerOptions::builder(Duration::from_secs(seconds))
                        .cancellation_token(token.clone())
                        .build();
                    let here = ctx.clone();
                    timer = async move {
                        let _ = here.timer(options).await;
                    }
                    .boxed_local();
                    poll_once(&mut timer).await;
                }
                WorkflowCall::CancelTimer => token.cancel(),
            }
        }
        drop(timer);
        let _ = ctx.wait_condition(move |it| it.completed >= updates).await;
        Ok(if ctx.state(|it| it.failed) { FAILED.to_owned() } else { text(count, result) })
    }

    #[update_validator(notify)]
    #[expect(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "Temporal's macro requires the signature"
    )]
    fn accepts_update(
        &self,
        _ctx: &WorkflowContextView,
        _payload: &SizedPayload,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(())
    }

    #[update]
    pub(crate) async fn notify(ctx: &mut WorkflowContext<Self>, payload: SizedPayload) -> String {
        let number = ctx.state_mut(|it| {
            it.received += 1;
            it.received
        });
        let _ = ctx.wait_condition(move |it| it.completed >= number).await;
        text(payload.call, payload.result)
    }
}

/// Polls a future once, so that it starts.
async fn poll_once(future: &mut LocalBoxFuture<'static, ()>) {
    poll_fn(|cx| {
        if future.as_mut().poll(cx).is_ready() {
            *future = std::future::ready(()).boxed_local();
        }
        Poll::Ready(())
    })
    .await;
}

/// Waits for a future and returns a finished one in its place.
async fn finish(future: &mut LocalBoxFuture<'static, ()>) -> LocalBoxFuture<'static, ()> {
    future.await;
    std::future::ready(()).boxed_local()
}

fn attribute((name, value): &(String, String)) -> Option<SearchAttributeUpdate> {
    let keys = [&search_attributes::PHASE, &search_attributes::STATE, &search_attributes::RISK];
    let key = keys.into_iter().zip(["TammaPhase", "TammaState", "TammaRisk"]);
    key.into_iter().find(|(_, known)| known == name).map(|(key, _)| key.value_set(value.clone()))
}

/// Activities that return at once, or start the children of a recorded task.
#[derive(Debug, Clone, Default)]
pub(crate) struct BareActivities {
    /// Children to start, if any.
    pub(crate) children: Option<Arc<ChildPlayer>>,
}

impl BareActivities {
    async fn start_children(&self, ctx: &ActivityContext, call: usize) -> anyhow::Result<()> {
        let workflow = ctx.info().workflow_id.as_deref();
        let task = workflow.and_then(|id| id.strip_prefix(ID_PREFIX));
        match (&self.children, task) {
            (Some(children), Some(task)) => children.play(task, call).await,
            _ => Ok(()),
        }
    }
}

#[activities]
impl BareActivities {
    #[activity(name = "bench.local")]
    pub(crate) async fn on_local(
        self: Arc<Self>,
        ctx: ActivityContext,
        payload: SizedPayload,
    ) -> Result<String, ActivityError> {
        self.start_children(&ctx, payload.call).await.map_err(final_error)?;
        Ok(text(payload.call, payload.result))
    }

    #[activity(name = "bench.job")]
    pub(crate) async fn on_job(
        self: Arc<Self>,
        ctx: ActivityContext,
        payload: SizedPayload,
    ) -> Result<String, ActivityError> {
        if let (Some((input, result)), Some(handle)) =
            (payload.update, ctx.workflow_handle::<BareWorkflow>())
        {
            let options = WorkflowExecuteUpdateOptions::builder().build();
            let payload = SizedPayload::new(payload.call, input, result, None);
            handle.execute_update(BareWorkflow::notify, payload, options).await?;
        }
        self.start_children(&ctx, payload.call).await.map_err(final_error)?;
        Ok(text(payload.call, payload.result))
    }
}

/// Converts an error to one that ends the activity: a second attempt would start every child again.
#[expect(clippy::print_stderr, reason = "the workflow reports only that an activity failed")]
fn final_error(error: anyhow::Error) -> ActivityError {
    eprintln!("lab: {error:#}");
    ApplicationFailure::builder(error).non_retryable(true).build().into()
}
