//! The engine by itself: a workflow that does what a task's does to the engine, and nothing else.
//!
//! It is given the commands of a real task as [`super::history`] found them, each with the size of
//! what went over the wire, and plays them with as many bytes and activities that do nothing.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{FutureExt as _, LocalBoxFuture};
use serde::{Deserialize, Serialize};
use tamma_flow::search_attributes;
use temporalio_client::WorkflowExecuteUpdateOptions;
use temporalio_common::search_attributes::SearchAttributeUpdate;
use temporalio_macros::{activities, workflow, workflow_methods};
use temporalio_sdk::activities::{ActivityContext, ActivityError};
use temporalio_workflow::{
    ActivityOptions, LocalActivityOptions, TimerOptions, WorkflowCancellationToken,
    WorkflowContext, WorkflowContextView, WorkflowResult,
};

/// The queue of the bare workflows and their activities.
pub(crate) const QUEUE: &str = "bench";

/// The second queue, which has a limited number of slots.
pub(crate) const ENGINES: &str = "bench-engines";

/// One thing that a task's workflow did to the engine. Sizes are bytes of payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WorkflowCall {
    /// A local activity, and its answer.
    Local(usize, usize),
    /// A regular activity begins.
    Begin(Job),
    /// The regular activity has ended.
    End,
    /// An update has come in.
    Hear,
    /// The update is answered.
    Reply,
    /// Search attributes change.
    Upsert(Vec<(String, String)>),
    /// A timer is set, for so many seconds.
    Set(u64),
    /// The timer is taken back.
    TakeBack,
}

/// A regular activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Job {
    /// Whether it is on the second queue.
    pub(crate) engines: bool,
    /// What it is given.
    pub(crate) given: usize,
    /// What it answers.
    pub(crate) answer: usize,
    /// What it sends in the middle of its work, and what it hears.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) update: Option<(usize, usize)>,
}

/// What a bare workflow is started with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallSequence {
    /// What it does, in this order.
    pub(crate) ops: Vec<WorkflowCall>,
    /// How much it answers in the end.
    pub(crate) answer: usize,
    /// Bytes that nobody reads.
    pub(crate) filler: String,
}

/// Bytes that travel, and what is to be answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SizedPayload {
    answer: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    update: Option<(usize, usize)>,
    filler: String,
}

impl CallSequence {
    /// Fills it up to so many bytes.
    #[must_use]
    pub(crate) fn filled(mut self, bytes: usize) -> Self {
        let now = serde_json::to_vec(&self).map_or(0, |json| json.len());
        self.filler = "x".repeat(bytes.saturating_sub(now));
        self
    }
}

impl SizedPayload {
    fn of(given: usize, answer: usize, update: Option<(usize, usize)>) -> Self {
        let mut payload = Self { answer, update, filler: String::new() };
        let now = serde_json::to_vec(&payload).map_or(0, |json| json.len());
        payload.filler = "x".repeat(given.saturating_sub(now));
        payload
    }
}

/// A text that takes so many bytes as JSON.
fn text(bytes: usize) -> String {
    "x".repeat(bytes.saturating_sub(2))
}

/// A workflow that plays a score.
#[workflow]
pub(crate) struct BareWorkflow {
    score: CallSequence,
    heard: u32,
    answered: u32,
}

#[workflow_methods]
impl BareWorkflow {
    #[init]
    fn new(_ctx: &WorkflowContextView, score: CallSequence) -> Self {
        Self { score, heard: 0, answered: 0 }
    }

    #[run(name = "bare")]
    pub(crate) async fn run(ctx: &mut WorkflowContext<Self>) -> WorkflowResult<String> {
        let (ops, answer) = ctx.state(|it| (it.score.ops.clone(), it.score.answer));
        let mut job: LocalBoxFuture<'static, ()> = std::future::ready(()).boxed_local();
        let mut timer: LocalBoxFuture<'static, ()> = std::future::ready(()).boxed_local();
        let mut token = WorkflowCancellationToken::new();
        let mut hears = 0;
        for op in ops {
            match op {
                WorkflowCall::Local(given, answer) => {
                    let options = LocalActivityOptions::builder()
                        .start_to_close_timeout(Duration::from_mins(1))
                        .build();
                    let payload = SizedPayload::of(given, answer, None);
                    ctx.execute_local_activity(NoopActivities::on_local, payload, options).await?;
                }
                WorkflowCall::Begin(begun) => {
                    let here = ctx.clone();
                    job = async move {
                        let queue = begun.engines.then_some(ENGINES);
                        let options =
                            ActivityOptions::with_start_to_close_timeout(Duration::from_hours(1))
                                .heartbeat_timeout(Duration::from_secs(30))
                                .maybe_task_queue(queue)
                                .build();
                        let payload = SizedPayload::of(begun.given, begun.answer, begun.update);
                        drop(here.execute_activity(NoopActivities::on_job, payload, options).await);
                    }
                    .boxed_local();
                    begin(&mut job).await;
                }
                WorkflowCall::End => job = replaced(&mut job).await,
                WorkflowCall::Hear => {
                    hears += 1;
                    let _ = ctx.wait_condition(move |it| it.heard >= hears).await;
                }
                WorkflowCall::Reply => ctx.state_mut(|it| it.answered += 1),
                WorkflowCall::Upsert(pairs) => {
                    ctx.upsert_search_attributes(pairs.iter().filter_map(attribute));
                }
                WorkflowCall::Set(seconds) => {
                    token = WorkflowCancellationToken::new();
                    let options = TimerOptions::builder(Duration::from_secs(seconds))
                        .cancellation_token(token.clone())
                        .build();
                    let here = ctx.clone();
                    timer = async move {
                        let _ = here.timer(options).await;
                    }
                    .boxed_local();
                    begin(&mut timer).await;
                }
                WorkflowCall::TakeBack => token.cancel(),
            }
        }
        drop(timer);
        let _ = ctx.wait_condition(move |it| it.answered >= hears).await;
        Ok(text(answer))
    }

    #[update_validator(tell)]
    #[expect(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "the signature is the engine's"
    )]
    fn may_tell(
        &self,
        _ctx: &WorkflowContextView,
        _parcel: &SizedPayload,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(())
    }

    #[update]
    pub(crate) async fn tell(ctx: &mut WorkflowContext<Self>, payload: SizedPayload) -> String {
        let number = ctx.state_mut(|it| {
            it.heard += 1;
            it.heard
        });
        let _ = ctx.wait_condition(move |it| it.answered >= number).await;
        text(payload.answer)
    }
}

/// Lets something begin, and does not wait for its end.
async fn begin(future: &mut LocalBoxFuture<'static, ()>) {
    poll_fn(|cx| {
        if future.as_mut().poll(cx).is_ready() {
            *future = std::future::ready(()).boxed_local();
        }
        Poll::Ready(())
    })
    .await;
}

/// Waits for an end.
async fn replaced(future: &mut LocalBoxFuture<'static, ()>) -> LocalBoxFuture<'static, ()> {
    future.await;
    std::future::ready(()).boxed_local()
}

fn attribute((name, value): &(String, String)) -> Option<SearchAttributeUpdate> {
    let keys = [&search_attributes::PHASE, &search_attributes::STATE, &search_attributes::RISK];
    let key = keys.into_iter().zip(["TammaPhase", "TammaState", "TammaRisk"]);
    key.into_iter().find(|(_, known)| known == name).map(|(key, _)| key.value_set(value.clone()))
}

/// Activities that do nothing.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NoopActivities;

#[activities]
impl NoopActivities {
    #[activity(name = "bench.local")]
    #[expect(clippy::unused_async, reason = "the signature is the engine's")]
    pub(crate) async fn on_local(
        _ctx: ActivityContext,
        payload: SizedPayload,
    ) -> Result<String, ActivityError> {
        Ok(text(payload.answer))
    }

    #[activity(name = "bench.job")]
    pub(crate) async fn on_job(
        ctx: ActivityContext,
        payload: SizedPayload,
    ) -> Result<String, ActivityError> {
        if let (Some((given, answer)), Some(handle)) =
            (payload.update, ctx.workflow_handle::<BareWorkflow>())
        {
            let options = WorkflowExecuteUpdateOptions::builder().build();
            let payload = SizedPayload::of(given, answer, None);
            handle.execute_update(BareWorkflow::tell, payload, options).await?;
        }
        Ok(text(payload.answer))
    }
}
