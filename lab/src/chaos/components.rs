//! Components that are killed and restarted: worker, server, Temporal and PostgreSQL.

use std::ffi::OsStr;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use anyhow::{Result, bail};
use tamma_core::ids::TaskId;
use tamma_store::Store;
use tamma_testkit::tamma_process::TammaProcess;
use tamma_testkit::{postgres, temporal};
use tokio::process::Command;

use super::hold::{self, DATABASE};
use super::point::Victim;

/// Processes of a running Tamma.
pub(crate) struct Components {
    pub(crate) postgres: postgres::PostgresServer,
    pub(crate) temporal: temporal::TemporalServer,
    pub(crate) server: TammaProcess,
    pub(crate) worker: TammaProcess,
    /// Connection for checks; renewed after a restart of PostgreSQL.
    pub(crate) store: Store,
    /// Command line of a person.
    pub(crate) person: TammaCli,
}

/// Command line of a person.
#[derive(Debug, Clone)]
pub(crate) struct TammaCli {
    tamma: PathBuf,
    url: String,
}

impl Components {
    /// Starts all components, with logs in `folder`.
    pub(crate) async fn start(tamma: &Path, folder: &Path) -> Result<Self> {
        let (postgres, temporal) =
            tokio::try_join!(postgres::PostgresServer::start(), temporal::TemporalServer::start())?;
        postgres.query("postgres", "CREATE DATABASE tamma").await?;
        for user in ["server", "worker"] {
            let sql = format!("CREATE ROLE {user} LOGIN SUPERUSER");
            postgres.query("postgres", &sql).await?;
        }
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let listen = format!("127.0.0.1:{port}");
        let role = |name: &str, user: &str, more: &[&str]| {
            let data = folder.join("data").display().to_string();
            let (database, temporal) = (postgres.url(user, DATABASE), temporal.address());
            let backend = [name, "--database", &database, "--temporal", &temporal, "--data", &data];
            let arguments = backend.iter().chain(more).map(|arg| (*arg).to_owned());
            TammaProcess::new(tamma, arguments, folder.join(format!("{name}.log")))
        };
        let mut server = role("serve", "server", &["--listen", &listen]);
        let mut worker = role("work", "worker", &[]);
        server.start().await?;
        hold::prepare(&postgres).await?;
        worker.start().await?;
        let store = Store::connect(&postgres.url("postgres", DATABASE)).await?;
        let person = TammaCli { tamma: tamma.to_owned(), url: format!("http://{listen}") };
        Ok(Self { postgres, temporal, server, worker, store, person })
    }

    /// Kills a component.
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

    /// Restarts a component.
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

    /// Restarts processes that exited without being killed, and returns their names.
    pub(crate) async fn restart_exited(&mut self) -> Result<Vec<&'static str>> {
        let mut exited = Vec::new();
        for (name, role) in [("the server", &mut self.server), ("the worker", &mut self.worker)] {
            if !role.is_running()? {
                exited.push(name);
                role.start().await?;
            }
        }
        Ok(exited)
    }

    /// Runs `temporal workflow` for a task: `show` returns its history, `result` waits for its end.
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
            bail!("`temporal workflow {verb}` failed for `{id}`: {}", output_text(&output));
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

impl TammaCli {
    /// Returns a `tamma` command with JSON output.
    pub(crate) fn command(&self, arguments: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(&self.tamma);
        command.args(arguments).args(["--server", &self.url, "--json"]);
        command.env("TAMMA_PERSON", super::PERSON).stdin(Stdio::null()).kill_on_drop(true);
        command
    }
}

/// Returns standard output and standard error on one line.
pub(crate) fn output_text(output: &Output) -> String {
    let both = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    both.join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
}
