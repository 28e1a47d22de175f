//! Lost workflows: what is decided, and what a task does about it.

use proptest::prelude::*;
use strum::IntoEnumIterator as _;
use tamma_core::actor::Actor;
use tamma_core::cause::AlertCause;
use tamma_core::history::{EntryData, EntryName};
use tamma_core::reconciliation::{
    MAX_RESTARTS, REPLACED, ReconcileDecision, Recovery, Resolution, StoredPosition,
    WorkflowFinding, WorkflowLoss, decide, requested_restart,
};
use tamma_core::task_loop::{Action, EventKind, JobKind, Outcome, Refusal, State};

use crate::world::{World, note, reason};

fn stored(state: State) -> StoredPosition {
    StoredPosition { state, step: 7, has_job: false, restarts: 0 }
}

fn terminated(why: &str) -> WorkflowFinding {
    WorkflowFinding::Terminated { reason: why.to_owned(), by: "ops@laptop".to_owned() }
}

fn at(step: u64, confirmed: bool) -> WorkflowFinding {
    WorkflowFinding::Running { step: Some(step), confirmed }
}

/// Returns what is decided about an open task.
fn resolution(workflow: &WorkflowFinding) -> Option<(WorkflowLoss, Resolution)> {
    match decide(&stored(State::Planning), workflow) {
        ReconcileDecision::Recover(recovery) => Some((recovery.loss, recovery.resolution)),
        ReconcileDecision::Leave | ReconcileDecision::LookAgain => None,
    }
}

#[test]
fn every_way_to_lose_a_workflow_has_a_resolution() {
    use Resolution as R;
    use WorkflowFinding as W;
    use WorkflowLoss as L;
    let failed = W::Failed { reason: "steps are missing".to_owned() };
    let table = [
        (W::Missing, Some((L::Missing, R::Restart))),
        (failed, Some((L::Failed, R::Restart))),
        (W::TimedOut, Some((L::TimedOut, R::Restart))),
        (terminated("runaway"), Some((L::Terminated, R::AskPerson))),
        (terminated(REPLACED), Some((L::Diverged, R::Restart))),
        (W::Cancelled, Some((L::Cancelled, R::AskPerson))),
        (W::Completed(Some(State::Completed)), Some((L::Returned, R::AskPerson))),
        (W::Completed(Some(State::Cancelled)), Some((L::Returned, R::Close))),
        (W::Completed(Some(State::Failed)), Some((L::Returned, R::Close))),
        (W::Completed(None), Some((L::Returned, R::AskPerson))),
        (at(7, false), None),
        (at(7, true), None),
        (W::Running { step: None, confirmed: true }, None),
        (at(6, true), Some((L::Diverged, R::Restart))),
        (at(8, true), Some((L::Diverged, R::Restart))),
    ];
    for (workflow, expected) in table {
        assert_eq!(resolution(&workflow), expected, "{workflow:?}");
    }
}

#[test]
fn a_single_difference_is_compared_again() {
    for step in [6, 8] {
        assert_eq!(
            decide(&stored(State::Planning), &at(step, false)),
            ReconcileDecision::LookAgain
        );
    }
}

#[test]
fn restarts_without_progress_end_with_a_person_and_then_with_the_task() {
    let after = |restarts| {
        let stored = StoredPosition { restarts, ..stored(State::Testing) };
        match decide(&stored, &WorkflowFinding::TimedOut) {
            ReconcileDecision::Recover(recovery) => recovery.resolution,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(after(MAX_RESTARTS - 1), Resolution::Restart);
    assert_eq!(after(MAX_RESTARTS), Resolution::AskPerson);
    assert_eq!(after(2 * MAX_RESTARTS), Resolution::Close);
}

#[test]
fn a_closed_task_is_left_alone_unless_its_workflow_goes_on() {
    let closed = stored(State::Completed);
    assert_eq!(decide(&closed, &terminated("old")), ReconcileDecision::Leave);
    assert_eq!(decide(&closed, &WorkflowFinding::Missing), ReconcileDecision::Leave);
    let learning = StoredPosition { has_job: true, ..stored(State::Cancelled) };
    for (stored, workflow) in [(closed, at(3, true)), (learning, terminated("old"))] {
        let ReconcileDecision::Recover(recovery) = decide(&stored, &workflow) else {
            panic!("{workflow:?}");
        };
        assert_eq!(recovery.resolution, Resolution::Settle);
    }
}

#[test]
fn the_explanation_names_who_terminated_the_workflow_and_why() {
    let ReconcileDecision::Recover(recovery) = decide(&stored(State::Testing), &terminated("loop"))
    else {
        panic!("recovered");
    };
    assert_eq!(
        recovery.reason,
        "the workflow was terminated by ops@laptop: loop; a person decides how to continue"
    );
    let restart = requested_restart(&stored(State::Testing), "ann");
    assert_eq!(restart.reason, "restarted by ann from step 7 of the database");
}

fn any_finding() -> impl Strategy<Value = WorkflowFinding> {
    let state = proptest::sample::select(State::iter().collect::<Vec<_>>());
    prop_oneof![
        Just(WorkflowFinding::Missing),
        (proptest::option::of(0_u64..20), any::<bool>())
            .prop_map(|(step, confirmed)| WorkflowFinding::Running { step, confirmed }),
        proptest::option::of(state).prop_map(WorkflowFinding::Completed),
        ".{0,2000}".prop_map(|reason| WorkflowFinding::Failed { reason }),
        Just(WorkflowFinding::TimedOut),
        (".{0,2000}", ".{0,300}")
            .prop_map(|(reason, by)| WorkflowFinding::Terminated { reason, by }),
        Just(WorkflowFinding::Cancelled),
    ]
}

proptest! {
    #[test]
    fn an_open_task_without_a_running_workflow_is_always_recovered(
        state in proptest::sample::select(State::iter().collect::<Vec<_>>()),
        step in 0_u64..20,
        has_job in any::<bool>(),
        restarts in any::<u8>(),
        workflow in any_finding(),
    ) {
        let stored = StoredPosition { state, step, has_job, restarts };
        let decision = decide(&stored, &workflow);
        let is_running = matches!(workflow, WorkflowFinding::Running { .. });
        match &decision {
            ReconcileDecision::Leave | ReconcileDecision::LookAgain => {
                prop_assert!(state.is_terminal() || is_running);
            }
            ReconcileDecision::Recover(Recovery { resolution, reason, .. }) => {
                prop_assert!(!reason.is_empty() && reason.chars().count() <= 1000);
                prop_assert_eq!(*resolution == Resolution::Settle, state.is_terminal());
            }
        }
        // Both sides at the same step are never touched.
        if let WorkflowFinding::Running { step: Some(other), .. } = workflow {
            prop_assert_eq!(decision == ReconcileDecision::Leave, other == step);
        }
    }
}

fn lost(resolution: Resolution) -> EventKind {
    let loss = WorkflowLoss::Terminated;
    EventKind::Reconciled(Recovery { loss, resolution, reason: "lost".to_owned() })
}

#[test]
fn a_restarted_task_starts_the_job_of_its_state_again_with_one_explanation() {
    let jobs = [
        (State::Pending, JobKind::Admit),
        (State::Assigned, JobKind::Prepare),
        (State::Planning, JobKind::Plan),
        (State::Validated, JobKind::Implement),
        (State::InProgress, JobKind::Implement),
        (State::Testing, JobKind::Test),
        (State::QualityReview, JobKind::Review),
        (State::Approved, JobKind::AwaitDelivery),
        (State::Committing, JobKind::Deliver),
        (State::Learning, JobKind::Learn),
    ];
    for (state, kind) in jobs {
        let mut world = World::new().to(state);
        let (old, entries) = (world.it.last_job_number, world.log.len());
        world.feed(Actor::Tamma, lost(Resolution::Restart)).expect("restarted");
        let job = world.it.active_job.expect("a job");
        assert_eq!((job.kind, job.job_number), (kind, old + 1), "{state}");
        let expected = if state == State::InProgress { State::Validated } else { state };
        assert_eq!((world.it.state, world.it.restarts), (expected, 1));
        let new = &world.log[entries..];
        let explained: Vec<_> =
            new.iter().filter(|entry| entry.name == EntryName::SmTaskReconciled).collect();
        let [entry] = explained.as_slice() else { panic!("{new:?}") };
        assert_eq!(entry.reason.as_deref(), Some("lost"));
        let cause = AlertCause::WorkflowLost(WorkflowLoss::Terminated);
        assert_eq!(entry.data, EntryData::Cause(cause));
    }
}

#[test]
fn a_finished_job_forgets_earlier_restarts() {
    let mut world = World::new().to(State::Planning);
    world.feed(Actor::Tamma, lost(Resolution::Restart)).expect("restarted");
    world.walk(State::AwaitingApproval);
    assert_eq!(world.it.restarts, 0);
}

#[test]
fn a_person_decides_before_an_agent_of_a_terminated_workflow_runs_again() {
    for state in [State::Planning, State::InProgress, State::Testing, State::AwaitingApproval] {
        let mut world = World::new().to(state);
        world.feed(Actor::Tamma, lost(Resolution::AskPerson)).expect("asked");
        assert_eq!(world.it.state, State::HumanEscalation);
        let question = world.it.open_question.clone().expect("a question");
        assert_eq!(question.cause, AlertCause::WorkflowLost(WorkflowLoss::Terminated));
        let job = world.it.active_job.map(|job| job.kind);
        assert!(job.is_none() || job == Some(JobKind::SaveWork), "{job:?}");
        if job.is_some() {
            world.done(Outcome::WorkSaved);
        }
        world.ask(Action::Continue { grant: tamma_core::budget::Grant::default() });
        assert_ne!(world.it.state, State::HumanEscalation);
        assert!(world.it.active_job.is_some());
    }
}

#[test]
fn a_restart_keeps_a_pause_and_an_open_question() {
    let mut world = World::new().to(State::Planning);
    world.ask(Action::Pause);
    world.feed(Actor::Tamma, lost(Resolution::Restart)).expect("restarted");
    assert!(world.it.paused.is_some() && world.it.active_job.is_none());
    let mut world = World::with(|rules| {
        rules.scrum_master.task_loop.auto_approve_low_risk = false;
    })
    .to(State::AwaitingApproval);
    world.done(Outcome::Checked { blockers: 0, warnings: 0 });
    let question = world.it.open_question.clone().expect("a question");
    world.feed(Actor::Tamma, lost(Resolution::Restart)).expect("restarted");
    assert_eq!(world.it.open_question, Some(question));
}

#[test]
fn a_run_that_waited_for_an_answer_is_gone_with_its_question() {
    let mut world = World::new().to(State::InProgress);
    let job_number = world.it.active_job.expect("a run").job_number;
    let opened = EventKind::QuestionOpened { job_number, question: note(), default_answer: None };
    world.feed(Actor::Tamma, opened).expect("opened");
    world.feed(Actor::Tamma, lost(Resolution::Restart)).expect("restarted");
    assert_eq!((world.it.state, world.it.open_question), (State::Validated, None));
}

#[test]
fn numbers_of_lost_jobs_are_not_used_again() {
    let mut world = World::new().to(State::Planning);
    let old = world.it.last_job_number;
    let recovery = Recovery {
        loss: WorkflowLoss::Diverged,
        resolution: Resolution::Restart,
        reason: "the database is older".to_owned(),
    };
    world.feed(Actor::Tamma, EventKind::Reconciled(recovery)).expect("restarted");
    assert!(world.it.last_job_number > old + 100);
}

#[test]
fn a_closed_task_can_be_rated_after_its_workflow_was_lost() {
    let mut world = World::new().to(State::Planning);
    world.ask(Action::Cancel { reason: reason() });
    let rate = || Action::Rate { stars: 3, reason: None };
    assert_eq!(world.try_ask("ann", rate()), Err(Refusal::StillLearning));
    world.feed(Actor::Tamma, lost(Resolution::Settle)).expect("settled");
    assert_eq!(world.it.state, State::Cancelled);
    world.ask(rate());
}

#[test]
fn a_task_that_cannot_be_restarted_is_closed_with_an_explanation() {
    let mut world = World::new().to(State::Testing);
    world.feed(Actor::Tamma, lost(Resolution::Close)).expect("closed");
    assert_eq!(world.it.state, State::Cancelled);
    let entry = world.log.last().expect("an entry");
    assert_eq!((entry.name, entry.reason.as_deref()), (EntryName::SmTaskCancelled, Some("lost")));
}

#[test]
fn states_that_differ_only_in_times_are_the_same() {
    let mut one = World::new().to(State::AwaitingApproval);
    let mut two = World::new().to(State::AwaitingApproval);
    two.now += chrono::TimeDelta::seconds(3);
    for world in [&mut one, &mut two] {
        world.done(Outcome::Checked { blockers: 0, warnings: 1 });
    }
    assert_ne!(one.it, two.it);
    assert!(one.it.is_same_except_times(&two.it));
    two.it.iterations += 1;
    assert!(!one.it.is_same_except_times(&two.it));
}
