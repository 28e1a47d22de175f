//! Plain folders of an evaluation: repositories made from them, files of a commit without git, and
//! commands that check such files in a sandbox.
//!
//! Nothing here belongs to a task. The folders are outside every worktree, so an agent never sees
//! the checks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tamma_core::ids::CommitId;
use tamma_core::operator::ResourceLimits;
use tamma_core::task_loop::Timestamp;
use tokio::fs;
use tokio_util::sync::CancellationToken;

use crate::captured::{CapturedRun, run_captured};
use crate::git::Git;
use crate::mirror::{Error, disk_error};
use crate::process::{self, Launch, ProcessRecords, RunId};
use crate::sandbox::{Launcher, Network, Sandbox, SandboxKind};

/// Author of the commits, and their date: the same files give the same commit.
const COMMIT_NAME: &str = "Tamma evaluation";
const COMMIT_EMAIL: &str = "evaluation@tamma.invalid";
const COMMIT_DATE: &str = "2026-01-01T00:00:00+00:00";

/// Makes a folder a repository with all its files in one commit, on the branch `main`.
pub async fn create_repository(git: &Git, folder: &Path) -> Result<(), Error> {
    let git_dir = folder.join(".git");
    let in_folder = || git.in_worktree(&git_dir, folder);
    in_folder().run(["init", "--quiet", "--initial-branch=main"]).await?;
    in_folder().run(["add", "--all", "--force"]).await?;
    let commit = ["-c", "commit.gpgSign=false", "commit", "--quiet", "--message", "Start"];
    in_folder()
        .env("GIT_AUTHOR_NAME", COMMIT_NAME)
        .env("GIT_AUTHOR_EMAIL", COMMIT_EMAIL)
        .env("GIT_AUTHOR_DATE", COMMIT_DATE)
        .env("GIT_COMMITTER_NAME", COMMIT_NAME)
        .env("GIT_COMMITTER_EMAIL", COMMIT_EMAIL)
        .env("GIT_COMMITTER_DATE", COMMIT_DATE)
        .run(commit)
        .await?;
    Ok(())
}

/// Applies a patch to the files of a folder that is no repository.
pub async fn apply_patch(git: &Git, folder: &Path, patch: &str) -> Result<(), Error> {
    git.outside(folder).input(patch).run(["apply", "--whitespace=nowarn", "-"]).await?;
    Ok(())
}

/// Writes the files of a commit to a folder, which it creates, without a repository.
pub async fn export_commit(
    git: &Git,
    repository: &Path,
    commit: CommitId,
    folder: &Path,
) -> Result<(), Error> {
    fs::create_dir_all(folder).await.map_err(disk_error("create", folder))?;
    let index = folder.with_extension("index");
    let in_folder = || git.in_worktree(repository, folder).env("GIT_INDEX_FILE", &index);
    in_folder().run(["read-tree", &commit.to_string()]).await?;
    in_folder().run(["checkout-index", "--all", "--force"]).await?;
    fs::remove_file(&index).await.map_err(disk_error("remove", &index))
}

/// Command that checks the files of a folder, without network access.
#[derive(Debug, Clone)]
pub struct FolderCheck {
    /// Command line, run by `sh -c` in the folder.
    pub command: String,
    /// Folder, which the command can change.
    pub folder: PathBuf,
    /// Home directory of the command, which exists.
    pub home: PathBuf,
    /// Environment, to which `HOME` and `REPORT` are added. Nothing is inherited.
    pub env: BTreeMap<String, String>,
    /// Further readable paths, such as toolchains.
    pub readable: Vec<PathBuf>,
    /// Hidden paths below readable ones.
    pub hidden: Vec<PathBuf>,
    /// Mechanism of the sandbox.
    pub sandbox: SandboxKind,
    /// First program in the sandbox.
    pub launcher: Launcher,
    /// Time limit.
    pub time_limit: Duration,
}

/// Result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FolderCheckRun {
    /// The command exited with 0 within its time limit.
    pub passed: bool,
    /// End of its standard output, followed by the end of its standard error.
    pub output: String,
}

impl FolderCheck {
    /// Runs the command, and returns once all its processes have ended.
    pub async fn run(
        &self,
        (run, now): (RunId, Timestamp),
        records: &ProcessRecords,
    ) -> Result<FolderCheckRun, process::Error> {
        let mut env = self.env.clone();
        env.insert("HOME".to_owned(), self.home.display().to_string());
        env.insert("REPORT".to_owned(), self.home.join("report").display().to_string());
        let launch = Launch {
            program: PathBuf::from("/bin/sh"),
            args: vec!["-c".to_owned(), self.command.clone()],
            env,
            working_dir: self.folder.clone(),
            run,
            now,
        };
        let sandbox = self.boundary();
        let launch = sandbox.wrap(launch);
        let never = CancellationToken::new();
        let launch = (&launch, Some(sandbox.limits));
        let ended = run_captured(launch, records, self.time_limit, &never).await?;
        Ok(ended.map_or_else(FolderCheckRun::default, |CapturedRun { status, output, .. }| {
            let passed = status.is_some_and(|status| status.success());
            FolderCheckRun { passed, output }
        }))
    }

    fn boundary(&self) -> Sandbox {
        Sandbox {
            kind: self.sandbox,
            launcher: self.launcher.clone(),
            worktree: self.folder.clone(),
            read_only: false,
            repository: None,
            home: self.home.clone(),
            readable: self.readable.clone(),
            writable: Vec::new(),
            protected: Vec::new(),
            hidden: self.hidden.clone(),
            network: Network::Disabled,
            limits: ResourceLimits::default(),
            git: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_patch_is_applied_and_a_commit_is_exported() {
        let git = Git::find("git").await.expect("git");
        let folder = tempfile::tempdir().expect("folder");
        let repository = folder.path().join("repository");
        std::fs::create_dir(&repository).expect("made");
        std::fs::write(repository.join("a.txt"), "one\n").expect("written");
        create_repository(&git, &repository).await.expect("a repository");
        let commit =
            git.bare(&repository.join(".git")).run(["rev-parse", "HEAD"]).await.expect("a commit");
        let out = folder.path().join("out");
        let commit = commit.parse().expect("a commit ID");
        export_commit(&git, &repository.join(".git"), commit, &out).await.expect("exported");
        let patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n";
        apply_patch(&git, &out, patch).await.expect("applied");
        assert_eq!(std::fs::read_to_string(out.join("a.txt")).expect("read"), "two\n");
        assert!(!out.join(".git").exists());
        assert!(apply_patch(&git, &out, patch).await.is_err());
    }
}
