//! The git repository that a command is given, as far as the terminal has to know it.
//!
//! Nothing is retried: git answers at once, and what it refuses, a person has to mend.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, bail};

use crate::survey::{READ, Root};

/// A longer file than this is not read: it is not one that a person wrote.
const LONGEST: u64 = 1_000_000;

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
