//! PostgreSQL server of one test, which can kill and restart it, or promote its standby.

mod standby;

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use self::standby::Standby;
use super::SCRIPT;
use crate::network::Host;
use crate::shared_server;
use crate::wait::{wait_until, wait_until_true};

/// Who can connect: everyone, from every host of the cluster.
const CLIENTS: &str = "local all all trust\nlocal replication all trust\n\
                       host all all 0.0.0.0/0 trust\nhost replication all 0.0.0.0/0 trust\n";

/// Time limit for the server to start or to exit.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// Server with the safest durability settings. Its data and processes are removed when it is
/// dropped.
#[derive(Debug)]
pub struct PostgresServer {
    host: Host,
    port: u16,
    settings: Vec<String>,
    folder: TempDir,
    child: Option<Child>,
    standby: Option<Standby>,
}

impl PostgresServer {
    /// Starts a server and waits until it responds.
    pub async fn start() -> Result<Self> {
        Self::start_with([]).await
    }

    /// Starts a server with more settings, such as `fsync=off`.
    pub async fn start_with(settings: impl IntoIterator<Item = String>) -> Result<Self> {
        Self::start_on(Host::local(), settings).await
    }

    /// Starts a server on a host.
    pub async fn start_on(host: Host, settings: impl IntoIterator<Item = String>) -> Result<Self> {
        let (folder, port) = (server_folder()?, shared_server::free_port()?);
        let settings = settings.into_iter().collect();
        let mut server = Self { host, port, settings, folder, child: None, standby: None };
        server.restart().await?;
        Ok(server)
    }

    /// Returns the URL of one of its databases for a user. It survives a restart.
    pub fn url(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@{}:{}/{database}", self.host.address(), self.port)
    }

    /// Returns its address and port.
    pub fn address(&self) -> (std::net::Ipv4Addr, u16) {
        (self.host.address(), self.port)
    }

    /// Returns the ID of its main process, if it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::id)
    }

    /// Returns its folder, in which its owner can read, and `server` in it, in which its owner can write.
    /// The data is in `server/data`.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a command as the owner of the data, with PostgreSQL's programs on its `PATH`.
    pub async fn run_as_owner(&self, env: &[(&str, &str)], command: &[&str]) -> Result<()> {
        let output = Command::new("bash")
            .arg(self.folder.path().join("postgres.sh"))
            .arg(self.folder.path())
            .arg("run")
            .args(command)
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .context("cannot start `bash`")?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        ensure!(output.status.success(), "{command:?} failed: {}", text.trim());
        Ok(())
    }

    /// Returns its log.
    pub fn log(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.folder.path().join("log"))?)
    }

    /// Kills all its processes at once, like a crash of the machine, and waits until they are gone.
    pub async fn kill(&mut self) -> Result<()> {
        match self.child.take() {
            Some(child) => kill_all(child).await,
            None => Ok(()),
        }
    }

    /// Restarts it with its data and waits until it responds.
    pub async fn restart(&mut self) -> Result<()> {
        self.kill().await?;
        let mut child =
            self.command(self.folder.path(), self.port)?.spawn().context("cannot start `bash`")?;
        let ready = wait_until("PostgreSQL", START_TIMEOUT, async || {
            if let Some(status) = child.try_wait()? {
                let log = self.log()?;
                return Ok(Some(Err(anyhow!("PostgreSQL ended with {status}:\n{log}"))));
            }
            Ok(self.query("postgres", "SELECT 1").await.is_ok().then_some(Ok(())))
        })
        .await;
        self.child = Some(child);
        ready?
    }

    /// Returns the command of a server on its host, with the data of a folder.
    fn command(&self, folder: &Path, port: u16) -> Result<Command> {
        let log = File::options().create(true).append(true).open(folder.join("log"))?;
        let mut command = self.host.command("bash");
        command
            .arg(folder.join("postgres.sh"))
            .arg(folder)
            .arg("killable")
            .arg(port.to_string())
            .arg(format!("listen_addresses={}", self.host.address()))
            .arg(format!("hba_file={}", folder.join("clients").display()))
            .args(&self.settings)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Ctrl-C in the terminal must only reach the test runner.
            .process_group(0);
        Ok(command)
    }

    /// Runs SQL in one of its databases. Returns one line per row, with columns separated by `|`.
    pub async fn query(&self, database: &str, sql: &str) -> Result<String> {
        query(&self.url("postgres", database), sql).await
    }

    /// Opens a connection that can hold a lock. It ends when it is dropped, or with the server.
    pub fn session(&self, database: &str) -> Result<PsqlSession> {
        let mut child = psql(&self.url("postgres", database))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start `psql`")?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("`psql` has no pipes");
        };
        Ok(PsqlSession { child, input, output: BufReader::new(output).lines() })
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        if let Some(child) = &self.child {
            kill_now(child);
        }
    }
}

/// Creates the folder of a server.
fn server_folder() -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("postgres.sh"), SCRIPT)?;
    std::fs::write(folder.path().join("clients"), CLIENTS)?;
    Ok(folder)
}

/// Runs SQL in a database.
async fn query(url: &str, sql: &str) -> Result<String> {
    let output = psql(url).args(["--command", sql]).output().await?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`psql` failed: {}", stderr.trim());
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

fn psql(url: &str) -> Command {
    let mut command = Command::new("psql");
    command
        .args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only"])
        .args(["--set", "ON_ERROR_STOP=1", "--dbname"])
        .arg(url)
        .kill_on_drop(true);
    command
}

/// Kills all processes of a server and waits until they are gone.
async fn kill_all(mut child: Child) -> Result<()> {
    let others = kill_now(&child);
    child.wait().await?;
    let gone = || !others.iter().any(|process| is_alive(*process));
    wait_until_true("the end of PostgreSQL", START_TIMEOUT, gone).await
}

/// Kills all processes of a server, and returns those besides the main one.
fn kill_now(child: &Child) -> Vec<u32> {
    let Some(postmaster) = child.id() else { return Vec::new() };
    let others = children(postmaster);
    // Some of them may have exited already.
    for process in std::iter::once(&postmaster).chain(&others) {
        kill(*process);
    }
    others
}

/// Open connection to a [`PostgresServer`].
#[derive(Debug)]
pub struct PsqlSession {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl PsqlSession {
    /// Runs a statement without a result, and returns when it is done.
    pub async fn run(&mut self, sql: &str) -> Result<()> {
        self.input.write_all(format!("{sql};\n\\echo done\n").as_bytes()).await?;
        while let Some(line) = self.output.next_line().await? {
            if line == "done" {
                return Ok(());
            }
        }
        bail!("`psql` ended with {}", self.child.wait().await?)
    }
}

fn kill(process: u32) {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    process.and_then(|process| kill_process(process, Signal::KILL).ok());
}

/// Returns the live child processes of a process. Those of the server leave its process group.
fn children(parent: u32) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let all = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    all.filter(|process| stat(*process).is_some_and(|(_, its)| its == parent)).collect()
}

fn is_alive(process: u32) -> bool {
    stat(process).is_some_and(|(state, _)| !matches!(state, 'Z' | 'X' | 'x'))
}

/// Returns the state and the parent of a process, from `/proc`.
fn stat(process: u32) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is a name in parentheses that can contain anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}
