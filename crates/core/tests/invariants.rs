//! The six invariants of the machine, over random sequences of events, valid and invalid.
//!
//! Every sequence is a list of numbers that are turned into events against the state they meet, so
//! that most of them fit and the machine gets far; the rest are stale, out of place or absurd.
//! Beside each sequence walks an oracle that knows what was approved, what is running and where the
//! task has been from the events alone.
//!
//! `TAMMA_SEQUENCES` says how many (2,000 unless told), `TAMMA_SEED` which. An arrow of the table
//! that no sequence takes fails the test.
#![expect(clippy::disallowed_methods, reason = "how many sequences comes from the environment")]
#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::allow_attributes, dead_code, reason = "the world is shared with other tests")]

#[path = "spec/world.rs"]
mod world;

use std::collections::{BTreeMap, BTreeSet};

use chrono::TimeDelta;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use tamma_core::actor::Actor;
use tamma_core::approval::{Binding, Pin};
use tamma_core::budget::{self, Grant};
use tamma_core::cost::{Cost, Tokens, Usage, Usd};
use tamma_core::council::Place;
use tamma_core::failure::FailureKind;
use tamma_core::ids::{Name, PlanHash};
use tamma_core::level::Level;
use tamma_core::log::EntryName;
use tamma_core::plan::Outline;
use tamma_core::rules::{HaltCondition, Rules};
use tamma_core::step;
use tamma_core::stuck::MEMORY;
use tamma_core::task_loop::{
    Action, Command, Event, Job, JobKind, Outcome, Refusal, State, Step, TaskLoop, Trigger, What,
    table,
};
use tamma_core::tier::Tier;
use tamma_core::version::Edition;
use world::{World, commit, failure, green, note, passed, person, pin, plan, reason, red, summary};

/// One thing that may happen, as numbers.
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

/// Rules of all kinds: strict and lax, rich and poor.
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
    rules.ceremony.medium.approvers = if bit(7) { 2 } else { 1 };
    rules.ceremony.low.human_review = bit(8) && bit(9);
    rules.budget.task_usd = if bit(10) && bit(11) { Some(Usd::cents(900)) } else { None };
    rules.budget.task_tokens = if bit(12) && bit(13) { Some(50_000) } else { None };
    rules.scrum_master.learning_capture.capture_failure = bit(14);
    rules
}

/// What the machine should have kept in mind, learned from the events alone.
#[derive(Default)]
struct Oracle {
    plan: Option<PlanHash>,
    pin: Option<Pin>,
    yes: BTreeMap<Name, Binding>,
    automatic: Option<Binding>,
    running: BTreeSet<u32>,
    last_ticket: u32,
    arrows: BTreeSet<(State, Trigger, State)>,
    sequence: u64,
}

impl Oracle {
    fn binding(&self) -> Option<Binding> {
        Some(Binding { plan: self.plan?, pin: self.pin? })
    }

    /// Notes an event that was taken.
    fn hear(&mut self, event: &Event, before: &TaskLoop) {
        match &event.what {
            What::Done { ticket, outcome, .. } => {
                let wanted = before.work.is_some_and(|work| work.ticket == *ticket);
                self.running.remove(ticket);
                match outcome {
                    Outcome::Planned(plan) if wanted => self.plan = Some(plan.hash),
                    Outcome::Prepared(pin) if wanted => self.pin = Some(*pin),
                    _ => {}
                }
            }
            What::Repinned(pin) => self.pin = Some(*pin),
            What::Asked(Action::Approve { binding, .. }) => {
                if let Actor::Person(name) = &event.by {
                    self.yes.insert(name.clone(), *binding);
                }
            }
            _ => {}
        }
    }

    /// Whether what is there now was approved, by people or by the rule for low risk.
    fn is_approved(&self, it: &TaskLoop, rules: &Rules) -> bool {
        let Some(now) = self.binding() else {
            return false;
        };
        let level = it.risk().unwrap_or(Level::High);
        let people = self.yes.values().filter(|binding| **binding == now).count();
        self.automatic == Some(now) || people >= usize::from(rules.ceremony.get(level).approvers)
    }
}

/// Turns numbers into an event. Five in eight are what the state waits for; in stormy weather the
/// states that are seldom reached fail more often than not.
fn event(world: &World, happening: Happening, stormy: bool) -> Event {
    let Happening { what, detail, .. } = happening;
    let far = matches!(
        world.it.state,
        State::CtoIntervention | State::Approved | State::Committing | State::Adjusting
    );
    let what = if stormy && far && what < 128 { 160 } else { what };
    let ticket = world.it.work.or(world.it.leaving).map_or(0, |work| work.ticket);
    let names = ["ann", "bo", "cy"];
    let someone = person(names[usize::from(detail) % 3]);
    match what {
        0..=159 => {
            if world.it.state == State::Validated && world.it.leaving.is_none() && detail >= 40 {
                let engine = "engine".parse().expect("a name");
                return world.event(Actor::Tamma, What::Started { ticket, engine });
            }
            if world.it.question.is_some() && (world.it.work.is_none() || detail < 128) {
                return world.event(someone, What::Asked(answer(world, detail)));
            }
            let outcome = outcome(world, detail);
            world.event(Actor::Tamma, What::Done { ticket, usage: usage(detail), outcome })
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
                _ => FailureKind::Crashed,
            });
            world.event(Actor::Tamma, What::Done { ticket, usage: usage(detail), outcome })
        }
        180..=185 => world.event(Actor::Tamma, What::Repinned(pin(detail % 4))),
        186..=199 => world.event(Actor::Tamma, What::Tick),
        200..=239 => world.event(someone, What::Asked(action(world, detail))),
        240..=247 => {
            // A result of a job that is not under way, or that the job cannot have.
            let ticket = ticket.wrapping_add(u32::from(detail % 3)).wrapping_sub(1);
            let outcome = any_outcome(world, detail);
            world.event(Actor::Tamma, What::Done { ticket, usage: None, outcome })
        }
        248..=251 => {
            let engine = "engine".parse().expect("a name");
            let ticket = ticket.wrapping_add(u32::from(detail % 2));
            world.event(Actor::Tamma, What::Started { ticket, engine })
        }
        // Nobody but a person may ask for anything.
        252..=255 => world.event(Actor::Council, What::Asked(action(world, detail))),
    }
}

fn usage(detail: u8) -> Option<Usage> {
    let tokens = Tokens { input: u64::from(detail) * 10, ..Tokens::default() };
    match detail % 4 {
        0 => None,
        1 => Some(Usage { tokens, cost: Cost::Unknown }),
        _ => Some(Usage { tokens, cost: Cost::Known(Usd::cents(u32::from(detail))) }),
    }
}

fn next_plan(world: &World, detail: u8) -> Outline {
    let version = world.it.plan.as_ref().map_or(1, |plan| plan.version + 1);
    Outline {
        files: u16::from(detail % 13),
        complexity: detail % 15,
        critical_files: u16::from(detail > 230),
        ..plan(version)
    }
}

/// What the job under way may end as.
fn outcome(world: &World, detail: u8) -> Outcome {
    if let Some(left) = world.it.leaving {
        return if detail < 200 {
            Outcome::Interrupted
        } else {
            ended_as(world, left.kind, detail)
        };
    }
    match world.it.work {
        Some(work) if work.stopping && detail < 200 => Outcome::Interrupted,
        Some(work) => ended_as(world, work.kind, detail),
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
            let default = (detail > 128).then(note);
            Outcome::Asked { question: note(), default }
        }
        JobKind::Plan if detail.is_multiple_of(4) => Outcome::PlanInvalid(note()),
        JobKind::Plan => Outcome::Planned(next_plan(world, detail)),
        JobKind::Check => Outcome::Checked {
            blockers: u16::from(detail > 235),
            warnings: u16::from(detail.is_multiple_of(3)),
        },
        JobKind::Implement => Outcome::RunFinished(commit(detail)),
        JobKind::Test if detail.is_multiple_of(2) => green(),
        JobKind::Test if detail % 16 == 1 => {
            let Outcome::Tested(mut gates) = red(detail) else {
                return green();
            };
            gates.security_critical = true;
            Outcome::Tested(gates)
        }
        // Often the same failure, sometimes a new one.
        JobKind::Test => red(if detail < 200 { 1 } else { detail }),
        JobKind::Review if detail.is_multiple_of(4) => Outcome::Reviewed {
            summary: summary(false),
            fingerprint: tamma_core::review::Fingerprint::default(),
        },
        JobKind::Review => passed(),
        JobKind::Brief => Outcome::Briefed(note()),
        JobKind::Convene => match world.it.place(&world.rules) {
            Some(Place::Member(_)) => Outcome::Opined(note()),
            Some(Place::Chair) | None => Outcome::Concluded(note()),
        },
        JobKind::AwaitTurn => Outcome::TurnCame,
        JobKind::Deliver if detail.is_multiple_of(2) => Outcome::DeliveryRejected(note()),
        JobKind::Deliver => Outcome::Delivered(commit(detail)),
        JobKind::Learn => Outcome::Learned(u16::from(detail % 3)),
        JobKind::Land => Outcome::Landed,
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
        JobKind::AwaitTurn,
        JobKind::Deliver,
        JobKind::Learn,
        JobKind::Land,
    ];
    ended_as(world, kinds[usize::from(detail) % kinds.len()], detail)
}

fn grant(detail: u8) -> Grant {
    match detail % 3 {
        0 => Grant::default(),
        1 => Grant { iterations: 1, usd: Usd::cents(500), tokens: 10_000 },
        _ => Grant { iterations: 2, usd: Usd::cents(5_000), tokens: 100_000 },
    }
}

fn binding(world: &World, detail: u8) -> Binding {
    let stale = Binding { plan: PlanHash::of(b"other"), pin: pin(3) };
    let seen = if detail % 16 == 15 { None } else { world.it.binding() };
    seen.unwrap_or(stale)
}

/// What a person would answer to the open question.
fn answer(world: &World, detail: u8) -> Action {
    let binding = binding(world, detail);
    let commit = world.it.commit.unwrap_or(commit(0));
    match world.it.state {
        State::AwaitingApproval => match detail % 8 {
            0 => Action::Reject { binding, reason: reason() },
            1 => Action::AskChanges { binding, changes: note() },
            _ => Action::Approve { binding, reason: None },
        },
        State::QualityReview if detail.is_multiple_of(3) => {
            Action::Rework { commit, comments: note() }
        }
        State::QualityReview => Action::Accept { commit, reason: None },
        _ if world.it.question.as_ref().is_some_and(|it| it.about.is_some()) && detail > 60 => {
            Action::Reply { reply: note() }
        }
        _ => match detail % 12 {
            0..=2 => Action::Continue { grant: grant(detail / 12) },
            3..=5 => Action::Retry { grant: grant(detail / 12) },
            6 => Action::Modify { note: note() },
            7 | 8 => roll_back(detail / 12),
            9 => Action::Skip { reason: reason() },
            10 => Action::Override { binding, reason: reason() },
            _ if detail > 200 => Action::Abandon { reason: reason() },
            _ => Action::Acknowledge,
        },
    }
}

fn roll_back(detail: u8) -> Action {
    let places = [
        State::Planning,
        State::AwaitingApproval,
        State::Validated,
        State::Testing,
        State::QualityReview,
        State::Completed,
    ];
    Action::RollBack { to: places[usize::from(detail) % places.len()], reason: reason() }
}

/// Anything a person might ask for at any time.
fn action(world: &World, detail: u8) -> Action {
    match detail % 10 {
        0 | 1 => Action::Pause,
        2..=4 => Action::Resume,
        5 => Action::Modify { note: note() },
        6 => Action::Retry { grant: Grant::default() },
        7 if detail > 180 => Action::Cancel { reason: reason() },
        8 => Action::Acknowledge,
        _ => answer(world, detail),
    }
}

/// Plays one sequence and checks everything after every event.
fn play(
    choice: u16,
    happenings: &[Happening],
    seen: &mut BTreeSet<(State, Trigger, State)>,
) -> Result<(), TestCaseError> {
    let mut world = World::under(rules(choice));
    // Tasks of the first edition live on.
    if choice >> 13 == 0 {
        world.it.edition = Edition::November2026;
    }
    let mut oracle = Oracle { sequence: world.it.entries, last_ticket: 1, ..Oracle::default() };
    oracle.running.insert(1);
    for happening in happenings {
        if happening.what % 5 == 0 {
            world.now += TimeDelta::minutes(i64::from(happening.minutes));
        }
        let event = event(&world, *happening, choice >> 15 == 1);
        let before = world.it.clone();
        let result = step(&before, &event, &world.rules);

        // 6. The same inputs give the same task and the same commands.
        prop_assert_eq!(&result, &step(&before, &event, &world.rules));
        let read: Event = round_trip(&event)?;
        prop_assert_eq!(&read, &event);

        match result {
            Err(refusal) => {
                prop_assert!(!matches!(refusal, Refusal::NoArrow { .. }), "{}", refusal);
                // 1. Terminal states never change.
                let ended = matches!(refusal, Refusal::Ended(_));
                prop_assert_eq!(ended, before.state.is_terminal());
                prop_assert!(!refusal.to_string().is_empty());
            }
            Ok(step) => {
                oracle.hear(&event, &before);
                check(&before, &event, &step, &world.rules, &mut oracle)?;
                world.it = step.next;
            }
        }
    }
    seen.extend(oracle.arrows);
    Ok(())
}

fn check(
    before: &TaskLoop,
    event: &Event,
    step: &Step,
    rules: &Rules,
    oracle: &mut Oracle,
) -> Result<(), TestCaseError> {
    let it = &step.next;
    if before.state.is_terminal() {
        // The one thing that an ended task still takes is what it has taught, and nothing moves.
        prop_assert!(before.work.is_some_and(|work| work.kind == JobKind::Learn));
        prop_assert!(it.work.is_none() && step.commands.is_empty());
        prop_assert_eq!(it.state, before.state);
        return Ok(());
    }
    way_is_whole(before, event, step, oracle)?;
    approval_holds(step, rules, oracle)?;
    counters_hold(it, rules)?;
    one_job_at_a_time(before, step, rules, oracle)?;

    // 5. Every live task knows what moves it forward.
    prop_assert_eq!(it.next(rules).is_none(), it.state.is_terminal(), "{:?}", it);
    if let Some(next) = it.next(rules) {
        prop_assert!(!next.to_string().is_empty());
    }
    if let Some(at) = it.wake_at(rules) {
        prop_assert!(it.paused.is_none());
        prop_assert!(!it.state.is_terminal());
        // Waking later than that always has something to do.
        let mut later = event.clone();
        later.at = at;
        later.what = What::Tick;
        prop_assert!(tamma_core::step(it, &later, rules).is_ok());
    }

    // What is remembered is small, and survives being written down.
    let text = serde_json::to_string(it).map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert!(text.len() < 6_000, "{} bytes: {}", text.len(), text);
    let read: TaskLoop = round_trip(it)?;
    prop_assert_eq!(&read, it);
    Ok(())
}

fn round_trip<T: serde::Serialize + serde::de::DeserializeOwned>(
    value: &T,
) -> Result<T, TestCaseError> {
    serde_json::to_string(value)
        .and_then(|text| serde_json::from_str(&text))
        .map_err(|error| TestCaseError::fail(error.to_string()))
}

/// 1 and 2: one state at a time, each from the last, by arrows that are there; and whoever leaves
/// the way says who they are and why.
fn way_is_whole(
    before: &TaskLoop,
    event: &Event,
    step: &Step,
    oracle: &mut Oracle,
) -> Result<(), TestCaseError> {
    let mut state = before.state;
    for entry in &step.entries {
        oracle.sequence += 1;
        prop_assert_eq!(entry.sequence, oracle.sequence);
        prop_assert_eq!(entry.from, state);
        prop_assert_eq!(&entry.actor, &event.by);
        match entry.on {
            None => prop_assert_eq!(entry.to, entry.from),
            Some(on) => {
                prop_assert!(table::allows(entry.from, on, entry.to));
                oracle.arrows.insert((entry.from, on, entry.to));
                let by_person = matches!(entry.actor, Actor::Person(_));
                if matches!(on, Trigger::Skipped | Trigger::RolledBack | Trigger::Abandoned) {
                    prop_assert!(by_person && entry.reason.is_some());
                }
                let along = |state: State| State::MAIN_WAY.iter().position(|way| *way == state);
                if let (Some(from), Some(to)) = (along(entry.from), along(entry.to)) {
                    prop_assert!(to <= from + 1, "{} was skipped to", entry.to);
                }
                if entry.from == State::HumanEscalation {
                    prop_assert!(by_person);
                }
            }
        }
        if entry.name == EntryName::SmApprovalAuto {
            oracle.automatic = oracle.binding();
        }
        state = entry.to;
    }
    prop_assert_eq!(state, step.next.state);
    Ok(())
}

/// 3: nothing reaches `in_progress` without an approval of exactly what runs.
fn approval_holds(step: &Step, rules: &Rules, oracle: &Oracle) -> Result<(), TestCaseError> {
    let it = &step.next;
    let ordered = step.commands.iter().find_map(|command| match command {
        Command::Start { job: Job::Implement(order), .. } => Some(order),
        _ => None,
    });
    if let Some(order) = ordered {
        prop_assert_eq!(Some(Binding { plan: order.plan.hash, pin: order.pin }), oracle.binding());
    }
    if ordered.is_some() || it.state == State::InProgress {
        prop_assert!(oracle.is_approved(it, rules), "{:?} runs unapproved", it);
    }
    Ok(())
}

/// 4: no counter passes its limit.
fn counters_hold(it: &TaskLoop, rules: &Rules) -> Result<(), TestCaseError> {
    let limits = &rules.scrum_master.task_loop;
    prop_assert!(it.failures.values().all(|count| *count <= limits.max_failures_per_state));
    let in_tier =
        if it.tier == Tier::TOP { limits.top_tier_threshold } else { limits.escalation_threshold };
    prop_assert!(it.tier_failures <= in_tier, "{} failures in {}", it.tier_failures, it.tier);
    prop_assert!(it.retries <= limits.max_retries);
    prop_assert!(it.councils <= limits.max_councils && it.councils <= 2);
    prop_assert!(it.iterations <= it.max_iterations(rules));
    prop_assert!(it.timeouts <= 2);
    prop_assert!(it.attempts.len() <= MEMORY);
    prop_assert!(it.opinions.len() <= rules.council.members.len());
    Ok(())
}

/// Never two jobs at a time, never one that a pause forbids, never one that the budget does.
fn one_job_at_a_time(
    before: &TaskLoop,
    step: &Step,
    rules: &Rules,
    oracle: &mut Oracle,
) -> Result<(), TestCaseError> {
    let it = &step.next;
    for command in &step.commands {
        match command {
            Command::Start { ticket, job, .. } => {
                prop_assert!(*ticket > oracle.last_ticket);
                oracle.last_ticket = *ticket;
                if it.state.is_terminal() {
                    prop_assert_eq!(job.kind(), JobKind::Learn);
                    continue;
                }
                prop_assert!(oracle.running.is_empty(), "{:?} beside {:?}", job, oracle.running);
                prop_assert!(it.paused.is_none());
                oracle.running.insert(*ticket);
                let limit = budget::limit(it.risk(), &it.granted, rules);
                let reserved = it.work.map_or(Usd::ZERO, |work| work.reserved);
                if let (Some(usd), true) = (limit.usd, reserved > Usd::ZERO) {
                    prop_assert!(it.spend.usd + reserved <= usd);
                }
            }
            Command::Stop { ticket, .. } => {
                prop_assert!(before.work.is_some_and(|work| work.ticket == *ticket));
            }
            Command::Settle { question } => {
                let asked = before.question.as_ref().map(|question| question.number);
                prop_assert_eq!(asked, Some(*question));
            }
            Command::Alert(_) | Command::HoldProvider { .. } => {}
        }
    }
    let known = it.work.iter().chain(&it.leaving).map(|work| work.ticket).collect::<BTreeSet<_>>();
    if !it.state.is_terminal() {
        prop_assert_eq!(&known, &oracle.running);
    }
    Ok(())
}

#[test]
fn the_six_invariants_hold_and_every_arrow_is_taken() {
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
    let seen = std::cell::RefCell::new(BTreeSet::new());
    let lengths = std::cell::Cell::new(0_usize);
    let result = TestRunner::new_with_rng(config, rng).run(
        &(any::<u16>(), vec(happening(), 1..160)),
        |(choice, happenings)| {
            lengths.set(lengths.get() + happenings.len());
            play(choice, &happenings, &mut seen.borrow_mut())
        },
    );
    if let Err(error) = result {
        panic!("{error}");
    }
    let seen = seen.into_inner();
    let missing: Vec<_> = table::arrows()
        .filter(|arrow| !seen.contains(arrow))
        .map(|(from, on, to)| format!("{from} --{on}--> {to}"))
        .collect();
    println!(
        "{sequences} sequences of {} events, seed {seed}: {} of {} arrows taken",
        lengths.get(),
        seen.len(),
        table::arrows().count()
    );
    // A few sequences, as a run for mutants plays, cannot go everywhere.
    if sequences >= 2_000 {
        assert!(missing.is_empty(), "arrows that no sequence took:\n{}", missing.join("\n"));
    }
}
