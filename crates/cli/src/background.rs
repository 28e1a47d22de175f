//! `tamma up` in the background: start, stop and log.
//!
//! The process has its own process group, so an interrupt at the terminal does not reach it, and it
//! ignores hangups. Its output goes to a log in the data folder.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tamma_server::dto::ProjectList;
use tamma_store::Backoff;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::client::Client;
use crate::data_folder;
use crate::endpoint::{self, Endpoint};
use crate::progress::ProgressStep;
use crate::services::DataFolderLock;

/// Time limit for a start: a first one creates the database.
const START_TIMEOUT: Duration = Duration::from_mins(3);

/// Time limit for a stop: agents save their work first.
const STOP_TIMEOUT: Duration = Duration::from_mins(2);

/// Shortest and longest time between two checks.
const POLL_INTERVALS: (Duration, Duration) =
    (Duration::from_millis(20), Duration::from_millis(250));

/// Size in bytes from which the log is rotated at a start.
const MAX_LOG_BYTES: u64 = 8 << 20;

/// Number of log lines in error messages.
const LOG_TAIL_LINES: usize = 12;

/// Returns the path of the log in a data folder.
pub(crate) fn log_path(data: &Path) -> PathBuf {
    data.join("tamma.log")
}

/// Starts `tamma up` with these arguments in a folder, and waits until it answers requests. If it exits
/// first, the error contains the end of its log. `step` shows what it is doing meanwhile.
pub(crate) async fn start(
    data: &Path,
    arguments: &[OsString],
    folder: &Path,
    step: &ProgressStep,
) -> Result<Endpoint> {
    let (log, log_start) = open_log(data)
        .with_context(|| format!("cannot write the log {}", log_path(data).display()))?;
    let program = std::env::current_exe().context("cannot find the program `tamma`")?;
    let mut command = Command::new(&program);
    command.arg("up").arg("--background").args(arguments).current_dir(folder);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
    let mut child =
        command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
    let pid = child.id().unwrap_or_default();
    let ready = wait_until_ready(&mut child, pid, (data, log_start), step);
    match timeout(START_TIMEOUT, ready).await {
        Ok(endpoint) => endpoint,
        Err(_) => bail!(
            "Tamma is not ready after {} s (process {pid})\n  help: read `tamma logs`, or stop it with \
             `tamma down`",
            START_TIMEOUT.as_secs()
        ),
    }
}

/// Waits until the process serves the API.
async fn wait_until_ready(
    child: &mut Child,
    pid: u32,
    (data, log_start): (&Path, u64),
    step: &ProgressStep,
) -> Result<Endpoint> {
    let mut backoff = Backoff::new(POLL_INTERVALS.0, POLL_INTERVALS.1);
    let mut shown = String::new();
    loop {
        if let Some(current) = current_step(&log_tail(data, log_start))
            && current != shown
        {
            step.update(&current);
            shown = current;
        }
        let exit = child.try_wait().context("cannot watch the background process")?;
        let found = endpoint::read(data);
        match (exit, found) {
            // Another process was faster, and this one has registered the repository there.
            (Some(exit), Some(endpoint)) if exit.success() => return Ok(endpoint),
            (Some(exit), _) => {
                let tail = log_tail(data, log_start);
                bail!("Tamma did not start ({exit}):\n{tail}");
            }
            (None, Some(endpoint)) if endpoint.pid == pid => {
                let client = Client::for_endpoint(endpoint.clone())?;
                if client.get::<ProjectList>("/projects", &[]).await.is_ok() {
                    return Ok(endpoint);
                }
            }
            (None, _) => {}
        }
        sleep(backoff.next_delay()).await;
    }
}

/// Stops the `tamma up` of a data folder, in the background or not, and waits for its end. Returns its
/// process ID; `None` if none is running.
pub(crate) async fn stop(data: &Path) -> Result<Option<u32>> {
    let Some(pid) = DataFolderLock::holder(data) else { return Ok(None) };
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let process = process.with_context(|| format!("`{pid}` is not a process ID"))?;
    kill_process(process, Signal::TERM).with_context(|| format!("cannot stop process {pid}"))?;
    let stopped = async {
        let mut backoff = Backoff::new(POLL_INTERVALS.0, POLL_INTERVALS.1);
        while DataFolderLock::holder(data) == Some(pid) {
            sleep(backoff.next_delay()).await;
        }
    };
    if timeout(STOP_TIMEOUT, stopped).await.is_err() {
        bail!(
            "Tamma (process {pid}) is still stopping after {} s\n  help: run `tamma down` again to stop \
             it at once; tasks resume at the next start",
            STOP_TIMEOUT.as_secs()
        );
    }
    Ok(Some(pid))
}

/// Creates the data folder and the log, if they do not exist.
pub(crate) fn prepare(data: &Path) -> io::Result<()> {
    open_log(data).map(drop)
}

/// Opens the log for appending, readable by its owner only, and returns its size.
fn open_log(data: &Path) -> io::Result<(File, u64)> {
    data_folder::create(data)?;
    let path = log_path(data);
    if fs::metadata(&path).is_ok_and(|log| log.len() > MAX_LOG_BYTES) {
        fs::rename(&path, path.with_extension("log.old"))?;
    }
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(&path)?;
    let length = log.metadata()?.len();
    Ok((log, length))
}

/// Returns the step that the log reports last: a line such as `starting Temporal…`.
fn current_step(log: &str) -> Option<String> {
    log.lines().rev().find_map(|line| line.strip_suffix('…')).map(str::to_owned)
}

/// Returns the last lines of the log after a position.
fn log_tail(data: &Path, start: u64) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut log = File::open(log_path(data))?;
        log.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        log.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let text = String::from_utf8_lossy(&read().unwrap_or_default()).into_owned();
    let lines: Vec<_> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_tail_of_the_log_starts_after_a_position() {
        let data = tempfile::tempdir().expect("a folder");
        let (_, start) = open_log(data.path()).expect("opened");
        assert_eq!((start, log_tail(data.path(), start)), (0, String::new()));
        fs::write(log_path(data.path()), "old\n").expect("written");
        let (mut log, start) = open_log(data.path()).expect("opened again");
        let lines: Vec<_> = (1..=20).map(|line| format!("line {line}\n")).collect();
        io::Write::write_all(&mut log, lines.join("\n").as_bytes()).expect("appended");
        let tail = log_tail(data.path(), start);
        assert_eq!(tail.lines().count(), LOG_TAIL_LINES);
        assert!(tail.starts_with("line 9\n") && tail.ends_with("line 20"), "{tail}");
    }

    #[test]
    fn the_last_step_in_the_log_is_shown() {
        let log = "copying programs…\n✓ PostgreSQL 17 ready in 9.1 s\nstarting Temporal…\nINFO x";
        assert_eq!(current_step(log).as_deref(), Some("starting Temporal"));
        assert_eq!(current_step("INFO x"), None);
    }

    #[test]
    fn only_its_owner_can_read_the_log() {
        let data = tempfile::tempdir().expect("a folder");
        open_log(data.path()).expect("opened");
        let metadata = fs::metadata(log_path(data.path())).expect("there");
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    }

    #[tokio::test]
    async fn nothing_is_stopped_if_nothing_runs() {
        let data = tempfile::tempdir().expect("a folder");
        assert_eq!(stop(data.path()).await.expect("nothing to do"), None);
    }
}
