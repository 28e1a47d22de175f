//! Section 7: when a task is stuck beyond three alike in a row.

use proptest::prelude::*;
use rstest::rstest;
use tamma_core::escalation::{Decision, Verdict, Why};
use tamma_core::ids::Digest;
use tamma_core::review::Fingerprint;
use tamma_core::stuck::{Attempt, FLAPPING, Likeness, MEMORY, WINDOW, alike, detect};
use tamma_core::task_loop::State;
use tamma_core::tier::Tier;

use crate::world::World;

/// An attempt that failed like this; 0 is what nobody knows.
fn attempt(tests: u8, error: u8, diff: u8) -> Attempt {
    let digest = |number: u8| (number > 0).then(|| Digest::of(&[number]));
    let fingerprint =
        Fingerprint { files: None, tests: digest(tests), error: digest(error), diff: digest(diff) };
    Attempt { tier: Tier::Simple, passed: false, fingerprint }
}

#[rstest]
#[case::tests([(1, 1, 1), (2, 2, 2), (1, 3, 3), (2, 4, 4)], Some(Likeness::FlappingTests))]
#[case::error([(1, 1, 1), (2, 2, 2), (3, 1, 3), (4, 2, 4)], Some(Likeness::FlappingError))]
#[case::not_in_turns([(1, 1, 1), (2, 2, 2), (2, 3, 3), (1, 4, 4)], None)]
#[case::only_three([(5, 5, 5), (2, 2, 2), (1, 3, 3), (2, 4, 4)], None)]
#[case::nothing_known([(0, 0, 1), (1, 0, 2), (0, 0, 3), (1, 0, 4)], None)]
#[case::comes_back_after_one([(5, 5, 5), (1, 1, 1), (2, 2, 2), (3, 3, 1)], Some(Likeness::CircularDiff))]
#[case::comes_back_after_two([(1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 4, 1)], Some(Likeness::CircularDiff))]
#[case::twice_in_a_row([(1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 4, 3)], None)]
#[case::came_back_and_went([(1, 1, 1), (2, 2, 2), (3, 3, 1), (4, 4, 4)], None)]
#[case::no_change_known([(1, 1, 0), (2, 2, 0), (3, 3, 1), (4, 4, 0)], None)]
fn flapping_and_circular_fixes_are_stuck(
    #[case] attempts: [(u8, u8, u8); 4],
    #[case] expected: Option<Likeness>,
) {
    let attempts = attempts.map(|(tests, error, diff)| attempt(tests, error, diff));
    assert_eq!(detect(&attempts), expected);
    // The first edition knew nothing of it.
    assert_eq!(alike(&attempts), None);
}

#[test]
fn three_alike_say_so_even_where_something_else_holds_too() {
    let (other, same) = (attempt(2, 2, 2), attempt(1, 1, 1));
    assert_eq!(detect(&[same, other, same, same, same]), Some(Likeness::SameTests));
}

#[test]
fn what_failed_before_something_passed_is_forgotten() {
    let failed = [attempt(1, 1, 1), attempt(2, 2, 2), attempt(1, 1, 1)];
    assert_eq!(detect(&failed), Some(Likeness::CircularDiff));
    let passed = Attempt { passed: true, ..attempt(3, 3, 3) };
    assert_eq!(detect(&[failed[0], passed, failed[1], failed[2]]), None);
}

#[test]
fn in_the_machine_a_circular_fix_goes_to_the_council_with_its_reason() {
    let mut world = World::new();
    world.fail_in(1).fail_in(2).fail_in(1);
    assert_eq!(world.it.state, State::CtoIntervention);
    let why = Why::Stuck(Likeness::CircularDiff);
    assert_eq!(world.it.decision, Some(Decision { verdict: Verdict::Council, why }));
    assert_eq!(
        world.it.decision.unwrap().to_string(),
        "ask the council: the last change is one that had failed before"
    );
}

fn any_attempt() -> impl Strategy<Value = Attempt> {
    (0..3_u8, 0..3_u8, 0..4_u8, 0..6_u8).prop_map(|(tests, error, diff, passed)| Attempt {
        passed: passed == 0,
        ..attempt(tests, error, diff)
    })
}

proptest! {
    #[test]
    fn nothing_is_stuck_right_after_something_passed(
        before in prop::collection::vec(any_attempt(), 0..MEMORY),
        after in prop::collection::vec(any_attempt(), 0..WINDOW),
    ) {
        let passed = Attempt { passed: true, ..attempt(1, 1, 1) };
        let all = [before, vec![passed], after.clone()].concat();
        // Whatever came before the last success is as if it had not been.
        prop_assert_eq!(detect(&all), detect(&after));
        prop_assert_eq!(detect(&[&all[..], &[passed]].concat()), None);
        let few = all.iter().rev().take(WINDOW).any(|attempt| attempt.passed);
        if let (true, Some(likeness)) = (few, detect(&all)) {
            prop_assert!(false, "{likeness} with a success among the last {WINDOW}");
        }
    }

    #[test]
    fn the_same_attempts_are_always_judged_alike(
        attempts in prop::collection::vec(any_attempt(), 0..MEMORY),
    ) {
        prop_assert_eq!(detect(&attempts), detect(&attempts.clone()));
        // What counts for the first edition counts in the same way now.
        if let Some(likeness) = alike(&attempts) {
            prop_assert_eq!(detect(&attempts), Some(likeness));
        }
        let shortest = if detect(&attempts).is_some() { WINDOW.min(FLAPPING) } else { 0 };
        prop_assert!(attempts.len() >= shortest);
    }
}
