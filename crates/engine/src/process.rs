//! Supervised processes: each runs in its own process group and is recorded before it starts.
//!
//! A child waits for a line before it becomes the program: see [`launch`]. Meanwhile its
//! [`ProcessRecord`] is written to the data directory. If we die before that, the line never arrives
//! and nothing runs. If we die later, the record identifies the processes to stop.
//!
//! The line is also a marker that every descendant inherits in its environment, so descendants that
//! left the group are found too. If `setpriv` is installed, the kernel kills the child when we die.
//! In any case [`ProcessRecords::stop_orphans`] does so when the next worker starts.
//!
//! Stopping retries until no process is left or the timeout expires. A timeout is an error, because
//! a slot whose process may still write is not free.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use process_wrap::tokio::{ChildWrapper, CommandWrap, KillOnDrop, ProcessGroup};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use tamma_core::ids::TaskId;
use tamma_core::task_loop::Timestamp;
use tokio::fs;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use self::launch::MARKER_VARIABLE;
use crate::files::{FileLock, replace_file};

mod cgroup;
pub mod launch;
mod process_signal;
mod process_table;
mod resource_watch;

pub use cgroup::{CgroupError, enable_cgroups};
pub(crate) use cgroup::{RunCgroup, has_cgroups};
pub use resource_watch::ExceededLimit;
pub(crate) use resource_watch::exceeded_limit;

/// Time for a killed process to disappear.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// First interval between checks whether processes are gone. It doubles after each check.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Longest interval between these checks.
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Adjustment that makes a process the first one to be killed when memory runs out.
const OOM_SCORE: &str = "800";

/// Random name of this process.
#[expect(clippy::disallowed_methods, reason = "no other process may have this name")]
static THIS_PROCESS: LazyLock<String> = LazyLock::new(|| Uuid::new_v4().to_string());

/// Returns a name that only this process has. In containers, many have the same process ID.
pub fn this_process() -> &'static str {
    &THIS_PROCESS
}

/// Error from starting or stopping a process.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Program could not be started.
    #[error("cannot start `{}`", program.display())]
    Start {
        /// Program that was run.
        program: PathBuf,
        /// Underlying error.
        source: io::Error,
    },
    /// Record could not be written, read or removed. Nothing runs without a record.
    #[error("cannot access process record `{}`", path.display())]
    Record {
        /// Path of the record, or of the directory.
        path: PathBuf,
        /// Underlying error.
        source: io::Error,
    },
    /// Processes are still running after being killed.
    #[error("processes of run {run} are still running after SIGKILL: {pids:?}")]
    StillAlive {
        /// Run that started them.
        run: RunId,
        /// Process IDs.
        pids: Vec<u32>,
    },
    /// A later run of the same task is on record, so this one must not start.
    #[error("run {run} is superseded by run {by}")]
    Superseded {
        /// Run that was refused.
        run: RunId,
        /// Later run.
        by: RunId,
    },
    /// Another worker uses the data directory.
    #[error(
        "another worker uses the folder `{}`; stop it, or start this one with another `--data`",
        data.display()
    )]
    InUse {
        /// Data directory.
        data: PathBuf,
    },
    /// Exit status of a child could not be read.
    #[error("cannot wait for a child process")]
    Wait(#[source] io::Error),
}

/// Identifier of the run that a process belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RunId {
    /// Task of the run.
    pub task: TaskId,
    /// Sequence number of the job within its task.
    #[serde(rename = "ticket")]
    pub job_number: u32,
    /// Attempt at the job. A higher number takes precedence.
    pub generation: u32,
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.task, self.job_number, self.generation)
    }
}

/// Process ID with a start time, so that a reused ID is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// Process ID.
    pub pid: u32,
    /// Start time in clock ticks since boot; 0 if unknown.
    #[serde(rename = "started")]
    pub start_ticks: u64,
}

/// Record of a process group that is running, or was when its owner died.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRecord {
    /// Run that the group belongs to.
    #[serde(flatten)]
    pub run: RunId,
    /// Process group ID, equal to the process ID of its leader.
    pub pgid: u32,
    /// Leader of the group.
    pub leader: ProcessIdentity,
    /// Process that started the group.
    pub owner: ProcessIdentity,
    /// Boot ID of the machine. Processes of another boot no longer exist.
    #[serde(rename = "boot")]
    pub boot_id: String,
    /// Start time.
    #[serde(rename = "started")]
    pub started_at: Timestamp,
}

impl ProcessRecord {
    /// Returns the value of [`MARKER_VARIABLE`] in the processes of this group.
    fn run_marker(&self) -> String {
        format!("{}/{}", self.run, self.pgid)
    }

    /// Returns live processes of the group, and others that carry its marker.
    ///
    /// The system may reuse the group ID once the group is gone. Check
    /// [`ProcessRecord::owns_group`] first if that is possible.
    fn live_processes(&self, ours: bool) -> Vec<ProcessIdentity> {
        let mark = self.marker_assignment();
        // Only the environments of processes that are not older than the leader are worth reading.
        let is_this_boot = self.boot_id == process_table::boot_id();
        let earliest = if is_this_boot { self.leader.start_ticks } else { 0 };
        process_table::list()
            .iter()
            .filter(|process| !process.is_zombie && process.identity.start_ticks >= earliest)
            .filter(|process| (ours && process.group == self.pgid) || process.has_env(&mark))
            .map(|process| process.identity)
            .collect()
    }

    /// Returns `true` if the group ID still belongs to the recorded group.
    fn owns_group(&self) -> bool {
        let mark = self.marker_assignment();
        self.boot_id == process_table::boot_id()
            && process_table::list().iter().any(|process| {
                process.identity == self.leader
                    || process.group == self.pgid && process.has_env(&mark)
            })
    }

    /// Returns the marker as an environment entry.
    fn marker_assignment(&self) -> String {
        format!("{MARKER_VARIABLE}={}", self.run_marker())
    }

    /// Sends TERM, then KILL after `grace`, and confirms that all processes are gone.
    async fn terminate(&self, ours: bool, grace: Duration) -> Result<(), Error> {
        if !process_table::is_available() {
            // Without `/proc` nothing can be confirmed, so only kill the group.
            if let Some(group) = to_pid(self.pgid).filter(|_| ours) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            return Ok(());
        }
        if self.signal_and_wait(ours, Signal::TERM, grace).await.is_empty() {
            return Ok(());
        }
        let left = self.signal_and_wait(ours, Signal::KILL, KILL_TIMEOUT).await;
        let pids: Vec<u32> = left.into_iter().map(|process| process.pid).collect();
        if pids.is_empty() { Ok(()) } else { Err(Error::StillAlive { run: self.run, pids }) }
    }

    /// Signals live processes, waits up to `limit` and returns those that are left.
    async fn signal_and_wait(
        &self,
        ours: bool,
        signal: Signal,
        limit: Duration,
    ) -> Vec<ProcessIdentity> {
        let deadline = Instant::now() + limit;
        let mut signalled = BTreeSet::new();
        let mut pause = MIN_POLL_INTERVAL;
        loop {
            let record = self.clone();
            // Scanning a long process table blocks; keep it off the runtime's threads.
            let scan = tokio::task::spawn_blocking(move || record.live_processes(ours));
            let processes = scan.await.unwrap_or_else(|_| self.live_processes(ours));
            // Includes processes that were forked since the last scan. Each is signalled once.
            for process in &processes {
                if signalled.insert((process.pid, process.start_ticks)) {
                    process_signal::send(*process, signal);
                }
            }
            if processes.is_empty() || Instant::now() >= deadline {
                return processes;
            }
            sleep(pause.min(deadline.saturating_duration_since(Instant::now()))).await;
            pause = (pause * 2).min(MAX_POLL_INTERVAL);
        }
    }
}

fn to_pid(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

/// Process records in the data directory.
#[derive(Debug, Clone)]
pub struct ProcessRecords {
    folder: PathBuf,
}

impl ProcessRecords {
    /// Opens the records in a data directory and creates their folder if needed.
    pub async fn open(data: &Path) -> Result<Self, Error> {
        let folder = data.join("runs");
        // The first folder in the data directory, which has code and transcripts: only for this user.
        let mut builder = fs::DirBuilder::new();
        match builder.recursive(true).mode(0o700).create(&folder).await {
            Ok(()) => Ok(Self { folder }),
            Err(source) => Err(Error::Record { path: folder, source }),
        }
    }

    /// Claims the data directory for one worker. Two workers on it would stop each other's agents, and take
    /// that for failures.
    pub fn claim(&self) -> Result<FileLock, Error> {
        let path = self.folder.join("worker.lock");
        match FileLock::try_acquire(&path) {
            Ok(Some(lock)) => Ok(lock),
            Ok(None) => {
                let data = self.folder.parent().unwrap_or(&self.folder).to_owned();
                Err(Error::InUse { data })
            }
            Err(source) => Err(Error::Record { path, source }),
        }
    }

    /// Returns all records, sorted by file name.
    pub async fn all(&self) -> Result<Vec<ProcessRecord>, Error> {
        let failed = |source| Error::Record { path: self.folder.clone(), source };
        let mut names = Vec::new();
        let mut entries = fs::read_dir(&self.folder).await.map_err(failed)?;
        while let Some(entry) = entries.next_entry().await.map_err(failed)? {
            // Other extensions are partial writes; their processes never started.
            if entry.path().extension().is_some_and(|ending| ending == "json") {
                names.push(entry.path());
            }
        }
        names.sort();
        let mut records = Vec::new();
        for path in names {
            match fs::read(&path).await {
                // On a full disk, earlier versions could leave an empty record. It must not keep a worker
                // from starting.
                Ok(bytes) if bytes.is_empty() => {
                    tracing::warn!(path = %path.display(), "removed an empty process record");
                    let _ = fs::remove_file(&path).await;
                }
                Ok(bytes) => records.push(
                    serde_json::from_slice(&bytes)
                        .map_err(|error| Error::Record { path, source: io::Error::other(error) })?,
                ),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(Error::Record { path, source }),
            }
        }
        Ok(records)
    }

    /// Stops every group whose owner is dead, and returns the records of these groups.
    ///
    /// A worker calls this before it accepts work.
    pub async fn stop_orphans(&self, grace: Duration) -> Result<Vec<ProcessRecord>, Error> {
        let mut reaped = Vec::new();
        for record in self.all().await? {
            let owned = record.boot_id == process_table::boot_id()
                && process_table::identity(record.owner.pid) == Some(record.owner);
            if !owned {
                record.terminate(record.owns_group(), grace).await?;
                self.remove(&record).await?;
                reaped.push(record);
            }
        }
        Ok(reaped)
    }

    /// Makes `run` the only run of its task on this machine.
    ///
    /// A task has one job at a time, so an earlier run has been abandoned. It is stopped even if
    /// its owner is alive. If a later run is on record, `run` itself is refused.
    pub async fn take_over(&self, run: RunId, grace: Duration) -> Result<(), Error> {
        for record in self.all().await?.into_iter().filter(|record| record.run.task == run.task) {
            if record.run > run {
                return Err(Error::Superseded { run, by: record.run });
            }
            if record.run < run {
                record.terminate(record.owns_group(), grace).await?;
                self.remove(&record).await?;
            }
        }
        Ok(())
    }

    fn path(&self, record: &ProcessRecord) -> PathBuf {
        let RunId { task, job_number, generation } = record.run;
        self.folder.join(format!("{task}-{job_number}-{generation}-{}.json", record.pgid))
    }

    async fn write(&self, record: &ProcessRecord) -> Result<(), Error> {
        let path = self.path(record);
        let write = async {
            let bytes = serde_json::to_vec(record).map_err(io::Error::other)?;
            replace_file(&path, &bytes).await
        };
        write.await.map_err(|source| Error::Record { path, source })
    }

    async fn remove(&self, record: &ProcessRecord) -> Result<(), Error> {
        let path = self.path(record);
        match fs::remove_file(&path).await {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(Error::Record { path, source })
            }
            _ => Ok(()),
        }
    }
}

/// Program to start, with its environment.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Path, or name to search in the `PATH` of `env`.
    pub program: PathBuf,
    /// Arguments.
    pub args: Vec<String>,
    /// Complete environment. Nothing is inherited.
    pub env: BTreeMap<String, String>,
    /// Working directory.
    pub working_dir: PathBuf,
    /// Run that the process belongs to.
    pub run: RunId,
    /// Current time, stored in the record.
    pub now: Timestamp,
}

/// Running process group. Dropping it kills the group.
#[derive(Debug)]
pub struct SupervisedProcess {
    child: Box<dyn ChildWrapper>,
    record: ProcessRecord,
    records: ProcessRecords,
    stopped: bool,
}

/// Standard streams of a child.
#[derive(Debug)]
pub struct Pipes {
    /// Standard input of the child.
    pub stdin: ChildStdin,
    /// Standard output of the child.
    pub stdout: ChildStdout,
    /// Standard error of the child.
    pub stderr: ChildStderr,
}

impl SupervisedProcess {
    /// Starts a program in its own process group.
    ///
    /// `intent` is called with the record after it has been written and before the program runs.
    pub async fn start(
        launch: &Launch,
        records: &ProcessRecords,
        intent: impl FnOnce(&ProcessRecord),
    ) -> Result<(Self, Pipes), Error> {
        let failed = |source| Error::Start { program: launch.program.clone(), source };
        if process_table::find(&launch.program, launch.env.get("PATH").map(String::as_str))
            .is_none()
        {
            return Err(failed(io::Error::from(io::ErrorKind::NotFound)));
        }
        let mut child = spawn(launch).await.map_err(failed)?;
        let pgid = child.id().unwrap_or_default();
        let (Some(mut stdin), Some(stdout), Some(stderr)) =
            (child.stdin().take(), child.stdout().take(), child.stderr().take())
        else {
            return Err(failed(io::Error::other("the child has no pipes")));
        };
        let identity =
            |pid| process_table::identity(pid).unwrap_or(ProcessIdentity { pid, start_ticks: 0 });
        let record = ProcessRecord {
            run: launch.run,
            pgid,
            leader: identity(pgid),
            owner: identity(std::process::id()),
            boot_id: process_table::boot_id(),
            started_at: launch.now,
        };
        // If the machine runs out of memory, the kernel kills this process and its descendants
        // instead of the worker or its services. Without `/proc`, it decides by itself.
        let _ = std::fs::write(format!("/proc/{pgid}/oom_score_adj"), OOM_SCORE);
        // From here on, dropping `group` kills the process.
        let group = Self { child, record, records: records.clone(), stopped: false };
        records.write(&group.record).await?;
        intent(&group.record);
        let start_signal = format!("{}\n", group.record.run_marker());
        stdin.write_all(start_signal.as_bytes()).await.map_err(failed)?;
        Ok((group, Pipes { stdin, stdout, stderr }))
    }

    /// Returns the record of the group.
    pub fn record(&self) -> &ProcessRecord {
        &self.record
    }

    /// Waits for the leader to exit. Other processes of the group may still be running.
    pub async fn wait(&mut self) -> Result<ExitStatus, Error> {
        self.child.wait().await.map_err(Error::Wait)
    }

    /// Waits up to `grace` for the leader to exit, then stops all remaining processes.
    pub async fn finish(&mut self, grace: Duration) -> Result<(), Error> {
        // Only processes that are still running matter, so the result is ignored.
        drop(tokio::time::timeout(grace, self.child.wait()).await);
        self.stop(grace).await
    }

    /// Stops the group and every descendant that left it, and confirms that all are gone.
    ///
    /// Sends TERM, and KILL to processes that are left after `grace`.
    pub async fn stop(&mut self, grace: Duration) -> Result<(), Error> {
        // Concurrently, because an exited leader stays a zombie until it is waited for.
        let (_, ended) = tokio::join!(
            tokio::time::timeout(grace + KILL_TIMEOUT, self.child.wait()),
            self.record.terminate(true, grace)
        );
        ended?;
        self.records.remove(&self.record).await?;
        self.stopped = true;
        Ok(())
    }
}

impl Drop for SupervisedProcess {
    fn drop(&mut self) {
        // Dropped without `stop`, for example because its future was cancelled.
        if self.stopped {
            return;
        }
        // Nobody has waited for a leader that is in the table, so nothing else has its group.
        let has_leader = process_table::contains(self.record.leader);
        if let Some(group) = to_pid(self.record.pgid).filter(|_| has_leader) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        // Find descendants that left the group in the background. Without a runtime, or if this
        // fails, the record stays and the next worker stops them.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (record, records) = (self.record.clone(), self.records.clone());
            runtime.spawn(async move {
                if record.terminate(true, Duration::ZERO).await.is_ok() {
                    let _ = records.remove(&record).await;
                }
            });
        }
    }
}

/// Returns the path of a program: `name` itself, or its first match in a search path.
pub(crate) fn find_program(name: &Path, search: Option<&str>) -> Option<PathBuf> {
    process_table::find(name, search)
}

async fn spawn(launch: &Launch) -> io::Result<Box<dyn ChildWrapper>> {
    let mut command = launch::gated_command(&launch.program, "KILL");
    command
        .args(&launch.args)
        .env_clear()
        .envs(&launch.env)
        .current_dir(&launch.working_dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut command = CommandWrap::from(command);
    command.wrap(ProcessGroup::leader()).wrap(KillOnDrop);
    launch::on_launch_thread(move || command.spawn()).await
}
