//! Running system for tests and experiments.
//!
//! A cluster has a database, and Temporal, `tamma serve` and `tamma work` processes as requested. The
//! crate cannot depend on the server or the worker; tests that run those in their own process add
//! them to a cluster.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tamma_core::history::HistoryEntry;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::task_loop::TaskLoop;
use tamma_store::{RegisteredProject, Store};
use tempfile::TempDir;

use crate::agent::Script;
use crate::keys::write_key_file;
use crate::network::{Host, Network};
use crate::operator::write_operator_file;
use crate::postgres::{PostgresServer, TestDatabase};
use crate::programs::find_program;
use crate::project::{ProjectConfig, ScriptedProject};
use crate::repository::Repository;
use crate::sample::{project_id, task_id};
use crate::shared_server;
use crate::tamma_process::{TammaCli, TammaProcess};
use crate::temporal::{self, ProjectTurns, TemporalCluster, TemporalLayout, TemporalServer};
use crate::wait::wait_until;

/// Host of the database, if a cluster has hosts.
pub const DATABASE_HOST: &str = "database";

/// Settings of a database that a real Temporal server uses too.
const SHARED_DATABASE_SETTINGS: [&str; 2] = ["max_connections=400", "max_wal_size=1GB"];

/// Name of the database on a private server.
pub const DATABASE: &str = "tamma";

/// Person who runs the commands of [`Cluster::cli`].
pub const PERSON: &str = "Ann";

/// Token of the server, unless a test chooses another one.
const OPERATOR_TOKEN: &str = "operator-token-of-the-test-cluster";

/// Maximum number of history entries to read.
const MAX_ENTRIES: u32 = 10_000;

/// Running system. Dropping it ends all its processes and removes its data.
#[derive(Debug)]
pub struct Cluster {
    servers: Vec<TammaProcess>,
    workers: Vec<TammaProcess>,
    /// Connection to the database.
    pub store: Store,
    /// Command line of a person.
    pub cli: TammaCli,
    listen: Vec<String>,
    temporal: TemporalBackend,
    // Dropped after everything that has a connection to it.
    database: DatabaseBackend,
    folder: ClusterFolder,
    /// Set if payloads in Temporal are sealed. An older program could not open them.
    seals: bool,
    // Dropped after everything that runs on its hosts.
    network: Option<Network>,
}

/// Parts of a cluster. Without further calls, it has a new database on the shared server.
#[derive(Debug, Default)]
pub struct ClusterBuilder {
    folder: Option<PathBuf>,
    private_database: bool,
    database_settings: Vec<String>,
    user_per_role: bool,
    temporal: TemporalChoice,
    turns: ProjectTurns,
    hosts: HostChoice,
    standby: bool,
    servers: u32,
    token: Option<String>,
    server_env: Vec<(String, String)>,
    workers: u32,
    worker_args: Vec<String>,
    worker_env: Vec<(String, String)>,
    program: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum TemporalChoice {
    #[default]
    None,
    Shared,
    Private,
    Cluster {
        layout: TemporalLayout,
        shards: u32,
    },
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum HostChoice {
    #[default]
    Same,
    Separate,
}

#[derive(Debug)]
enum TemporalBackend {
    None,
    Shared(String),
    Private(TemporalServer),
    Cluster(TemporalCluster),
}

#[derive(Debug)]
enum DatabaseBackend {
    Shared(TestDatabase),
    Private { server: Box<PostgresServer>, user_per_role: bool },
}

#[derive(Debug)]
enum ClusterFolder {
    Temporary(TempDir),
    Kept(PathBuf),
}

impl ClusterBuilder {
    /// Keeps logs and data in an existing folder, instead of a temporary one.
    #[must_use]
    pub fn folder(self, folder: &Path) -> Self {
        Self { folder: Some(folder.to_owned()), ..self }
    }

    /// Starts private PostgreSQL and Temporal servers, which can be killed.
    #[must_use]
    pub fn private_servers(self) -> Self {
        Self { private_database: true, temporal: TemporalChoice::Private, ..self }
    }

    /// Adds settings of the private PostgreSQL server, such as `fsync=off`.
    #[must_use]
    pub fn database_settings(mut self, settings: &[&str]) -> Self {
        self.database_settings.extend(settings.iter().map(|setting| (*setting).to_owned()));
        self
    }

    /// Gives the Tamma server and the workers their own users of the private PostgreSQL server:
    /// `server` and `worker`.
    #[must_use]
    pub fn user_per_role(self) -> Self {
        Self { user_per_role: true, ..self }
    }

    /// Uses the shared Temporal server of the test run.
    #[must_use]
    pub fn shared_temporal(self) -> Self {
        Self { temporal: TemporalChoice::Shared, ..self }
    }

    /// Starts a private Temporal server, which can be killed.
    #[must_use]
    pub fn private_temporal(self) -> Self {
        Self { temporal: TemporalChoice::Private, ..self }
    }

    /// Starts a private PostgreSQL server, and a real Temporal server that keeps its data there. The
    /// server must be built: [`temporal::is_built`].
    #[must_use]
    pub fn temporal_cluster(self, layout: TemporalLayout, shards: u32) -> Self {
        let temporal = TemporalChoice::Cluster { layout, shards };
        Self { private_database: true, temporal, ..self }
            .database_settings(&SHARED_DATABASE_SETTINGS)
    }

    /// Turns the turns of projects in task queues on or off, if the Temporal server is not shared.
    #[must_use]
    pub fn project_turns(self, turns: ProjectTurns) -> Self {
        Self { turns, ..self }
    }

    /// Runs PostgreSQL and each process of Temporal and Tamma on a host of its own, if it has a real
    /// Temporal server. [`Cluster::network`] tells what the hosts are.
    #[must_use]
    pub fn separate_hosts(self) -> Self {
        Self { hosts: HostChoice::Separate, ..self }
    }

    /// Adds a standby to the private PostgreSQL server.
    #[must_use]
    pub fn standby(self) -> Self {
        Self { standby: true, ..self }
    }

    /// Starts `tamma serve`.
    #[must_use]
    pub fn server(self) -> Self {
        self.servers(1)
    }

    /// Starts this number of `tamma serve` processes. [`Cluster::cli`] uses the first one.
    #[must_use]
    pub fn servers(self, count: u32) -> Self {
        Self { servers: count, ..self }
    }

    /// Starts `tamma serve` with this token. It logs who is let in.
    #[must_use]
    pub fn server_with_token(self, token: &str) -> Self {
        let logging = self.server_env("TAMMA_LOG", "warn,tamma_server=info");
        Self { servers: 1, token: Some(token.to_owned()), ..logging }
    }

    /// Sets an environment variable of the server.
    #[must_use]
    pub fn server_env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.server_env.push((name.to_owned(), value.into()));
        self
    }

    /// Starts this number of `tamma work` processes.
    #[must_use]
    pub fn workers(self, count: u32) -> Self {
        Self { workers: count, ..self }
    }

    /// Adds arguments of the workers.
    #[must_use]
    pub fn worker_args(mut self, arguments: &[&str]) -> Self {
        self.worker_args.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }

    /// Sets an environment variable of the workers.
    #[must_use]
    pub fn worker_env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.worker_env.push((name.to_owned(), value.into()));
        self
    }

    /// Starts another `tamma` program than that of the same build. Payloads are not sealed then. It migrates its private database
    /// itself; if it is older, [`Cluster::store`] may not be able to read it.
    #[must_use]
    pub fn program(self, program: &Path) -> Self {
        Self { program: Some(program.to_owned()), ..self }
    }

    /// Starts everything, and waits until it is ready.
    pub async fn start(self) -> Result<Cluster> {
        let program = self.program.clone().map_or_else(|| find_program("tamma"), Ok);
        let program = match program {
            Ok(program) => program,
            Err(error) if self.servers > 0 || self.workers > 0 => return Err(error),
            // Not every test builds it.
            Err(_) => "tamma".into(),
        };
        let network = self.create_network().await?;
        let temporal = async {
            anyhow::Ok(match self.temporal {
                TemporalChoice::Shared => TemporalBackend::Shared(temporal::server_address()?),
                TemporalChoice::Private => {
                    TemporalBackend::Private(TemporalServer::start_with(self.turns).await?)
                }
                // A cluster is started below, because it needs the database.
                TemporalChoice::None | TemporalChoice::Cluster { .. } => TemporalBackend::None,
            })
        };
        let database = self.start_database(host_of(network.as_ref(), DATABASE_HOST));
        let (database, mut temporal) = tokio::try_join!(database, temporal)?;
        let store = Store::connect(&database.url(None)).await?;
        if self.private_database && self.program.is_some() {
            migrate_with(&program, &database.url(None)).await?;
        } else if self.private_database {
            store.migrate().await.context("cannot migrate the database")?;
        }
        let folder = match &self.folder {
            Some(folder) => ClusterFolder::Kept(folder.clone()),
            None => ClusterFolder::Temporary(tempfile::tempdir()?),
        };
        if let (TemporalChoice::Cluster { layout, shards }, Some(network)) =
            (self.temporal, &network)
            && let DatabaseBackend::Private { server, .. } = &database
        {
            let size = (layout, shards);
            let cluster =
                TemporalCluster::start(size, self.turns, server, network, folder.path()).await?;
            temporal = TemporalBackend::Cluster(cluster);
        }
        let mut listen = Vec::new();
        for name in names_of("serve", self.servers.max(1)) {
            let address = host_of(network.as_ref(), &name).address();
            listen.push(format!("{address}:{}", shared_server::free_port()?));
        }
        let url = listen.first().map(|address| format!("http://{address}")).unwrap_or_default();
        let token = self.token.unwrap_or_else(|| OPERATOR_TOKEN.to_owned());
        let cli = TammaCli { program, url, token, person: PERSON.to_owned() };
        let (servers, workers) = (Vec::new(), Vec::new());
        let seals = self.program.is_none();
        let mut cluster = Cluster {
            servers,
            workers,
            store,
            cli,
            listen,
            temporal,
            database,
            folder,
            seals,
            network,
        };
        for (name, address) in names_of("serve", self.servers).zip(cluster.listen.clone()) {
            let mut server = cluster.server_process(&name, &address)?;
            for (name, value) in &self.server_env {
                server = server.with_env(name, value);
            }
            server.start().await?;
            cluster.servers.push(server);
        }
        let args: Vec<_> = self.worker_args.iter().map(String::as_str).collect();
        for name in names_of("work", self.workers) {
            let mut worker = cluster.new_worker(&name)?.with_args(&args);
            for (name, value) in &self.worker_env {
                worker = worker.with_env(name, value);
            }
            worker.start().await?;
            cluster.workers.push(worker);
        }
        Ok(cluster)
    }

    /// Creates the hosts of a cluster with a real Temporal server.
    async fn create_network(&self) -> Result<Option<Network>> {
        let TemporalChoice::Cluster { layout, .. } = self.temporal else { return Ok(None) };
        let names: Vec<_> = [DATABASE_HOST.to_owned()]
            .into_iter()
            .chain(layout.hosts())
            .chain(names_of("serve", self.servers))
            .chain(names_of("work", self.workers))
            .collect();
        Ok(Some(if self.hosts == HostChoice::Separate {
            Network::create(&names).await?
        } else {
            Network::loopback(&names, "all processes share a host")
        }))
    }

    async fn start_database(&self, host: Host) -> Result<DatabaseBackend> {
        if !self.private_database {
            return Ok(DatabaseBackend::Shared(TestDatabase::fresh().await?));
        }
        let mut server = PostgresServer::start_on(host, self.database_settings.clone()).await?;
        if self.standby {
            server.add_standby().await?;
        }
        server.query("postgres", &format!("CREATE DATABASE {DATABASE}")).await?;
        if self.user_per_role {
            for user in ["server", "worker"] {
                let sql = format!("CREATE ROLE {user} LOGIN SUPERUSER");
                server.query("postgres", &sql).await?;
            }
        }
        Ok(DatabaseBackend::Private { server: Box::new(server), user_per_role: self.user_per_role })
    }
}

/// Returns the names of processes: `work`, `work-2`, `work-3`.
fn names_of(verb: &str, count: u32) -> impl Iterator<Item = String> {
    (1..=count).map(move |number| match number {
        1 => verb.to_owned(),
        _ => format!("{verb}-{number}"),
    })
}

/// Returns the host of a process.
fn host_of(network: Option<&Network>, name: &str) -> Host {
    network.and_then(|network| network.host(name).ok().cloned()).unwrap_or_else(Host::local)
}

/// Runs the migrations of a program.
async fn migrate_with(program: &Path, database: &str) -> Result<()> {
    let output = tokio::process::Command::new(program)
        .args(["migrate", "--database", database])
        .kill_on_drop(true)
        .output()
        .await?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "`tamma migrate` failed: {}", stderr.trim());
    Ok(())
}

impl ClusterFolder {
    fn path(&self) -> &Path {
        match self {
            Self::Temporary(folder) => folder.path(),
            Self::Kept(folder) => folder,
        }
    }
}

impl DatabaseBackend {
    /// Returns the URL for a role, or for the test itself.
    fn url(&self, role: Option<&str>) -> String {
        match self {
            Self::Shared(database) => database.url(),
            Self::Private { server, user_per_role } => {
                let user = role.filter(|_| *user_per_role).unwrap_or("postgres");
                server.url(user, DATABASE)
            }
        }
    }
}

impl Cluster {
    /// Returns a builder.
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::default()
    }

    /// Returns the folder of logs and data.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the URL of the Tamma server.
    pub fn url(&self) -> &str {
        &self.cli.url
    }

    /// Returns the URL of the database.
    pub fn database_url(&self) -> String {
        self.database.url(None)
    }

    /// Returns the address of Temporal.
    pub fn temporal_address(&self) -> Result<String> {
        match &self.temporal {
            TemporalBackend::None => Err(anyhow::anyhow!("the cluster has no Temporal server")),
            TemporalBackend::Shared(address) => Ok(address.clone()),
            TemporalBackend::Private(server) => Ok(server.address()),
            TemporalBackend::Cluster(cluster) => cluster.address(),
        }
    }

    /// Returns the real Temporal server.
    pub fn temporal_cluster(&self) -> Result<&TemporalCluster> {
        match &self.temporal {
            TemporalBackend::Cluster(cluster) => Ok(cluster),
            _ => Err(anyhow::anyhow!("the cluster has no real Temporal server")),
        }
    }

    /// Returns the real Temporal server, to kill its nodes.
    pub fn temporal_cluster_mut(&mut self) -> Result<&mut TemporalCluster> {
        match &mut self.temporal {
            TemporalBackend::Cluster(cluster) => Ok(cluster),
            _ => Err(anyhow::anyhow!("the cluster has no real Temporal server")),
        }
    }

    /// Returns the hosts of a cluster with a real Temporal server.
    pub fn network(&self) -> Result<&Network> {
        self.network.as_ref().context("the cluster has no hosts")
    }

    /// Returns the private PostgreSQL server.
    pub fn postgres(&self) -> Result<&PostgresServer> {
        match &self.database {
            DatabaseBackend::Private { server, .. } => Ok(server),
            DatabaseBackend::Shared(_) => Err(anyhow::anyhow!("PostgreSQL is not private")),
        }
    }

    /// Returns the private PostgreSQL server, to kill it. After a restart, call
    /// [`reconnect`](Self::reconnect).
    pub fn postgres_mut(&mut self) -> Result<&mut PostgresServer> {
        match &mut self.database {
            DatabaseBackend::Private { server, .. } => Ok(server),
            DatabaseBackend::Shared(_) => Err(anyhow::anyhow!("PostgreSQL is not private")),
        }
    }

    /// Returns the private Temporal server.
    pub fn temporal(&self) -> Result<&TemporalServer> {
        match &self.temporal {
            TemporalBackend::Private(server) => Ok(server),
            _ => Err(anyhow::anyhow!("Temporal is not private")),
        }
    }

    /// Returns the private Temporal server, to kill it.
    pub fn temporal_mut(&mut self) -> Result<&mut TemporalServer> {
        match &mut self.temporal {
            TemporalBackend::Private(server) => Ok(server),
            _ => Err(anyhow::anyhow!("Temporal is not private")),
        }
    }

    /// Returns the `tamma serve` process.
    pub fn server(&self) -> Result<&TammaProcess> {
        self.servers.first().context("the cluster has no server")
    }

    /// Returns the `tamma serve` process, to kill it.
    pub fn server_mut(&mut self) -> Result<&mut TammaProcess> {
        self.servers.first_mut().context("the cluster has no server")
    }

    /// Returns all `tamma serve` processes.
    pub fn servers_mut(&mut self) -> &mut [TammaProcess] {
        &mut self.servers
    }

    /// Returns all `tamma work` processes that were started with the cluster.
    pub fn workers_mut(&mut self) -> &mut [TammaProcess] {
        &mut self.workers
    }

    /// Returns the process IDs of all running `tamma` processes that were started with the cluster.
    pub fn tamma_pids(&self) -> Vec<u32> {
        self.servers.iter().chain(&self.workers).filter_map(TammaProcess::pid).collect()
    }

    /// Returns the command line of a person, once for each server.
    pub fn clis(&self) -> Vec<TammaCli> {
        let cli =
            |address: &String| TammaCli { url: format!("http://{address}"), ..self.cli.clone() };
        self.listen.iter().map(cli).collect()
    }

    /// Returns a `tamma serve` process, which is not started.
    pub fn new_server(&self) -> Result<TammaProcess> {
        self.server_process("serve", self.listen.first().context("the cluster has no address")?)
    }

    fn server_process(&self, name: &str, address: &str) -> Result<TammaProcess> {
        let process = self.process("serve", name, "server")?.with_args(&["--listen", address]);
        Ok(process.with_env("TAMMA_TOKEN", &self.cli.token))
    }

    /// Returns a `tamma work` process with its own data folder, called `name`. It is not started.
    pub fn new_worker(&self, name: &str) -> Result<TammaProcess> {
        self.process("work", name, "worker")
    }

    fn process(&self, verb: &str, name: &str, role: &str) -> Result<TammaProcess> {
        let data = self.folder().join(name);
        write_operator_file(&data)?;
        write_key_file(&data, self.seals)?;
        let data = data.display().to_string();
        let (database, temporal) = (self.database.url(Some(role)), self.temporal_address()?);
        let arguments = [verb, "--data", &data, "--database", &database, "--temporal", &temporal];
        let log = self.folder().join(format!("{name}.log"));
        let process = TammaProcess::new(&self.cli.program, arguments.map(str::to_owned), log);
        Ok(process.on_host(host_of(self.network.as_ref(), name)))
    }

    /// Replaces the connection to the database, after a restart of PostgreSQL.
    pub async fn reconnect(&mut self) -> Result<()> {
        self.store = Store::connect(&self.database_url()).await?;
        Ok(())
    }

    /// Registers a repository as a project. Its ID derives from `number`.
    pub async fn register_project(
        &self,
        number: u32,
        name: &str,
        repository: &Repository,
    ) -> Result<ProjectId> {
        let (id, repository) = (project_id(number), repository.path().display().to_string());
        self.store
            .register_project(&RegisteredProject { id, name: name.to_owned(), repository })
            .await?;
        Ok(id)
    }

    /// Registers a repository as a project with a scripted agent. `configure` changes the default
    /// configuration, which is written to the repository and not committed.
    pub async fn add_project(
        &self,
        number: u32,
        name: &str,
        repository: Repository,
        script: &Script,
        configure: impl FnOnce(ProjectConfig) -> ProjectConfig,
    ) -> Result<ScriptedProject> {
        let folder = self.folder().join(name);
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create `{}`", folder.display()))?;
        let config = ProjectConfig::scripted(&folder.join("script.json"))?;
        let configuration = configure(config).to_string();
        repository.write("tamma.yaml", &configuration)?;
        let id = self.register_project(number, name, &repository).await?;
        let name = name.to_owned();
        let project = ScriptedProject { id, name, repository, folder, configuration };
        project.write_script(script)?;
        Ok(project)
    }

    /// Adds a task with the command line. Its ID derives from `number`.
    pub async fn add_task(&self, number: u32, title: &str, more: &[&str]) -> Result<TaskId> {
        let task = task_id(number);
        let id = task.to_string();
        let arguments = ["task", "add", title, "--id", &id, "--json"];
        self.cli.run(&[&arguments[..], more].concat()).await.context("cannot add the task")?;
        Ok(task)
    }

    /// Waits until a task meets a condition. An error of the condition ends the wait.
    pub async fn wait_for_task(
        &self,
        task: TaskId,
        limit: Duration,
        condition: impl Fn(&TaskLoop) -> Result<bool>,
    ) -> Result<TaskLoop> {
        wait_until("the task", limit, async || {
            let task_loop = self.store.task(task).await?.task_loop?;
            Ok(match condition(&task_loop) {
                Ok(met) => met.then_some(Ok(task_loop)),
                Err(error) => Some(Err(error)),
            })
        })
        .await?
    }

    /// Returns the history of a task.
    pub async fn history(&self, task: TaskId) -> Result<Vec<HistoryEntry>> {
        let lines = self.store.history(task, 0, MAX_ENTRIES).await?;
        Ok(lines.into_iter().map(|line| line.entry).collect())
    }

    /// Waits until a task is closed and its lessons are stored, and returns its history.
    pub async fn learned_history(
        &self,
        task: TaskId,
        limit: Duration,
    ) -> Result<Vec<HistoryEntry>> {
        wait_until("its lessons", limit, async || {
            let task_loop = self.store.task(task).await?.task_loop?;
            let over = task_loop.state.is_terminal() && task_loop.active_job.is_none();
            Ok(if over { Some(self.history(task).await?) } else { None })
        })
        .await
    }

    /// Stops all processes, so that nothing writes to the folder any more.
    pub async fn stop(mut self) -> Result<()> {
        for process in self.servers.iter_mut().chain(&mut self.workers) {
            process.kill().await?;
        }
        self.store.close().await;
        Ok(())
    }
}
