//! The workflow of one task.
//!
//! It turns what happens (a job's end, a person's wish, time) into events, feeds them to the
//! machine, and carries its commands out. Everything it does must come out the same when its
//! history is played again, so a change here that an old history would notice needs a patch (see
//! `docs/decisions/0006-durable-shell.md`).
#![expect(missing_docs, reason = "the macro makes constants that cannot be documented")]

mod errands;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use futures_util::future::{Fuse, FutureExt as _, LocalBoxFuture};
use serde::{Deserialize, Serialize};
use tamma_core::actor::Actor;
use tamma_core::ids::{Name, PlanHash, PolicyVersion};
use tamma_core::rules::Rules;
use tamma_core::task::Task;
use tamma_core::task_loop::{
    Action, Command, Event, JobKind, Received, Refusal, State, Step, TaskLoop, Timestamp, What,
    begin, step,
};
use tamma_core::version::Format;
use temporalio_macros::{workflow, workflow_methods};
use temporalio_workflow::{
    ContinueAsNewOptions, LocalActivityOptions, RetryPolicy, TimerOptions, TimerResult,
    WaitConditionOptions, WorkflowCancellationToken, WorkflowContext, WorkflowContextView,
    WorkflowResult, select,
};

use crate::attributes;
use crate::port::{Arrival, Diary, Hands, Recorded, Used};
use errands::{Ended, Start};

/// What a task's workflow is started with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// The rules the task runs under, without secrets.
    pub rules: Rules,
    /// How patient it is with its workers.
    #[serde(default)]
    pub pace: Pace,
    /// Where it begins.
    pub origin: Origin,
}

/// How patient a workflow is with its workers, and how long its history may grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pace {
    /// Seconds without a sign of life after which a worker is taken for dead. Longer than the
    /// engine may be away, or its return interrupts every run.
    pub heartbeat_seconds: u32,
    /// History events after which the workflow goes on in a new run.
    pub history_events: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { heartbeat_seconds: 30, history_events: 2000 }
    }
}

/// Where a workflow begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A new task.
    New {
        /// How it came in.
        received: Received,
        /// What is wanted, in its author's words.
        task: Box<Task>,
    },
    /// An earlier run of the workflow, whose history had grown long.
    Earlier(Box<Carried>),
}

/// What one run of a workflow hands to the next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Carried {
    memory: TaskLoop,
    step: u64,
    unwritten: Vec<Recorded>,
    due: Vec<Command>,
}

/// What a person asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// When.
    pub at: Timestamp,
    /// Who, authenticated before.
    pub by: Name,
    /// What.
    pub action: Action,
}

/// What a worker tells when it has taken a run up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// When.
    pub at: Timestamp,
    /// The ticket of the run.
    pub ticket: u32,
    /// Which engine.
    pub engine: Name,
}

/// Where a task stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Where it is.
    pub state: State,
    /// Whether it is paused.
    pub paused: bool,
    /// How many events its machine has taken.
    pub step: u64,
    /// The plan that waits or runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanHash>,
}

/// What came of something that was asked: where the task stands now, or why not.
pub type Answered = Result<Standing, String>;

impl From<Ask> for Event {
    fn from(ask: Ask) -> Self {
        let Ask { at, by, action } = ask;
        Self { format: Format, at, by: Actor::Person(by), what: What::Asked(action) }
    }
}

impl From<Begun> for Event {
    fn from(begun: Begun) -> Self {
        let Begun { at, ticket, engine } = begun;
        Self { format: Format, at, by: Actor::Tamma, what: What::Started { ticket, engine } }
    }
}

/// The workflow of one task.
#[workflow]
pub struct TaskFlow {
    rules: Rules,
    policy: PolicyVersion,
    pace: Pace,
    memory: TaskLoop,
    /// How many events the machine has taken.
    step: u64,
    /// Who waits for an answer, and what happened, in the order it came.
    inbox: VecDeque<(u64, Event)>,
    /// How many messages have come.
    messages: u64,
    /// Answers that have not been fetched yet, by the number of the message.
    answers: BTreeMap<u64, Answered>,
    /// What is not known to be written down.
    unwritten: Vec<Recorded>,
    /// How the task came in, as long as that is not known to be written down.
    arrival: Option<Box<Arrival>>,
    /// What the machine wants done and nobody has begun.
    due: Vec<Command>,
    /// The machine as the engine's search knows it.
    published: Option<TaskLoop>,
}

/// Something that will happen.
type Pending<T> = Fuse<LocalBoxFuture<'static, T>>;

/// What the workflow waits for, beside people.
struct Desk {
    /// The job that is under way.
    job: Pending<Ended>,
    /// What the end of the task has ordered: it waits until the job is gone.
    last: Option<Start>,
    /// What stops the job.
    stop: WorkflowCancellationToken,
    /// Whether the job is done in the workflow's own task, so that it ends at once.
    short: bool,
    /// The alarm that is set, for when, and what takes it back.
    alarm: Pending<()>,
    alarm_at: Option<Timestamp>,
    take_back: WorkflowCancellationToken,
}

#[workflow_methods]
impl TaskFlow {
    #[init]
    fn new(_ctx: &WorkflowContextView, input: Input) -> Self {
        let Input { rules, pace, origin } = input;
        let (carried, arrival) = match origin {
            Origin::Earlier(carried) => (*carried, None),
            Origin::New { received, task } => {
                let Step { next, commands, entries } = begin(&received, &rules);
                let first = Recorded {
                    step: 0,
                    at: received.at,
                    next: next.clone(),
                    entries,
                    commands: commands.clone(),
                    used: None,
                };
                let carried =
                    Carried { memory: next, step: 0, unwritten: vec![first], due: commands };
                (carried, Some(Box::new(Arrival { task: *task, rules: rules.clone() })))
            }
        };
        let Carried { memory, step, unwritten, due } = carried;
        // Whoever started the workflow has published how it begins.
        let published = Some(memory.clone());
        Self {
            policy: rules.version(),
            rules,
            pace,
            memory,
            step,
            inbox: VecDeque::new(),
            messages: 0,
            answers: BTreeMap::new(),
            unwritten,
            arrival,
            due,
            published,
        }
    }

    /// Runs until the task has ended.
    #[run(name = "task")]
    pub async fn run(ctx: &mut WorkflowContext<Self>) -> WorkflowResult<Standing> {
        let mut desk = Desk {
            job: Fuse::terminated(),
            last: None,
            stop: WorkflowCancellationToken::new(),
            short: false,
            alarm: Fuse::terminated(),
            alarm_at: None,
            take_back: WorkflowCancellationToken::new(),
        };
        let mut asker = None;
        loop {
            carry_out(ctx, &mut desk).await;
            if let Some(number) = asker.take() {
                ctx.state_mut(|it| it.answer(number, Ok(it.standing())));
            }
            if ctx.state(|it| it.memory.state.is_terminal()) {
                publish(ctx);
                finish(ctx, &mut desk).await;
                let _ = all_heard(ctx).await;
                return Ok(ctx.state(Self::standing));
            }
            if !desk.short {
                publish(ctx);
                set_alarm(ctx, &mut desk);
            }
            let event = select! {
                ended = &mut desk.job => ctx.state_mut(|it| it.settle(ended, now(ctx))),
                () = message(ctx).fuse() => {
                    let (number, event) = ctx.state_mut(|it| it.inbox.pop_front()).unzip();
                    asker = number;
                    match event { Some(event) => event, None => continue }
                }
                () = &mut desk.alarm => {
                    desk.alarm_at = None;
                    Event { format: Format, at: now(ctx), by: Actor::Tamma, what: What::Tick }
                }
            };
            let taken = ctx.state_mut(|it| it.take(&event));
            if let Err(refusal) = taken {
                // A late result, an alarm that came too early: the machine has not moved.
                if let Some(number) = asker.take() {
                    ctx.state_mut(|it| it.answer(number, Err(refusal.to_string())));
                }
            }
            let long = ctx.state(|it| ctx.history_length() > it.pace.history_events);
            if long && desk.job_is_over() && ctx.state(|it| it.inbox.is_empty()) {
                if let Some(number) = asker.take() {
                    ctx.state_mut(|it| it.answer(number, Ok(it.standing())));
                }
                let _ = all_heard(ctx).await;
                if ctx.state(|it| it.inbox.is_empty()) {
                    publish(ctx);
                    let next = ctx.state_mut(Self::carry);
                    ctx.continue_as_new(next, ContinueAsNewOptions::default())?;
                }
            }
        }
    }

    /// Where the task stands.
    #[query]
    pub fn standing_now(&self, _ctx: &WorkflowContextView) -> Standing {
        self.standing()
    }

    #[update_validator(ask)]
    fn may_ask(
        &self,
        _ctx: &WorkflowContextView,
        ask: &Ask,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.would_take(&ask.clone().into())?)
    }

    /// A person asks for something. Refused, with the reason, where the machine would refuse it.
    #[update]
    pub async fn ask(ctx: &mut WorkflowContext<Self>, ask: Ask) -> Answered {
        deliver(ctx, ask.into()).await
    }

    #[update_validator(begun)]
    fn may_have_begun(
        &self,
        _ctx: &WorkflowContextView,
        begun: &Begun,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.would_take(&begun.clone().into())?)
    }

    /// A worker has taken a run up.
    #[update]
    pub async fn begun(ctx: &mut WorkflowContext<Self>, begun: Begun) -> Answered {
        deliver(ctx, begun.into()).await
    }
}

impl TaskFlow {
    fn standing(&self) -> Standing {
        Standing {
            state: self.memory.state,
            paused: self.memory.paused.is_some(),
            step: self.step,
            plan: self.memory.plan.as_ref().map(|plan| plan.hash),
        }
    }

    /// Whether the machine would take an event now.
    fn would_take(&self, event: &Event) -> Result<(), Refusal> {
        step(&self.memory, event, &self.rules).map(drop)
    }

    /// Feeds an event to the machine. What it wants written and done is kept until that is done.
    fn take(&mut self, event: &Event) -> Result<(), Refusal> {
        let used = self.used(event);
        let Step { next, commands, entries } = step(&self.memory, event, &self.rules)?;
        self.step += 1;
        self.memory = next.clone();
        self.due.extend(commands.iter().cloned());
        self.unwritten.push(Recorded {
            step: self.step,
            at: event.at,
            next,
            entries,
            commands,
            used,
        });
        Ok(())
    }

    fn used(&self, event: &Event) -> Option<Used> {
        let What::Done { ticket, usage: Some(usage), .. } = &event.what else { return None };
        let works = [self.memory.work, self.memory.leaving];
        let work = works.into_iter().flatten().find(|work| work.ticket == *ticket)?;
        Some(Used { ticket: *ticket, job: work.kind, usage: *usage })
    }

    fn answer(&mut self, number: u64, answer: Answered) {
        self.answers.insert(number, answer);
    }

    /// What is to be written down before anything else.
    fn diary(&self) -> Diary {
        Diary {
            task: self.memory.task,
            project: self.memory.project,
            policy: self.policy,
            arrival: self.arrival.clone(),
            steps: self.unwritten.clone(),
        }
    }

    /// Everything up to a step is written down.
    fn is_written(&mut self, up_to: u64) {
        self.unwritten.retain(|recorded| recorded.step > up_to);
        self.arrival = None;
    }

    /// The event of a job that has ended.
    fn settle(&mut self, ended: Ended, at: Timestamp) -> Event {
        if let Some(step) = ended.written {
            self.is_written(step);
        }
        Event { format: Format, at, by: Actor::Tamma, what: ended.what }
    }

    /// What the next run of the workflow needs.
    fn carry(&mut self) -> Input {
        let carried = Carried {
            memory: self.memory.clone(),
            step: self.step,
            unwritten: std::mem::take(&mut self.unwritten),
            due: std::mem::take(&mut self.due),
        };
        let origin = Origin::Earlier(Box::new(carried));
        Input { rules: self.rules.clone(), pace: self.pace, origin }
    }
}

impl Desk {
    fn job_is_over(&self) -> bool {
        use futures_util::future::FusedFuture as _;
        self.job.is_terminated()
    }
}

/// Carries out what the machine wants, and sees to it that every step is written down.
async fn carry_out(ctx: &WorkflowContext<TaskFlow>, desk: &mut Desk) {
    let mut start = None;
    for command in ctx.state_mut(|it| std::mem::take(&mut it.due)) {
        match command {
            Command::Start { ticket, not_before, job } => {
                start = Some(Start { ticket, not_before, job });
            }
            Command::Stop { why, .. } => desk.stop.cancel_with_reason(why.to_string()),
            // Rows of the log; who delivers them reads them there.
            Command::Alert(_) | Command::Settle { .. } | Command::HoldProvider { .. } => {}
        }
    }
    // What the worker would write down at once travels with the job. What would lie in a queue with
    // it, or has no job to travel with, is written down here.
    let over = ctx.state(|it| it.memory.state.is_terminal());
    let travels = start
        .as_ref()
        .is_some_and(|start| start.not_before.is_none() && start.job.kind() != JobKind::Implement);
    if (over || !travels) && ctx.state(|it| !it.unwritten.is_empty()) {
        write_down(ctx).await;
    }
    if over {
        desk.last = start;
    } else if let Some(start) = start {
        desk.stop = WorkflowCancellationToken::new();
        desk.short = start.is_short();
        desk.job = errands::run(ctx.clone(), start, desk.stop.clone());
    } else if desk.job_is_over() {
        desk.short = false;
    }
}

/// Waits until the job that was left is gone, then does what the end has ordered. Whoever ended the
/// task need not wait for either.
async fn finish(ctx: &WorkflowContext<TaskFlow>, desk: &mut Desk) {
    if !desk.job_is_over() {
        (&mut desk.job).await;
    }
    if let Some(start) = desk.last.take() {
        let ended = errands::run(ctx.clone(), start, WorkflowCancellationToken::new()).await;
        // Tasks of older editions hear nothing after their end, and have nothing more to write.
        let event = ctx.state_mut(|it| it.settle(ended, now(ctx)));
        if ctx.state_mut(|it| it.take(&event)).is_ok() {
            write_down(ctx).await;
        }
    }
}

/// Writes down what is not, and tries until it is.
async fn write_down(ctx: &WorkflowContext<TaskFlow>) {
    let diary = ctx.state(TaskFlow::diary);
    let last = diary.steps.last().map_or(0, |recorded| recorded.step);
    let options = LocalActivityOptions::builder()
        .start_to_close_timeout(Duration::from_secs(30))
        .retry_policy(patiently())
        .cancellation_token(WorkflowCancellationToken::new())
        .build();
    if ctx.execute_local_activity(Hands::record, diary, options).await.is_ok() {
        ctx.state_mut(|it| it.is_written(last));
    }
    // Otherwise it stays unwritten, and goes along with what comes next.
}

/// How often something is tried again that must be done in the end.
fn patiently() -> RetryPolicy {
    RetryPolicy::builder()
        .initial_interval(Duration::from_millis(200))
        .backoff_coefficient(1.5)
        .maximum_interval(Duration::from_secs(10))
        .non_retryable_error_types([crate::port::FINAL])
        .build()
}

/// Tells the engine's search what has changed.
fn publish(ctx: &WorkflowContext<TaskFlow>) {
    let changed = ctx.state(|it| attributes::changed(it.published.as_ref(), &it.memory));
    if !changed.is_empty() {
        ctx.upsert_search_attributes(changed);
        ctx.state_mut(|it| it.published = Some(it.memory.clone()));
    }
}

/// Sets the alarm for when the machine wants to be told that time has passed. One that is set for
/// earlier is left: when it rings in vain, the next is set.
fn set_alarm(ctx: &WorkflowContext<TaskFlow>, desk: &mut Desk) {
    let Some(at) = ctx.state(|it| it.memory.wake_at(&it.rules)) else { return };
    if desk.alarm_at.is_some_and(|set| set <= at) {
        return;
    }
    desk.take_back.cancel();
    desk.take_back = WorkflowCancellationToken::new();
    desk.alarm_at = Some(at);
    let (ctx, token) = (ctx.clone(), desk.take_back.clone());
    desk.alarm = async move {
        if sleep_until(&ctx, at, token).await == TimerResult::Cancelled {
            std::future::pending::<()>().await;
        }
    }
    .boxed_local()
    .fuse();
}

async fn sleep_until(
    ctx: &WorkflowContext<TaskFlow>,
    at: Timestamp,
    token: WorkflowCancellationToken,
) -> TimerResult {
    let left = (at - now(ctx)).to_std().unwrap_or_default();
    ctx.timer(TimerOptions::builder(left).cancellation_token(token).build()).await
}

/// The time it is, the same whenever the history is played.
fn now(ctx: &WorkflowContext<TaskFlow>) -> Timestamp {
    ctx.workflow_time().map(Timestamp::from).unwrap_or_default()
}

/// Puts an event in the queue and waits until the machine has taken or refused it.
async fn deliver(ctx: &WorkflowContext<TaskFlow>, event: Event) -> Answered {
    let number = ctx.state_mut(|it| {
        it.messages += 1;
        it.inbox.push_back((it.messages, event));
        it.messages
    });
    let answered = move |it: &TaskFlow| it.answers.contains_key(&number);
    let _ = ctx.wait_condition_with_options(answered, to_the_end()).await;
    let gone = || Err("the task's workflow did not answer".to_owned());
    ctx.state_mut(|it| it.answers.remove(&number)).unwrap_or_else(gone)
}

async fn message(ctx: &WorkflowContext<TaskFlow>) {
    let _ = ctx.wait_condition_with_options(|it| !it.inbox.is_empty(), to_the_end()).await;
}

/// Waits until everybody who asked has an answer.
async fn all_heard(
    ctx: &WorkflowContext<TaskFlow>,
) -> Result<(), temporalio_workflow::WorkflowCancellationError> {
    let whole = ctx.clone();
    ctx.wait_condition_with_options(
        move |it| it.inbox.is_empty() && whole.all_handlers_finished(),
        to_the_end(),
    )
    .await
}

/// A wait that a cancellation of the workflow does not end: tasks are cancelled by people, through
/// the machine, so that nothing is left running.
fn to_the_end() -> WaitConditionOptions {
    WaitConditionOptions::builder().cancellation_token(WorkflowCancellationToken::new()).build()
}
