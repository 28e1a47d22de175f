//! One task and everybody around it: what a test says happens, happens, at a time of its own.

use std::str::FromStr;

use chrono::{DateTime, TimeDelta};
use tamma_core::actor::Actor;
use tamma_core::approval::{Binding, Pin};
use tamma_core::cost::{Cost, Tokens, Usage, Usd};
use tamma_core::council::Place;
use tamma_core::failure::{Failure, FailureKind};
use tamma_core::ids::{
    CommitId, Digest, Name, PlanHash, PolicyVersion, ProjectId, Reason, Reference, TaskId,
};
use tamma_core::log::{Entry, EntryName};
use tamma_core::plan::Outline;
use tamma_core::review::{Fingerprint, Gates, Summary};
use tamma_core::rules::Rules;
use tamma_core::task::Priority;
use tamma_core::task_loop::{
    Action, Alert, Command, Event, Job, Outcome, Received, Refusal, State, TaskLoop, Timestamp,
    What,
};
use tamma_core::version::{Edition, Format};
use tamma_core::{begin, step};
use uuid::Uuid;

/// A text of one of the short types.
pub(crate) fn text<T: FromStr>(text: &str) -> T
where
    T::Err: std::fmt::Debug,
{
    text.parse().expect("a short text")
}

/// A moment: so many minutes after the first.
pub(crate) fn minute(minutes: i64) -> Timestamp {
    DateTime::UNIX_EPOCH + TimeDelta::days(20_000) + TimeDelta::minutes(minutes)
}

pub(crate) fn commit(number: u8) -> CommitId {
    CommitId::Sha1([number; 20])
}

pub(crate) fn pin(number: u8) -> Pin {
    Pin { base: commit(number), policy: PolicyVersion::of(&[number]) }
}

/// A plan of two files that nobody would worry about.
pub(crate) fn plan(version: u32) -> Outline {
    Outline {
        hash: PlanHash::of(&version.to_be_bytes()),
        version,
        kept_at: text("plan"),
        files: 2,
        critical_files: 0,
        complexity: 2,
        estimated_cost: None,
    }
}

pub(crate) fn passed() -> Outcome {
    Outcome::Reviewed { summary: summary(true), fingerprint: Fingerprint::default() }
}

pub(crate) fn summary(passed: bool) -> Summary {
    Summary { passed, score: 90, blocking: 0, unmet: 0, security_critical: false }
}

pub(crate) fn green() -> Outcome {
    Outcome::Tested(Gates { passed: 3, ..Gates::default() })
}

/// Gates that fail in a way of their own.
pub(crate) fn red(way: u8) -> Outcome {
    let digest = Some(Digest::of(&[way]));
    let fingerprint = Fingerprint { files: digest, tests: digest, error: digest, diff: digest };
    Outcome::Tested(Gates { failed: 1, fingerprint, ..Gates::default() })
}

pub(crate) fn failure(kind: FailureKind) -> Outcome {
    Outcome::Failed(Failure { kind, reason: text("it broke") })
}

pub(crate) fn costing(cents: u32) -> Usage {
    Usage { tokens: Tokens::default(), cost: Cost::Known(Usd::cents(cents)) }
}

pub(crate) struct World {
    #[allow(clippy::allow_attributes, dead_code, reason = "not every test that shares this asks")]
    pub(crate) received: Received,
    pub(crate) it: TaskLoop,
    pub(crate) rules: Rules,
    pub(crate) now: Timestamp,
    /// The commands of the last step.
    pub(crate) commands: Vec<Command>,
    /// Every event so far that was taken.
    pub(crate) taken: Vec<Event>,
    /// Every entry so far.
    pub(crate) log: Vec<Entry>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::under(Rules::default())
    }

    pub(crate) fn under(rules: Rules) -> Self {
        let received = Received {
            task: TaskId(Uuid::from_u128(1)),
            project: ProjectId(Uuid::from_u128(2)),
            priority: Priority::Medium,
            at: minute(0),
            by: Actor::Person(text("ann")),
            plan: None,
            edition: Edition::NEWEST,
        };
        let first = begin(&received, &rules);
        Self {
            received,
            it: first.next,
            rules,
            now: minute(0),
            commands: first.commands,
            taken: Vec::new(),
            log: first.entries,
        }
    }

    /// A world whose rules a test has changed.
    pub(crate) fn with(change: impl FnOnce(&mut Rules)) -> Self {
        let mut rules = Rules::default();
        change(&mut rules);
        Self::under(rules)
    }

    pub(crate) fn event(&self, by: Actor, what: What) -> Event {
        Event { format: Format, at: self.now, by, what }
    }

    pub(crate) fn feed(&mut self, by: Actor, what: What) -> Result<(), Refusal> {
        let event = self.event(by, what);
        let step = step(&self.it, &event, &self.rules)?;
        self.it = step.next;
        self.commands = step.commands;
        self.log.extend(step.entries);
        self.taken.push(event);
        Ok(())
    }

    pub(crate) fn try_done(&mut self, outcome: Outcome) -> Result<(), Refusal> {
        let ticket = self.it.work.or(self.it.leaving).map_or(0, |work| work.ticket);
        self.feed(Actor::Tamma, What::Done { ticket, usage: Some(costing(0)), outcome })
    }

    /// The job under way ends.
    pub(crate) fn done(&mut self, outcome: Outcome) -> &mut Self {
        self.try_done(outcome).expect("the outcome fits");
        self
    }

    pub(crate) fn done_costing(&mut self, usage: Option<Usage>, outcome: Outcome) -> &mut Self {
        let ticket = self.it.work.expect("a job is under way").ticket;
        self.feed(Actor::Tamma, What::Done { ticket, usage, outcome }).expect("the outcome fits");
        self
    }

    /// An engine takes the run up.
    pub(crate) fn start(&mut self) -> &mut Self {
        let ticket = self.it.work.expect("a run is ordered").ticket;
        self.feed(Actor::Tamma, What::Started { ticket, engine: text("engine-1") })
            .expect("the run starts");
        self
    }

    pub(crate) fn try_ask(&mut self, person: &str, action: Action) -> Result<(), Refusal> {
        self.feed(Actor::Person(text(person)), What::Asked(action))
    }

    /// Ann asks for something and gets it.
    pub(crate) fn ask(&mut self, action: Action) -> &mut Self {
        self.try_ask("ann", action).expect("the action fits");
        self
    }

    /// Time passes, and the machine is told.
    pub(crate) fn tick_at(&mut self, minutes: i64) -> &mut Self {
        self.now = minute(minutes);
        self.feed(Actor::Tamma, What::Tick).expect("something is due");
        self
    }

    pub(crate) fn binding(&self) -> Binding {
        self.it.binding().expect("a plan and a pin")
    }

    /// Goes along the main way, everything going well, up to a state.
    pub(crate) fn to(mut self, state: State) -> Self {
        self.walk(state);
        self
    }

    pub(crate) fn walk(&mut self, state: State) -> &mut Self {
        while self.it.state != state {
            match self.it.state {
                State::Pending => self.done(Outcome::Admitted),
                State::Assigned => self.done(Outcome::Prepared(pin(1))),
                State::Planning | State::Adjusting if self.job_is_plan() => {
                    let version = self.it.plan.as_ref().map_or(1, |plan| plan.version + 1);
                    self.done(Outcome::Planned(plan(version)))
                }
                State::Adjusting => self.done(Outcome::Briefed(text("brief"))),
                State::AwaitingApproval if self.it.question.is_some() => {
                    let binding = self.binding();
                    self.ask(Action::Approve { binding, reason: None })
                }
                State::AwaitingApproval => self.done(Outcome::Checked { blockers: 0, warnings: 0 }),
                State::Validated => self.start(),
                State::InProgress => self.done(Outcome::RunFinished(commit(9))),
                State::Testing => self.done(green()),
                State::QualityReview if self.it.question.is_some() => {
                    let commit = self.it.commit.expect("a commit");
                    self.ask(Action::Accept { commit, reason: None })
                }
                State::QualityReview => self.done(passed()),
                State::CtoIntervention => self.counsel(),
                State::Approved => self.done(Outcome::TurnCame),
                State::Committing => self.done(Outcome::Delivered(commit(10))),
                State::Learning => self.done(Outcome::Learned(1)),
                stuck => panic!("{stuck} does not lead to {state}"),
            };
        }
        self
    }

    /// The seat whose turn it is says what it is there to say.
    pub(crate) fn counsel(&mut self) -> &mut Self {
        let outcome = match self.it.place(&self.rules) {
            Some(Place::Member(_)) => Outcome::Opined(text("opinion")),
            Some(Place::Chair) | None => Outcome::Concluded(text("guidance")),
        };
        self.done(outcome)
    }

    fn job_is_plan(&self) -> bool {
        self.it.work.is_some_and(|work| work.kind == tamma_core::task_loop::JobKind::Plan)
    }

    /// Runs once, and fails the gates in this way.
    pub(crate) fn fail_in(&mut self, way: u8) -> &mut Self {
        self.walk(State::Testing).done(red(way))
    }

    pub(crate) fn started(&self) -> Option<&Job> {
        self.commands.iter().find_map(|command| match command {
            Command::Start { job, .. } => Some(job),
            _ => None,
        })
    }

    pub(crate) fn alerts(&self) -> Vec<&Alert> {
        let mut alerts = Vec::new();
        for command in &self.commands {
            if let Command::Alert(alert) = command {
                alerts.push(alert);
            }
        }
        alerts
    }

    pub(crate) fn has_logged(&self, name: EntryName) -> bool {
        self.log.iter().any(|entry| entry.name == name)
    }

    /// The states the task has been in, in their order.
    pub(crate) fn way(&self) -> Vec<State> {
        let mut way = vec![State::Pending];
        way.extend(self.log.iter().filter(|entry| entry.on.is_some()).map(|entry| entry.to));
        way
    }
}

pub(crate) fn reason() -> Reason {
    text("because")
}

pub(crate) fn note() -> Reference {
    text("note")
}

pub(crate) fn person(name: &str) -> Actor {
    Actor::Person(text::<Name>(name))
}
