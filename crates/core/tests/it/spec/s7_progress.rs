//! Section 7: a task is stuck only if failing tests stop decreasing.

use proptest::prelude::*;
use rstest::rstest;
use tamma_core::escalation::EscalationReason;
use tamma_core::history::EntryData;
use tamma_core::ids::Digest;
use tamma_core::review::{FailureCount, Fingerprint};
use tamma_core::stuck::{
    ATTEMPT_HISTORY, AttemptRecord, AttemptSimilarity, detect_without_progress,
};
use tamma_core::task_loop::{Outcome, State};
use tamma_core::tier::Tier;
use tamma_core::version::Edition;

use crate::world::{World, failing};

/// Failed attempt with these parts of its fingerprint; 0 means unknown.
fn attempt((tests, error, diff): (u8, u8, u8), count: Option<(u32, u32)>) -> AttemptRecord {
    let digest = |number: u8| (number > 0).then(|| Digest::of(&[number]));
    AttemptRecord {
        tier: Tier::Simple,
        passed: false,
        // The same files in all attempts, as the plan says.
        fingerprint: Fingerprint {
            files: digest(1),
            tests: digest(tests),
            error: digest(error),
            diff: digest(diff),
        },
        failing: count.map(|(tests, errors)| FailureCount { tests, errors }),
    }
}

fn tests(number: u8, count: u32) -> AttemptRecord {
    attempt((number, number, number), Some((count, 0)))
}

#[rstest]
#[case::same_files_are_no_repetition(&[tests(1, 9), tests(2, 9), tests(3, 9)], None)]
#[case::same_tests(&[tests(1, 2), tests(1, 2), tests(1, 2)], Some(AttemptSimilarity::SameTests))]
#[case::two_are_too_few(&[tests(1, 2), tests(1, 2)], None)]
#[case::same_error_and_fewer_tests(
    &[attempt((1, 7, 1), Some((10, 0))), attempt((2, 7, 2), Some((3, 0))), attempt((3, 7, 3), Some((1, 0)))],
    None
)]
#[case::same_error_after_one_step(
    &[attempt((1, 7, 1), Some((10, 0))), attempt((2, 7, 2), Some((3, 0))), attempt((3, 7, 3), Some((3, 0)))],
    None
)]
#[case::same_error_and_no_step(
    &[attempt((1, 7, 1), Some((3, 0))), attempt((2, 7, 2), Some((3, 0))), attempt((3, 7, 3), Some((3, 0)))],
    Some(AttemptSimilarity::SameError)
)]
#[case::fewer_errors_are_progress_too(
    &[attempt((0, 7, 1), Some((0, 3))), attempt((0, 7, 2), Some((0, 2))), attempt((0, 7, 3), Some((0, 1)))],
    None
)]
#[case::unknown_counts_are_no_progress(
    &[attempt((0, 0, 4), None), attempt((0, 0, 4), None), attempt((0, 0, 4), None)],
    Some(AttemptSimilarity::SameDiff)
)]
#[case::in_turns(
    &[tests(1, 5), tests(2, 3), tests(1, 5), tests(2, 3)],
    Some(AttemptSimilarity::FlappingTests)
)]
#[case::a_change_returns(
    &[tests(1, 5), tests(2, 6), attempt((3, 3, 1), Some((5, 0)))],
    Some(AttemptSimilarity::CircularDiff)
)]
#[case::three_in_turns(
    &[
        attempt((1, 1, 1), Some((4, 0))),
        attempt((2, 2, 2), Some((3, 0))),
        attempt((3, 3, 3), Some((2, 0))),
        attempt((1, 4, 4), Some((4, 0))),
        attempt((2, 5, 5), Some((3, 0))),
    ],
    Some(AttemptSimilarity::CircularTests)
)]
fn only_repeated_failures_without_progress_are_stuck(
    #[case] attempts: &[AttemptRecord],
    #[case] expected: Option<AttemptSimilarity>,
) {
    assert_eq!(detect_without_progress(attempts), expected);
}

fn any_attempt() -> impl Strategy<Value = AttemptRecord> {
    ((0..3_u8, 0..3_u8, 0..4_u8), proptest::option::of((0..6_u32, 0..3_u32)))
        .prop_map(|(parts, count)| attempt(parts, count))
}

proptest! {
    #[test]
    fn shrinking_failures_never_alarm(
        attempts in prop::collection::vec((any_attempt(), 1..50_u32, 0..5_u32), 1..20),
    ) {
        // The fingerprints are arbitrary and often equal; only the number of tests shrinks.
        let mut left = 1_000;
        let mut all = Vec::new();
        for (attempt, step, errors) in attempts {
            left -= step;
            let failing = Some(FailureCount { tests: left, errors });
            all.push(AttemptRecord { failing, ..attempt });
            let kept = &all[all.len().saturating_sub(ATTEMPT_HISTORY)..];
            prop_assert_eq!(detect_without_progress(kept), None);
        }
    }

    #[test]
    fn repeated_failures_alarm(
        before in prop::collection::vec(any_attempt(), 0..5),
        failure in (1..9_u8, 0..9_u32),
    ) {
        let same = tests(failure.0, failure.1);
        let all = [before, vec![same; 3]].concat();
        prop_assert!(detect_without_progress(&all).is_some());
    }

    #[test]
    fn alternating_failures_alarm(
        before in prop::collection::vec(any_attempt(), 0..4),
        counts in (0..9_u32, 0..9_u32),
    ) {
        let (one, other) = (tests(10, counts.0), tests(11, counts.1));
        let all = [before, vec![one, other, one, other]].concat();
        prop_assert!(detect_without_progress(&all).is_some());
    }

    #[test]
    fn circular_failures_alarm(counts in prop::collection::vec(0..9_u32, 2..6)) {
        let round: Vec<_> = (1_u8..).zip(counts).map(|(number, count)| tests(number, count)).collect();
        let all = [round.clone(), round].concat();
        let kept = &all[all.len().saturating_sub(ATTEMPT_HISTORY)..];
        prop_assert!(detect_without_progress(kept).is_some());
    }

    #[test]
    fn a_task_whose_failing_tests_shrink_is_never_called_stuck(
        steps in prop::collection::vec((1..4_u8, 1..10_u32), 1..10),
        threshold in 2..10_u8,
    ) {
        let mut world = World::with(|rules| {
            rules.scrum_master.task_loop.escalation_threshold = threshold;
            rules.scrum_master.task_loop.top_tier_threshold = 10;
        });
        let mut left = 200;
        for (variant, step) in steps {
            left -= step;
            world.walk(State::Testing).done(failing(variant, left));
            if world.it.state == State::HumanEscalation {
                break;
            }
        }
        let stuck = world.log.iter().any(|entry| {
            matches!(&entry.data, EntryData::Decision(decision)
                if matches!(decision.reason, EscalationReason::Stuck(_)))
        });
        prop_assert!(!stuck);
    }

    #[test]
    fn the_first_failure_of_a_tier_is_never_stuck(variants in prop::collection::vec(1..3_u8, 3)) {
        let mut world = World::new();
        for variant in variants {
            world.fail_gates(variant);
        }
        // Two failures in the simple tier, and the first in the next.
        prop_assert_eq!(world.it.tier, Tier::Moderate);
        prop_assert_eq!((world.it.state, world.it.attempts.len()), (State::Adjusting, 2));
    }
}

#[test]
fn older_editions_still_count_the_same_files() {
    let same_files = |edition| {
        let mut world = World::new();
        world.it.edition = edition;
        for variant in 1..=3 {
            let Outcome::Tested(mut gates) = failing(variant, 9) else { panic!("gates") };
            gates.fingerprint.files = Some(Digest::of(b"files"));
            world.walk(State::Testing).done(Outcome::Tested(gates));
        }
        world.it.state
    };
    assert_eq!(same_files(Edition::Knowledge2026), State::CtoIntervention);
    assert_eq!(same_files(Edition::Harness2026), State::Adjusting);
}
