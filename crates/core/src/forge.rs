//! Code hosts such as GitHub, GitLab and Gitea, and the facts that they report about a pull request.
//!
//! Facts are data: a poller reads them, the state machine decides on them
//! ([`pull_request`](crate::pull_request)). They contain names, numbers and commits; texts that
//! people wrote are stored elsewhere and read when they are needed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

use crate::ids::CommitId;

/// Most checks, reviews or threads of a pull request that are looked at. More are counted as unknown,
/// so the pull request waits.
pub const MAX_FACTS: usize = 100;

/// Kind of a forge, which decides its API.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    Display,
    EnumString,
    EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ForgeKind {
    /// GitHub, in the cloud or self-hosted.
    Github,
    /// GitLab.
    Gitlab,
    /// Gitea or Forgejo.
    Gitea,
}

/// Parts of a delivery that only some forges have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForgeCapabilities {
    /// A branch can be advanced through the API if it has the expected commit. Otherwise git pushes
    /// with a lease.
    pub ref_cas: bool,
    /// Failed checks can be run again.
    pub rerun_checks: bool,
}

/// Facts about one pull request, read at one time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullRequestFacts {
    /// Number of the pull request.
    pub number: u64,
    /// Open, merged or closed.
    pub status: PullRequestStatus,
    /// Not ready for review.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draft: bool,
    /// Newest commit of its branch.
    pub head: CommitId,
    /// Newest commit of the branch it goes to.
    pub base: CommitId,
    /// Result of merging both, as far as the forge knows it.
    pub mergeability: Mergeability,
    /// Checks of the head, by name. Only the newest attempt of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckFact>,
    /// Newest review of each reviewer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reviews: Vec<ReviewFact>,
    /// Threads of review comments, and comments on the pull request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<ThreadFact>,
    /// In the forge's own merge queue.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub queued: bool,
    /// Some facts are missing: there are more than [`MAX_FACTS`] of a kind.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub incomplete: bool,
}

impl PullRequestFacts {
    /// Returns the number of people who can push and approved a commit.
    pub fn approvals_of(&self, commit: CommitId) -> usize {
        let approves = |it: &&ReviewFact| {
            it.can_write && it.verdict == ReviewVerdict::Approved && it.commit == commit
        };
        self.reviews.iter().filter(approves).count()
    }
}

/// Status of a pull request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PullRequestStatus {
    /// Open.
    Open,
    /// Merged.
    Merged {
        /// Commit on the base branch.
        commit: CommitId,
        /// Account that merged it.
        by: String,
    },
    /// Closed without merging.
    Closed {
        /// Account that closed it.
        by: String,
    },
}

/// Result of merging a pull request, as far as the forge knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Mergeability {
    /// The forge has not computed it yet.
    Unknown,
    /// No conflict.
    Clean,
    /// Changes on both sides conflict.
    Conflicting,
    /// The forge requires the branch to contain its base.
    Behind,
}

/// Check of a commit: a check run, a commit status or a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckFact {
    /// Name, which is unique on a commit.
    pub name: String,
    /// ID of the attempt, by which its log is read.
    pub id: String,
    /// The forge does not allow a merge without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    /// Result.
    pub result: CheckResult,
}

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum CheckResult {
    /// Has not finished.
    Pending,
    /// Passed, was skipped, or does not matter.
    Passed,
    /// Failed, timed out or was cancelled.
    Failed,
}

/// Review by one account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewFact {
    /// Account.
    pub by: String,
    /// Commit that was reviewed.
    pub commit: CommitId,
    /// Result.
    pub verdict: ReviewVerdict,
    /// Account can push to the repository. Reviews of others do not count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub can_write: bool,
}

/// Result of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ReviewVerdict {
    /// Approved.
    Approved,
    /// Changes requested.
    ChangesRequested,
    /// Neither.
    Commented,
}

/// Thread of comments. It is identified by its last comment, so a new comment is new feedback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct ThreadFact {
    /// ID of the thread.
    pub id: String,
    /// ID of the last comment that is not ours.
    pub last_comment: String,
    /// Author of that comment.
    pub by: String,
    /// Author can push to the repository.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub can_write: bool,
    /// Author is a program.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bot: bool,
    /// Marked as resolved.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resolved: bool,
    /// Our own comment is the newest one of the thread.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub answered: bool,
}
