//! Discards changes of files that must not be committed.

use std::collections::BTreeSet;

use super::snapshot::{join, terminated};
use super::{SNAPSHOT_INDEX, SnapshotMode, Worktree, remove_path};
use crate::mirror::Error;

impl Worktree {
    /// Replaces changed files with those of the branch, and removes files that it does not have.
    /// Other changes stay.
    pub async fn restore(&self, paths: &BTreeSet<String>) -> Result<(), Error> {
        let _lock = self.lock().await?;
        let head = self.head().await?;
        let tree = self.snapshot(head, SnapshotMode::BestEffort).await?;
        let head = head.to_string();
        // In bytes, because names that are not UTF-8 must be found on disk.
        let call = ["diff-tree", "-r", "-z", "--no-renames", "--name-status", &head, &tree];
        let listed = self.own_git().run_bytes(call).await?;
        let mut parts = listed.split(|byte| *byte == 0);
        let mut changed = Vec::new();
        while let (Some(status), Some(path)) = (parts.next(), parts.next()) {
            if !paths.contains(&*String::from_utf8_lossy(path)) {
                continue;
            }
            if status == b"A" {
                remove_path(&join(&self.path, path)).await?;
            } else {
                changed.push(path.to_vec());
            }
        }
        if changed.is_empty() {
            return Ok(());
        }
        let index = self.git_dir().join(SNAPSHOT_INDEX);
        let git = || self.own_git().env("GIT_INDEX_FILE", &index);
        git().run(["read-tree", &head]).await?;
        let call = ["checkout-index", "--force", "-z", "--stdin"];
        git().input(terminated(&changed)).run(call).await?;
        Ok(())
    }
}
