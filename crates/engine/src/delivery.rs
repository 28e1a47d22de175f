//! Delivery of a change that passed review, exactly once.
//!
//! A delivery pushes the task's branch to the project's repository; merging and pull requests are
//! *planned*. Pushing again has no effect, so callers can retry after an unknown outcome.
//! Rejections by hooks or by other commits are not retried; they are reported to the task.

use tamma_core::ids::{CommitId, TaskId};

use crate::git::{GitOutput, QUERY_LIMIT, TRANSFER_LIMIT, remote_arguments};
use crate::mirror::{self, Mirror, task_branch};

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
    /// Push was rejected: a hook, a rule, or the branch is checked out there.
    #[error("the project's repository rejected `{branch}`: {text}")]
    Rejected {
        /// Branch of the task.
        branch: String,
        /// Error output of git.
        text: String,
    },
}

/// Outcome of a successful push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushOutcome {
    /// Branch was created or moved to the commit.
    Pushed,
    /// Branch was already at the commit.
    UpToDate,
}

/// Pushes the task's branch to the project's repository, at `commit`.
pub async fn push_task_branch(
    mirror: &Mirror,
    task: TaskId,
    commit: CommitId,
) -> Result<PushOutcome, Error> {
    let branch = task_branch(task);
    let name = format!("refs/heads/{branch}");
    // Usually the branch does not exist yet. The lease ensures that only the expected value is
    // replaced.
    let output = push(mirror, &name, None, commit).await?;
    if output.code == Some(0) {
        return Ok(if output.text().contains("[up to date]") {
            PushOutcome::UpToDate
        } else {
            PushOutcome::Pushed
        });
    }
    // The branch exists, or the commit was made on another host.
    let Some(remote_commit) = source_commit(mirror, &name).await? else {
        if mirror.find_commit(&commit.to_string()).await?.is_some() {
            return Err(Error::Rejected { branch, text: output.stderr });
        }
        mirror.fetch_work(task, commit).await?;
        return push_outcome(branch, push(mirror, &name, None, commit).await?);
    };
    mirror.fetch_work(task, commit).await?;
    let (older, newer) = (remote_commit.to_string(), commit.to_string());
    let call = ["merge-base", "--is-ancestor", &older, &newer];
    let output = mirror.git.bare(&mirror.path).output(&call).await.map_err(mirror::Error::from)?;
    if output.code != Some(0) {
        return Err(Error::Conflict { branch, remote_commit, commit });
    }
    push_outcome(branch, push(mirror, &name, Some(remote_commit), commit).await?)
}

fn push_outcome(branch: String, output: GitOutput) -> Result<PushOutcome, Error> {
    if output.code == Some(0) {
        Ok(PushOutcome::Pushed)
    } else {
        Err(Error::Rejected { branch, text: output.stderr })
    }
}

/// Returns the commit of a ref in the project's repository.
async fn source_commit(mirror: &Mirror, name: &str) -> Result<Option<CommitId>, mirror::Error> {
    let call = ["ls-remote", "--quiet"].into_iter();
    let call = call.chain(remote_arguments(&mirror.source, [name]));
    let listed = mirror.git.bare(&mirror.path).remote(QUERY_LIMIT).run(call).await?;
    match listed.split('\t').next().filter(|id| !id.is_empty()) {
        Some(id) => Ok(Some(id.parse()?)),
        None => Ok(None),
    }
}

async fn push(
    mirror: &Mirror,
    name: &str,
    from: Option<CommitId>,
    commit: CommitId,
) -> Result<GitOutput, mirror::Error> {
    let from = from.map(|from| from.to_string()).unwrap_or_default();
    let lease = format!("--force-with-lease={name}:{from}");
    let refspec = format!("{commit}:{name}");
    let call = ["push", "--porcelain", &lease].into_iter();
    let call: Vec<_> = call.chain(remote_arguments(&mirror.source, [refspec.as_str()])).collect();
    Ok(mirror.git.bare(&mirror.path).remote(TRANSFER_LIMIT).output(&call).await?)
}
