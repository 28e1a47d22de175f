//! A server of a test's own, which it may kill and start again.

use std::fs::File;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{sleep, timeout};

use super::SCRIPT;
use crate::shared;

/// How long the server may take to start or to be gone.
const PATIENCE: Duration = Duration::from_mins(1);

/// How often it is looked whether something has happened that nobody tells us.
const LOOK: Duration = Duration::from_millis(20);

/// A server that writes as safely as it can. Its data is kept until it is dropped; its processes are
/// gone with it.
#[derive(Debug)]
pub struct Server {
    port: u16,
    folder: TempDir,
    child: Option<Child>,
}

impl Server {
    /// Starts one, and waits until it answers.
    pub async fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("postgres.sh"), SCRIPT)?;
        let mut server = Self { port: shared::free_port()?, folder, child: None };
        server.restart().await?;
        Ok(server)
    }

    /// The URL of one of its databases for one of its users, the same after a restart.
    pub fn url(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/{database}", self.port)
    }

    /// What it has said.
    pub fn log(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.folder.path().join("log"))?)
    }

    /// Kills it at once with all its processes, as a crash of its machine would, and waits until none
    /// of them is left.
    pub async fn kill(&mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let Some(postmaster) = child.id() else { return Ok(()) };
        let others = children(postmaster);
        // One of them may be gone already, which is as good.
        for process in std::iter::once(&postmaster).chain(&others) {
            kill(*process);
        }
        child.wait().await?;
        let gone = async {
            while others.iter().any(|process| is_alive(*process)) {
                sleep(LOOK).await;
            }
        };
        timeout(PATIENCE, gone).await.context("a process of PostgreSQL does not die")
    }

    /// Starts it again with its data, and waits until it answers.
    pub async fn restart(&mut self) -> Result<()> {
        self.kill().await?;
        let log = File::options().create(true).append(true).open(self.folder.path().join("log"))?;
        let mut child = Command::new("bash")
            .arg(self.folder.path().join("postgres.sh"))
            .arg(self.folder.path())
            .arg("killable")
            .arg(self.port.to_string())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // An interrupt at the terminal is for whoever runs the test.
            .process_group(0)
            .spawn()
            .context("`bash` does not start")?;
        let ready = timeout(PATIENCE, async {
            loop {
                if let Some(status) = child.try_wait()? {
                    bail!("PostgreSQL ended with {status}:\n{}", self.log()?);
                }
                if self.ask("postgres", "SELECT 1").await.is_ok() {
                    return Ok(());
                }
                sleep(LOOK).await;
            }
        })
        .await;
        self.child = Some(child);
        ready.context("PostgreSQL does not answer")?
    }

    /// Runs SQL in one of its databases and gives what it answers: a line for each row, its columns
    /// separated by `|`.
    pub async fn ask(&self, database: &str, sql: &str) -> Result<String> {
        let output = self.psql(database).args(["--command", sql]).output().await?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`psql` failed: {}", said.trim());
        Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
    }

    /// A connection that stays, to hold a lock with. It ends when it is dropped, or with the server.
    pub fn session(&self, database: &str) -> Result<Session> {
        let mut child = self
            .psql(database)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("`psql` does not start")?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("`psql` has no pipes");
        };
        Ok(Session { child, input, output: BufReader::new(output).lines() })
    }

    fn psql(&self, database: &str) -> Command {
        let mut command = Command::new("psql");
        command
            .args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only"])
            .args(["--set", "ON_ERROR_STOP=1", "--dbname"])
            .arg(self.url("postgres", database))
            .kill_on_drop(true);
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(postmaster) = self.child.as_ref().and_then(Child::id) else { return };
        let others = children(postmaster);
        for process in std::iter::once(&postmaster).chain(&others) {
            kill(*process);
        }
    }
}

/// A connection to a [`Server`] that stays.
#[derive(Debug)]
pub struct Session {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Session {
    /// Runs a statement that answers nothing, and returns when it is done.
    pub async fn run(&mut self, sql: &str) -> Result<()> {
        self.input.write_all(format!("{sql};\n\\echo done\n").as_bytes()).await?;
        while let Some(line) = self.output.next_line().await? {
            if line == "done" {
                return Ok(());
            }
        }
        bail!("`psql` has ended with {}", self.child.wait().await?)
    }
}

fn kill(process: u32) {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    process.and_then(|process| kill_process(process, Signal::KILL).ok());
}

/// The processes that another has started and that live. The server's leave its process group.
fn children(parent: u32) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let all = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    all.filter(|process| stat(*process).is_some_and(|(_, its)| its == parent)).collect()
}

fn is_alive(process: u32) -> bool {
    stat(process).is_some_and(|(state, _)| !matches!(state, 'Z' | 'X' | 'x'))
}

/// The state and the parent of a process, from the system's table.
fn stat(process: u32) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is a name in parentheses and may have anything in it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}
