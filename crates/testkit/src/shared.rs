//! A server that all test processes of a run share.
//!
//! A run is what its runner does: every test process of nextest, or of `cargo test`, has it as its
//! parent. The first that needs the server takes a lock and starts it; the others wait for the lock
//! and read where it is. A script beside the server ends it when the runner is gone.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::net::TcpListener;
use std::os::unix::process::{CommandExt as _, parent_id};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// How often a server is started when another program takes the port that was free.
const ATTEMPTS: usize = 3;

/// Runs a script with its arguments. The run's folder goes with the run.
const WATCH: &str = r#"bash "$0" "$@"; code=$?
kill -0 "$2" 2> /dev/null || rm -rf "$(dirname "$0")"
exit $code"#;

/// Where a shared server is. `name` tells the servers of a run apart; `script` gets a folder, the
/// runner's process and a free port, and prints the server's address when it answers.
pub(crate) fn address(name: &str, script: &str) -> Result<String> {
    let runner = runner();
    let home = std::env::temp_dir().join(format!("tamma-tests-{runner}"));
    fs::create_dir_all(&home)?;
    let path = home.join(name);
    let mut file =
        File::options().create(true).read(true).write(true).truncate(false).open(&path)?;
    file.lock()?;
    let mut known = String::new();
    file.read_to_string(&mut known)?;
    if !known.is_empty() {
        return Ok(known);
    }
    let address = start(&home, name, script, runner.process)?;
    file.rewind()?;
    file.write_all(address.as_bytes())?;
    Ok(address)
}

/// A lock that all processes of this machine share for one purpose. It is held until it is dropped.
pub(crate) fn lock(purpose: &str) -> Result<File> {
    let path = std::env::temp_dir().join(format!("tamma-tests-{purpose}.lock"));
    let file = File::options().create(true).append(true).open(path)?;
    file.lock()?;
    Ok(file)
}

/// A port of this machine that nobody has right now.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

#[derive(Clone, Copy)]
struct Runner {
    process: u32,
    /// When it started, where the system says so: numbers of processes come again.
    started: u64,
}

impl std::fmt::Display for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.process, self.started)
    }
}

fn runner() -> Runner {
    // A test whose runner is gone already is its own.
    let process = match parent_id() {
        0 | 1 => std::process::id(),
        parent => parent,
    };
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The second field is a name in parentheses and may have anything in it.
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let started = after_name.split_whitespace().nth(19).and_then(|ticks| ticks.parse().ok());
    Runner { process, started: started.unwrap_or_default() }
}

fn start(home: &Path, name: &str, script: &str, runner: u32) -> Result<String> {
    let file = home.join(format!("{name}.sh"));
    fs::write(&file, script)?;
    let mut last = String::new();
    for attempt in 0..ATTEMPTS {
        let folder = home.join(format!("{name}-{attempt}"));
        match attempt_start(&file, &folder, runner)? {
            Ok(address) => return Ok(address),
            Err(said) => last = said,
        }
    }
    bail!("`{name}` does not start:\n{last}")
}

/// Starts the script. Gives the address, or what it said instead.
#[expect(clippy::disallowed_methods, reason = "servers for tests are started here")]
fn attempt_start(script: &Path, folder: &PathBuf, runner: u32) -> Result<Result<String, String>> {
    let mut child = Command::new("bash")
        .args(["-c", WATCH])
        .arg(script)
        .arg(folder)
        .arg(runner.to_string())
        .arg(free_port()?.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // An interrupt at the terminal is for the runner; the script then finds it gone.
        .process_group(0)
        .spawn()
        .context("`bash` does not start")?;
    let mut address = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut address)?;
    }
    let address = address.trim().to_owned();
    if !address.is_empty() {
        return Ok(Ok(address));
    }
    let mut said = String::new();
    if let Some(mut err) = child.stderr.take() {
        err.read_to_string(&mut said)?;
    }
    child.wait()?;
    Ok(Err(said))
}
