//! Processes that cannot be lost: each in a group of its own, on record before it may run.
//!
//! A child is started behind a gate: a small shell waits for a line on its standard input before it
//! becomes the program. In between, its [`Record`] is written to the data folder. If we die before
//! that, the line never comes and nothing runs; if we die after it, the record says whom to stop.
//!
//! The line is also a mark that every descendant carries in its environment, so that a child that
//! left the group is found too. Where `setpriv` is installed, the kernel ends the child when we die;
//! in any case [`Records::reap`] does when the next worker starts.
//!
//! Stopping is retried here, until nothing lives or the patience is over; then it is an error,
//! because a slot whose process may still write is not free.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc;
use std::time::Duration;

use process_wrap::tokio::{ChildWrapper, CommandWrap, KillOnDrop, ProcessGroup};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::{Deserialize, Serialize};
use tamma_core::ids::TaskId;
use tamma_core::task_loop::Timestamp;
use tokio::fs;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

mod table;

/// The variable by which a descendant is known.
const MARK: &str = "TAMMA_RUN";

/// Waits for the mark, then becomes the program. Nothing of the program is text to the shell.
const BEHIND_A_GATE: &str = "IFS= read -r TAMMA_RUN && export TAMMA_RUN && exec \"$@\"";

/// Where `setpriv` is found, if it is installed.
const SETPRIV: [&str; 3] =
    ["/usr/bin/setpriv", "/bin/setpriv", "/run/current-system/sw/bin/setpriv"];

/// How long a killed process may take to disappear.
const KILLED: Duration = Duration::from_secs(10);

/// How soon it is looked again whether processes that are not our children are gone, at first.
const LOOK: Duration = Duration::from_millis(5);

/// How seldom, at last.
const SELDOM: Duration = Duration::from_millis(100);

/// What can go wrong with a process.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not be started.
    #[error("cannot start `{}`", program.display())]
    Start {
        /// What was to be started.
        program: PathBuf,
        /// Why it could not.
        source: io::Error,
    },
    /// Its record could not be written, read or removed. Without a record nothing is started.
    #[error("cannot keep the record `{}`", path.display())]
    Record {
        /// Which record.
        path: PathBuf,
        /// Why it could not.
        source: io::Error,
    },
    /// It was killed, and something of it still lives.
    #[error("processes of {run} do not end, even when killed: {pids:?}")]
    StillAlive {
        /// Whose they are.
        run: RunId,
        /// The processes.
        pids: Vec<u32>,
    },
    /// A later piece of work of the same task runs, so this one has no business here.
    #[error("{run} is too late: {by} has taken its place")]
    Superseded {
        /// What was to be started.
        run: RunId,
        /// What runs.
        by: RunId,
    },
    /// The system did not say how it ended.
    #[error("cannot wait for a child process")]
    Wait(#[source] io::Error),
}

/// Which piece of work a process belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RunId {
    /// The task.
    pub task: TaskId,
    /// The ticket of the job.
    pub ticket: u32,
    /// How often the job has been taken up. A later one has the right of way.
    pub generation: u32,
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.task, self.ticket, self.generation)
    }
}

/// A process, told apart from a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its number.
    pub pid: u32,
    /// When it started, in the kernel's ticks since the machine did. 0 where that cannot be told.
    pub started: u64,
}

/// A process group that runs, or ran when its owner died.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Which piece of work it belongs to.
    #[serde(flatten)]
    pub run: RunId,
    /// The group, which has the number of its leader.
    pub pgid: u32,
    /// The leader.
    pub leader: Identity,
    /// Who started it.
    pub owner: Identity,
    /// Which start of the machine this was. Another one has none of these processes.
    pub boot: String,
    /// When.
    pub started: Timestamp,
}

impl Record {
    /// The mark of its processes.
    fn mark(&self) -> String {
        format!("{}/{}", self.run, self.pgid)
    }

    /// The processes of it that live: those of the group, and those with its mark elsewhere.
    ///
    /// The group's number is taken again when all of the group is gone. Whoever does not know that
    /// the group is still ours asks [`Record::is_ours`] first.
    fn living(&self, ours: bool) -> Vec<u32> {
        let mark = self.assignment();
        table::read()
            .iter()
            .filter(|process| !process.ended)
            .filter(|process| (ours && process.group == self.pgid) || process.has(&mark))
            .map(|process| process.identity.pid)
            .collect()
    }

    /// Whether the group that has the number now is the one that was recorded.
    fn is_ours(&self) -> bool {
        let mark = self.assignment();
        self.boot == table::boot()
            && table::read().iter().any(|process| {
                process.identity == self.leader || process.group == self.pgid && process.has(&mark)
            })
    }

    /// How the mark stands in an environment.
    fn assignment(&self) -> String {
        format!("{MARK}={}", self.mark())
    }

    /// Ends all of it: asks, kills after the grace, and makes sure.
    async fn end(&self, ours: bool, grace: Duration) -> Result<(), Error> {
        if !table::is_there() {
            // Nothing can be confirmed without a table of processes; what can be done is done.
            if let Some(group) = number(self.pgid).filter(|_| ours) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            return Ok(());
        }
        if self.sweep(ours, Signal::TERM, grace).await.is_empty() {
            return Ok(());
        }
        let pids = self.sweep(ours, Signal::KILL, KILLED).await;
        if pids.is_empty() { Ok(()) } else { Err(Error::StillAlive { run: self.run, pids }) }
    }

    /// Signals what lives, waits until it is gone or the time is over, and returns what is left.
    async fn sweep(&self, ours: bool, signal: Signal, limit: Duration) -> Vec<u32> {
        let until = Instant::now() + limit;
        let mut signalled = BTreeSet::new();
        let mut pause = LOOK;
        loop {
            let record = self.clone();
            // The table of a busy machine is long, and others wait for this thread.
            let look = tokio::task::spawn_blocking(move || record.living(ours));
            let pids = look.await.unwrap_or_else(|_| self.living(ours));
            // Also whatever was born since the last look; nobody is asked twice.
            send(signal, pids.iter().filter(|pid| signalled.insert(**pid)));
            if pids.is_empty() || Instant::now() >= until {
                return pids;
            }
            sleep(pause.min(until.saturating_duration_since(Instant::now()))).await;
            pause = (pause * 2).min(SELDOM);
        }
    }
}

fn send<'a>(signal: Signal, pids: impl Iterator<Item = &'a u32>) {
    for pid in pids.filter_map(|pid| number(*pid)) {
        // A process that ended between the look and the signal is what we want.
        let _ = kill_process(pid, signal);
    }
}

fn number(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

/// The records of what runs, in the data folder.
#[derive(Debug, Clone)]
pub struct Records {
    folder: PathBuf,
}

impl Records {
    /// The records in a data folder.
    pub async fn open(data: &Path) -> Result<Self, Error> {
        let folder = data.join("runs");
        match fs::create_dir_all(&folder).await {
            Ok(()) => Ok(Self { folder }),
            Err(source) => Err(Error::Record { path: folder, source }),
        }
    }

    /// All that are there, in the order of their names.
    pub async fn all(&self) -> Result<Vec<Record>, Error> {
        let failed = |source| Error::Record { path: self.folder.clone(), source };
        let mut names = Vec::new();
        let mut entries = fs::read_dir(&self.folder).await.map_err(failed)?;
        while let Some(entry) = entries.next_entry().await.map_err(failed)? {
            // Another ending is a record whose writing was interrupted: what it was for never ran.
            if entry.path().extension().is_some_and(|ending| ending == "json") {
                names.push(entry.path());
            }
        }
        names.sort();
        let mut records = Vec::new();
        for path in names {
            match fs::read(&path).await {
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

    /// Ends every group whose owner is dead, and returns their records.
    ///
    /// A worker does this before it takes up any work.
    pub async fn reap(&self, grace: Duration) -> Result<Vec<Record>, Error> {
        let mut reaped = Vec::new();
        for record in self.all().await? {
            let owned = record.boot == table::boot()
                && table::identity(record.owner.pid) == Some(record.owner);
            if !owned {
                record.end(record.is_ours(), grace).await?;
                self.remove(&record).await?;
                reaped.push(record);
            }
        }
        Ok(reaped)
    }

    /// Makes a piece of work the only one of its task on this machine.
    ///
    /// A task has one job at a time. An earlier one that still runs was given up by whoever asked
    /// for it, so it is ended, also where its owner lives; and one that is earlier itself is refused.
    pub async fn take_over(&self, run: RunId, grace: Duration) -> Result<(), Error> {
        let order = |run: RunId| (run.ticket, run.generation);
        for record in self.all().await?.into_iter().filter(|record| record.run.task == run.task) {
            if order(record.run) > order(run) {
                return Err(Error::Superseded { run, by: record.run });
            }
            if order(record.run) < order(run) {
                record.end(record.is_ours(), grace).await?;
                self.remove(&record).await?;
            }
        }
        Ok(())
    }

    fn path(&self, record: &Record) -> PathBuf {
        let RunId { task, ticket, generation } = record.run;
        self.folder.join(format!("{task}-{ticket}-{generation}-{}.json", record.pgid))
    }

    async fn write(&self, record: &Record) -> Result<(), Error> {
        let path = self.path(record);
        let partial = path.with_extension("partial");
        let written = async {
            let bytes = serde_json::to_vec(record).map_err(io::Error::other)?;
            let mut file = fs::File::create(&partial).await?;
            file.write_all(&bytes).await?;
            // On the disk before the child may run: the machine may lose its power too.
            file.sync_all().await?;
            fs::rename(&partial, &path).await
        };
        written.await.map_err(|source| Error::Record { path, source })
    }

    async fn remove(&self, record: &Record) -> Result<(), Error> {
        let path = self.path(record);
        match fs::remove_file(&path).await {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(Error::Record { path, source })
            }
            _ => Ok(()),
        }
    }
}

/// What is to be started.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The program: a path, or a name to be looked for in the `PATH` of `env`.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its whole environment. Nothing is inherited.
    pub env: BTreeMap<String, String>,
    /// Where it runs.
    pub folder: PathBuf,
    /// Which piece of work it belongs to.
    pub run: RunId,
    /// The time it is.
    pub at: Timestamp,
}

/// A running process group, ours until it is confirmed to be gone.
#[derive(Debug)]
pub struct Group {
    child: Box<dyn ChildWrapper>,
    record: Record,
    records: Records,
    gone: bool,
}

/// What connects us with a child.
#[derive(Debug)]
pub struct Pipes {
    /// What it reads.
    pub stdin: ChildStdin,
    /// What it writes.
    pub stdout: ChildStdout,
    /// What it complains about.
    pub stderr: ChildStderr,
}

impl Group {
    /// Starts a program in a group of its own, with its record written before it may run.
    ///
    /// `intent` sees the record after it is written and before the program runs.
    pub async fn start(
        launch: &Launch,
        records: &Records,
        intent: impl FnOnce(&Record),
    ) -> Result<(Self, Pipes), Error> {
        let failed = |source| Error::Start { program: launch.program.clone(), source };
        if table::find(&launch.program, launch.env.get("PATH").map(String::as_str)).is_none() {
            return Err(failed(io::Error::from(io::ErrorKind::NotFound)));
        }
        let mut child = spawn(launch).await.map_err(failed)?;
        let pgid = child.id().unwrap_or_default();
        let (Some(mut stdin), Some(stdout), Some(stderr)) =
            (child.stdin().take(), child.stdout().take(), child.stderr().take())
        else {
            return Err(failed(io::Error::other("it has no pipes")));
        };
        let identity = |pid| table::identity(pid).unwrap_or(Identity { pid, started: 0 });
        let record = Record {
            run: launch.run,
            pgid,
            leader: identity(pgid),
            owner: identity(std::process::id()),
            boot: table::boot(),
            started: launch.at,
        };
        // From here on, dropping it kills it.
        let group = Self { child, record, records: records.clone(), gone: false };
        records.write(&group.record).await?;
        intent(&group.record);
        let go = format!("{}\n", group.record.mark());
        stdin.write_all(go.as_bytes()).await.map_err(failed)?;
        Ok((group, Pipes { stdin, stdout, stderr }))
    }

    /// Its record.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Waits for the leader to end. Others of the group may live on.
    pub async fn wait(&mut self) -> Result<ExitStatus, Error> {
        self.child.wait().await.map_err(Error::Wait)
    }

    /// Gives the leader the grace to end by itself, then stops whatever is left.
    pub async fn finish(&mut self, grace: Duration) -> Result<(), Error> {
        // Whether it ended or not: what counts is what still lives.
        drop(tokio::time::timeout(grace, self.child.wait()).await);
        self.stop(grace).await
    }

    /// Ends the whole group and every child that left it, and confirms that all are gone.
    ///
    /// It asks (TERM), and kills (KILL) what is left after the grace.
    pub async fn stop(&mut self, grace: Duration) -> Result<(), Error> {
        // Beside each other, because a leader that has ended counts as gone only when waited for.
        let (_, ended) = tokio::join!(
            tokio::time::timeout(grace + KILLED, self.child.wait()),
            self.record.end(true, grace)
        );
        ended?;
        self.records.remove(&self.record).await?;
        self.gone = true;
        Ok(())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Dropped in the middle of something: nobody waits for it any more.
        if self.gone {
            return;
        }
        if let Some(group) = number(self.record.pgid) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        // Those that left the group are looked for beside whatever comes next. Where there is no
        // next, or where it fails, the record stays, and the next worker makes sure.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (record, records) = (self.record.clone(), self.records.clone());
            runtime.spawn(async move {
                if record.end(true, Duration::ZERO).await.is_ok() {
                    let _ = records.remove(&record).await;
                }
            });
        }
    }
}

/// Where a program is: the path itself, or the first place of a search path that has it.
pub(crate) fn program(name: &Path, search: Option<&str>) -> Option<PathBuf> {
    table::find(name, search)
}

async fn spawn(launch: &Launch) -> io::Result<Box<dyn ChildWrapper>> {
    let mut command = match SETPRIV.iter().find(|path| Path::new(path).exists()) {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL", "/bin/sh"]);
            command
        }
        None => Command::new("/bin/sh"),
    };
    command
        .args(["-c", BEHIND_A_GATE, "sh"])
        .arg(&launch.program)
        .args(&launch.args)
        .env_clear()
        .envs(&launch.env)
        .current_dir(&launch.folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut command = CommandWrap::from(command);
    command.wrap(ProcessGroup::leader()).wrap(KillOnDrop);
    let runtime = tokio::runtime::Handle::current();
    on_lasting_thread(move || {
        let _inside = runtime.enter();
        command.spawn()
    })
    .await?
}

/// Runs something on a thread that lives as long as we do.
///
/// The kernel ends a child when the *thread* that started it ends, and threads of the runtime come
/// and go.
async fn on_lasting_thread<T: Send + 'static>(
    job: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    type Work = Box<dyn FnOnce() + Send>;
    static THREAD: OnceLock<Option<mpsc::Sender<Work>>> = OnceLock::new();
    let thread = THREAD.get_or_init(|| {
        let (send, receive) = mpsc::channel::<Work>();
        std::thread::Builder::new()
            .name("tamma-launch".to_owned())
            .spawn(move || receive.into_iter().for_each(|work| work()))
            .ok()
            .map(|_| send)
    });
    let (done, result) = oneshot::channel();
    let work: Work = Box::new(move || drop(done.send(job())));
    let ended = || io::Error::other("the thread that starts processes has ended");
    thread.as_ref().and_then(|thread| thread.send(work).ok()).ok_or_else(ended)?;
    result.await.map_err(|_| ended())
}
