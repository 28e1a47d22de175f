//! A task's machine with everything it did, step by step, as the durable loop would write it.

use chrono::{DateTime, TimeDelta};
use tamma_core::actor::Actor;
use tamma_core::council::Place;
use tamma_core::failure::FailureKind;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::log::Entry;
use tamma_core::rules::Rules;
use tamma_core::task::{Priority, Task, TaskType};
use tamma_core::task_loop::{
    Action, Event, JobKind, Outcome, Received, State, Step, TaskLoop, Timestamp, What,
};
use tamma_core::version::{Edition, Format};
use tamma_core::{begin, step};
use tamma_store::{Project, Record, Store, Used};
use uuid::Uuid;

use crate::world::{commit, costing, failure, green, note, passed, person, pin, plan, reason, red};

pub(crate) const PROJECT: ProjectId = ProjectId(Uuid::from_u128(2));

pub(crate) struct Tape {
    pub(crate) task: Task,
    pub(crate) rules: Rules,
    pub(crate) now: Timestamp,
    pub(crate) steps: Vec<(Timestamp, Step, Option<Used>)>,
}

/// Rules under which every plan needs a person.
pub(crate) fn careful() -> Rules {
    let mut rules = Rules::default();
    rules.scrum_master.task_loop.auto_approve_low_risk = false;
    rules
}

/// Rules under which nobody is asked.
pub(crate) fn quick() -> Rules {
    let mut rules = Rules::default();
    rules.scrum_master.task_loop.auto_approve_low_risk = true;
    rules
}

/// Registers the project that all tasks of these tests are of.
pub(crate) async fn register(store: &Store) {
    let (name, repository) = ("greeter".to_owned(), "/greeter".to_owned());
    store.register(&Project { id: PROJECT, name, repository }).await.expect("registered");
}

impl Tape {
    pub(crate) fn new(number: u128, rules: Rules) -> Self {
        let task = Task {
            id: TaskId(Uuid::from_u128(0x0192_a000_0000_7000_8000_0000_0000_0000 + number)),
            project: PROJECT,
            title: format!("task {number}"),
            description: "Greets the \"whole\" world.".to_owned(),
            r#type: TaskType::Feature,
            priority: Priority::High,
            acceptance_criteria: vec!["it greets".to_owned()],
            labels: vec!["nice".to_owned()],
            depends_on: Vec::new(),
            suggested_agent: None,
            issue_url: None,
            metadata: [("from".to_owned(), "test".to_owned())].into(),
        };
        // Not a whole number of microseconds, so that nothing is lost unseen.
        let now =
            DateTime::UNIX_EPOCH + TimeDelta::days(20_000) + TimeDelta::nanoseconds(123_456_789);
        let received = Received {
            task: task.id,
            project: task.project,
            priority: task.priority,
            at: now,
            by: person("ann"),
            plan: None,
            edition: Edition::NEWEST,
        };
        let first = begin(&received, &rules);
        Self { task, rules, now, steps: vec![(now, first, None)] }
    }

    pub(crate) fn it(&self) -> &TaskLoop {
        &self.steps.last().expect("a step").1.next
    }

    pub(crate) fn log(&self) -> Vec<Entry> {
        self.steps.iter().flat_map(|(_, step, _)| step.entries.clone()).collect()
    }

    /// The steps after the first, as they are written.
    pub(crate) fn records(&self) -> Vec<Record<'_>> {
        self.steps
            .iter()
            .enumerate()
            .skip(1)
            .map(|(number, (at, step, used))| Record {
                used: *used,
                ..Record::new(number as u64, *at, step)
            })
            .collect()
    }

    pub(crate) fn feed(&mut self, by: Actor, what: What) -> bool {
        self.now += TimeDelta::nanoseconds(61_000_000_777);
        let used = match (&what, self.it().work.or(self.it().leaving)) {
            (What::Done { ticket, usage: Some(usage), .. }, Some(work)) => {
                Some(Used { ticket: *ticket, job: work.kind, at: whole(self.now), usage: *usage })
            }
            _ => None,
        };
        let event = Event { format: Format, at: self.now, by, what };
        match step(self.it(), &event, &self.rules) {
            Ok(step) => {
                self.steps.push((self.now, step, used));
                true
            }
            Err(_) => false,
        }
    }

    pub(crate) fn done(&mut self, outcome: Outcome) -> bool {
        let ticket = self.it().work.or(self.it().leaving).map_or(0, |work| work.ticket);
        self.feed(Actor::Tamma, What::Done { ticket, usage: Some(costing(5)), outcome })
    }

    pub(crate) fn ask(&mut self, action: Action) -> bool {
        self.feed(person("ann"), What::Asked(action))
    }

    /// Goes along the main way until a question is asked or the state is reached.
    pub(crate) fn until(mut self, state: State) -> Self {
        while self.it().state != state && self.it().question.is_none() {
            assert!(self.well(), "{:?} goes on", self.it().state);
        }
        self
    }

    /// What the state waits for happens.
    pub(crate) fn well(&mut self) -> bool {
        let it = self.it();
        let plans = it.work.is_some_and(|work| work.kind == JobKind::Plan);
        let version = it.plan.as_ref().map_or(1, |plan| plan.version + 1);
        if it.question.is_some() {
            return match (it.state, it.binding(), it.commit) {
                (State::AwaitingApproval, Some(binding), _) => {
                    self.ask(Action::Approve { binding, reason: None })
                }
                (State::QualityReview, _, Some(commit)) => {
                    self.ask(Action::Accept { commit, reason: None })
                }
                _ => self.ask(Action::Modify { note: note() }),
            };
        }
        if it.leaving.is_some() {
            return self.done(Outcome::Interrupted);
        }
        match it.state {
            State::Pending => self.done(Outcome::Admitted),
            State::Assigned => self.done(Outcome::Prepared(pin(1))),
            State::Planning | State::Adjusting if plans => {
                self.done(Outcome::Planned(plan(version)))
            }
            State::Planning | State::Adjusting => self.done(Outcome::Briefed(note())),
            State::AwaitingApproval => self.done(Outcome::Checked { blockers: 0, warnings: 0 }),
            State::Validated => {
                let ticket = it.work.map_or(0, |work| work.ticket);
                let engine = "engine-1".parse().expect("a name");
                self.feed(Actor::Tamma, What::Started { ticket, engine })
            }
            State::InProgress => self.done(Outcome::RunFinished(commit(9))),
            State::Testing => self.done(green()),
            State::QualityReview => self.done(passed()),
            State::CtoIntervention => match it.place(&self.rules) {
                Some(Place::Member(_)) => self.done(Outcome::Opined(note())),
                Some(Place::Chair) | None => self.done(Outcome::Concluded(note())),
            },
            State::Approved => self.done(Outcome::TurnCame),
            State::Committing => self.done(Outcome::Delivered(commit(10))),
            State::Learning => self.done(Outcome::Learned(1)),
            State::HumanEscalation => self.done(Outcome::Landed),
            State::Completed | State::Cancelled | State::Failed => false,
        }
    }

    /// Something happens, which need not be good.
    pub(crate) fn chance(&mut self, dice: u8) -> bool {
        let binding = self.it().binding();
        match dice % 16 {
            0 => self.ask(Action::Pause),
            1 | 2 => self.ask(Action::Resume),
            3 => {
                self.now += TimeDelta::hours(2);
                self.feed(Actor::Tamma, What::Tick)
            }
            4 => self.done(failure(FailureKind::Crashed)),
            5 => self.done(red(dice)),
            6 => self.feed(Actor::Tamma, What::Repinned(pin(dice % 3))),
            7 => match binding {
                Some(binding) if dice > 100 => {
                    self.ask(Action::AskChanges { binding, changes: note() })
                }
                Some(binding) => self.ask(Action::Reject { binding, reason: reason() }),
                None => false,
            },
            8 => self.ask(Action::Acknowledge),
            9 if dice > 240 => self.ask(Action::Cancel { reason: reason() }),
            _ => self.well(),
        }
    }
}

/// A moment to the microsecond, as a column has it.
fn whole(at: Timestamp) -> Timestamp {
    DateTime::from_timestamp_micros(at.timestamp_micros()).expect("a moment")
}

/// A task to which all kinds of things happen.
pub(crate) fn random(number: u128, mut seed: u64) -> Tape {
    let mut tape =
        Tape::new(number, if seed.is_multiple_of(2) { careful() } else { Rules::default() });
    for _ in 0..400 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let [dice, ..] = seed.to_be_bytes();
        tape.chance(dice);
    }
    tape
}
