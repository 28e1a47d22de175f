//! `tamma up`: starts the API server, a worker and private services in one process.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;
use tamma_connect::forge::Forges;
use tamma_core::ids::ProjectId;
use tamma_core::operator::OperatorConfig;
use tamma_keys::Keys;
use tamma_server::dto::{self, ProjectList};
use tamma_store::{ObjectStorage, RegisteredProject, Store, UpgradeFinish};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::backend_args::{BackendArgs, MonitoringArgs, PromptArgs};
use super::config::{self, ConfigStatus};
use super::doctor::{self, CheckStatus};
use super::sign_in;
use crate::agents::{self, ModelAccess};
use crate::client::Client;
use crate::endpoint::Endpoint;
use crate::progress::Progress;
use crate::repository::Repository;
use crate::roles::{self, Backends, ProcessRoles, SchemaStep};
use crate::services::{self, DataFolderLock, PostgresService, ProgramSearch, TemporalService};
use crate::temporal_connection::TemporalTarget;
use crate::{
    background, client, commit_files, data_folder, endpoint, identity, operator_file,
    operator_token, output, remote_config,
};

/// Number of restarts of a private service before `tamma up` gives up.
const MAX_RESTARTS: u32 = 20;

/// Default number of agents that run at once.
const DEFAULT_SLOTS: usize = 2;

/// Default time between comparisons of the tasks with their workflows.
const DEFAULT_RECONCILE_SECONDS: u32 = 60;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    backend: BackendArgs,
    #[command(flatten)]
    pub(super) listen: ListenArgs,
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1000), help = "Number of agents that can run at once [default: engines.slots in tamma.yaml, or 2]")]
    slots: Option<u16>,
    #[command(flatten)]
    prompts: PromptArgs,
    #[command(flatten)]
    monitoring: MonitoringArgs,
    /// Run in the background; `tamma down` stops it
    #[arg(long)]
    detach: bool,
    /// Print only errors
    #[arg(long, short)]
    quiet: bool,
    /// Run as the background process of `--detach` or of a service
    #[arg(long, hide = true, conflicts_with = "detach")]
    background: bool,
}

/// Arguments of the API server.
#[derive(Debug, clap::Args)]
pub(super) struct ListenArgs {
    /// Address to listen on
    #[arg(long = "listen", env = "TAMMA_LISTEN", value_name = "ADDRESS")]
    #[arg(default_value = "127.0.0.1:8622")]
    address: SocketAddr,
    #[arg(
        long,
        env = "TAMMA_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN",
        help = "Server token [default: `operator-token` in the data folder, created on first start]"
    )]
    token: Option<String>,
    #[arg(
        long,
        env = "TAMMA_PUBLIC_URL",
        value_name = "URL",
        help = "URL of this server for links in alerts [default: the listen address]"
    )]
    public_url: Option<String>,
    /// Seconds without a heartbeat after which a worker counts as lost
    #[arg(long, env = "TAMMA_HEARTBEAT_SECONDS", value_name = "SECONDS", hide = true)]
    heartbeat_seconds: Option<u32>,
    /// Seconds between comparisons of the tasks with their workflows in Temporal
    #[arg(long, env = "TAMMA_RECONCILE_SECONDS", value_name = "SECONDS")]
    #[arg(default_value_t = DEFAULT_RECONCILE_SECONDS, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    reconcile_seconds: u32,
}

impl ListenArgs {
    /// Arguments of a server on a free port, for this machine only.
    pub(super) fn local(heartbeat_seconds: Option<u32>) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let reconcile_seconds = DEFAULT_RECONCILE_SECONDS;
        Self { address, token: None, public_url: None, heartbeat_seconds, reconcile_seconds }
    }

    /// Returns the configuration of the API server.
    pub(super) fn server_config(
        &self,
        data: &Path,
        objects: ObjectStorage,
        operator: OperatorConfig,
        keys: Keys,
    ) -> Result<tamma_server::ServerConfig> {
        let token = match self.token.clone().filter(|token| !token.is_empty()) {
            Some(token) => token,
            None => operator_token::load_or_create(data)?,
        };
        let forges = data.join("forges");
        Ok(tamma_server::ServerConfig {
            address: self.address,
            token,
            environment: roles::environment(),
            operator,
            keys,
            workflow_tuning: roles::workflow_tuning(self.heartbeat_seconds),
            reconcile_interval: Duration::from_secs(u64::from(self.reconcile_seconds)),
            objects,
            public_url: self.public_url.clone().filter(|url| !url.is_empty()),
            terminal: None,
            inspect_repository: Some(std::sync::Arc::new(|repository, commits| {
                Box::pin(crate::repository::inspect(repository, commits))
            })),
            read_remote_config: Some(remote_config::reader(data, Forges::open(&forges))),
            read_commit_file: Some(commit_files::reader(&data.join("work"))),
            forges,
            policies: operator_file::read_policies(data)?,
            acme: data.join("acme"),
        })
    }
}

pub(super) fn run(arguments: &Args) -> Result<ExitCode> {
    if arguments.detach {
        return roles::block_on(detach(arguments));
    }
    roles::block_on(up(arguments))
}

/// Starts `tamma up` in the background, with the same arguments.
async fn detach(arguments: &Args) -> Result<ExitCode> {
    let data = data_folder::resolve(arguments.backend.data())?;
    let repository = Repository::containing(Path::new(".")).ok();
    if let Some(pid) = DataFolderLock::holder(&data) {
        let in_use = services::Error::InUse { data: data.clone(), by: Some(pid) };
        return register_with_running(&data, repository.as_ref(), in_use.into()).await;
    }
    let own = std::env::args_os().skip(2).filter(|argument| argument != "--detach");
    let own: Vec<OsString> = own.collect();
    let step = Progress::new(arguments.quiet).start("starting Tamma in the background");
    let endpoint = background::start(&data, &own, Path::new("."), &step).await?;
    drop(step);
    if arguments.quiet {
        return Ok(ExitCode::SUCCESS);
    }
    let client = Client::for_endpoint(endpoint.clone())?;
    let mut out = anstream::stdout().lock();
    let heading = format!("Tamma is up at {}, in the background", endpoint.url);
    output::write_heading(&mut out, &heading)?;
    if let Ok(name) = identity::resolve_name(None) {
        let link = sign_in::create_link(&client, &name).await?;
        writeln!(out, "  sign in (link valid once, for 10 min): {link}")?;
    }
    let operator = operator_file::read(&data)?.unwrap_or_default();
    let notes = repository.map(|repository| setup_warnings(&repository, &operator));
    for (name, text) in notes.unwrap_or_default() {
        output::write_check(&mut out, CheckStatus::Warning, name, &text)?;
    }
    writeln!(out)?;
    output::write_next_steps(&mut out, &background_commands())?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the commands for a Tamma in the background.
pub(super) fn background_commands() -> Vec<(String, String)> {
    let commands = [
        ("tamma status", "show what is running"),
        ("tamma logs --follow", "read the log"),
        ("tamma down", "stop it; tasks resume at the next start"),
    ];
    commands.map(|(command, purpose)| (command.to_owned(), purpose.to_owned())).into()
}

/// Returns the running Tamma of a data folder, and starts one in the background if there is none. It
/// registers the repository of `folder`, if that is in one.
pub(super) async fn ensure_running(data: &Path, folder: &Path) -> Result<Endpoint> {
    if let Some(pid) = DataFolderLock::holder(data) {
        // Without an endpoint file, it is starting or stopping.
        return endpoint::read(data)
            .ok_or_else(|| services::Error::InUse { data: data.to_owned(), by: Some(pid) }.into());
    }
    let step = Progress::new(false).start("starting Tamma in the background");
    let endpoint = background::start(data, &[], folder, &step).await?;
    step.finish("started Tamma in the background");
    Ok(endpoint)
}

async fn up(arguments: &Args) -> Result<ExitCode> {
    let data = data_folder::resolve(arguments.backend.data())?;
    let repository = Repository::containing(Path::new(".")).ok();
    let lock = match DataFolderLock::acquire(&data) {
        Ok(lock) => lock,
        Err(error @ services::Error::InUse { .. }) => {
            return register_with_running(&data, repository.as_ref(), error.into()).await;
        }
        Err(error) => return Err(error.into()),
    };
    // Report an invalid configuration before anything starts.
    let operator = operator_file::read(&data)?.unwrap_or_default();
    let (keys, objects) = (arguments.backend.open_keys(&data)?, arguments.backend.objects(&data));
    arguments.listen.server_config(&data, objects, operator, keys.clone())?.check()?;
    let temporal = arguments.backend.temporal_target(keys)?;
    let stop = CancellationToken::new();
    roles::cancel_on_signal(&stop)?;
    if arguments.background {
        roles::ignore_hangups()?;
    }
    let progress = Progress::new(arguments.quiet);
    let mut private = PrivateServices::start(&arguments.backend, &lock, progress).await?;
    let address = private.temporal_address.clone();
    let servers = (private.database_url.clone(), TemporalTarget { address, ..temporal });
    let result = tokio::select! {
        result = run_roles(arguments, &data, repository.as_ref(), servers, progress, &stop) => result,
        failed = private.restart_on_exit(progress, &stop) => failed,
    };
    let step = progress.start("stopping");
    private.stop().await?;
    step.finish("stopped");
    result.map(|()| ExitCode::SUCCESS)
}

/// Finishes an upgrade of the private database. No other program uses it, so programs that it has as online
/// are those of a `tamma up` that was killed.
async fn finish_upgrade(store: &Store) -> Result<()> {
    if let UpgradeFinish::OlderPrograms { servers, workers } = store.finish_upgrade().await? {
        for server in &servers {
            store.remove_server(server).await?;
        }
        for worker in &workers {
            store.remove_worker(worker).await?;
        }
        store.finish_upgrade().await?;
    }
    Ok(())
}

async fn run_roles(
    arguments: &Args,
    data: &Path,
    repository: Option<&Repository>,
    (database, temporal): (String, TemporalTarget),
    progress: Progress,
    stop: &CancellationToken,
) -> Result<()> {
    let backends = Backends::connect(&database, &temporal, SchemaStep::Migrate, progress).await?;
    if arguments.backend.database().is_none() {
        finish_upgrade(&backends.store).await?;
    }
    let operator = operator_file::read(data)?.unwrap_or_default();
    let project = match repository {
        Some(repository) => Some(register_project(&backends.store, repository).await?),
        None => None,
    };
    let (project, is_new) = project.unzip();
    let configured = || configured_slots(&operator);
    let slots = arguments.slots.map(usize::from).or_else(configured).unwrap_or(DEFAULT_SLOTS);
    let objects = arguments.backend.objects(data);
    let (terminal, messages) = mpsc::unbounded_channel();
    let keys = backends.keys.clone();
    let server = arguments.listen.server_config(data, objects.clone(), operator.clone(), keys)?;
    let (prompts, backend) = (&arguments.prompts, &arguments.backend);
    let worker = roles::worker_config(data, objects, slots, prompts, backend)?;
    let public_url = server.public_url.clone();
    let roles = ProcessRoles {
        server: Some(tamma_server::ServerConfig { terminal: Some(terminal), ..server }),
        worker: Some(tamma_worker::WorkerConfig { public_url, ..worker }),
        // Nobody would see the link, or it would stay in a log.
        sign_in_as: identity::resolve_name(None)
            .ok()
            .filter(|_| !arguments.quiet && !arguments.background)
            .and_then(|name| name.parse().ok()),
        monitoring: arguments.monitoring.monitoring,
        data: data.to_owned(),
    };
    let (quiet, background) = (arguments.quiet, arguments.background);
    let notes = repository.map(|repository| setup_warnings(repository, &operator));
    let mut notes = notes.unwrap_or_default();
    notes.extend(proposed_roles(&operator).filter(|_| is_new == Some(true)));
    let running = roles.run(&backends, stop, |url, link| {
        if quiet {
            return Ok(());
        }
        if background {
            writeln!(anstream::stdout().lock(), "Tamma is up at {}", url.unwrap_or_default())?;
            return Ok(());
        }
        print_welcome((url.unwrap_or_default(), link), project.as_ref(), slots, &notes)
    });
    // The channel closes with the server, so both futures end.
    tokio::join!(running, print_alerts(messages, quiet)).0
}

/// Prints alerts for the `cli` channel as they arrive.
async fn print_alerts(
    mut messages: mpsc::UnboundedReceiver<tamma_server::TerminalMessage>,
    quiet: bool,
) {
    while let Some(message) = messages.recv().await {
        if quiet {
            continue;
        }
        let mut out = anstream::stdout().lock();
        // Errors are ignored: the terminal may be closed.
        for item in &message.items {
            let _ =
                output::write_check(&mut out, CheckStatus::Warning, &message.subject, &item.reason);
            let _ = writeln!(out, "  {}", output::sanitize(&item.link));
        }
    }
}

/// Number of slots from the nearest `tamma.yaml`, if it is valid.
fn configured_slots(operator: &OperatorConfig) -> Option<usize> {
    config::load_nearest(operator).map(|rules| usize::from(rules.engines.slots))
}

/// Returns the problems that would block a first task in a repository, with their fixes.
pub(super) fn setup_warnings(
    repository: &Repository,
    operator: &OperatorConfig,
) -> Vec<(&'static str, String)> {
    let mut notes = Vec::new();
    if !repository.has_commit().unwrap_or(true) {
        let text = "no commit yet; a task needs one to start from: `tamma init` creates it";
        notes.push(("repository", text.to_owned()));
    }
    if let Ok(ConfigStatus::Invalid { name, problems }) = config::check_nearest(operator) {
        let problems = output::pluralize(problems, "problem");
        let text = format!("{problems} in {name}; tasks cannot be added: run `tamma config check`");
        notes.push(("tamma.yaml", text));
    }
    let search = ProgramSearch::from_environment();
    if let Some(rules) = config::load_nearest(operator) {
        if let Err(error) = tamma_engine::sandbox::choose(rules.engines.sandbox) {
            notes.push(("sandbox", format!("agents cannot start: {error}")));
        }
        for (name, agent) in agents::tier_agents(&rules) {
            let command = &agent.command;
            if search.find_program(command).is_none() {
                let text = format!(
                    "`{command}` is not on PATH; tasks wait until it is installed: run `tamma doctor` \
                     for help"
                );
                notes.push(("agent", text));
            } else if let ModelAccess::Missing(how) = doctor::agent_access(name, agent) {
                notes.push(("agent", format!("{name} has no key and no sign-in: {how}")));
            }
        }
    }
    notes
}

fn print_welcome(
    (url, link): (&str, Option<&str>),
    project: Option<&RegisteredProject>,
    slots: usize,
    notes: &[(&'static str, String)],
) -> Result<()> {
    let mut out = anstream::stdout().lock();
    writeln!(out)?;
    output::write_heading(&mut out, &format!("Tamma is up at {url}"))?;
    if let Some(link) = link {
        writeln!(out, "  sign in (link valid once, for 10 min): {link}")?;
    }
    if let Some(project) = project {
        let agents = output::pluralize(slots, "agent");
        writeln!(out, "  project {}, up to {agents} at once", output::sanitize(&project.name))?;
    }
    for (name, text) in notes {
        output::write_check(&mut out, CheckStatus::Warning, name, text)?;
    }
    writeln!(out)?;
    let mut next = vec![
        ("tamma task add \"…\" --watch".to_owned(), "add a task and follow it".to_owned()),
        ("tamma inbox".to_owned(), "list tasks waiting on a person".to_owned()),
    ];
    if project.is_none() {
        next.insert(0, ("cd <repository> && tamma up".to_owned(), "register a project".to_owned()));
    }
    output::write_next_steps(&mut out, &next)?;
    writeln!(out, "\nCtrl-C stops it. Tasks resume at the next `tamma up`.")?;
    Ok(())
}

/// Registers the current repository with a `tamma up` that is already running.
async fn register_with_running(
    data: &Path,
    repository: Option<&Repository>,
    in_use: anyhow::Error,
) -> Result<ExitCode> {
    // Without an endpoint file, the other process is starting or stopping.
    let Some(endpoint) = endpoint::read(data) else { return Err(in_use) };
    let mut out = anstream::stdout().lock();
    writeln!(out, "Tamma is already up at {}.", endpoint.url)?;
    let Some(repository) = repository else {
        writeln!(out, "Run `tamma up` in a git repository to register it as a project.")?;
        return Ok(ExitCode::SUCCESS);
    };
    let client = Client::for_endpoint(endpoint)?;
    let by = identity::resolve_name(None)?;
    let (project, is_new) = ensure_registered(&client, repository, &by).await?;
    let now = if is_new { "is now registered" } else { "is already registered" };
    writeln!(out, "Project {} {now}.", output::sanitize(&project.name))?;
    let operator = operator_file::read(data)?.unwrap_or_default();
    let proposed = proposed_roles(&operator).filter(|_| is_new);
    for (name, text) in setup_warnings(repository, &operator).into_iter().chain(proposed) {
        output::write_check(&mut out, CheckStatus::Warning, name, &text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Registers a repository with a running server, unless it is registered already. Returns `true` for a
/// new project.
pub(super) async fn ensure_registered(
    client: &Client,
    repository: &Repository,
    by: &str,
) -> Result<(dto::RegisteredProject, bool)> {
    let path = repository.root.display().to_string();
    let ProjectList { projects } = client.get("/projects", &[]).await?;
    if let Some(project) = projects.iter().find(|project| project.repository == path) {
        return Ok((project.clone(), false));
    }
    let names = projects.into_iter().map(|it| it.name).collect();
    let body = json!({ "name": free_name(repository, &names), "repository": path });
    Ok((client.post("/projects", by, client::new_id(), &body).await?, true))
}

/// Returns the name of the repository's folder, with a number if another project has that name.
fn free_name(repository: &Repository, taken: &BTreeSet<String>) -> String {
    let name = repository.root.file_name().map(|name| name.to_string_lossy().into_owned());
    let plain = name.unwrap_or_else(|| "project".to_owned());
    // One of these is free: there are more candidates than projects.
    let numbered = (2..=taken.len() + 2).map(|number| format!("{plain}-{number}"));
    let mut names = std::iter::once(plain.clone()).chain(numbered);
    names.find(|name| !taken.contains(name)).unwrap_or(plain)
}

/// Registers a repository under the name of its folder, unless it is registered already. Returns
/// `true` for a new project.
async fn register_project(
    store: &Store,
    repository: &Repository,
) -> Result<(RegisteredProject, bool)> {
    let path = repository.root.display().to_string();
    if let Some(project) = store.project_by_repository(&path).await? {
        return Ok((project, false));
    }
    let projects = store.projects().await?;
    let names = projects.into_iter().map(|project| project.name).collect();
    let name = free_name(repository, &names);
    let project = RegisteredProject { id: ProjectId(client::new_id()), name, repository: path };
    store.register_project(&project).await.context("cannot register the project")?;
    Ok((project, true))
}

/// Returns a note if the configuration of a new project proposes roles. A file grants nothing on its
/// own: an operator imports it.
fn proposed_roles(operator: &OperatorConfig) -> Option<(&'static str, String)> {
    let people = config::load_nearest(operator)?.people;
    let count = people.named.len() + usize::from(people.everybody.is_some());
    let roles = output::pluralize(count, "role");
    (count > 0).then(|| {
        let text = format!("tamma.yaml proposes {roles}; to grant them, run `tamma access import`");
        ("roles", text)
    })
}

/// Addresses of the services, and those that this process started.
pub(super) struct PrivateServices {
    pub(super) database_url: String,
    pub(super) temporal_address: String,
    postgres_service: Option<PostgresService>,
    temporal_service: Option<TemporalService>,
}

impl PrivateServices {
    /// Starts the services that the arguments do not name.
    pub(super) async fn start(
        backend: &BackendArgs,
        lock: &DataFolderLock,
        progress: Progress,
    ) -> Result<Self> {
        let search = ProgramSearch::from_environment();
        let postgres = async {
            if let Some(url) = backend.database() {
                return Ok::<_, services::Error>((url.to_owned(), None));
            }
            let service = PostgresService::start(lock, &search, progress).await?;
            Ok((service.url(), Some(service)))
        };
        let temporal = async {
            if let Some(address) = backend.temporal() {
                return Ok((address.to_owned(), None));
            }
            let service = TemporalService::start(lock, &search, progress).await?;
            Ok((service.address(), Some(service)))
        };
        let (postgres, temporal) = tokio::join!(postgres, temporal);
        let ((database, postgres_service), (temporal, temporal_service)) =
            match (postgres, temporal) {
                (Ok(postgres), Ok(temporal)) => (postgres, temporal),
                // Stop the service that did start.
                (Ok((_, Some(mut service))), Err(error)) => {
                    service.stop().await?;
                    return Err(error.into());
                }
                (Err(error), Ok((_, Some(mut service)))) => {
                    service.stop().await?;
                    return Err(error.into());
                }
                (Err(error), _) | (_, Err(error)) => return Err(error.into()),
            };
        Ok(Self {
            database_url: database,
            temporal_address: temporal,
            postgres_service,
            temporal_service,
        })
    }

    /// Restarts services that exit, until `stop` is cancelled. Returns an error if restarts do not help.
    pub(super) async fn restart_on_exit(
        &mut self,
        progress: Progress,
        stop: &CancellationToken,
    ) -> Result<()> {
        let Self { postgres_service, temporal_service, .. } = self;
        let postgres = async {
            let Some(service) = postgres_service else { return std::future::pending().await };
            for _ in 0..MAX_RESTARTS {
                let exit = service.wait_for_exit().await;
                if stop.is_cancelled() {
                    return std::future::pending().await;
                }
                tracing::error!(%exit, "PostgreSQL exited; restarting");
                service.restart(progress).await?;
            }
            anyhow::bail!("PostgreSQL keeps exiting: see its log in the data folder")
        };
        let temporal = async {
            let Some(service) = temporal_service else { return std::future::pending().await };
            for _ in 0..MAX_RESTARTS {
                let exit = service.wait_for_exit().await;
                if stop.is_cancelled() {
                    return std::future::pending().await;
                }
                tracing::error!(%exit, "Temporal exited; restarting");
                service.restart(progress).await?;
                // Avoid a tight loop if it exits at once.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            anyhow::bail!("Temporal keeps exiting: see its log in the data folder")
        };
        tokio::select! {
            result = postgres => result,
            result = temporal => result,
        }
    }

    /// Stops the services that this process started.
    pub(super) async fn stop(&mut self) -> Result<()> {
        let postgres = async {
            match &mut self.postgres_service {
                Some(service) => service.stop().await,
                None => Ok(()),
            }
        };
        let temporal = async {
            match &mut self.temporal_service {
                Some(service) => service.stop().await,
                None => Ok(()),
            }
        };
        let (postgres, temporal) = tokio::join!(postgres, temporal);
        postgres?;
        Ok(temporal?)
    }
}
