//! State machine of a task that records all its steps, as the workflow would save them.

use chrono::{DateTime, TimeDelta};
use tamma_core::actor::{Actor, AuthMethod, Authentication, RequestInterface};
use tamma_core::council::CouncilSeat;
use tamma_core::failure::FailureKind;
use tamma_core::history::HistoryEntry;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::rules::Rules;
use tamma_core::task::{Priority, Task, TaskType};
use tamma_core::task_loop::{
    Action, EventKind, JobKind, JobUsage, Outcome, State, Step, StepRecord, TaskEvent, TaskLoop,
    TaskReceived, Timestamp,
};
use tamma_core::version::{Edition, FormatVersion};
use tamma_core::{begin, step};
use tamma_store::{RegisteredProject, Store};
use uuid::Uuid;

use crate::world::{commit, costing, failure, green, note, passed, person, pin, plan, reason, red};

pub(crate) const PROJECT: ProjectId = ProjectId(Uuid::from_u128(2));

/// Authentication of every person in these tests.
pub(crate) const AUTH: Authentication =
    Authentication { method: AuthMethod::OwnToken, via: RequestInterface::Web };

pub(crate) struct RecordedTask {
    pub(crate) task: Task,
    pub(crate) rules: Rules,
    pub(crate) now: Timestamp,
    pub(crate) steps: Vec<(Timestamp, Step, Option<JobUsage>)>,
}

/// Returns rules under which every plan needs a person.
pub(crate) fn careful() -> Rules {
    let mut rules = Rules::default();
    rules.scrum_master.task_loop.auto_approve_low_risk = false;
    rules
}

/// Returns rules under which nobody is asked.
pub(crate) fn quick() -> Rules {
    let mut rules = Rules::default();
    rules.scrum_master.task_loop.auto_approve_low_risk = true;
    rules
}

/// Registers the project of all tasks in these tests.
pub(crate) async fn register(store: &Store) {
    let (name, repository) = ("greeter".to_owned(), "/greeter".to_owned());
    store
        .register_project(&RegisteredProject { id: PROJECT, name, repository })
        .await
        .expect("registered");
}

impl RecordedTask {
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
            issue_number: None,
            metadata: [("from".to_owned(), "test".to_owned())].into(),
        };
        // Not a whole number of microseconds, so that a loss of precision is noticed.
        let now =
            DateTime::UNIX_EPOCH + TimeDelta::days(20_000) + TimeDelta::nanoseconds(123_456_789);
        let received = TaskReceived {
            task: task.id,
            project: task.project,
            priority: task.priority,
            at: now,
            by: person("ann"),
            auth: Some(AUTH),
            submitted_plan: None,
            edition: Edition::NEWEST,
        };
        let first = begin(&received, &rules);
        Self { task, rules, now, steps: vec![(now, first, None)] }
    }

    pub(crate) fn it(&self) -> &TaskLoop {
        &self.steps.last().expect("step").1.next
    }

    pub(crate) fn log(&self) -> Vec<HistoryEntry> {
        self.steps.iter().flat_map(|(_, step, _)| step.entries.clone()).collect()
    }

    /// Returns the steps after the first, ready to be saved.
    pub(crate) fn records(&self) -> Vec<StepRecord> {
        self.steps
            .iter()
            .enumerate()
            .skip(1)
            .map(|(number, (at, step, used))| StepRecord {
                job_usage: *used,
                ..StepRecord::new(number as u64, *at, step.clone())
            })
            .collect()
    }

    pub(crate) fn apply(&mut self, by: Actor, kind: EventKind) -> bool {
        self.now += TimeDelta::nanoseconds(61_000_000_777);
        let used = match (&kind, self.it().active_job.or(self.it().stopping_job)) {
            (EventKind::JobFinished { job_number, usage: Some(usage), .. }, Some(work)) => {
                Some(JobUsage { job_number: *job_number, job: work.kind, usage: *usage })
            }
            _ => None,
        };
        let auth = matches!(by, Actor::Person(_)).then_some(AUTH);
        let event = TaskEvent { format: FormatVersion, at: self.now, by, auth, kind };
        match step(self.it(), &event, &self.rules) {
            Ok(step) => {
                self.steps.push((self.now, step, used));
                true
            }
            Err(_) => false,
        }
    }

    pub(crate) fn done(&mut self, outcome: Outcome) -> bool {
        let job_number =
            self.it().active_job.or(self.it().stopping_job).map_or(0, |work| work.job_number);
        self.apply(
            Actor::Tamma,
            EventKind::JobFinished { job_number, usage: Some(costing(5)), outcome },
        )
    }

    pub(crate) fn ask(&mut self, action: Action) -> bool {
        self.apply(person("ann"), EventKind::ActionRequested(action))
    }

    /// Follows the main path until a question is asked or the state is reached.
    pub(crate) fn until(mut self, state: State) -> Self {
        while self.it().state != state && self.it().open_question.is_none() {
            assert!(self.advance(), "{:?} has a next step", self.it().state);
        }
        self
    }

    /// Applies the successful event that the state waits for.
    pub(crate) fn advance(&mut self) -> bool {
        let it = self.it();
        let plans = it.active_job.is_some_and(|work| work.kind == JobKind::Plan);
        let version = it.plan.as_ref().map_or(1, |plan| plan.version + 1);
        if it.open_question.is_some() {
            return match (it.state, it.current_scope(), it.commit) {
                (State::AwaitingApproval, Some(scope), _) => {
                    self.ask(Action::Approve { scope, reason: None })
                }
                (State::QualityReview, _, Some(commit)) => {
                    self.ask(Action::Accept { commit, reason: None })
                }
                _ => self.ask(Action::ChangeTask { request: note() }),
            };
        }
        if it.stopping_job.is_some() {
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
                let job_number = it.active_job.map_or(0, |work| work.job_number);
                let agent = "engine-1".parse().expect("name");
                self.apply(Actor::Tamma, EventKind::RunStarted { job_number, agent })
            }
            State::InProgress => self.done(Outcome::RunFinished(commit(9))),
            State::Testing => self.done(green()),
            State::QualityReview => self.done(passed()),
            State::CtoIntervention => match it.current_seat(&self.rules) {
                Some(CouncilSeat::Member(_)) => self.done(Outcome::OpinionGiven(note())),
                Some(CouncilSeat::Chair) | None => self.done(Outcome::CouncilConcluded(note())),
            },
            State::Approved => self.done(Outcome::DeliveryReady),
            State::Committing => self.done(Outcome::Delivered(commit(10))),
            State::Learning => self.done(Outcome::Learned(1)),
            State::HumanEscalation => self.done(Outcome::WorkSaved),
            // Tasks of this test deliver branches.
            State::AwaitingMerge | State::Completed | State::Cancelled | State::Failed => false,
        }
    }

    /// Applies an event that the dice select, good or bad.
    pub(crate) fn chance(&mut self, dice: u8) -> bool {
        let scope = self.it().current_scope();
        match dice % 16 {
            0 => self.ask(Action::Pause),
            1 | 2 => self.ask(Action::Resume),
            3 => {
                self.now += TimeDelta::hours(2);
                self.apply(Actor::Tamma, EventKind::Tick)
            }
            4 => self.done(failure(FailureKind::Crashed)),
            5 => self.done(red(dice)),
            6 => self.apply(Actor::Tamma, EventKind::PinChanged(pin(dice % 3))),
            7 => match scope {
                Some(scope) if dice > 100 => {
                    self.ask(Action::RevisePlan { scope, changes: note() })
                }
                Some(scope) => self.ask(Action::Reject { scope, reason: reason() }),
                None => false,
            },
            8 => self.ask(Action::Acknowledge),
            9 if dice > 240 => self.ask(Action::Cancel { reason: reason() }),
            _ => self.advance(),
        }
    }
}

/// Truncates a time to microseconds, as the column stores it.
pub(crate) fn to_micros(at: Timestamp) -> Timestamp {
    DateTime::from_timestamp_micros(at.timestamp_micros()).expect("timestamp")
}

/// Creates a task with random events.
pub(crate) fn random(number: u128, mut seed: u64) -> RecordedTask {
    let mut recorded = RecordedTask::new(
        number,
        if seed.is_multiple_of(2) { careful() } else { Rules::default() },
    );
    for _ in 0..400 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let [dice, ..] = seed.to_be_bytes();
        recorded.chance(dice);
    }
    recorded
}
