//! Section 6: disputed plans and refusals.

use rstest::rstest;
use tamma_core::budget::Grant;
use tamma_core::cause::{AlertCause, LoopLimit};
use tamma_core::failure::FailureKind;
use tamma_core::history::{EntryData, EntryName};
use tamma_core::task_loop::{Action, AlertKind, AlertSeverity, Job, Outcome, State};
use tamma_core::tier::Tier;

use crate::world::{World, commit, failure, note, text};

fn disputed() -> Outcome {
    Outcome::PlanWrong(text("the file does not exist"))
}

#[test]
fn a_disputed_plan_goes_back_to_the_planner_with_the_reasons() {
    let mut world = World::new().to(State::InProgress);
    world.done(disputed());
    assert_eq!((world.it.state, world.it.retries, world.it.iterations), (State::Planning, 1, 0));
    let note = Some(text("the file does not exist"));
    let job = Job::Plan { version: 2, from: Some(text("plan")), note };
    assert_eq!(world.started_job(), Some(&job));
    let entry = world.log.last().unwrap();
    assert_eq!(entry.name, EntryName::SmPlanDisputed);
    assert_eq!(entry.data, EntryData::Stored(text("the file does not exist")));
    // The new plan is approved like any other.
    assert_eq!(world.it.approved_scope, None);
    world.walk(State::Completed);
}

#[test]
fn an_agent_that_disputes_every_plan_ends_with_a_person() {
    let mut world = World::new();
    for _ in 0..3 {
        world.walk(State::InProgress).done(disputed());
    }
    world.walk(State::InProgress).done(disputed());
    assert_eq!((world.it.state, world.it.retries), (State::HumanEscalation, 3));
    let question = world.it.open_question.as_ref().unwrap();
    assert_eq!(question.cause, AlertCause::LimitReached(LoopLimit::Retries));
    assert_eq!(question.resume_state, State::Planning);
    world.done(Outcome::WorkSaved).ask(Action::Retry { grant: Grant::default() });
    let Some(Job::Plan { note: Some(note), .. }) = world.started_job() else { panic!("a plan") };
    assert_eq!(*note, text("the file does not exist"));
}

#[test]
fn a_refused_run_moves_to_the_next_tier_and_then_to_a_person() {
    let mut world = World::new().to(State::InProgress);
    for tier in [Tier::Moderate, Tier::Complex] {
        world.done(failure(FailureKind::Refused));
        assert_eq!((world.it.state, world.it.tier), (State::Validated, tier));
        let Some(Job::Implement(spec)) = world.started_job() else { panic!("a run") };
        assert_eq!(spec.tier, tier);
        // Another tier need not wait.
        assert_eq!(world.it.active_job.unwrap().not_before, None);
        world.start();
    }
    world.done(failure(FailureKind::Refused));
    assert_eq!(world.it.state, State::HumanEscalation);
    let question = world.it.open_question.as_ref().unwrap();
    assert_eq!(
        (question.cause, question.resume_state),
        (AlertCause::AgentRefused, State::Validated)
    );
    assert_eq!(world.alerts()[0].kind, AlertKind::Error);
}

#[rstest]
#[case(State::Planning)]
#[case(State::QualityReview)]
fn other_refused_jobs_ask_a_person_at_once(#[case] state: State) {
    let mut world = World::new().to(state);
    world.done(failure(FailureKind::Refused));
    assert_eq!(world.it.state, State::HumanEscalation);
    let question = world.it.open_question.as_ref().unwrap();
    assert_eq!((question.cause, question.resume_state), (AlertCause::AgentRefused, state));
}

#[rstest]
#[case(State::Pending, State::Pending)]
#[case(State::Planning, State::Planning)]
#[case(State::InProgress, State::Validated)]
#[case(State::Testing, State::Testing)]
#[case(State::QualityReview, State::QualityReview)]
#[case(State::Committing, State::Committing)]
fn a_job_that_kills_its_workers_goes_to_a_person_at_once(
    #[case] state: State,
    #[case] resume: State,
) {
    let mut world = World::new().to(state);
    world.done(failure(FailureKind::WorkersLost));
    assert_eq!(world.it.state, State::HumanEscalation);
    let question = world.it.open_question.as_ref().unwrap();
    assert_eq!((question.cause, question.resume_state), (AlertCause::WorkersLost, resume));
    let alert = world.alerts()[0];
    assert_eq!((alert.kind, alert.severity), (AlertKind::Error, AlertSeverity::Critical));
    let entry = world.log.iter().rev().find(|entry| entry.to != entry.from).unwrap();
    assert_eq!(entry.reason.as_deref(), Some("it broke"), "the history says why");
    assert_eq!(world.it.councils, 0, "a council would run on the same workers");
}

#[test]
fn work_that_kills_its_workers_when_it_is_saved_stays_where_it_is() {
    let mut world = World::new().to(State::Testing);
    world.done(failure(FailureKind::WorkersLost));
    assert_eq!(world.started_job(), Some(&Job::SaveWork));
    world.done(failure(FailureKind::WorkersLost));
    assert_eq!((world.it.state, world.it.must_save_work), (State::HumanEscalation, false));
    assert!(world.it.active_job.is_none(), "no other worker tries it");
    assert!(world.it.open_question.is_some());
    world.ask(Action::Retry { grant: Grant::default() });
    assert_eq!(world.it.state, State::Testing);
}

#[test]
fn a_lone_critical_finding_is_judged_again_before_anything_follows() {
    let mut world = World::new().to(State::QualityReview);
    let Some(Job::Review { unconfirmed: None, .. }) = world.started_job() else {
        panic!("the first review")
    };
    world.done(Outcome::CriticalUnconfirmed(note()));
    assert_eq!(world.it.state, State::QualityReview);
    assert!(world.has_entry(EntryName::SmSecondReviewRequested));
    let Some(Job::Review { unconfirmed: Some(verdict), .. }) = world.started_job() else {
        panic!("the second review")
    };
    assert_eq!(*verdict, note());
    // There is no third review.
    assert!(world.try_done(Outcome::CriticalUnconfirmed(note())).is_err());
    world.walk(State::Approved);
    assert_eq!(world.it.unconfirmed, None);
}

#[test]
fn an_unconfirmed_finding_stays_while_its_commit_is_under_review() {
    let mut world = World::new().to(State::QualityReview);
    world.done(Outcome::CriticalUnconfirmed(note()));
    // A failing second review leaves the state, and a person starts it again.
    world.done(failure(FailureKind::Refused));
    assert_eq!(world.it.state, State::HumanEscalation);
    world.done(Outcome::WorkSaved).ask(Action::Retry { grant: Grant::default() });
    let Some(Job::Review { unconfirmed: Some(verdict), .. }) = world.started_job() else {
        panic!("the second review")
    };
    assert_eq!(*verdict, note());
    // The next run makes another commit.
    world.done(failure(FailureKind::Refused));
    world.done(Outcome::WorkSaved).ask(Action::ChangeTask { request: text("start again") });
    world.walk(State::InProgress).done(Outcome::RunFinished(commit(10)));
    assert_eq!(world.it.unconfirmed, None);
}

#[test]
fn a_second_review_reserves_the_cost_of_its_own_tier() {
    let mut world = World::with(|rules| {
        rules.tiers.complex.typical_run_usd = "7".parse().unwrap();
    });
    world.walk(State::QualityReview);
    let reserved = |world: &World| world.it.active_job.unwrap().reserved_cost;
    let first = world.rules.validator(&world.it.tier.into());
    assert_eq!(reserved(&world), world.rules.tiers.get(first).typical_run_usd);
    world.done(Outcome::CriticalUnconfirmed(note()));
    let second = world.rules.second_validator(first, &world.it.tier.into());
    assert_ne!(first, second);
    assert_eq!(reserved(&world), world.rules.tiers.get(second).typical_run_usd);
}
