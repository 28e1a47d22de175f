//! Real Temporal server with its data in PostgreSQL: in one process, or on three nodes.
//!
//! It is built by [`BUILD_COMMAND`], and is optional: [`is_built`] tells whether it is there.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::{ProjectTurns, SEARCH_ATTRIBUTES, connect};
use crate::network::{Host, Network};
use crate::postgres::PostgresServer;
use crate::programs::tools_folder;
use crate::wait::wait_until;

/// Version of the server, as in `.ci/tools`.
const VERSION: &str = "1.32.1";

/// Command that builds the server and its schema tool.
pub const BUILD_COMMAND: &str = "TAMMA_TOOLS=temporal bash .ci/tools";

/// Databases of the server, with the names of their schemas.
const DATABASES: [(&str, &str); 2] =
    [("temporal", "temporal"), ("temporal_visibility", "visibility")];

/// Returns the dynamic configuration: the settings of `tamma up`, and those of `docs/operating.md` for the
/// queue of agent jobs.
fn dynamic_config(turns: ProjectTurns) -> String {
    let fairness = turns == ProjectTurns::On;
    format!(
        "history.transferProcessorMaxPollRPS: [{{ value: 100 }}]\n\
         frontend.WorkerCommandsEnabled: [{{ value: true }}]\n\
         system.enableCancelActivityWorkerCommand: [{{ value: true }}]\n\
         matching.enableFairness: [{{ value: {fairness} }}]\n\
         matching.numTaskqueueWritePartitions:\n\
         - {{ value: 1, constraints: {{ taskQueueName: tamma-engines }} }}\n"
    )
}

/// Most starts of a node. Of nodes that start together, one writes the cluster's metadata and the others
/// end, so that a supervisor starts them again.
const MAX_STARTS: u32 = 5;

/// Time limit for the start of a node, and for the namespace.
const START_TIMEOUT: Duration = Duration::from_mins(2);

/// Processes of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemporalLayout {
    /// All services in one process.
    OneProcess,
    /// A node with the frontend, and two with history and matching.
    ThreeNodes,
}

/// Services of a node, with the ports on which they respond.
type NodeServices = &'static [(&'static str, u16)];

const FRONTEND: (&str, u16) = ("frontend", 7233);
const HISTORY: (&str, u16) = ("history", 7234);
const MATCHING: (&str, u16) = ("matching", 7235);
const WORKER: (&str, u16) = ("worker", 7239);

impl TemporalLayout {
    /// Returns the names of its hosts, and their services. The first one has the frontend.
    fn nodes(self) -> &'static [(&'static str, NodeServices)] {
        match self {
            Self::OneProcess => &[("temporal", &[FRONTEND, HISTORY, MATCHING, WORKER])],
            Self::ThreeNodes => &[
                ("temporal-frontend", &[FRONTEND, WORKER]),
                ("temporal-1", &[HISTORY, MATCHING]),
                ("temporal-2", &[HISTORY, MATCHING]),
            ],
        }
    }

    /// Returns the names of its hosts.
    pub(crate) fn hosts(self) -> impl Iterator<Item = String> {
        self.nodes().iter().map(|(name, _)| (*name).to_owned())
    }
}

/// Server of one test, whose nodes can be killed and restarted. They end when it is dropped.
#[derive(Debug)]
pub struct TemporalCluster {
    nodes: Vec<TemporalNode>,
}

/// Process of a server.
#[derive(Debug)]
pub struct TemporalNode {
    host: Host,
    services: NodeServices,
    environment: Vec<(&'static str, String)>,
    log: PathBuf,
    child: Option<Child>,
}

/// Returns `true` if the server was built.
pub fn is_built() -> bool {
    program("temporal-server").is_ok()
}

fn program(name: &str) -> Result<PathBuf> {
    let program = tools_folder().join(format!("temporal-{VERSION}/{name}"));
    ensure!(program.is_file(), "the Temporal server is not built; run `{BUILD_COMMAND}`");
    Ok(program)
}

impl TemporalCluster {
    /// Creates the databases, starts all nodes, and registers the namespace and the search attributes.
    /// The number of shards can never change. Logs are written to `folder`.
    pub(crate) async fn start(
        (layout, shards): (TemporalLayout, u32),
        turns: ProjectTurns,
        postgres: &PostgresServer,
        network: &Network,
        folder: &Path,
    ) -> Result<Self> {
        // Otherwise the namespace would be created again and again until the time limit.
        let version = output(Command::new("temporal").arg("--version")).await;
        version.context("the Temporal CLI cannot be run; `just setup` installs it")?;
        create_databases(postgres).await?;
        let dynamic_config = folder.join("temporal-settings.yaml");
        std::fs::write(&dynamic_config, self::dynamic_config(turns))?;
        let (database, port) = postgres.address();
        let mut nodes = Vec::new();
        for &(name, services) in layout.nodes() {
            let host = network.host(name)?.clone();
            let address = host.address().to_string();
            let environment = vec![
                ("DB", "postgres12".to_owned()),
                ("POSTGRES_SEEDS", database.to_string()),
                ("DB_PORT", port.to_string()),
                ("POSTGRES_USER", "postgres".to_owned()),
                // The database asks for none, but the server wants one.
                ("POSTGRES_PWD", "none".to_owned()),
                ("SQL_MAX_CONNS", "20".to_owned()),
                ("SQL_VIS_MAX_CONNS", "5".to_owned()),
                ("NUM_HISTORY_SHARDS", shards.to_string()),
                ("DYNAMIC_CONFIG_FILE_PATH", dynamic_config.display().to_string()),
                ("BIND_ON_IP", address.clone()),
                ("TEMPORAL_BROADCAST_ADDRESS", address),
                ("LOG_LEVEL", "warn".to_owned()),
            ];
            let log = folder.join(format!("{name}.log"));
            nodes.push(TemporalNode { host, services, environment, log, child: None });
        }
        let mut cluster = Self { nodes };
        for node in &mut cluster.nodes {
            node.spawn()?;
        }
        for node in &mut cluster.nodes {
            node.wait_until_ready().await?;
        }
        cluster.register().await?;
        Ok(cluster)
    }

    /// Returns the address of the frontend, which survives a restart.
    pub fn address(&self) -> Result<String> {
        let first = self.nodes.first().context("the server has no nodes")?;
        Ok(first.address_of(FRONTEND))
    }

    /// Returns the process IDs of its running nodes.
    pub fn pids(&self) -> Vec<u32> {
        self.nodes.iter().filter_map(|node| node.child.as_ref()?.id()).collect()
    }

    /// Returns its nodes. The first one has the frontend.
    pub fn nodes_mut(&mut self) -> &mut [TemporalNode] {
        &mut self.nodes
    }

    /// Registers the namespace and the search attributes, and waits until they can be used.
    async fn register(&self) -> Result<()> {
        let address = self.address()?;
        wait_until("the namespace", START_TIMEOUT, async || {
            let create = ["operator", "namespace", "create", "--namespace", "default"];
            let created = temporal(&address, &create, &["--retention", "72h"]).await;
            match created {
                Err(error) if !error.to_string().contains("already") => Err(error),
                _ => Ok(Some(())),
            }
        })
        .await?;
        let names =
            SEARCH_ATTRIBUTES.iter().flat_map(|name| ["--name", *name, "--type", "Keyword"]);
        let attributes: Vec<_> = names.collect();
        wait_until("the search attributes", START_TIMEOUT, async || {
            let create = ["operator", "search-attribute", "create", "--namespace", "default"];
            temporal(&address, &create, &attributes).await.map(Some)
        })
        .await?;
        wait_until("the search attributes", START_TIMEOUT, async || {
            let query = SEARCH_ATTRIBUTES.map(|name| format!("{name} = 'none'")).join(" AND ");
            temporal(&address, &["workflow", "list", "--query", &query], &[]).await.map(Some)
        })
        .await
    }
}

impl TemporalNode {
    /// Kills it at once, like a crash.
    pub async fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill().await?;
        }
        Ok(())
    }

    /// Restarts it and waits until it responds.
    pub async fn restart(&mut self) -> Result<()> {
        self.kill().await?;
        self.spawn()?;
        self.wait_until_ready().await
    }

    fn spawn(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = self.host.command(program("temporal-server")?);
        command.args(["--allow-no-auth", "start"]);
        for (service, _) in self.services {
            command.arg("--service").arg(service);
        }
        let child = command
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Ctrl-C in the terminal must only reach the test runner.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the Temporal server")?;
        self.child = Some(child);
        Ok(())
    }

    async fn wait_until_ready(&mut self) -> Result<()> {
        let mut starts = 1;
        wait_until("Temporal", START_TIMEOUT, async || {
            let Some(child) = &mut self.child else { return Ok(Some(Ok(()))) };
            if let Some(status) = child.try_wait()? {
                if starts == MAX_STARTS {
                    let log = self.log.display();
                    return Ok(Some(Err(anyhow!("Temporal ended with {status}; see `{log}`"))));
                }
                starts += 1;
                self.spawn()?;
            }
            for service in self.services {
                let address = self.address_of(*service);
                match *service {
                    // It accepts connections before it can answer, so a call must succeed.
                    FRONTEND => drop(connect(&address).await?),
                    // This service only calls others.
                    WORKER => {}
                    _ => drop(TcpStream::connect(&address).await?),
                }
            }
            Ok(Some(Ok(())))
        })
        .await?
    }

    fn address_of(&self, (_, port): (&str, u16)) -> String {
        format!("{}:{port}", self.host.address())
    }
}

/// Creates the databases and their tables.
async fn create_databases(postgres: &PostgresServer) -> Result<()> {
    let tool = program("temporal-sql-tool")?;
    let (address, port) = postgres.address();
    let (address, port) = (address.to_string(), port.to_string());
    for (database, schema) in DATABASES {
        postgres.query("postgres", &format!("CREATE DATABASE {database}")).await?;
        let server = ["--plugin", "postgres12", "--endpoint", &address, "--port", &port];
        let user = ["--user", "postgres", "--password", "none", "--database", database];
        let schema = format!("postgresql/v12/{schema}");
        let setup = ["setup-schema", "--version", "0.0"];
        for call in [setup, ["update-schema", "--schema-name", &schema]] {
            output(Command::new(&tool).args(server).args(user).args(call)).await?;
        }
    }
    Ok(())
}

/// Runs a command of the `temporal` program.
async fn temporal(address: &str, command: &[&str], more: &[&str]) -> Result<()> {
    let mut program = Command::new("temporal");
    output(program.args(command).args(more).args(["--address", address])).await
}

async fn output(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    ensure!(
        output.status.success(),
        "{} failed: {}",
        command.as_std().get_program().display(),
        text.trim()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_which_is_built() {
        let tools = include_str!("../../../../.ci/tools");
        let line = format!("temporal_server {VERSION} \"h1:");
        assert!(tools.contains(&line), "`.ci/tools` does not build `{line}`");
    }
}
