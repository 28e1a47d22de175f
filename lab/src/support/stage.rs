//! Where whole tasks are played: a PostgreSQL, a Temporal and a server of their own, workers as a trial
//! wants them, and the command line of whoever uses it all.

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

/// How often is looked for what tells nobody when it comes.
const LOOK: Duration = Duration::from_millis(50);

/// How many entries of a log are read.
const ENTRIES: u32 = 10_000;

/// Everything that whole tasks need. It ends with this.
pub(crate) struct Stage {
    _postgres: postgres::PostgresServer,
    _temporal: temporal::TemporalServer,
    roles: Vec<TammaProcess>,
    /// What is written down.
    pub(crate) store: Store,
    /// Where logs and disks are.
    pub(crate) folder: PathBuf,
    /// The program itself.
    pub(crate) tamma: PathBuf,
    /// Where the server is.
    pub(crate) url: String,
    token: Option<String>,
    given: [String; 4],
}

impl Stage {
    /// Starts everything but the workers, with logs in a folder.
    pub(crate) async fn start(folder: &Path) -> Result<Self> {
        Self::start_with(folder, None).await
    }

    /// The same with a server that wants a token, and says in its log who is let in and who is not.
    pub(crate) async fn guarded(folder: &Path, token: &str) -> Result<Self> {
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
        let given = ["--database", &database, "--temporal", &temporal.address()];
        let given = given.map(str::to_owned);
        let data = folder.join("serve").display().to_string();
        let more = ["serve", "--data", &data, "--listen", &listen].map(str::to_owned);
        let arguments = more.into_iter().chain(given.clone());
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
            roles: vec![server],
            folder: folder.to_owned(),
            tamma,
            url: format!("http://{listen}"),
            token,
            given,
        })
    }

    /// A worker with a disk of its own, in the folder of its name. It is not started yet.
    pub(crate) fn worker(&self, name: &str, more: &[&str]) -> TammaProcess {
        let data = self.folder.join(name).display().to_string();
        let arguments = ["work", "--data", &data].into_iter().chain(more.iter().copied());
        let arguments = arguments.map(str::to_owned).chain(self.given.clone());
        TammaProcess::new(&self.tamma, arguments, self.folder.join(format!("{name}.log")))
    }

    /// Starts a worker, and keeps it for as long as this lives.
    pub(crate) async fn employ(&mut self, mut worker: TammaProcess) -> Result<()> {
        worker.start().await?;
        self.roles.push(worker);
        Ok(())
    }

    /// Makes a project of a repository. Its number tells it from the others.
    pub(crate) async fn register(
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

    /// Adds a task with the command line. Its number tells it from the others.
    pub(crate) async fn add(&self, number: u32, title: &str, more: &[&str]) -> Result<TaskId> {
        let task = TaskId(id(2, number));
        let id = task.to_string();
        let arguments = ["task", "add", title, "--id", &id, "--json"];
        self.tamma(&[&arguments[..], more].concat()).await.context("the task cannot be added")?;
        Ok(task)
    }

    /// Runs the command line as a person would, and returns what it printed.
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
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complained = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`tamma {}`: {said}{complained}", arguments.join(" "));
        Ok(said)
    }

    /// Waits until a task is where a trial wants it.
    pub(crate) async fn until(
        &self,
        task: TaskId,
        patience: Duration,
        is_there: impl Fn(&TaskLoop) -> Result<bool>,
    ) -> Result<TaskLoop> {
        wait("the task", patience, async || {
            let machine = self.store.task(task).await?.task_loop?;
            Ok(match is_there(&machine) {
                Ok(there) => there.then_some(Ok(machine)),
                // What can no longer come is not waited for.
                Err(error) => Some(Err(error)),
            })
        })
        .await?
    }

    /// Waits until what a task has taught is written down, and returns its log.
    pub(crate) async fn taught(
        &self,
        task: TaskId,
        patience: Duration,
    ) -> Result<Vec<HistoryEntry>> {
        wait("what the task has taught", patience, async || {
            let machine = self.store.task(task).await?.task_loop?;
            let over = machine.state.is_terminal() && machine.active_job.is_none();
            Ok(if over { Some(self.log(task).await?) } else { None })
        })
        .await
    }

    /// Ends everything, so that nobody writes to the folder any more.
    pub(crate) async fn end(mut self) -> Result<()> {
        for role in &mut self.roles {
            role.kill().await?;
        }
        self.store.close().await;
        Ok(())
    }

    /// The log of a task.
    pub(crate) async fn log(&self, task: TaskId) -> Result<Vec<HistoryEntry>> {
        let lines = self.store.history(task, 0, ENTRIES).await?;
        Ok(lines.into_iter().map(|line| line.entry).collect())
    }
}

/// The identity of the project or the task of a number: made up, and the same every time.
pub(crate) fn id(kind: u128, number: u32) -> Uuid {
    let number = (kind << 32) + u128::from(number);
    Uuid::from_u128(0x0192_a000_0000_7000_8000_0000_0000_0000 + number)
}

/// Waits until there is something that tells nobody when it comes.
pub(crate) async fn wait<T>(
    what: &str,
    patience: Duration,
    mut look: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let mut last = None;
    let looking = async {
        loop {
            match look().await {
                Ok(Some(found)) => return found,
                Ok(None) => last = None,
                Err(error) => last = Some(error),
            }
            sleep(LOOK).await;
        }
    };
    let found = timeout(patience, looking).await;
    match (found, last) {
        (Ok(found), _) => Ok(found),
        (Err(_), Some(error)) => Err(error).context(format!("{what} has not come")),
        (Err(_), None) => bail!("{what} has not come within {} seconds", patience.as_secs()),
    }
}
