//! Workflow of a story's pipeline, and its activities.
//!
//! It turns finished phases, ended tasks and actions of people into events, applies them to the
//! pure pipeline, and carries out its commands. Tasks of a story are child workflows, so their ends
//! arrive as events and nothing polls. A wait holds no timer: history and database stay as they are.
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
    ActivityCancellationType, ActivityExecutionError, ActivityOptions, LocalActivityOptions,
    RetryPolicy, TimerOptions, TimerResult, WaitConditionOptions, WorkflowCancellationToken,
    WorkflowContext, WorkflowContextView, WorkflowResult, select,
};

pub use self::activities::{
    CancelTasksActivity, CancelTasksRequest, DeliveredStory, FinishActivity, MergeRequest,
    MergeTaskActivity, MergedTask, PhaseActivity, PhaseRequest, PhaseResult, PipelineSnapshot,
    PrepareActivity, PreparedStory, RecordPipelineActivity, StoryTasksActivity, StoryTasksRequest,
    names,
};
use self::children::TaskChildren;
use crate::activities::NON_RETRYABLE;
use crate::task::WorkflowTuning;
use crate::{AGENT_TASK_QUEUE, TASK_QUEUE};

/// Longest error of a failed activity that the run keeps, in characters.
const MAX_ERROR_CHARS: usize = 1000;

/// Longest time without a result after which a phase counts as hanging. The worker enforces the
/// phase's own limit.
const PHASE_LIMIT: Duration = Duration::from_hours(24 * 8);

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
    /// Answer at a gate.
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
}

/// Futures that the workflow waits for, besides messages.
struct PhaseInFlight {
    /// Running phase. It yields the event of its end, or `None` if it was stopped.
    phase: BoxedFuture<Option<TimedEvent>>,
    /// Stops the running phase.
    stop: WorkflowCancellationToken,
    children: TaskChildren,
}

#[workflow_methods]
impl PipelineWorkflow {
    #[init]
    fn new(_ctx: &WorkflowContextView, input: PipelineInput) -> Self {
        Self {
            policy: input.rules.version(),
            run: input.run.clone(),
            input,
            revision: 0,
            prepared: None,
            delivered: None,
            finishing: false,
            inbox: VecDeque::new(),
            message_count: 0,
            responses: BTreeMap::new(),
            pending_commands: Vec::new(),
        }
    }

    /// Runs until the run has ended.
    #[run(name = "pipeline")]
    pub async fn run(ctx: &mut WorkflowContext<Self>) -> WorkflowResult<PipelineRun> {
        save(ctx).await;
        let first = match prepare(ctx).await {
            Ok(prepared) => {
                ctx.state_mut(|it| {
                    it.run.adopt_records(&prepared.records);
                    it.prepared = Some(prepared);
                });
                PipelineEvent::Start
            }
            Err(error) => PipelineEvent::NotPrepared { error },
        };
        let at = now(ctx);
        // A run that has not started accepts both events.
        let _ = ctx.state_mut(|it| it.apply(at, first));
        let mut in_flight = PhaseInFlight {
            phase: Fuse::terminated(),
            stop: WorkflowCancellationToken::new(),
            children: TaskChildren::default(),
        };
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

    /// Returns the run.
    #[query(name = "current_run")]
    pub fn current_run(&self, _ctx: &WorkflowContextView) -> PipelineRun {
        self.run.clone()
    }

    #[update_validator(act)]
    fn validate_action(
        &self,
        _ctx: &WorkflowContextView,
        request: &PipelineActionRequest,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
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
                in_flight.phase = run_phase(ctx.clone(), request, in_flight.stop.clone());
            }
            PipelineCommand::StopPhase { .. } => {
                in_flight.stop.cancel_with_reason("cancelled".to_owned());
            }
            // These are states of the run; people see them in the database.
            PipelineCommand::AskGate { .. } | PipelineCommand::AskSplit { .. } => {}
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

/// Prepares the story: its worktree, its folder and its files.
async fn prepare(ctx: &WorkflowContext<PipelineWorkflow>) -> Result<PreparedStory, String> {
    let request = ctx.state(|it| it.phase_request(it.run.request.from, 0));
    let options = activity_options(ctx, TASK_QUEUE, WorkflowCancellationToken::new());
    let prepared = ctx.execute_activity(PrepareActivity, request, options).await;
    prepared.map_err(|error| root_message(&error))
}

/// Runs a phase, and returns the event of its end. A worker that cannot run it yet is asked again.
fn run_phase(
    ctx: WorkflowContext<PipelineWorkflow>,
    request: PhaseRequest,
    stop: WorkflowCancellationToken,
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
            let options = activity_options(&ctx, queue, stop.clone());
            let seconds = match ctx.execute_activity(PhaseActivity, request.clone(), options).await
            {
                Ok(PhaseResult::Ended { at, event }) => return Some((at, *event)),
                Ok(PhaseResult::RetryAfter { seconds }) => seconds,
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
            let delay = TimerOptions::builder(Duration::from_secs(u64::from(seconds)))
                .cancellation_token(stop.clone())
                .build();
            if ctx.timer(delay).await == TimerResult::Cancelled {
                return None;
            }
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
        (&mut in_flight.phase).await;
    }
    in_flight.children.finish().await;
    let phase = ctx.state(|it| it.run.current_phase());
    let request = ctx.state(|it| it.phase_request(phase, job_number));
    let options = activity_options(ctx, TASK_QUEUE, WorkflowCancellationToken::new());
    let delivered = match ctx.execute_activity(FinishActivity, request, options).await {
        Ok(delivered) => delivered,
        Err(error) => DeliveredStory { error: Some(root_message(&error)), ..Default::default() },
    };
    ctx.state_mut(|it| {
        it.revision += 1;
        it.delivered = Some(delivered);
        it.finishing = false;
    });
    save(ctx).await;
}

/// Saves the run, with retries. The database is a projection of the workflow.
async fn save(ctx: &WorkflowContext<PipelineWorkflow>) {
    let at = now(ctx);
    let snapshot = ctx.state(|it| it.snapshot(at));
    let retries = RetryPolicy::builder()
        .initial_interval(Duration::from_millis(200))
        .backoff_coefficient(1.5)
        .maximum_interval(Duration::from_secs(10))
        .non_retryable_error_types([NON_RETRYABLE])
        .build();
    let options = LocalActivityOptions::builder()
        .start_to_close_timeout(Duration::from_secs(30))
        .retry_policy(retries)
        .cancellation_token(WorkflowCancellationToken::new())
        .build();
    // A snapshot that cannot be saved is replaced by the next one.
    let _ = ctx.execute_local_activity(RecordPipelineActivity, snapshot, options).await;
}

fn activity_options(
    ctx: &WorkflowContext<PipelineWorkflow>,
    queue: &str,
    stop: WorkflowCancellationToken,
) -> ActivityOptions {
    let heartbeat =
        ctx.state(|it| Duration::from_secs(u64::from(it.input.tuning.heartbeat_seconds)));
    let retries = RetryPolicy::builder()
        .initial_interval(Duration::from_millis(500))
        .maximum_interval(Duration::from_secs(30))
        .non_retryable_error_types([NON_RETRYABLE])
        .build();
    ActivityOptions::with_start_to_close_timeout(PHASE_LIMIT)
        .heartbeat_timeout(heartbeat)
        .retry_policy(retries)
        .cancellation_type(ActivityCancellationType::WaitCancellationCompleted)
        .cancellation_token(stop)
        .task_queue(queue.to_owned())
        .build()
}

/// Returns the worker's own error message, without Temporal's wrapping.
fn root_message(error: &ActivityExecutionError) -> String {
    let Some(mut failure) = error.failure() else { return error.to_string() };
    while let Some(cause) = &failure.cause {
        failure = cause;
    }
    let text = if failure.message.is_empty() { error.to_string() } else { failure.message.clone() };
    text.chars().take(MAX_ERROR_CHARS).collect()
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
        let refused = ctx.state(|it| step(&it.run, request.at, request.event()).err());
        let reason = refused.map_or_else(|| "the run is over".to_owned(), |it| it.to_string());
        ctx.state_mut(|it| it.respond(number, Err(reason)));
    }
    let context = ctx.clone();
    ctx.wait_condition_with_options(move |_| context.all_handlers_finished(), uncancellable_wait())
        .await
}

/// Returns options for a wait that survives cancellation of the workflow. Pipelines are cancelled
/// through an action, so that nothing is left running.
fn uncancellable_wait() -> WaitConditionOptions {
    WaitConditionOptions::builder().cancellation_token(WorkflowCancellationToken::new()).build()
}
