//! The `git` program, run without a shell. Tamma starts git only here.
//!
//! Repositories and worktrees can be hostile: agents write files, and anybody can write a repository.
//! So no command discovers its repository, and none reads a setting that they can write:
//! - The git directory is explicit. A `.git` in a folder, and what it leads to, is never read.
//! - Local commands read no configuration but that of the mirror, which agents cannot write. Only
//!   commands that reach a remote repository read the operator's, for credentials and proxies.
//! - Hooks, filters, file monitors, submodules, replacements, grafts, alternates and lazy fetches are
//!   off. Files of Git LFS are checked out as pointers.
//! - Remote commands use https, ssh or a path, and nothing else; http on this machine only.
//! - A [`GitLogin`] reaches git through its environment, for one host, and follows no redirect. It is
//!   in no argument, address or file, so sandboxes do not see it.
//! - Every command has a time limit, and its output a maximum size.
//!
//! Hooks of the project's own repository run when a commit is pushed there, because they are the
//! operator's. Nothing is retried here. Callers know which failures are temporary.

mod login;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tamma_core::repository_address::{RepositoryAddress, hide_url_credentials};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use self::login::Logins;
use crate::output::{self, OutputTail};

pub use self::login::{FindLogin, FoundLogin, GitLogin};

/// Maximum size of the error output that is kept, in bytes.
const MAX_STDERR_BYTES: usize = 4_000;

/// Maximum size of the output, in bytes. A list of half a million files is smaller.
const MAX_OUTPUT_BYTES: usize = 64 * 1024 * 1024;

/// Time limit of a local command.
const LOCAL_LIMIT: Duration = Duration::from_mins(15);

/// Time limit of a command that asks a remote repository for its refs.
pub(crate) const QUERY_LIMIT: Duration = Duration::from_mins(1);

/// Time limit of a command that transfers objects.
pub(crate) const TRANSFER_LIMIT: Duration = Duration::from_mins(30);

/// Protocols of remote commands. Everything else, such as `ext::`, is refused by git.
const PROTOCOLS: &str = "https:ssh:file";

/// Protocol of addresses on this machine that have no certificate. No other address can redirect to
/// it.
const LOCAL_PROTOCOL: &str = "http";

/// Folder that contains no repository and never will.
const NO_REPOSITORY: &str = "/dev/null";

/// Settings of every command. They take precedence over all files.
const SETTINGS: [(&str, &str); 20] = [
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.untrackedCache", "false"),
    ("core.attributesFile", "/dev/null"),
    ("core.excludesFile", "/dev/null"),
    ("core.useReplaceRefs", "false"),
    ("core.protectHFS", "true"),
    ("core.protectNTFS", "true"),
    // Larger files are streamed, and never held in memory.
    ("core.bigFileThreshold", "8m"),
    ("core.autocrlf", "false"),
    // Background maintenance would run in a repository that we hold a lock on.
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("submodule.recurse", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("push.recurseSubmodules", "no"),
    ("transfer.bundleURI", "false"),
    // Objects that could trick a checkout are refused. Old, harmless faults are not.
    ("fetch.fsckObjects", "true"),
    ("fetch.fsck.badTimezone", "ignore"),
    ("fetch.fsck.missingSpaceBeforeDate", "ignore"),
    ("fetch.fsck.zeroPaddedFilemode", "ignore"),
];

/// Settings of remote commands: a transfer below 1,000 bytes per second for a minute ends.
const REMOTE_SETTINGS: [(&str, &str); 2] =
    [("http.lowSpeedLimit", "1000"), ("http.lowSpeedTime", "60")];

/// Variables that would change the repository, its objects or the settings, or start a program. A
/// hook of another repository that runs us sets some of them.
const REMOVED: [&str; 28] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_PREFIX",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_QUARANTINE_PATH",
    "GIT_NAMESPACE",
    "GIT_SHALLOW_FILE",
    "GIT_REPLACE_REF_BASE",
    "GIT_CONFIG",
    "GIT_CONFIG_PARAMETERS",
    "GIT_ATTR_SOURCE",
    "GIT_TEMPLATE_DIR",
    "GIT_EXTERNAL_DIFF",
    "GIT_DIFF_OPTS",
    "GIT_PAGER",
    "GIT_EDITOR",
    "GIT_LITERAL_PATHSPECS",
    "GIT_GLOB_PATHSPECS",
    "GIT_NOGLOB_PATHSPECS",
    "GIT_ICASE_PATHSPECS",
    "GIT_TRACE",
    "GIT_TRACE_CURL",
    "GIT_TRACE_REDACT",
    "GIT_CURL_VERBOSE",
    "GIT_DEFAULT_HASH",
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
    /// Git took too long and was stopped.
    #[error("`git {command}` in `{}` was stopped after {} s", folder.display(), limit.as_secs())]
    TimedOut {
        /// Arguments, separated by spaces.
        command: String,
        /// Working directory.
        folder: PathBuf,
        /// Time limit.
        limit: Duration,
    },
    /// Login for a remote repository could not be found.
    #[error("cannot log in to the remote repository: {reason}")]
    Login {
        /// Reason, without secrets.
        reason: String,
    },
    /// Git printed too much and was stopped.
    #[error("`git {command}` in `{}` printed more than {limit} bytes", folder.display())]
    TooMuchOutput {
        /// Arguments, separated by spaces.
        command: String,
        /// Working directory.
        folder: PathBuf,
        /// Maximum size in bytes.
        limit: usize,
    },
}

impl Error {
    /// Returns `true` if git refuses the content itself: too much output, objects that its checks
    /// reject, or a history that lacks objects. A retry cannot help.
    pub fn is_caused_by_content(&self) -> bool {
        match self {
            Self::TooMuchOutput { .. } => true,
            Self::Failed { stderr, .. } => ["fsck error", "did not receive expected object"]
                .iter()
                .any(|reason| stderr.contains(reason)),
            _ => false,
        }
    }
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

/// Oldest version that can merge the tasks of a story.
pub(crate) const MERGE_VERSION: GitVersion = GitVersion { major: 2, minor: 38 };

/// Installed git program of a supported version.
#[derive(Debug, Clone)]
pub struct Git {
    program: PathBuf,
    calls: Arc<AtomicU64>,
    logins: Logins,
}

impl Git {
    /// Oldest supported version.
    pub const MIN_VERSION: GitVersion = GitVersion { major: 2, minor: 34 };

    /// Finds git by path or by name in `PATH`, and checks its version.
    pub async fn find(program: impl Into<PathBuf>) -> Result<Self, Error> {
        let git =
            Self { program: program.into(), calls: Arc::default(), logins: Logins::default() };
        let text = git.outside(Path::new("/")).run(["version"]).await?;
        let found = GitVersion::parse(&text).ok_or(Error::NoVersion(text))?;
        if found < Self::MIN_VERSION {
            return Err(Error::TooOld { found, minimum: Self::MIN_VERSION });
        }
        Ok(git)
    }

    /// Returns a copy whose remote commands log in to the host of their address, if it is an HTTP
    /// one. Local commands do not get the login.
    #[must_use]
    pub fn with_login(&self, login: Option<GitLogin>) -> Self {
        Self { logins: login.map(Logins::always).unwrap_or_default(), ..self.clone() }
    }

    /// Returns a copy that finds the login of each remote command when it starts, because some logins
    /// expire sooner than a mirror or a worktree is closed. Otherwise like [`Git::with_login`].
    #[must_use]
    pub fn with_logins(&self, find: FindLogin) -> Self {
        Self { logins: Logins::found_by(find), ..self.clone() }
    }

    /// Number of processes started by this instance and its clones.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Starts building a command that runs in `folder` and uses no repository, even if the folder is
    /// part of one.
    pub(crate) fn outside(&self, folder: &Path) -> GitCommand<'_> {
        GitCommand {
            git: self,
            folder: folder.to_owned(),
            env: vec![("GIT_DIR", NO_REPOSITORY.into())],
            input: None,
            limit: LOCAL_LIMIT,
            max_output: MAX_OUTPUT_BYTES,
            remote: None,
        }
    }

    /// Starts building a command that runs in a git directory without a worktree. No attributes of
    /// files apply.
    pub(crate) fn bare(&self, git_dir: &Path) -> GitCommand<'_> {
        self.outside(git_dir).env("GIT_DIR", git_dir)
    }

    /// Starts building a command that runs in a worktree with this git directory.
    ///
    /// The link `.git` in the worktree is not read, because an agent may have changed it.
    pub(crate) fn in_worktree(&self, git_dir: &Path, folder: &Path) -> GitCommand<'_> {
        self.outside(folder).env("GIT_DIR", git_dir).env("GIT_WORK_TREE", folder)
    }
}

/// Builder for one git command.
pub(crate) struct GitCommand<'a> {
    git: &'a Git,
    folder: PathBuf,
    env: Vec<(&'static str, OsString)>,
    input: Option<Vec<u8>>,
    limit: Duration,
    max_output: usize,
    remote: Option<RemoteAccess>,
}

/// Access of a command to a remote repository.
struct RemoteAccess {
    protocols: String,
    address: RepositoryAddress,
}

/// Exit code and output of a git command.
pub(crate) struct GitOutput {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
    /// The output has more bytes than the maximum, and git was stopped.
    pub(crate) is_truncated: bool,
}

impl GitOutput {
    /// Fails if the command failed. A truncated output is not a failure.
    pub(crate) fn check<S: AsRef<OsStr>>(
        &self,
        arguments: &[S],
        folder: &Path,
    ) -> Result<(), Error> {
        if self.is_truncated || self.code == Some(0) {
            return Ok(());
        }
        let (command, folder) = (shown(arguments), folder.to_owned());
        Err(Error::Failed { command, folder, code: self.code, stderr: self.stderr.clone() })
    }

    /// Returns the standard output without trailing newlines.
    pub(crate) fn text(self) -> String {
        to_text(self.stdout)
    }
}

impl GitCommand<'_> {
    /// Sets an environment variable.
    pub(crate) fn env(mut self, name: &'static str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name, value.as_ref().to_owned()));
        self
    }

    /// Sets the standard input.
    pub(crate) fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = Some(bytes.into());
        self
    }

    /// Sets the maximum size of the output, in bytes.
    pub(crate) fn max_output(self, bytes: usize) -> Self {
        Self { max_output: bytes, ..self }
    }

    /// Sets the time limit.
    pub(crate) fn time_limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Allows the command to reach a remote repository, with the login of [`Git::with_login`] or the
    /// operator's credentials.
    ///
    /// The address comes after the options, as [`remote_arguments`] returns it.
    pub(crate) fn remote(self, address: &RepositoryAddress, limit: Duration) -> Self {
        let is_local = address.as_git_source().to_ascii_lowercase().starts_with("http://");
        let protocols =
            if is_local { format!("{PROTOCOLS}:{LOCAL_PROTOCOL}") } else { PROTOCOLS.to_owned() };
        Self { remote: Some(RemoteAccess { protocols, address: address.clone() }), limit, ..self }
    }

    /// Runs the command and returns its standard output without trailing newlines. A non-zero exit
    /// code is an error.
    pub(crate) async fn run<I, S>(self, arguments: I) -> Result<String, Error>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        Ok(to_text(self.run_bytes(arguments).await?))
    }

    /// Runs the command and returns its standard output unchanged, for names that may not be UTF-8.
    pub(crate) async fn run_bytes<I, S>(self, arguments: I) -> Result<Vec<u8>, Error>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let arguments: Vec<OsString> =
            arguments.into_iter().map(|argument| argument.as_ref().to_owned()).collect();
        let (folder, limit) = (self.folder.clone(), self.max_output);
        let output = self.output(&arguments).await?;
        let command = shown(&arguments);
        if output.is_truncated {
            return Err(Error::TooMuchOutput { command, folder, limit });
        }
        if output.code == Some(0) {
            Ok(output.stdout)
        } else {
            Err(Error::Failed { command, folder, code: output.code, stderr: output.stderr })
        }
    }

    /// Runs the command and returns its output as [`run`](Self::run) does, or `None` if it fails.
    /// Too much output is still an error.
    pub(crate) async fn run_if_successful<S: AsRef<OsStr>>(
        self,
        arguments: &[S],
    ) -> Result<Option<String>, Error> {
        let (folder, limit) = (self.folder.clone(), self.max_output);
        let output = self.output(arguments).await?;
        if output.is_truncated {
            return Err(Error::TooMuchOutput { command: shown(arguments), folder, limit });
        }
        Ok((output.code == Some(0)).then(|| output.text()))
    }

    /// Runs the command and returns its output, even if it fails or prints too much.
    pub(crate) async fn output<S: AsRef<OsStr>>(self, arguments: &[S]) -> Result<GitOutput, Error> {
        let start = |source| Error::Start { program: self.git.program.clone(), source };
        let login = match &self.remote {
            Some(remote) => self.git.logins.find(&remote.address).await?,
            None => None,
        };
        self.git.calls.fetch_add(1, Ordering::Relaxed);
        let mut command = self.command(arguments, login.as_ref());
        let mut child = command.spawn().map_err(start)?;
        let group = ProcessGroupGuard::new(child.id());
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdout), Some(stderr)) = (stdout, stderr) else {
            return Err(start(io::Error::other("git has no pipes")));
        };
        let stderr = OutputTail::follow(stderr, 2 * MAX_STDERR_BYTES);
        let write = async {
            if let (Some(input), Some(mut stdin)) = (&self.input, stdin) {
                // Git may end before it has read everything; its exit code says why.
                let _ = stdin.write_all(input).await;
            }
        };
        let exchange = async {
            let read = read_bounded(stdout, self.max_output);
            let ((), read) = tokio::join!(write, read);
            let (bytes, is_truncated) = read?;
            if is_truncated {
                group.kill();
            }
            Ok::<_, io::Error>((bytes, is_truncated, child.wait().await?))
        };
        let Ok(ended) = tokio::time::timeout(self.limit, exchange).await else {
            let (command, folder) = (shown(arguments), self.folder.clone());
            return Err(Error::TimedOut { command, folder, limit: self.limit });
        };
        let (stdout, is_truncated, status) = ended.map_err(start)?;
        group.disarm();
        let mut stderr = hide_url_credentials(stderr.text().await.trim_end_matches('\n'));
        if let Some(login) = &login {
            stderr = login.hide(&stderr);
        }
        let stderr = output::last_bytes(&stderr, MAX_STDERR_BYTES).to_owned();
        Ok(GitOutput { code: status.code(), stdout, stderr, is_truncated })
    }

    fn command<S: AsRef<OsStr>>(&self, arguments: &[S], login: Option<&GitLogin>) -> Command {
        let mut command = Command::new(&self.git.program);
        command
            .args(arguments)
            .current_dir(&self.folder)
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_NO_REPLACE_OBJECTS", "1")
            // A path that cannot exist; git warns about an empty file.
            .env("GIT_GRAFT_FILE", "/dev/null/grafts")
            .env("GIT_ATTR_NOSYSTEM", "1")
            .env("LC_ALL", "C")
            .stdin(if self.input.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Programs that git starts, such as ssh, are in its group and end with it.
            .process_group(0)
            .kill_on_drop(true);
        for name in REMOVED {
            command.env_remove(name);
        }
        let login = self.remote.as_ref().zip(login);
        let login = login.and_then(|(remote, login)| login.settings(&remote.address));
        let mut settings = SETTINGS.to_vec();
        if let Some(remote) = &self.remote {
            command.env("GIT_ALLOW_PROTOCOL", &remote.protocols);
            settings.extend(REMOTE_SETTINGS);
            let login = login.iter().flatten();
            settings.extend(login.map(|(key, value)| (key.as_str(), value.as_str())));
        } else {
            command
                .env("GIT_ALLOW_PROTOCOL", "none")
                .env("GIT_CONFIG_NOSYSTEM", "1")
                .env("GIT_CONFIG_SYSTEM", "/dev/null")
                .env("GIT_CONFIG_GLOBAL", "/dev/null");
        }
        command.env("GIT_CONFIG_COUNT", settings.len().to_string());
        for (number, (key, value)) in settings.into_iter().enumerate() {
            command.env(format!("GIT_CONFIG_KEY_{number}"), key);
            command.env(format!("GIT_CONFIG_VALUE_{number}"), value);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// Returns the arguments that name a remote repository, and refs after it. Nothing in them can be
/// read as an option.
pub(crate) fn remote_arguments<'a>(
    address: &'a RepositoryAddress,
    refs: impl IntoIterator<Item = &'a str>,
) -> impl Iterator<Item = &'a str> {
    ["--", address.as_git_source()].into_iter().chain(refs)
}

/// Converts output to text without trailing newlines, without a copy if it is UTF-8.
pub(crate) fn to_text(bytes: Vec<u8>) -> String {
    let text = String::from_utf8(bytes);
    let mut text =
        text.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    text.truncate(text.trim_end_matches('\n').len());
    text
}

/// Returns arguments for messages, without credentials.
fn shown<S: AsRef<OsStr>>(arguments: &[S]) -> String {
    let arguments: Vec<_> = arguments.iter().map(|it| it.as_ref().to_string_lossy()).collect();
    hide_url_credentials(&arguments.join(" "))
}

/// Reads at most `limit` bytes. Returns `true` with them if there are more.
async fn read_bounded(from: impl AsyncRead + Unpin, limit: usize) -> io::Result<(Vec<u8>, bool)> {
    let mut bytes = Vec::new();
    let more = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    from.take(more).read_to_end(&mut bytes).await?;
    let is_truncated = bytes.len() > limit;
    bytes.truncate(limit);
    Ok((bytes, is_truncated))
}

/// Process group of a running git. Dropping it kills the group.
struct ProcessGroupGuard {
    group: Option<Pid>,
}

impl ProcessGroupGuard {
    fn new(leader: Option<u32>) -> Self {
        let group = leader.and_then(|it| i32::try_from(it).ok()).and_then(Pid::from_raw);
        Self { group }
    }

    fn kill(&self) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    /// Lets go of a group whose leader has exited.
    fn disarm(mut self) {
        self.group = None;
    }
}

impl Drop for ProcessGroupGuard {
    fn drop(&mut self) {
        self.kill();
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
            git.bare(folder.path()).run(["rev-parse", "HEAD"]).await.expect_err("no repository");
        let Error::Failed { command, code, stderr, .. } = error else { panic!("{error}") };
        assert_eq!((command.as_str(), code), ("rev-parse HEAD", Some(128)));
        assert!(stderr.contains("not a git repository"), "{stderr}");
    }

    #[tokio::test]
    async fn content_that_git_refuses_is_told_from_other_failures() {
        let git = Git::find("git").await.expect("git");
        let folders = tempfile::tempdir().expect("folder");
        let (source, copy) = (folders.path().join("source"), folders.path().join("copy"));
        for folder in [&source, &copy] {
            std::fs::create_dir(folder).expect("folder");
            git.bare(folder).run(["init", "--bare", "--quiet"]).await.expect("repository");
        }
        let empty = ["hash-object", "-t", "tree", "-w", "/dev/null"];
        let tree = git.bare(&source).run(empty).await.expect("tree");
        // No author and no time.
        let file = folders.path().join("commit");
        std::fs::write(&file, format!("tree {tree}\nauthor\ncommitter\n\n")).expect("file");
        let write = ["hash-object", "-t", "commit", "-w", "--literally"].map(OsStr::new);
        let write = write.into_iter().chain([file.as_os_str()]);
        let commit = git.bare(&source).run(write).await.expect("commit");
        git.bare(&source).run(["update-ref", "refs/heads/main", &commit]).await.expect("ref");

        for (from, by_content) in [(source, true), (folders.path().join("missing"), false)] {
            let address = from.display().to_string().parse().expect("address");
            let fetch = ["fetch"].into_iter().chain(remote_arguments(&address, ["main:main"]));
            let git = git.bare(&copy).remote(&address, QUERY_LIMIT);
            let error = git.run(fetch).await.expect_err("refused");
            assert_eq!(error.is_caused_by_content(), by_content, "{error}");
        }
    }

    #[tokio::test]
    async fn missing_program_is_reported() {
        let error = Git::find("/nowhere/git").await.expect_err("no git");
        assert_eq!(error.to_string(), "cannot start `/nowhere/git`; check that git is installed");
    }

    #[tokio::test]
    async fn folder_around_is_no_repository() {
        let git = Git::find("git").await.expect("git");
        let folder = tempfile::tempdir().expect("folder");
        git.outside(folder.path()).run(["init", "--bare", ".git"]).await.expect("a repository");
        let call = ["rev-parse", "--git-dir"];
        git.outside(folder.path()).run(call).await.expect_err("a repository was discovered");
    }

    #[tokio::test]
    async fn output_and_time_are_bounded() {
        let git = Git::find("git").await.expect("git");
        let folder = tempfile::tempdir().expect("folder");
        let call = ["-c", "alias.flood=!yes", "flood"];
        let command = git.outside(folder.path()).max_output(10);
        let output = command.output(&call).await.expect("output");
        assert!(output.is_truncated);
        assert_eq!(output.text(), "y\ny\ny\ny\ny");
        let error =
            git.outside(folder.path()).max_output(10).run(call).await.expect_err("too much");
        assert!(matches!(error, Error::TooMuchOutput { limit: 10, .. }), "{error}");

        // The program that git starts ends with it.
        let pid = folder.path().join("pid");
        let call = format!("alias.stall=!echo $$ > '{}'; exec sleep 1000", pid.display());
        let command = git.outside(folder.path()).time_limit(Duration::from_secs(3));
        let error = command.run(["-c", &call, "stall"]).await.expect_err("a stall");
        assert!(matches!(error, Error::TimedOut { .. }), "{error}");
        let pid = std::fs::read_to_string(pid).expect("a process started");
        let stat = format!("/proc/{}/stat", pid.trim());
        let is_running = || std::fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") Z "));
        let limit = Duration::from_secs(10);
        tamma_testkit::wait::wait_until_true("the end of the program", limit, || !is_running())
            .await
            .expect("the stalled program ended");
    }

    #[tokio::test]
    async fn credentials_do_not_appear_in_errors() {
        let git = Git::find("git").await.expect("git");
        let address: RepositoryAddress =
            "https://ann:s3cret@127.0.0.1:1/app".parse().expect("an address");
        let call = ["ls-remote"].into_iter().chain(remote_arguments(&address, []));
        let command = git.outside(Path::new("/")).remote(&address, QUERY_LIMIT);
        let error = command.run(call).await.expect_err("nobody listens");
        let text = format!("{error} {error:?}");
        assert!(text.contains("***@127.0.0.1:1") && !text.contains("s3cret"), "{text}");
    }
}
