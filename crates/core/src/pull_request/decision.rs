//! Decision about an open pull request, as a list of rules in order. The first one that applies
//! decides.

use chrono::TimeDelta;

use super::{
    Feedback, NOT_STARTED_ID, OUR_CHECK, PullRequestJob, PullRequestStage, PullRequestState,
};
use crate::cause::PullRequestProblem;
use crate::forge::{
    CheckFact, CheckResult, Mergeability, PullRequestFacts, PullRequestStatus, ReviewFact,
    ReviewVerdict, ThreadFact,
};
use crate::ids::CommitId;
use crate::rules::{DeliveryMode, PullRequestRules};
use crate::time::Timestamp;

/// Next step of an open pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PullRequestDecision {
    /// Nothing, until the forge reports something else.
    Wait(PullRequestStage),
    /// A job starts.
    Start(PullRequestJob),
    /// A person decides.
    Ask(PullRequestProblem),
    /// The change is on the base branch.
    Merged {
        /// Commit on the base branch.
        commit: CommitId,
        /// Account that merged it.
        by: String,
    },
    /// A person closed the pull request without merging it.
    Closed {
        /// Account that closed it.
        by: String,
    },
}

/// Decides what happens next with a pull request.
///
/// `since` is the time since which the task waits with its current head, and limits the wait for the
/// first check.
pub fn decide(
    memory: &PullRequestState,
    facts: &PullRequestFacts,
    mode: DeliveryMode,
    rules: &PullRequestRules,
    since: Timestamp,
    now: Timestamp,
) -> PullRequestDecision {
    use PullRequestDecision::{Ask, Start, Wait};
    use PullRequestStage as Stage;

    // 1. It ended.
    match &facts.status {
        PullRequestStatus::Merged { commit, by } => {
            return PullRequestDecision::Merged { commit: *commit, by: by.clone() };
        }
        PullRequestStatus::Closed { by } => {
            return PullRequestDecision::Closed { by: by.clone() };
        }
        PullRequestStatus::Open => {}
    }
    // 2. The facts are about something else, or too few.
    if facts.number != memory.number {
        return Wait(memory.stage);
    }
    // 3. The head is not ours. Reports of an earlier one are late, unless it stays: a pull request that
    // was closed gets no commits, and can be opened again.
    if facts.head != memory.pushed {
        let head = facts.head;
        return if memory.adopt == Some(head) {
            Start(PullRequestJob::Adopt { head })
        } else if memory.earlier.contains(&head) && !is_due(since, rules, now) {
            Wait(Stage::HeadMoved)
        } else {
            Ask(PullRequestProblem::HeadMoved)
        };
    }
    let head = memory.pushed;
    // More facts than are read, which anybody can cause. A person can merge.
    if facts.incomplete {
        return if memory.refused == Some(head) {
            Wait(Stage::Blocked)
        } else if is_due(since, rules, now) {
            Ask(PullRequestProblem::Blocked)
        } else {
            Wait(Stage::WaitingForChecks)
        };
    }
    // 4. The queue decides.
    if memory.queued == Some(head) {
        return Wait(Stage::Queued);
    }
    // 5. The base moved. A head that contains the base is neither behind nor in conflict, so such a
    // report is late.
    let is_behind = matches!(facts.mergeability, Mergeability::Conflicting | Mergeability::Behind);
    if is_behind && facts.base != memory.base {
        let is_conflict = memory.conflict == Some(facts.base);
        return if is_conflict && memory.refused == Some(head) {
            Wait(Stage::BaseMoved)
        } else if is_conflict && memory.rounds >= rules.max_rounds {
            Ask(PullRequestProblem::RoundsUsedUp)
        } else {
            Start(PullRequestJob::Rebase { head, onto: facts.base })
        };
    }
    // 6. New failures are compared with the base.
    let checks = Checks::of(memory, facts, rules);
    let untriaged: Vec<_> = checks
        .failed
        .iter()
        .map(|check| check_feedback(check, head))
        .filter(|check| !is_handled(memory, check) && !memory.caused.contains(check))
        .collect();
    if !untriaged.is_empty() {
        return Start(PullRequestJob::TriageChecks { head, checks: untriaged });
    }
    // 7. One round has everything.
    if checks.pending {
        return Wait(Stage::WaitingForChecks);
    }
    let feedback = new_feedback(memory, facts, &checks);
    if !feedback.is_empty() {
        return if memory.rounds >= rules.max_rounds {
            Ask(PullRequestProblem::RoundsUsedUp)
        } else {
            Start(PullRequestJob::CollectFeedback { head, feedback })
        };
    }
    // 8. Checks did not pass.
    if checks.missing {
        return if is_due(since, rules, now) {
            Ask(PullRequestProblem::NoChecks)
        } else {
            Wait(Stage::WaitingForChecks)
        };
    }
    if !checks.failed.is_empty() {
        return Wait(Stage::ChecksFailed);
    }
    allow_merge(memory, facts, mode, rules)
}

/// Decides about a pull request whose checks passed and that has no new feedback.
fn allow_merge(
    memory: &PullRequestState,
    facts: &PullRequestFacts,
    mode: DeliveryMode,
    rules: &PullRequestRules,
) -> PullRequestDecision {
    use PullRequestDecision::{Start, Wait};
    use PullRequestStage as Stage;
    let head = memory.pushed;
    // 9. People did not allow it.
    if facts.reviews.iter().any(requests_changes) {
        return Wait(Stage::ChangesRequested);
    }
    if facts.draft || facts.approvals_of(head) < usize::from(rules.approvals) {
        return Wait(Stage::WaitingForReview);
    }
    // 10. Merge exactly what was judged.
    match mode {
        DeliveryMode::Branch | DeliveryMode::PullRequest => Wait(Stage::WaitingForReview),
        DeliveryMode::Merge if memory.judged != head => Wait(Stage::WaitingForReview),
        DeliveryMode::Merge if memory.refused == Some(head) => Wait(Stage::Blocked),
        DeliveryMode::Merge => match facts.mergeability {
            Mergeability::Clean => Start(PullRequestJob::Merge { head }),
            Mergeability::Unknown => Wait(Stage::Merging),
            Mergeability::Conflicting | Mergeability::Behind => Wait(Stage::BaseMoved),
        },
    }
}

/// Returns the time at which a person is asked about a pull request that waits for too long: because the
/// repository may have no CI, the forge shows an earlier head, or it has more facts than are read. `None`
/// if something else comes first.
pub(crate) fn no_checks_at(
    memory: &PullRequestState,
    facts: &PullRequestFacts,
    mode: DeliveryMode,
    rules: &PullRequestRules,
    since: Timestamp,
) -> Option<Timestamp> {
    let due = no_checks_due(since, rules)?;
    let decision = decide(memory, facts, mode, rules, since, due);
    matches!(
        decision,
        PullRequestDecision::Ask(
            PullRequestProblem::NoChecks
                | PullRequestProblem::HeadMoved
                | PullRequestProblem::Blocked
        )
    )
    .then_some(due)
}

/// Returns the facts that can change a decision. The others would only make the task's state larger.
pub(crate) fn relevant_facts(
    facts: &PullRequestFacts,
    rules: &PullRequestRules,
) -> PullRequestFacts {
    let mut facts = facts.clone();
    facts.threads.retain(starts_work);
    facts.reviews.retain(|it| it.can_write && it.verdict != ReviewVerdict::Commented);
    let is_needed = |it: &CheckFact| {
        it.result != CheckResult::Passed || it.required || rules.required_checks.contains(&it.name)
    };
    facts.checks.retain(|it| it.name != OUR_CHECK);
    // One passed check shows that there is CI.
    let first = facts.checks.iter().position(|it| !is_needed(it));
    let mut index = 0;
    facts.checks.retain(|it| {
        index += 1;
        is_needed(it) || first == Some(index - 1)
    });
    facts
}

/// Returns the feedback that would go back to the agent now.
pub(crate) fn open_feedback(
    memory: &PullRequestState,
    facts: &PullRequestFacts,
    rules: &PullRequestRules,
) -> Vec<Feedback> {
    new_feedback(memory, facts, &Checks::of(memory, facts, rules))
}

/// Returns the names of required checks that have not started.
pub(crate) fn missing_checks<'a>(
    facts: &'a PullRequestFacts,
    rules: &'a PullRequestRules,
) -> Vec<&'a str> {
    let is_absent =
        |name: &&str| *name != OUR_CHECK && facts.checks.iter().all(|it| it.name != *name);
    let absent = rules.required_checks.iter().map(String::as_str).filter(is_absent);
    let not_started = facts.checks.iter().filter(|it| has_not_started(it));
    absent.chain(not_started.map(|it| it.name.as_str())).collect()
}

/// Returns `true` for a check that the forge requires and that nobody has reported yet.
fn has_not_started(check: &CheckFact) -> bool {
    check.name != OUR_CHECK
        && check.result == CheckResult::Pending
        && check.id.starts_with(NOT_STARTED_ID)
}

/// Checks that count: the required ones, or all if none is required.
struct Checks<'a> {
    /// Failed ones, also those that do not count against the change.
    failed: Vec<&'a CheckFact>,
    /// Some have not finished.
    pending: bool,
    /// There is none, or a required one is not there or has not started.
    missing: bool,
}

impl<'a> Checks<'a> {
    fn of(
        memory: &PullRequestState,
        facts: &'a PullRequestFacts,
        rules: &PullRequestRules,
    ) -> Self {
        let all: Vec<_> = facts.checks.iter().filter(|it| it.name != OUR_CHECK).collect();
        let is_required = |it: &CheckFact| it.required || rules.required_checks.contains(&it.name);
        let has_required = !rules.required_checks.is_empty() || all.iter().any(|it| it.required);
        let counting = all.iter().copied().filter(|it| !has_required || is_required(it));
        let (mut failed, mut pending) = (Vec::new(), false);
        for check in counting {
            match check.result {
                // It may never start, so the wait for it ends.
                CheckResult::Pending if has_not_started(check) => {}
                CheckResult::Pending => pending = true,
                CheckResult::Failed => failed.push(check),
                CheckResult::Passed => {}
            }
        }
        let missing = if missing_checks(facts, rules).is_empty() {
            all.is_empty() && !memory.without_checks
        } else {
            memory.without_required != Some(memory.pushed)
        };
        Self { failed, pending, missing }
    }
}

fn check_feedback(check: &CheckFact, head: CommitId) -> Feedback {
    Feedback::Check { name: check.name.clone(), id: check.id.clone(), head }
}

fn is_handled(memory: &PullRequestState, feedback: &Feedback) -> bool {
    memory.handled.contains(&feedback.key())
}

/// Returns the feedback that has not gone back to the agent.
fn new_feedback(
    memory: &PullRequestState,
    facts: &PullRequestFacts,
    checks: &Checks<'_>,
) -> Vec<Feedback> {
    let failed = checks
        .failed
        .iter()
        .map(|check| check_feedback(check, memory.pushed))
        .filter(|check| memory.caused.contains(check));
    let threads = facts.threads.iter().filter(|it| starts_work(it)).map(|it| Feedback::Thread {
        thread: it.id.clone(),
        last_comment: it.last_comment.clone(),
    });
    let reviews = facts
        .reviews
        .iter()
        .filter(|it| requests_changes(it))
        .map(|it| Feedback::Review { by: it.by.clone(), commit: it.commit });
    failed.chain(threads).chain(reviews).filter(|it| !is_handled(memory, it)).collect()
}

/// Returns `true` if a thread can start work: its last word is not ours, not a program's, and of
/// somebody who can push.
fn starts_work(thread: &ThreadFact) -> bool {
    !thread.answered
        && !thread.bot
        && thread.can_write
        && !thread.resolved
        && !thread.last_comment.is_empty()
}

fn requests_changes(review: &ReviewFact) -> bool {
    review.can_write && review.verdict == ReviewVerdict::ChangesRequested
}

fn no_checks_due(since: Timestamp, rules: &PullRequestRules) -> Option<Timestamp> {
    since.checked_add_signed(TimeDelta::minutes(i64::from(rules.no_checks_minutes)))
}

fn is_due(since: Timestamp, rules: &PullRequestRules, now: Timestamp) -> bool {
    no_checks_due(since, rules).is_some_and(|due| due <= now)
}
