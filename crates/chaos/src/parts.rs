//! The parts that are killed and started again: the worker, the server, Temporal, PostgreSQL.

use std::ffi::OsStr;
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tamma_core::ids::TaskId;
use tamma_store::Store;
use tamma_testkit::{postgres, temporal};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::hold::{self, DATABASE};
use crate::point::Victim;

/// How long a part may take to be there.
const PATIENCE: Duration = Duration::from_mins(1);

/// Seconds without a sign of life after which a worker is taken for dead.
const HEARTBEAT: &str = "3";

/// Everything that Tamma is made of when it runs.
pub(crate) struct Parts {
    pub(crate) postgres: postgres::Server,
    pub(crate) temporal: temporal::Server,
    pub(crate) server: Role,
    pub(crate) worker: Role,
    /// The store, for looking. Made anew when PostgreSQL has been.
    pub(crate) store: Store,
    /// Somebody at a terminal.
    pub(crate) person: Person,
}

/// Somebody at a terminal.
#[derive(Debug, Clone)]
pub(crate) struct Person {
    tamma: PathBuf,
    url: String,
}

/// A process of the program `tamma` that stays.
pub(crate) struct Role {
    arguments: Vec<String>,
    tamma: PathBuf,
    log: PathBuf,
    running: Option<(Child, Lines<BufReader<ChildStdout>>)>,
}

impl Parts {
    /// Starts everything, with logs in a folder.
    pub(crate) async fn start(tamma: &Path, folder: &Path) -> Result<Self> {
        let (postgres, temporal) =
            tokio::try_join!(postgres::Server::start(), temporal::Server::start())?;
        postgres.ask("postgres", "CREATE DATABASE tamma").await?;
        for user in ["server", "worker"] {
            let sql = format!("CREATE ROLE {user} LOGIN SUPERUSER");
            postgres.ask("postgres", &sql).await?;
        }
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let listen = format!("127.0.0.1:{port}");
        let role = |name: &str, user: &str, more: &[&str]| {
            let data = folder.join("data").display().to_string();
            let (database, temporal) = (postgres.url(user, DATABASE), temporal.address());
            let given = [name, "--database", &database, "--temporal", &temporal, "--data", &data];
            Role {
                arguments: given.iter().chain(more).map(|each| (*each).to_owned()).collect(),
                tamma: tamma.to_owned(),
                log: folder.join(format!("{name}.log")),
                running: None,
            }
        };
        let mut server = role("serve", "server", &["--listen", &listen]);
        let mut worker = role("work", "worker", &[]);
        server.start().await?;
        hold::prepare(&postgres).await?;
        worker.start().await?;
        let store = Store::connect(&postgres.url("postgres", DATABASE)).await?;
        let person = Person { tamma: tamma.to_owned(), url: format!("http://{listen}") };
        Ok(Self { postgres, temporal, server, worker, store, person })
    }

    /// Kills one of them.
    pub(crate) async fn kill(&mut self, victim: Victim) -> Result<()> {
        match victim {
            Victim::Worker => self.worker.kill().await,
            Victim::Server => self.server.kill().await,
            Victim::Temporal => {
                self.temporal.kill();
                Ok(())
            }
            Victim::Postgres => self.postgres.kill().await,
        }
    }

    /// Starts one of them again.
    pub(crate) async fn restart(&mut self, victim: Victim) -> Result<()> {
        match victim {
            Victim::Worker => self.worker.start().await,
            Victim::Server => self.server.start().await,
            Victim::Temporal => self.temporal.restart().await,
            Victim::Postgres => {
                self.postgres.restart().await?;
                self.store = Store::connect(&self.postgres.url("postgres", DATABASE)).await?;
                Ok(())
            }
        }
    }

    /// The processes that have ended by themselves since they were looked at last. They are started
    /// again.
    pub(crate) async fn fallen(&mut self) -> Result<Vec<&'static str>> {
        let mut fallen = Vec::new();
        for (name, role) in [("the server", &mut self.server), ("the worker", &mut self.worker)] {
            if !role.is_running()? {
                fallen.push(name);
                role.start().await?;
            }
        }
        Ok(fallen)
    }

    /// What Temporal says of a task's workflow: `show` gives its history, `result` waits for its end.
    pub(crate) async fn workflow(&self, verb: &str, task: TaskId) -> Result<serde_json::Value> {
        let id = tamma_flow::workflow_id(task);
        let output = Command::new("temporal")
            .args(["workflow", verb, "--output", "json", "--workflow-id", &id])
            .args(["--address", &self.temporal.address()])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await?;
        if !output.status.success() {
            bail!("Temporal does not {verb} `{id}`: {}", said(&output));
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

impl Person {
    /// What they type.
    pub(crate) fn types(&self, arguments: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(&self.tamma);
        command.args(arguments).args(["--server", &self.url, "--json"]);
        command.env("TAMMA_PERSON", crate::PERSON).stdin(Stdio::null()).kill_on_drop(true);
        command
    }
}

impl Role {
    /// Starts it, and waits until it says that it is there.
    async fn start(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut child = Command::new(&self.tamma)
            .args(&self.arguments)
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
    async fn kill(&mut self) -> Result<()> {
        if let Some((mut child, _)) = self.running.take() {
            child.kill().await?;
        }
        Ok(())
    }

    fn is_running(&mut self) -> Result<bool> {
        match &mut self.running {
            Some((child, _)) => Ok(child.try_wait()?.is_none()),
            None => Ok(false),
        }
    }

    /// Its process.
    pub(crate) fn process(&self) -> Option<u32> {
        self.running.as_ref().and_then(|(child, _)| child.id())
    }
}

/// What a program has said, in one piece.
pub(crate) fn said(output: &Output) -> String {
    let both = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    both.join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
}
