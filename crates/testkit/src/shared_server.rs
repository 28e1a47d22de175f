//! Server that all test processes of a run share.
//!
//! A run is identified by its test runner, the parent of every test process of nextest or `cargo
//! test`. The first test that needs the server takes a lock and starts it. The others wait for the
//! lock and read its address. A script next to the server stops it when the runner has exited.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::net::TcpListener;
use std::ops::Range;
use std::os::unix::process::{CommandExt as _, parent_id};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Number of start attempts, in case another program takes the free port.
const ATTEMPTS: usize = 3;

/// Ports of test servers. No system assigns them to connections.
const SERVER_PORTS: Range<u16> = 18_000..30_000;

/// Runs a script with its arguments, and removes the run's folder if the runner has exited.
const WATCHDOG: &str = r#"bash "$0" "$@"; code=$?
kill -0 "$2" 2> /dev/null || rm -rf "$(dirname "$0")"
exit $code"#;

/// Returns the address of a shared server.
///
/// `name` identifies the server within the run. `script` gets a folder, the runner's process ID and
/// a free port, and prints the server's address once it responds.
pub(crate) fn shared_address(name: &str, script: &str) -> Result<String> {
    let runner = test_runner();
    let home = std::env::temp_dir().join(format!("tamma-tests-{runner}"));
    fs::create_dir_all(&home)?;
    let path = home.join(name);
    let mut file =
        File::options().create(true).read(true).write(true).truncate(false).open(&path)?;
    file.lock()?;
    let mut address = String::new();
    file.read_to_string(&mut address)?;
    if !address.is_empty() {
        return Ok(address);
    }
    let address = start(&home, name, script, runner.pid)?;
    file.rewind()?;
    file.write_all(address.as_bytes())?;
    Ok(address)
}

/// Takes a machine-wide lock for one purpose. It is held until dropped.
pub(crate) fn lock(purpose: &str) -> Result<File> {
    let path = std::env::temp_dir().join(format!("tamma-tests-{purpose}.lock"));
    let file = File::options().create(true).append(true).open(path)?;
    file.lock()?;
    Ok(file)
}

/// Returns a free port of this machine for a server that is started later.
///
/// Ports that the system assigns could become the local port of a connection in the meantime. These
/// are never assigned, and each caller on this machine gets the next one.
pub(crate) fn free_port() -> Result<u16> {
    let path = std::env::temp_dir().join("tamma-tests-port");
    let mut file =
        File::options().create(true).read(true).write(true).truncate(false).open(path)?;
    file.lock()?;
    let mut last = String::new();
    file.read_to_string(&mut last)?;
    let last = last.trim().parse().ok().filter(|port| SERVER_PORTS.contains(port));
    let start = last.unwrap_or(SERVER_PORTS.start);
    let after = (start + 1..SERVER_PORTS.end).chain(SERVER_PORTS.start..=start);
    let port = after
        .into_iter()
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .context("no free port for a server")?;
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(port.to_string().as_bytes())?;
    Ok(port)
}

#[derive(Clone, Copy)]
struct TestRunner {
    pid: u32,
    /// Start time, if the system reports it. Process IDs are reused.
    started: u64,
}

impl std::fmt::Display for TestRunner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.pid, self.started)
    }
}

fn test_runner() -> TestRunner {
    // A test whose runner has exited is its own runner.
    let process = match parent_id() {
        0 | 1 => std::process::id(),
        parent => parent,
    };
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The second field is a name in parentheses that can contain anything.
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let started = after_name.split_whitespace().nth(19).and_then(|ticks| ticks.parse().ok());
    TestRunner { pid: process, started: started.unwrap_or_default() }
}

fn start(home: &Path, name: &str, script: &str, runner: u32) -> Result<String> {
    let file = home.join(format!("{name}.sh"));
    fs::write(&file, script)?;
    let mut last = String::new();
    for attempt in 0..ATTEMPTS {
        let folder = home.join(format!("{name}-{attempt}"));
        match attempt_start(&file, &folder, runner)? {
            Ok(address) => return Ok(address),
            Err(output) => last = output,
        }
    }
    bail!("cannot start `{name}`:\n{last}")
}

/// Starts the script. Returns the address, or the output of a failed start.
#[expect(clippy::disallowed_methods, reason = "test servers are started synchronously")]
fn attempt_start(script: &Path, folder: &PathBuf, runner: u32) -> Result<Result<String, String>> {
    let mut child = Command::new("bash")
        .args(["-c", WATCHDOG])
        .arg(script)
        .arg(folder)
        .arg(runner.to_string())
        .arg(free_port()?.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C in the terminal must only reach the runner; the script then notices its exit.
        .process_group(0)
        .spawn()
        .context("cannot start `bash`")?;
    let mut address = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut address)?;
    }
    let address = address.trim().to_owned();
    if !address.is_empty() {
        return Ok(Ok(address));
    }
    let mut output = String::new();
    if let Some(mut err) = child.stderr.take() {
        err.read_to_string(&mut output)?;
    }
    child.wait()?;
    Ok(Err(output))
}
