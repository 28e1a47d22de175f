//! Delivery: putting a passed change where it belongs, exactly once.
//!
//! Today that is the branch of the task in the project's repository; merging and pull requests are
//! *planned*. Doing it again changes nothing, so a caller that does not know whether it succeeded
//! simply asks again. What a hook or another's commit refuses is not retried: its text goes back to
//! the task.

use tamma_core::ids::{CommitId, TaskId};

use crate::git::Answer;
use crate::mirror::{self, Mirror, branch};

/// What can go wrong with a delivery.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The mirror, git or the disk failed.
    #[error(transparent)]
    Mirror(#[from] mirror::Error),
    /// The branch is there and has commits that are not ours.
    #[error("`{branch}` is at {found} in the project's repository, which is not part of {commit}")]
    Conflict {
        /// The branch.
        branch: String,
        /// Where it is.
        found: CommitId,
        /// What was to be delivered.
        commit: CommitId,
    },
    /// The project's repository did not take it: a hook, a rule, or the branch is checked out there.
    #[error("the project's repository did not take `{branch}`: {text}")]
    Rejected {
        /// The branch.
        branch: String,
        /// What it said.
        text: String,
    },
}

/// What a delivery came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivered {
    /// The branch is now at the commit.
    Now,
    /// It was already, so nothing was done.
    Before,
}

/// Leaves the task's branch in the project's repository, at the commit.
pub async fn branch_to_source(
    mirror: &Mirror,
    task: TaskId,
    commit: CommitId,
) -> Result<Delivered, Error> {
    let branch = branch(task);
    let name = format!("refs/heads/{branch}");
    // Most often it is not there yet. The lease makes it certain that what we expect is what we
    // replace.
    let answer = push(mirror, &name, None, commit).await?;
    if answer.code == Some(0) {
        return Ok(if answer.stdout.contains("[up to date]") {
            Delivered::Before
        } else {
            Delivered::Now
        });
    }
    // It was, or the commit was made by another host.
    let Some(found) = on_source(mirror, &name).await? else {
        if mirror.commit(&commit.to_string()).await?.is_some() {
            return Err(Error::Rejected { branch, text: answer.stderr });
        }
        mirror.bring_work(task, commit).await?;
        return came_to(branch, push(mirror, &name, None, commit).await?);
    };
    mirror.bring_work(task, commit).await?;
    let (older, newer) = (found.to_string(), commit.to_string());
    let call = ["merge-base", "--is-ancestor", &older, &newer];
    let answer = mirror.git.at(&mirror.path).ask(&call).await.map_err(mirror::Error::from)?;
    if answer.code != Some(0) {
        return Err(Error::Conflict { branch, found, commit });
    }
    came_to(branch, push(mirror, &name, Some(found), commit).await?)
}

fn came_to(branch: String, answer: Answer) -> Result<Delivered, Error> {
    if answer.code == Some(0) {
        Ok(Delivered::Now)
    } else {
        Err(Error::Rejected { branch, text: answer.stderr })
    }
}

/// Where a branch of the project's repository is.
async fn on_source(mirror: &Mirror, name: &str) -> Result<Option<CommitId>, mirror::Error> {
    let call = ["ls-remote", "--quiet", &mirror.source, name];
    let listed = mirror.git.at(&mirror.path).run(call).await?;
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
) -> Result<Answer, mirror::Error> {
    let from = from.map(|from| from.to_string()).unwrap_or_default();
    let lease = format!("--force-with-lease={name}:{from}");
    let refspec = format!("{commit}:{name}");
    let call = ["push", "--porcelain", &lease, &mirror.source, &refspec];
    Ok(mirror.git.at(&mirror.path).ask(&call).await?)
}
