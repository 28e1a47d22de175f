//! Workflow of one task.
//!
//! It turns finished jobs, actions of people and timers into events, applies them to the state
//! machine, and carries out its commands. It must be deterministic under replay, so a change that
//! an old history would notice needs a patch (see `docs/decisions/0006-durable-shell.md`).
#![expect(missing_docs, reason = "the macro generates undocumented constants")]

mod forge_news;
mod jobs;
mod messages;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use futures_util::future::{Fuse, FutureExt as _, LocalBoxFuture};
use serde::{Deserialize, Serialize};
use tamma_core::actor::{Actor, Authentication};
use tamma_core::approval::Pin;
use tamma_core::ids::{Name, PolicyVersion, TaskId};
use tamma_core::rules::Rules;
use tamma_core::task::Task;
use tamma_core::task_loop::{
    Command, EventKind, Job, JobUsage, Outcome, Placement, Refusal, Step, StepRecord, TaskEvent,
    TaskLoop, TaskReceived, Timestamp, begin, step,
};
use tamma_core::version::FormatVersion;
use temporalio_common::error::ApplicationFailure;
use temporalio_macros::{workflow, workflow_methods};
use temporalio_workflow::{
    ContinueAsNewOptions, SyncWorkflowContext, TimerOptions, TimerResult, WaitConditionOptions,
    WorkflowCancellationToken, WorkflowContext, WorkflowContextView, WorkflowResult,
    WorkflowTermination, select,
};

use self::forge_news::ForgeNews;
use self::jobs::JobWait;
use crate::activities::{
    DIVERGED, JobRequest, PendingSteps, RecordActivity, TaskSubmission, is_divergence, root_message,
};
use crate::retries::saving_options;
use crate::search_attributes::PublishedValues;

pub use self::messages::{
    ActionRequest, ActionResponse, ForgeSignal, QuestionOpened, RulesChanged, RunStarted,
    TaskStatus,
};

/// Input of a task's workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkflowInput {
    /// Rules of the task, without secrets.
    pub rules: Rules,
    /// Timeouts and limits of the workflow.
    #[serde(rename = "pace", default = "WorkflowTuning::of_old_histories")]
    pub tuning: WorkflowTuning,
    /// Starting point.
    pub origin: WorkflowOrigin,
}

/// Timeouts and limits of a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowTuning {
    /// Seconds without a heartbeat after which a worker counts as dead. Must exceed outages of
    /// Temporal, or its return interrupts every run.
    pub heartbeat_seconds: u32,
    /// History length at which the workflow continues as new.
    pub history_events: u32,
    /// Adds fewer events to the history: a task without dependencies is admitted without an activity,
    /// and search attributes name one of the states that follow each other quickly. Workflows that
    /// started without it keep their behaviour, so that their histories replay.
    #[serde(default)]
    pub compact_history: bool,
}

impl Default for WorkflowTuning {
    fn default() -> Self {
        Self { heartbeat_seconds: 30, history_events: 2000, compact_history: true }
    }
}

impl WorkflowTuning {
    /// Returns the tuning of a workflow whose input names none.
    fn of_old_histories() -> Self {
        Self { compact_history: false, ..Self::default() }
    }
}

/// Starting point of a workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkflowOrigin {
    /// New task.
    New {
        /// Event that created the task.
        received: TaskReceived,
        /// Task as its author wrote it.
        task: Box<Task>,
    },
    /// Earlier run of the workflow, which continued as new.
    #[serde(rename = "earlier")]
    Continued(Box<CarriedState>),
}

/// State that a workflow carries over when it continues as new.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CarriedState {
    #[serde(rename = "memory")]
    task_loop: TaskLoop,
    step: u64,
    #[serde(rename = "unwritten")]
    unsaved_steps: Vec<StepRecord>,
    #[serde(rename = "due")]
    pending_commands: Vec<Command>,
    #[serde(default, skip_serializing_if = "ForgeNews::is_empty")]
    forge_news: ForgeNews,
}

impl CarriedState {
    /// Returns the state of a workflow that continues from a recorded step, and saves it first.
    pub fn from_step(record: StepRecord) -> Self {
        Self {
            task_loop: record.next.clone(),
            step: record.step,
            pending_commands: record.commands.clone(),
            unsaved_steps: vec![record],
            forge_news: ForgeNews::default(),
        }
    }
}

/// Workflow of one task.
#[workflow]
pub struct TaskWorkflow {
    /// Shared with other tasks of this worker, which mostly have the same.
    rules: Arc<Rules>,
    policy: PolicyVersion,
    tuning: WorkflowTuning,
    task_loop: TaskLoop,
    /// Number of events applied so far.
    step: u64,
    /// Received events with their message numbers, in order of arrival.
    inbox: VecDeque<(u64, TaskEvent)>,
    /// Number of messages received.
    message_count: u64,
    /// Responses that have not been fetched yet, by message number.
    responses: BTreeMap<u64, ActionResponse>,
    /// Steps that are not known to be saved.
    unsaved_steps: Vec<StepRecord>,
    /// Submission; `None` once it is known to be saved.
    submission: Option<Box<TaskSubmission>>,
    /// New rules that have not been applied yet, by message number.
    new_rules: BTreeMap<u64, Rules>,
    /// Person who changed the rules before they were pinned. A job may still pin the old ones.
    rules_changed_by: Option<(Name, Option<Authentication>)>,
    /// Commands that have not been carried out yet.
    pending_commands: Vec<Command>,
    /// Values of Temporal's search attributes, as last published.
    published: PublishedValues,
    /// Set once a worker found another history of the task in the database.
    divergence: Option<String>,
    /// Wait of a job that a worker cannot run yet.
    job_wait: JobWait,
    /// News from the forge that the state machine has not accepted yet.
    forge_news: ForgeNews,
}

/// Future in progress.
pub(crate) type BoxedFuture<T> = Fuse<LocalBoxFuture<'static, T>>;

/// Futures that the workflow waits for, besides messages.
struct InFlight {
    /// Current job. It yields the event of its end.
    job: BoxedFuture<TaskEvent>,
    /// Job requested at the end of the task, with its earliest start. It starts after the current
    /// one has ended.
    final_job: Option<(JobRequest, Option<Timestamp>)>,
    /// Stops the current job.
    stop: WorkflowCancellationToken,
    /// Set if the current job is a local activity.
    is_inline: bool,
    /// Current timer.
    timer: BoxedFuture<()>,
    timer_at: Option<Timestamp>,
    cancel_timer: WorkflowCancellationToken,
}

#[workflow_methods]
impl TaskWorkflow {
    #[init]
    fn new(_ctx: &WorkflowContextView, input: WorkflowInput) -> Self {
        let WorkflowInput { rules, tuning, origin } = input;
        let (carried, submission) = match origin {
            WorkflowOrigin::Continued(carried) => (*carried, None),
            WorkflowOrigin::New { received, task } => {
                let first = StepRecord::new(0, received.at, begin(&received, &rules));
                let carried = CarriedState::from_step(first);
                (carried, Some(Box::new(TaskSubmission { task: *task, rules: rules.clone() })))
            }
        };
        let CarriedState { task_loop, step, unsaved_steps, pending_commands, forge_news } = carried;
        // The caller that started the workflow has published the initial state.
        let published = PublishedValues::new(&task_loop, tuning.compact_history);
        let policy = rules.version();
        Self {
            policy,
            rules: shared_rules(policy, rules),
            tuning,
            task_loop,
            step,
            inbox: VecDeque::new(),
            message_count: 0,
            responses: BTreeMap::new(),
            unsaved_steps,
            submission,
            new_rules: BTreeMap::new(),
            rules_changed_by: None,
            pending_commands,
            published,
            divergence: None,
            job_wait: JobWait::default(),
            forge_news,
        }
    }

    /// Runs until the task has ended.
    #[run(name = "task")]
    pub async fn run(ctx: &mut WorkflowContext<Self>) -> WorkflowResult<TaskStatus> {
        let mut in_flight = InFlight {
            job: Fuse::terminated(),
            final_job: None,
            stop: WorkflowCancellationToken::new(),
            is_inline: false,
            timer: Fuse::terminated(),
            timer_at: None,
            cancel_timer: WorkflowCancellationToken::new(),
        };
        let mut requester = None;
        loop {
            run_commands(ctx, &mut in_flight).await;
            let at = now(ctx);
            if ctx.state_mut(|it| it.update_pin(at)) {
                run_commands(ctx, &mut in_flight).await;
            }
            if let Some(divergence) = ctx.state(|it| it.divergence.clone()) {
                return Err(give_up(ctx, requester.take(), divergence).await);
            }
            if let Some(number) = requester.take() {
                ctx.state_mut(|it| it.respond(number, Ok(it.status())));
            }
            if ctx.state(|it| it.task_loop.state.is_terminal()) {
                publish_search_attributes(ctx);
                finish_task(ctx, &mut in_flight).await;
                if let Some(divergence) = ctx.state(|it| it.divergence.clone()) {
                    return Err(give_up(ctx, None, divergence).await);
                }
                let _ = wait_for_responses(ctx).await;
                return Ok(ctx.state(Self::status));
            }
            if ctx.state(|it| it.job_wait.deferred.is_some() && it.inbox.is_empty()) {
                continue_as_new(ctx).await?;
            }
            if !in_flight.is_inline || ctx.state(|it| it.job_wait.is_active) {
                publish_search_attributes(ctx);
                set_timer(ctx, &mut in_flight);
            }
            let event = select! {
                event = &mut in_flight.job => event,
                () = wait_for_message(ctx).fuse() => {
                    ctx.state_mut(|it| it.job_wait.has_started = false);
                    let (number, event) = ctx.state_mut(|it| it.inbox.pop_front()).unzip();
                    requester = number;
                    let at = now(ctx);
                    match event.or_else(|| ctx.state_mut(|it| it.take_forge_news(at))) {
                        Some(event) => event,
                        None => continue,
                    }
                }
                () = &mut in_flight.timer => {
                    in_flight.timer_at = None;
                    let (at, by, kind) = (now(ctx), Actor::Tamma, EventKind::Tick);
                    TaskEvent { format: FormatVersion, at, by, auth: None, kind }
                }
            };
            if ctx.state(|it| it.divergence.is_some()) {
                continue;
            }
            let applied = ctx.state_mut(|it| {
                match requester.and_then(|number| it.new_rules.remove(&number)) {
                    Some(rules) => it.apply_rules(&event, rules),
                    None => it.apply_event(&event),
                }
            });
            if let Err(refusal) = applied {
                // A stale result, or a timer that fired too early: the state machine is unchanged.
                if let Some(number) = requester.take() {
                    ctx.state_mut(|it| it.respond(number, Err(refusal.to_string())));
                }
            }
            let long = ctx.state(|it| ctx.history_length() > it.tuning.history_events);
            if long && in_flight.is_job_finished() && ctx.state(|it| it.inbox.is_empty()) {
                if let Some(number) = requester.take() {
                    ctx.state_mut(|it| it.respond(number, Ok(it.status())));
                }
                continue_as_new(ctx).await?;
            }
        }
    }

    /// Returns the status of the task.
    #[query(name = "standing_now")]
    pub fn current_status(&self, _ctx: &WorkflowContextView) -> TaskStatus {
        self.status()
    }

    /// Requests a waiting job again, because a task that this one depends on is completed.
    #[signal(name = "dependency_completed")]
    pub fn wake(&mut self, _ctx: &mut SyncWorkflowContext<Self>, _completed: TaskId) {
        self.job_wait.is_woken = true;
    }

    /// Takes news about the task's pull request. News that the state machine does not accept now
    /// waits; newer news of the same kind replaces it.
    #[signal(name = "forge")]
    pub fn observe_forge(&mut self, _ctx: &mut SyncWorkflowContext<Self>, signal: ForgeSignal) {
        self.forge_news.push(signal, &self.task_loop);
    }

    #[update_validator(ask)]
    fn validate_action(
        &self,
        _ctx: &WorkflowContextView,
        request: &ActionRequest,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.check_event(&request.clone().into())?)
    }

    /// Handles a person's action. The validator refuses it if the state machine would.
    #[update]
    pub async fn ask(ctx: &mut WorkflowContext<Self>, request: ActionRequest) -> ActionResponse {
        enqueue_and_wait(ctx, request.into()).await
    }

    #[update_validator(announce_run)]
    fn validate_run_started(
        &self,
        _ctx: &WorkflowContextView,
        run_started: &RunStarted,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.check_event(&run_started.clone().into())?)
    }

    /// Handles the notification that a run has started.
    #[update(name = "begun")]
    pub async fn announce_run(
        ctx: &mut WorkflowContext<Self>,
        run_started: RunStarted,
    ) -> ActionResponse {
        enqueue_and_wait(ctx, run_started.into()).await
    }

    #[update_validator(open_question)]
    fn validate_question(
        &self,
        _ctx: &WorkflowContextView,
        opened: &QuestionOpened,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.check_event(&opened.clone().into())?)
    }

    /// Shows people the question of a run that waits for the answer.
    #[update(name = "question_opened")]
    pub async fn open_question(
        ctx: &mut WorkflowContext<Self>,
        opened: QuestionOpened,
    ) -> ActionResponse {
        enqueue_and_wait(ctx, opened.into()).await
    }

    #[update_validator(change_rules)]
    fn validate_rules(
        &self,
        _ctx: &WorkflowContextView,
        changed: &RulesChanged,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        match self.rules_event(changed) {
            Some(event) => Ok(step(&self.task_loop, &event, &changed.rules).map(drop)?),
            None => Ok(()),
        }
    }

    /// Replaces the rules of the task. Approvals under the old rules are void: the plan is checked and
    /// approved again.
    #[update(name = "rules_changed")]
    pub async fn change_rules(
        ctx: &mut WorkflowContext<Self>,
        changed: RulesChanged,
    ) -> ActionResponse {
        let Some(event) = ctx.state(|it| it.rules_event(&changed)) else {
            return Ok(ctx.state_mut(|it| {
                it.set_rules(Arc::new(changed.rules));
                it.rules_changed_by = Some((changed.by, changed.auth));
                it.status()
            }));
        };
        ctx.state_mut(|it| it.new_rules.insert(it.message_count + 1, changed.rules));
        enqueue_and_wait(ctx, event).await
    }
}

impl TaskWorkflow {
    /// Returns the event of new rules. A task without a pin takes them without an event.
    fn rules_event(&self, changed: &RulesChanged) -> Option<TaskEvent> {
        let pin = Pin { policy: changed.rules.version(), ..self.task_loop.pin? };
        Some(TaskEvent {
            format: FormatVersion,
            at: changed.at,
            by: Actor::Person(changed.by.clone()),
            auth: changed.auth,
            kind: EventKind::PinChanged(pin),
        })
    }

    fn set_rules(&mut self, rules: Arc<Rules>) -> Arc<Rules> {
        self.policy = rules.version();
        if let Some(submission) = &mut self.submission {
            submission.rules = Rules::clone(&rules);
        }
        std::mem::replace(&mut self.rules, rules)
    }

    /// Applies new rules with their event. If the state machine refuses it, the old rules stay.
    fn apply_rules(&mut self, event: &TaskEvent, rules: Rules) -> Result<(), Refusal> {
        let old = self.set_rules(Arc::new(rules));
        let applied = self.apply_event(event);
        if applied.is_err() {
            self.set_rules(old);
        }
        applied
    }

    /// Replaces a pin of the old rules by a job that ran while a person changed them. Returns `true` if
    /// it was replaced.
    fn update_pin(&mut self, at: Timestamp) -> bool {
        let Some(pin) = self.task_loop.pin else { return false };
        let Some((by, auth)) = self.rules_changed_by.take() else { return false };
        let kind = EventKind::PinChanged(Pin { policy: self.policy, ..pin });
        let event = TaskEvent { format: FormatVersion, at, by: Actor::Person(by), auth, kind };
        // A pin of the new rules is refused, because nothing would change.
        self.apply_event(&event).is_ok()
    }

    fn status(&self) -> TaskStatus {
        TaskStatus {
            state: self.task_loop.state,
            paused: self.task_loop.paused.is_some(),
            step: self.step,
            plan: self.task_loop.plan.as_ref().map(|plan| plan.hash),
        }
    }

    /// Checks whether the state machine accepts an event now.
    fn check_event(&self, event: &TaskEvent) -> Result<(), Refusal> {
        step(&self.task_loop, event, &self.rules).map(drop)
    }

    /// Takes the next news from the forge that the state machine accepts.
    fn take_forge_news(&mut self, at: Timestamp) -> Option<TaskEvent> {
        let (task_loop, rules) = (&self.task_loop, &*self.rules);
        let accepts = |event: &TaskEvent| step(task_loop, event, rules).is_ok();
        self.forge_news.take(at, self.step, task_loop, accepts)
    }

    /// Applies an event to the state machine, and queues its step and commands.
    fn apply_event(&mut self, event: &TaskEvent) -> Result<(), Refusal> {
        let job_usage = self.job_usage(event);
        let Step { next, commands, entries } = step(&self.task_loop, event, &self.rules)?;
        self.step += 1;
        self.task_loop = next.clone();
        self.pending_commands.extend(commands.iter().cloned());
        let (step, at) = (self.step, event.at);
        self.unsaved_steps.push(StepRecord { step, at, next, entries, commands, job_usage });
        Ok(())
    }

    fn job_usage(&self, event: &TaskEvent) -> Option<JobUsage> {
        let EventKind::JobFinished { job_number, usage: Some(usage), .. } = &event.kind else {
            return None;
        };
        let works = [self.task_loop.active_job, self.task_loop.stopping_job];
        let work = works.into_iter().flatten().find(|work| work.job_number == *job_number)?;
        Some(JobUsage { job_number: *job_number, job: work.kind, usage: *usage })
    }

    fn respond(&mut self, number: u64, response: ActionResponse) {
        self.responses.insert(number, response);
    }

    /// Returns the steps that must be saved first.
    fn pending_steps(&self) -> PendingSteps {
        PendingSteps {
            task: self.task_loop.task,
            project: self.task_loop.project,
            policy: self.policy,
            submission: self.submission.clone(),
            steps: self.unsaved_steps.clone(),
        }
    }

    /// Returns the outcome of a job that needs no worker. Its steps travel with the next request.
    fn immediate_outcome(&self, job: &Job) -> Option<Outcome> {
        if !self.tuning.compact_history {
            return None;
        }
        // Without dependencies, a new task waits for nothing.
        let submission = self.submission.as_ref().filter(|_| matches!(job, Job::Admit))?;
        submission.task.depends_on.is_empty().then_some(Outcome::Admitted)
    }

    /// Marks all steps up to this one as saved.
    fn mark_saved(&mut self, up_to: u64) {
        self.unsaved_steps.retain(|record| record.step > up_to);
        self.submission = None;
    }

    /// Builds the input for continue-as-new.
    fn next_input(&mut self) -> WorkflowInput {
        self.pending_commands.extend(self.job_wait.take_deferred());
        let carried = CarriedState {
            task_loop: self.task_loop.clone(),
            step: self.step,
            unsaved_steps: std::mem::take(&mut self.unsaved_steps),
            pending_commands: std::mem::take(&mut self.pending_commands),
            forge_news: std::mem::take(&mut self.forge_news),
        };
        let origin = WorkflowOrigin::Continued(Box::new(carried));
        WorkflowInput { rules: Rules::clone(&self.rules), tuning: self.tuning, origin }
    }
}

impl InFlight {
    fn is_job_finished(&self) -> bool {
        use futures_util::future::FusedFuture as _;
        self.job.is_terminated()
    }
}

/// Continues as new, unless another request arrives meanwhile.
async fn continue_as_new(ctx: &mut WorkflowContext<TaskWorkflow>) -> WorkflowResult<()> {
    let _ = wait_for_responses(ctx).await;
    if ctx.state(|it| it.inbox.is_empty()) {
        publish_search_attributes(ctx);
        let next = ctx.state_mut(TaskWorkflow::next_input);
        ctx.continue_as_new(next, ContinueAsNewOptions::default())?;
    }
    Ok(())
}

/// Carries out pending commands, and ensures that every step is saved.
async fn run_commands(ctx: &WorkflowContext<TaskWorkflow>, in_flight: &mut InFlight) {
    let mut start = None;
    for command in ctx.state_mut(|it| std::mem::take(&mut it.pending_commands)) {
        match command {
            Command::StartJob { job_number, not_before, job } => {
                let pending = ctx.state(TaskWorkflow::pending_steps);
                let request = JobRequest { job_number, job, earlier_attempts: 0, pending };
                start = Some((request, not_before));
            }
            Command::StopJob { reason, .. } => {
                in_flight.stop.cancel_with_reason(reason.to_string());
            }
            // These are database rows; other processes read them there.
            Command::Alert(_) | Command::CloseQuestion { .. } | Command::BlockProvider { .. } => {}
        }
    }
    // Steps travel with a job that starts at once. If the job may wait in a queue, or if there is
    // no job, they are saved here.
    let over = ctx.state(|it| it.task_loop.state.is_terminal());
    let placement = start
        .as_ref()
        .filter(|(_, not_before)| not_before.is_none())
        .map(|(request, _)| request.job.placement());
    let travels = matches!(placement, Some(Placement::Inline | Placement::Worker));
    if (over || !travels) && ctx.state(|it| !it.unsaved_steps.is_empty()) {
        save_steps(ctx).await;
    }
    if over {
        in_flight.final_job = start;
    } else if let Some((request, not_before)) = start {
        in_flight.stop = WorkflowCancellationToken::new();
        in_flight.is_inline = placement == Some(Placement::Inline);
        in_flight.job = jobs::run_job(ctx.clone(), request, not_before, in_flight.stop.clone());
    } else if in_flight.is_job_finished() {
        in_flight.is_inline = false;
    }
}

/// Waits for the current job to end, then runs the last one. The person who ended the task does not
/// wait for either.
async fn finish_task(ctx: &WorkflowContext<TaskWorkflow>, in_flight: &mut InFlight) {
    if !in_flight.is_job_finished() {
        (&mut in_flight.job).await;
    }
    if let Some((request, not_before)) = in_flight.final_job.take() {
        let stop = WorkflowCancellationToken::new();
        let event = jobs::run_job(ctx.clone(), request, not_before, stop).await;
        // Tasks of older editions accept no event after their end, and have nothing more to save.
        if ctx.state_mut(|it| it.apply_event(&event)).is_ok() {
            save_steps(ctx).await;
        }
    }
}

/// Saves pending steps, with retries.
async fn save_steps(ctx: &WorkflowContext<TaskWorkflow>) {
    let pending = ctx.state(TaskWorkflow::pending_steps);
    let last = pending.steps.last().map_or(0, |record| record.step);
    match ctx.execute_local_activity(RecordActivity, pending, saving_options()).await {
        Ok(()) => ctx.state_mut(|it| it.mark_saved(last)),
        Err(error) if is_divergence(&error) => {
            ctx.state_mut(|it| it.divergence = Some(root_message(&error)));
        }
        // After any other failure they stay pending and travel with the next request.
        Err(_) => {}
    }
}

/// Refuses all requests, and returns the failure of a workflow that cannot continue.
async fn give_up(
    ctx: &WorkflowContext<TaskWorkflow>,
    requester: Option<u64>,
    divergence: String,
) -> WorkflowTermination {
    let refusal = || Err("the task is being restarted; try again in a minute".to_owned());
    ctx.state_mut(|it| {
        let inbox = std::mem::take(&mut it.inbox);
        for number in requester.into_iter().chain(inbox.into_iter().map(|(number, _)| number)) {
            it.respond(number, refusal());
        }
    });
    let _ = wait_for_responses(ctx).await;
    ApplicationFailure::builder(divergence)
        .type_name(DIVERGED.to_owned())
        .non_retryable(true)
        .build()
        .into()
}

/// Publishes changed search attributes to Temporal.
fn publish_search_attributes(ctx: &WorkflowContext<TaskWorkflow>) {
    let (changed, now) = ctx.state(|it| {
        let now = PublishedValues::new(&it.task_loop, it.tuning.compact_history);
        (now.changes_since(it.published), now)
    });
    if !changed.is_empty() {
        ctx.upsert_search_attributes(changed);
        ctx.state_mut(|it| it.published = now);
    }
}

/// Rules of all tasks of this worker, by version. Each workflow would have its own copy otherwise, and
/// thousands of them wait in memory.
static SHARED_RULES: Mutex<BTreeMap<PolicyVersion, Weak<Rules>>> = Mutex::new(BTreeMap::new());

/// Returns rules that other workflows can share. The result equals the argument, so a replay is not
/// affected.
fn shared_rules(version: PolicyVersion, rules: Rules) -> Arc<Rules> {
    let mut all = SHARED_RULES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = all.get(&version).and_then(Weak::upgrade)
        && *known == rules
    {
        return known;
    }
    all.retain(|_, known| known.strong_count() > 0);
    let rules = Arc::new(rules);
    all.insert(version, Arc::downgrade(&rules));
    rules
}

/// Sets the timer for the next time that the state machine asks for. An earlier timer stays: when
/// it fires without effect, the next one is set.
fn set_timer(ctx: &WorkflowContext<TaskWorkflow>, in_flight: &mut InFlight) {
    let Some(at) = ctx.state(|it| it.task_loop.wake_at(&it.rules)) else { return };
    if in_flight.timer_at.is_some_and(|set| set <= at) {
        return;
    }
    in_flight.cancel_timer.cancel();
    in_flight.cancel_timer = WorkflowCancellationToken::new();
    in_flight.timer_at = Some(at);
    let (ctx, token) = (ctx.clone(), in_flight.cancel_timer.clone());
    in_flight.timer = async move {
        if sleep_until(&ctx, at, token).await == TimerResult::Cancelled {
            std::future::pending::<()>().await;
        }
    }
    .boxed_local()
    .fuse();
}

async fn sleep_until(
    ctx: &WorkflowContext<TaskWorkflow>,
    at: Timestamp,
    token: WorkflowCancellationToken,
) -> TimerResult {
    let left = (at - now(ctx)).to_std().unwrap_or_default();
    ctx.timer(TimerOptions::builder(left).cancellation_token(token).build()).await
}

/// Returns the current time, which is deterministic under replay.
fn now(ctx: &WorkflowContext<TaskWorkflow>) -> Timestamp {
    ctx.workflow_time().map(Timestamp::from).unwrap_or_default()
}

/// Queues an event and waits until the state machine has accepted or refused it.
async fn enqueue_and_wait(ctx: &WorkflowContext<TaskWorkflow>, event: TaskEvent) -> ActionResponse {
    let number = ctx.state_mut(|it| {
        it.message_count += 1;
        it.inbox.push_back((it.message_count, event));
        it.message_count
    });
    let has_response = move |it: &TaskWorkflow| it.responses.contains_key(&number);
    let _ = ctx.wait_condition_with_options(has_response, uncancellable_wait()).await;
    let no_response = || Err("no response from the task's workflow".to_owned());
    ctx.state_mut(|it| it.responses.remove(&number)).unwrap_or_else(no_response)
}

/// Waits for a message, news from the forge, or until the current job has to wait.
async fn wait_for_message(ctx: &WorkflowContext<TaskWorkflow>) {
    let has_news = |it: &TaskWorkflow| {
        !it.inbox.is_empty() || it.job_wait.has_started || it.forge_news.is_due(it.step)
    };
    let _ = ctx.wait_condition_with_options(has_news, uncancellable_wait()).await;
}

/// Waits until all requests have a response.
async fn wait_for_responses(
    ctx: &WorkflowContext<TaskWorkflow>,
) -> Result<(), temporalio_workflow::WorkflowCancellationError> {
    let context = ctx.clone();
    ctx.wait_condition_with_options(
        move |it| it.inbox.is_empty() && context.all_handlers_finished(),
        uncancellable_wait(),
    )
    .await
}

/// Returns options for a wait that survives cancellation of the workflow. Tasks are cancelled
/// through the state machine, so that nothing is left running.
fn uncancellable_wait() -> WaitConditionOptions {
    WaitConditionOptions::builder().cancellation_token(WorkflowCancellationToken::new()).build()
}
