//! Six invariants of the state machine, over random sequences of valid and invalid events.
//!
//! Each sequence is a list of numbers that are turned into events for the current state, so that
//! most of them are valid. The others are stale, out of place or nonsensical. An oracle follows
//! each sequence and derives approvals, running jobs and visited states from the events alone.
//!
//! `TAMMA_SEQUENCES` sets the number of sequences (default 2,000), and `TAMMA_SEED` the seed. The
//! test fails if no sequence takes a transition of the table.
#![expect(
    clippy::disallowed_methods,
    reason = "the number of sequences comes from the environment"
)]

mod forge;

use std::collections::{BTreeMap, BTreeSet};

use chrono::TimeDelta;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use strum::IntoEnumIterator as _;
use tamma_core::actor::Actor;
use tamma_core::approval::{ApprovalScope, Pin};
use tamma_core::budget::{self, Grant};
use tamma_core::cost::{Cost, Tokens, Usage, Usd};
use tamma_core::council::CouncilSeat;
use tamma_core::failure::FailureKind;
use tamma_core::history::EntryName;
use tamma_core::ids::{CommitId, Name, PlanHash};
use tamma_core::level::RiskLevel;
use tamma_core::plan::PlanSummary;
use tamma_core::pull_request::{Feedback, PullRequestJob, PullRequestOutcome};
use tamma_core::reconciliation::{Recovery, Resolution, WorkflowLoss};
use tamma_core::rules::{DeliveryMode, HaltCondition, Rules};
use tamma_core::step;
use tamma_core::stuck::ATTEMPT_HISTORY;
use tamma_core::task::{Priority, TaskEdit};
use tamma_core::task_loop::{
    Action, Command, EventKind, Job, JobKind, Outcome, Refusal, State, Step, TaskEvent, TaskLoop,
    Trigger, table,
};
use tamma_core::tier::Tier;
use tamma_core::version::Edition;

use self::forge::{check_pull_request, forge_event, pull_request_outcome};
use crate::world::{
    World, commit, failing, failure, green, note, opened, passed, person, pin, plan, reason, red,
    summary,
};

/// Possible event, as numbers.
#[derive(Debug, Clone, Copy)]
struct Happening {
    what: u8,
    detail: u8,
    minutes: u8,
}

fn happening() -> impl Strategy<Value = Happening> {
    (any::<u8>(), any::<u8>(), any::<u8>()).prop_map(|(what, detail, minutes)| Happening {
        what,
        detail,
        minutes,
    })
}

/// Random rules: strict or lax, patient or not, with large or small budgets.
fn rules(choice: u16) -> Rules {
    let bit = |number: u32| choice >> number & 1 == 1;
    let mut rules = Rules::default();
    let limits = &mut rules.scrum_master.task_loop;
    limits.auto_approve_low_risk = bit(0);
    limits.stuck_detection = !bit(1);
    limits.max_iterations = if bit(2) { 10 } else { 3 };
    limits.max_councils = if bit(3) { 2 } else { u8::from(bit(4)) };
    limits.max_retries = if bit(5) { 3 } else { 1 };
    if bit(6) {
        limits.halt_conditions.retain(|condition| *condition != HaltCondition::SecurityCritical);
    }
    if bit(15) {
        // Councils soon.
        (limits.escalation_threshold, limits.top_tier_threshold) = (1, 1);
    }
    rules.ceremony.medium.approvers = if bit(7) { 2 } else { 1 };
    rules.ceremony.low.human_review = bit(8) && bit(9);
    rules.budget.task_usd = if bit(10) && bit(11) { Some(Usd::from_cents(900)) } else { None };
    rules.budget.task_tokens = if bit(12) && bit(13) { Some(50_000) } else { None };
    rules.scrum_master.learning_capture.capture_failure = bit(14);
    rules.delivery.mode = match choice % 4 {
        0 => DeliveryMode::Branch,
        1 => DeliveryMode::PullRequest,
        _ => DeliveryMode::Merge,
    };
    rules.delivery.pull_requests.max_rounds = 2;
    rules.delivery.pull_requests.approvals = u8::from(choice % 8 == 7);
    rules
}

/// Expected facts, derived from the events alone.
#[derive(Default)]
struct Oracle {
    plan: Option<PlanHash>,
    pin: Option<Pin>,
    approvals: BTreeMap<Name, ApprovalScope>,
    automatic: Option<ApprovalScope>,
    running: BTreeSet<u32>,
    last_job_number: u32,
    transitions: BTreeSet<(State, Trigger, State)>,
    sequence: u64,
    /// Feedback that went back to an agent.
    sent_back: BTreeSet<String>,
}

impl Oracle {
    fn scope(&self) -> Option<ApprovalScope> {
        Some(ApprovalScope { plan: self.plan?, pin: self.pin? })
    }

    /// Applies an accepted event.
    fn apply(&mut self, event: &TaskEvent, before: &TaskLoop) {
        match &event.kind {
            EventKind::JobFinished { job_number, outcome, .. } => {
                let is_active = before.active_job.is_some_and(|job| job.job_number == *job_number);
                self.running.remove(job_number);
                match outcome {
                    Outcome::Planned(plan) if is_active => self.plan = Some(plan.hash),
                    Outcome::Prepared(pin) if is_active => self.pin = Some(*pin),
                    Outcome::PullRequest(outcome) if is_active => {
                        self.pull_request_job_finished(outcome, before);
                    }
                    _ => {}
                }
            }
            EventKind::PinChanged(pin) => self.pin = Some(*pin),
            // No job survives its workflow.
            EventKind::Reconciled(_) => self.running.clear(),
            EventKind::ActionRequested(Action::Approve { scope, .. }) => {
                if let Actor::Person(name) = &event.by {
                    self.approvals.insert(name.clone(), *scope);
                }
            }
            _ => {}
        }
    }

    fn pull_request_job_finished(&mut self, outcome: &PullRequestOutcome, before: &TaskLoop) {
        let job = before.pull_request.as_ref().and_then(|memory| memory.job.as_deref());
        match (job, outcome) {
            (
                Some(PullRequestJob::CollectFeedback { feedback, .. }),
                PullRequestOutcome::FeedbackCollected(_),
            ) => self.sent_back.extend(feedback.iter().map(Feedback::key)),
            (_, PullRequestOutcome::Rebased { base, .. }) => self.move_base(*base),
            (Some(PullRequestJob::Rebase { onto, .. }), PullRequestOutcome::RebaseConflicts(_)) => {
                self.move_base(*onto);
            }
            _ => {}
        }
    }

    /// Moves the approval of the plan with the change.
    fn move_base(&mut self, base: CommitId) {
        let old = self.scope();
        if let Some(pin) = &mut self.pin {
            pin.base = base;
        }
        let new = self.scope();
        for scope in self.approvals.values_mut().chain(&mut self.automatic) {
            if let (true, Some(new)) = (old == Some(*scope), new) {
                *scope = new;
            }
        }
    }

    /// Returns `true` if the current scope was approved by people or by the low-risk rule.
    fn is_approved(&self, task_loop: &TaskLoop, rules: &Rules) -> bool {
        let Some(now) = self.scope() else {
            return false;
        };
        let level = task_loop.risk_level().unwrap_or(RiskLevel::High);
        let approver_count = self.approvals.values().filter(|scope| **scope == now).count();
        self.automatic == Some(now)
            || approver_count >= usize::from(rules.ceremony.get(level).approvers)
    }
}

/// Turns numbers into an event. Five in eight are the event that the state waits for. In stormy
/// sequences, rarely reached states fail more often.
fn event(world: &World, happening: Happening, stormy: bool) -> TaskEvent {
    let Happening { what, detail, .. } = happening;
    let is_rare = matches!(
        world.it.state,
        State::CtoIntervention | State::Approved | State::Committing | State::Adjusting
    );
    let what = if stormy && is_rare && what < 128 { 160 } else { what };
    let job_number = world.it.active_job.or(world.it.stopping_job).map_or(0, |job| job.job_number);
    let names = ["ann", "bo", "cy"];
    let someone = person(names[usize::from(detail) % 3]);
    if let Some(kind) = forge_event(world, what, detail) {
        return world.event(Actor::Tamma, kind);
    }
    match what {
        0..=159 => {
            if world.it.state == State::Validated && world.it.stopping_job.is_none() && detail >= 40
            {
                let agent = "engine".parse().expect("a name");
                return world.event(Actor::Tamma, EventKind::RunStarted { job_number, agent });
            }
            if world.it.open_question.is_some() && (world.it.active_job.is_none() || detail < 128) {
                return world.event(someone, EventKind::ActionRequested(answer(world, detail)));
            }
            let outcome = outcome(world, detail);
            world.event(
                Actor::Tamma,
                EventKind::JobFinished { job_number, usage: usage(detail), outcome },
            )
        }
        160..=179 => {
            let outcome = failure(match detail % 6 {
                0 => FailureKind::Unavailable,
                1 => FailureKind::TimedOut,
                2 => FailureKind::Quota {
                    provider: "provider".parse().expect("a name"),
                    until: world.now + TimeDelta::minutes(i64::from(detail) * 3),
                },
                3 if detail > 128 => FailureKind::OverBudget,
                4 if detail > 128 => FailureKind::Refused,
                5 if detail > 224 => FailureKind::WorkersLost,
                _ => FailureKind::Crashed,
            });
            world.event(
                Actor::Tamma,
                EventKind::JobFinished { job_number, usage: usage(detail), outcome },
            )
        }
        180..=185 => world.event(Actor::Tamma, EventKind::PinChanged(pin(detail % 4))),
        186..=197 => world.event(Actor::Tamma, EventKind::Tick),
        198..=199 => world.event(Actor::Tamma, EventKind::Reconciled(recovery(detail))),
        200..=239 => world.event(someone, EventKind::ActionRequested(action(world, detail))),
        240..=247 => {
            // A result of a job that is not running, or that the job cannot have.
            let job_number = job_number.wrapping_add(u32::from(detail % 3)).wrapping_sub(1);
            let outcome = any_outcome(world, detail);
            world.event(Actor::Tamma, EventKind::JobFinished { job_number, usage: None, outcome })
        }
        248..=249 => {
            let question = note();
            let default_answer = (detail > 128).then(note);
            let opened = EventKind::QuestionOpened { job_number, question, default_answer };
            world.event(Actor::Tamma, opened)
        }
        250..=251 => {
            let agent = "engine".parse().expect("a name");
            let job_number = job_number.wrapping_add(u32::from(detail % 2));
            world.event(Actor::Tamma, EventKind::RunStarted { job_number, agent })
        }
        // Only people can request actions.
        252..=255 => world.event(Actor::Council, EventKind::ActionRequested(action(world, detail))),
    }
}

/// Returns the event that leads a task without failures to its pull request.
fn good_event(world: &World) -> TaskEvent {
    let job_number = world.it.active_job.map_or(0, |job| job.job_number);
    if world.it.state == State::Validated {
        let agent = "engine".parse().expect("a name");
        return world.event(Actor::Tamma, EventKind::RunStarted { job_number, agent });
    }
    if world.it.open_question.is_some() {
        let detail = if world.it.approvals.is_empty() { 2 } else { 4 };
        let by = person(if detail == 2 { "ann" } else { "bo" });
        return world.event(by, EventKind::ActionRequested(answer(world, detail)));
    }
    let is_test = world.it.active_job.is_some_and(|job| job.kind == JobKind::Test);
    let outcome = outcome(world, if is_test { 2 } else { 1 });
    world.event(Actor::Tamma, EventKind::JobFinished { job_number, usage: None, outcome })
}

/// Returns the recovery of a lost workflow. Closing the task is rare.
fn recovery(detail: u8) -> Recovery {
    let losses: Vec<_> = WorkflowLoss::iter().collect();
    let resolution = match detail {
        0..=9 => Resolution::Close,
        10..=99 => Resolution::AskPerson,
        _ => Resolution::Restart,
    };
    let loss = losses[usize::from(detail) % losses.len()];
    Recovery { loss, resolution, reason: "lost".to_owned() }
}

fn usage(detail: u8) -> Option<Usage> {
    let tokens = Tokens { input: u64::from(detail) * 10, ..Tokens::default() };
    match detail % 4 {
        0 => None,
        1 => Some(Usage { tokens, cost: Cost::Unknown }),
        _ => Some(Usage { tokens, cost: Cost::Known(Usd::from_cents(u32::from(detail))) }),
    }
}

fn next_plan(world: &World, detail: u8) -> PlanSummary {
    let version = world.it.plan.as_ref().map_or(1, |plan| plan.version + 1);
    PlanSummary {
        file_count: u16::from(detail % 13),
        complexity_score: detail % 15,
        critical_file_count: u16::from(detail > 230),
        ..plan(version)
    }
}

/// Returns a possible outcome of the running job.
fn outcome(world: &World, detail: u8) -> Outcome {
    if let Some(job) = world.it.stopping_job {
        return if detail < 200 { Outcome::Interrupted } else { ended_as(world, job.kind, detail) };
    }
    match world.it.active_job {
        Some(job) if job.stopping && detail < 200 => Outcome::Interrupted,
        Some(job) => ended_as(world, job.kind, detail),
        None => Outcome::Admitted,
    }
}

fn ended_as(world: &World, kind: JobKind, detail: u8) -> Outcome {
    match kind {
        JobKind::Admit => Outcome::Admitted,
        JobKind::Prepare => Outcome::Prepared(pin(1)),
        JobKind::Plan | JobKind::Implement | JobKind::Review | JobKind::Convene
            if detail % 32 == 31 =>
        {
            let default_answer = (detail > 128).then(note);
            Outcome::QuestionAsked { question: note(), default_answer }
        }
        JobKind::Plan if detail.is_multiple_of(4) => Outcome::PlanInvalid(note()),
        JobKind::Plan => Outcome::Planned(next_plan(world, detail)),
        JobKind::Check => Outcome::Checked {
            blockers: u16::from(detail > 235),
            warnings: u16::from(detail.is_multiple_of(3)),
        },
        JobKind::Implement if detail % 16 == 5 => Outcome::PlanWrong(note()),
        JobKind::Implement => Outcome::RunFinished(commit(detail)),
        JobKind::Test if detail.is_multiple_of(2) => green(),
        JobKind::Test if detail % 16 == 1 => {
            let Outcome::Tested(mut gates) = red(detail) else {
                return green();
            };
            gates.security_critical = true;
            Outcome::Tested(gates)
        }
        // Fewer and fewer failing tests, or mostly the same failure, and sometimes a new one.
        JobKind::Test if detail % 16 == 7 => failing(detail, u32::from(255 - detail)),
        JobKind::Test => red(if detail < 200 { 1 } else { detail }),
        JobKind::Review if detail.is_multiple_of(4) => Outcome::Reviewed {
            summary: summary(false),
            fingerprint: tamma_core::review::Fingerprint::default(),
        },
        JobKind::Review if detail % 16 == 5 && world.it.unconfirmed.is_none() => {
            Outcome::CriticalUnconfirmed(note())
        }
        JobKind::Review => passed(),
        JobKind::Brief => Outcome::Briefed(note()),
        JobKind::Convene => match world.it.current_seat(&world.rules) {
            Some(CouncilSeat::Member(_)) => Outcome::OpinionGiven(note()),
            Some(CouncilSeat::Chair) | None => Outcome::CouncilConcluded(note()),
        },
        JobKind::AwaitDelivery => Outcome::DeliveryReady,
        JobKind::Deliver if detail.is_multiple_of(2) => Outcome::DeliveryRejected(note()),
        JobKind::Deliver if world.rules.delivery.mode == DeliveryMode::Branch => {
            Outcome::Delivered(commit(detail))
        }
        // A delivery that changes the commit is never merged by Tamma.
        JobKind::Deliver if detail % 32 == 3 => opened(commit(detail)),
        JobKind::Deliver => opened(world.it.commit.unwrap_or(commit(detail))),
        JobKind::PullRequest => Outcome::PullRequest(pull_request_outcome(world, detail)),
        JobKind::Learn => Outcome::Learned(u16::from(detail % 3)),
        JobKind::SaveWork => Outcome::WorkSaved,
    }
}

fn any_outcome(world: &World, detail: u8) -> Outcome {
    let kinds = [
        JobKind::Admit,
        JobKind::Prepare,
        JobKind::Plan,
        JobKind::Check,
        JobKind::Implement,
        JobKind::Test,
        JobKind::Review,
        JobKind::Brief,
        JobKind::Convene,
        JobKind::AwaitDelivery,
        JobKind::Deliver,
        JobKind::PullRequest,
        JobKind::Learn,
        JobKind::SaveWork,
    ];
    ended_as(world, kinds[usize::from(detail) % kinds.len()], detail)
}

fn grant(detail: u8) -> Grant {
    match detail % 3 {
        0 => Grant::default(),
        1 => Grant { iterations: 1, usd: Usd::from_cents(500), tokens: 10_000 },
        _ => Grant { iterations: 2, usd: Usd::from_cents(5_000), tokens: 100_000 },
    }
}

fn scope(world: &World, detail: u8) -> ApprovalScope {
    let stale = ApprovalScope { plan: PlanHash::of(b"other"), pin: pin(3) };
    let current = if detail % 16 == 15 { None } else { world.it.current_scope() };
    current.unwrap_or(stale)
}

/// Returns a possible answer to the open question.
fn answer(world: &World, detail: u8) -> Action {
    let scope = scope(world, detail);
    let commit = world.it.commit.unwrap_or(commit(0));
    match world.it.state {
        State::AwaitingApproval => match detail % 8 {
            0 => Action::Reject { scope, reason: reason() },
            1 => Action::RevisePlan { scope, changes: note() },
            _ => Action::Approve { scope, reason: None },
        },
        State::QualityReview if detail.is_multiple_of(3) => {
            Action::RequestChanges { commit, comments: note() }
        }
        State::QualityReview => Action::Accept { commit, reason: None },
        _ if world
            .it
            .open_question
            .as_ref()
            .is_some_and(|question| question.agent_question.is_some())
            && detail > 60 =>
        {
            Action::Reply { reply: note() }
        }
        _ => match detail % 12 {
            0..=2 => Action::Continue { grant: grant(detail / 12) },
            3..=5 => Action::Retry { grant: grant(detail / 12) },
            6 => Action::ChangeTask { request: note() },
            7 | 8 => roll_back(detail / 12),
            9 => Action::Skip { reason: reason() },
            10 if detail > 128 => Action::Convene { question: note() },
            10 => Action::Override { scope, reason: reason() },
            _ if detail > 200 => Action::Abandon { reason: reason() },
            _ => Action::Acknowledge,
        },
    }
}

fn roll_back(detail: u8) -> Action {
    let states = [
        State::Planning,
        State::AwaitingApproval,
        State::Validated,
        State::Testing,
        State::QualityReview,
        State::Completed,
    ];
    Action::RollBack { to: states[usize::from(detail) % states.len()], reason: reason() }
}

/// Returns any action.
fn action(world: &World, detail: u8) -> Action {
    match detail % 10 {
        0 | 1 => Action::Pause,
        2..=4 => Action::Resume,
        5 => Action::ChangeTask { request: note() },
        6 => Action::Retry { grant: Grant::default() },
        7 if detail > 180 => Action::Cancel { reason: reason() },
        8 => Action::Acknowledge,
        9 if detail > 100 => Action::Convene { question: note() },
        9 if detail > 50 => {
            Action::Edit(TaskEdit { priority: Some(Priority::High), ..TaskEdit::default() })
        }
        _ => answer(world, detail),
    }
}

/// Plays one sequence and checks all invariants after every event.
fn play(
    choice: u16,
    happenings: &[Happening],
    taken: &mut BTreeSet<(State, Trigger, State)>,
) -> Result<(), TestCaseError> {
    let mut world = World::with_rules(rules(choice));
    // Tasks of the first edition still exist.
    if choice >> 13 == 0 {
        world.it.edition = Edition::November2026;
    }
    let mut oracle =
        Oracle { sequence: world.it.entry_count, last_job_number: 1, ..Oracle::default() };
    oracle.running.insert(1);
    // A quarter of the tasks start with an open pull request, which random events reach rarely.
    if choice & 0b110 == 0b110 {
        for _ in 0..25 {
            if world.it.state == State::AwaitingMerge {
                break;
            }
            let event = good_event(&world);
            apply(&mut world, &event, &mut oracle)?;
        }
    }
    for happening in happenings {
        if happening.what % 5 == 0 {
            world.now += TimeDelta::minutes(i64::from(happening.minutes));
        }
        let event = event(&world, *happening, choice >> 15 == 1);
        apply(&mut world, &event, &mut oracle)?;
    }
    taken.extend(oracle.transitions);
    Ok(())
}

/// Applies one event and checks all invariants.
fn apply(world: &mut World, event: &TaskEvent, oracle: &mut Oracle) -> Result<(), TestCaseError> {
    let before = world.it.clone();
    let result = step(&before, event, &world.rules);

    // 6. The same inputs give the same state and the same commands.
    prop_assert_eq!(&result, &step(&before, event, &world.rules));
    let read: TaskEvent = round_trip(event)?;
    prop_assert_eq!(&read, event);

    match result {
        Err(refusal) => {
            prop_assert!(!matches!(refusal, Refusal::NoTransition { .. }), "{}", refusal);
            // 1. Terminal states never change.
            let ended = matches!(refusal, Refusal::Ended(_));
            prop_assert_eq!(ended, before.state.is_terminal());
            prop_assert!(!refusal.to_string().is_empty());
        }
        Ok(step) => {
            oracle.apply(event, &before);
            check_step(&before, event, &step, &world.rules, oracle)?;
            world.it = step.next;
        }
    }
    Ok(())
}

fn check_step(
    before: &TaskLoop,
    event: &TaskEvent,
    step: &Step,
    rules: &Rules,
    oracle: &mut Oracle,
) -> Result<(), TestCaseError> {
    let task_loop = &step.next;
    if before.state.is_terminal() {
        // A closed task accepts only its lessons or their loss, and its state does not change.
        let is_lost = matches!(event.kind, EventKind::Reconciled(_));
        prop_assert!(is_lost || before.active_job.is_some_and(|job| job.kind == JobKind::Learn));
        oracle.sequence = task_loop.entry_count;
        prop_assert!(task_loop.active_job.is_none() && step.commands.is_empty());
        prop_assert_eq!(task_loop.state, before.state);
        return Ok(());
    }
    check_transitions(before, event, step, oracle)?;
    check_approval(step, rules, oracle)?;
    check_counters(task_loop, rules)?;
    check_jobs(before, step, rules, oracle)?;
    check_pull_request(step, rules, oracle)?;

    // 5. Every open task has a next step.
    prop_assert_eq!(
        task_loop.next_step(rules).is_none(),
        task_loop.state.is_terminal(),
        "{:?}",
        task_loop
    );
    if let Some(next) = task_loop.next_step(rules) {
        prop_assert!(!next.to_string().is_empty());
    }
    if let Some(at) = task_loop.wake_at(rules) {
        prop_assert!(task_loop.paused.is_none());
        prop_assert!(!task_loop.state.is_terminal());
        // After this time, a tick always has an effect.
        let mut later = event.clone();
        later.at = at;
        later.kind = EventKind::Tick;
        prop_assert!(tamma_core::step(task_loop, &later, rules).is_ok());
    }

    // The state is small and survives serialisation.
    let text =
        serde_json::to_string(task_loop).map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert!(text.len() < 12_000, "{} bytes: {}", text.len(), text);
    let read: TaskLoop = round_trip(task_loop)?;
    prop_assert_eq!(&read, task_loop);
    Ok(())
}

fn round_trip<T: serde::Serialize + serde::de::DeserializeOwned>(
    value: &T,
) -> Result<T, TestCaseError> {
    serde_json::to_string(value)
        .and_then(|text| serde_json::from_str(&text))
        .map_err(|error| TestCaseError::fail(error.to_string()))
}

/// 1 and 2: one state at a time, connected by transitions of the table. Every detour has an author
/// and a reason.
fn check_transitions(
    before: &TaskLoop,
    event: &TaskEvent,
    step: &Step,
    oracle: &mut Oracle,
) -> Result<(), TestCaseError> {
    let mut state = before.state;
    for entry in &step.entries {
        oracle.sequence += 1;
        prop_assert_eq!(entry.sequence, oracle.sequence);
        prop_assert_eq!(entry.from, state);
        // Opinions and conclusions are the council's own.
        let of_council = matches!(
            event.kind,
            EventKind::JobFinished {
                outcome: Outcome::OpinionGiven(_) | Outcome::CouncilConcluded(_),
                ..
            }
        );
        if of_council && entry.actor == Actor::Council {
            prop_assert_eq!(before.state, State::CtoIntervention);
        } else {
            prop_assert_eq!(&entry.actor, &event.by);
        }
        match entry.trigger {
            None => prop_assert_eq!(entry.to, entry.from),
            Some(on) => {
                prop_assert!(table::allows(entry.from, on, entry.to));
                oracle.transitions.insert((entry.from, on, entry.to));
                let by_person = matches!(entry.actor, Actor::Person(_));
                if matches!(on, Trigger::Skipped | Trigger::RolledBack | Trigger::Abandoned) {
                    prop_assert!(by_person && entry.reason.is_some());
                }
                let position =
                    |state: State| State::MAIN_PATH.iter().position(|main| *main == state);
                if let (Some(from), Some(to)) = (position(entry.from), position(entry.to)) {
                    prop_assert!(to <= from + 1, "{} was skipped to", entry.to);
                }
                if entry.from == State::HumanEscalation {
                    // A task that cannot be restarted is closed, whoever has it.
                    // A pull request that ends answers its questions, and unanswered questions can
                    // answer themselves.
                    let by_itself =
                        matches!(event.kind, EventKind::Reconciled(_) | EventKind::Tick)
                            || on == Trigger::PullRequestChanged;
                    prop_assert!(by_person || by_itself);
                }
            }
        }
        if entry.name == EntryName::SmApprovalAuto {
            oracle.automatic = oracle.scope();
        }
        state = entry.to;
    }
    prop_assert_eq!(state, step.next.state);
    Ok(())
}

/// 3: nothing reaches `in_progress` without an approval of exactly what runs.
fn check_approval(step: &Step, rules: &Rules, oracle: &Oracle) -> Result<(), TestCaseError> {
    let task_loop = &step.next;
    let run_spec = step.commands.iter().find_map(|command| match command {
        Command::StartJob { job: Job::Implement(run_spec), .. } => Some(run_spec),
        _ => None,
    });
    if let Some(run_spec) = run_spec {
        prop_assert_eq!(
            Some(ApprovalScope { plan: run_spec.plan.hash, pin: run_spec.pin }),
            oracle.scope()
        );
    }
    if run_spec.is_some() || task_loop.state == State::InProgress {
        prop_assert!(oracle.is_approved(task_loop, rules), "{:?} runs unapproved", task_loop);
    }
    Ok(())
}

/// 4: no counter exceeds its limit.
fn check_counters(task_loop: &TaskLoop, rules: &Rules) -> Result<(), TestCaseError> {
    let limits = &rules.scrum_master.task_loop;
    prop_assert!(task_loop.failures.values().all(|count| *count <= limits.max_failures_per_state));
    let in_tier = if task_loop.tier == Tier::TOP {
        limits.top_tier_threshold
    } else {
        limits.escalation_threshold
    };
    prop_assert!(
        task_loop.tier_failures <= in_tier,
        "{} failures in {}",
        task_loop.tier_failures,
        task_loop.tier
    );
    prop_assert!(task_loop.retries <= limits.max_retries);
    prop_assert!(task_loop.councils <= limits.max_councils && task_loop.councils <= 2);
    prop_assert!(task_loop.iterations <= task_loop.max_iterations(rules));
    prop_assert!(task_loop.timeouts <= 2);
    prop_assert!(task_loop.attempts.len() <= ATTEMPT_HISTORY);
    prop_assert!(task_loop.opinions.len() <= rules.council.members.len());
    Ok(())
}

/// At most one job at a time, none during a pause, and none over budget.
fn check_jobs(
    before: &TaskLoop,
    step: &Step,
    rules: &Rules,
    oracle: &mut Oracle,
) -> Result<(), TestCaseError> {
    let task_loop = &step.next;
    for command in &step.commands {
        match command {
            Command::StartJob { job_number, job, .. } => {
                prop_assert!(*job_number > oracle.last_job_number);
                oracle.last_job_number = *job_number;
                if task_loop.state.is_terminal() {
                    prop_assert_eq!(job.kind(), JobKind::Learn);
                    continue;
                }
                prop_assert!(oracle.running.is_empty(), "{:?} beside {:?}", job, oracle.running);
                prop_assert!(task_loop.paused.is_none());
                oracle.running.insert(*job_number);
                let limit = budget::task_limit(task_loop.risk_level(), &task_loop.granted, rules);
                let reserved = task_loop.active_job.map_or(Usd::ZERO, |job| job.reserved_cost);
                if let (Some(usd), true) = (limit.usd, reserved > Usd::ZERO) {
                    prop_assert!(task_loop.spend.usd + reserved <= usd);
                }
            }
            Command::StopJob { job_number, .. } => {
                prop_assert!(before.active_job.is_some_and(|job| job.job_number == *job_number));
            }
            Command::CloseQuestion { question_number: question } => {
                let open = before.open_question.as_ref().map(|question| question.number);
                // A pull request that ended closes a question of the same step.
                prop_assert!(open == Some(*question) || *question > before.question_count);
            }
            Command::Alert(_) | Command::BlockProvider { .. } => {}
        }
    }
    let expected = task_loop
        .active_job
        .iter()
        .chain(&task_loop.stopping_job)
        .map(|job| job.job_number)
        .collect::<BTreeSet<_>>();
    if !task_loop.state.is_terminal() {
        prop_assert_eq!(&expected, &oracle.running);
    }
    Ok(())
}

#[test]
fn the_six_invariants_hold_and_every_transition_is_taken() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let sequences = number("TAMMA_SEQUENCES").unwrap_or(2_000);
    let seed = number("TAMMA_SEED").unwrap_or(1);
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    let config = Config {
        cases: u32::try_from(sequences).expect("a number of sequences"),
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let taken = std::cell::RefCell::new(BTreeSet::new());
    let lengths = std::cell::Cell::new(0_usize);
    let result = TestRunner::new_with_rng(config, rng).run(
        &(any::<u16>(), vec(happening(), 1..160)),
        |(choice, happenings)| {
            lengths.set(lengths.get() + happenings.len());
            play(choice, &happenings, &mut taken.borrow_mut())
        },
    );
    if let Err(error) = result {
        panic!("{error}");
    }
    let taken = taken.into_inner();
    let missing: Vec<_> = table::transitions()
        .filter(|transition| !taken.contains(transition))
        .map(|(from, on, to)| format!("{from} --{on}--> {to}"))
        .collect();
    println!(
        "{sequences} sequences of {} events, seed {seed}: {} of {} transitions taken",
        lengths.get(),
        taken.len(),
        table::transitions().count()
    );
    // A short run, as in mutation testing, cannot reach every transition.
    if sequences >= 2_000 {
        assert!(missing.is_empty(), "transitions that no sequence took:\n{}", missing.join("\n"));
    }
}
