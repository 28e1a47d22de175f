//! Git repository that a command runs in.
//!
//! Git calls are not retried: a failure needs a person.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tamma_server::RepositoryContents;

use crate::survey::{INSPECTED_FILES, RootFiles};

/// Maximum size of an inspected file, in bytes. Larger ones are rarely written by hand.
const MAX_FILE_BYTES: u64 = 1_000_000;

/// Time limit for inspecting a repository with git.
const GIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Repository with a work tree.
pub(crate) struct Repository {
    pub(crate) root: PathBuf,
}

impl Repository {
    /// Creates a repository in a folder, with `main` as its branch.
    pub(crate) fn init(folder: &Path) -> Result<Self> {
        let output = run_git(folder, &["init", "--quiet", "--initial-branch=main"])?;
        if !output.status.success() {
            bail!("git cannot create a repository: {}", git_message(&output));
        }
        Self::containing(folder)
    }

    /// Finds the repository that contains a folder.
    pub(crate) fn containing(folder: &Path) -> Result<Self> {
        if !folder.is_dir() {
            bail!("folder not found: {}", folder.display());
        }
        let output = run_git(folder, &["rev-parse", "--show-toplevel"])?;
        if output.status.success() {
            let path =
                String::from_utf8(output.stdout).context("repository path is not valid UTF-8")?;
            return Ok(Self { root: PathBuf::from(path.trim_end_matches(['\n', '\r'])) });
        }
        let message = git_message(&output);
        if message.contains("not a git repository") {
            bail!(
                "{} is not in a git repository\n  help: run `git init` there, then `tamma init` \
                 again",
                folder.display()
            );
        }
        bail!("git cannot open {}: {message}", folder.display());
    }

    /// Returns the names in the root folder, with the content of files that the survey reads.
    pub(crate) fn root_files(&self) -> Result<RootFiles> {
        let cannot = || format!("cannot read {}", self.root.display());
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(&self.root).with_context(cannot)? {
            let entry = entry.with_context(cannot)?;
            // No known file has a name that is not UTF-8.
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let path = entry.path();
            let readable =
                || path.metadata().is_ok_and(|it| it.is_file() && it.len() <= MAX_FILE_BYTES);
            let text = if INSPECTED_FILES.contains(&name.as_str()) && readable() {
                let bytes = fs::read(&path);
                bytes.with_context(|| format!("cannot read {}", path.display()))?
            } else {
                Vec::new()
            };
            files.insert(name, String::from_utf8_lossy(&text).into_owned());
        }
        Ok(RootFiles(files))
    }

    /// Lists tracked and untracked files, without ignored ones.
    pub(crate) fn list_files(&self) -> Result<Vec<String>> {
        let listed = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let output = run_git(&self.root, &listed)?;
        if !output.status.success() {
            bail!("git cannot list {}: {}", self.root.display(), git_message(&output));
        }
        let files = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(files.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
    }

    /// Returns `true` if the repository has a commit that work can start from.
    pub(crate) fn has_commit(&self) -> Result<bool> {
        let head = run_git(&self.root, &["rev-parse", "--verify", "--quiet", "HEAD"])?;
        Ok(head.status.success())
    }

    /// Commits one file, or all files of a folder, and returns the short commit hash.
    pub(crate) fn commit(&self, file: &str, message: &str) -> Result<String> {
        let mut arguments = Vec::new();
        if !self.has_identity()? {
            arguments.extend(["-c", "user.name=Tamma", "-c", "user.email=tamma@localhost"]);
        }
        // `--only` leaves other staged changes in the index.
        arguments.extend(["commit", "--quiet", "--message", message, "--only", "--", file]);
        for arguments in [&["add", "--", file][..], &arguments] {
            let output = run_git(&self.root, arguments)?;
            if !output.status.success() {
                bail!("{}", git_message(&output));
            }
        }
        let head = run_git(&self.root, &["rev-parse", "--short", "HEAD"])?;
        Ok(String::from_utf8_lossy(&head.stdout).trim().to_owned())
    }

    /// Returns `true` if git has a configured identity, without guessing one from the host name.
    fn has_identity(&self) -> Result<bool> {
        for who in ["GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT"] {
            if !run_git(&self.root, &["-c", "user.useConfigOnly=true", "var", who])?
                .status
                .success()
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns the files of a repository and those of `commits` that it lacks. Returns `None` if it is not
/// on this machine or git takes too long; the caller works without it.
pub(crate) async fn inspect(
    repository: String,
    commits: Vec<String>,
) -> Option<RepositoryContents> {
    let folder = PathBuf::from(repository.strip_prefix("file://").unwrap_or(&repository));
    let inspection = tokio::task::spawn_blocking(move || inspect_blocking(&folder, commits));
    tokio::time::timeout(GIT_TIMEOUT, inspection).await.ok()?.ok()?
}

fn inspect_blocking(folder: &Path, commits: Vec<String>) -> Option<RepositoryContents> {
    let listed = run_git(folder, &["ls-tree", "-r", "-z", "--name-only", "HEAD"]).ok()?;
    if !listed.status.success() {
        return None;
    }
    let files = String::from_utf8_lossy(&listed.stdout);
    let files = files.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
    // Only hexadecimal digits: other text could be parsed as an option.
    let is_commit = |commit: &String| {
        commit.len() >= 4 && commit.chars().all(|digit| digit.is_ascii_hexdigit())
    };
    let commits: Vec<String> = commits.into_iter().filter(is_commit).collect();
    let mut missing_commits = Vec::new();
    // Batches keep the command line below the system's limit.
    for batch in commits.chunks(500) {
        let mut arguments = vec!["rev-list", "--no-walk", "--ignore-missing"];
        arguments.extend(batch.iter().map(String::as_str));
        let listed = run_git(folder, &arguments).ok().filter(|output| output.status.success())?;
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let has = |commit: &String| listed.lines().any(|line| line.starts_with(commit.as_str()));
        missing_commits.extend(batch.iter().filter(|commit| !has(commit)).cloned());
    }
    Some(RepositoryContents { files, missing_commits })
}

/// Runs git in a folder.
fn run_git(folder: &Path, arguments: &[&str]) -> Result<Output> {
    #[expect(
        clippy::disallowed_methods,
        reason = "git is short-lived and runs for the person at the terminal, not for a task"
    )]
    let mut command = Command::new("git");
    // A repository that somebody else made must not run a command when it is inspected. Hooks are
    // left on: a commit is the person's own.
    command.args(["-c", "core.fsmonitor=false"]).env("GIT_NO_LAZY_FETCH", "1");
    command.env("GIT_NO_REPLACE_OBJECTS", "1").env("GIT_ALLOW_PROTOCOL", "none");
    // The messages are parsed, so they must be in English.
    let output = command.arg("-C").arg(folder).args(arguments).env("LC_ALL", "C").output();
    output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => anyhow::anyhow!(
            "cannot find `git` on PATH: install it from https://git-scm.com/downloads"
        ),
        _ => anyhow::Error::new(error).context("cannot start git"),
    })
}

/// Joins the output of git to one line.
fn git_message(output: &Output) -> String {
    let streams = [output.stderr.as_slice(), output.stdout.as_slice()];
    let streams = streams.map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat();
    streams.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}
