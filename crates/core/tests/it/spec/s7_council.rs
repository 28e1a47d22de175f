//! Section 7: the council, seat by seat.

use rstest::rstest;
use tamma_core::actor::Actor;
use tamma_core::cause::AlertCause;
use tamma_core::cost::Usd;
use tamma_core::council::{
    Confidence, CouncilConclusion, CouncilOpinion, CouncilSeat, MemberOpinion, OpinionRecord,
    render_minutes,
};
use tamma_core::failure::FailureKind;
use tamma_core::history::{EntryData, EntryName};
use tamma_core::metrics::{TimedEntry, compute};
use tamma_core::rules::{AgentSelection, HaltCondition};
use tamma_core::task_loop::{Action, AnswerKind, Job, Outcome, Refusal, State};
use tamma_core::tier::Tier;
use tamma_core::version::Edition;

use crate::world::{World, costing, failure, minute, note, text};

fn member(tier: Tier, model: &str) -> AgentSelection {
    AgentSelection { tier, agent: None, model: Some(model.to_owned()) }
}

/// Stuck task before a council of three.
fn stuck() -> World {
    let mut world = World::with(|rules| {
        rules.council.members = vec![
            member(Tier::Simple, "one"),
            member(Tier::Moderate, "two"),
            member(Tier::Complex, "three"),
        ];
        rules.council.chair = member(Tier::Complex, "chair");
        rules.tiers.simple.typical_run_usd = Usd::from_cents(1);
        rules.tiers.moderate.typical_run_usd = Usd::from_cents(2);
        rules.tiers.complex.typical_run_usd = Usd::from_cents(3);
    });
    world.fail_gates(1).fail_gates(1).fail_gates(1).fail_gates(1);
    assert_eq!(world.it.state, State::CtoIntervention);
    world
}

fn stored(name: &str) -> OpinionRecord {
    OpinionRecord::Stored(text(name))
}

#[test]
fn members_are_asked_separately_and_the_chair_gets_all_opinions() {
    let mut world = stuck();
    for (number, cents) in [(0, 1), (1, 2), (2, 3)] {
        let seat = Some(CouncilSeat::Member(number));
        let job = Job::Convene { council_number: 1, seat, opinions: Vec::new() };
        assert_eq!(world.started_job(), Some(&job));
        assert_eq!(world.it.active_job.unwrap().reserved_cost, Usd::from_cents(cents));
        world.done_with_usage(
            Some(costing(5)),
            Outcome::OpinionGiven(text(&format!("opinion {number}"))),
        );
        assert_eq!(world.it.state, State::CtoIntervention);
    }
    let opinions = vec![stored("opinion 0"), stored("opinion 1"), stored("opinion 2")];
    let job = Job::Convene { council_number: 1, seat: Some(CouncilSeat::Chair), opinions };
    assert_eq!(world.started_job(), Some(&job));
    world.done(Outcome::CouncilConcluded(text("guidance")));
    assert_eq!((world.it.state, world.it.opinions.len()), (State::Adjusting, 0));
    assert_eq!(world.it.note, Some(text("guidance")));
    assert_eq!(world.it.spend.usd, Usd::from_cents(15));
}

#[test]
fn the_history_records_opinions_and_absent_members() {
    let mut world = stuck();
    world.done(Outcome::OpinionGiven(text("a cause"))).done(failure(FailureKind::Crashed));
    let opinions = world.log.iter().filter_map(|entry| match &entry.data {
        EntryData::Opinion { member, opinion } => {
            Some((entry.name, member.model.clone().unwrap_or_default(), opinion.clone()))
        }
        _ => None,
    });
    let expected = [
        (EntryName::SmCouncilOpinion, "one".to_owned(), stored("a cause")),
        (EntryName::SmCouncilMemberAbsent, "two".to_owned(), OpinionRecord::Absent),
    ];
    assert_eq!(opinions.collect::<Vec<_>>(), expected);
    assert_eq!(world.log.last().unwrap().reason.as_deref(), Some("it broke"));
}

#[rstest]
#[case(FailureKind::Crashed)]
#[case(FailureKind::Unavailable)]
#[case(FailureKind::TimedOut)]
fn a_failed_member_is_absent_and_the_council_continues(#[case] kind: FailureKind) {
    let mut world = stuck();
    world.done(failure(kind.clone())).done(Outcome::OpinionGiven(note())).done(failure(kind));
    assert_eq!(world.it.not_before, None);
    let opinions = vec![OpinionRecord::Absent, stored("note"), OpinionRecord::Absent];
    let job = Job::Convene { council_number: 1, seat: Some(CouncilSeat::Chair), opinions };
    assert_eq!(world.started_job(), Some(&job));
}

#[test]
fn if_all_members_are_absent_the_council_is_retried() {
    let mut world = stuck();
    for _ in 0..3 {
        world.done(failure(FailureKind::Crashed));
    }
    assert_eq!(world.it.state, State::CtoIntervention);
    assert_eq!(world.it.state_failures(), 1);
    assert!(world.it.active_job.unwrap().not_before.is_some());
    let seat = Some(CouncilSeat::Member(0));
    let job = Job::Convene { council_number: 1, seat, opinions: Vec::new() };
    assert_eq!(world.started_job(), Some(&job));
}

#[test]
fn a_member_without_quota_waits_like_any_run() {
    let mut world = stuck();
    let until = minute(90);
    world.done(failure(FailureKind::Quota { provider: text("acme"), until }));
    let job = Job::Convene {
        council_number: 1,
        seat: Some(CouncilSeat::Member(0)),
        opinions: Vec::new(),
    };
    assert_eq!(world.started_job(), Some(&job));
    assert_eq!(world.it.active_job.unwrap().not_before, Some(until));
}

#[test]
fn a_council_over_budget_asks_a_person() {
    let mut world = stuck();
    world.done(Outcome::OpinionGiven(note())).done(failure(FailureKind::OverBudget));
    assert_eq!(world.it.state, State::HumanEscalation);
    let question = world.it.open_question.as_ref().unwrap();
    assert_eq!(question.cause, AlertCause::Halted(HaltCondition::BudgetExceeded));
    assert_eq!(question.resume_state, State::CtoIntervention);
    // It continues with the member that exceeded the budget.
    world.done(Outcome::WorkSaved);
    let grant = tamma_core::budget::Grant { usd: Usd::from_cents(100), ..Default::default() };
    world.ask(Action::Continue { grant });
    let job = Job::Convene {
        council_number: 1,
        seat: Some(CouncilSeat::Member(1)),
        opinions: Vec::new(),
    };
    assert_eq!(world.started_job(), Some(&job));
}

#[test]
fn a_failed_chair_is_asked_again_with_the_same_opinions() {
    let mut world = stuck();
    for _ in 0..3 {
        world.done(Outcome::OpinionGiven(note()));
    }
    world.done(failure(FailureKind::Crashed));
    let opinions = vec![stored("note"); 3];
    let job = Job::Convene { council_number: 1, seat: Some(CouncilSeat::Chair), opinions };
    assert_eq!(world.started_job(), Some(&job));
    assert_eq!(world.it.state_failures(), 1);
}

#[test]
fn outcomes_out_of_turn_are_refused() {
    let mut world = stuck();
    let refused = world.try_done(Outcome::CouncilConcluded(note()));
    assert!(matches!(refused, Err(Refusal::WrongOutcome { .. })));
    for _ in 0..3 {
        world.done(Outcome::OpinionGiven(note()));
    }
    let refused = world.try_done(Outcome::OpinionGiven(note()));
    assert!(matches!(refused, Err(Refusal::WrongOutcome { .. })));
}

#[test]
fn a_task_of_the_first_edition_keeps_its_single_council_model() {
    let mut world = World::new();
    world.it.edition = Edition::November2026;
    for variant in [1, 2, 1, 2, 1] {
        world.fail_gates(variant);
        assert_ne!(world.it.state, State::CtoIntervention, "only three similar attempts count");
    }
    let mut world = World::new();
    world.it.edition = Edition::November2026;
    world.fail_gates(1).fail_gates(1).fail_gates(1);
    let job = Job::Convene { council_number: 1, seat: None, opinions: Vec::new() };
    assert_eq!(world.started_job(), Some(&job));
    assert_eq!(
        world.it.active_job.unwrap().reserved_cost,
        world.rules.tiers.complex.typical_run_usd
    );
    world.done(Outcome::CouncilConcluded(text("guidance")));
    assert_eq!(world.it.state, State::Adjusting);
}

fn opinion() -> CouncilOpinion {
    CouncilOpinion {
        root_cause: "The list is never sorted.".to_owned(),
        fix: "Sort it in `src/list.rs`.".to_owned(),
        confidence: Confidence::High,
        against: "It may be sorted\nelsewhere.".to_owned(),
        architectural_insights: Vec::new(),
    }
}

#[test]
fn the_minutes_have_root_cause_fix_dissent_and_opinions() {
    let conclusion = CouncilConclusion {
        root_cause: "The list is never sorted.".to_owned(),
        fix: "Sort it.".to_owned(),
        dissent: vec!["Member 2 was not there.".to_owned()],
        architectural_insights: vec!["Two lists\nshould be one.".to_owned()],
    };
    let members = [
        MemberOpinion { member: member(Tier::Moderate, "one"), opinion: Some(opinion()) },
        MemberOpinion { member: member(Tier::Complex, "two"), opinion: None },
    ];
    let text = render_minutes(&conclusion, &member(Tier::Complex, "three"), &members);
    let expected = "\
# Council conclusion

## Root cause

The list is never sorted.

## Fix

Sort it.

## Dissent

- Member 2 was not there.

## Architectural insights

- Two lists
  should be one.

## Members

Chair: the complex tier, three.

### Member 1: the moderate tier, one

- Root cause (high confidence): The list is never sorted.
- Fix: Sort it in `src/list.rs`.
- Counterarguments: It may be sorted
  elsewhere.

### Member 2: the complex tier, two

Absent: the run failed.
";
    assert_eq!(text, expected);
    let unanimous = CouncilConclusion { dissent: Vec::new(), ..conclusion };
    let text = render_minutes(&unanimous, &member(Tier::Complex, "three"), &members);
    assert!(text.contains("## Dissent\n\nNo dissent.\n"), "{text}");
}

#[test]
fn empty_and_too_long_texts_are_refused() {
    let empty = CouncilOpinion { root_cause: " ".to_owned(), fix: "a".repeat(9_000), ..opinion() };
    let errors = ["`root_cause` is empty", "`fix` is longer than 8000 bytes; shorten it"];
    assert_eq!(empty.validate(), errors);
    let dissent = vec![String::new()];
    let nothing = CouncilConclusion {
        root_cause: "a".to_owned(),
        fix: String::new(),
        dissent,
        architectural_insights: vec![" ".to_owned()],
    };
    assert_eq!(
        nothing.validate(),
        ["`fix` is empty", "`dissent` is empty", "`architectural_insights` is empty"]
    );
    assert_eq!(opinion().validate(), Vec::<String>::new());
}

// Calls and returns

fn question() -> Action {
    Action::Convene { question: text("Why?") }
}

fn concluded(mut world: World) -> World {
    assert_eq!(world.it.state, State::CtoIntervention);
    while world.it.state == State::CtoIntervention {
        world.finish_council_seat();
    }
    world
}

#[rstest]
#[case(State::Planning, State::Planning)]
#[case(State::AwaitingApproval, State::AwaitingApproval)]
#[case(State::Validated, State::Validated)]
#[case(State::InProgress, State::Validated)]
#[case(State::Testing, State::Testing)]
#[case(State::QualityReview, State::QualityReview)]
#[case(State::Approved, State::Approved)]
#[case(State::Adjusting, State::Adjusting)]
#[case(State::Committing, State::Committing)]
fn three_failures_in_a_state_call_the_council_which_returns_the_task(
    #[case] state: State,
    #[case] back: State,
) {
    let mut world = World::new();
    if state == State::Adjusting {
        world.fail_gates(1);
    }
    world.walk(state);
    for _ in 0..3 {
        if state == State::InProgress && world.it.state == State::Validated {
            world.start();
        }
        world.done(failure(FailureKind::Crashed));
    }
    assert_eq!(world.it.decision.unwrap().to_string(), "ask the council: the step failed 3 times");
    let mut world = concluded(world);
    assert_eq!((world.it.state, world.it.councils), (back, 1));
    assert_eq!(world.it.council, None);
    assert_eq!(world.it.state_failures(), 0);
    // The guided retry goes on from there.
    world.walk(State::Completed);
}

/// Before the base commit is pinned, there is nothing that a council could read.
#[rstest]
#[case(State::Pending)]
#[case(State::Assigned)]
fn three_failures_before_the_task_is_prepared_ask_a_person(#[case] state: State) {
    let mut world = World::new().to(state);
    for _ in 0..3 {
        assert_eq!(world.it.state, state);
        world.done(failure(FailureKind::Crashed));
    }
    assert_eq!((world.it.state, world.it.councils), (State::HumanEscalation, 0));
    let question = world.it.open_question.as_ref().unwrap();
    assert_eq!((question.cause, question.resume_state), (AlertCause::JobFailed(state), state));
    let offered = tamma_core::task_loop::allowed_answers(question);
    assert!(!offered.contains(&AnswerKind::Convene), "{offered:?}");
    // The failures are counted anew after the person's answer.
    world.ask(Action::Retry { grant: tamma_core::budget::Grant::default() });
    assert_eq!((world.it.state, world.it.state_failures()), (state, 0));
    world.walk(State::Completed);
}

#[test]
fn the_run_after_a_council_gets_its_conclusion() {
    let mut world = World::new().to(State::InProgress);
    world.ask(question()).done(Outcome::Interrupted);
    let world = concluded(world);
    let Some(Job::Implement(run)) = world.started_job() else { panic!("a run") };
    assert_eq!((run.brief.clone(), run.tier), (Some(text("guidance")), Tier::TOP));
}

#[test]
fn the_agents_that_cannot_start_are_reported_to_a_person_without_a_council() {
    let mut world = World::new().to(State::Testing);
    for _ in 0..3 {
        world.done(failure(FailureKind::Unavailable));
    }
    assert_eq!((world.it.state, world.it.councils), (State::HumanEscalation, 0));
}

#[test]
fn a_person_lets_the_council_review_a_plan_and_then_decides() {
    let mut world = World::with(|rules| {
        rules.scrum_master.task_loop.auto_approve_low_risk = false;
    })
    .to(State::AwaitingApproval);
    let refused = world.try_ask("ann", question());
    assert!(matches!(refused, Err(Refusal::WrongState { .. })), "the check has not finished");
    world.done(Outcome::Checked { blockers: 0, warnings: 0 });
    let offered = tamma_core::task_loop::allowed_answers(world.it.open_question.as_ref().unwrap());
    assert!(offered.contains(&AnswerKind::Convene));
    world.ask(question());
    let call = world.it.council.clone().unwrap();
    assert_eq!(call.question, Some(text("Why?")));
    assert!(world.it.council_reviews_plan());
    assert_eq!(world.it.tier, Tier::Simple, "a review of a plan changes no tier");
    let mut world = concluded(world);
    world.done(Outcome::Checked { blockers: 0, warnings: 0 });
    assert_eq!(world.it.state, State::AwaitingApproval);
    // The planner gets the conclusion with the person's changes.
    let scope = world.binding();
    world.ask(Action::RevisePlan { scope, changes: note() });
    assert_eq!(world.it.guidance, Some(text("guidance")));
    world.walk(State::Validated);
    assert_eq!(world.it.guidance, None);
}

#[test]
fn the_council_reviews_a_submitted_plan_if_the_rules_say_so() {
    for reviews in [true, false] {
        let mut world = World::with(|rules| rules.council.reviews_submitted_plans = reviews);
        world.received.submitted_plan = Some(text("brought"));
        let mut world = World::receive(world.received, world.rules);
        world.done(Outcome::Admitted).done(Outcome::Prepared(crate::world::pin(1)));
        if reviews {
            assert!(world.it.council_reviews_plan());
            world = concluded(world);
            assert_eq!(world.it.note, Some(text("guidance")));
        }
        assert_eq!(world.it.state, State::Planning);
        let note = reviews.then(|| text("guidance"));
        let job = Job::Plan { version: 1, from: Some(text("brought")), note };
        assert_eq!(world.started_job(), Some(&job));
    }
}

#[test]
fn an_answer_that_convenes_the_council_revises_a_plan_that_was_tried() {
    let mut world = World::with(|rules| rules.scrum_master.task_loop.max_retries = 0);
    world.fail_gates(1).fail_gates(2);
    assert_eq!(world.it.state, State::HumanEscalation);
    world.done(Outcome::WorkSaved).ask(question());
    let world = concluded(world);
    assert_eq!(world.it.state, State::Adjusting);
    let guided = Job::Plan { version: 2, from: Some(text("plan")), note: Some(text("guidance")) };
    assert_eq!(world.started_job(), Some(&guided));
}

#[test]
fn people_cannot_exceed_the_council_limit() {
    let mut world = World::new().to(State::Testing);
    for councils in 1..=2 {
        world.ask(question()).done(Outcome::Interrupted);
        world = concluded(world);
        assert_eq!((world.it.state, world.it.councils), (State::Testing, councils));
    }
    let refused = world.try_ask("ann", question()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the council cannot be convened again: the task had 2 of 2 councils (`max_councils`)"
    );
    // Three failures now need a person.
    for _ in 0..3 {
        world.done(failure(FailureKind::Crashed));
    }
    assert_eq!(world.it.state, State::HumanEscalation);
    let question = world.it.open_question.as_ref().unwrap();
    assert!(!tamma_core::task_loop::allowed_answers(question).contains(&AnswerKind::Convene));
}

#[test]
fn opinions_and_conclusions_are_recorded_in_the_councils_name() {
    let mut world = stuck();
    world.done(Outcome::OpinionGiven(note())).done(failure(FailureKind::Crashed));
    let world = concluded(world);
    let actor = |name| {
        let entry = world.log.iter().find(|entry| entry.name == name).unwrap();
        entry.actor.clone()
    };
    assert_eq!(actor(EntryName::SmCouncilOpinion), Actor::Council);
    assert_eq!(actor(EntryName::SmCouncilConcluded), Actor::Council);
    assert_eq!(actor(EntryName::SmCouncilConvened), Actor::Tamma);
    assert_eq!(actor(EntryName::SmCouncilMemberAbsent), Actor::Tamma);
}

#[test]
fn metrics_count_what_followed_each_council() {
    let count = |world: &World| {
        let timed = |entry| TimedEntry { entry, recorded_at: world.now };
        let metrics = compute(world.log.iter().map(timed));
        (metrics.councils, metrics.councils_resolved, metrics.councils_unresolved)
    };
    let mut world = concluded(stuck());
    assert_eq!(count(&world), (1, 0, 0));
    world.walk(State::Approved);
    assert_eq!(count(&world), (1, 1, 0));
    // The second one ends with a person.
    for _ in 0..3 {
        world.done(failure(FailureKind::Crashed));
    }
    world = concluded(world);
    for _ in 0..3 {
        world.done(failure(FailureKind::Crashed));
    }
    assert_eq!(world.it.state, State::HumanEscalation);
    assert_eq!(count(&world), (2, 1, 1));
}
