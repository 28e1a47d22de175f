//! Test driver for one task. It feeds events to the state machine at times that the test chooses.

use std::str::FromStr;

use chrono::{DateTime, TimeDelta};
use tamma_core::actor::Actor;
use tamma_core::approval::{ApprovalScope, Pin};
use tamma_core::cost::{Cost, Tokens, Usage, Usd};
use tamma_core::council::CouncilSeat;
use tamma_core::failure::{FailureKind, JobFailure};
use tamma_core::forge::{
    CheckFact, CheckResult, Mergeability, PullRequestFacts, PullRequestStatus,
};
use tamma_core::history::{EntryName, HistoryEntry};
use tamma_core::ids::{
    CommitId, Digest, Name, PlanHash, PolicyVersion, ProjectId, Reason, Reference, TaskId,
};
use tamma_core::plan::PlanSummary;
use tamma_core::pull_request::OpenedPullRequest;
use tamma_core::review::{FailureCount, Fingerprint, GateCounts, ReviewSummary};
use tamma_core::rules::{DeliveryMode, Rules};
use tamma_core::task::Priority;
use tamma_core::task_loop::{
    Action, Alert, Command, EventKind, Job, Outcome, Refusal, State, TaskEvent, TaskLoop,
    TaskReceived, Timestamp,
};
use tamma_core::version::{Edition, FormatVersion};
use tamma_core::{begin, step};
use uuid::Uuid;

/// Parses one of the short text types.
pub(crate) fn text<T: FromStr>(text: &str) -> T
where
    T::Err: std::fmt::Debug,
{
    text.parse().expect("a short text")
}

/// Returns the time at a number of minutes after the start.
pub(crate) fn minute(minutes: i64) -> Timestamp {
    DateTime::UNIX_EPOCH + TimeDelta::days(20_000) + TimeDelta::minutes(minutes)
}

pub(crate) fn commit(number: u8) -> CommitId {
    CommitId::Sha1([number; 20])
}

pub(crate) fn pin(number: u8) -> Pin {
    Pin { base: commit(number), policy: PolicyVersion::of(&[number]), prompts: None }
}

/// Low-risk plan with two files.
pub(crate) fn plan(version: u32) -> PlanSummary {
    PlanSummary {
        hash: PlanHash::of(&version.to_be_bytes()),
        version,
        stored_at: text("plan"),
        file_count: 2,
        critical_file_count: 0,
        complexity_score: 2,
        estimated_cost: None,
    }
}

pub(crate) fn passed() -> Outcome {
    Outcome::Reviewed { summary: summary(true), fingerprint: Fingerprint::default() }
}

pub(crate) fn summary(passed: bool) -> ReviewSummary {
    ReviewSummary { passed, score: 90, blocking: 0, unmet_criteria: 0, security_critical: false }
}

pub(crate) fn green() -> Outcome {
    Outcome::Tested(GateCounts { passed: 3, ..GateCounts::default() })
}

/// Failed gates; each `variant` has its own fingerprint.
pub(crate) fn red(variant: u8) -> Outcome {
    let digest = Some(Digest::of(&[variant]));
    let fingerprint = Fingerprint { files: digest, tests: digest, error: digest, diff: digest };
    Outcome::Tested(GateCounts { failed: 1, fingerprint, ..GateCounts::default() })
}

/// Failed gates with a number of failing tests.
pub(crate) fn failing(variant: u8, tests: u32) -> Outcome {
    let Outcome::Tested(gates) = red(variant) else { panic!("gates") };
    let failing = Some(FailureCount { tests, errors: 0 });
    Outcome::Tested(GateCounts { failing, ..gates })
}

pub(crate) fn failure(kind: FailureKind) -> Outcome {
    Outcome::Failed(JobFailure { kind, reason: text("it broke") })
}

/// Delivery that opened or updated a pull request.
pub(crate) fn opened(head: CommitId) -> Outcome {
    let url = "https://forge.test/team/app/pulls/7".to_owned();
    Outcome::PullRequestOpened(OpenedPullRequest { number: 7, url, head, base: commit(1) })
}

/// Check of a pull request, with its first attempt.
pub(crate) fn check(name: &str, result: CheckResult) -> CheckFact {
    CheckFact { name: name.to_owned(), id: "1".to_owned(), required: false, result }
}

pub(crate) fn costing(cents: u32) -> Usage {
    Usage { tokens: Tokens::default(), cost: Cost::Known(Usd::from_cents(cents)) }
}

pub(crate) struct World {
    pub(crate) received: TaskReceived,
    pub(crate) it: TaskLoop,
    pub(crate) rules: Rules,
    pub(crate) now: Timestamp,
    /// Commands of the last step.
    pub(crate) commands: Vec<Command>,
    /// Accepted events.
    pub(crate) taken: Vec<TaskEvent>,
    /// History so far.
    pub(crate) log: Vec<HistoryEntry>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with_rules(Rules::default())
    }

    pub(crate) fn with_rules(rules: Rules) -> Self {
        let received = TaskReceived {
            task: TaskId(Uuid::from_u128(1)),
            project: ProjectId(Uuid::from_u128(2)),
            priority: Priority::Medium,
            at: minute(0),
            by: Actor::Person(text("ann")),
            auth: None,
            submitted_plan: None,
            edition: Edition::NEWEST,
        };
        Self::receive(received, rules)
    }

    /// Creates a driver for a submitted task.
    pub(crate) fn receive(received: TaskReceived, rules: Rules) -> Self {
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

    /// Creates a driver with changed rules.
    pub(crate) fn with(change: impl FnOnce(&mut Rules)) -> Self {
        let mut rules = Rules::default();
        change(&mut rules);
        Self::with_rules(rules)
    }

    pub(crate) fn event(&self, by: Actor, kind: EventKind) -> TaskEvent {
        TaskEvent { format: FormatVersion, at: self.now, by, auth: None, kind }
    }

    pub(crate) fn feed(&mut self, by: Actor, kind: EventKind) -> Result<(), Refusal> {
        let event = self.event(by, kind);
        let step = step(&self.it, &event, &self.rules)?;
        self.it = step.next;
        self.commands = step.commands;
        self.log.extend(step.entries);
        self.taken.push(event);
        Ok(())
    }

    pub(crate) fn try_done(&mut self, outcome: Outcome) -> Result<(), Refusal> {
        let job_number =
            self.it.active_job.or(self.it.stopping_job).map_or(0, |job| job.job_number);
        self.feed(
            Actor::Tamma,
            EventKind::JobFinished { job_number, usage: Some(costing(0)), outcome },
        )
    }

    /// Finishes the active job.
    pub(crate) fn done(&mut self, outcome: Outcome) -> &mut Self {
        self.try_done(outcome).expect("the outcome fits");
        self
    }

    pub(crate) fn done_with_usage(&mut self, usage: Option<Usage>, outcome: Outcome) -> &mut Self {
        let job_number = self.it.active_job.expect("a job is running").job_number;
        self.feed(Actor::Tamma, EventKind::JobFinished { job_number, usage, outcome })
            .expect("the outcome fits");
        self
    }

    /// Starts the run on an agent.
    pub(crate) fn start(&mut self) -> &mut Self {
        let job_number = self.it.active_job.expect("a run is requested").job_number;
        self.feed(Actor::Tamma, EventKind::RunStarted { job_number, agent: text("engine-1") })
            .expect("the run starts");
        self
    }

    pub(crate) fn try_ask(&mut self, person: &str, action: Action) -> Result<(), Refusal> {
        self.feed(Actor::Person(text(person)), EventKind::ActionRequested(action))
    }

    /// Requests an action as Ann, which must be accepted.
    pub(crate) fn ask(&mut self, action: Action) -> &mut Self {
        self.try_ask("ann", action).expect("the action fits");
        self
    }

    /// Advances the time and sends a tick.
    pub(crate) fn tick_at(&mut self, minutes: i64) -> &mut Self {
        self.now = minute(minutes);
        self.feed(Actor::Tamma, EventKind::Tick).expect("something is due");
        self
    }

    pub(crate) fn binding(&self) -> ApprovalScope {
        self.it.current_scope().expect("a plan and a pin")
    }

    /// Follows the main path to a state, without failures.
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
                State::AwaitingApproval if self.it.open_question.is_some() => {
                    let scope = self.binding();
                    self.ask(Action::Approve { scope, reason: None })
                }
                State::AwaitingApproval => self.done(Outcome::Checked { blockers: 0, warnings: 0 }),
                State::Validated => self.start(),
                State::InProgress => self.done(Outcome::RunFinished(commit(9))),
                State::Testing => self.done(green()),
                State::QualityReview if self.it.open_question.is_some() => {
                    let commit = self.it.commit.expect("a commit");
                    self.ask(Action::Accept { commit, reason: None })
                }
                State::QualityReview => self.done(passed()),
                State::CtoIntervention => self.finish_council_seat(),
                State::Approved => self.done(Outcome::DeliveryReady),
                State::Committing if self.rules.delivery.mode != DeliveryMode::Branch => {
                    let head = self.it.commit.expect("a commit");
                    self.done(opened(head))
                }
                State::Committing => self.done(Outcome::Delivered(commit(10))),
                State::AwaitingMerge => {
                    let mut merged = self.facts();
                    let commit = commit(77);
                    merged.status = PullRequestStatus::Merged { commit, by: "ann".to_owned() };
                    self.observe(merged)
                }
                State::Learning => self.done(Outcome::Learned(1)),
                stuck => panic!("{stuck} does not lead to {state}"),
            };
        }
        self
    }

    /// Reports facts about the pull request, which must be new.
    pub(crate) fn observe(&mut self, facts: PullRequestFacts) -> &mut Self {
        self.feed(Actor::Tamma, EventKind::PullRequestObserved(Box::new(facts)))
            .expect("the facts are new");
        self
    }

    /// Returns facts about the pushed head: one check passed, and nothing is missing.
    pub(crate) fn facts(&self) -> PullRequestFacts {
        let memory = self.it.pull_request.as_ref().expect("a pull request");
        PullRequestFacts {
            number: memory.number,
            status: PullRequestStatus::Open,
            draft: false,
            head: memory.pushed,
            base: memory.base,
            mergeability: Mergeability::Clean,
            checks: vec![check("ci", CheckResult::Passed)],
            reviews: Vec::new(),
            threads: Vec::new(),
            queued: false,
            incomplete: false,
        }
    }

    /// Gives the opinion or conclusion of the current council seat.
    pub(crate) fn finish_council_seat(&mut self) -> &mut Self {
        let outcome = match self.it.current_seat(&self.rules) {
            Some(CouncilSeat::Member(_)) => Outcome::OpinionGiven(text("opinion")),
            Some(CouncilSeat::Chair) | None => Outcome::CouncilConcluded(text("guidance")),
        };
        self.done(outcome)
    }

    fn job_is_plan(&self) -> bool {
        self.it.active_job.is_some_and(|job| job.kind == tamma_core::task_loop::JobKind::Plan)
    }

    /// Finishes one run whose gates fail.
    pub(crate) fn fail_gates(&mut self, variant: u8) -> &mut Self {
        self.walk(State::Testing).done(red(variant))
    }

    pub(crate) fn started_job(&self) -> Option<&Job> {
        self.commands.iter().find_map(|command| match command {
            Command::StartJob { job, .. } => Some(job),
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

    pub(crate) fn has_entry(&self, name: EntryName) -> bool {
        self.log.iter().any(|entry| entry.name == name)
    }

    /// Returns the states of the task, in order.
    pub(crate) fn states(&self) -> Vec<State> {
        let mut states = vec![State::Pending];
        states
            .extend(self.log.iter().filter(|entry| entry.trigger.is_some()).map(|entry| entry.to));
        states
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
