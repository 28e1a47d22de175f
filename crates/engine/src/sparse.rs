//! Sparse checkouts: only some folders of a large repository are on disk.
//!
//! The files of the root and of the folders above a listed one are checked out too. The list is
//! stored with each checkout, so that files that are left out never count as removed.

use std::path::Path;

use serde::{Deserialize, Serialize};
use tokio::fs;

use crate::git::GitCommand;
use crate::mirror::{Error, disk_error};

/// File in git's directory of a checkout that holds its [`SparseFolders`].
const RECORD_FILE: &str = "tamma-sparse.json";

/// Folders that are checked out, from the root. Empty: everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SparseFolders(Vec<String>);

impl SparseFolders {
    /// Creates a list of folders.
    pub fn new(folders: &[String]) -> Self {
        Self(folders.iter().map(|folder| folder.trim_matches('/').to_owned()).collect())
    }

    /// Returns `true` if everything is checked out.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads the list of a checkout. Without one, everything is checked out.
    pub(crate) async fn read(git_dir: &Path) -> Self {
        let text = fs::read(git_dir.join(RECORD_FILE)).await.unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Stores the list of a new checkout.
    pub(crate) async fn save(&self, git_dir: &Path) -> Result<(), Error> {
        if self.is_empty() {
            return Ok(());
        }
        let (path, text) = (git_dir.join(RECORD_FILE), serde_json::to_vec(self));
        let text = text.unwrap_or_default();
        fs::write(&path, text).await.map_err(disk_error("write", &path))
    }

    /// Returns `true` if a file is checked out.
    pub(crate) fn includes(&self, path: &str) -> bool {
        let Some((folder, _)) = path.rsplit_once('/') else { return true };
        let is_below = |path: &str, above: &str| {
            path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.is_empty() || self.0.iter().any(|it| is_below(folder, it) || is_below(it, folder))
    }

    /// Marks the files that are left out, in the index that `git` uses. A file that exists all the
    /// same is part of the work.
    pub(crate) async fn mark<'a>(
        &self,
        git: impl Fn() -> GitCommand<'a>,
        worktree: &Path,
    ) -> Result<(), Error> {
        if self.is_empty() {
            return Ok(());
        }
        let listed = git().run(["ls-files", "-z"]).await?;
        let left_out = listed
            .split('\0')
            .filter(|path| !path.is_empty() && !self.includes(path))
            .filter(|path| worktree.join(path).symlink_metadata().is_err());
        let paths: String = left_out.flat_map(|path| [path, "\0"]).collect();
        if !paths.is_empty() {
            let call = ["update-index", "--skip-worktree", "-z", "--stdin"];
            git().input(paths).run(call).await?;
        }
        Ok(())
    }

    /// Checks out a tree. Files that are not part of it stay.
    pub(crate) async fn check_out<'a>(
        &self,
        git: impl Fn() -> GitCommand<'a>,
        worktree: &Path,
        tree: &str,
    ) -> Result<(), Error> {
        git().run(["read-tree", "--reset", tree]).await?;
        self.mark(&git, worktree).await?;
        // Exits with 1 if a file is missing or has changed.
        git().output(&["update-index", "-q", "--refresh"]).await?;
        let changed = git().run(["diff-files", "-z", "--name-only", "--ignore-submodules"]).await?;
        if !changed.is_empty() {
            let call = ["checkout-index", "--index", "--force", "-z", "--stdin"];
            git().input(changed).run(call).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_folders_are_included_with_the_files_above_them() {
        let folders = SparseFolders::new(&["web/app/".to_owned(), "lib".to_owned()]);
        for path in ["README.md", "web/package.json", "web/app/a.ts", "web/app/x/y.ts", "lib/a"] {
            assert!(folders.includes(path), "{path}");
        }
        for path in ["api/a.go", "web/other/a.ts", "library/a", "web/application/a"] {
            assert!(!folders.includes(path), "{path}");
        }
        assert!(SparseFolders::default().includes("api/a.go"));
    }
}
