//! Section 3: what people may do at any time, and what they may answer.

use rstest::rstest;
use tamma_core::actor::Actor;
use tamma_core::budget::Grant;
use tamma_core::cause::Cause;
use tamma_core::cost::Usd;
use tamma_core::failure::FailureKind;
use tamma_core::log::EntryName;
use tamma_core::task_loop::{
    Action, Answer, Command, Job, JobKind, Next, Outcome, Refusal, Severity, State, StopReason,
    Trigger, What, answers,
};

use crate::s3_machine::{alerted, asking};
use crate::world::{
    World, commit, costing, failure, green, minute, note, person, pin, reason, text,
};

// Pause and resume.

#[test]
fn a_pause_is_a_flag_beside_the_state_and_stops_the_job() {
    let mut world = World::new().to(State::Testing);
    let ticket = world.it.work.expect("a job").ticket;
    world.ask(Action::Pause);
    assert_eq!(world.it.state, State::Testing);
    assert_eq!(world.commands, [Command::Stop { ticket, why: StopReason::Paused }]);
    assert_eq!(world.it.next(&world.rules), Some(Next::Resume { paused_by: text("ann") }));
    assert_eq!(world.it.wake_at(&world.rules), None);
}

#[test]
fn resuming_goes_back_to_where_it_was() {
    let mut world = World::new().to(State::Testing);
    world.ask(Action::Pause).done(Outcome::Interrupted);
    assert_eq!(world.it.work, None);
    world.ask(Action::Resume);
    assert_eq!(world.it.state, State::Testing);
    let again = Job::Test { commit: commit(9), risk: tamma_core::level::Level::Low };
    assert_eq!(world.started(), Some(&again));
}

#[test]
fn a_job_that_ends_in_a_pause_counts_and_the_next_waits() {
    let mut world = World::new().to(State::Testing);
    world.ask(Action::Pause).done(green());
    assert_eq!(world.it.state, State::QualityReview);
    assert_eq!(world.started(), None);
    world.ask(Action::Resume);
    assert_eq!(world.started(), Some(&Job::Review { commit: commit(9) }));
}

#[test]
fn a_run_that_a_pause_interrupted_waits_for_an_engine_again() {
    let mut world = World::new().to(State::InProgress);
    world.ask(Action::Pause).done(Outcome::Interrupted);
    assert_eq!(world.it.state, State::Validated);
    world.ask(Action::Resume);
    assert!(matches!(world.started(), Some(Job::Implement(order)) if order.iteration == 1));
}

#[test]
fn resuming_waits_until_the_job_has_stopped() {
    let mut world = World::new().to(State::Testing);
    world.ask(Action::Pause).ask(Action::Resume);
    assert_eq!(world.started(), None);
    assert_eq!(world.it.next(&world.rules), Some(Next::Stopped { job: JobKind::Test }));
    world.done(Outcome::Interrupted);
    assert!(world.started().is_some());
}

#[rstest]
#[case(State::Committing)]
#[case(State::Learning)]
fn a_pause_lets_delivery_and_learning_finish(#[case] state: State) {
    let mut world = World::new().to(state);
    world.ask(Action::Pause);
    assert_eq!(world.commands, []);
}

#[test]
fn a_pause_does_not_count_against_the_soft_timeout() {
    let mut world = World::new().to(State::Testing);
    world.now = minute(10);
    world.ask(Action::Pause);
    world.now = minute(1_000);
    world.ask(Action::Resume);
    assert_eq!(world.it.wake_at(&world.rules), Some(minute(990 + 24)));
}

#[test]
fn a_pause_does_not_count_as_waiting_for_an_answer() {
    let mut world = alerted();
    world.ask(Action::Pause);
    world.now = minute(500);
    world.ask(Action::Resume);
    assert_eq!(world.it.wake_at(&world.rules), Some(minute(560)));
}

#[test]
fn only_what_is_not_paused_can_be_paused_and_only_what_is_can_be_resumed() {
    let mut world = World::new();
    assert_eq!(world.try_ask("ann", Action::Resume), Err(Refusal::NotPaused));
    world.ask(Action::Pause);
    assert_eq!(world.try_ask("ann", Action::Pause), Err(Refusal::Paused));
}

#[test]
fn people_may_decide_while_a_task_is_paused() {
    let mut world = asking();
    let binding = world.binding();
    world.ask(Action::Pause).ask(Action::Approve { binding, reason: None });
    assert_eq!(world.it.state, State::Validated);
    assert_eq!(world.started(), None);
    assert!(world.ask(Action::Resume).started().is_some());
}

// Modifying.

#[rstest]
#[case(State::Pending)]
#[case(State::Assigned)]
fn before_planning_a_change_of_mind_is_only_noted(#[case] state: State) {
    let mut world = World::new().to(state);
    world.ask(Action::Modify { note: note() });
    assert_eq!(world.it.state, state);
    assert!(world.has_logged(EntryName::SmTaskModified));
    world.walk(State::Planning);
    let planned = Job::Plan { version: 1, from: None, note: Some(note()) };
    assert_eq!(world.started(), Some(&planned));
}

#[rstest]
#[case(State::Planning)]
#[case(State::AwaitingApproval)]
#[case(State::Validated)]
#[case(State::InProgress)]
#[case(State::Testing)]
#[case(State::QualityReview)]
#[case(State::Approved)]
fn a_change_of_mind_plans_anew_once_the_old_job_has_stopped(#[case] state: State) {
    let mut world = World::new().to(state);
    let ticket = world.it.work.expect("a job").ticket;
    world.ask(Action::Modify { note: note() });
    assert_eq!(world.it.state, State::Planning);
    assert_eq!(world.commands, [Command::Stop { ticket, why: StopReason::Superseded }]);
    assert_eq!((world.it.approved, world.it.check.as_ref()), (None, None));
    world.done(Outcome::Interrupted);
    assert!(matches!(world.started(), Some(Job::Plan { note: Some(_), .. })));
}

#[rstest]
#[case(State::Committing)]
#[case(State::Learning)]
fn what_is_on_its_way_out_cannot_be_modified(#[case] state: State) {
    let mut world = World::new().to(state);
    let refused = world.try_ask("ann", Action::Modify { note: note() });
    assert_eq!(refused, Err(Refusal::NotNow { state, action: "modify".to_owned() }));
}

#[test]
fn a_job_that_was_left_is_paid_and_its_result_forgotten() {
    let mut world = World::new().to(State::InProgress);
    let ticket = world.it.work.expect("a run").ticket;
    world.ask(Action::Modify { note: note() });
    let outcome = Outcome::RunFinished(commit(5));
    let done = What::Done { ticket, usage: Some(costing(123)), outcome };
    world.feed(Actor::Tamma, done).expect("it is paid");
    assert_eq!(world.it.spend.usd, Usd::cents(123));
    assert_eq!((world.it.state, world.it.commit), (State::Planning, None));
    assert_eq!(world.it.leaving, None);
}

// Answers to an alert.

#[test]
fn continue_goes_on_where_it_was_with_its_failures_forgotten() {
    let mut world = alerted();
    world.ask(Action::Continue { grant: Grant::default() });
    assert_eq!(world.it.state, State::Assigned);
    assert!(world.it.failures.is_empty());
    assert_eq!(world.started(), Some(&Job::Prepare));
}

#[test]
fn retry_tries_what_failed_again() {
    let mut world = alerted();
    world.ask(Action::Retry { grant: Grant::default() });
    assert_eq!(world.it.state, State::Assigned);
    assert!(world.has_logged(EntryName::SmTaskRetried));
}

#[test]
fn an_answer_closes_the_question() {
    let mut world = alerted();
    let question = world.it.question.as_ref().expect("a question").number;
    world.ask(Action::Continue { grant: Grant::default() });
    assert!(world.commands.contains(&Command::Settle { question }));
    assert_eq!(world.it.question, None);
}

#[test]
fn abandon_fails_the_task_and_only_an_alerted_one() {
    let mut world = alerted();
    world.ask(Action::Abandon { reason: reason() });
    assert_eq!(world.it.state, State::Failed);
    assert_eq!(world.started(), Some(&Job::Learn { ending: State::Failed, model: true }));
    let refused = World::new().try_ask("ann", Action::Abandon { reason: reason() });
    let state = State::Pending;
    assert_eq!(refused, Err(Refusal::NotNow { state, action: "abandon".to_owned() }));
}

/// A task whose delivery keeps failing for reasons of its own.
fn undeliverable() -> World {
    let mut world = World::new().to(State::Committing);
    for _ in 0..3 {
        world.done(failure(FailureKind::Unavailable));
    }
    world.done(Outcome::Landed);
    world
}

#[rstest]
#[case(State::Planning)]
#[case(State::AwaitingApproval)]
#[case(State::Validated)]
#[case(State::Testing)]
#[case(State::QualityReview)]
fn a_person_may_roll_back_to_an_earlier_state(#[case] to: State) {
    let mut world = undeliverable();
    world.ask(Action::RollBack { to, reason: reason() });
    assert_eq!(world.it.state, to);
    assert!(world.started().is_some());
    let keeps_approval = !matches!(to, State::Planning | State::AwaitingApproval);
    assert_eq!(world.it.is_approved(), keeps_approval);
    let last = world.log.last().expect("an entry");
    assert_eq!((last.name, last.on), (EntryName::SmRolledBack, Some(Trigger::RolledBack)));
    assert_eq!((&last.actor, last.reason.as_deref()), (&person("ann"), Some("because")));
}

#[rstest]
#[case(State::Completed, "no task is rolled back there")]
#[case(State::InProgress, "no task is rolled back there")]
#[case(State::Planning, "it has not been past it")]
fn nobody_rolls_back_to_where_a_task_has_not_been(#[case] to: State, #[case] why: &'static str) {
    let refused = alerted().try_ask("ann", Action::RollBack { to, reason: reason() });
    assert_eq!(refused, Err(Refusal::NoWayBack { to, why }));
}

#[test]
fn rolling_back_needs_what_the_state_works_on() {
    // Approved, then blocked by a change of rules before anything ran.
    let mut world = undeliverable();
    world.feed(Actor::Tamma, What::Repinned(pin(2))).expect("the pin changes");
    let to = State::Validated;
    let refused = world.try_ask("ann", Action::RollBack { to, reason: reason() });
    assert_eq!(refused, Err(Refusal::NoWayBack { to, why: "its plan is not approved" }));

    let mut world = World::new().to(State::Approved);
    world.it.commit = None;
    for _ in 0..3 {
        world.done(failure(FailureKind::Crashed));
    }
    for to in [State::Testing, State::QualityReview] {
        let refused = world.try_ask("ann", Action::RollBack { to, reason: reason() });
        assert_eq!(refused, Err(Refusal::NoWayBack { to, why: "it has no change to look at" }));
    }
    world.it.plan = None;
    let to = State::AwaitingApproval;
    let refused = world.try_ask("ann", Action::RollBack { to, reason: reason() });
    assert_eq!(refused, Err(Refusal::NoWayBack { to, why: "it has no plan" }));
}

#[rstest]
#[case(State::Testing, State::QualityReview)]
#[case(State::QualityReview, State::Approved)]
#[case(State::Committing, State::Learning)]
fn a_person_may_skip_a_failed_step_and_says_why(#[case] failed: State, #[case] next: State) {
    let mut world = World::new().to(failed);
    for _ in 0..3 {
        world.done(failure(FailureKind::Crashed));
    }
    world.ask(Action::Skip { reason: reason() });
    assert_eq!(world.it.state, next);
    let last = world.log.last().expect("an entry");
    assert_eq!((last.name, last.reason.as_deref()), (EntryName::SmSkipped, Some("because")));
    assert_eq!(last.actor, person("ann"));
}

#[rstest]
#[case(State::Pending)]
#[case(State::Assigned)]
#[case(State::Planning)]
#[case(State::AwaitingApproval)]
#[case(State::Approved)]
fn approval_and_what_comes_before_it_cannot_be_skipped(#[case] failed: State) {
    let mut world = World::new().to(failed);
    for _ in 0..3 {
        world.done(failure(FailureKind::Crashed));
    }
    let refused = world.try_ask("ann", Action::Skip { reason: reason() });
    assert_eq!(refused, Err(Refusal::NotAnAnswer { action: "skip".to_owned() }));
}

#[test]
fn a_change_that_failed_its_review_may_be_taken_as_it_is() {
    let mut world = World::with(|rules| rules.scrum_master.task_loop.max_iterations = 1);
    world.fail_in(1).done(Outcome::Landed).ask(Action::Skip { reason: reason() });
    assert_eq!(world.it.state, State::Approved);
    assert_eq!(world.walk(State::Completed).it.commit, Some(commit(10)));
}

#[test]
fn without_a_change_there_is_nothing_to_skip_to() {
    let mut world = World::new().to(State::Planning);
    for _ in 0..3 {
        world.done(Outcome::PlanInvalid(note()));
    }
    assert_eq!(world.it.state, State::CtoIntervention);
    // Nobody comes to the council, three times.
    for _ in 0..3 * world.rules.council.members.len() {
        world.done(failure(FailureKind::Crashed));
    }
    assert_eq!(world.it.state, State::HumanEscalation);
    let refused = world.try_ask("ann", Action::Skip { reason: reason() });
    assert_eq!(refused, Err(Refusal::NotAnAnswer { action: "skip".to_owned() }));
}

#[test]
fn an_action_that_is_no_answer_does_not_answer() {
    let mut world = alerted();
    let refused = world.try_ask("ann", Action::Accept { commit: commit(1), reason: None });
    assert_eq!(refused, Err(Refusal::NotAnAnswer { action: "accept".to_owned() }));
}

#[rstest]
#[case::blocked(Cause::Blocked(1), &[Answer::Override, Answer::Modify, Answer::Retry, Answer::Cancel, Answer::Abandon])]
#[case::rejected(Cause::Rejected, &[Answer::Modify, Answer::Retry, Answer::Cancel, Answer::Abandon])]
#[case::review(Cause::ReviewNeeded, &[Answer::Accept, Answer::Rework, Answer::Modify, Answer::Cancel])]
#[case::engine(Cause::EngineFailed, &[Answer::Continue, Answer::Modify, Answer::Retry, Answer::RollBack, Answer::Cancel, Answer::Abandon])]
fn every_alert_says_what_may_be_answered(#[case] cause: Cause, #[case] expected: &[Answer]) {
    let mut question = alerted().it.question.expect("a question");
    question.cause = cause;
    assert_eq!(answers(&question), expected);
}

#[test]
fn work_is_landed_before_a_person_thinks_and_only_where_there_is_some() {
    assert_eq!(alerted().started(), None);
    let mut world = World::new().to(State::Testing);
    for _ in 0..3 {
        world.done(failure(FailureKind::Crashed));
    }
    assert_eq!(world.started(), Some(&Job::Land));
    world.done(Outcome::Landed);
    assert!(world.has_logged(EntryName::SmWorkLanded));
    assert_eq!((world.started(), world.it.to_land), (None, false));
}

#[test]
fn an_answer_lets_the_landing_finish_before_anything_starts() {
    let mut world = World::new().to(State::Testing);
    for _ in 0..3 {
        world.done(failure(FailureKind::Crashed));
    }
    world.ask(Action::Continue { grant: Grant::default() });
    assert!(!world.commands.iter().any(|command| matches!(command, Command::Stop { .. })));
    assert_eq!(world.started(), None);
    world.done(Outcome::Landed);
    assert!(matches!(world.started(), Some(Job::Test { .. })));
}

#[test]
fn landing_that_keeps_failing_is_given_up_and_said() {
    let mut world = World::new().to(State::Testing);
    for _ in 0..5 {
        world.done(failure(FailureKind::Crashed));
    }
    assert_eq!(world.started(), Some(&Job::Land));
    world.done(failure(FailureKind::OverBudget));
    assert_eq!((world.started(), world.it.to_land), (None, false));
    let cause = Cause::WorkFailed(State::HumanEscalation);
    assert_eq!(world.alerts()[0].cause, cause);
    assert_eq!(world.alerts()[0].severity, Severity::Critical);
    assert_eq!(world.it.failures_here(), 0);
}
