//! Workflow of a story's pipeline, and its activities.
//!
//! It turns finished phases, ended tasks and actions of people into events, applies them to the
//! pure pipeline, and carries out its commands. Tasks of a story are child workflows, so their ends
//! arrive as events, without polling. A wait needs no timer, so neither history nor database grows.
#![expect(missing_docs, reason = "the macro generates undocumented constants")]

mod activities;
mod children;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use futures_util::future::{Fuse, FusedFuture as _, FutureExt as _, LocalBoxFuture};
use serde::{Deserialize, Serialize};
use tamma_core::ids::{CommitId, Name, PipelineId, PolicyVersion, ProjectId};
use tamma_core::pipeline::{
    GateAnswer, PhaseRunner, PipelineCommand, PipelineEvent, PipelineRefusal, PipelineRun, step,
};
use tamma_core::pipeline_alert::alert_for;
use tamma_core::rules::Rules;
use tamma_core::time::Timestamp;
use tamma_core::version::Edition;
use temporalio_macros::{workflow, workflow_methods};
use temporalio_workflow::{
    ActivityCancellationType, ActivityExecutionError, ActivityOptions, ContinueAsNewOptions,
    TimerOptions, TimerResult, WaitConditionOptions, WorkflowCancellationToken, WorkflowContext,
    WorkflowContextView, WorkflowResult, select,
};

pub use self::activities::{
    CancelTasksActivity, CancelTasksRequest, DeliveredStory, FinishActivity, MergeRequest,
    MergeTaskActivity, MergedTask, PhaseActivity, PhaseRequest, PhaseResult, PipelineSnapshot,
    PrepareActivity, PreparedStory, RecordPipelineActivity, StoryTasksActivity, StoryTasksRequest,
    names,
};
use self::children::TaskChildren;
use crate::activities::root_message;
use crate::project_turn::project_turn;
use crate::retries::{saving_options, worker_retries};
use crate::task::WorkflowTuning;
use crate::{AGENT_TASK_QUEUE, TASK_QUEUE};

/// Longest time without a result after which a phase counts as hanging. The worker enforces the
/// phase's own limit.
const PHASE_LIMIT: Duration = Duration::from_hours(24 * 8);

/// Attempts to deliver the branch of a run that has ended. Then the run ends without it, so that the
/// story can continue.
const MAX_DELIVERY_ATTEMPTS: u32 = 20;

/// Input of a pipeline's workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PipelineInput {
    /// Pipeline of the story.
    pub pipeline: PipelineId,
    /// Project of the story.
    pub project: ProjectId,
    /// Number of the run of this story, from 1.
    pub number: u32,
    /// Person who started the run.
    pub started_by: Name,
    /// Time of the request.
    pub at: Timestamp,
    /// Rules that the run is pinned to, without secrets.
    pub rules: Rules,
    /// Timeouts and limits of the workflow, and of the workflows of its tasks.
    #[serde(default)]
    pub tuning: WorkflowTuning,
    /// Edition that the tasks of the story start with.
    #[serde(default)]
    pub edition: Edition,
    /// Run that has not started.
    pub run: PipelineRun,
    /// Base commit of an earlier run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<CommitId>,
    /// State of a workflow that continued as new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried: Option<Box<CarriedRun>>,
}

/// State that a workflow carries over when it continues as new, besides the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedRun {
    revision: u64,
    prepared: Option<PreparedStory>,
    retry: PhaseRetry,
}

/// Phase that a worker cannot run yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct PhaseRetry {
    phase: u8,
    job_number: u32,
    /// Delay before it is requested again.
    seconds: u32,
    /// Attempts that began to run it.
    #[serde(default)]
    earlier_attempts: u32,
}

/// Action that a person requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineActionRequest {
    /// Time of the request.
    pub at: Timestamp,
    /// Authenticated name of the person.
    pub by: Name,
    /// Requested action.
    pub action: PipelineAction,
}

/// Action on a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PipelineAction {
    /// Answer at an approval gate.
    Answer(GateAnswer),
    /// Cancel the run.
    Cancel,
}

/// Response to an action: the new run, or the reason for refusing it.
pub type PipelineResponse = Result<PipelineRun, String>;

impl PipelineActionRequest {
    fn event(&self) -> PipelineEvent {
        let by = self.by.clone();
        match self.action {
            PipelineAction::Answer(answer) => PipelineEvent::GateAnswered { answer, by },
            PipelineAction::Cancel => PipelineEvent::Cancelled { by },
        }
    }
}

/// Future in progress.
type BoxedFuture<T> = Fuse<LocalBoxFuture<'static, T>>;

/// Event with its time.
type TimedEvent = (Timestamp, PipelineEvent);

/// Workflow of one run of a story's pipeline.
#[workflow]
pub struct PipelineWorkflow {
    input: PipelineInput,
    policy: PolicyVersion,
    run: PipelineRun,
    /// Number of events applied so far.
    revision: u64,
    prepared: Option<PreparedStory>,
    delivered: Option<DeliveredStory>,
    /// Set while the end of the run is delivered.
    finishing: bool,
    /// Received actions with their message numbers, in order of arrival.
    inbox: VecDeque<(u64, PipelineActionRequest)>,
    message_count: u64,
    /// Responses that have not been fetched yet, by message number.
    responses: BTreeMap<u64, PipelineResponse>,
    /// Commands that have not been carried out yet.
    pending_commands: Vec<PipelineCommand>,
    /// Phase that the next workflow of the run requests again, because the history is long.
    retry: Option<PhaseRetry>,
}

/// Futures that the workflow waits for, besides messages.
struct PhaseInFlight {
    /// Preparation, or running phase. It yields the event of its end, or `None` if it was stopped.
    phase: BoxedFuture<Option<TimedEvent>>,
    /// Stops the running phase.
    stop: WorkflowCancellationToken,
    children: TaskChildren,
}

#[workflow_methods]
impl PipelineWorkflow {
    #[init]
    fn new(_ctx: &WorkflowContextView, mut input: PipelineInput) -> Self {
        let (revision, prepared, retry) = match input.carried.take() {
            Some(carried) => (carried.revision, carried.prepared, Some(carried.retry)),
            None => (0, None, None),
        };
        Self {
            policy: input.rules.version(),
            run: input.run.clone(),
            input,
            revision,
            prepared,
            delivered: None,
            finishing: false,
            inbox: VecDeque::new(),
            message_count: 0,
            responses: BTreeMap::new(),
            pending_commands: Vec::new(),
            retry,
        }
    }

    /// Runs until the run has ended.
    #[run(name = "pipeline")]
    pub async fn run(ctx: &mut WorkflowContext<Self>) -> WorkflowResult<PipelineRun> {
        let stop = WorkflowCancellationToken::new();
        let retry = ctx.state_mut(|it| it.retry.take());
        let phase = if let Some(PhaseRetry { phase, job_number, seconds, earlier_attempts }) = retry
        {
            let request = ctx.state(|it| it.phase_request(phase, job_number));
            let request = PhaseRequest { earlier_attempts, ..request };
            run_phase(ctx.clone(), request, stop.clone(), Some(seconds))
        } else {
            save(ctx).await;
            prepare(ctx.clone(), stop.clone())
        };
        let mut in_flight = PhaseInFlight { phase, stop, children: TaskChildren::default() };
        let mut requester = None;
        let mut saved = 0;
        loop {
            let finish = run_commands(ctx, &mut in_flight).await;
            let revision = ctx.state(|it| it.revision);
            if revision > saved {
                save(ctx).await;
                saved = revision;
            }
            if let Some(number) = requester.take() {
                ctx.state_mut(|it| it.respond(number, Ok(it.run.clone())));
            }
            if ctx.state(|it| it.run.state.is_over()) {
                if let Some(job_number) = finish {
                    finish_run(ctx, &mut in_flight, job_number).await;
                }
                let _ = wait_for_responses(ctx).await;
                return Ok(ctx.state(|it| it.run.clone()));
            }
            if let Some(next) = next_input(ctx).await {
                ctx.continue_as_new(next, ContinueAsNewOptions::default())?;
            }
            let ended = select! {
                ended = &mut in_flight.phase => ended,
                event = in_flight.children.next(ctx).fuse() => Some((now(ctx), event)),
                () = wait_for_message(ctx).fuse() => {
                    let (number, request) = ctx.state_mut(|it| it.inbox.pop_front()).unzip();
                    requester = number;
                    request.map(|request| (request.at, request.event()))
                }
            };
            let Some((at, event)) = ended else { continue };
            if let Err(refusal) = ctx.state_mut(|it| it.apply(at, event)) {
                // A result that came too late: the run is unchanged.
                if let Some(number) = requester.take() {
                    ctx.state_mut(|it| it.respond(number, Err(refusal.to_string())));
                }
            }
        }
    }

    #[update_validator(act)]
    fn validate_action(
        &self,
        _ctx: &WorkflowContextView,
        request: &PipelineActionRequest,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        if self.finishing && request.action == PipelineAction::Cancel {
            return Ok(());
        }
        Ok(step(&self.run, request.at, request.event()).map(drop)?)
    }

    /// Handles a person's action. The validator refuses it if the pipeline would.
    #[update(name = "act")]
    pub async fn act(
        ctx: &mut WorkflowContext<Self>,
        request: PipelineActionRequest,
    ) -> PipelineResponse {
        let number = ctx.state_mut(|it| {
            it.message_count += 1;
            it.inbox.push_back((it.message_count, request));
            it.message_count
        });
        let has_response = move |it: &Self| it.responses.contains_key(&number);
        let _ = ctx.wait_condition_with_options(has_response, uncancellable_wait()).await;
        let no_response = || Err("no response from the pipeline's workflow".to_owned());
        ctx.state_mut(|it| it.responses.remove(&number)).unwrap_or_else(no_response)
    }
}

impl PipelineWorkflow {
    /// Applies an event to the run, and queues its commands.
    fn apply(&mut self, at: Timestamp, event: PipelineEvent) -> Result<(), PipelineRefusal> {
        let (next, commands) = step(&self.run, at, event)?;
        self.revision += 1;
        self.run = next;
        self.pending_commands.extend(commands);
        Ok(())
    }

    /// Returns the reason why a run that has ended refuses an action.
    fn refusal(&self, request: &PipelineActionRequest) -> String {
        let refused = step(&self.run, request.at, request.event()).err();
        refused.map_or_else(|| "the run is over".to_owned(), |refusal| refusal.to_string())
    }

    fn respond(&mut self, number: u64, response: PipelineResponse) {
        self.responses.insert(number, response);
    }

    fn snapshot(&self, at: Timestamp) -> PipelineSnapshot {
        PipelineSnapshot {
            pipeline: self.input.pipeline,
            number: self.input.number,
            revision: self.revision,
            at,
            started_by: self.input.started_by.clone(),
            started_at: self.input.at,
            run: self.run.clone(),
            prepared: self
                .prepared
                .clone()
                .map(|it| PreparedStory { records: BTreeMap::new(), ..it }),
            delivered: self.delivered.clone(),
            finishing: self.finishing,
            alert: alert_for(&self.run.state, &self.input.rules),
        }
    }

    /// Returns the input for continue-as-new, if a phase waits and no request does.
    fn next_input(&self) -> Option<PipelineInput> {
        let retry = self.retry.filter(|_| self.inbox.is_empty())?;
        let prepared = self.prepared.clone();
        let prepared = prepared.map(|it| PreparedStory { records: BTreeMap::new(), ..it });
        let carried = CarriedRun { revision: self.revision, prepared, retry };
        let (run, carried) = (self.run.clone(), Some(Box::new(carried)));
        Some(PipelineInput { run, carried, ..self.input.clone() })
    }

    fn phase_request(&self, phase: u8, job_number: u32) -> PhaseRequest {
        PhaseRequest {
            pipeline: self.input.pipeline,
            project: self.input.project,
            policy: self.policy,
            started_by: self.input.started_by.clone(),
            base: self.prepared.as_ref().map(|it| it.base).or(self.input.base),
            story_path: self.prepared.as_ref().map(|it| it.story_path.clone()),
            run: self.run.clone(),
            phase,
            job_number,
            earlier_attempts: 0,
        }
    }
}

/// Carries out pending commands. Returns the job number of the run's end, if it has ended.
async fn run_commands(
    ctx: &WorkflowContext<PipelineWorkflow>,
    in_flight: &mut PhaseInFlight,
) -> Option<u32> {
    let mut finish = None;
    while let Some(command) =
        ctx.state_mut(|it| (!it.pending_commands.is_empty()).then(|| it.pending_commands.remove(0)))
    {
        match command {
            PipelineCommand::RunPhase { phase, job_number } => {
                in_flight.stop = WorkflowCancellationToken::new();
                let request = ctx.state(|it| it.phase_request(phase, job_number));
                in_flight.phase = run_phase(ctx.clone(), request, in_flight.stop.clone(), None);
            }
            PipelineCommand::StopPhase { .. } => {
                in_flight.stop.cancel_with_reason("cancelled".to_owned());
            }
            PipelineCommand::StartTasks { phase, keys } => {
                let tasks = children::start_tasks(ctx, &mut in_flight.children, phase, keys).await;
                let at = now(ctx);
                let event = PipelineEvent::TasksStarted { phase, tasks };
                let _ = ctx.state_mut(|it| it.apply(at, event));
            }
            PipelineCommand::CancelTasks { tasks, by, .. } => {
                in_flight.children.cancel(ctx, tasks, by);
            }
            PipelineCommand::Finish { job_number } => {
                ctx.state_mut(|it| it.finishing = true);
                finish = Some(job_number);
            }
        }
    }
    finish
}

/// Prepares the story: its worktree, its folder and its files. Returns the first event of the run.
fn prepare(
    ctx: WorkflowContext<PipelineWorkflow>,
    stop: WorkflowCancellationToken,
) -> BoxedFuture<Option<TimedEvent>> {
    async move {
        let request = ctx.state(|it| it.phase_request(it.run.request.from, 0));
        let options = activity_options(&ctx, TASK_QUEUE, stop);
        let event = match ctx.execute_activity(PrepareActivity, request, options).await {
            Ok(prepared) => {
                ctx.state_mut(|it| {
                    it.run.adopt_records(&prepared.records);
                    it.prepared = Some(prepared);
                });
                PipelineEvent::Start
            }
            Err(ActivityExecutionError::Cancelled(_)) => return None,
            Err(error) => PipelineEvent::NotPrepared { error: root_message(&error) },
        };
        Some((now(&ctx), event))
    }
    .boxed_local()
    .fuse()
}

/// Runs a phase after a delay, and returns the event of its end. A worker that cannot run it yet is
/// asked again, if necessary by the next workflow of the run.
fn run_phase(
    ctx: WorkflowContext<PipelineWorkflow>,
    mut request: PhaseRequest,
    stop: WorkflowCancellationToken,
    mut delay: Option<u32>,
) -> BoxedFuture<Option<TimedEvent>> {
    async move {
        let phase = request.phase;
        let runner = request.run.request.phase(phase).map(|it| it.runner).unwrap_or_default();
        let queue = match runner {
            PhaseRunner::Agent => AGENT_TASK_QUEUE,
            PhaseRunner::Command
            | PhaseRunner::Tasks
            | PhaseRunner::Approval
            | PhaseRunner::Status => TASK_QUEUE,
        };
        loop {
            if let Some(seconds) = delay {
                let delay = TimerOptions::builder(Duration::from_secs(u64::from(seconds)))
                    .cancellation_token(stop.clone())
                    .build();
                if ctx.timer(delay).await == TimerResult::Cancelled {
                    return None;
                }
            }
            let options = activity_options(&ctx, queue, stop.clone());
            let seconds = match ctx.execute_activity(PhaseActivity, request.clone(), options).await
            {
                Ok(PhaseResult::Ended { at, event }) => return Some((at, *event)),
                Ok(PhaseResult::RetryAfter { seconds, attempts }) => {
                    // Workers of earlier versions return no number.
                    request.earlier_attempts = request.earlier_attempts.max(attempts);
                    seconds
                }
                Err(ActivityExecutionError::Cancelled(_)) => return None,
                Err(error) => {
                    let work = tamma_core::pipeline::PhaseWork::default();
                    let event = if error.as_timeout().is_some() {
                        PipelineEvent::PhaseTimedOut { phase, work }
                    } else {
                        let error = root_message(&error);
                        PipelineEvent::PhaseCrashed { phase, error, work }
                    };
                    return Some((now(&ctx), event));
                }
            };
            if ctx.state(|it| ctx.history_length() > it.input.tuning.history_events) {
                let PhaseRequest { job_number, earlier_attempts, .. } = request;
                let retry = PhaseRetry { phase, job_number, seconds, earlier_attempts };
                ctx.state_mut(|it| it.retry = Some(retry));
                return None;
            }
            delay = Some(seconds);
        }
    }
    .boxed_local()
    .fuse()
}

/// Waits for a stopped phase, then writes the story's files, delivers its branch and saves the end.
async fn finish_run(
    ctx: &WorkflowContext<PipelineWorkflow>,
    in_flight: &mut PhaseInFlight,
    job_number: u32,
) {
    if !in_flight.phase.is_terminated() {
        // A cancelled run may still be preparing.
        in_flight.stop.cancel_with_reason("the run has ended".to_owned());
        (&mut in_flight.phase).await;
    }
    in_flight.children.finish().await;
    let phase = ctx.state(|it| it.run.current_phase());
    let request = ctx.state(|it| it.phase_request(phase, job_number));
    let delivered = deliver(ctx, request).await;
    ctx.state_mut(|it| {
        it.revision += 1;
        it.delivered = Some(delivered);
        it.finishing = false;
    });
    save(ctx).await;
}

/// Writes the story's files and delivers its branch. A person can cancel it.
async fn deliver(ctx: &WorkflowContext<PipelineWorkflow>, request: PhaseRequest) -> DeliveredStory {
    let stop = WorkflowCancellationToken::new();
    let mut options = activity_options(ctx, TASK_QUEUE, stop.clone());
    if let Some(retries) = &mut options.retry_policy {
        retries.set_maximum_attempts(MAX_DELIVERY_ATTEMPTS);
    }
    let mut finish = ctx.execute_activity(FinishActivity, request, options).boxed_local().fuse();
    let mut cancelled_by = None;
    let delivered = loop {
        select! {
            delivered = &mut finish => break delivered,
            () = wait_for_message(ctx).fuse() => {
                let message = ctx.state_mut(|it| it.inbox.pop_front());
                let Some((number, request)) = message else { continue };
                let response = match request.action {
                    PipelineAction::Answer(_) => Err(ctx.state(|it| it.refusal(&request))),
                    PipelineAction::Cancel => {
                        stop.cancel_with_reason(format!("cancelled by {}", request.by));
                        cancelled_by = Some(request.by);
                        Ok(ctx.state(|it| it.run.clone()))
                    }
                };
                ctx.state_mut(|it| it.respond(number, response));
            }
        }
    };
    let error = match (delivered, cancelled_by) {
        (Ok(delivered), _) => return delivered,
        (Err(_), Some(by)) => format!("cancelled by {by}"),
        (Err(error), None) => root_message(&error),
    };
    DeliveredStory { error: Some(error), ..DeliveredStory::default() }
}

/// Saves the run, with retries. The database is a projection of the workflow.
async fn save(ctx: &WorkflowContext<PipelineWorkflow>) {
    let at = now(ctx);
    let snapshot = ctx.state(|it| it.snapshot(at));
    // A snapshot that cannot be saved is replaced by the next one.
    let _ = ctx.execute_local_activity(RecordPipelineActivity, snapshot, saving_options()).await;
}

fn activity_options(
    ctx: &WorkflowContext<PipelineWorkflow>,
    queue: &str,
    stop: WorkflowCancellationToken,
) -> ActivityOptions {
    let (heartbeat, project) = ctx.state(|it| {
        let heartbeat = Duration::from_secs(u64::from(it.input.tuning.heartbeat_seconds));
        (heartbeat, it.input.project)
    });
    ActivityOptions::with_start_to_close_timeout(PHASE_LIMIT)
        .heartbeat_timeout(heartbeat)
        .retry_policy(worker_retries())
        .cancellation_type(ActivityCancellationType::WaitCancellationCompleted)
        .cancellation_token(stop)
        .task_queue(queue.to_owned())
        .priority(project_turn(project, None))
        .build()
}

/// Returns the current time, which is deterministic under replay.
fn now(ctx: &WorkflowContext<PipelineWorkflow>) -> Timestamp {
    ctx.workflow_time().map(Timestamp::from).unwrap_or_default()
}

async fn wait_for_message(ctx: &WorkflowContext<PipelineWorkflow>) {
    let _ = ctx.wait_condition_with_options(|it| !it.inbox.is_empty(), uncancellable_wait()).await;
}

/// Waits until all requests have a response.
async fn wait_for_responses(
    ctx: &WorkflowContext<PipelineWorkflow>,
) -> Result<(), temporalio_workflow::WorkflowCancellationError> {
    // The run is over, so every open request is refused.
    while let Some((number, request)) = ctx.state_mut(|it| it.inbox.pop_front()) {
        ctx.state_mut(|it| it.respond(number, Err(it.refusal(&request))));
    }
    let context = ctx.clone();
    ctx.wait_condition_with_options(move |_| context.all_handlers_finished(), uncancellable_wait())
        .await
}

/// Returns the input of the next workflow of the run, if this one has a long history and no request
/// is open. It waits for a phase then, so none of its tasks runs.
async fn next_input(ctx: &WorkflowContext<PipelineWorkflow>) -> Option<PipelineInput> {
    ctx.state(|it| it.retry)?;
    let context = ctx.clone();
    let is_settled =
        move |it: &PipelineWorkflow| !it.inbox.is_empty() || context.all_handlers_finished();
    let _ = ctx.wait_condition_with_options(is_settled, uncancellable_wait()).await;
    ctx.state(PipelineWorkflow::next_input)
}

/// Returns options for a wait that survives cancellation of the workflow. Pipelines are cancelled
/// through an action, so that nothing is left running.
fn uncancellable_wait() -> WaitConditionOptions {
    WaitConditionOptions::builder().cancellation_token(WorkflowCancellationToken::new()).build()
}
