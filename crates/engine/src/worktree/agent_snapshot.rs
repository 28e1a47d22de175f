//! Snapshot of an agent's files while it works.

use tamma_core::ids::CommitId;

use super::{Author, SnapshotMode, Worktree};
use crate::mirror::Error;

impl Worktree {
    /// Commits the current files without moving the branch or any other ref, and returns the commit.
    /// Without changes, that is the commit of the branch.
    pub async fn snapshot_commit(&self) -> Result<CommitId, Error> {
        let _lock = self.lock().await?;
        let branch = self.refs().await?.branch.ok_or_else(|| self.missing_branch_error())?;
        let tree = self.snapshot(branch.commit, SnapshotMode::BestEffort).await?;
        if tree == branch.tree {
            return Ok(branch.commit);
        }
        let tamma = Author { name: "Tamma".to_owned(), email: "tamma@localhost".to_owned() };
        let message = format!("Files of {} during a run\n", self.task);
        self.create_commit(&tree, &[branch.commit], &message, &tamma).await
    }
}
