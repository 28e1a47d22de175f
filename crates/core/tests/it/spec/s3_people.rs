//! Section 3: actions and answers of people.

use rstest::rstest;
use tamma_core::actor::Actor;
use tamma_core::budget::Grant;
use tamma_core::cause::AlertCause;
use tamma_core::cost::Usd;
use tamma_core::failure::FailureKind;
use tamma_core::history::{EntryData, EntryName};
use tamma_core::task::{Priority, TaskEdit, TaskEditError};
use tamma_core::task_loop::{
    Action, AlertSeverity, AnswerKind, Command, EventKind, Job, JobKind, NextStep, Outcome,
    Refusal, State, StopReason, TaskLoop, Trigger, allowed_answers,
};

use super::s3_machine::{alerted, asking};
use crate::world::{
    World, commit, costing, failure, green, minute, note, person, pin, reason, text,
};

// Pause and resume

#[test]
fn a_pause_is_a_flag_beside_the_state_and_stops_the_job() {
    let mut world = World::new().to(State::Testing);
    let job_number = world.it.active_job.expect("a job").job_number;
    world.ask(Action::Pause);
    assert_eq!(world.it.state, State::Testing);
    assert_eq!(world.commands, [Command::StopJob { job_number, reason: StopReason::Paused }]);
    assert_eq!(world.it.next_step(&world.rules), Some(NextStep::Resume { paused_by: text("ann") }));
    assert_eq!(world.it.wake_at(&world.rules), None);
}

#[test]
fn a_resumed_task_continues_in_its_state() {
    let mut world = World::new().to(State::Testing);
    world.ask(Action::Pause).done(Outcome::Interrupted);
    assert_eq!(world.it.active_job, None);
    world.ask(Action::Resume);
    assert_eq!(world.it.state, State::Testing);
    let again = Job::Test { commit: commit(9), risk: tamma_core::level::RiskLevel::Low };
    assert_eq!(world.started_job(), Some(&again));
}

#[test]
fn a_job_that_ends_during_a_pause_counts_and_the_next_waits() {
    let mut world = World::new().to(State::Testing);
    world.ask(Action::Pause).done(green());
    assert_eq!(world.it.state, State::QualityReview);
    assert_eq!(world.started_job(), None);
    world.ask(Action::Resume);
    assert_eq!(world.started_job(), Some(&Job::Review { commit: commit(9), unconfirmed: None }));
}

#[test]
fn a_run_that_a_pause_interrupted_waits_for_an_agent_again() {
    let mut world = World::new().to(State::InProgress);
    world.ask(Action::Pause).done(Outcome::Interrupted);
    assert_eq!(world.it.state, State::Validated);
    world.ask(Action::Resume);
    assert!(
        matches!(world.started_job(), Some(Job::Implement(run_spec)) if run_spec.iteration == 1)
    );
}

#[test]
fn resuming_waits_until_the_job_has_stopped() {
    let mut world = World::new().to(State::Testing);
    world.ask(Action::Pause).ask(Action::Resume);
    assert_eq!(world.started_job(), None);
    assert_eq!(
        world.it.next_step(&world.rules),
        Some(NextStep::JobStopping { job: JobKind::Test })
    );
    world.done(Outcome::Interrupted);
    assert!(world.started_job().is_some());
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
fn only_running_tasks_can_be_paused_and_only_paused_ones_resumed() {
    let mut world = World::new();
    assert_eq!(world.try_ask("ann", Action::Resume), Err(Refusal::NotPaused));
    world.ask(Action::Pause);
    assert_eq!(world.try_ask("ann", Action::Pause), Err(Refusal::AlreadyPaused));
}

#[test]
fn people_can_decide_while_a_task_is_paused() {
    let mut world = asking();
    let scope = world.binding();
    world.ask(Action::Pause).ask(Action::Approve { scope, reason: None });
    assert_eq!(world.it.state, State::Validated);
    assert_eq!(world.started_job(), None);
    assert!(world.ask(Action::Resume).started_job().is_some());
}

// Editing title, priority and labels

fn renamed(title: &str) -> Action {
    Action::Edit(TaskEdit { title: Some(title.to_owned()), ..TaskEdit::default() })
}

#[test]
fn an_edit_changes_the_priority_and_the_history_and_nothing_else() {
    let mut world = World::new().to(State::Testing);
    let before = world.it.clone();
    let edit = TaskEdit {
        priority: Some(Priority::Critical),
        labels: Some(vec!["login".to_owned()]),
        ..TaskEdit::default()
    };
    world.ask(Action::Edit(edit.clone()));
    assert!(world.commands.is_empty(), "no job is affected");
    let entry = world.log.last().expect("an entry");
    assert_eq!((entry.name, &entry.data), (EntryName::SmTaskEdited, &EntryData::Edited(edit)));
    let (priority, entry_count) = (Priority::Critical, before.entry_count + 1);
    assert_eq!(world.it, TaskLoop { priority, entry_count, ..before });
}

#[test]
fn the_title_can_be_edited_until_there_is_a_plan() {
    let mut world = World::new().to(State::Planning);
    world.ask(renamed("Another title"));
    world.walk(State::AwaitingApproval);
    let refused = world.try_ask("ann", renamed("Approve me"));
    assert_eq!(refused, Err(Refusal::TitleHasPlan), "agents read the title");
}

#[test]
fn an_invalid_edit_is_refused() {
    let labels = |labels: Vec<String>| TaskEdit { labels: Some(labels), ..TaskEdit::default() };
    let title = |title: String| TaskEdit { title: Some(title), ..TaskEdit::default() };
    for (edit, error) in [
        (TaskEdit::default(), TaskEditError::Empty),
        (title(String::new()), TaskEditError::Title),
        (title("two\nlines".to_owned()), TaskEditError::Title),
        (title("x".repeat(201)), TaskEditError::Title),
        (labels(vec!["a".to_owned(); 21]), TaskEditError::TooManyLabels),
        (labels(vec!["a,b".to_owned()]), TaskEditError::Label("a,b".to_owned())),
        (labels(vec![" a".to_owned()]), TaskEditError::Label(" a".to_owned())),
    ] {
        let refused = World::new().try_ask("ann", Action::Edit(edit));
        assert_eq!(refused, Err(Refusal::InvalidEdit(error)));
    }
    assert_eq!(labels(vec!["x".repeat(50)]).validate(), Ok(()));
}

// Changing the request

#[rstest]
#[case(State::Pending)]
#[case(State::Assigned)]
fn before_planning_a_changed_request_is_only_recorded(#[case] state: State) {
    let mut world = World::new().to(state);
    world.ask(Action::ChangeTask { request: note() });
    assert_eq!(world.it.state, state);
    assert!(world.has_entry(EntryName::SmTaskModified));
    world.walk(State::Planning);
    let planned = Job::Plan { version: 1, from: None, note: Some(note()) };
    assert_eq!(world.started_job(), Some(&planned));
}

#[rstest]
#[case(State::Planning)]
#[case(State::AwaitingApproval)]
#[case(State::Validated)]
#[case(State::InProgress)]
#[case(State::Testing)]
#[case(State::QualityReview)]
#[case(State::Approved)]
fn a_changed_request_replans_once_the_old_job_has_stopped(#[case] state: State) {
    let mut world = World::new().to(state);
    let job_number = world.it.active_job.expect("a job").job_number;
    world.ask(Action::ChangeTask { request: note() });
    assert_eq!(world.it.state, State::Planning);
    assert_eq!(world.commands, [Command::StopJob { job_number, reason: StopReason::Superseded }]);
    assert_eq!((world.it.approved_scope, world.it.plan_assessment.as_ref()), (None, None));
    world.done(Outcome::Interrupted);
    assert!(matches!(world.started_job(), Some(Job::Plan { note: Some(_), .. })));
}

#[rstest]
#[case(State::Committing)]
#[case(State::Learning)]
fn a_task_in_delivery_cannot_be_changed(#[case] state: State) {
    let mut world = World::new().to(state);
    let refused = world.try_ask("ann", Action::ChangeTask { request: note() });
    assert_eq!(refused, Err(Refusal::WrongState { state, action: "change the task".to_owned() }));
}

#[test]
fn a_superseded_job_is_paid_and_its_result_discarded() {
    let mut world = World::new().to(State::InProgress);
    let job_number = world.it.active_job.expect("a run").job_number;
    world.ask(Action::ChangeTask { request: note() });
    let outcome = Outcome::RunFinished(commit(5));
    let done = EventKind::JobFinished { job_number, usage: Some(costing(123)), outcome };
    world.feed(Actor::Tamma, done).expect("it is paid");
    assert_eq!(world.it.spend.usd, Usd::from_cents(123));
    assert_eq!((world.it.state, world.it.commit), (State::Planning, None));
    assert_eq!(world.it.stopping_job, None);
}

// Answers to an alert

#[test]
fn continue_resumes_the_state_with_its_failures_reset() {
    let mut world = alerted();
    world.ask(Action::Continue { grant: Grant::default() });
    assert_eq!(world.it.state, State::Assigned);
    assert!(world.it.failures.is_empty());
    assert_eq!(world.started_job(), Some(&Job::Prepare));
}

#[test]
fn retry_repeats_the_failed_work() {
    let mut world = alerted();
    world.ask(Action::Retry { grant: Grant::default() });
    assert_eq!(world.it.state, State::Assigned);
    assert!(world.has_entry(EntryName::SmTaskRetried));
}

#[test]
fn an_answer_closes_the_question() {
    let mut world = alerted();
    let question_number = world.it.open_question.as_ref().expect("a question").number;
    world.ask(Action::Continue { grant: Grant::default() });
    assert!(world.commands.contains(&Command::CloseQuestion { question_number }));
    assert_eq!(world.it.open_question, None);
}

#[test]
fn abandon_fails_the_task_if_it_needs_a_decision() {
    let mut world = alerted();
    world.ask(Action::Abandon { reason: reason() });
    assert_eq!(world.it.state, State::Failed);
    assert_eq!(world.started_job(), Some(&Job::Learn { ending: State::Failed, use_model: true }));
    let refused = World::new().try_ask("ann", Action::Abandon { reason: reason() });
    let state = State::Pending;
    assert_eq!(refused, Err(Refusal::WrongState { state, action: "abandon".to_owned() }));
}

/// Task whose delivery keeps failing.
fn undeliverable() -> World {
    let mut world = World::new().to(State::Committing);
    for _ in 0..3 {
        world.done(failure(FailureKind::Unavailable));
    }
    world.done(Outcome::WorkSaved);
    world
}

#[rstest]
#[case(State::Planning)]
#[case(State::AwaitingApproval)]
#[case(State::Validated)]
#[case(State::Testing)]
#[case(State::QualityReview)]
fn a_person_can_roll_back_to_an_earlier_state(#[case] to: State) {
    let mut world = undeliverable();
    world.ask(Action::RollBack { to, reason: reason() });
    assert_eq!(world.it.state, to);
    assert!(world.started_job().is_some());
    let keeps_approval = !matches!(to, State::Planning | State::AwaitingApproval);
    assert_eq!(world.it.is_approved(), keeps_approval);
    let last = world.log.last().expect("an entry");
    assert_eq!((last.name, last.trigger), (EntryName::SmRolledBack, Some(Trigger::RolledBack)));
    assert_eq!((&last.actor, last.reason.as_deref()), (&person("ann"), Some("because")));
}

#[rstest]
#[case(State::Completed, "tasks cannot be rolled back to this state")]
#[case(State::InProgress, "tasks cannot be rolled back to this state")]
#[case(State::Planning, "the task has not passed this state")]
fn a_task_cannot_be_rolled_back_to_a_state_it_has_not_passed(
    #[case] to: State,
    #[case] reason_text: &'static str,
) {
    let refused = alerted().try_ask("ann", Action::RollBack { to, reason: reason() });
    assert_eq!(refused, Err(Refusal::CannotRollBack { to, reason: reason_text }));
}

#[test]
fn rolling_back_needs_the_inputs_of_the_state() {
    // Approved, then voided by changed rules before anything ran.
    let mut world = undeliverable();
    world.feed(Actor::Tamma, EventKind::PinChanged(pin(2))).expect("the pin changes");
    let to = State::Validated;
    let refused = world.try_ask("ann", Action::RollBack { to, reason: reason() });
    assert_eq!(refused, Err(Refusal::CannotRollBack { to, reason: "the plan is not approved" }));

    let mut world = World::new().to(State::Approved);
    world.it.commit = None;
    for _ in 0..3 {
        world.done(failure(FailureKind::Unavailable));
    }
    for to in [State::Testing, State::QualityReview] {
        let refused = world.try_ask("ann", Action::RollBack { to, reason: reason() });
        assert_eq!(
            refused,
            Err(Refusal::CannotRollBack { to, reason: "the task has no change to review" })
        );
    }
    world.it.plan = None;
    let to = State::AwaitingApproval;
    let refused = world.try_ask("ann", Action::RollBack { to, reason: reason() });
    assert_eq!(refused, Err(Refusal::CannotRollBack { to, reason: "the task has no plan" }));
}

#[rstest]
#[case(State::Testing, State::QualityReview)]
#[case(State::QualityReview, State::Approved)]
#[case(State::Committing, State::Learning)]
fn a_person_can_skip_a_failed_step_with_a_reason(#[case] failed: State, #[case] next: State) {
    let mut world = World::new().to(failed);
    for _ in 0..3 {
        world.done(failure(FailureKind::Unavailable));
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
fn approval_and_earlier_states_cannot_be_skipped(#[case] failed: State) {
    let mut world = World::new().to(failed);
    for _ in 0..3 {
        world.done(failure(FailureKind::Unavailable));
    }
    let refused = world.try_ask("ann", Action::Skip { reason: reason() });
    assert_eq!(refused, Err(Refusal::AnswerNotAllowed { action: "skip".to_owned() }));
}

#[test]
fn a_change_that_failed_its_review_can_be_accepted_as_it_is() {
    let mut world = World::with(|rules| rules.scrum_master.task_loop.max_iterations = 1);
    world.fail_gates(1).done(Outcome::WorkSaved).ask(Action::Skip { reason: reason() });
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
    // Every run of the council fails, three times.
    for _ in 0..3 * world.rules.council.members.len() {
        world.done(failure(FailureKind::Unavailable));
    }
    assert_eq!(world.it.state, State::HumanEscalation);
    let refused = world.try_ask("ann", Action::Skip { reason: reason() });
    assert_eq!(refused, Err(Refusal::AnswerNotAllowed { action: "skip".to_owned() }));
}

#[test]
fn an_action_that_is_not_an_answer_is_refused() {
    let mut world = alerted();
    let refused = world.try_ask("ann", Action::Accept { commit: commit(1), reason: None });
    assert_eq!(refused, Err(Refusal::AnswerNotAllowed { action: "accept".to_owned() }));
}

#[rstest]
#[case::blocked(AlertCause::Blocked(1), &[AnswerKind::Override, AnswerKind::ChangeTask, AnswerKind::Retry, AnswerKind::Cancel, AnswerKind::Abandon])]
#[case::rejected(AlertCause::Rejected, &[AnswerKind::ChangeTask, AnswerKind::Retry, AnswerKind::Cancel, AnswerKind::Abandon])]
#[case::review(AlertCause::ReviewNeeded, &[AnswerKind::Accept, AnswerKind::RequestChanges, AnswerKind::ChangeTask, AnswerKind::Cancel])]
#[case::engine(AlertCause::AgentFailed, &[AnswerKind::Continue, AnswerKind::ChangeTask, AnswerKind::Retry, AnswerKind::RollBack, AnswerKind::Cancel, AnswerKind::Abandon])]
fn every_alert_lists_its_answers(#[case] cause: AlertCause, #[case] expected: &[AnswerKind]) {
    let mut question = alerted().it.open_question.expect("a question");
    question.cause = cause;
    assert_eq!(allowed_answers(&question), expected);
}

#[test]
fn work_is_saved_before_a_person_decides_if_there_is_any() {
    assert_eq!(alerted().started_job(), None);
    let mut world = World::new().to(State::Testing);
    for _ in 0..3 {
        world.done(failure(FailureKind::Unavailable));
    }
    assert_eq!(world.started_job(), Some(&Job::SaveWork));
    world.done(Outcome::WorkSaved);
    assert!(world.has_entry(EntryName::SmWorkLanded));
    assert_eq!((world.started_job(), world.it.must_save_work), (None, false));
}

#[test]
fn an_answer_waits_until_the_work_is_saved() {
    let mut world = World::new().to(State::Testing);
    for _ in 0..3 {
        world.done(failure(FailureKind::Unavailable));
    }
    world.ask(Action::Continue { grant: Grant::default() });
    assert!(!world.commands.iter().any(|command| matches!(command, Command::StopJob { .. })));
    assert_eq!(world.started_job(), None);
    world.done(Outcome::WorkSaved);
    assert!(matches!(world.started_job(), Some(Job::Test { .. })));
}

#[test]
fn saving_that_keeps_failing_is_given_up_with_an_alert() {
    let mut world = World::new().to(State::Testing);
    for _ in 0..5 {
        world.done(failure(FailureKind::Unavailable));
    }
    assert_eq!(world.started_job(), Some(&Job::SaveWork));
    world.done(failure(FailureKind::OverBudget));
    assert_eq!((world.started_job(), world.it.must_save_work), (None, false));
    let cause = AlertCause::JobFailed(State::HumanEscalation);
    assert_eq!(world.alerts()[0].cause, cause);
    assert_eq!(world.alerts()[0].severity, AlertSeverity::Critical);
    assert_eq!(world.it.state_failures(), 0);
}
