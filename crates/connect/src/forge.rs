//! Clients for code hosts: GitHub, GitLab, and Gitea or Forgejo.
//!
//! A [`Forge`] has the same operations for each of them. It never retries: an effect whose answer was
//! lost has to be looked up before it is tried again, which is the caller's job (`Store::perform`).
//! Every operation that has an effect has one that finds it: `open_change` and `find_change`,
//! `upsert_comment` by its marker, `publish_check` by its name and commit, `merge` and `observe`.
//! Pushes stay with git.

mod api;
mod facts;
#[cfg(test)]
mod fake_server;
mod forges;
mod gitea;
mod github;
mod github_app;
mod gitlab;
mod settings;
pub mod webhook;

use tamma_core::forge::{CheckFact, ForgeCapabilities, ForgeKind, PullRequestFacts};
use tamma_core::ids::CommitId;
use tamma_core::rules::MergeMethod;
use tamma_core::time::Timestamp;

pub use forges::Forges;
pub use settings::{AppCredentials, ForgeCredential, ForgeSettings, GitLogin, SettingsError};

/// Failure of a request to a forge.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Forge is unreachable, or did not respond in time. The effect may have happened.
    #[error(
        "no response from {forge}: {source}; check the network and `tamma forge check {forge}`"
    )]
    Unreachable {
        /// Name of the forge.
        forge: String,
        /// Cause of the failure.
        source: reqwest::Error,
    },
    /// Credential is missing a right, or is invalid.
    #[error("{forge} does not allow `{operation}`: {reason}; run `tamma forge check {forge}`")]
    Forbidden {
        /// Name of the forge.
        forge: String,
        /// Operation, such as `open a pull request`.
        operation: &'static str,
        /// Missing scope or permission, as far as the forge names it.
        reason: String,
    },
    /// Quota is used up, or the forge asks to slow down.
    #[error("{forge} accepts no requests until {until}")]
    RateLimited {
        /// Name of the forge.
        forge: String,
        /// Time at which requests are accepted again.
        until: Timestamp,
    },
    /// Repository, pull request or commit does not exist, or is invisible to the credential.
    #[error("{forge} has no {what}")]
    NotFound {
        /// Name of the forge.
        forge: String,
        /// Missing object.
        what: String,
    },
    /// Precondition does not hold: the head or the branch moved, or the object exists already. Look
    /// again.
    #[error("{forge} refused `{operation}` because something changed: {reason}")]
    Conflict {
        /// Name of the forge.
        forge: String,
        /// Operation.
        operation: &'static str,
        /// Reason of the forge.
        reason: String,
    },
    /// Forge refuses the operation as such, for example by a branch protection rule.
    #[error("{forge} refused `{operation}`: {reason}")]
    Refused {
        /// Name of the forge.
        forge: String,
        /// Operation.
        operation: &'static str,
        /// Reason of the forge.
        reason: String,
    },
    /// Response does not follow the API, or is too large.
    #[error("cannot read the response of {forge} to `{operation}`")]
    Unreadable {
        /// Name of the forge.
        forge: String,
        /// Operation.
        operation: &'static str,
    },
}

/// Client of one forge.
#[derive(Debug, Clone)]
pub enum Forge {
    /// GitHub.
    Github(github::GithubClient),
    /// GitLab.
    Gitlab(gitlab::GitlabClient),
    /// Gitea or Forgejo.
    Gitea(gitea::GiteaClient),
}

/// Pull request of a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundChange {
    /// Number of the pull request.
    pub number: u64,
    /// Address of its page.
    pub url: String,
    /// Newest commit of its branch.
    pub head: CommitId,
    /// Open, and neither merged nor closed.
    pub open: bool,
}

/// Pull request to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewChange {
    /// Branch with the change.
    pub branch: String,
    /// Branch that it goes to.
    pub base: String,
    /// Title.
    pub title: String,
    /// Description, in Markdown.
    pub body: String,
    /// Labels.
    pub labels: Vec<String>,
    /// Accounts that are asked for a review.
    pub reviewers: Vec<String>,
}

/// Changes of a pull request. `None` leaves a field as it is. A draft stays one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangeUpdate {
    /// Title.
    pub title: Option<String>,
    /// Description, in Markdown.
    pub body: Option<String>,
    /// Closes the pull request if `true`. Nothing is ever reopened.
    pub close: bool,
}

/// Our verdict about a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckReport {
    /// Name of the check. With the commit, it identifies the check.
    pub name: String,
    /// Commit.
    pub commit: CommitId,
    /// Result; `None` while it is not known.
    pub passed: Option<bool>,
    /// One line.
    pub title: String,
    /// Text, in Markdown.
    pub summary: String,
    /// Address of the task's page.
    pub details_url: Option<String>,
    /// Findings on lines. Forges without check runs do not show them.
    pub annotations: Vec<Annotation>,
}

/// Finding on a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotation {
    /// Path in the repository.
    pub path: String,
    /// Line, from 1.
    pub line: u32,
    /// Counts against the change.
    pub failure: bool,
    /// Text.
    pub message: String,
}

/// Object that a comment belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommentTarget {
    /// Issue, by its number.
    Issue(u64),
    /// Pull request, by its number. GitLab counts issues and pull requests apart.
    PullRequest(u64),
    /// Review thread of a pull request.
    Thread {
        /// Number of the pull request.
        number: u64,
        /// ID of the thread.
        thread: String,
        /// Marks the thread as resolved.
        resolve: bool,
    },
}

/// Request for facts about one pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedChange {
    /// Number of the pull request.
    pub number: u64,
    /// Validator of the last answer, from which the forge tells that nothing changed.
    pub cursor: Option<String>,
}

/// Facts about several pull requests of one repository.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observation {
    /// Facts of those that changed, each with its next cursor.
    pub changes: Vec<(PullRequestFacts, Option<String>)>,
    /// Part of the quota that is left, from 0 to 1; `None` if the forge does not say.
    pub quota_left: Option<f64>,
}

/// Comment of a person, as they wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadComment {
    /// ID of the thread.
    pub thread: String,
    /// ID of the comment.
    pub id: String,
    /// Author.
    pub by: String,
    /// The author is a person who can push.
    pub can_write: bool,
    /// Path and line that it is about.
    pub position: Option<(String, u32)>,
    /// Text, which is hostile until proven otherwise.
    pub text: String,
}

/// Issue that may become a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntakeIssue {
    /// Number of the issue.
    pub number: u64,
    /// Title.
    pub title: String,
    /// Text, in Markdown.
    pub body: String,
    /// Author.
    pub by: String,
    /// Author can push to the repository.
    pub can_write: bool,
    /// Address of its page.
    pub url: String,
    /// Labels.
    pub labels: Vec<String>,
    /// Open.
    pub open: bool,
    /// Time of the last change.
    pub updated_at: Timestamp,
    /// Comments since the given time, oldest first.
    pub comments: Vec<IssueComment>,
}

/// Comment on an issue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssueComment {
    /// ID.
    pub id: String,
    /// Author.
    pub by: String,
    /// Author can push to the repository.
    pub can_write: bool,
    /// Author is a program.
    pub bot: bool,
    /// Text.
    pub text: String,
}

/// Result of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeOutcome {
    /// Merged as this commit.
    Merged(CommitId),
    /// In the forge's queue.
    Queued,
}

/// What `tamma forge check` found out about a forge and its credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgeReport {
    /// Account of the credential.
    pub account: String,
    /// Version of the forge, if it says.
    pub version: Option<String>,
    /// Scopes or permissions that are missing, each with what needs it.
    pub missing: Vec<String>,
}

/// Delegates to the client of the kind.
macro_rules! delegate {
    ($self:ident, $client:ident => $call:expr) => {
        match $self {
            Forge::Github($client) => $call,
            Forge::Gitlab($client) => $call,
            Forge::Gitea($client) => $call,
        }
    };
}

impl Forge {
    /// Opens a client. Nothing is sent yet.
    pub fn open(settings: &ForgeSettings) -> Result<Self, Error> {
        Ok(match settings.kind {
            ForgeKind::Github => Self::Github(github::GithubClient::open(settings)?),
            ForgeKind::Gitlab => Self::Gitlab(gitlab::GitlabClient::open(settings)?),
            ForgeKind::Gitea => Self::Gitea(gitea::GiteaClient::open(settings)?),
        })
    }

    /// Returns the name of the forge: that of its settings file.
    pub fn name(&self) -> &str {
        delegate!(self, client => client.name())
    }

    /// Returns the kind of the forge.
    pub fn kind(&self) -> ForgeKind {
        match self {
            Self::Github(_) => ForgeKind::Github,
            Self::Gitlab(_) => ForgeKind::Gitlab,
            Self::Gitea(_) => ForgeKind::Gitea,
        }
    }

    /// Returns what the forge can do.
    pub fn capabilities(&self) -> ForgeCapabilities {
        match self {
            Self::Github(_) => github::CAPABILITIES,
            Self::Gitlab(_) => gitlab::CAPABILITIES,
            Self::Gitea(_) => gitea::CAPABILITIES,
        }
    }

    /// Returns the login for git, which agents never see.
    pub async fn git_login(&self) -> Result<GitLogin, Error> {
        match self {
            Self::Github(client) => client.git_login().await,
            Self::Gitlab(client) => Ok(client.git_login()),
            Self::Gitea(client) => client.git_login().await,
        }
    }

    /// Returns the part of the quota that was left after the last response, from 0 to 1, if the forge
    /// tells it.
    pub fn quota_left(&self) -> Option<f64> {
        delegate!(self, client => client.quota_left())
    }

    /// Checks the credential, and its rights in a repository.
    pub async fn check(&self, repository: Option<&str>) -> Result<ForgeReport, Error> {
        delegate!(self, client => client.check(repository).await)
    }

    /// Reads facts about pull requests. Those that did not change since their cursor are left out.
    pub async fn observe(
        &self,
        repository: &str,
        changes: &[ObservedChange],
    ) -> Result<Observation, Error> {
        delegate!(self, client => client.observe(repository, changes).await)
    }

    /// Finds the newest pull request of a branch, in any status.
    pub async fn find_change(
        &self,
        repository: &str,
        branch: &str,
        base: &str,
    ) -> Result<Option<FoundChange>, Error> {
        delegate!(self, client => client.find_change(repository, branch, base).await)
    }

    /// Opens a pull request.
    pub async fn open_change(
        &self,
        repository: &str,
        change: &NewChange,
    ) -> Result<FoundChange, Error> {
        delegate!(self, client => client.open_change(repository, change).await)
    }

    /// Changes a pull request.
    pub async fn update_change(
        &self,
        repository: &str,
        number: u64,
        update: &ChangeUpdate,
    ) -> Result<(), Error> {
        delegate!(self, client => client.update_change(repository, number, update).await)
    }

    /// Publishes a check, or replaces the one with its name and commit. Returns its ID.
    pub async fn publish_check(
        &self,
        repository: &str,
        report: &CheckReport,
    ) -> Result<String, Error> {
        delegate!(self, client => client.publish_check(repository, report).await)
    }

    /// Writes a comment, or replaces the one with this marker. Returns its ID.
    pub async fn upsert_comment(
        &self,
        repository: &str,
        target: &CommentTarget,
        marker: &str,
        body: &str,
    ) -> Result<String, Error> {
        delegate!(self, client => client.upsert_comment(repository, target, marker, body).await)
    }

    /// Merges a pull request if its head is still the expected one.
    pub async fn merge(
        &self,
        repository: &str,
        number: u64,
        expected_head: CommitId,
        method: MergeMethod,
    ) -> Result<MergeOutcome, Error> {
        delegate!(self, client => client.merge(repository, number, expected_head, method).await)
    }

    /// Marks a pull request as merged whose change is on its base branch. GitHub and GitLab notice that
    /// themselves. Marking it again has no effect.
    pub async fn mark_merged(
        &self,
        repository: &str,
        number: u64,
        commit: CommitId,
    ) -> Result<(), Error> {
        match self {
            Self::Gitea(client) => client.mark_merged(repository, number, commit).await,
            Self::Github(_) | Self::Gitlab(_) => Ok(()),
        }
    }

    /// Advances a branch to a descendant, if it still has the expected commit. Only for forges with
    /// `ref_cas`.
    pub async fn advance_branch(
        &self,
        repository: &str,
        branch: &str,
        expected_old: CommitId,
        new: CommitId,
    ) -> Result<(), Error> {
        match self {
            Self::Github(client) => {
                client.advance_branch(repository, branch, expected_old, new).await
            }
            Self::Gitlab(_) | Self::Gitea(_) => Err(Error::Refused {
                forge: self.name().to_owned(),
                operation: "advance a branch",
                reason: "this forge has no such operation; push with git".to_owned(),
            }),
        }
    }

    /// Lists issues that changed since a time, with their new comments.
    pub async fn list_intake(
        &self,
        repository: &str,
        since: Timestamp,
    ) -> Result<Vec<IntakeIssue>, Error> {
        delegate!(self, client => client.list_intake(repository, since).await)
    }

    /// Returns the account that set a label of an issue last, if the forge tells it and the account can
    /// push.
    pub async fn label_writer(
        &self,
        repository: &str,
        number: u64,
        label: &str,
    ) -> Result<Option<String>, Error> {
        delegate!(self, client => client.label_writer(repository, number, label).await)
    }

    /// Reads the comments of threads, without ours.
    pub async fn thread_comments(
        &self,
        repository: &str,
        number: u64,
        threads: &[String],
    ) -> Result<Vec<ThreadComment>, Error> {
        delegate!(self, client => client.thread_comments(repository, number, threads).await)
    }

    /// Reads the checks of a commit, without ours. At most [`MAX_FACTS`](tamma_core::forge::MAX_FACTS)
    /// are returned.
    pub async fn commit_checks(
        &self,
        repository: &str,
        commit: CommitId,
    ) -> Result<Vec<CheckFact>, Error> {
        delegate!(self, client => client.commit_checks(repository, commit).await)
    }

    /// Returns the end of the log of a failed check.
    pub async fn failed_check_log(&self, repository: &str, check: &str) -> Result<String, Error> {
        delegate!(self, client => client.failed_check_log(repository, check).await)
    }

    /// Runs a failed check again. Only for forges with `rerun_checks`.
    pub async fn rerun_check(&self, repository: &str, check: &str) -> Result<(), Error> {
        delegate!(self, client => client.rerun_check(repository, check).await)
    }
}
