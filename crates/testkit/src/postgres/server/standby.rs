//! Standby of a PostgreSQL server, which confirms every commit and can take over.

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;
use tokio::process::Child;

use super::{PostgresServer, START_TIMEOUT, kill_all, kill_now, query, server_folder};
use crate::shared_server;
use crate::wait::wait_until;

/// Name of the standby, for which commits wait.
const NAME: &str = "standby";

/// Server that replays what its primary writes.
#[derive(Debug)]
pub(super) struct Standby {
    port: u16,
    folder: TempDir,
    /// `None` once it is stopped.
    child: Option<Child>,
}

impl PostgresServer {
    /// Adds a standby on the same host. From then on, a commit waits until the standby has it on disk.
    pub async fn add_standby(&mut self) -> Result<()> {
        let (folder, port) = (server_folder()?, shared_server::free_port()?);
        let child = self
            .command(folder.path(), port)?
            .env("PRIMARY", self.url("postgres", "postgres"))
            // Its copy of the primary's settings names a standby, and it has none.
            .args([format!("cluster_name={NAME}"), "synchronous_standby_names=".to_owned()])
            .spawn()
            .context("cannot start `bash`")?;
        self.standby = Some(Standby { port, folder, child: Some(child) });
        wait_until("the standby", START_TIMEOUT, async || {
            let streaming = format!(
                "SELECT count(*) FROM pg_stat_replication
                WHERE application_name = '{NAME}' AND state = 'streaming'"
            );
            let count = self.query("postgres", &streaming).await?;
            Ok((count != "0").then_some(()))
        })
        .await?;
        let wait = format!("ALTER SYSTEM SET synchronous_standby_names = '{NAME}'");
        self.query("postgres", &wait).await?;
        self.query("postgres", "SELECT pg_reload_conf()").await.map(drop)
    }

    /// Kills the server and promotes its standby, which gets its address. Nothing that was committed is
    /// missing. The new server has no standby.
    pub async fn fail_over(&mut self) -> Result<()> {
        let Some(mut standby) = self.standby.take() else { bail!("PostgreSQL has no standby") };
        self.kill().await?;
        let url = format!("postgres://postgres@{}:{}/postgres", self.host.address(), standby.port);
        query(&url, "SELECT pg_promote()").await.context("cannot promote the standby")?;
        query(&url, "ALTER SYSTEM RESET synchronous_standby_names").await?;
        if let Some(child) = standby.child.take() {
            kill_all(child).await?;
        }
        let folder = server_folder()?;
        self.folder = std::mem::replace(&mut standby.folder, folder);
        self.restart().await
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        if let Some(child) = &self.child {
            kill_now(child);
        }
    }
}
