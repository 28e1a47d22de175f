//! One step of the machine.
//!
//! [`step`] is a `match` on what happened; the files below it hold what each kind of event does:
//! [`done`] for jobs that ended, [`asked`] for people's actions, [`time`] for time that passed. What
//! they share, changing state and asking people, is in [`moves`], and what is started next is
//! decided in one place, [`issue`], whatever the event was.

mod asked;
mod done;
mod issue;
mod moves;
mod time;

use std::collections::BTreeMap;

use super::{
    Clock, Command, Event, Outcome, Received, Refusal, State, StopReason, TaskLoop, Timestamp,
    Trigger, What,
};
use crate::actor::Actor;
use crate::approval::Pin;
use crate::budget::{Grant, Spend};
use crate::cause::Stage;
use crate::cost::Usage;
use crate::ids::Name;
use crate::log::{Entry, EntryName, Fact};
use crate::rules::Rules;
use crate::tier::Tier;
use crate::version::Format;

/// What came of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The machine after it.
    pub next: TaskLoop,
    /// What is to be done, in this order.
    pub commands: Vec<Command>,
    /// What is to be written down, in this order.
    pub entries: Vec<Entry>,
}

/// A step in the making.
struct Turn<'a> {
    it: TaskLoop,
    /// Now. The clocks of several machines differ a little; time in a task never runs backwards.
    at: Timestamp,
    by: &'a Actor,
    rules: &'a Rules,
    commands: Vec<Command>,
    entries: Vec<Entry>,
}

/// Makes the machine of a new task.
pub fn begin(received: &Received, rules: &Rules) -> Step {
    let mut turn = Turn {
        it: TaskLoop {
            format: Format,
            edition: received.edition,
            task: received.task,
            project: received.project,
            priority: received.priority,
            state: State::Pending,
            since: received.at,
            paused: None,
            clock: Clock { from: received.at, stage: Stage::Quiet },
            entries: 0,
            pin: None,
            brought: received.plan.clone(),
            plan: None,
            note: None,
            check: None,
            overridden: None,
            approvals: Vec::new(),
            approved: None,
            tickets: 0,
            work: None,
            leaving: None,
            not_before: None,
            quota: None,
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
            commit: None,
            touched: false,
            to_land: false,
            spend: Spend::default(),
            dearest_run: None,
            granted: Grant::default(),
            cost_warned: false,
            questions: 0,
            question: None,
        },
        at: received.at,
        by: &received.by,
        rules,
        commands: Vec::new(),
        entries: Vec::new(),
    };
    turn.write(EntryName::SmTaskReceived, None, Fact::None);
    turn.issue();
    turn.finish()
}

/// Takes a task one event further, or says why the event does not fit. Then nothing has changed.
pub fn step(before: &TaskLoop, event: &Event, rules: &Rules) -> Result<Step, Refusal> {
    let mut turn = Turn {
        it: before.clone(),
        at: event.at.max(before.since),
        by: &event.by,
        rules,
        commands: Vec::new(),
        entries: Vec::new(),
    };
    match &event.what {
        What::Done { ticket, usage, outcome } if turn.learns(*ticket) => {
            turn.taught(usage.as_ref(), outcome);
        }
        _ if before.state.is_terminal() => return Err(Refusal::Ended(before.state)),
        What::Started { ticket, engine } => turn.started(*ticket, engine)?,
        What::Done { ticket, usage, outcome } => turn.done(*ticket, usage.as_ref(), outcome)?,
        What::Tick => turn.tick()?,
        What::Repinned(pin) => turn.repinned(*pin)?,
        What::Asked(action) => turn.asked(action)?,
    }
    turn.issue();
    Ok(turn.finish())
}

impl Turn<'_> {
    fn finish(self) -> Step {
        Step { next: self.it, commands: self.commands, entries: self.entries }
    }

    /// Whether a job is the one that a task has left behind at its end.
    fn learns(&self, ticket: u32) -> bool {
        self.it.state.is_terminal() && self.it.work.is_some_and(|work| work.ticket == ticket)
    }

    /// What an ended task has taught. Nothing moves any more, and failing to learn is no failure of
    /// the task.
    fn taught(&mut self, usage: Option<&Usage>, outcome: &Outcome) {
        if let Some(work) = self.it.work.take() {
            self.it.spend.book(usage, work.reserved);
        }
        match outcome {
            Outcome::Learned(lessons) => {
                self.write(EntryName::SmLearningCaptured, None, Fact::Lessons(*lessons));
            }
            Outcome::Failed(failure) => {
                let (why, kind) = (failure.reason.to_string(), failure.kind.clone());
                self.write(EntryName::SmErrorOccurred, Some(why.into()), Fact::Failure(kind));
            }
            _ => {}
        }
    }

    /// An engine took a run up.
    fn started(&mut self, ticket: u32, engine: &Name) -> Result<(), Refusal> {
        let waits = self.it.state == State::Validated;
        let expected = self.it.work.map(|work| work.ticket);
        let Some(work) = self.it.work.as_mut().filter(|work| waits && work.ticket == ticket) else {
            return Err(Refusal::Stale { found: ticket, expected });
        };
        work.not_before = None;
        // The run was ordered under an approval, and whatever voids an approval also takes the
        // order back. This looks once more, because nothing else may ever reach `in_progress`.
        if !self.it.is_approved() {
            return Err(Refusal::NotApproved);
        }
        self.it.failures.remove(&State::Validated);
        self.it.touched = true;
        self.go(Trigger::RunStarted, State::InProgress, None, Fact::Engine(engine.clone()))
    }

    /// Base or rules changed under the task: what was approved is no longer what would run.
    fn repinned(&mut self, pin: Pin) -> Result<(), Refusal> {
        match self.it.pin {
            None => return Err(Refusal::NotPinned),
            Some(now) if now == pin => return Err(Refusal::SamePin),
            Some(_) => self.it.pin = Some(pin),
        }
        match self.it.state {
            State::AwaitingApproval => {
                self.void_approval();
                self.leave(StopReason::Superseded);
                self.settle();
                self.write(EntryName::SmApprovalVoided, None, Fact::Pin(pin));
                Ok(())
            }
            State::Validated | State::InProgress => {
                self.void_approval();
                self.go(Trigger::ApprovalVoided, State::AwaitingApproval, None, Fact::Pin(pin))
            }
            // Elsewhere nothing is about to run. The approval no longer matches, so the next run
            // will need a new one.
            _ => {
                self.write(EntryName::SmApprovalVoided, None, Fact::Pin(pin));
                Ok(())
            }
        }
    }
}
