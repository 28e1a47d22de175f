//! A service as a process: started, watched, stopped, and found again after a crash of ours.
//!
//! A service is started behind a gate: a small shell waits for a line before it becomes the
//! program. In between, its record is written. If we die before that, the line never comes and
//! nothing runs; if we die after it, the record says whom to stop.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::Error;

/// Waits for a line, then becomes the program. Nothing of the program is text to the shell.
const BEHIND_A_GATE: &str = "read -r go && exec \"$@\" < /dev/null";

/// Where `setpriv` is found, if it is installed.
const SETPRIV: [&str; 3] =
    ["/usr/bin/setpriv", "/bin/setpriv", "/run/current-system/sw/bin/setpriv"];

/// How long a killed process may take to disappear.
const KILLED: Duration = Duration::from_secs(10);

/// How soon it is looked again whether something has happened that nobody tells us, at first.
const LOOK: Duration = Duration::from_millis(5);

/// How seldom, at last.
const SELDOM: Duration = Duration::from_millis(100);

/// A log that is longer than this when its service starts is put aside.
const LONG_LOG: u64 = 8 << 20;

/// How much of the end of a log is told.
const TOLD_LINES: usize = 12;

/// A user that a service runs as, where it cannot be the one we are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    /// Its name.
    pub(super) name: String,
    /// Its number.
    pub(super) uid: u32,
    /// The number of its group.
    pub(super) gid: u32,
}

/// What is to be started.
#[derive(Debug, Clone)]
pub(super) struct Launch {
    /// What people call it.
    pub(super) service: &'static str,
    /// The program.
    pub(super) program: PathBuf,
    /// Its arguments.
    pub(super) args: Vec<OsString>,
    /// One of the arguments that no process but this service of this data folder has.
    pub(super) mark: PathBuf,
    /// Its whole environment. Nothing is inherited.
    pub(super) env: Vec<(OsString, OsString)>,
    /// Whom it runs as, if not as us.
    pub(super) user: Option<User>,
    /// Where its output goes.
    pub(super) log: PathBuf,
    /// Where its record is kept.
    pub(super) record: PathBuf,
    /// How it is asked to end, and how long it may take each time. After the last it is killed.
    pub(super) farewell: &'static [(Signal, Duration)],
    /// How the kernel asks it when we are killed, as `setpriv` spells it.
    pub(super) orphaned: &'static str,
}

/// A process, told apart from a later one with the same number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    /// Its number, which is also its group's.
    pid: u32,
    /// When it started, as the system tells it.
    started: String,
}

/// A running service.
#[derive(Debug)]
pub(super) struct Process {
    launch: Launch,
    pid: u32,
    child: Child,
    /// Where in the log its own lines begin.
    begin: u64,
    ended: bool,
}

/// How a service ended that nobody stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Died {
    /// Which service.
    pub(crate) service: &'static str,
    /// How it ended, in words.
    pub(crate) how: String,
    /// Its log.
    pub(crate) log: PathBuf,
    /// The end of it.
    pub(crate) said: String,
}

impl fmt::Display for Died {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, how, log, said } = self;
        write!(f, "{service} ended by itself: {how}; ")?;
        match said.as_str() {
            "" => write!(f, "its log `{}` says nothing", log.display()),
            said => write!(f, "the end of its log `{}`:\n{said}", log.display()),
        }
    }
}

impl Process {
    /// Starts a service, after what a dead predecessor left of it is gone.
    pub(super) async fn start(launch: Launch) -> Result<Self, Error> {
        stop_recorded(&launch).await?;
        let (log, begin) = open_log(&launch.log)?;
        let failed = Error::system("start", &launch.program);
        let mut child = spawn(&launch, log).await.map_err(failed)?;
        let pid = child.id().unwrap_or_default();
        let stdin = child.stdin.take();
        // From here on, dropping it asks it to end.
        let process = Self { launch, pid, child, begin, ended: false };
        let launch = &process.launch;
        write_record(launch, pid).await?;
        if let Some(mut stdin) = stdin {
            let opened = stdin.write_all(b"\n").await;
            opened.map_err(Error::system("start", &launch.program))?;
        }
        Ok(process)
    }

    /// Its number.
    #[cfg(test)]
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits until it is ready, which is when the question is answered with yes.
    ///
    /// If it ends before, or takes longer than the limit, that is the error. In both cases it does
    /// not run any more.
    pub(super) async fn ready(
        &mut self,
        limit: Duration,
        mut is_ready: impl AsyncFnMut(u32) -> bool,
    ) -> Result<(), Error> {
        let pid = self.pid;
        let asking = async {
            let mut wait = LOOK;
            while !is_ready(pid).await {
                sleep(wait).await;
                wait = (wait * 2).min(SELDOM);
            }
        };
        let ready = tokio::select! {
            // The end first: a port may be answered by somebody else who has it.
            biased;
            status = self.child.wait() => Err(status),
            ready = timeout(limit, asking) => Ok(ready),
        };
        match ready {
            Ok(Ok(())) => match self.child.try_wait() {
                Ok(None) => Ok(()),
                ended => Err(Error::Ended(self.gone(ended.ok().flatten()))),
            },
            Ok(Err(_)) => {
                let Launch { service, log, .. } = self.launch.clone();
                let said = self.said();
                self.stop().await?;
                Err(Error::Slow { service, limit, log, said })
            }
            Err(status) => Err(Error::Ended(self.gone(status.ok()))),
        }
    }

    /// Waits until it ends by itself.
    pub(super) async fn died(&mut self) -> Died {
        let status = self.child.wait().await.ok();
        self.gone(status)
    }

    /// Asks it to end, waits, kills it if it does not, and makes sure.
    pub(super) async fn stop(&mut self) -> Result<(), Error> {
        for (signal, limit) in self.launch.farewell {
            if !self.ended {
                send(self.pid, *signal);
                self.ended = timeout(*limit, self.child.wait()).await.is_ok();
            }
        }
        if !self.ended {
            send(self.pid, Signal::KILL);
            self.ended = timeout(KILLED, self.child.wait()).await.is_ok();
        }
        if !self.ended {
            return Err(Error::StillAlive { service: self.launch.service, pid: self.pid });
        }
        remove_record(&self.launch.record)
    }

    fn gone(&mut self, status: Option<ExitStatus>) -> Died {
        self.ended = true;
        // If it stays, the next one finds that nobody has its number, or somebody else.
        let _ = remove_record(&self.launch.record);
        Died {
            service: self.launch.service,
            how: status.map_or("the system does not say how".to_owned(), how),
            log: self.launch.log.clone(),
            said: self.said(),
        }
    }

    /// The end of what it has written since it was started.
    fn said(&self) -> String {
        let mut bytes = Vec::new();
        let read = File::open(&self.launch.log).and_then(|mut file| {
            let length = file.metadata()?.len();
            // Enough for the lines that are told, however long the log is.
            file.seek(SeekFrom::Start(self.begin.max(length.saturating_sub(16 << 10))))?;
            file.read_to_end(&mut bytes)
        });
        match read {
            Ok(_) => end_of(&String::from_utf8_lossy(&bytes)),
            Err(error) => format!("(cannot be read: {error})"),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Nobody waits for it any more. It ends in its own time, and if not, its record is there.
        if let (false, Some((signal, _))) = (self.ended, self.launch.farewell.first()) {
            send(self.pid, *signal);
        }
    }
}

/// How a process ended, in words.
fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// The last lines of a text.
pub(super) fn end_of(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TOLD_LINES)..].join("\n")
}

/// Waits until something holds that nobody tells us of. Returns whether it does within the limit.
pub(super) async fn until(limit: Duration, mut holds: impl AsyncFnMut() -> bool) -> bool {
    let looking = async {
        let mut wait = LOOK;
        while !holds().await {
            sleep(wait).await;
            wait = (wait * 2).min(SELDOM);
        }
    };
    timeout(limit, looking).await.is_ok()
}

/// Ends a process that is not a child of ours, and that was made sure to be the one that is meant.
pub(super) async fn end(
    service: &'static str,
    pid: u32,
    farewell: &[(Signal, Duration)],
) -> Result<(), Error> {
    let Some(before) = started(pid).await else { return Ok(()) };
    for (signal, limit) in farewell.iter().copied().chain([(Signal::KILL, KILLED)]) {
        send(pid, signal);
        if until(limit, async || started(pid).await.as_ref() != Some(&before)).await {
            return Ok(());
        }
    }
    Err(Error::StillAlive { service, pid })
}

/// Sends a signal to a process and its group. One that is gone needs none.
pub(super) fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw)
        && kill_process_group(pid, signal).is_err()
    {
        let _ = kill_process(pid, signal);
    }
}

/// When a process started, as the system tells it, unless it has ended.
pub(super) async fn started(pid: u32) -> Option<String> {
    if Path::new("/proc/self/stat").exists() {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        return ticks(&stat).map(|ticks| format!("{ticks} {}", boot.trim()));
    }
    let said = ps(pid, "stat=,lstart=").await?;
    let (state, started) = said.trim().split_once(char::is_whitespace)?;
    (!state.starts_with('Z')).then(|| started.trim().to_owned())
}

/// Reads `/proc/<pid>/stat`: when it started, in ticks since the machine did. The name in it may hold
/// anything, brackets and spaces too.
fn ticks(stat: &str) -> Option<u64> {
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    if matches!(*fields.first()?, "Z" | "X" | "x") {
        return None;
    }
    fields.get(19)?.parse().ok()
}

/// With which command line a process runs.
pub(super) async fn command_line(pid: u32) -> Option<String> {
    match fs::read(format!("/proc/{pid}/cmdline")) {
        Ok(bytes) => Some(String::from_utf8_lossy(&bytes).replace('\0', " ")),
        Err(_) => ps(pid, "command=").await,
    }
}

async fn ps(pid: u32, columns: &str) -> Option<String> {
    let mut command = Command::new("ps");
    command.args(["-ww", "-o", columns, "-p", &pid.to_string()]).stdin(Stdio::null());
    let output = command.env("LC_ALL", "C").output().await.ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Stops what a dead predecessor left running.
///
/// A number alone says nothing: it must be the process that was recorded, by its start, and it must
/// have this data folder in its command line.
async fn stop_recorded(launch: &Launch) -> Result<(), Error> {
    let record: Record = match fs::read(&launch.record) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::system("read", &launch.record)(error)),
        Ok(bytes) => match serde_json::from_slice(&bytes) {
            Ok(record) => record,
            // It was being written when we died, so its service never got past the gate.
            Err(_) => return remove_record(&launch.record),
        },
    };
    let same = started(record.pid).await.is_some_and(|started| started == record.started);
    let marked = command_line(record.pid)
        .await
        .is_some_and(|line| line.contains(&*launch.mark.to_string_lossy()));
    if same && marked {
        end(launch.service, record.pid, launch.farewell).await?;
    }
    remove_record(&launch.record)
}

async fn write_record(launch: &Launch, pid: u32) -> Result<(), Error> {
    let record = Record { pid, started: started(pid).await.unwrap_or_default() };
    let written = serde_json::to_vec(&record)
        .map_err(io::Error::other)
        .and_then(|bytes| fs::write(&launch.record, bytes));
    written.map_err(Error::system("write", &launch.record))
}

fn remove_record(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::system("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// Opens a log to write at its end. Returns where that is.
fn open_log(path: &Path) -> Result<(File, u64), Error> {
    let opened = || -> io::Result<(File, u64)> {
        if fs::metadata(path).is_ok_and(|log| log.len() > LONG_LOG) {
            fs::rename(path, path.with_extension("log.old"))?;
        }
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let length = file.metadata()?.len();
        Ok((file, length))
    };
    opened().map_err(Error::system("open the log", path))
}

async fn spawn(launch: &Launch, log: File) -> io::Result<Child> {
    let errors = log.try_clone()?;
    let mut command = match SETPRIV.iter().find(|path| Path::new(path).exists()) {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", launch.orphaned, "/bin/sh"]);
            command
        }
        None => Command::new("/bin/sh"),
    };
    command.args(["-c", BEHIND_A_GATE, "sh"]).arg(&launch.program).args(&launch.args);
    command.env_clear().envs(launch.env.iter().cloned()).current_dir("/");
    if let Some(user) = &launch.user {
        command.uid(user.uid).gid(user.gid);
    }
    command.stdin(Stdio::piped()).stdout(log).stderr(errors).process_group(0);
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
