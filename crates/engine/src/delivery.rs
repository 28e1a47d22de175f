//! Delivery of a change that passed review, exactly once.
//!
//! A delivery pushes the task's branch to the project's repository. Merge queues and rebases push with
//! [`Mirror::push_ref`]. Pushing again has no effect, so callers can retry after an unknown outcome.
//! Rejections by hooks or by other commits are not retried; they are reported to the task. A push that
//! meets another one, such as that of a worker that was killed, is retried.

use tamma_core::ids::{CommitId, TaskId};

use crate::git::GitOutput;
use crate::mirror::{self, Mirror};

/// Error from a delivery.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Mirror, git or disk failed.
    #[error(transparent)]
    Mirror(#[from] mirror::Error),
    /// Branch exists and has other commits.
    #[error(
        "cannot push `{branch}`: its remote commit {remote_commit} is not an ancestor of {commit}"
    )]
    Conflict {
        /// Branch of the task.
        branch: String,
        /// Commit of the branch in the project's repository.
        remote_commit: CommitId,
        /// Commit to deliver.
        commit: CommitId,
    },
    /// Ref of the project's repository has another commit than expected.
    #[error("cannot push `{name}`: somebody moved it to {}", shown_commit(*found))]
    Moved {
        /// Name of the ref.
        name: String,
        /// Its commit, if it exists.
        found: Option<CommitId>,
    },
    /// Another push to the ref is in progress, or just ended.
    #[error("cannot push `{branch}` now: another push to it is in progress: {text}")]
    Busy {
        /// Branch of the task.
        branch: String,
        /// Error output of git.
        text: String,
    },
    /// Push was rejected: a hook, a rule, or the branch is checked out there.
    #[error("the project's repository rejected `{branch}`: {text}")]
    Rejected {
        /// Branch of the task.
        branch: String,
        /// Error output of git.
        text: String,
    },
}

fn shown_commit(commit: Option<CommitId>) -> String {
    commit.map_or_else(|| "no commit".to_owned(), |commit| commit.to_string())
}

/// Outcome of a successful push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushOutcome {
    /// Branch was created or moved to the commit.
    Pushed,
    /// Branch was already at the commit.
    UpToDate,
}

/// Pushes a task's branch to the project's repository, at `commit`.
pub async fn push_task_branch(
    mirror: &Mirror,
    (task, branch): (TaskId, &str),
    commit: CommitId,
) -> Result<PushOutcome, Error> {
    let branch = branch.to_owned();
    let name = format!("refs/heads/{branch}");
    // Usually the branch does not exist yet. The lease ensures that only the expected value is
    // replaced.
    let output = mirror.push_with_lease(&name, Some(commit), None).await?;
    if output.code == Some(0) {
        return Ok(push_outcome(output));
    }
    // The branch exists, or the commit was made on another host.
    let Some(remote_commit) = mirror.ls_remote_ref(&name).await? else {
        if mirror.find_commit(&commit.to_string()).await?.is_some() {
            return Err(rejection(branch, output));
        }
        mirror.fetch_work(task, commit).await?;
        return pushed_or_rejected(
            branch,
            mirror.push_with_lease(&name, Some(commit), None).await?,
        );
    };
    mirror.fetch_work(task, commit).await?;
    let (older, newer) = (remote_commit.to_string(), commit.to_string());
    let call = ["merge-base", "--is-ancestor", &older, &newer];
    let output = mirror.git.bare(&mirror.path).output(&call).await.map_err(mirror::Error::from)?;
    if output.code != Some(0) {
        return Err(Error::Conflict { branch, remote_commit, commit });
    }
    pushed_or_rejected(
        branch,
        mirror.push_with_lease(&name, Some(commit), Some(remote_commit)).await?,
    )
}

/// Pushes the task's branch again after a rebase, if it still has the commit that we pushed last.
///
/// The branch is rewritten. Commits of other people make it fail with
/// [`Moved`](Error::Moved).
pub async fn replace_task_branch(
    mirror: &Mirror,
    (task, branch): (TaskId, &str),
    pushed: CommitId,
    commit: CommitId,
) -> Result<PushOutcome, Error> {
    // Another host may have made it.
    mirror.fetch_work(task, commit).await?;
    let name = format!("refs/heads/{branch}");
    mirror.push_ref(&name, Some(commit), Some(pushed)).await
}

/// Returns the outcome of a successful push.
pub(crate) fn push_outcome(output: GitOutput) -> PushOutcome {
    if output.text().contains("[up to date]") { PushOutcome::UpToDate } else { PushOutcome::Pushed }
}

fn pushed_or_rejected(branch: String, output: GitOutput) -> Result<PushOutcome, Error> {
    if output.code == Some(0) { Ok(PushOutcome::Pushed) } else { Err(rejection(branch, output)) }
}

/// Returns the error of a push that the repository did not accept.
pub(crate) fn rejection(branch: String, output: GitOutput) -> Error {
    let text = output.stderr.clone();
    let is_locked = text.lines().any(|line| {
        let reasons = [".lock': File exists", "reference already exists", "but expected"];
        line.contains("cannot lock ref") && reasons.iter().any(|reason| line.contains(reason))
    });
    let is_busy = is_locked && !output.text().contains("hook declined");
    if is_busy { Error::Busy { branch, text } } else { Error::Rejected { branch, text } }
}
