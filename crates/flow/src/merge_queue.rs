//! Workflow of a merge queue, and its activities.
//!
//! There is one for each repository and branch. It starts with the first entry and never ends. While
//! it is empty it waits for a signal, without a timer, so neither history nor database grows.
#![expect(missing_docs, reason = "the macro generates undocumented constants")]

mod activities;

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::future::{Fuse, FusedFuture as _, FutureExt as _};
use serde::{Deserialize, Serialize};
use tamma_core::ids::Name;
use tamma_core::merge_queue::{
    MergeEntry, MergeQueue, QueueAddress, QueueCommand, QueueEvent, step,
};
use tamma_core::time::Timestamp;
use temporalio_macros::{workflow, workflow_methods};
use temporalio_workflow::{
    ActivityCancellationType, ActivityExecutionError, ActivityOptions, ContinueAsNewOptions,
    SyncWorkflowContext, TimerOptions, TimerResult, WaitConditionOptions,
    WorkflowCancellationToken, WorkflowContext, WorkflowContextView, WorkflowResult, select,
};

pub use self::activities::{
    AdvanceActivity, AdvanceRequest, AdvanceResult, BuildBatchActivity, BuildBatchRequest,
    QueueGatesActivity, QueueGatesRequest, QueueGatesResult, QueueSnapshot, RecordQueueActivity,
    SettleActivity, SettleRequest, Settlement, VerifyLandedActivity, VerifyLandedRequest, names,
};
use crate::TASK_QUEUE;
use crate::activities::root_message;
use crate::project_turn::project_turn;
use crate::retries::{saving_options, worker_retries};
use crate::task::{BoxedFuture, WorkflowTuning};

/// Longest time without a result after which a step counts as hanging. Gates have their own limits.
const STEP_LIMIT: Duration = Duration::from_hours(24);

/// Input of a queue's workflow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeQueueInput {
    /// Branch.
    pub queue: QueueAddress,
    /// Timeouts and limits of the workflow.
    #[serde(default)]
    pub tuning: WorkflowTuning,
    /// State; that of an earlier run if the workflow continued as new.
    #[serde(default)]
    pub state: MergeQueue,
    /// Commands that the earlier run did not carry out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending_commands: Vec<QueueCommand>,
}

impl MergeQueueInput {
    /// Returns the input of a new queue.
    pub fn new(queue: QueueAddress) -> Self {
        let (tuning, state) = (WorkflowTuning::default(), MergeQueue::new(1));
        Self { queue, tuning, state, pending_commands: Vec::new() }
    }
}

/// Change that is added to a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnqueueSignal {
    /// Time of the request.
    pub at: Timestamp,
    /// The change.
    pub entry: MergeEntry,
    /// Most entries that are tested together.
    pub batch: u8,
}

/// Action on a queue that a person requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueActionRequest {
    /// Time of the request.
    pub at: Timestamp,
    /// Authenticated name of the person.
    pub by: Name,
    /// Requested action.
    pub action: QueueAction,
}

/// Action on a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueAction {
    /// Build nothing until it is resumed.
    Pause {
        /// Reason in the person's words.
        reason: String,
    },
    /// Go on.
    Resume,
}

impl QueueActionRequest {
    fn event(&self) -> QueueEvent {
        let by = self.by.clone();
        match &self.action {
            QueueAction::Pause { reason } => QueueEvent::Paused { by, reason: reason.clone() },
            QueueAction::Resume => QueueEvent::Resumed { by },
        }
    }
}

/// Workflow of one merge queue.
#[workflow]
pub struct MergeQueueWorkflow {
    input: MergeQueueInput,
    queue: MergeQueue,
    /// Received events, in order of arrival.
    inbox: VecDeque<(Timestamp, QueueEvent)>,
    /// Commands that have not been carried out yet.
    pending_commands: Vec<QueueCommand>,
}

/// Futures that the workflow waits for, besides messages.
struct QueueInFlight {
    /// Step of the current build. It yields its result, or `None` if it was stopped.
    build: BoxedFuture<Option<QueueEvent>>,
    /// Stops the step.
    stop: WorkflowCancellationToken,
    timer: BoxedFuture<()>,
    /// Time at which the timer fires.
    timer_at: Option<Timestamp>,
    cancel_timer: WorkflowCancellationToken,
}

#[workflow_methods]
impl MergeQueueWorkflow {
    #[init]
    fn new(_ctx: &WorkflowContextView, mut input: MergeQueueInput) -> Self {
        Self {
            queue: std::mem::take(&mut input.state),
            pending_commands: std::mem::take(&mut input.pending_commands),
            input,
            inbox: VecDeque::new(),
        }
    }

    /// Lands changes, for ever.
    #[run(name = "merge_queue")]
    pub async fn run(ctx: &mut WorkflowContext<Self>) -> WorkflowResult<()> {
        let mut in_flight = QueueInFlight {
            build: Fuse::terminated(),
            stop: WorkflowCancellationToken::new(),
            timer: Fuse::terminated(),
            timer_at: None,
            cancel_timer: WorkflowCancellationToken::new(),
        };
        let mut is_saved = false;
        loop {
            run_commands(ctx, &mut in_flight).await;
            if !is_saved {
                save(ctx).await;
                is_saved = true;
            }
            set_timer(ctx, &mut in_flight);
            let (at, event) = select! {
                ended = &mut in_flight.build => match ctx.state(|it| it.build_event(ended)) {
                    Some(event) => (now(ctx), event),
                    None => continue,
                },
                () = wait_for_message(ctx).fuse() => {
                    match ctx.state_mut(|it| it.inbox.pop_front()) {
                        Some(received) => received,
                        None => continue,
                    }
                }
                () = &mut in_flight.timer => {
                    in_flight.timer_at = None;
                    (now(ctx), QueueEvent::Tick)
                }
            };
            // A refused event leaves the queue as it is: a result that came too late, or an action
            // that another one has overtaken.
            if ctx.state_mut(|it| it.apply(at, event)) {
                is_saved = false;
            }
            let long = ctx.state(|it| ctx.history_length() > it.input.tuning.history_events);
            if long && in_flight.build.is_terminated() && ctx.state(|it| it.inbox.is_empty()) {
                let next = ctx.state(Self::next_input);
                ctx.continue_as_new(next, ContinueAsNewOptions::default())?;
            }
        }
    }

    /// Adds a change.
    #[signal(name = "enqueue")]
    pub fn enqueue(&mut self, _ctx: &mut SyncWorkflowContext<Self>, added: EnqueueSignal) {
        let EnqueueSignal { at, entry, batch } = added;
        self.inbox.push_back((at, QueueEvent::Enqueued { entry, batch }));
    }

    #[update_validator(act)]
    fn validate_action(
        &self,
        _ctx: &WorkflowContextView,
        request: &QueueActionRequest,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(step(&self.queue, request.at, request.event()).map(drop)?)
    }

    /// Handles a person's action. The validator refuses it if the queue would.
    #[update(name = "act")]
    #[expect(clippy::needless_pass_by_value, reason = "signature required by the macro")]
    pub fn act(&mut self, _ctx: &mut SyncWorkflowContext<Self>, request: QueueActionRequest) {
        self.inbox.push_back((request.at, request.event()));
    }
}

impl MergeQueueWorkflow {
    /// Applies an event, and queues its commands. Returns `false` if it is refused.
    fn apply(&mut self, at: Timestamp, event: QueueEvent) -> bool {
        let Ok((next, commands)) = step(&self.queue, at, event) else { return false };
        self.queue = next;
        self.pending_commands.extend(commands);
        true
    }

    /// Returns the event of a step that ended. The result of a discarded build does not matter.
    fn build_event(&self, ended: Option<QueueEvent>) -> Option<QueueEvent> {
        let build = self.queue.build.as_ref()?;
        let stopped = QueueEvent::Stopped { number: build.number };
        Some(ended.filter(|_| !build.is_discarded).unwrap_or(stopped))
    }

    fn next_input(&self) -> MergeQueueInput {
        MergeQueueInput {
            state: self.queue.clone(),
            pending_commands: self.pending_commands.clone(),
            ..self.input.clone()
        }
    }
}

/// Carries out pending commands. Tasks and people are told before the next step starts.
async fn run_commands(ctx: &WorkflowContext<MergeQueueWorkflow>, in_flight: &mut QueueInFlight) {
    let queue = ctx.state(|it| it.input.queue.clone());
    let mut settlements = Vec::new();
    let mut start = None;
    for command in ctx.state_mut(|it| std::mem::take(&mut it.pending_commands)) {
        match command {
            QueueCommand::StopBuild { .. } => {
                in_flight.stop.cancel_with_reason("the build is not wanted".to_owned());
            }
            QueueCommand::SettleLanded { entry, commit } => {
                settlements.push(Settlement::Landed { entry, commit });
            }
            QueueCommand::ReturnEntry { entry, reason, log } => {
                settlements.push(Settlement::Returned { entry, reason, log });
            }
            QueueCommand::DropEntry { entry } => settlements.push(Settlement::Dropped { entry }),
            QueueCommand::Alert { reason } => {
                let waiting = ctx.state(|it| it.queue.entries.iter().map(|it| it.key).collect());
                settlements.push(Settlement::Alert { reason, waiting });
            }
            step @ (QueueCommand::BuildBatch { .. }
            | QueueCommand::RunGates { .. }
            | QueueCommand::Advance { .. }
            | QueueCommand::VerifyLanded { .. }) => start = Some(step),
        }
    }
    if !settlements.is_empty() {
        let request = SettleRequest { queue: queue.clone(), settlements };
        let options = activity_options(ctx, WorkflowCancellationToken::new());
        // The worker records failures that a retry cannot help on their entries.
        let _ = ctx.execute_activity(SettleActivity, request, options).await;
    }
    if let Some(command) = start {
        in_flight.stop = WorkflowCancellationToken::new();
        in_flight.build = run_step(ctx.clone(), queue, command, in_flight.stop.clone());
    }
}

/// Runs a step of a build, and returns the event of its end.
fn run_step(
    ctx: WorkflowContext<MergeQueueWorkflow>,
    queue: QueueAddress,
    command: QueueCommand,
    stop: WorkflowCancellationToken,
) -> BoxedFuture<Option<QueueEvent>> {
    async move {
        let options = activity_options(&ctx, stop);
        let (number, ended) = match command {
            QueueCommand::BuildBatch { number, entries } => {
                let request = BuildBatchRequest { queue, number, entries };
                let built = ctx.execute_activity(BuildBatchActivity, request, options).await;
                let event = |built| QueueEvent::BatchBuilt { number, built: Box::new(built) };
                (number, built.map(event))
            }
            QueueCommand::RunGates { number, commit, attempt, entries } => {
                let base =
                    ctx.state(|it| it.queue.build.as_ref()?.commit.as_ref().map(|it| it.tip));
                let base = base.unwrap_or(commit);
                let request = QueueGatesRequest { queue, number, commit, base, attempt, entries };
                let ran = ctx.execute_activity(QueueGatesActivity, request, options).await;
                let event = |QueueGatesResult { passed, log }| QueueEvent::GatesFinished {
                    number,
                    passed,
                    log,
                };
                (number, ran.map(event))
            }
            QueueCommand::Advance { number, commit, entries } => {
                let request = AdvanceRequest { queue, number, commit, entries };
                let ended = ctx.execute_activity(AdvanceActivity, request, options).await;
                let event = |result| match result {
                    AdvanceResult::Advanced => QueueEvent::Advanced { number },
                    AdvanceResult::TipMoved => QueueEvent::TipMoved { number },
                    AdvanceResult::Left(left) => QueueEvent::EntriesLeft { number, left },
                };
                (number, ended.map(event))
            }
            QueueCommand::VerifyLanded { number, commit } => {
                let request = VerifyLandedRequest { queue, commit };
                let read = ctx.execute_activity(VerifyLandedActivity, request, options).await;
                (number, read.map(|tree| QueueEvent::LandedTree { number, tree }))
            }
            QueueCommand::StopBuild { .. }
            | QueueCommand::SettleLanded { .. }
            | QueueCommand::ReturnEntry { .. }
            | QueueCommand::DropEntry { .. }
            | QueueCommand::Alert { .. } => return None,
        };
        match ended {
            Ok(event) => Some(event),
            Err(ActivityExecutionError::Cancelled(_)) => None,
            Err(error) => Some(QueueEvent::Failed { number, reason: root_message(&error) }),
        }
    }
    .boxed_local()
    .fuse()
}

/// Saves the queue for people, with retries. The database is a projection of the workflow.
async fn save(ctx: &WorkflowContext<MergeQueueWorkflow>) {
    let at = now(ctx);
    let snapshot = ctx.state(|it| QueueSnapshot {
        queue: it.input.queue.clone(),
        state: it.queue.clone(),
        at,
    });
    // A snapshot that cannot be saved is replaced by the next one.
    let _ = ctx.execute_local_activity(RecordQueueActivity, snapshot, saving_options()).await;
}

fn activity_options(
    ctx: &WorkflowContext<MergeQueueWorkflow>,
    stop: WorkflowCancellationToken,
) -> ActivityOptions {
    let (heartbeat, project) = ctx.state(|it| {
        let heartbeat = Duration::from_secs(u64::from(it.input.tuning.heartbeat_seconds));
        (heartbeat, it.input.queue.project)
    });
    ActivityOptions::with_start_to_close_timeout(STEP_LIMIT)
        .heartbeat_timeout(heartbeat)
        .retry_policy(worker_retries())
        .cancellation_type(ActivityCancellationType::WaitCancellationCompleted)
        .cancellation_token(stop)
        .task_queue(TASK_QUEUE.to_owned())
        .priority(project_turn(project, None))
        .build()
}

/// Sets the timer for the next entry that waits. An earlier timer stays: when it fires without effect,
/// the next one is set.
fn set_timer(ctx: &WorkflowContext<MergeQueueWorkflow>, in_flight: &mut QueueInFlight) {
    let Some(at) = ctx.state(|it| it.queue.wake_at()) else { return };
    if in_flight.timer_at.is_some_and(|set| set <= at) {
        return;
    }
    in_flight.cancel_timer.cancel();
    in_flight.cancel_timer = WorkflowCancellationToken::new();
    in_flight.timer_at = Some(at);
    let (ctx, token) = (ctx.clone(), in_flight.cancel_timer.clone());
    in_flight.timer = async move {
        let left = (at - now(&ctx)).to_std().unwrap_or_default();
        let timer = TimerOptions::builder(left).cancellation_token(token).build();
        if ctx.timer(timer).await == TimerResult::Cancelled {
            std::future::pending::<()>().await;
        }
    }
    .boxed_local()
    .fuse();
}

/// Returns the current time, which is deterministic under replay.
fn now(ctx: &WorkflowContext<MergeQueueWorkflow>) -> Timestamp {
    ctx.workflow_time().map(Timestamp::from).unwrap_or_default()
}

async fn wait_for_message(ctx: &WorkflowContext<MergeQueueWorkflow>) {
    let options = WaitConditionOptions::builder();
    let options = options.cancellation_token(WorkflowCancellationToken::new()).build();
    let _ = ctx.wait_condition_with_options(|it| !it.inbox.is_empty(), options).await;
}
