//! Long-running `tamma` process, such as a server or a worker, that tests can kill.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

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
    log: PathBuf,
    running: Option<(Child, Lines<BufReader<ChildStdout>>)>,
}

impl TammaProcess {
    /// Prepares a process. Its standard error goes to a file.
    pub fn new(tamma: &Path, arguments: impl IntoIterator<Item = String>, log: PathBuf) -> Self {
        let args = arguments.into_iter().collect();
        Self { program: tamma.to_owned(), args, env: Vec::new(), log, running: None }
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn with_env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Starts it and waits until it reports that it is ready.
    pub async fn start(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut child = Command::new(&self.program)
            .args(&self.args)
            .envs(self.env.iter().cloned())
            .env("TAMMA_HEARTBEAT_SECONDS", HEARTBEAT_SECONDS)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            // Ctrl-C in the terminal must only reach the test runner.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start `{}`", self.program.display()))?;
        let output = child.stdout.take().context("standard output is not piped")?;
        let mut lines = BufReader::new(output).lines();
        let ready = timeout(START_TIMEOUT, lines.next_line()).await;
        let ready = ready.with_context(|| format!("see `{}`", self.log.display()))??;
        if ready.is_none() {
            bail!("process ended before it was ready; see `{}`", self.log.display());
        }
        self.running = Some((child, lines));
        Ok(())
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

    /// Returns its process ID, if it runs.
    pub fn pid(&self) -> Option<u32> {
        self.running.as_ref().and_then(|(child, _)| child.id())
    }
}
