//! Merges of another task's commit into a worktree's branch.

use tamma_core::ids::CommitId;

use super::refs::RUN_TRAILER;
use super::{Author, Worktree, checkpoint, refs, remove_path};
use crate::git::MERGE_VERSION;
use crate::mirror::Error;

/// Exit code of git for unknown options.
const USAGE_ERROR: i32 = 129;

/// Outcome of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeOutcome {
    /// Branch contains the other commit, at this commit.
    Merged(CommitId),
    /// Nothing was merged, for this reason.
    Refused(String),
}

impl Worktree {
    /// Merges a commit into the branch, and updates the files. Merging it again has no effect.
    ///
    /// No process may be working in the worktree. Uncommitted work stays in a checkpoint only. A
    /// conflict changes nothing.
    pub async fn merge(
        &self,
        other: CommitId,
        message: &str,
        author: &Author,
    ) -> Result<MergeOutcome, Error> {
        self.mirror.ensure_commit(other).await?;
        let _lock = self.lock().await?;
        let (_, refs) = self.save_uncommitted().await?;
        let head = refs.head().ok_or_else(|| self.missing_branch_error())?;
        let mut commit = head;
        if !self.is_descendant(other, head).await? {
            let tree = match self.merged_tree(head, other).await? {
                Ok(tree) => tree,
                Err(reason) => return Ok(MergeOutcome::Refused(reason)),
            };
            let message =
                format!("{}\n\n{RUN_TRAILER}: {}/{other}\n", message.trim_end(), self.task);
            commit = self.create_commit(&tree, &[head, other], &message, author).await?;
            self.move_ref(&refs::branch_ref(self.task), commit, Some(head)).await?;
        }
        // Also if the branch had the commit: an interrupted call may have left older files.
        if self.detached_head().await?.is_some() {
            self.git(["symbolic-ref", "HEAD", &refs::branch_ref(self.task)]).await?;
        }
        self.check_out(head, commit).await?;
        let mut refs = self.refs().await?;
        if let Some(reason) = checkpoint::push_refs(&self.mirror, self.task, &mut refs).await? {
            tracing::warn!(task = %self.task, %commit, reason, "failed to push merge; work is on this worker only");
        }
        Ok(MergeOutcome::Merged(commit))
    }

    /// Moves the branch to a commit that is not its descendant, or that somebody else made: after a
    /// rebase, or to take over commits of a person. Moving it again has no effect.
    ///
    /// No process may be working in the worktree. Uncommitted work stays in a checkpoint only. The
    /// commit is pushed to the hidden ref of the task, so other workers continue from it.
    pub async fn move_to(&self, commit: CommitId) -> Result<(), Error> {
        self.mirror.ensure_commit(commit).await?;
        let _lock = self.lock().await?;
        let (_, refs) = self.save_uncommitted().await?;
        let head = refs.head().ok_or_else(|| self.missing_branch_error())?;
        if head != commit {
            self.move_ref(&refs::branch_ref(self.task), commit, Some(head)).await?;
        }
        if self.detached_head().await?.is_some() {
            self.git(["symbolic-ref", "HEAD", &refs::branch_ref(self.task)]).await?;
        }
        self.check_out(head, commit).await?;
        // An interrupted call may have left older files, which are saved as uncommitted work by now.
        let (_, mut refs) = self.save_uncommitted().await?;
        let push_error = checkpoint::push_work(&self.mirror, self.task, &mut refs, commit).await?;
        if let Some(reason) = push_error {
            tracing::warn!(task = %self.task, %commit, reason, "failed to push commit; work is on this worker only");
        }
        Ok(())
    }

    /// Returns the tree of a merge, or the reason why there is none.
    async fn merged_tree(
        &self,
        ours: CommitId,
        theirs: CommitId,
    ) -> Result<Result<String, String>, Error> {
        let (ours, theirs) = (ours.to_string(), theirs.to_string());
        let call = ["merge-tree", "--write-tree", "--name-only", "--no-messages", &ours, &theirs];
        let output = self.mirror.git.bare(&self.mirror.path).output(&call).await?;
        match output.code {
            Some(0) => Ok(Ok(output.text())),
            // The tree with conflict markers, then the files.
            Some(1) => {
                let text = output.text();
                let files: Vec<_> = text.lines().skip(1).collect();
                Ok(Err(format!("conflict in {}", files.join(", "))))
            }
            Some(USAGE_ERROR) => {
                Ok(Err(format!("merging needs git {MERGE_VERSION} or newer on the worker")))
            }
            _ => {
                output.check(&call, &self.mirror.path)?;
                Ok(Err("git was stopped".to_owned()))
            }
        }
    }

    /// Updates index and files to a commit of the branch.
    async fn check_out(&self, from: CommitId, to: CommitId) -> Result<(), Error> {
        let sparse = &self.mirror.sparse;
        if sparse.is_empty() {
            self.git(["read-tree", "--reset", "-u", &to.to_string()]).await?;
            return Ok(());
        }
        for (path, action) in self.changed_files(from, to).await? {
            if action == tamma_core::plan::FileAction::Delete {
                remove_path(&self.path.join(path)).await?;
            }
        }
        sparse.check_out(|| self.own_git(), &self.path, &to.to_string()).await
    }
}
