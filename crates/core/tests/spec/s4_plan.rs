//! Section 4: plan.

use rstest::rstest;
use tamma_core::actor::Actor;
use tamma_core::begin;
use tamma_core::cause::{Cause, Limit};
use tamma_core::complexity::{Factor, Grade, Level, Signals, assess};
use tamma_core::cost::Usd;
use tamma_core::council::Place;
use tamma_core::failure::FailureKind;
use tamma_core::log::EntryName;
use tamma_core::plan::{Action, FileChange, Flaw, Outline, Plan};
use tamma_core::rules::Rules;
use tamma_core::task_loop::{Job, Outcome, Received, Refusal, State, Trigger, What};
use tamma_core::tier::Tier;
use tamma_core::version::Edition;

use crate::world::{World, failure, minute, note, pin, plan, text};

fn written() -> Plan {
    Plan {
        summary: "Say hello".to_owned(),
        approach: "Print it".to_owned(),
        file_changes: vec![change("src/main.rs")],
        testing_strategy: "Run it".to_owned(),
        signals: Signals::default(),
        estimated_tokens: None,
        estimated_cost_usd: Some(Usd::cents(30)),
        risks: Vec::new(),
        dependencies: Vec::new(),
        test_changes: Vec::new(),
    }
}

fn change(path: &str) -> FileChange {
    FileChange {
        path: path.to_owned(),
        action: Action::Modify,
        description: "greets".to_owned(),
        estimated_lines: 3,
    }
}

// Complexity, factor by factor.

#[rstest]
#[case::files(Signals { files: 1, ..none() }, 0)]
#[case::files(Signals { files: 2, ..none() }, 1)]
#[case::files(Signals { files: 5, ..none() }, 1)]
#[case::files(Signals { files: 6, ..none() }, 2)]
#[case::files(Signals { files: 10, ..none() }, 2)]
#[case::files(Signals { files: 11, ..none() }, 3)]
#[case::modules(Signals { modules: 1, ..none() }, 0)]
#[case::modules(Signals { modules: 2, ..none() }, 1)]
#[case::modules(Signals { modules: 3, ..none() }, 2)]
#[case::modules(Signals { modules: 4, ..none() }, 2)]
#[case::modules(Signals { modules: 5, ..none() }, 3)]
#[case::novelty(Signals { novelty: Grade::Some, ..none() }, 1)]
#[case::novelty(Signals { novelty: Grade::Much, ..none() }, 2)]
#[case::tests(Signals { tests: Grade::Some, ..none() }, 1)]
#[case::tests(Signals { tests: Grade::Much, ..none() }, 2)]
#[case::security(Signals { security: Grade::Much, ..none() }, 2)]
#[case::ambiguity(Signals { ambiguity: Grade::Much, ..none() }, 2)]
fn complexity_is_the_sum_of_named_factors(#[case] signals: Signals, #[case] score: u8) {
    assert_eq!(assess(&signals).score, score);
}

fn none() -> Signals {
    Signals::default()
}

#[test]
fn complexity_ends_at_14_and_names_every_factor_that_counted() {
    let much = Grade::Much;
    let all = Signals {
        files: 99,
        modules: 99,
        novelty: much,
        tests: much,
        security: much,
        ambiguity: much,
    };
    let complexity = assess(&all);
    assert_eq!(complexity.score, 14);
    assert_eq!(
        complexity.factors,
        [
            (Factor::Files, 3),
            (Factor::Modules, 3),
            (Factor::Novelty, 2),
            (Factor::Tests, 2),
            (Factor::Security, 2),
            (Factor::Ambiguity, 2),
        ]
    );
    assert_eq!(assess(&none()).factors, []);
}

#[rstest]
#[case(0, Level::Low, Tier::Simple)]
#[case(4, Level::Low, Tier::Simple)]
#[case(5, Level::Medium, Tier::Moderate)]
#[case(8, Level::Medium, Tier::Moderate)]
#[case(9, Level::High, Tier::Complex)]
#[case(14, Level::High, Tier::Complex)]
fn the_score_chooses_the_first_tier(#[case] score: u8, #[case] level: Level, #[case] tier: Tier) {
    assert_eq!((Level::of(score), Level::of(score).tier()), (level, tier));
    let mut world = World::new().to(State::Planning);
    world.done(Outcome::Planned(Outline { complexity: score, ..plan(1) }));
    world.walk(State::Validated);
    assert_eq!(world.it.tier, tier);
}

#[test]
fn files_are_counted_and_not_believed() {
    let mut plan = written();
    plan.signals.files = 0;
    plan.file_changes = (0..11).map(|number| change(&format!("src/{number}.rs"))).collect();
    assert_eq!(plan.complexity().factors, [(Factor::Files, 3)]);
}

// A plan is structured and checked.

#[test]
fn a_good_plan_has_no_flaws() {
    assert_eq!(written().flaws(), []);
}

#[test]
fn every_flaw_of_a_plan_is_found_at_once() {
    let plan = Plan {
        summary: "  ".to_owned(),
        approach: String::new(),
        testing_strategy: String::new(),
        file_changes: vec![change("../outside"), change("a.rs"), change("a.rs")],
        ..written()
    };
    assert_eq!(
        plan.flaws(),
        [
            Flaw::Empty("summary"),
            Flaw::Empty("approach"),
            Flaw::Empty("testing_strategy"),
            Flaw::Path("../outside".to_owned()),
            Flaw::Twice("a.rs".to_owned()),
        ]
    );
    let plan = Plan { file_changes: Vec::new(), ..written() };
    assert_eq!(plan.flaws(), [Flaw::NoFiles]);
}

#[rstest]
fn a_path_stays_inside_the_repository(
    #[values("", " ", "/etc/passwd", "a//b", "./a", "a/../b", "a\\b", "..")] path: &str,
) {
    let plan = Plan { file_changes: vec![change(path)], ..written() };
    assert_eq!(plan.flaws(), [Flaw::Path(path.to_owned())]);
}

#[test]
fn a_plan_is_identified_by_the_hash_of_its_content() {
    assert_eq!(written().hash(), written().hash());
    let mut other = written();
    other.approach.push('!');
    assert_ne!(written().hash(), other.hash());
    // The hash is part of the format: approvals of last year are bound to it.
    assert_eq!(written().hash().short(), "860d073486f5");
}

#[test]
fn the_outline_carries_what_the_machine_needs_and_where_the_rest_is() {
    let mut plan = written();
    plan.file_changes.push(change("db/migrations/1.sql"));
    let outline = plan.outline(3, text("plans/3"), &Rules::default());
    assert_eq!(
        outline,
        Outline {
            hash: plan.hash(),
            version: 3,
            kept_at: text("plans/3"),
            files: 2,
            critical_files: 1,
            complexity: 1,
            estimated_cost: Some(Usd::cents(30)),
        }
    );
}

// Planning in the machine.

#[test]
fn an_invalid_plan_goes_back_with_its_flaws() {
    let mut world = World::new().to(State::Planning);
    world.done(Outcome::PlanInvalid(text("flaws")));
    assert_eq!(world.it.state, State::Planning);
    let again = Job::Plan { version: 1, from: None, note: Some(text("flaws")) };
    assert_eq!(world.started(), Some(&again));
    assert_eq!(world.it.failures_here(), 1);
    assert!(world.has_logged(EntryName::SmPlanInvalid));
}

#[test]
fn three_invalid_plans_go_to_the_council() {
    let mut world = World::new().to(State::Planning);
    for _ in 0..2 {
        world.done(Outcome::PlanInvalid(note()));
        assert_eq!(world.it.state, State::Planning);
    }
    world.done(Outcome::PlanInvalid(note()));
    assert_eq!(world.it.state, State::CtoIntervention);
    let (seat, opinions) = (Some(Place::Member(0)), Vec::new());
    assert_eq!(world.started(), Some(&Job::Convene { council: 1, seat, opinions }));
    // It is a failure of planning, not of a change: it is not a retry.
    assert_eq!((world.it.councils, world.it.retries), (1, 0));
    assert!(world.it.failures.is_empty());
    world.walk(State::Adjusting);
    let guided = Job::Plan { version: 1, from: None, note: Some(text("guidance")) };
    assert_eq!(world.started(), Some(&guided));
}

#[test]
fn after_two_councils_planning_asks_a_person() {
    let mut world = World::new().to(State::Planning);
    for council in 1..=2 {
        for _ in 0..3 {
            world.done(Outcome::PlanInvalid(note()));
        }
        assert_eq!((world.it.state, world.it.councils), (State::CtoIntervention, council));
        world.walk(State::Adjusting);
    }
    for _ in 0..2 {
        world.done(Outcome::PlanInvalid(note()));
        assert_eq!(world.it.state, State::Adjusting);
    }
    world.done(Outcome::PlanInvalid(note()));
    assert_eq!(world.it.state, State::HumanEscalation);
    let question = world.it.question.as_ref().unwrap();
    assert_eq!(question.cause, Cause::LimitReached(Limit::Councils));
    assert_eq!(question.resume, State::Adjusting);
}

#[test]
fn a_plan_that_was_brought_is_reviewed_first() {
    let received = Received {
        task: World::new().it.task,
        project: World::new().it.project,
        priority: tamma_core::task::Priority::High,
        at: minute(0),
        by: Actor::Tamma,
        plan: Some(text("brought")),
        edition: Edition::NEWEST,
    };
    let rules = Rules::default();
    let mut world = World::new();
    world.it = begin(&received, &rules).next;
    world.walk(State::Planning);
    let review = Job::Plan { version: 1, from: Some(text("brought")), note: None };
    assert_eq!(world.started(), Some(&review));
}

#[test]
fn a_new_plan_has_the_next_version() {
    let mut world = World::new().to(State::Planning);
    let refused = world.try_done(Outcome::Planned(plan(2)));
    assert_eq!(refused, Err(Refusal::PlanVersion { found: 2, expected: 1 }));
    world
        .done(Outcome::Planned(plan(1)))
        .ask(tamma_core::task_loop::Action::Modify { note: note() });
    world.done(Outcome::Interrupted);
    let refused = world.try_done(Outcome::Planned(plan(1)));
    assert_eq!(refused, Err(Refusal::PlanVersion { found: 1, expected: 2 }));
    world.done(Outcome::Planned(plan(2)));
    assert!(world.has_logged(EntryName::SmPlanAdjusted));
}

#[test]
fn the_first_plan_is_not_an_adjusted_one() {
    let world = World::new().to(State::AwaitingApproval);
    assert!(world.has_logged(EntryName::SmPlanGenerated));
    assert!(!world.has_logged(EntryName::SmPlanAdjusted));
    assert_eq!(world.log.last().unwrap().on, Some(Trigger::PlanMade));
}

#[test]
fn a_planner_that_crashes_is_not_an_invalid_plan() {
    let mut world = World::new().to(State::Planning);
    for _ in 0..3 {
        world.done(failure(FailureKind::Crashed));
    }
    assert_eq!(world.it.state, State::HumanEscalation);
    assert_eq!(world.it.councils, 0);
}

#[test]
fn the_base_and_the_rules_are_pinned_before_planning() {
    let mut world = World::new().to(State::Assigned);
    assert_eq!(world.feed(Actor::Tamma, What::Repinned(pin(1))), Err(Refusal::NotPinned));
    world.done(Outcome::Prepared(pin(1)));
    assert_eq!(world.it.pin, Some(pin(1)));
    assert_eq!(world.feed(Actor::Tamma, What::Repinned(pin(1))), Err(Refusal::SamePin));
}
