//! Commits with conflicts, for an agent that resolves them.

use tamma_core::ids::CommitId;
use tamma_core::task_loop::Timestamp;

use super::refs::RUN_TRAILER;
use super::{Author, Worktree};
use crate::mirror::Error;

impl Worktree {
    /// Moves the branch to one commit on top of `onto` with the change of `head`. Conflicting lines are
    /// between the usual markers. The same arguments make the same commit.
    ///
    /// No process may be working in the worktree. Uncommitted work stays in a checkpoint only.
    pub async fn rebase_with_conflicts(
        &self,
        head: CommitId,
        onto: CommitId,
        author: &Author,
        at: Timestamp,
    ) -> Result<CommitId, Error> {
        self.mirror.ensure_commit(head).await?;
        self.mirror.ensure_commit(onto).await?;
        let (ours, theirs) = (onto.to_string(), head.to_string());
        let call = ["merge-tree", "--write-tree", "--name-only", "--no-messages", &ours, &theirs];
        let output = self.mirror.git.bare(&self.mirror.path).output(&call).await?;
        // Exit code 1 means conflicts; the tree comes first in any case.
        if output.code != Some(1) {
            output.check(&call, &self.mirror.path)?;
        }
        let text = output.text();
        let tree = text.lines().next().unwrap_or_default();
        let format = ["log", "-1", "--format=%B", &theirs];
        let message = self.mirror.git.bare(&self.mirror.path).run(format).await?;
        let message: Vec<_> =
            message.lines().filter(|line| !line.starts_with(RUN_TRAILER)).collect();
        let message = format!(
            "{}\n\n{RUN_TRAILER}: {}/rebase-{head}\n",
            message.join("\n").trim_end(),
            self.task
        );
        let commit = self.mirror.commit_tree(tree, &[onto], &message, author, at).await?;
        self.move_to(commit).await?;
        Ok(commit)
    }
}
