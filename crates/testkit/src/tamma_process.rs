//! `tamma` processes: servers and workers that tests can kill, and the command line of a person.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::network::Host;

/// Time limit for the start.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// Heartbeat timeout of a worker, in seconds.
const HEARTBEAT_SECONDS: &str = "3";

/// Long-running `tamma` process. It ends when dropped.
#[derive(Debug)]
pub struct TammaProcess {
    program: PathBuf,
    args: Vec<String>,
    env: Vec<(String, String)>,
    /// File for standard error, unless it is inherited.
    log: Option<PathBuf>,
    folder: Option<PathBuf>,
    host: Host,
    short_heartbeat: bool,
    running: Option<(Child, Lines<BufReader<ChildStdout>>)>,
}

/// `tamma` command line of a person.
#[derive(Debug, Clone)]
pub struct TammaCli {
    /// Path of `tamma`.
    pub program: PathBuf,
    /// URL of the server.
    pub url: String,
    /// Token of an operator, or of a person.
    pub token: String,
    /// Name of the person.
    pub person: String,
}

impl TammaCli {
    /// Returns a `tamma` command.
    pub fn command(&self, arguments: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(&self.program);
        command.env("TAMMA_TOKEN", &self.token);
        command.args(arguments).args(["--server", &self.url]);
        command.env("TAMMA_PERSON", &self.person).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Runs a `tamma` command and returns its standard output.
    pub async fn run(&self, arguments: &[&str]) -> Result<String> {
        let output = self.command(arguments).output().await?;
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`tamma {}`: {stdout}{stderr}", arguments.join(" "));
        Ok(stdout)
    }
}

impl TammaProcess {
    /// Prepares a process. Its standard error goes to a file.
    pub fn new(tamma: &Path, arguments: impl IntoIterator<Item = String>, log: PathBuf) -> Self {
        Self {
            program: tamma.to_owned(),
            args: arguments.into_iter().collect(),
            env: Vec::new(),
            log: Some(log),
            folder: None,
            host: Host::local(),
            short_heartbeat: true,
            running: None,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn with_args(mut self, arguments: &[&str]) -> Self {
        self.args.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn with_env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Runs it on a host.
    #[must_use]
    pub fn on_host(self, host: Host) -> Self {
        Self { host, ..self }
    }

    /// Measures it as it is released: with the default heartbeat timeout and inherited standard
    /// error, in a folder.
    #[must_use]
    pub fn as_released(self, folder: &Path) -> Self {
        Self { log: None, folder: Some(folder.to_owned()), short_heartbeat: false, ..self }
    }

    /// Runs another program from its next start on, such as another version of `tamma`.
    pub fn use_program(&mut self, program: &Path) {
        program.clone_into(&mut self.program);
    }

    /// Starts it and waits until it reports that it is ready.
    pub async fn start(&mut self) -> Result<()> {
        let mut command = self.host.command(&self.program);
        command.args(&self.args);
        if self.short_heartbeat {
            command.env("TAMMA_HEARTBEAT_SECONDS", HEARTBEAT_SECONDS);
        }
        command.envs(self.env.iter().cloned());
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        if let Some(log) = &self.log {
            command.stderr(File::options().create(true).append(true).open(log)?);
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // Ctrl-C in the terminal must only reach the test runner.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start `{}`", self.program.display()))?;
        let output = child.stdout.take().context("standard output is not piped")?;
        let mut lines = BufReader::new(output).lines();
        let ready = timeout(START_TIMEOUT, lines.next_line()).await;
        if ready.with_context(|| self.log_hint())??.is_none() {
            bail!("process ended before it was ready; {}", self.log_hint());
        }
        self.running = Some((child, lines));
        Ok(())
    }

    fn log_hint(&self) -> String {
        match &self.log {
            Some(log) => format!("see `{}`", log.display()),
            None => "see its standard error".to_owned(),
        }
    }

    /// Stops it with SIGTERM and waits until it has exited.
    pub async fn stop(&mut self) -> Result<()> {
        ensure!(self.stop_within(START_TIMEOUT).await?, "the process did not exit");
        Ok(())
    }

    /// Stops it as a supervisor does: with SIGTERM, and with SIGKILL if it has not exited in time. Returns
    /// `true` if it exited by itself.
    pub async fn stop_within(&mut self, grace: Duration) -> Result<bool> {
        let Some((mut child, _lines)) = self.running.take() else { return Ok(true) };
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        // It may have exited already.
        pid.and_then(|pid| kill_process(pid, Signal::TERM).ok());
        if let Ok(exited) = timeout(grace, child.wait()).await {
            exited?;
            return Ok(true);
        }
        child.kill().await?;
        Ok(false)
    }

    /// Kills it at once. Its child processes stay alive.
    pub async fn kill(&mut self) -> Result<()> {
        if let Some((mut child, _)) = self.running.take() {
            child.kill().await?;
        }
        Ok(())
    }

    /// Returns `true` while it runs.
    pub fn is_running(&mut self) -> Result<bool> {
        match &mut self.running {
            Some((child, _)) => Ok(child.try_wait()?.is_none()),
            None => Ok(false),
        }
    }

    /// Returns the name of its host.
    pub fn host(&self) -> &str {
        self.host.name()
    }

    /// Returns its process ID, if it runs.
    pub fn pid(&self) -> Option<u32> {
        self.running.as_ref().and_then(|(child, _)| child.id())
    }
}
