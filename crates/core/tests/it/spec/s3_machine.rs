//! Section 3: state machine.

use rstest::rstest;
use strum::IntoEnumIterator;
use tamma_core::actor::Actor;
use tamma_core::budget::Grant;
use tamma_core::cause::{AlertCause, TimeoutStage};
use tamma_core::cost::Usd;
use tamma_core::failure::FailureKind;
use tamma_core::history::{EntryData, EntryName};
use tamma_core::rules::Rules;
use tamma_core::task_loop::{
    Action, AlertKind, AlertSeverity, Command, EventKind, Job, NextStep, Outcome, Phase, Refusal,
    State, StopReason, Trigger, table,
};
use tamma_core::version::Edition;

use crate::world::{
    World, commit, costing, failure, green, minute, note, passed, person, pin, plan, reason, red,
    text,
};

#[test]
fn a_task_without_failures_takes_the_main_path() {
    let world = World::new().to(State::Completed);
    assert_eq!(world.states(), State::MAIN_PATH);
}

#[rstest]
#[case(State::Pending, Job::Admit)]
#[case(State::Assigned, Job::Prepare)]
#[case(State::Planning, Job::Plan { version: 1, from: None, note: None })]
#[case(State::AwaitingApproval, Job::Check { plan: plan(1) })]
#[case(State::Testing, Job::Test { commit: commit(9), risk: tamma_core::level::RiskLevel::Low })]
#[case(State::QualityReview, Job::Review { commit: commit(9), unconfirmed: None })]
#[case(State::Approved, Job::AwaitDelivery)]
#[case(State::Committing, Job::Deliver { commit: commit(9) })]
#[case(State::Learning, Job::Learn { ending: State::Completed, use_model: true })]
fn every_state_of_the_main_path_starts_its_own_job(#[case] state: State, #[case] job: Job) {
    let world = World::new().to(state);
    assert_eq!(world.started_job(), Some(&job));
    assert_eq!(world.it.active_job.expect("a job").kind, job.kind());
}

#[rstest]
#[case(State::Pending, Phase::Receive, Some(60))]
#[case(State::Assigned, Phase::Receive, Some(15))]
#[case(State::Planning, Phase::Plan, Some(30))]
#[case(State::AwaitingApproval, Phase::Approve, Some(60))]
#[case(State::Validated, Phase::Implement, Some(15))]
#[case(State::InProgress, Phase::Implement, Some(240))]
#[case(State::Testing, Phase::Review, Some(30))]
#[case(State::QualityReview, Phase::Review, Some(30))]
#[case(State::Adjusting, Phase::Adjust, Some(15))]
#[case(State::CtoIntervention, Phase::Council, Some(60))]
#[case(State::Approved, Phase::Deliver, Some(10))]
#[case(State::Committing, Phase::Deliver, Some(15))]
#[case(State::AwaitingMerge, Phase::Deliver, Some(4_320))]
#[case(State::Learning, Phase::Learn, Some(15))]
#[case(State::HumanEscalation, Phase::Alert, None)]
#[case(State::Completed, Phase::Done, None)]
#[case(State::Cancelled, Phase::Done, None)]
#[case(State::Failed, Phase::Done, None)]
fn every_state_has_its_phase_and_soft_timeout(
    #[case] state: State,
    #[case] phase: Phase,
    #[case] minutes: Option<u32>,
) {
    let limits = Rules::default().scrum_master.task_loop.state_timeouts;
    assert_eq!(state.phase(), phase);
    assert_eq!(state.soft_timeout(&limits), minutes);
}

#[test]
fn the_board_shows_phases_by_their_names() {
    let names: Vec<_> = Phase::iter().map(|phase| phase.to_string()).collect();
    let expected = [
        "Receive",
        "Plan",
        "Approve",
        "Implement",
        "Review",
        "Adjust",
        "Council",
        "Deliver",
        "Learn",
        "Alert",
        "Done",
    ];
    assert_eq!(names, expected);
}

#[rstest]
fn nothing_leaves_a_terminal_state(
    #[values(State::Completed, State::Cancelled, State::Failed)] end: State,
) {
    assert!(end.is_terminal());
    assert!(table::transitions().all(|(from, ..)| from != end));
    let mut world = ended_in(end);
    let refused = world.try_ask("ann", Action::Resume);
    assert_eq!(refused, Err(Refusal::Ended(end)));
    assert_eq!(world.it.next_step(&world.rules), None);
    assert_eq!(world.it.wake_at(&world.rules), None);
}

fn ended_in(end: State) -> World {
    match end {
        State::Completed => World::new().to(State::Completed),
        State::Cancelled => {
            let mut world = World::new();
            world.ask(Action::Cancel { reason: reason() });
            world
        }
        _ => {
            let mut world = alerted();
            world.ask(Action::Abandon { reason: reason() });
            world
        }
    }
}

/// Task whose preparation keeps failing.
pub(crate) fn alerted() -> World {
    let mut world = World::new().to(State::Assigned);
    for _ in 0..3 {
        world.done(failure(FailureKind::Unavailable));
    }
    assert_eq!(world.it.state, State::HumanEscalation);
    world
}

#[test]
fn no_transition_skips_a_state_of_the_main_path() {
    let position = |state| State::MAIN_PATH.iter().position(|main| *main == state);
    for (from, on, to) in table::transitions() {
        if let (Some(from), Some(to)) = (position(from), position(to)) {
            assert!(to <= from + 1, "{on} skips");
        }
    }
}

#[test]
fn every_open_state_can_be_cancelled() {
    for state in State::iter().filter(|state| !state.is_terminal()) {
        assert!(table::allows(state, Trigger::Cancelled, State::Cancelled));
    }
}

#[test]
fn a_cancelled_task_stops_its_job_records_the_reason_and_still_learns() {
    let mut world = World::new().to(State::InProgress);
    let job_number = world.it.active_job.expect("a run").job_number;
    world.ask(Action::Cancel { reason: reason() });
    assert_eq!(world.it.state, State::Cancelled);
    let learn = Job::Learn { ending: State::Cancelled, use_model: true };
    assert_eq!(
        world.commands,
        [
            Command::StopJob { job_number, reason: StopReason::Ended },
            Command::StartJob { job_number: job_number + 1, not_before: None, job: learn },
        ]
    );
    let last = world.log.last().expect("an entry");
    assert_eq!(last.name, EntryName::SmTaskCancelled);
    assert_eq!(last.reason.as_deref(), Some("because"));
    assert_eq!(last.data, EntryData::Spend(world.it.spend));
}

#[test]
fn lessons_of_a_closed_task_are_recorded_and_paid_without_a_transition() {
    let mut world = World::new().to(State::InProgress);
    world.ask(Action::Cancel { reason: reason() });
    let before = world.it.clone();
    world.done_with_usage(Some(costing(5)), Outcome::Learned(2));
    let last = world.log.last().expect("an entry");
    assert_eq!((last.name, &last.data), (EntryName::SmLearningCaptured, &EntryData::Lessons(2)));
    assert_eq!((world.it.state, world.it.since), (before.state, before.since));
    assert_eq!(world.it.spend.usd, before.spend.usd + Usd::from_cents(5));
    assert!(world.commands.is_empty());
    assert_eq!(world.try_ask("ann", Action::Resume), Err(Refusal::Ended(State::Cancelled)));
}

#[test]
fn a_learning_failure_after_the_end_is_recorded_and_does_not_fail_the_task() {
    let mut world = World::new();
    world.ask(Action::Cancel { reason: reason() }).done(failure(FailureKind::Crashed));
    assert_eq!(world.it.state, State::Cancelled);
    assert!(world.has_entry(EntryName::SmErrorOccurred));
    assert!(world.it.active_job.is_none());
}

#[test]
fn a_task_without_budget_for_a_model_still_records_its_failures() {
    let mut world = World::with(|rules| rules.budget.task_usd = Some(Usd::from_cents(100)));
    world.walk(State::Planning);
    world.done_with_usage(Some(costing(99)), Outcome::Planned(plan(1)));
    world.ask(Action::Cancel { reason: reason() });
    assert_eq!(
        world.started_job(),
        Some(&Job::Learn { ending: State::Cancelled, use_model: false })
    );
}

#[test]
fn a_task_of_an_older_edition_uses_no_model_for_lessons_and_accepts_nothing_after_its_end() {
    let mut world = World::new();
    world.it.edition = Edition::Review2026;
    world.ask(Action::Cancel { reason: reason() });
    let job_number = world.it.last_job_number;
    assert_eq!(
        world.started_job(),
        Some(&Job::Learn { ending: State::Cancelled, use_model: false })
    );
    assert_eq!(world.it.active_job, None);
    let kind = EventKind::JobFinished { job_number, usage: None, outcome: Outcome::Learned(1) };
    assert_eq!(world.feed(Actor::Tamma, kind), Err(Refusal::Ended(State::Cancelled)));
}

#[test]
fn a_cancelled_task_does_not_learn_if_failures_are_not_captured() {
    let mut world =
        World::with(|rules| rules.scrum_master.learning_capture.capture_failure = false);
    world.done(Outcome::Admitted).ask(Action::Cancel { reason: reason() });
    assert_eq!(world.started_job(), None);
}

#[test]
fn an_event_that_does_not_fit_is_refused_with_a_reason_and_changes_nothing() {
    let mut world = World::new().to(State::Testing);
    let before = world.it.clone();
    let refused = world.try_done(Outcome::Briefed(note())).expect_err("it does not fit");
    assert_eq!(refused.to_string(), "`briefed` is not an outcome of a `test` job");
    assert_eq!(world.it, before);
}

#[test]
fn a_result_with_another_job_number_is_stale() {
    let mut world = World::new();
    let done = EventKind::JobFinished { job_number: 7, usage: None, outcome: Outcome::Admitted };
    let refused = world.feed(Actor::Tamma, done).expect_err("it is stale");
    assert_eq!(refused.to_string(), "result refused: job 7 is not running (job 1 is)");
}

#[test]
fn only_people_can_request_actions() {
    for by in [Actor::Tamma, Actor::Council] {
        let refused = World::new().feed(by, EventKind::ActionRequested(Action::Pause));
        assert_eq!(refused, Err(Refusal::PersonRequired("pause".to_owned())));
    }
}

#[test]
fn time_in_a_task_never_goes_back() {
    let mut world = World::new();
    world.now = minute(10);
    world.done(Outcome::Admitted);
    world.now = minute(3);
    world.done(Outcome::Prepared(pin(1)));
    assert_eq!(world.it.since, minute(10));
    assert_eq!(world.log.last().expect("an entry").at, minute(10));
}

/// Task whose plan is waiting for approval.
pub(crate) fn asking() -> World {
    let mut world = World::with(|rules| rules.scrum_master.task_loop.auto_approve_low_risk = false);
    world.walk(State::AwaitingApproval).done(Outcome::Checked { blockers: 0, warnings: 0 });
    world
}

// Soft timeouts

#[test]
fn a_soft_timeout_warns_at_80_alerts_at_100_and_escalates_at_150_percent() {
    let mut world = World::new().to(State::Testing);
    for (minutes, stage, severity, name) in [
        (24, TimeoutStage::Warned, AlertSeverity::Info, EntryName::SmTimeoutWarning),
        (30, TimeoutStage::Alerted, AlertSeverity::Warning, EntryName::SmTimeoutAlert),
        (45, TimeoutStage::Escalated, AlertSeverity::Critical, EntryName::SmTimeoutEscalated),
    ] {
        assert_eq!(world.it.wake_at(&world.rules), Some(minute(minutes)));
        world.now = minute(minutes - 1);
        let early = world.feed(Actor::Tamma, EventKind::Tick);
        assert_eq!(early, Err(Refusal::NothingDue(Some(minute(minutes)))));
        world.tick_at(minutes);
        let cause = AlertCause::SoftTimeout { state: State::Testing, stage };
        let alerts = world.alerts();
        assert_eq!(alerts.len(), 1);
        assert_eq!((alerts[0].kind, alerts[0].severity), (AlertKind::Timeout, severity));
        assert_eq!((alerts[0].cause, alerts[0].question), (cause, None));
        assert_eq!(world.log.last().expect("an entry").name, name);
    }
    assert_eq!(world.it.wake_at(&world.rules), None);
}

#[test]
fn a_soft_timeout_never_stops_work() {
    let mut world = World::new().to(State::Testing);
    let job = world.it.active_job;
    world.tick_at(500);
    assert_eq!((world.it.state, world.it.active_job), (State::Testing, job));
}

#[test]
fn missed_thresholds_send_one_alert() {
    let mut world = World::new().to(State::Testing);
    world.tick_at(500);
    assert_eq!(world.it.clock.stage, TimeoutStage::Escalated);
    assert_eq!(world.alerts().len(), 1);
}

#[test]
fn the_soft_timeout_restarts_in_every_state() {
    let mut world = World::new().to(State::Testing);
    world.tick_at(24).done(green());
    assert_eq!(world.it.clock.stage, TimeoutStage::Quiet);
    assert_eq!(world.it.wake_at(&world.rules), Some(minute(24 + 24)));
}

#[test]
fn a_retry_in_the_same_state_does_not_restart_the_soft_timeout() {
    let mut world = World::new().to(State::Planning);
    world.now = minute(5);
    world.done(Outcome::PlanInvalid(note()));
    assert_eq!((world.it.since, world.it.clock.started_at), (minute(0), minute(0)));
}

#[test]
fn soft_timeouts_are_configurable() {
    let mut world = World::with(|rules| {
        rules.scrum_master.task_loop.state_timeouts.pending = 10;
    });
    assert_eq!(world.it.wake_at(&world.rules), Some(minute(8)));
    world.tick_at(8);
}

#[test]
fn a_task_waiting_for_a_person_has_reminders_instead_of_a_soft_timeout() {
    let mut world = alerted();
    assert_eq!(world.it.wake_at(&world.rules), Some(minute(60)));
    world.tick_at(61);
    let number = world.it.open_question.as_ref().expect("a question").number;
    assert_eq!(world.alerts()[0].question, Some(number));
    assert_eq!(world.it.wake_at(&world.rules), Some(minute(120)));
}

#[test]
fn an_open_question_is_the_only_message_about_a_slow_state() {
    let mut world = asking();
    world.tick_at(48);
    assert_eq!(world.alerts(), Vec::<&tamma_core::task_loop::Alert>::new());
    assert!(world.has_entry(EntryName::SmTimeoutWarning));
    world.tick_at(60);
    assert_eq!(world.alerts().len(), 1);
    assert_eq!(world.alerts()[0].kind, AlertKind::ApprovalNeeded);
    assert_eq!(world.alerts()[0].severity, AlertSeverity::Warning);
}

#[test]
fn missed_reminders_are_not_sent_later() {
    let mut world = alerted();
    world.tick_at(60 * 10 + 5);
    assert_eq!(world.alerts().len(), 1);
    assert_eq!(world.it.open_question.as_ref().expect("a question").reminders, 10);
    assert_eq!(world.it.wake_at(&world.rules), Some(minute(660)));
}

#[test]
fn acknowledging_stops_the_reminders() {
    let mut world = alerted();
    world.ask(Action::Acknowledge);
    assert_eq!(world.it.wake_at(&world.rules), None);
    assert!(world.has_entry(EntryName::SmAlertAcknowledged));
    assert_eq!(World::new().try_ask("ann", Action::Acknowledge), Err(Refusal::NoOpenQuestion));
}

// Next step

#[test]
fn every_open_state_of_the_main_path_has_a_next_step() {
    for state in &State::MAIN_PATH[..11] {
        let world = World::new().to(*state);
        let next = world.it.next_step(&world.rules).expect("something moves it");
        let is_timed = match next {
            NextStep::AgentSlot { expected_by } => {
                expected_by.is_some() && *state == State::Validated
            }
            NextStep::JobRunning { expected_by, .. } => {
                expected_by.is_some() && *state != State::Validated
            }
            _ => false,
        };
        assert!(is_timed, "{state}: {next:?}");
    }
}

#[rstest]
#[case::work(World::new(), "`admit` running, due by 2024-10-04 00:48 UTC")]
#[case::late(late(), "`admit` running, overdue")]
#[case::slot(
    World::new().to(State::Validated),
    "waiting for an agent slot, due by 2024-10-04 00:12 UTC"
)]
#[case::late_slot(late_slot(), "waiting for an agent slot, overdue")]
#[case::paused(paused(), "paused by ann; waiting to be resumed")]
#[case::approval(
    asking(),
    "low-risk plan needs approval: waiting for a person to approve, reject, revise the \
     plan, change the task, convene the council or cancel; next reminder at 2024-10-04 01:00 UTC"
)]
#[case::acknowledged(
    acknowledged(),
    "`assigned` keeps failing: waiting for a person to continue, change the task, \
     retry, roll back, cancel or abandon; seen, no more reminders"
)]
#[case::again(backed_off(), "retrying `admit` at 2024-10-04 00:00 UTC")]
#[case::quota(without_quota(), "waiting for acme's quota to reset at 2024-10-04 03:20 UTC")]
#[case::stopping(stopping(), "waiting for `plan` to stop")]
fn the_next_step_is_described(#[case] world: World, #[case] expected: &str) {
    let next = world.it.next_step(&world.rules).expect("something moves it");
    assert_eq!(next.to_string(), expected);
}

fn late() -> World {
    let mut world = World::new();
    world.tick_at(1_000);
    world
}

fn late_slot() -> World {
    let mut world = World::new().to(State::Validated);
    world.tick_at(1_000);
    world
}

fn paused() -> World {
    let mut world = World::new();
    world.ask(Action::Pause);
    world
}

fn acknowledged() -> World {
    let mut world = alerted();
    world.ask(Action::Acknowledge);
    world
}

fn backed_off() -> World {
    let mut world = World::new();
    world.done(failure(FailureKind::Crashed));
    world
}

fn without_quota() -> World {
    let mut world = World::new().to(State::InProgress);
    world.done(failure(FailureKind::Quota { provider: text("acme"), until: minute(200) }));
    world
}

fn stopping() -> World {
    let mut world = World::new().to(State::Planning);
    world.ask(Action::ChangeTask { request: note() });
    world
}

// Failure counters

#[test]
fn failures_are_counted_per_state_and_reset_on_success() {
    let mut world = World::new();
    world.done(failure(FailureKind::Crashed)).done(failure(FailureKind::Unavailable));
    assert_eq!(world.it.state_failures(), 2);
    world.done(Outcome::Admitted).done(failure(FailureKind::Crashed));
    assert_eq!(world.it.state_failures(), 1);
    assert_eq!(world.it.failures.get(&State::Pending), None);
}

#[rstest]
#[case(State::Pending)]
#[case(State::Assigned)]
#[case(State::Planning)]
#[case(State::AwaitingApproval)]
#[case(State::Testing)]
#[case(State::QualityReview)]
#[case(State::Approved)]
#[case(State::Committing)]
fn three_failures_of_a_states_job_ask_a_person(#[case] state: State) {
    let mut world = World::new().to(state);
    for _ in 0..2 {
        world.done(failure(FailureKind::Unavailable));
        assert_eq!(world.it.state, state);
    }
    world.done(failure(FailureKind::Unavailable));
    assert_eq!(world.it.state, State::HumanEscalation);
    let question = world.it.open_question.as_ref().expect("a question");
    assert_eq!(question.cause, AlertCause::JobFailed(state));
    assert_eq!((question.from_state, question.resume_state), (state, state));
}

#[test]
fn failed_work_is_retried_with_growing_delays() {
    let mut world = World::with(|rules| {
        rules.scrum_master.task_loop.max_failures_per_state = 10;
    });
    for seconds in [30, 60, 120, 240] {
        world.done(failure(FailureKind::Crashed));
        let again = world.it.active_job.expect("a job").not_before.expect("later");
        assert_eq!((again - world.now).num_seconds(), seconds);
    }
}

#[test]
fn a_person_can_skip_the_wait() {
    let mut world = backed_off();
    let job_number = world.it.active_job.expect("a job").job_number;
    world.ask(Action::Retry { grant: Grant::default() });
    assert_eq!(world.commands, [Command::StopJob { job_number, reason: StopReason::Superseded }]);
    world.done(Outcome::Interrupted);
    assert_eq!(world.it.active_job.expect("a job").not_before, None);
    assert_eq!(world.started_job(), Some(&Job::Admit));
    let refused = world.try_ask("ann", Action::Retry { grant: Grant::default() });
    assert_eq!(refused, Err(Refusal::NothingToRetry));
}

#[test]
fn a_wait_that_is_over_cannot_be_skipped() {
    let mut world = backed_off();
    world.now = minute(1);
    let refused = world.try_ask("ann", Action::Retry { grant: Grant::default() });
    assert_eq!(refused, Err(Refusal::NothingToRetry));
}

#[test]
fn a_job_that_stops_unexpectedly_has_failed() {
    let mut world = World::new();
    world.done(Outcome::Interrupted);
    assert_eq!(world.it.state_failures(), 1);
    let last = world.log.last().expect("an entry");
    assert_eq!(last.reason.as_deref(), Some("stopped unexpectedly"));
}

// Edges of the table

#[test]
fn states_are_ordered() {
    assert!(State::Planning.is_before(State::Testing));
    assert!(State::QualityReview.is_before(State::Adjusting));
    assert!(!State::Testing.is_before(State::Testing));
    assert!(!State::Testing.is_before(State::Planning));
}

#[test]
fn a_failed_review_and_a_failed_gate_go_to_adjusting() {
    let mut world = World::new().to(State::Testing);
    world.done(red(1));
    assert_eq!(world.it.state, State::Adjusting);
    let mut world = World::new().to(State::QualityReview);
    let Outcome::Reviewed { mut summary, fingerprint } = passed() else { panic!("a review") };
    summary.passed = false;
    world.done(Outcome::Reviewed { summary, fingerprint });
    assert_eq!(world.it.state, State::Adjusting);
}

#[test]
fn the_history_is_numbered_without_gaps_and_names_every_actor() {
    let world = World::new().to(State::Completed);
    let numbers: Vec<_> = world.log.iter().map(|entry| entry.sequence).collect();
    assert_eq!(numbers, (1..=world.it.entry_count).collect::<Vec<_>>());
    assert_eq!(world.log[0].name, EntryName::SmTaskReceived);
    assert_eq!(world.log[0].actor, person("ann"));
    assert!(world.log[1..].iter().all(|entry| entry.actor == Actor::Tamma));
}

#[test]
fn every_state_has_words_of_its_own_for_people() {
    let labels: std::collections::BTreeSet<_> = State::iter().map(State::label).collect();
    assert_eq!(labels.len(), State::iter().count(), "{labels:?}");
    assert_eq!(State::Validated.label(), "waiting for an agent");
}
