//! Section 12: every event of the founding documents is recorded when it happens.

use rstest::rstest;
use tamma_core::failure::FailureKind;
use tamma_core::history::EntryName;
use tamma_core::review::Fingerprint;
use tamma_core::task_loop::{Action, Outcome, State};

use crate::world::{World, failure, reason, summary};

fn completed() -> World {
    World::new().to(State::Completed)
}

fn checked(blockers: u16, auto_approve: bool) -> World {
    let mut world = World::with(|rules| {
        rules.scrum_master.task_loop.auto_approve_low_risk = auto_approve;
    })
    .to(State::AwaitingApproval);
    world.done(Outcome::Checked { blockers, warnings: 0 });
    world
}

fn asked_for_approval() -> World {
    checked(0, false)
}

fn rejected() -> World {
    let mut world = asked_for_approval();
    let scope = world.binding();
    world.ask(Action::Reject { scope, reason: reason() });
    world
}

fn blocked() -> World {
    checked(1, true)
}

fn acknowledged() -> World {
    let mut world = blocked();
    world.ask(Action::Acknowledge);
    world
}

fn crashed_in(state: State) -> World {
    let mut world = World::new().to(state);
    world.done(failure(FailureKind::Crashed));
    world
}

fn failed_review() -> World {
    let mut world = World::new().to(State::QualityReview);
    let fingerprint = Fingerprint::default();
    world.done(Outcome::Reviewed { summary: summary(false), fingerprint });
    world
}

fn adjusted() -> World {
    let mut world = World::new();
    world.fail_gates(1).fail_gates(2).walk(State::Validated);
    world
}

fn cancelled() -> World {
    let mut world = World::new().to(State::Planning);
    world.ask(Action::Cancel { reason: reason() });
    world
}

#[rstest]
#[case::task_received("SM_TASK_RECEIVED", completed())]
#[case::plan_started("SM_PLAN_STARTED", completed())]
#[case::plan_generated("SM_PLAN_GENERATED", completed())]
#[case::knowledge_checked("SM_KNOWLEDGE_CHECKED", completed())]
#[case::approval_requested("SM_APPROVAL_REQUESTED", asked_for_approval())]
#[case::approval_auto("SM_APPROVAL_AUTO", completed())]
#[case::approval_granted("SM_APPROVAL_GRANTED", completed())]
#[case::approval_denied("SM_APPROVAL_DENIED", rejected())]
#[case::implementation_started("SM_IMPLEMENTATION_STARTED", completed())]
#[case::implementation_completed("SM_IMPLEMENTATION_COMPLETED", completed())]
#[case::implementation_failed("SM_IMPLEMENTATION_FAILED", crashed_in(State::InProgress))]
#[case::review_started("SM_REVIEW_STARTED", completed())]
#[case::review_passed("SM_REVIEW_PASSED", completed())]
#[case::review_failed("SM_REVIEW_FAILED", failed_review())]
#[case::plan_adjusted("SM_PLAN_ADJUSTED", adjusted())]
#[case::learning_captured("SM_LEARNING_CAPTURED", completed())]
#[case::alert_sent("SM_ALERT_SENT", blocked())]
#[case::alert_acknowledged("SM_ALERT_ACKNOWLEDGED", acknowledged())]
#[case::task_completed("SM_TASK_COMPLETED", completed())]
#[case::task_cancelled("SM_TASK_CANCELLED", cancelled())]
#[case::state_transition("SM_STATE_TRANSITION", completed())]
#[case::error_occurred("SM_ERROR_OCCURRED", crashed_in(State::Learning))]
fn an_event_of_the_founding_documents_is_recorded(#[case] name: &str, #[case] world: World) {
    let name: EntryName = name.parse().unwrap();
    let entry = world.log.iter().find(|entry| entry.name == name);
    assert!(entry.is_some(), "{:?}", world.log);
}
