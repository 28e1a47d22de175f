//! Service processes: start, readiness, exit, stop, and recovery after a crash of `tamma up`.
//!
//! A service starts as the engine's processes do ([`launch`]): its record is written before the program
//! runs. If `tamma up` dies before that, the program never starts. If it dies afterwards, the record names
//! the process to stop.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::{Deserialize, Serialize};
use tamma_engine::process::launch;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::Error;

/// Time limit for a process to disappear after SIGKILL.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// First polling interval.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Longest polling interval.
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Size in bytes from which a log is rotated when its service starts.
const MAX_LOG_BYTES: u64 = 8 << 20;

/// Number of log lines in error messages.
const LOG_TAIL_LINES: usize = 12;

/// User that a service runs as, if not the current one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServiceUser {
    /// Login name.
    pub(super) name: String,
    /// User ID.
    pub(super) uid: u32,
    /// Group ID.
    pub(super) gid: u32,
}

/// Specification of a service process.
#[derive(Debug, Clone)]
pub(super) struct ServiceSpec {
    /// Display name.
    pub(super) service: &'static str,
    /// Path of the program.
    pub(super) program: PathBuf,
    /// Arguments of the program.
    pub(super) args: Vec<OsString>,
    /// Argument that identifies this service and data folder in a command line.
    pub(super) marker: PathBuf,
    /// Complete environment. Nothing is inherited.
    pub(super) env: Vec<(OsString, OsString)>,
    /// User to run as; `None` for the current one.
    pub(super) user: Option<ServiceUser>,
    /// File for its output.
    pub(super) log: PathBuf,
    /// File for its process record.
    pub(super) record: PathBuf,
    /// Stop signals with their time limits. SIGKILL follows the last one.
    pub(super) stop_signals: &'static [(Signal, Duration)],
    /// Signal that the kernel sends if `tamma up` is killed, as `setpriv` spells it.
    pub(super) orphan_signal: &'static str,
}

/// Identity of a process: a later process with the same ID has another start time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ServiceRecord {
    /// Process ID, which is also its process group ID.
    pid: u32,
    /// Start time, in the format of the operating system.
    started: String,
}

/// Running service.
#[derive(Debug)]
pub(super) struct ServiceProcess {
    spec: ServiceSpec,
    pid: u32,
    child: Child,
    /// Log size in bytes when the process started.
    log_start: u64,
    has_exited: bool,
}

/// Unexpected exit of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServiceExit {
    /// Display name of the service.
    pub(crate) service: &'static str,
    /// Exit code or signal, in words.
    pub(crate) reason: String,
    /// Path of its log.
    pub(crate) log: PathBuf,
    /// End of what the process has written to its log. An error message shows the last lines.
    pub(crate) output: String,
}

impl fmt::Display for ServiceExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, reason, log, output } = self;
        write!(f, "{service} exited unexpectedly ({reason}); ")?;
        match last_lines(output).as_str() {
            "" => write!(f, "its log `{}` is empty", log.display()),
            log_tail => write!(f, "end of its log `{}`:\n{log_tail}", log.display()),
        }
    }
}

impl ServiceProcess {
    /// Starts a service, after stopping an orphan of an earlier `tamma up`.
    pub(super) async fn start(spec: ServiceSpec) -> Result<Self, Error> {
        stop_orphan(&spec).await?;
        let (log, log_start) = open_log(&spec.log)?;
        let failed = Error::io("start", &spec.program);
        let mut child = spawn(&spec, log).await.map_err(failed)?;
        let pid = child.id().unwrap_or_default();
        let stdin = child.stdin.take();
        // From here on, dropping the value stops the process.
        let process = Self { spec, pid, child, log_start, has_exited: false };
        let spec = &process.spec;
        write_record(spec, pid).await?;
        if let Some(mut stdin) = stdin {
            let opened = stdin.write_all(format!("{}\n", spec.service).as_bytes()).await;
            opened.map_err(Error::io("start", &spec.program))?;
        }
        Ok(process)
    }

    /// Process ID.
    #[cfg(test)]
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Polls `is_ready` until it returns `true`.
    ///
    /// Fails if the process exits first or exceeds the limit. In both cases it is no longer
    /// running.
    pub(super) async fn wait_until_ready(
        &mut self,
        limit: Duration,
        mut is_ready: impl AsyncFnMut(u32) -> bool,
    ) -> Result<(), Error> {
        let pid = self.pid;
        let polling = async {
            let mut wait = MIN_POLL_INTERVAL;
            while !is_ready(pid).await {
                sleep(wait).await;
                wait = (wait * 2).min(MAX_POLL_INTERVAL);
            }
        };
        let ready = tokio::select! {
            // Exit first: another process could be responding on the port.
            biased;
            status = self.child.wait() => Err(status),
            ready = timeout(limit, polling) => Ok(ready),
        };
        match ready {
            Ok(Ok(())) => match self.child.try_wait() {
                Ok(None) => Ok(()),
                ended => Err(Error::Exited(self.record_exit(ended.ok().flatten()))),
            },
            Ok(Err(_)) => {
                let ServiceSpec { service, log, .. } = self.spec.clone();
                let log_tail = last_lines(&self.output());
                self.stop().await?;
                Err(Error::StartTimeout { service, limit, log, log_tail })
            }
            Err(status) => Err(Error::Exited(self.record_exit(status.ok()))),
        }
    }

    /// Waits for an unexpected exit.
    pub(super) async fn wait_for_exit(&mut self) -> ServiceExit {
        let status = self.child.wait().await.ok();
        self.record_exit(status)
    }

    /// Stops the process with its stop signals, and with SIGKILL if they have no effect.
    pub(super) async fn stop(&mut self) -> Result<(), Error> {
        for (signal, limit) in self.spec.stop_signals {
            if !self.has_exited {
                send_signal(self.pid, *signal);
                self.has_exited = timeout(*limit, self.child.wait()).await.is_ok();
            }
        }
        if !self.has_exited {
            send_signal(self.pid, Signal::KILL);
            self.has_exited = timeout(KILL_TIMEOUT, self.child.wait()).await.is_ok();
        }
        if !self.has_exited {
            return Err(Error::StillAlive { service: self.spec.service, pid: self.pid });
        }
        remove_record(&self.spec.record)
    }

    fn record_exit(&mut self, status: Option<ExitStatus>) -> ServiceExit {
        self.has_exited = true;
        // A leftover record is harmless: its start time matches no other process.
        let _ = remove_record(&self.spec.record);
        ServiceExit {
            service: self.spec.service,
            reason: status.map_or("unknown exit status".to_owned(), exit_description),
            log: self.spec.log.clone(),
            output: self.output(),
        }
    }

    /// Returns the end of what this process has written to its log.
    fn output(&self) -> String {
        let mut bytes = Vec::new();
        let read = File::open(&self.spec.log).and_then(|mut file| {
            let length = file.metadata()?.len();
            // 16 KiB is enough for the cause of an exit, and limits reading.
            file.seek(SeekFrom::Start(self.log_start.max(length.saturating_sub(16 << 10))))?;
            file.read_to_end(&mut bytes)
        });
        match read {
            Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => format!("(cannot read the log: {error})"),
        }
    }
}

impl Drop for ServiceProcess {
    fn drop(&mut self) {
        // Not awaited. If it does not exit, the next start stops it by its record.
        if let (false, Some((signal, _))) = (self.has_exited, self.spec.stop_signals.first()) {
            send_signal(self.pid, *signal);
        }
    }
}

/// Describes an exit status.
fn exit_description(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// Returns the last lines of a text.
pub(super) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}

/// Polls a condition. Returns `false` if it does not hold within the limit.
pub(super) async fn poll_until(limit: Duration, mut holds: impl AsyncFnMut() -> bool) -> bool {
    let looking = async {
        let mut wait = MIN_POLL_INTERVAL;
        while !holds().await {
            sleep(wait).await;
            wait = (wait * 2).min(MAX_POLL_INTERVAL);
        }
    };
    timeout(limit, looking).await.is_ok()
}

/// Terminates a process that is not a child. The caller has verified its identity.
pub(super) async fn terminate(
    service: &'static str,
    pid: u32,
    farewell: &[(Signal, Duration)],
) -> Result<(), Error> {
    let Some(before) = start_time(pid).await else { return Ok(()) };
    for (signal, limit) in farewell.iter().copied().chain([(Signal::KILL, KILL_TIMEOUT)]) {
        send_signal(pid, signal);
        if poll_until(limit, async || start_time(pid).await.as_ref() != Some(&before)).await {
            return Ok(());
        }
    }
    Err(Error::StillAlive { service, pid })
}

/// Sends a signal to a process group, or to the process if it has none. Errors are ignored.
pub(super) fn send_signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw)
        && kill_process_group(pid, signal).is_err()
    {
        let _ = kill_process(pid, signal);
    }
}

/// Returns the start time of a process, or `None` if it has exited.
pub(super) async fn start_time(pid: u32) -> Option<String> {
    if Path::new("/proc/self/stat").exists() {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        return start_ticks(&stat).map(|ticks| format!("{ticks} {}", boot.trim()));
    }
    let columns = ps(pid, "stat=,lstart=").await?;
    let (state, started) = columns.trim().split_once(char::is_whitespace)?;
    (!state.starts_with('Z')).then(|| started.trim().to_owned())
}

/// Parses the start time from `/proc/<pid>/stat`, in ticks since boot. The process name in it can contain
/// brackets and spaces.
fn start_ticks(stat: &str) -> Option<u64> {
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    if matches!(*fields.first()?, "Z" | "X" | "x") {
        return None;
    }
    fields.get(19)?.parse().ok()
}

/// Returns the command line of a process.
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

/// Stops the process that a record names, if it is still running.
///
/// Process IDs are reused, so the start time must match the record, and the command line must contain
/// this data folder.
async fn stop_orphan(spec: &ServiceSpec) -> Result<(), Error> {
    let record: ServiceRecord = match fs::read(&spec.record) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io("read", &spec.record)(error)),
        Ok(bytes) => match serde_json::from_slice(&bytes) {
            Ok(record) => record,
            // An incomplete record means that the program never started.
            Err(_) => return remove_record(&spec.record),
        },
    };
    let same = start_time(record.pid).await.is_some_and(|started| started == record.started);
    let marked = command_line(record.pid)
        .await
        .is_some_and(|line| line.contains(&*spec.marker.to_string_lossy()));
    if same && marked {
        terminate(spec.service, record.pid, spec.stop_signals).await?;
    }
    remove_record(&spec.record)
}

async fn write_record(spec: &ServiceSpec, pid: u32) -> Result<(), Error> {
    let record = ServiceRecord { pid, started: start_time(pid).await.unwrap_or_default() };
    let written = serde_json::to_vec(&record)
        .map_err(io::Error::other)
        .and_then(|bytes| fs::write(&spec.record, bytes));
    written.map_err(Error::io("write", &spec.record))
}

fn remove_record(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// Opens a log for appending and returns its size.
fn open_log(path: &Path) -> Result<(File, u64), Error> {
    let opened = || -> io::Result<(File, u64)> {
        if fs::metadata(path).is_ok_and(|log| log.len() > MAX_LOG_BYTES) {
            fs::rename(path, path.with_extension("log.old"))?;
        }
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let length = file.metadata()?.len();
        Ok((file, length))
    };
    opened().map_err(Error::io("open the log", path))
}

async fn spawn(spec: &ServiceSpec, log: File) -> io::Result<Child> {
    let errors = log.try_clone()?;
    let mut command = launch::gated_command(&spec.program, spec.orphan_signal);
    command.args(&spec.args).env_clear().envs(spec.env.iter().cloned()).current_dir("/");
    if let Some(user) = &spec.user {
        command.uid(user.uid).gid(user.gid);
    }
    command.stdin(Stdio::piped()).stdout(log).stderr(errors).process_group(0);
    launch::on_launch_thread(move || command.spawn()).await
}
