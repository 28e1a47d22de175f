//! One step of the state machine.
//!
//! [`step`] dispatches on the kind of the event: [`outcomes`] handles finished jobs, [`actions`]
//! people's actions, [`council`] the council's part, [`pull_request`] the forge's reports, [`timers`]
//! passed time, [`open_question`] questions of running agents and [`recovery`] lost workflows. Shared operations, such as changing state and
//! asking people, are in [`transitions`]. [`next_job`] alone decides which job starts next, after
//! every event.

mod actions;
mod council;
mod next_job;
mod open_question;
mod outcomes;
mod pull_request;
mod recovery;
mod timers;
mod transitions;

use std::collections::BTreeMap;

use super::{
    Action, Command, EventKind, Outcome, Refusal, State, StateClock, StopReason, TaskEvent,
    TaskLoop, TaskReceived, Timestamp, Trigger,
};
use crate::actor::{Actor, Authentication};
use crate::approval::Pin;
use crate::budget::{Grant, Spend};
use crate::cause::TimeoutStage;
use crate::cost::Usage;
use crate::history::{EntryData, EntryName, HistoryEntry};
use crate::ids::Name;
use crate::rules::Rules;
use crate::tier::Tier;
use crate::version::FormatVersion;

/// Result of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// State after the event.
    pub next: TaskLoop,
    /// Effects to execute, in this order.
    pub commands: Vec<Command>,
    /// History entries to save, in this order.
    pub entries: Vec<HistoryEntry>,
}

/// Step under construction.
struct StepBuilder<'a> {
    task_loop: TaskLoop,
    /// Time of the step. Clocks of different machines differ, so time within a task never goes
    /// back.
    now: Timestamp,
    actor: &'a Actor,
    auth: Option<Authentication>,
    rules: &'a Rules,
    commands: Vec<Command>,
    entries: Vec<HistoryEntry>,
}

/// Creates the state of a new task.
pub fn begin(received: &TaskReceived, rules: &Rules) -> Step {
    let mut builder = StepBuilder {
        task_loop: TaskLoop {
            format: FormatVersion,
            edition: received.edition,
            task: received.task,
            project: received.project,
            priority: received.priority,
            state: State::Pending,
            since: received.at,
            paused: None,
            clock: StateClock { started_at: received.at, stage: TimeoutStage::Quiet },
            entry_count: 0,
            pin: None,
            submitted_plan: received.submitted_plan.clone(),
            plan: None,
            note: None,
            plan_assessment: None,
            overridden_plan: None,
            approvals: Vec::new(),
            approved_scope: None,
            last_job_number: 0,
            active_job: None,
            stopping_job: None,
            not_before: None,
            quota: None,
            restarts: 0,
            tier: Tier::default(),
            tier_failures: 0,
            retries: 0,
            councils: 0,
            iterations: 0,
            timeouts: 0,
            failures: BTreeMap::new(),
            attempts: Vec::new(),
            decision: None,
            brief: None,
            opinions: Vec::new(),
            council: None,
            guidance: None,
            commit: None,
            unconfirmed: None,
            pull_request: None,
            has_work: false,
            must_save_work: false,
            spend: Spend::default(),
            max_run_cost: None,
            granted: Grant::default(),
            cost_warned: false,
            question_count: 0,
            open_question: None,
            answered_live: None,
            ratings: BTreeMap::new(),
        },
        now: received.at,
        actor: &received.by,
        auth: received.auth,
        rules,
        commands: Vec::new(),
        entries: Vec::new(),
    };
    builder.record_entry(EntryName::SmTaskReceived, None, EntryData::None);
    builder.start_next_job();
    builder.finish()
}

/// Applies one event to a task. A refused event changes nothing.
pub fn step(before: &TaskLoop, event: &TaskEvent, rules: &Rules) -> Result<Step, Refusal> {
    let mut builder = StepBuilder {
        task_loop: before.clone(),
        now: event.at.max(before.since),
        actor: &event.by,
        auth: event.auth,
        rules,
        commands: Vec::new(),
        entries: Vec::new(),
    };
    match &event.kind {
        EventKind::JobFinished { job_number, usage, outcome }
            if builder.is_final_learning_job(*job_number) =>
        {
            builder.record_final_lessons(usage.as_ref(), outcome);
        }
        EventKind::ActionRequested(Action::Rate { stars, reason }) => {
            builder.rate(*stars, reason.as_ref())?;
            // A closed task starts no job.
            return Ok(builder.finish());
        }
        EventKind::Reconciled(recovery) if before.state.is_terminal() => {
            builder.settle(recovery);
            // A closed task starts no job.
            return Ok(builder.finish());
        }
        _ if before.state.is_terminal() => return Err(Refusal::Ended(before.state)),
        EventKind::RunStarted { job_number, agent } => {
            builder.run_started(*job_number, agent)?;
        }
        EventKind::QuestionOpened { job_number, question, default_answer } => {
            builder.question_opened(*job_number, question, default_answer.as_ref())?;
        }
        EventKind::JobFinished { job_number, usage, outcome } => {
            builder.job_finished(*job_number, usage.as_ref(), outcome)?;
        }
        EventKind::Tick => builder.tick()?,
        EventKind::PinChanged(pin) => builder.pin_changed(*pin)?,
        EventKind::ActionRequested(action) => builder.handle_action(action)?,
        EventKind::PullRequestObserved(facts) => builder.pull_request_observed(facts)?,
        EventKind::QueueSettled(result) => builder.queue_settled(result)?,
        EventKind::Reconciled(recovery) => builder.recover(recovery)?,
    }
    builder.follow_pull_request()?;
    builder.start_next_job();
    Ok(builder.finish())
}

impl StepBuilder<'_> {
    fn finish(self) -> Step {
        Step { next: self.task_loop, commands: self.commands, entries: self.entries }
    }

    /// Returns `true` for the learning job that still runs after the task was closed.
    fn is_final_learning_job(&self, job_number: u32) -> bool {
        self.task_loop.state.is_terminal()
            && self.task_loop.active_job.is_some_and(|job| job.job_number == job_number)
    }

    /// Records the lessons of a closed task. The state no longer changes, and failing to learn does
    /// not fail the task.
    fn record_final_lessons(&mut self, usage: Option<&Usage>, outcome: &Outcome) {
        if let Some(job) = self.task_loop.active_job.take() {
            self.task_loop.spend.record(usage, job.reserved_cost);
        }
        match outcome {
            Outcome::Learned(lessons) => {
                self.record_entry(
                    EntryName::SmLearningCaptured,
                    None,
                    EntryData::Lessons(*lessons),
                );
            }
            Outcome::Failed(failure) => {
                let (reason, kind) = (failure.reason.to_string(), failure.kind.clone());
                self.record_entry(
                    EntryName::SmErrorOccurred,
                    Some(reason.into()),
                    EntryData::Failure(kind),
                );
            }
            _ => {}
        }
    }

    /// Handles the start of a run by an agent.
    fn run_started(&mut self, job_number: u32, agent: &Name) -> Result<(), Refusal> {
        let is_waiting = self.task_loop.state == State::Validated;
        let expected = self.task_loop.active_job.map(|job| job.job_number);
        let Some(job) = self
            .task_loop
            .active_job
            .as_mut()
            .filter(|job| is_waiting && job.job_number == job_number)
        else {
            return Err(Refusal::StaleResult { found: job_number, expected });
        };
        job.not_before = None;
        // Voiding an approval also stops the run that it allowed. Check again here, because this is
        // the only way into `in_progress`.
        if !self.task_loop.is_approved() {
            return Err(Refusal::NotApproved);
        }
        self.task_loop.failures.remove(&State::Validated);
        self.task_loop.has_work = true;
        self.transition(
            Trigger::RunStarted,
            State::InProgress,
            None,
            EntryData::Agent(agent.clone()),
        )
    }

    /// Handles a changed base commit or changed rules, which void the approval.
    fn pin_changed(&mut self, pin: Pin) -> Result<(), Refusal> {
        match self.task_loop.pin {
            None => return Err(Refusal::NotPinned),
            Some(now) if now == pin => return Err(Refusal::PinUnchanged),
            Some(_) => self.task_loop.pin = Some(pin),
        }
        match self.task_loop.state {
            State::AwaitingApproval => {
                self.void_approval();
                self.stop_active_job(StopReason::Superseded);
                self.close_question();
                self.record_entry(EntryName::SmApprovalVoided, None, EntryData::Pin(pin));
                Ok(())
            }
            State::Validated | State::InProgress => {
                self.void_approval();
                self.transition(
                    Trigger::ApprovalVoided,
                    State::AwaitingApproval,
                    None,
                    EntryData::Pin(pin),
                )
            }
            // In other states no run is about to start. The approval no longer matches, so the next
            // run needs a new one.
            _ => {
                self.record_entry(EntryName::SmApprovalVoided, None, EntryData::Pin(pin));
                Ok(())
            }
        }
    }
}
