//! Running system for whole tasks: private PostgreSQL and Temporal, a Tamma server, and workers.
//!
//! Experiments use it through the command line, as a person would.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tamma_core::history::HistoryEntry;
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::task_loop::TaskLoop;
use tamma_store::{RegisteredProject, Store};
use tamma_testkit::repository::Repository;
use tamma_testkit::tamma_process::TammaProcess;
use tamma_testkit::{postgres, temporal};
use tokio::process::Command;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::programs::beside;

/// Interval for polling conditions that send no notification.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum number of history entries to read.
const MAX_ENTRIES: u32 = 10_000;

/// Running system. Dropping it ends all its processes.
pub(crate) struct Cluster {
    _postgres: postgres::PostgresServer,
    _temporal: temporal::TemporalServer,
    processes: Vec<TammaProcess>,
    /// Connection to the database.
    pub(crate) store: Store,
    /// Folder of the logs and of the workers' data.
    pub(crate) folder: PathBuf,
    /// Path of the `tamma` binary.
    pub(crate) tamma: PathBuf,
    /// URL of the server.
    pub(crate) url: String,
    token: Option<String>,
    backend_args: [String; 4],
}

impl Cluster {
    /// Starts everything except workers, with logs in `folder`.
    pub(crate) async fn start(folder: &Path) -> Result<Self> {
        Self::start_with(folder, None).await
    }

    /// Starts everything except workers. The server requires a token and logs who is let in.
    pub(crate) async fn start_with_token(folder: &Path, token: &str) -> Result<Self> {
        Self::start_with(folder, Some(token.to_owned())).await
    }

    async fn start_with(folder: &Path, token: Option<String>) -> Result<Self> {
        let tamma = beside("tamma")?;
        let (postgres, temporal) =
            tokio::try_join!(postgres::PostgresServer::start(), temporal::TemporalServer::start())?;
        postgres.query("postgres", "CREATE DATABASE tamma").await?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let listen = format!("127.0.0.1:{port}");
        let database = postgres.url("postgres", "tamma");
        let backend_args = ["--database", &database, "--temporal", &temporal.address()];
        let backend_args = backend_args.map(str::to_owned);
        let data = folder.join("serve").display().to_string();
        let more = ["serve", "--data", &data, "--listen", &listen].map(str::to_owned);
        let arguments = more.into_iter().chain(backend_args.clone());
        let mut server = TammaProcess::new(&tamma, arguments, folder.join("serve.log"));
        if let Some(token) = &token {
            server = server
                .with_env("TAMMA_TOKEN", token)
                .with_env("TAMMA_LOG", "warn,tamma_server=info");
        }
        server.start().await?;
        Ok(Self {
            store: Store::connect(&database).await?,
            _postgres: postgres,
            _temporal: temporal,
            processes: vec![server],
            folder: folder.to_owned(),
            tamma,
            url: format!("http://{listen}"),
            token,
            backend_args,
        })
    }

    /// Returns a worker with its own data folder, called `name`. The worker is not started.
    pub(crate) fn worker(&self, name: &str, more: &[&str]) -> TammaProcess {
        let data = self.folder.join(name).display().to_string();
        let arguments = ["work", "--data", &data].into_iter().chain(more.iter().copied());
        let arguments = arguments.map(str::to_owned).chain(self.backend_args.clone());
        TammaProcess::new(&self.tamma, arguments, self.folder.join(format!("{name}.log")))
    }

    /// Starts a worker that runs until the cluster stops.
    pub(crate) async fn start_worker(&mut self, mut worker: TammaProcess) -> Result<()> {
        worker.start().await?;
        self.processes.push(worker);
        Ok(())
    }

    /// Registers a repository as a project. Its ID derives from `number`.
    pub(crate) async fn register_project(
        &self,
        number: u32,
        name: &str,
        repository: &Repository,
    ) -> Result<ProjectId> {
        let (id, repository) = (ProjectId(id(1, number)), repository.path().display().to_string());
        self.store
            .register_project(&RegisteredProject { id, name: name.to_owned(), repository })
            .await?;
        Ok(id)
    }

    /// Adds a task with the command line. Its ID derives from `number`.
    pub(crate) async fn add_task(&self, number: u32, title: &str, more: &[&str]) -> Result<TaskId> {
        let task = TaskId(id(2, number));
        let id = task.to_string();
        let arguments = ["task", "add", title, "--id", &id, "--json"];
        self.tamma(&[&arguments[..], more].concat()).await.context("cannot add the task")?;
        Ok(task)
    }

    /// Runs a `tamma` command as a person would and returns its standard output.
    pub(crate) async fn tamma(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.tamma);
        if let Some(token) = &self.token {
            command.env("TAMMA_TOKEN", token);
        }
        let output = command
            .args(arguments)
            .args(["--server", &self.url])
            .env("TAMMA_PERSON", "Ann")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await?;
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`tamma {}`: {stdout}{stderr}", arguments.join(" "));
        Ok(stdout)
    }

    /// Waits until a task meets a condition. An error of the condition ends the wait.
    pub(crate) async fn until(
        &self,
        task: TaskId,
        limit: Duration,
        condition: impl Fn(&TaskLoop) -> Result<bool>,
    ) -> Result<TaskLoop> {
        wait("the task", limit, async || {
            let task_loop = self.store.task(task).await?.task_loop?;
            Ok(match condition(&task_loop) {
                Ok(met) => met.then_some(Ok(task_loop)),
                Err(error) => Some(Err(error)),
            })
        })
        .await?
    }

    /// Waits until a task is closed and its lessons are stored, and returns its history.
    pub(crate) async fn learned_history(
        &self,
        task: TaskId,
        limit: Duration,
    ) -> Result<Vec<HistoryEntry>> {
        wait("capturing lessons", limit, async || {
            let task_loop = self.store.task(task).await?.task_loop?;
            let over = task_loop.state.is_terminal() && task_loop.active_job.is_none();
            Ok(if over { Some(self.history(task).await?) } else { None })
        })
        .await
    }

    /// Stops all processes, so that nothing writes to the folder any more.
    pub(crate) async fn stop(mut self) -> Result<()> {
        for process in &mut self.processes {
            process.kill().await?;
        }
        self.store.close().await;
        Ok(())
    }

    /// Returns the history of a task.
    pub(crate) async fn history(&self, task: TaskId) -> Result<Vec<HistoryEntry>> {
        let lines = self.store.history(task, 0, MAX_ENTRIES).await?;
        Ok(lines.into_iter().map(|line| line.entry).collect())
    }
}

/// Returns the fixed ID of a numbered project (`kind` 1) or task (`kind` 2).
pub(crate) fn id(kind: u128, number: u32) -> Uuid {
    let number = (kind << 32) + u128::from(number);
    Uuid::from_u128(0x0192_a000_0000_7000_8000_0000_0000_0000 + number)
}

/// Polls until a value is available. The last error is reported on timeout.
pub(crate) async fn wait<T>(
    what: &str,
    limit: Duration,
    mut poll: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let mut last = None;
    let polling = async {
        loop {
            match poll().await {
                Ok(Some(found)) => return found,
                Ok(None) => last = None,
                Err(error) => last = Some(error),
            }
            sleep(POLL_INTERVAL).await;
        }
    };
    let found = timeout(limit, polling).await;
    match (found, last) {
        (Ok(found), _) => Ok(found),
        (Err(_), Some(error)) => Err(error).context(format!("timed out waiting for {what}")),
        (Err(_), None) => bail!("{what}: not ready within {} s", limit.as_secs()),
    }
}
