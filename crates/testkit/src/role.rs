//! A process of the program `tamma` that stays: a server, a worker. It can be killed.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// How long it may take to be there.
const PATIENCE: Duration = Duration::from_mins(1);

/// Seconds without a sign of life after which a worker is taken for dead.
const HEARTBEAT: &str = "3";

/// A process of the program `tamma` that stays. It ends with this.
#[derive(Debug)]
pub struct Role {
    tamma: PathBuf,
    arguments: Vec<String>,
    env: Vec<(String, String)>,
    log: PathBuf,
    running: Option<(Child, Lines<BufReader<ChildStdout>>)>,
}

impl Role {
    /// One that is not started yet. What it complains about goes to a file.
    pub fn new(tamma: &Path, arguments: impl IntoIterator<Item = String>, log: PathBuf) -> Self {
        let arguments = arguments.into_iter().collect();
        Self { tamma: tamma.to_owned(), arguments, env: Vec::new(), log, running: None }
    }

    /// The same with a variable in its environment.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Starts it, and waits until it says that it is there.
    pub async fn start(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut child = Command::new(&self.tamma)
            .args(&self.arguments)
            .envs(self.env.iter().cloned())
            .env("TAMMA_HEARTBEAT_SECONDS", HEARTBEAT)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            // An interrupt at the terminal is for whoever runs this.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("`{}` does not start", self.tamma.display()))?;
        let output = child.stdout.take().context("no pipe")?;
        let mut lines = BufReader::new(output).lines();
        let ready = timeout(PATIENCE, lines.next_line()).await;
        let ready = ready.with_context(|| format!("see `{}`", self.log.display()))??;
        if ready.is_none() {
            bail!("it has ended before it was ready: see `{}`", self.log.display());
        }
        self.running = Some((child, lines));
        Ok(())
    }

    /// Kills it at once, and nothing that it has started.
    pub async fn kill(&mut self) -> Result<()> {
        if let Some((mut child, _)) = self.running.take() {
            child.kill().await?;
        }
        Ok(())
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> Result<bool> {
        match &mut self.running {
            Some((child, _)) => Ok(child.try_wait()?.is_none()),
            None => Ok(false),
        }
    }

    /// Its process.
    pub fn process(&self) -> Option<u32> {
        self.running.as_ref().and_then(|(child, _)| child.id())
    }
}
