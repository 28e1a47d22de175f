//! The `git` program, run without a shell.
//!
//! Credentials, signing and large files work as they do for the user, because it is the user's own
//! git. What would surprise a program is off: prompts, hooks in a checkout that an agent writes to,
//! and cleaning up in the background. Nothing is retried here; a caller that can tell a passing
//! failure from a lasting one does that.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::output;

/// How much of what git says of a failure is kept.
const TAIL: usize = 4_000;

/// What can go wrong with git.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not be started.
    #[error("cannot start `{}`: is git installed?", program.display())]
    Start {
        /// What was to be started.
        program: PathBuf,
        /// Why it could not.
        source: io::Error,
    },
    /// It is older than what we use of it.
    #[error("git {found} is too old: {minimum} or newer is needed")]
    TooOld {
        /// The version that is there.
        found: Version,
        /// The oldest that will do.
        minimum: Version,
    },
    /// It does not say its version in a way we can read.
    #[error("`git version` said `{0}`, which names no version")]
    NoVersion(String),
    /// It ran and failed.
    #[error("`git {command}` in `{}` failed ({}): {stderr}", folder.display(), exit(*code))]
    Failed {
        /// What was asked of it.
        command: String,
        /// Where.
        folder: PathBuf,
        /// The exit code, unless a signal ended it.
        code: Option<i32>,
        /// The end of what it wrote to the standard error.
        stderr: String,
    },
}

fn exit(code: Option<i32>) -> String {
    code.map_or_else(|| "ended by a signal".to_owned(), |code| format!("exit code {code}"))
}

/// A version of git.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second.
    pub minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl Version {
    /// Reads what `git version` says.
    fn read(said: &str) -> Option<Self> {
        let mut numbers = said.trim().strip_prefix("git version ")?.split('.');
        let major = numbers.next()?.parse().ok()?;
        let minor = numbers.next()?.parse().ok()?;
        Some(Self { major, minor })
    }
}

/// A git program that is new enough.
#[derive(Debug, Clone)]
pub struct Git {
    program: PathBuf,
    calls: Arc<AtomicU64>,
}

impl Git {
    /// The oldest version that has all that we use.
    pub const MINIMUM: Version = Version { major: 2, minor: 34 };

    /// Takes the program at a path, or by name from the search path, if it is new enough.
    pub async fn find(program: impl Into<PathBuf>) -> Result<Self, Error> {
        let git = Self { program: program.into(), calls: Arc::default() };
        let said = git.at(Path::new(".")).run(["version"]).await?;
        let found = Version::read(&said).ok_or(Error::NoVersion(said))?;
        if found < Self::MINIMUM {
            return Err(Error::TooOld { found, minimum: Self::MINIMUM });
        }
        Ok(git)
    }

    /// How often it has been run, by this one and all that were cloned from it.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// A call of git in a folder.
    pub(crate) fn at(&self, folder: &Path) -> Call<'_> {
        Call { git: self, folder: folder.to_owned(), env: Vec::new(), input: None }
    }
}

/// One call of git, being put together.
pub(crate) struct Call<'a> {
    git: &'a Git,
    folder: PathBuf,
    env: Vec<(&'static str, OsString)>,
    input: Option<String>,
}

/// How a call ended.
pub(crate) struct Answer {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Call<'_> {
    /// Sets a variable of its environment.
    pub(crate) fn env(mut self, name: &'static str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name, value.as_ref().to_owned()));
        self
    }

    /// Gives it something to read.
    pub(crate) fn input(mut self, text: impl Into<String>) -> Self {
        self.input = Some(text.into());
        self
    }

    /// Runs it and returns what it wrote, without the line's end. A failure is an error.
    pub(crate) async fn run<I, S>(self, arguments: I) -> Result<String, Error>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let arguments: Vec<OsString> =
            arguments.into_iter().map(|argument| argument.as_ref().to_owned()).collect();
        let folder = self.folder.clone();
        let answer = self.ask(&arguments).await?;
        if answer.code == Some(0) {
            Ok(answer.stdout)
        } else {
            let command = arguments.join(OsStr::new(" ")).to_string_lossy().into_owned();
            Err(Error::Failed { command, folder, code: answer.code, stderr: answer.stderr })
        }
    }

    /// Runs it and returns how it ended, whatever the exit code is.
    pub(crate) async fn ask<S: AsRef<OsStr>>(self, arguments: &[S]) -> Result<Answer, Error> {
        let start = |source| Error::Start { program: self.git.program.clone(), source };
        self.git.calls.fetch_add(1, Ordering::Relaxed);
        let mut command = Command::new(&self.git.program);
        command
            // An agent writes to the checkout: nothing in it may run when we look at it.
            .args(["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"])
            // Nothing works in the background on a repository that we hold a lock on.
            .args(["-c", "gc.auto=0", "-c", "maintenance.auto=false"])
            .args(arguments)
            .current_dir(&self.folder)
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("LC_ALL", "C")
            .stdin(if self.input.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        // Set where a hook of another repository runs us; they would lead git elsewhere.
        for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX"] {
            command.env_remove(name);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        let mut child = command.spawn().map_err(start)?;
        if let (Some(input), Some(mut stdin)) = (&self.input, child.stdin.take()) {
            stdin.write_all(input.as_bytes()).await.map_err(start)?;
        }
        let answer = child.wait_with_output().await.map_err(start)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\n').to_owned();
        Ok(Answer {
            code: answer.status.code(),
            stdout: text(&answer.stdout),
            stderr: output::last(&text(&answer.stderr), TAIL).to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_whatever_follows_it() {
        let read = |said| Version::read(said).map(|version| version.to_string());
        assert_eq!(read("git version 2.47.3").as_deref(), Some("2.47"));
        assert_eq!(read("git version 2.39.5 (Apple Git-154)\n").as_deref(), Some("2.39"));
        assert_eq!(read("git version 3.0.rc1").as_deref(), Some("3.0"));
        assert_eq!(read("hub version 2.14"), None);
    }

    #[tokio::test]
    async fn a_failure_says_what_was_asked_where_and_what_git_said() {
        let git = Git::find("git").await.expect("git");
        let folder = tempfile::tempdir().expect("folder");
        let error =
            git.at(folder.path()).run(["rev-parse", "HEAD"]).await.expect_err("no repository");
        let Error::Failed { command, code, stderr, .. } = error else { panic!("{error}") };
        assert_eq!((command.as_str(), code), ("rev-parse HEAD", Some(128)));
        assert!(stderr.contains("not a git repository"), "{stderr}");
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_said_so() {
        let error = Git::find("/nowhere/git").await.expect_err("no git");
        assert_eq!(error.to_string(), "cannot start `/nowhere/git`: is git installed?");
    }
}
