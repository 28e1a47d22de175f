//! Section 7: the council, seat by seat.

use rstest::rstest;
use tamma_core::cause::Cause;
use tamma_core::cost::Usd;
use tamma_core::council::{Conclusion, Confidence, Opinion, Place, Spoken, View, minutes};
use tamma_core::failure::FailureKind;
use tamma_core::log::{EntryName, Fact};
use tamma_core::rules::{HaltCondition, Seat};
use tamma_core::task_loop::{Action, Job, Outcome, Refusal, State};
use tamma_core::tier::Tier;
use tamma_core::version::Edition;

use crate::world::{World, costing, failure, minute, note, text};

fn seat(tier: Tier, model: &str) -> Seat {
    Seat { tier, agent: None, model: Some(model.to_owned()) }
}

/// A task that is stuck, before a council of three.
fn stuck() -> World {
    let mut world = World::with(|rules| {
        rules.council.members = vec![
            seat(Tier::Simple, "one"),
            seat(Tier::Moderate, "two"),
            seat(Tier::Complex, "three"),
        ];
        rules.council.chair = seat(Tier::Complex, "chair");
        rules.tiers.simple.typical_run_usd = Usd::cents(1);
        rules.tiers.moderate.typical_run_usd = Usd::cents(2);
        rules.tiers.complex.typical_run_usd = Usd::cents(3);
    });
    world.fail_in(1).fail_in(1).fail_in(1);
    assert_eq!(world.it.state, State::CtoIntervention);
    world
}

fn said(what: &str) -> Opinion {
    Opinion::Said(text(what))
}

#[test]
fn each_member_is_asked_apart_from_the_others_and_then_the_chair_with_all_they_said() {
    let mut world = stuck();
    for (number, cents) in [(0, 1), (1, 2), (2, 3)] {
        let seat = Some(Place::Member(number));
        let job = Job::Convene { council: 1, seat, opinions: Vec::new() };
        assert_eq!(world.started(), Some(&job));
        assert_eq!(world.it.work.unwrap().reserved, Usd::cents(cents));
        world.done_costing(Some(costing(5)), Outcome::Opined(text(&format!("opinion {number}"))));
        assert_eq!(world.it.state, State::CtoIntervention);
    }
    let opinions = vec![said("opinion 0"), said("opinion 1"), said("opinion 2")];
    let job = Job::Convene { council: 1, seat: Some(Place::Chair), opinions };
    assert_eq!(world.started(), Some(&job));
    world.done(Outcome::Concluded(text("guidance")));
    assert_eq!((world.it.state, world.it.opinions.len()), (State::Adjusting, 0));
    assert_eq!(world.it.note, Some(text("guidance")));
    assert_eq!(world.it.spend.usd, Usd::cents(15));
}

#[test]
fn the_log_says_who_said_what_and_who_was_not_there() {
    let mut world = stuck();
    world.done(Outcome::Opined(text("a cause"))).done(failure(FailureKind::Crashed));
    let opinions = world.log.iter().filter_map(|entry| match &entry.data {
        Fact::Opinion { seat, opinion } => {
            Some((entry.name, seat.model.clone().unwrap_or_default(), opinion.clone()))
        }
        _ => None,
    });
    let expected = [
        (EntryName::SmCouncilOpinion, "one".to_owned(), said("a cause")),
        (EntryName::SmCouncilMemberAbsent, "two".to_owned(), Opinion::Absent),
    ];
    assert_eq!(opinions.collect::<Vec<_>>(), expected);
    assert_eq!(world.log.last().unwrap().reason.as_deref(), Some("it broke"));
}

#[rstest]
#[case(FailureKind::Crashed)]
#[case(FailureKind::Unavailable)]
#[case(FailureKind::TimedOut)]
fn a_member_that_fails_is_absent_and_the_others_go_on(#[case] kind: FailureKind) {
    let mut world = stuck();
    world.done(failure(kind.clone())).done(Outcome::Opined(note())).done(failure(kind));
    assert_eq!(world.it.not_before, None);
    let opinions = vec![Opinion::Absent, said("note"), Opinion::Absent];
    let job = Job::Convene { council: 1, seat: Some(Place::Chair), opinions };
    assert_eq!(world.started(), Some(&job));
}

#[test]
fn with_nobody_there_all_are_asked_again_later() {
    let mut world = stuck();
    for _ in 0..3 {
        world.done(failure(FailureKind::Crashed));
    }
    assert_eq!(world.it.state, State::CtoIntervention);
    assert_eq!(world.it.failures_here(), 1);
    assert!(world.it.work.unwrap().not_before.is_some());
    let seat = Some(Place::Member(0));
    let job = Job::Convene { council: 1, seat, opinions: Vec::new() };
    assert_eq!(world.started(), Some(&job));
}

#[test]
fn a_members_quota_is_waited_for_as_for_any_run() {
    let mut world = stuck();
    let until = minute(90);
    world.done(failure(FailureKind::Quota { provider: text("acme"), until }));
    let job = Job::Convene { council: 1, seat: Some(Place::Member(0)), opinions: Vec::new() };
    assert_eq!(world.started(), Some(&job));
    assert_eq!(world.it.work.unwrap().not_before, Some(until));
}

#[test]
fn a_council_that_does_not_fit_in_the_budget_asks_a_person() {
    let mut world = stuck();
    world.done(Outcome::Opined(note())).done(failure(FailureKind::OverBudget));
    assert_eq!(world.it.state, State::HumanEscalation);
    let question = world.it.question.as_ref().unwrap();
    assert_eq!(question.cause, Cause::Halted(HaltCondition::BudgetExceeded));
    assert_eq!(question.resume, State::CtoIntervention);
    // It goes on with the member that could not be paid.
    world.done(Outcome::Landed);
    let grant = tamma_core::budget::Grant { usd: Usd::cents(100), ..Default::default() };
    world.ask(Action::Continue { grant });
    let job = Job::Convene { council: 1, seat: Some(Place::Member(1)), opinions: Vec::new() };
    assert_eq!(world.started(), Some(&job));
}

#[test]
fn a_chair_that_fails_is_asked_again_and_the_opinions_are_still_there() {
    let mut world = stuck();
    for _ in 0..3 {
        world.done(Outcome::Opined(note()));
    }
    world.done(failure(FailureKind::Crashed));
    let opinions = vec![said("note"); 3];
    let job = Job::Convene { council: 1, seat: Some(Place::Chair), opinions };
    assert_eq!(world.started(), Some(&job));
    assert_eq!(world.it.failures_here(), 1);
}

#[test]
fn nobody_speaks_out_of_turn() {
    let mut world = stuck();
    let refused = world.try_done(Outcome::Concluded(note()));
    assert!(matches!(refused, Err(Refusal::WrongOutcome { .. })));
    for _ in 0..3 {
        world.done(Outcome::Opined(note()));
    }
    let refused = world.try_done(Outcome::Opined(note()));
    assert!(matches!(refused, Err(Refusal::WrongOutcome { .. })));
}

#[test]
fn a_task_of_the_first_edition_has_its_council_as_it_was() {
    let mut world = World::new();
    world.it.edition = Edition::November2026;
    for way in [1, 2, 1, 2, 1] {
        world.fail_in(way);
        assert_ne!(world.it.state, State::CtoIntervention, "nothing but three alike counts");
    }
    let mut world = World::new();
    world.it.edition = Edition::November2026;
    world.fail_in(1).fail_in(1).fail_in(1);
    let job = Job::Convene { council: 1, seat: None, opinions: Vec::new() };
    assert_eq!(world.started(), Some(&job));
    assert_eq!(world.it.work.unwrap().reserved, world.rules.tiers.complex.typical_run_usd);
    world.done(Outcome::Concluded(text("guidance")));
    assert_eq!(world.it.state, State::Adjusting);
}

fn view() -> View {
    View {
        root_cause: "The list is never sorted.".to_owned(),
        fix: "Sort it in `src/list.rs`.".to_owned(),
        confidence: Confidence::High,
        against: "It may be sorted\nelsewhere.".to_owned(),
    }
}

#[test]
fn the_minutes_say_cause_fix_dissent_and_who_said_what() {
    let conclusion = Conclusion {
        root_cause: "The list is never sorted.".to_owned(),
        fix: "Sort it.".to_owned(),
        dissent: vec!["Member 2 was not there.".to_owned()],
    };
    let members = [
        Spoken { seat: seat(Tier::Moderate, "one"), view: Some(view()) },
        Spoken { seat: seat(Tier::Complex, "two"), view: None },
    ];
    let text = minutes(&conclusion, &seat(Tier::Complex, "three"), &members);
    let expected = "\
# What the council concluded

## Root cause

The list is never sorted.

## Fix

Sort it.

## Dissent

- Member 2 was not there.

## Who sat

The chair: the complex tier, three.

### Member 1: the moderate tier, one

- Root cause (high confidence): The list is never sorted.
- Fix: Sort it in `src/list.rs`.
- Against it: It may be sorted
  elsewhere.

### Member 2: the complex tier, two

Was absent: the run failed.
";
    assert_eq!(text, expected);
    let unanimous = Conclusion { dissent: Vec::new(), ..conclusion };
    let text = minutes(&unanimous, &seat(Tier::Complex, "three"), &members);
    assert!(text.contains("## Dissent\n\nNobody disagreed.\n"), "{text}");
}

#[test]
fn what_says_nothing_or_too_much_is_refused() {
    let empty = View { root_cause: " ".to_owned(), fix: "a".repeat(9_000), ..view() };
    let flaws = ["`root_cause` is empty", "`fix` is longer than 8000 bytes: say it shorter"];
    assert_eq!(empty.flaws(), flaws);
    let dissent = vec![String::new()];
    let nothing = Conclusion { root_cause: "a".to_owned(), fix: String::new(), dissent };
    assert_eq!(nothing.flaws(), ["`fix` is empty", "`dissent` is empty"]);
    assert_eq!(view().flaws(), Vec::<String>::new());
}
