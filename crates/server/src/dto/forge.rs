//! Forges and pull requests.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tamma_core::forge::{CheckResult, PullRequestFacts};
use tamma_core::pull_request::PullRequestStage;
use tamma_store::{AftercareFinding, StoredPullRequest};
use utoipa::ToSchema;
use uuid::Uuid;

/// Pull request of a task, as its forge reported it last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PullRequestView {
    /// Task ID.
    pub task: Uuid,
    /// Project ID.
    pub project: Uuid,
    /// Name of the forge.
    pub forge: String,
    /// Repository in the forge, such as `owner/name`.
    pub repository: String,
    /// Number of the pull request.
    pub number: u64,
    /// URL of its page.
    pub url: String,
    /// Branch with the change.
    pub branch: String,
    /// Branch that it goes to.
    pub base_branch: String,
    /// `open`, `merged` or `closed`.
    pub status: String,
    /// Stage of an open pull request, such as `waiting_for_checks`; omitted before the task has seen it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// `true` while it is a draft.
    #[serde(default)]
    pub draft: bool,
    /// Newest commit of its branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// Result of a merge, as far as the forge knows it: `unknown`, `clean`, `conflicting` or `behind`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mergeability: Option<String>,
    /// Checks of its newest commit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<PullRequestCheck>,
    /// Newest review of each reviewer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reviews: Vec<PullRequestReview>,
    /// Number of threads that are not resolved.
    #[serde(default)]
    pub threads: u32,
    /// Rounds of feedback that went back to the agent.
    #[serde(default)]
    pub rounds: u8,
    /// Time at which it was opened.
    pub opened_at: DateTime<Utc>,
    /// Time of the last look at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_at: Option<DateTime<Utc>>,
    /// Commit of the merge on the base branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_commit: Option<String>,
    /// Time at which the merge was noticed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_at: Option<DateTime<Utc>>,
}

/// What happened to the merged change of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AftercareView {
    /// `revert`, `fix` or `red_base`.
    pub kind: String,
    /// Commit that shows it.
    pub commit: String,
    /// Subject and author of the commit, or the failed checks.
    pub detail: String,
    /// Time at which it was found.
    pub found_at: DateTime<Utc>,
}

impl From<AftercareFinding> for AftercareView {
    fn from(it: AftercareFinding) -> Self {
        Self {
            kind: it.kind.to_string(),
            commit: it.commit.to_string(),
            detail: it.detail,
            found_at: it.found_at,
        }
    }
}

/// Check of a pull request's newest commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PullRequestCheck {
    /// Name of the check.
    pub name: String,
    /// `pending`, `passed` or `failed`.
    pub result: String,
    /// `true` if the forge does not allow a merge without it.
    pub required: bool,
}

/// Review of a pull request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PullRequestReview {
    /// Account of the reviewer.
    pub by: String,
    /// `approved`, `changes_requested` or `commented`.
    pub verdict: String,
    /// Commit that was reviewed.
    pub commit: String,
    /// `true` if the review counts, because the reviewer can push.
    pub counts: bool,
}

/// List of pull requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PullRequestPage {
    /// Pull requests, newest first.
    pub pull_requests: Vec<PullRequestView>,
}

/// Forge of the installation, without its credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ForgeStatus {
    /// Name of the forge.
    pub name: String,
    /// `github`, `gitlab` or `gitea`.
    pub kind: String,
    /// URL of its pages.
    pub url: String,
    /// `true` if the forge can send webhooks to this server.
    pub webhooks: bool,
    /// Part of the forge's quota that is left, in percent; omitted if the forge does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_percent: Option<u8>,
    /// Time until which no requests are sent, because the quota is nearly used up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_until: Option<DateTime<Utc>>,
    /// Time of the last look at a repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polled_at: Option<DateTime<Utc>>,
    /// Repositories of projects that the caller can read.
    pub repositories: Vec<String>,
}

/// List of forges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ForgeList {
    /// Forges by name.
    pub forges: Vec<ForgeStatus>,
}

impl PullRequestView {
    /// Combines a stored pull request with what its task remembers about it.
    pub(crate) fn new(
        stored: StoredPullRequest,
        stage: Option<PullRequestStage>,
        rounds: u8,
    ) -> Self {
        let facts = stored.facts.as_ref();
        Self {
            task: stored.task.0,
            project: stored.project.0,
            status: stored.status.to_string(),
            stage: stage.map(|stage| stage.to_string()),
            draft: facts.is_some_and(|facts| facts.draft),
            head: facts.map(|facts| facts.head.to_string()),
            mergeability: facts.map(|facts| facts.mergeability.to_string()),
            checks: facts.map(checks).unwrap_or_default(),
            reviews: facts.map(reviews).unwrap_or_default(),
            threads: facts.map(open_threads).unwrap_or_default(),
            rounds,
            forge: stored.forge,
            repository: stored.repository,
            number: stored.number,
            url: stored.url,
            branch: stored.branch,
            base_branch: stored.base_branch,
            opened_at: stored.opened_at,
            observed_at: stored.observed_at,
            merged_commit: stored.merged_commit.map(|commit| commit.to_string()),
            merged_at: stored.merged_at,
        }
    }

    /// Counts the checks with a result.
    pub fn count_checks(&self, result: CheckResult) -> usize {
        let result = result.to_string();
        self.checks.iter().filter(|check| check.result == result).count()
    }
}

fn checks(facts: &PullRequestFacts) -> Vec<PullRequestCheck> {
    let check = |it: &tamma_core::forge::CheckFact| PullRequestCheck {
        name: it.name.clone(),
        result: it.result.to_string(),
        required: it.required,
    };
    facts.checks.iter().map(check).collect()
}

fn reviews(facts: &PullRequestFacts) -> Vec<PullRequestReview> {
    let review = |it: &tamma_core::forge::ReviewFact| PullRequestReview {
        by: it.by.clone(),
        verdict: it.verdict.to_string(),
        commit: it.commit.to_string(),
        counts: it.can_write,
    };
    facts.reviews.iter().map(review).collect()
}

fn open_threads(facts: &PullRequestFacts) -> u32 {
    let open = facts.threads.iter().filter(|thread| !thread.resolved).count();
    u32::try_from(open).unwrap_or(u32::MAX)
}
