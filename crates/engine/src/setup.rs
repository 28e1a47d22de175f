//! Setup of a checkout: installs dependencies, so that agents and gates need no network.
//!
//! The command runs in the sandbox of the checkout, with network access. A record in the mirror,
//! which no agent can write, names the state of the lock files that the checkout was prepared for
//! and the files that appeared. These files never enter a commit, and are kept when the checkout is
//! cleaned. Changes to other files are undone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tamma_core::ids::Digest;
use tamma_core::task_loop::Timestamp;
use tokio::fs;
use tokio_util::sync::CancellationToken;

use crate::captured::{CapturedRun, run_captured};
use crate::files::replace_file;
use crate::git::{Git, GitCommand};
use crate::mirror::{self, disk_error};
use crate::process::{self, Launch, ProcessRecords, RunId};
use crate::sandbox::Sandbox;
use crate::special_files::remove_special_files;

/// File in git's directory of a checkout that holds the [`SetupRecord`].
const RECORD_FILE: &str = "tamma-setup.json";

/// Maximum size of a lock file, in bytes. Of a larger one, only the size counts.
const MAX_LOCK_BYTES: u64 = 64 * 1024 * 1024;

/// Error that prevented a setup from running.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Checkout failed.
    #[error(transparent)]
    Checkout(#[from] mirror::Error),
    /// Process could not be recorded or stopped.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// Setup was cancelled by the caller.
    #[error("the setup was cancelled")]
    Cancelled,
}

impl From<crate::git::Error> for Error {
    fn from(error: crate::git::Error) -> Self {
        Self::Checkout(error.into())
    }
}

/// Configured setup of one checkout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetupCommand {
    /// Command line, run by `sh -c`.
    pub command: String,
    /// Globs of the files that decide whether it runs again.
    pub lock_globs: Vec<String>,
    /// Time limit.
    pub time_limit: Duration,
    /// Environment, including `HOME`. Nothing is inherited.
    pub env: BTreeMap<String, String>,
    /// Sandbox with the checkout as its worktree.
    pub sandbox: Sandbox,
}

/// Result of a setup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetupOutcome {
    /// The checkout was already prepared for these lock files.
    UpToDate,
    /// The command succeeded.
    Done,
    /// The command failed.
    Failed(SetupFailure),
}

/// Setup that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetupFailure {
    /// Observed cause, such as `exit code 1`.
    pub cause: String,
    /// Exit code, if the command ended by itself.
    pub exit_code: Option<i32>,
    /// End of its output.
    pub output: String,
}

/// Checkout to prepare.
pub(crate) struct SetupPlace<'a> {
    pub(crate) git: &'a Git,
    pub(crate) path: &'a Path,
    /// Git's directory of the checkout, in the mirror.
    pub(crate) git_dir: &'a Path,
    /// Index that has every file of the checkout that is not ignored.
    pub(crate) index: &'a Path,
}

/// Record of the last setup of a checkout.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SetupRecord {
    /// State that the checkout was prepared for; empty if the last setup did not succeed.
    state: String,
    /// Files and folders that setups created. Folders end with a slash.
    #[serde(default)]
    created: BTreeSet<String>,
}

impl SetupRecord {
    /// Reads the record of a checkout. A missing or damaged one is empty.
    pub(crate) async fn read(git_dir: &Path) -> Self {
        let text = fs::read(git_dir.join(RECORD_FILE)).await.unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    async fn write(&self, git_dir: &Path) -> Result<(), Error> {
        let (path, text) = (git_dir.join(RECORD_FILE), serde_json::to_vec(self));
        let text = text.unwrap_or_default();
        Ok(replace_file(&path, &text).await.map_err(disk_error("write", &path))?)
    }

    /// Returns pathspecs that exclude the created files.
    pub(crate) fn exclusions(&self) -> impl Iterator<Item = String> {
        self.created.iter().map(|path| format!(":(exclude,literal){}", path.trim_end_matches('/')))
    }

    /// Returns the created files as patterns of `.gitignore`.
    pub(crate) fn ignore_patterns(&self) -> impl Iterator<Item = String> {
        self.created.iter().map(|path| {
            let mut pattern = String::from("/");
            for letter in path.chars() {
                if "\\*?[]!# ".contains(letter) {
                    pattern.push('\\');
                }
                pattern.push(letter);
            }
            pattern
        })
    }
}

impl SetupCommand {
    /// Returns `true` if the checkout is not prepared for its lock files.
    pub(crate) async fn is_needed(&self, place: &SetupPlace<'_>) -> Result<bool, Error> {
        remove_special_files(place.path).await?;
        let record = SetupRecord::read(place.git_dir).await;
        Ok(record.state != self.state(place, &record).await?)
    }

    /// Prepares the checkout.
    pub(crate) async fn run(
        &self,
        place: &SetupPlace<'_>,
        (run, now): (RunId, Timestamp),
        records: &ProcessRecords,
        cancel: &CancellationToken,
    ) -> Result<SetupOutcome, Error> {
        let before = SetupRecord::read(place.git_dir).await;
        let state = self.state(place, &before).await?;
        let ignored = place.untracked(true).await?;
        // If we die now, the next attempt starts again.
        let unfinished = SetupRecord { state: String::new(), created: before.created };
        unfinished.write(place.git_dir).await?;
        let launch = Launch {
            program: PathBuf::from("/bin/sh"),
            args: vec!["-c".to_owned(), self.command.clone()],
            env: self.env.clone(),
            working_dir: place.path.to_owned(),
            run,
            now,
        };
        let launch = self.sandbox.wrap(launch);
        let launch = (&launch, Some(self.sandbox.limits));
        let captured = match run_captured(launch, records, self.time_limit, cancel).await {
            Ok(captured) => captured,
            Err(error @ process::Error::Start { .. }) => {
                let (cause, output) = (error.to_string(), String::new());
                return Ok(SetupOutcome::Failed(SetupFailure { cause, exit_code: None, output }));
            }
            Err(error) => return Err(error.into()),
        };
        remove_special_files(place.path).await?;
        let mut created = unfinished.created;
        created.extend(place.untracked(false).await?);
        created.extend(place.untracked(true).await?.difference(&ignored).cloned());
        place.restore_changed().await?;
        let Some(CapturedRun { status, output, exceeded }) = captured else {
            SetupRecord { state: String::new(), created }.write(place.git_dir).await?;
            return Err(Error::Cancelled);
        };
        let succeeded = status.is_some_and(|status| status.success());
        let state = if succeeded { state } else { String::new() };
        SetupRecord { state, created }.write(place.git_dir).await?;
        if succeeded {
            return Ok(SetupOutcome::Done);
        }
        let cause = match (exceeded, status.map(|status| status.code())) {
            (Some(exceeded), _) => exceeded.to_string(),
            (None, None) => format!("it took longer than {} seconds", self.time_limit.as_secs()),
            (None, Some(Some(code))) => format!("exit code {code}"),
            (None, Some(None)) => "killed by a signal".to_owned(),
        };
        let exit_code = status.and_then(|status| status.code());
        Ok(SetupOutcome::Failed(SetupFailure { cause, exit_code, output }))
    }

    /// Returns a hash of the command and of the content of all lock files.
    async fn state(&self, place: &SetupPlace<'_>, record: &SetupRecord) -> Result<String, Error> {
        // Globs were validated when the rules were loaded.
        let globs = self.lock_globs.iter().filter_map(|glob| globset::Glob::new(glob).ok());
        let mut matcher = globset::GlobSetBuilder::new();
        for glob in globs {
            matcher.add(glob);
        }
        let matcher = matcher.build().unwrap_or_default();
        let call = ["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "."];
        let call = call.into_iter().map(str::to_owned).chain(record.exclusions());
        let listed = place.own_git().run(call).await?;
        let files: BTreeSet<&str> =
            listed.split('\0').filter(|path| !path.is_empty() && matcher.is_match(path)).collect();
        let mut text = self.command.clone();
        for file in files {
            text = format!("{text}\0{file}\0{}", content_hash(&place.path.join(file)).await);
        }
        Ok(Digest::of(text.as_bytes()).to_string())
    }
}

/// Returns a hash of a file's content. The target of a link is not read.
async fn content_hash(path: &Path) -> String {
    match fs::symlink_metadata(path).await {
        Ok(metadata) if metadata.is_file() && metadata.len() <= MAX_LOCK_BYTES => {
            let bytes = fs::read(path).await.unwrap_or_default();
            Digest::of(&bytes).to_string()
        }
        Ok(metadata) => format!("{:?} {}", metadata.file_type(), metadata.len()),
        Err(_) => "missing".to_owned(),
    }
}

impl SetupPlace<'_> {
    /// Starts a git command that ignores the link in the checkout, which the setup could change.
    fn own_git(&self) -> GitCommand<'_> {
        self.git.in_worktree(self.git_dir, self.path)
    }

    /// Returns untracked files, or ignored ones. A folder without tracked files is one entry.
    async fn untracked(&self, ignored: bool) -> Result<BTreeSet<String>, Error> {
        let mut call = vec!["ls-files", "-z", "--others", "--exclude-standard"];
        call.extend(["--directory", "--no-empty-directory"]);
        call.extend(ignored.then_some("--ignored"));
        let listed = self.own_git().env("GIT_INDEX_FILE", self.index).run(call).await?;
        Ok(listed.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
    }

    /// Restores files of the index that the setup changed or removed.
    async fn restore_changed(&self) -> Result<(), Error> {
        let git = || self.own_git().env("GIT_INDEX_FILE", self.index);
        // Exits with 1 if a file has changed.
        git().output(&["update-index", "-q", "--refresh"]).await?;
        let changed = git().run(["diff-files", "-z", "--name-only", "--ignore-submodules"]).await?;
        if !changed.is_empty() {
            let call = ["checkout-index", "--force", "-z", "--stdin"];
            git().input(changed).run(call).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn created_files_are_excluded_literally() {
        let created = ["node_modules/", "a [b].txt"].map(str::to_owned).into();
        let record = SetupRecord { state: String::new(), created };
        let exclusions: Vec<_> = record.exclusions().collect();
        assert_eq!(exclusions, [":(exclude,literal)a [b].txt", ":(exclude,literal)node_modules"]);
        let patterns: Vec<_> = record.ignore_patterns().collect();
        assert_eq!(patterns, ["/a\\ \\[b\\].txt", "/node_modules/"]);
    }
}
