//! Section 7: flapping and circular failures.

use proptest::prelude::*;
use rstest::rstest;
use tamma_core::escalation::{EscalationAction, EscalationDecision, EscalationReason};
use tamma_core::ids::Digest;
use tamma_core::review::Fingerprint;
use tamma_core::stuck::{
    ATTEMPT_HISTORY, AttemptRecord, AttemptSimilarity, FLAPPING_WINDOW, REPETITION_WINDOW, detect,
    detect_repetition,
};
use tamma_core::task_loop::State;
use tamma_core::tier::Tier;

use crate::world::World;

/// Failed attempt; 0 means unknown.
fn attempt(tests: u8, error: u8, diff: u8) -> AttemptRecord {
    let digest = |number: u8| (number > 0).then(|| Digest::of(&[number]));
    let fingerprint =
        Fingerprint { files: None, tests: digest(tests), error: digest(error), diff: digest(diff) };
    AttemptRecord { tier: Tier::Simple, passed: false, fingerprint, failing: None }
}

#[rstest]
#[case::tests([(1, 1, 1), (2, 2, 2), (1, 3, 3), (2, 4, 4)], Some(AttemptSimilarity::FlappingTests))]
#[case::error([(1, 1, 1), (2, 2, 2), (3, 1, 3), (4, 2, 4)], Some(AttemptSimilarity::FlappingError))]
#[case::not_in_turns([(1, 1, 1), (2, 2, 2), (2, 3, 3), (1, 4, 4)], None)]
#[case::only_three([(5, 5, 5), (2, 2, 2), (1, 3, 3), (2, 4, 4)], None)]
#[case::nothing_known([(0, 0, 1), (1, 0, 2), (0, 0, 3), (1, 0, 4)], None)]
#[case::comes_back_after_one([(5, 5, 5), (1, 1, 1), (2, 2, 2), (3, 3, 1)], Some(AttemptSimilarity::CircularDiff))]
#[case::comes_back_after_two([(1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 4, 1)], Some(AttemptSimilarity::CircularDiff))]
#[case::twice_in_a_row([(1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 4, 3)], None)]
#[case::came_back_and_went([(1, 1, 1), (2, 2, 2), (3, 3, 1), (4, 4, 4)], None)]
#[case::no_change_known([(1, 1, 0), (2, 2, 0), (3, 3, 1), (4, 4, 0)], None)]
fn flapping_and_circular_fixes_are_stuck(
    #[case] attempts: [(u8, u8, u8); 4],
    #[case] expected: Option<AttemptSimilarity>,
) {
    let attempts = attempts.map(|(tests, error, diff)| attempt(tests, error, diff));
    assert_eq!(detect(&attempts), expected);
    // The first edition does not detect these.
    assert_eq!(detect_repetition(&attempts), None);
}

#[test]
fn three_similar_attempts_take_precedence_as_the_reason() {
    let (other, same) = (attempt(2, 2, 2), attempt(1, 1, 1));
    assert_eq!(detect(&[same, other, same, same, same]), Some(AttemptSimilarity::SameTests));
}

#[test]
fn failures_before_a_pass_do_not_count() {
    let failed = [attempt(1, 1, 1), attempt(2, 2, 2), attempt(1, 1, 1)];
    assert_eq!(detect(&failed), Some(AttemptSimilarity::CircularDiff));
    let passed = AttemptRecord { passed: true, ..attempt(3, 3, 3) };
    assert_eq!(detect(&[failed[0], passed, failed[1], failed[2]]), None);
}

#[test]
fn a_circular_fix_calls_the_council_with_its_reason() {
    let mut world = World::new();
    world.fail_gates(1).fail_gates(2).fail_gates(1).fail_gates(2);
    assert_eq!(world.it.state, State::CtoIntervention);
    let reason = EscalationReason::Stuck(AttemptSimilarity::CircularDiff);
    assert_eq!(
        world.it.decision,
        Some(EscalationDecision { action: EscalationAction::Council, reason })
    );
    assert_eq!(
        world.it.decision.unwrap().to_string(),
        "ask the council: the last change repeats one that failed before"
    );
}

fn any_attempt() -> impl Strategy<Value = AttemptRecord> {
    (0..3_u8, 0..3_u8, 0..4_u8, 0..6_u8).prop_map(|(tests, error, diff, passed)| AttemptRecord {
        passed: passed == 0,
        ..attempt(tests, error, diff)
    })
}

proptest! {
    #[test]
    fn nothing_is_stuck_right_after_something_passed(
        before in prop::collection::vec(any_attempt(), 0..ATTEMPT_HISTORY),
        after in prop::collection::vec(any_attempt(), 0..REPETITION_WINDOW),
    ) {
        let passed = AttemptRecord { passed: true, ..attempt(1, 1, 1) };
        let all = [before, vec![passed], after.clone()].concat();
        // Attempts before the last pass have no effect.
        prop_assert_eq!(detect(&all), detect(&after));
        prop_assert_eq!(detect(&[&all[..], &[passed]].concat()), None);
        let few = all.iter().rev().take(REPETITION_WINDOW).any(|attempt| attempt.passed);
        if let (true, Some(likeness)) = (few, detect(&all)) {
            prop_assert!(false, "{likeness} with a success among the last {REPETITION_WINDOW}");
        }
    }

    #[test]
    fn the_same_attempts_always_give_the_same_result(
        attempts in prop::collection::vec(any_attempt(), 0..ATTEMPT_HISTORY),
    ) {
        prop_assert_eq!(detect(&attempts), detect(&attempts.clone()));
        // Everything that the first edition detects is still detected the same way.
        if let Some(likeness) = detect_repetition(&attempts) {
            prop_assert_eq!(detect(&attempts), Some(likeness));
        }
        let shortest = if detect(&attempts).is_some() { REPETITION_WINDOW.min(FLAPPING_WINDOW) } else { 0 };
        prop_assert!(attempts.len() >= shortest);
    }
}
