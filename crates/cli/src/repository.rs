//! The git repository that a command is given, as far as the terminal has to know it.
//!
//! Nothing is retried: git answers at once, and what it refuses, a person has to mend.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tamma_server::Sight;

use crate::survey::{READ, Root};

/// A longer file than this is not read: it is not one that a person wrote.
const LONGEST: u64 = 1_000_000;

/// How long git may take to say what is in a repository.
const PATIENCE: Duration = Duration::from_secs(5);

/// A repository with a work tree.
pub(crate) struct Repository {
    pub(crate) root: PathBuf,
}

impl Repository {
    /// Finds the repository that a folder is in.
    pub(crate) fn of(folder: &Path) -> Result<Self> {
        if !folder.is_dir() {
            bail!("there is no folder {}", folder.display());
        }
        let output = git(folder, &["rev-parse", "--show-toplevel"])?;
        if output.status.success() {
            let said =
                String::from_utf8(output.stdout).context("the repository's path is not text")?;
            return Ok(Self { root: PathBuf::from(said.trim_end_matches(['\n', '\r'])) });
        }
        let said = words(&output);
        if said.contains("not a git repository") {
            bail!(
                "{} is not in a git repository, and Tamma works on branches of one: run `git init` \
                 there, then `tamma init` again",
                folder.display()
            );
        }
        bail!("git does not open {}: {said}", folder.display());
    }

    /// What is in the root.
    pub(crate) fn listing(&self) -> Result<Root> {
        let cannot = || format!("cannot read {}", self.root.display());
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(&self.root).with_context(cannot)? {
            let entry = entry.with_context(cannot)?;
            // What is not text is none of the names we know.
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let path = entry.path();
            let readable = || path.metadata().is_ok_and(|it| it.is_file() && it.len() <= LONGEST);
            let text = if READ.contains(&name.as_str()) && readable() {
                let bytes = fs::read(&path);
                bytes.with_context(|| format!("cannot read {}", path.display()))?
            } else {
                Vec::new()
            };
            files.insert(name, String::from_utf8_lossy(&text).into_owned());
        }
        Ok(Root(files))
    }

    /// Its files, committed or not, without those that it ignores.
    pub(crate) fn files(&self) -> Result<Vec<String>> {
        let listed = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let output = git(&self.root, &listed)?;
        if !output.status.success() {
            bail!("git does not list {}: {}", self.root.display(), words(&output));
        }
        let files = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(files.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
    }

    /// Whether there is any commit that work could start from.
    pub(crate) fn has_commit(&self) -> Result<bool> {
        let head = git(&self.root, &["rev-parse", "--verify", "--quiet", "HEAD"])?;
        Ok(head.status.success())
    }

    /// Commits one file and nothing else, and tells the commit.
    pub(crate) fn commit(&self, file: &str, message: &str) -> Result<String> {
        let mut arguments = Vec::new();
        if !self.has_identity()? {
            arguments.extend(["-c", "user.name=Tamma", "-c", "user.email=tamma@localhost"]);
        }
        // `--only` leaves what else is staged where it is.
        arguments.extend(["commit", "--quiet", "--message", message, "--only", "--", file]);
        for arguments in [&["add", "--", file][..], &arguments] {
            let output = git(&self.root, arguments)?;
            if !output.status.success() {
                bail!("{}", words(&output));
            }
        }
        let head = git(&self.root, &["rev-parse", "--short", "HEAD"])?;
        Ok(String::from_utf8_lossy(&head.stdout).trim().to_owned())
    }

    /// Whether git knows who commits, without guessing from the machine's name.
    fn has_identity(&self) -> Result<bool> {
        for who in ["GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT"] {
            if !git(&self.root, &["-c", "user.useConfigOnly=true", "var", who])?.status.success() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// What there is in a repository, and which of some commits it lacks. Nothing where it is elsewhere, or
/// git does not answer in time: who asks can do without.
pub(crate) async fn look(repository: String, commits: Vec<String>) -> Option<Sight> {
    let folder = PathBuf::from(repository.strip_prefix("file://").unwrap_or(&repository));
    let looking = tokio::task::spawn_blocking(move || sight(&folder, commits));
    tokio::time::timeout(PATIENCE, looking).await.ok()?.ok()?
}

fn sight(folder: &Path, commits: Vec<String>) -> Option<Sight> {
    let listed = git(folder, &["ls-tree", "-r", "-z", "--name-only", "HEAD"]).ok()?;
    if !listed.status.success() {
        return None;
    }
    let files = String::from_utf8_lossy(&listed.stdout);
    let files = files.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
    // A commit is digits; anything else could be taken for an option.
    let is_commit = |commit: &String| {
        commit.len() >= 4 && commit.chars().all(|digit| digit.is_ascii_hexdigit())
    };
    let commits: Vec<String> = commits.into_iter().filter(is_commit).collect();
    let mut absent = Vec::new();
    // As many at once as one command line takes.
    for some in commits.chunks(500) {
        let mut arguments = vec!["rev-list", "--no-walk", "--ignore-missing"];
        arguments.extend(some.iter().map(String::as_str));
        let found = git(folder, &arguments).ok().filter(|output| output.status.success())?;
        let found = String::from_utf8_lossy(&found.stdout).into_owned();
        let has = |commit: &String| found.lines().any(|line| line.starts_with(commit.as_str()));
        absent.extend(some.iter().filter(|commit| !has(commit)).cloned());
    }
    Some(Sight { files, absent })
}

/// Asks git.
fn git(folder: &Path, arguments: &[&str]) -> Result<Output> {
    #[expect(
        clippy::disallowed_methods,
        reason = "git answers at once and runs for the person at the terminal, not for a task"
    )]
    let mut command = Command::new("git");
    // Its messages are read, so they have to be in one language.
    let output = command.arg("-C").arg(folder).args(arguments).env("LC_ALL", "C").output();
    output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => anyhow::anyhow!(
            "the program `git` is not on PATH: install git (https://git-scm.com/downloads)"
        ),
        _ => anyhow::Error::new(error).context("cannot start git"),
    })
}

/// What git had to say, on one line.
fn words(output: &Output) -> String {
    let said = [output.stderr.as_slice(), output.stdout.as_slice()];
    let said = said.map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat();
    said.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}
