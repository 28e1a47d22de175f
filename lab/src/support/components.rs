//! Components that experiments kill and restart: worker, server, Temporal and PostgreSQL.

use std::path::Path;
use std::process::{Output, Stdio};

use anyhow::{Result, bail};
use strum::{Display, EnumCount, EnumIter, EnumString};
use tamma_testkit::Cluster;
use tamma_testkit::tamma_process::TammaProcess;
use tokio::process::Command;

use super::database_hold;

/// Component to kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, EnumIter, EnumCount, EnumString)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Victim {
    /// `tamma work`.
    Worker,
    /// `tamma serve`.
    Server,
    /// Temporal.
    Temporal,
    /// PostgreSQL with all its processes.
    Postgres,
}

/// Processes of a running Tamma.
pub(crate) struct Components {
    pub(crate) worker: TammaProcess,
    /// Everything except the worker.
    pub(crate) cluster: Cluster,
}

impl Components {
    /// Starts all components, with logs in `folder` and changed settings of the worker.
    pub(crate) async fn start(
        folder: &Path,
        configure: impl FnOnce(TammaProcess) -> TammaProcess,
    ) -> Result<Self> {
        let cluster = Cluster::builder()
            .folder(folder)
            .private_servers()
            .user_per_role()
            .server()
            .start()
            .await?;
        database_hold::prepare(cluster.postgres()?).await?;
        let mut worker = configure(cluster.new_worker("work")?);
        worker.start().await?;
        Ok(Self { worker, cluster })
    }

    /// Kills a component.
    pub(crate) async fn kill(&mut self, victim: Victim) -> Result<()> {
        match victim {
            Victim::Worker => self.worker.kill().await,
            Victim::Server => self.cluster.server_mut()?.kill().await,
            Victim::Temporal => {
                self.cluster.temporal_mut()?.kill();
                Ok(())
            }
            Victim::Postgres => self.cluster.postgres_mut()?.kill().await,
        }
    }

    /// Restarts a component.
    pub(crate) async fn restart(&mut self, victim: Victim) -> Result<()> {
        match victim {
            Victim::Worker => self.worker.start().await,
            Victim::Server => self.cluster.server_mut()?.start().await,
            Victim::Temporal => self.cluster.temporal_mut()?.restart().await,
            Victim::Postgres => {
                self.cluster.postgres_mut()?.restart().await?;
                self.cluster.reconnect().await
            }
        }
    }

    /// Restarts processes that exited without being killed, and returns their names.
    pub(crate) async fn restart_exited(&mut self) -> Result<Vec<&'static str>> {
        let mut exited = Vec::new();
        let server = self.cluster.server_mut()?;
        for (name, role) in [("the server", server), ("the worker", &mut self.worker)] {
            if !role.is_running()? {
                exited.push(name);
                role.start().await?;
            }
        }
        Ok(exited)
    }

    /// Returns the history of a workflow.
    pub(crate) async fn workflow_history(&self, id: &str) -> Result<serde_json::Value> {
        let output = Command::new("temporal")
            .args(["workflow", "show", "--output", "json", "--workflow-id", id])
            .args(["--address", &self.cluster.temporal_address()?])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await?;
        if !output.status.success() {
            bail!("`temporal workflow show` failed for `{id}`: {}", output_text(&output));
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

/// Returns standard output and standard error on one line.
pub(crate) fn output_text(output: &Output) -> String {
    let both = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    both.join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
}
