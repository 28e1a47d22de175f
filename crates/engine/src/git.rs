//! The `git` program, run without a shell.
//!
//! This is the user's own git, so credentials and signing work as usual. Files of Git LFS are checked
//! out and committed as they are, so they stay pointers. Prompts, background maintenance and hooks are off: agents write to these
//! checkouts, and a hook in one would run with our permissions. Nothing is retried here. Callers
//! know which failures are temporary.

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

/// Maximum size of the error output that is kept, in bytes.
const MAX_STDERR_BYTES: usize = 4_000;

/// Turns Git LFS off. A mirror has no remote to download from, and a filtered file would be stored
/// here only, because no hook uploads it.
const NO_LFS: [&str; 8] = [
    "-c",
    "filter.lfs.process=",
    "-c",
    "filter.lfs.smudge=",
    "-c",
    "filter.lfs.clean=",
    "-c",
    "filter.lfs.required=false",
];

/// Error from running git.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Git could not be started.
    #[error("cannot start `{}`; check that git is installed", program.display())]
    Start {
        /// Program that was run.
        program: PathBuf,
        /// Underlying error.
        source: io::Error,
    },
    /// Installed git is older than [`Git::MIN_VERSION`].
    #[error("git {found} is too old; install {minimum} or newer")]
    TooOld {
        /// Installed version.
        found: GitVersion,
        /// Oldest supported version.
        minimum: GitVersion,
    },
    /// Output of `git version` has an unknown format.
    #[error("cannot parse the output of `git version`: `{0}`")]
    NoVersion(String),
    /// Git exited with an error.
    #[error("`git {command}` in `{}` failed ({}): {stderr}", folder.display(), exit(*code))]
    Failed {
        /// Arguments, separated by spaces.
        command: String,
        /// Working directory.
        folder: PathBuf,
        /// Exit code; `None` if a signal ended the process.
        code: Option<i32>,
        /// End of its standard error.
        stderr: String,
    },
}

fn exit(code: Option<i32>) -> String {
    code.map_or_else(|| "killed by a signal".to_owned(), |code| format!("exit code {code}"))
}

/// Version of git.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct GitVersion {
    /// Major version.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
}

impl fmt::Display for GitVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl GitVersion {
    /// Parses the output of `git version`.
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.trim().strip_prefix("git version ")?.split('.');
        let major = numbers.next()?.parse().ok()?;
        let minor = numbers.next()?.parse().ok()?;
        Some(Self { major, minor })
    }
}

/// Installed git program of a supported version.
#[derive(Debug, Clone)]
pub struct Git {
    program: PathBuf,
    calls: Arc<AtomicU64>,
}

impl Git {
    /// Oldest supported version.
    pub const MIN_VERSION: GitVersion = GitVersion { major: 2, minor: 34 };

    /// Finds git by path or by name in `PATH`, and checks its version.
    pub async fn find(program: impl Into<PathBuf>) -> Result<Self, Error> {
        let git = Self { program: program.into(), calls: Arc::default() };
        let text = git.in_dir(Path::new(".")).run(["version"]).await?;
        let found = GitVersion::parse(&text).ok_or(Error::NoVersion(text))?;
        if found < Self::MIN_VERSION {
            return Err(Error::TooOld { found, minimum: Self::MIN_VERSION });
        }
        Ok(git)
    }

    /// Number of processes started by this instance and its clones.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Starts building a command that runs in `folder`.
    pub(crate) fn in_dir(&self, folder: &Path) -> GitCommand<'_> {
        GitCommand { git: self, folder: folder.to_owned(), env: Vec::new(), input: None }
    }

    /// Starts building a command that runs in a worktree with this git directory.
    ///
    /// The link `.git` in the worktree is not read, because an agent may have changed it.
    pub(crate) fn in_worktree(&self, git_dir: &Path, folder: &Path) -> GitCommand<'_> {
        self.in_dir(folder).env("GIT_DIR", git_dir).env("GIT_WORK_TREE", folder)
    }
}

/// Builder for one git command.
pub(crate) struct GitCommand<'a> {
    git: &'a Git,
    folder: PathBuf,
    env: Vec<(&'static str, OsString)>,
    input: Option<String>,
}

/// Exit code and output of a git command.
pub(crate) struct GitOutput {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl GitCommand<'_> {
    /// Sets an environment variable.
    pub(crate) fn env(mut self, name: &'static str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name, value.as_ref().to_owned()));
        self
    }

    /// Sets the standard input.
    pub(crate) fn input(mut self, text: impl Into<String>) -> Self {
        self.input = Some(text.into());
        self
    }

    /// Runs the command and returns its standard output without trailing newlines. A non-zero exit
    /// code is an error.
    pub(crate) async fn run<I, S>(self, arguments: I) -> Result<String, Error>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let arguments: Vec<OsString> =
            arguments.into_iter().map(|argument| argument.as_ref().to_owned()).collect();
        let folder = self.folder.clone();
        let output = self.output(&arguments).await?;
        if output.code == Some(0) {
            Ok(output.stdout)
        } else {
            let command = arguments.join(OsStr::new(" ")).to_string_lossy().into_owned();
            Err(Error::Failed { command, folder, code: output.code, stderr: output.stderr })
        }
    }

    /// Runs the command and returns its output, also if it fails.
    pub(crate) async fn output<S: AsRef<OsStr>>(self, arguments: &[S]) -> Result<GitOutput, Error> {
        let start = |source| Error::Start { program: self.git.program.clone(), source };
        self.git.calls.fetch_add(1, Ordering::Relaxed);
        let mut command = Command::new(&self.git.program);
        command
            // Agents write to the checkout: prevent its hooks and monitors from running.
            .args(["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"])
            // Background maintenance would run in a repository that we hold a lock on.
            .args(["-c", "gc.auto=0", "-c", "maintenance.auto=false"])
            .args(NO_LFS)
            .args(arguments)
            .current_dir(&self.folder)
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("LC_ALL", "C")
            .stdin(if self.input.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        // Set when a hook of another repository runs us; git would use that repository.
        for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX"] {
            command.env_remove(name);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        let mut child = command.spawn().map_err(start)?;
        if let (Some(input), Some(mut stdin)) = (&self.input, child.stdin.take()) {
            stdin.write_all(input.as_bytes()).await.map_err(start)?;
        }
        let output = child.wait_with_output().await.map_err(start)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\n').to_owned();
        Ok(GitOutput {
            code: output.status.code(),
            stdout: text(&output.stdout),
            stderr: output::last_bytes(&text(&output.stderr), MAX_STDERR_BYTES).to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_parsed_with_any_suffix() {
        let read = |text| GitVersion::parse(text).map(|version| version.to_string());
        assert_eq!(read("git version 2.47.3").as_deref(), Some("2.47"));
        assert_eq!(read("git version 2.39.5 (Apple Git-154)\n").as_deref(), Some("2.39"));
        assert_eq!(read("git version 3.0.rc1").as_deref(), Some("3.0"));
        assert_eq!(read("hub version 2.14"), None);
    }

    #[tokio::test]
    async fn failure_has_the_command_and_the_error_output() {
        let git = Git::find("git").await.expect("git");
        let folder = tempfile::tempdir().expect("folder");
        let error =
            git.in_dir(folder.path()).run(["rev-parse", "HEAD"]).await.expect_err("no repository");
        let Error::Failed { command, code, stderr, .. } = error else { panic!("{error}") };
        assert_eq!((command.as_str(), code), ("rev-parse HEAD", Some(128)));
        assert!(stderr.contains("not a git repository"), "{stderr}");
    }

    #[tokio::test]
    async fn missing_program_is_reported() {
        let error = Git::find("/nowhere/git").await.expect_err("no git");
        assert_eq!(error.to_string(), "cannot start `/nowhere/git`; check that git is installed");
    }
}
