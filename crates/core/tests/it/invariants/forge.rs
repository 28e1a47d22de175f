//! Reports of a forge, and the invariants of pull requests.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tamma_core::forge::{
    CheckResult, Mergeability, PullRequestFacts, PullRequestStatus, ReviewFact, ReviewVerdict,
    ThreadFact,
};
use tamma_core::pull_request::{Feedback, PullRequestJob, PullRequestOutcome, QueueResult};
use tamma_core::rules::{DeliveryMode, Rules};
use tamma_core::task_loop::{Command, EventKind, Job, JobKind, State, Step};

use super::Oracle;
use crate::world::{World, check, commit, note};

/// Returns a report of the forge, if the task has a pull request.
pub(super) fn forge_event(world: &World, what: u8, detail: u8) -> Option<EventKind> {
    let memory = world.it.pull_request.as_ref()?;
    let is_idle = world.it.active_job.is_none() && world.it.stopping_job.is_none();
    let is_waiting = world.it.state == State::AwaitingMerge && is_idle;
    let in_queue = memory.queued.is_some();
    match what {
        0..=159 if is_waiting && in_queue && detail.is_multiple_of(2) => {}
        0..=159 if is_waiting => return Some(observed(facts(world, detail, false))),
        // While the task does something else, people merge and close.
        186..=193 => return Some(observed(facts(world, detail, true))),
        198..=199 if in_queue => {}
        _ => return None,
    }
    let head = memory.pushed;
    Some(EventKind::QueueSettled(match detail % 8 {
        2 | 6 => QueueResult::Landed { head, commit: commit(detail) },
        4 => QueueResult::Left { head },
        _ => QueueResult::Returned { head, log: note() },
    }))
}

fn observed(facts: PullRequestFacts) -> EventKind {
    EventKind::PullRequestObserved(Box::new(facts))
}

/// Returns facts about the pull request. `ends` makes its end likely.
fn facts(world: &World, detail: u8, ends: bool) -> PullRequestFacts {
    let mut facts = world.facts();
    let variant = detail / 16;
    let by = "ann".to_owned();
    let thread = |bot, can_write, answered| ThreadFact {
        id: format!("t{}", variant % 3),
        last_comment: variant.to_string(),
        by: "ann".to_owned(),
        can_write,
        bot,
        resolved: false,
        answered,
    };
    let review = |verdict, can_write| ReviewFact {
        by: "ann".to_owned(),
        commit: world.facts().head,
        verdict,
        can_write,
    };
    match detail % if ends { 4 } else { 16 } {
        0 if ends || variant < 3 => {
            facts.status = PullRequestStatus::Merged { commit: commit(detail), by };
        }
        1 if ends || variant < 3 => facts.status = PullRequestStatus::Closed { by },
        2 => facts.head = commit(200 + variant % 2),
        3 | 4 => {
            facts.base = commit(90 + variant);
            facts.mergeability =
                if variant < 8 { Mergeability::Conflicting } else { Mergeability::Behind };
        }
        5 => {
            facts.checks = vec![check("ci", CheckResult::Failed)];
            facts.checks[0].id = variant.to_string();
        }
        6 => facts.threads = vec![thread(false, true, false)],
        7 => {
            facts.threads = vec![
                thread(true, true, false),
                thread(false, false, false),
                thread(false, true, true),
            ];
        }
        8 => facts.reviews = vec![review(ReviewVerdict::ChangesRequested, variant < 12)],
        9 => facts.checks.clear(),
        10 => facts.checks[0].result = CheckResult::Pending,
        11 => facts.incomplete = true,
        _ => facts.reviews = vec![review(ReviewVerdict::Approved, true)],
    }
    facts
}

/// Returns a possible outcome of the job about the pull request.
pub(super) fn pull_request_outcome(world: &World, detail: u8) -> PullRequestOutcome {
    let job = world.it.pull_request.as_ref().and_then(|memory| memory.job.as_deref());
    match job {
        _ if detail % 16 == 15 => PullRequestOutcome::Stale,
        _ if detail % 16 == 14 => PullRequestOutcome::Refused(note()),
        Some(PullRequestJob::TriageChecks { checks, .. }) => {
            let (excused, caused) = if detail.is_multiple_of(3) {
                (checks.clone(), Vec::new())
            } else {
                (Vec::new(), checks.clone())
            };
            PullRequestOutcome::ChecksTriaged { excused, caused }
        }
        Some(PullRequestJob::CollectFeedback { .. }) => {
            PullRequestOutcome::FeedbackCollected(note())
        }
        Some(PullRequestJob::Rebase { .. }) if detail.is_multiple_of(4) => {
            PullRequestOutcome::RebaseConflicts(note())
        }
        Some(PullRequestJob::Rebase { onto, .. }) => PullRequestOutcome::Rebased {
            head: commit(detail),
            base: *onto,
            changed: detail.is_multiple_of(2),
        },
        Some(PullRequestJob::Merge { .. }) if detail.is_multiple_of(2) => {
            PullRequestOutcome::Queued
        }
        Some(PullRequestJob::Merge { .. }) => PullRequestOutcome::Merged(commit(detail)),
        Some(PullRequestJob::Adopt { head }) => PullRequestOutcome::Adopted(*head),
        None => PullRequestOutcome::Queued,
    }
}

/// Only what was judged is merged, feedback goes back once, rounds are limited, and a pull request
/// that ended gets no job.
pub(super) fn check_pull_request(
    step: &Step,
    rules: &Rules,
    oracle: &Oracle,
) -> Result<(), TestCaseError> {
    let task_loop = &step.next;
    let Some(memory) = &task_loop.pull_request else { return Ok(()) };
    prop_assert!(memory.rounds <= rules.delivery.pull_requests.max_rounds);
    for command in &step.commands {
        let Command::StartJob { job, .. } = command else { continue };
        if memory.is_over() && task_loop.state != State::Committing {
            prop_assert_eq!(job.kind(), JobKind::Learn);
        }
        match job {
            Job::PullRequest(PullRequestJob::Merge { head }) => {
                let facts = memory.facts.as_ref().expect("facts");
                prop_assert_eq!((memory.pushed, memory.judged, facts.head), (*head, *head, *head));
                prop_assert_eq!(Some(*head), task_loop.commit);
                prop_assert_eq!(task_loop.delivery_mode(rules), DeliveryMode::Merge);
                prop_assert!(facts.checks.iter().all(|it| it.result == CheckResult::Passed));
            }
            Job::PullRequest(PullRequestJob::CollectFeedback { feedback, .. }) => {
                for key in feedback.iter().map(Feedback::key) {
                    prop_assert!(!oracle.sent_back.contains(&key), "{} goes back twice", key);
                }
            }
            _ => {}
        }
    }
    Ok(())
}
