//! Decisions about an open pull request: what happens next, given what the forge reports.
//!
//! A pull request is one state of the task loop (`awaiting_merge`). [`decide`] is called with each
//! new observation and each timer. It reads [`PullRequestState`], the memory of the task about its
//! pull request, and returns one decision. It never repeats an action for the same cause: failed
//! checks are identified by name, head and attempt, and comments by thread and last comment.

mod decision;

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter};

use crate::forge::{PullRequestFacts, PullRequestStatus};
use crate::ids::{CommitId, Reference};

pub use decision::{PullRequestDecision, decide};
pub(crate) use decision::{missing_checks, no_checks_at, open_feedback, relevant_facts};

/// Name of the check that Tamma publishes on a commit. It never counts as CI.
pub const OUR_CHECK: &str = "tamma";

/// Start of the ID of a check that the forge requires and that nobody has reported yet.
pub const NOT_STARTED_ID: &str = "missing:";

/// Earlier heads that are remembered, so that a late report of one is not somebody else's push.
const EARLIER_HEADS: usize = 10;

/// Attempts with one head that can end without a result before a person is asked.
pub(crate) const MAX_STALE: u8 = 20;

/// Memory of a task about its pull request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullRequestState {
    /// Number of the pull request.
    pub number: u64,
    /// Address of its page.
    pub url: String,
    /// Head that we pushed last. Any other head is somebody else's.
    pub pushed: CommitId,
    /// Base commit that the pushed head contains.
    pub base: CommitId,
    /// Commit that passed the gates and the review. Tamma merges no other.
    pub judged: CommitId,
    /// Heads that we pushed before, newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<CommitId>,
    /// Rounds of feedback that went back to the agent.
    #[serde(default)]
    pub rounds: u8,
    /// Failed checks and comments that were acted on, as identified by [`Feedback::key`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handled: Vec<String>,
    /// Newest facts, without the parts that did not change anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<Box<PullRequestFacts>>,
    /// Stage that people see.
    pub stage: PullRequestStage,
    /// A person answered that the repository has no CI.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_checks: bool,
    /// Head for which a person goes on without required checks that did not start. The next head needs
    /// them again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_required: Option<CommitId>,
    /// Failed checks that the change caused and that have not gone back to the agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caused: Vec<Feedback>,
    /// Job in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Box<PullRequestJob>>,
    /// A job was decided with these facts. If it finds them stale, only newer ones count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub facts_used: bool,
    /// Head of somebody else that a person wants to take over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopt: Option<CommitId>,
    /// Head of somebody else that a person is asked about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_head: Option<CommitId>,
    /// Head in the merge queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued: Option<CommitId>,
    /// Head that the forge does not let us merge. A person merges it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<CommitId>,
    /// Base with which the head conflicts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict: Option<CommitId>,
    /// Commit whose change is the one that was reviewed before, on another base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_change: Option<CommitId>,
    /// Attempts with this head that ended without a result, because the forge had something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale: Option<u8>,
}

/// Pull request that a delivery opened or updated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenedPullRequest {
    /// Number of the pull request.
    pub number: u64,
    /// Address of its page.
    pub url: String,
    /// Head that was pushed.
    pub head: CommitId,
    /// Newest commit of the base branch that the head contains.
    pub base: CommitId,
}

/// End of a pull request's stay in the merge queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueResult {
    /// The change is on the base branch.
    Landed {
        /// Head that was in the queue.
        #[serde(default = "unknown_head")]
        head: CommitId,
        /// Commit on the base branch.
        commit: CommitId,
    },
    /// The change failed and goes back to its task.
    Returned {
        /// Head that was in the queue.
        #[serde(default = "unknown_head")]
        head: CommitId,
        /// Stored log.
        log: Reference,
    },
    /// The change left the queue without a result, because it is not as it was approved. Newer facts
    /// tell what to do.
    Left {
        /// Head that was in the queue.
        #[serde(default = "unknown_head")]
        head: CommitId,
    },
}

/// Head of a result that names none. It is the head of no change, so the result is refused, and the
/// server sends the stored one.
fn unknown_head() -> CommitId {
    CommitId::Sha1([0; 20])
}

impl QueueResult {
    /// Returns the head that was in the queue.
    pub fn head(&self) -> CommitId {
        match self {
            Self::Landed { head, .. } | Self::Returned { head, .. } | Self::Left { head } => *head,
        }
    }
}

impl PullRequestState {
    /// Creates the memory of a new pull request.
    pub fn new(opened: &OpenedPullRequest, judged: CommitId) -> Self {
        Self {
            number: opened.number,
            url: opened.url.clone(),
            pushed: opened.head,
            base: opened.base,
            judged,
            earlier: Vec::new(),
            rounds: 0,
            handled: Vec::new(),
            facts: None,
            stage: PullRequestStage::WaitingForChecks,
            without_checks: false,
            without_required: None,
            caused: Vec::new(),
            job: None,
            facts_used: false,
            adopt: None,
            asked_head: None,
            queued: None,
            refused: None,
            conflict: None,
            same_change: None,
            stale: None,
        }
    }

    /// Records a delivery to the same pull request. Feedback that was handled stays handled.
    pub fn update(&mut self, opened: &OpenedPullRequest, judged: CommitId) {
        self.set_head(opened.head);
        self.base = opened.base;
        self.judged = judged;
        self.url.clone_from(&opened.url);
        self.stage = PullRequestStage::WaitingForChecks;
        // Facts about the old head say nothing, unless they end the pull request.
        let is_over = self.is_over();
        self.facts = self.facts.take().filter(|facts| is_over || facts.head == opened.head);
    }

    /// Records a head that is ours from now on.
    pub fn set_head(&mut self, head: CommitId) {
        if head != self.pushed {
            self.earlier.retain(|it| *it != head && *it != self.pushed);
            self.earlier.push(self.pushed);
            let old = self.earlier.len().saturating_sub(EARLIER_HEADS);
            self.earlier.drain(..old);
            self.pushed = head;
        }
        self.caused.clear();
        (self.adopt, self.queued, self.refused, self.conflict) = (None, None, None, None);
        (self.asked_head, self.stale) = (None, None);
        self.facts_used = false;
    }

    /// Counts an attempt without a result. Returns `true` if there were so many that a person is asked.
    pub(crate) fn count_stale(&mut self) -> bool {
        let count = self.stale.unwrap_or_default().saturating_add(1);
        self.stale = Some(count);
        count >= MAX_STALE
    }

    /// Marks feedback as handled.
    pub fn mark_handled<'a>(&mut self, feedback: impl IntoIterator<Item = &'a Feedback>) {
        for key in feedback.into_iter().map(Feedback::key) {
            if !self.handled.contains(&key) {
                self.handled.push(key);
            }
        }
    }

    /// Returns `true` if the pull request was merged or closed.
    pub fn is_over(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| facts.status != PullRequestStatus::Open)
    }
}

/// Stage of an open pull request, as shown to people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display, EnumIter)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum PullRequestStage {
    /// Checks of the head have not finished.
    WaitingForChecks,
    /// A check failed and is compared with the base, or runs again.
    ChecksFailed,
    /// People asked for changes.
    ChangesRequested,
    /// Approvals are missing, or a person has to merge.
    WaitingForReview,
    /// The base moved, and the branch conflicts or is behind.
    BaseMoved,
    /// Somebody else pushed to the branch.
    HeadMoved,
    /// In a merge queue.
    Queued,
    /// Being merged.
    Merging,
    /// The forge does not allow something: a permission, a protection or its quota.
    Blocked,
}

/// Feedback that goes back to the agent in one round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Feedback {
    /// Failed check.
    Check {
        /// Name of the check.
        name: String,
        /// ID of the attempt.
        id: String,
        /// Commit it failed on.
        head: CommitId,
    },
    /// Comments of a thread.
    Thread {
        /// ID of the thread.
        thread: String,
        /// ID of its last comment.
        last_comment: String,
    },
    /// Review that requests changes.
    Review {
        /// Account of the reviewer.
        by: String,
        /// Commit that was reviewed.
        commit: CommitId,
    },
}

impl Feedback {
    /// Returns the key that identifies the feedback for ever.
    pub fn key(&self) -> String {
        match self {
            Self::Check { name, id, head } => format!("check:{name}:{id}@{head}"),
            Self::Thread { thread, last_comment } => format!("thread:{thread}:{last_comment}"),
            Self::Review { by, commit } => format!("review:{by}@{commit}"),
        }
    }
}

/// Job about a pull request (`Job::PullRequest`). Each is idempotent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PullRequestJob {
    /// Compare failed checks with the base, and run those that may be flaky again.
    TriageChecks {
        /// Head.
        head: CommitId,
        /// Failed checks, as [`Feedback::Check`].
        checks: Vec<Feedback>,
    },
    /// Read logs and comments, and write them for the agent.
    CollectFeedback {
        /// Head.
        head: CommitId,
        /// Feedback of this round.
        feedback: Vec<Feedback>,
    },
    /// Put the commits on top of the new base.
    Rebase {
        /// Head.
        head: CommitId,
        /// New base.
        onto: CommitId,
    },
    /// Merge, or add to the merge queue.
    Merge {
        /// Head that was judged.
        head: CommitId,
    },
    /// Take over commits of somebody else: fetch and test them.
    Adopt {
        /// Their head.
        head: CommitId,
    },
}

impl PullRequestJob {
    /// Returns the stage that people see while the job runs.
    pub fn stage(&self) -> PullRequestStage {
        match self {
            Self::TriageChecks { .. } => PullRequestStage::ChecksFailed,
            Self::CollectFeedback { feedback, .. } => {
                if feedback.iter().any(|it| !matches!(it, Feedback::Check { .. })) {
                    PullRequestStage::ChangesRequested
                } else {
                    PullRequestStage::ChecksFailed
                }
            }
            Self::Rebase { .. } => PullRequestStage::BaseMoved,
            Self::Merge { .. } => PullRequestStage::Merging,
            Self::Adopt { .. } => PullRequestStage::HeadMoved,
        }
    }
}

impl PullRequestStage {
    /// Returns what the pull request waits for, as a sentence fragment.
    pub fn description(self) -> &'static str {
        match self {
            Self::WaitingForChecks => "waiting for its checks",
            Self::ChecksFailed => "waiting for a failed check to pass, or for a person to merge",
            Self::ChangesRequested => "waiting for a reviewer who requested changes",
            Self::WaitingForReview => "waiting for a person to review or merge it",
            Self::BaseMoved => "waiting for the forge to compare it with the moved base",
            Self::HeadMoved => "waiting for the forge to report the newest commit",
            Self::Queued => "waiting in the merge queue",
            Self::Merging => "waiting for the forge to allow the merge",
            Self::Blocked => "waiting for a person to merge it, because the forge refused",
        }
    }
}

/// Display of an outcome is its serialised name.
impl fmt::Display for PullRequestOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ChecksTriaged { .. } => "checks_triaged",
            Self::FeedbackCollected(_) => "feedback_collected",
            Self::Rebased { .. } => "rebased",
            Self::RebaseConflicts(_) => "rebase_conflicts",
            Self::Merged(_) => "merged",
            Self::Queued => "queued",
            Self::Stale => "stale",
            Self::Refused(_) => "refused",
            Self::Adopted(_) => "adopted",
        })
    }
}

/// Outcome of a [`PullRequestJob`] (`Outcome::PullRequest`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PullRequestOutcome {
    /// Failed checks are sorted: those that ran again or that the base has too, and those that the
    /// change caused.
    ChecksTriaged {
        /// Failures that the base has too, or that run again.
        excused: Vec<Feedback>,
        /// Failures that the change caused.
        caused: Vec<Feedback>,
    },
    /// Feedback is stored for the agent.
    FeedbackCollected(Reference),
    /// Commits are on top of the new base.
    Rebased {
        /// New head.
        head: CommitId,
        /// New base.
        base: CommitId,
        /// The change itself is another one, so it is reviewed again.
        changed: bool,
    },
    /// Commits conflict with the new base. The branch is there, with conflict markers, and the conflict
    /// is stored for the agent.
    RebaseConflicts(Reference),
    /// Merged as this commit.
    Merged(CommitId),
    /// In the merge queue.
    Queued,
    /// Head or base moved. The next observation tells.
    Stale,
    /// The forge does not allow it; its reason is stored.
    Refused(Reference),
    /// Commits of somebody else are fetched.
    Adopted(CommitId),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_result_without_a_head_is_of_no_change() {
        let text = format!(r#"{{ "landed": {{ "commit": "{}" }} }}"#, "1".repeat(40));
        let result: QueueResult = serde_json::from_str(&text).expect("a result");
        assert_eq!(result.head(), unknown_head());
        let result: QueueResult = serde_json::from_str(r#"{ "left": {} }"#).expect("a result");
        assert_eq!(result, QueueResult::Left { head: unknown_head() });
    }
}
