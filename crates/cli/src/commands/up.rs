//! `tamma up`: everything, in one command.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use serde_json::json;
use tamma_core::ids::ProjectId;
use tamma_server::shape::{self, Projects};
use tamma_store::{Objects, Project, Store};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::config::{self, Found};
use super::doctor::Verdict;
use super::given::Given;
use crate::progress::Progress;
use crate::repository::Repository;
use crate::roles::{self, Backends, Roles};
use crate::services::{self, Lock, Postgres, Search, Temporal};
use crate::{client, endpoint, folders, output, person};

/// How often a service of ours is started again before we give up.
const RESTARTS: u32 = 20;

/// How many runs at once, unless something says otherwise.
const SLOTS: usize = 2;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    given: Given,
    #[command(flatten)]
    pub(super) listen: Listen,
    /// How many agents may run at once. By default what `tamma.yaml` says here, or 2.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1000))]
    slots: Option<u16>,
    /// Says nothing but what goes wrong.
    #[arg(long, short)]
    quiet: bool,
}

/// Where the API listens.
#[derive(Debug, Args)]
pub(super) struct Listen {
    /// Where the API listens. An address that others can reach needs a token.
    #[arg(long = "listen", env = "TAMMA_LISTEN", value_name = "ADDRESS")]
    #[arg(default_value = "127.0.0.1:8622")]
    address: SocketAddr,
    /// What every request must bring.
    #[arg(long, env = "TAMMA_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: Option<String>,
    /// What people's browsers know this server as, for the links in alerts. By default the address
    /// that it listens on.
    #[arg(long, env = "TAMMA_PUBLIC_URL", value_name = "URL")]
    public_url: Option<String>,
    /// Seconds without a sign of life after which a worker is taken for dead.
    #[arg(long, env = "TAMMA_HEARTBEAT_SECONDS", value_name = "SECONDS", hide = true)]
    heartbeat_seconds: Option<u32>,
}

impl Listen {
    /// How the server is set up.
    pub(super) fn config(&self, objects: Objects) -> tamma_server::Config {
        tamma_server::Config {
            address: self.address,
            token: self.token.clone().filter(|token| !token.is_empty()),
            environment: roles::environment(),
            pace: roles::pace(self.heartbeat_seconds),
            objects,
            public_url: self.public_url.clone().filter(|url| !url.is_empty()),
            person: person::name(None).ok().and_then(|name| name.parse().ok()),
            terminal: None,
            look: Some(std::sync::Arc::new(|repository, commits| {
                Box::pin(crate::repository::look(repository, commits))
            })),
        }
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    roles::run(up(arguments))
}

async fn up(arguments: &Arguments) -> Result<ExitCode> {
    let data = folders::data(arguments.given.data())?;
    let repository = Repository::of(Path::new(".")).ok();
    let lock = match Lock::take(&data) {
        Ok(lock) => lock,
        Err(error @ services::Error::InUse { .. }) => {
            return join_in(&data, repository.as_ref(), error.into()).await;
        }
        Err(error) => return Err(error.into()),
    };
    // What cannot work is told before anything is started.
    arguments.listen.config(arguments.given.objects(&data)).check()?;
    let stop = CancellationToken::new();
    roles::until_asked_to_end(&stop)?;
    let progress = Progress::new(arguments.quiet);
    let mut private = Private::start(&arguments.given, &lock, progress).await?;
    let servers = (private.database.clone(), private.temporal.clone());
    let played = tokio::select! {
        played = play(arguments, &data, repository.as_ref(), servers, progress, &stop) => played,
        failed = private.watch(progress, &stop) => failed,
    };
    let step = progress.begin("stopping");
    private.stop().await?;
    step.done("stopped");
    played.map(|()| ExitCode::SUCCESS)
}

async fn play(
    arguments: &Arguments,
    data: &Path,
    repository: Option<&Repository>,
    (database, temporal): (String, String),
    progress: Progress,
    stop: &CancellationToken,
) -> Result<()> {
    let backends = Backends::reach(&database, &temporal, progress).await?;
    let project = match repository {
        Some(repository) => Some(register(&backends.store, repository).await?),
        None => None,
    };
    let slots = arguments.slots.map(usize::from).or_else(configured_slots).unwrap_or(SLOTS);
    let objects = arguments.given.objects(data);
    let (terminal, told) = mpsc::unbounded_channel();
    let server = arguments.listen.config(objects.clone());
    let roles = Roles {
        server: Some(tamma_server::Config { terminal: Some(terminal), ..server }),
        worker: Some(roles::worker(data, objects, slots)),
        data: data.to_owned(),
    };
    let quiet = arguments.quiet;
    let notes = repository.map(notes).unwrap_or_default();
    let played = roles.play(&backends, stop, |url| {
        if quiet {
            return Ok(());
        }
        greet(url.unwrap_or_default(), project.as_ref(), slots, &notes)
    });
    // The post ends with the server, and then there is nothing more to tell.
    tokio::join!(played, tell(told, quiet)).0
}

/// Shows alerts in this terminal as they come.
async fn tell(mut told: mpsc::UnboundedReceiver<tamma_server::Told>, quiet: bool) {
    while let Some(message) = told.recv().await {
        if quiet {
            continue;
        }
        let mut out = anstream::stdout().lock();
        // A terminal that is gone is told nothing.
        for item in &message.items {
            let _ = output::check(&mut out, Verdict::Note, &message.subject, &item.why);
            let _ = writeln!(out, "  {}", output::plain(&item.link));
        }
    }
}

/// How many runs at once the configuration here asks for.
fn configured_slots() -> Option<usize> {
    config::load_here().map(|rules| usize::from(rules.engines.slots))
}

/// What stands in the way of a first task in a repository, and what to do about it.
fn notes(repository: &Repository) -> Vec<(&'static str, String)> {
    let mut notes = Vec::new();
    if !repository.has_commit().unwrap_or(true) {
        let text =
            "it has no commit yet, and a task needs one to start from: `tamma init` makes one";
        notes.push(("repository", text.to_owned()));
    }
    if let Ok(Found::Wrong { name, problems }) = config::examine() {
        let problems = output::counted(problems, "problem");
        let text = format!("{problems} in {name}, so no task can be added: `tamma config check`");
        notes.push(("tamma.yaml", text));
    }
    let search = Search::environment();
    if let Some(rules) = config::load_here() {
        let tiers = [&rules.tiers.simple, &rules.tiers.moderate, &rules.tiers.complex];
        let names: BTreeSet<&str> = tiers.iter().map(|tier| tier.agent.as_str()).collect();
        for agent in names.into_iter().filter_map(|name| rules.agents.get(name)) {
            let command = &agent.command;
            if search.program(command).is_none() {
                let text = format!(
                    "`{command}` is not on the PATH, and tasks wait for it: `tamma doctor` says how \
                     to get an agent"
                );
                notes.push(("agent", text));
            }
        }
    }
    notes
}

fn greet(
    url: &str,
    project: Option<&Project>,
    slots: usize,
    notes: &[(&'static str, String)],
) -> Result<()> {
    let mut out = anstream::stdout().lock();
    writeln!(out)?;
    output::heading(&mut out, &format!("Tamma is up at {url}"))?;
    if let Some(project) = project {
        let agents = output::counted(slots, "agent");
        writeln!(out, "  project {}, {agents} at once", output::plain(&project.name))?;
    }
    for (name, text) in notes {
        output::check(&mut out, Verdict::Note, name, text)?;
    }
    writeln!(out)?;
    let mut next = vec![
        ("tamma task add \"…\" --watch".to_owned(), "adds a task and follows it".to_owned()),
        ("tamma inbox".to_owned(), "what waits for you".to_owned()),
    ];
    if project.is_none() {
        next.insert(
            0,
            ("cd <repository> && tamma up".to_owned(), "registers a project".to_owned()),
        );
    }
    output::next(&mut out, &next)?;
    writeln!(out, "\nCtrl-C stops it; tasks go on where they were when it is up again.")?;
    Ok(())
}

/// Registers the repository here with an `up` that runs already.
async fn join_in(
    data: &Path,
    repository: Option<&Repository>,
    in_use: anyhow::Error,
) -> Result<ExitCode> {
    // Without an address it is on its way up or down, and cannot be asked.
    let Some(endpoint) = endpoint::read(data) else { return Err(in_use) };
    let mut out = anstream::stdout().lock();
    writeln!(out, "Tamma is up already at {}.", endpoint.url)?;
    let Some(repository) = repository else {
        writeln!(out, "Run `tamma up` in a git repository to make it a project.")?;
        return Ok(ExitCode::SUCCESS);
    };
    let place = repository.root.display().to_string();
    let client = client::Client::of(endpoint)?;
    let Projects { projects } = client.get("/projects", &[]).await?;
    let known = projects.iter().find(|project| project.repository == place);
    let name = if let Some(project) = known {
        project.name.clone()
    } else {
        let names = projects.iter().map(|it| it.name.clone()).collect();
        let name = free_name(repository, &names);
        let new = json!({ "name": name, "repository": place });
        let by = person::name(None)?;
        let _: shape::Project = client.post("/projects", &by, client::new_id(), &new).await?;
        name
    };
    let now = if known.is_some() { "knows" } else { "now knows" };
    writeln!(out, "It {now} the project {}.", output::plain(&name))?;
    for (name, text) in notes(repository) {
        output::check(&mut out, Verdict::Note, name, &text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The name of the repository's folder, with a number where another project has it.
fn free_name(repository: &Repository, taken: &BTreeSet<String>) -> String {
    let name = repository.root.file_name().map(|name| name.to_string_lossy().into_owned());
    let plain = name.unwrap_or_else(|| "project".to_owned());
    // One of these is free: there is one more of them than there are projects.
    let numbered = (2..=taken.len() + 2).map(|number| format!("{plain}-{number}"));
    let mut names = std::iter::once(plain.clone()).chain(numbered);
    names.find(|name| !taken.contains(name)).unwrap_or(plain)
}

/// Registers a repository, under the name of its folder where that is free.
async fn register(store: &Store, repository: &Repository) -> Result<Project> {
    let place = repository.root.display().to_string();
    if let Some(project) = store.project_at(&place).await? {
        return Ok(project);
    }
    let taken = store.projects().await?;
    let names = taken.into_iter().map(|project| project.name).collect();
    let name = free_name(repository, &names);
    let project = Project { id: ProjectId(client::new_id()), name, repository: place };
    store.register(&project).await.context("the project cannot be registered")?;
    Ok(project)
}

/// The services that were started here, and where all are.
struct Private {
    database: String,
    temporal: String,
    postgres_service: Option<Postgres>,
    temporal_service: Option<Temporal>,
}

impl Private {
    /// Starts what was not given.
    async fn start(given: &Given, lock: &Lock, progress: Progress) -> Result<Self> {
        let search = Search::environment();
        let postgres = async {
            if let Some(url) = given.database() {
                return Ok::<_, services::Error>((url.to_owned(), None));
            }
            let service = Postgres::start(lock, &search, progress).await?;
            Ok((service.url(), Some(service)))
        };
        let temporal = async {
            if let Some(address) = given.temporal() {
                return Ok((address.to_owned(), None));
            }
            let service = Temporal::start(lock, &search, progress).await?;
            Ok((service.address(), Some(service)))
        };
        let (postgres, temporal) = tokio::join!(postgres, temporal);
        let ((database, postgres_service), (temporal, temporal_service)) =
            match (postgres, temporal) {
                (Ok(postgres), Ok(temporal)) => (postgres, temporal),
                // One of them is up, and must not be left.
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
        Ok(Self { database, temporal, postgres_service, temporal_service })
    }

    /// Starts again what dies, until told to stop. Ends only when that does not help.
    async fn watch(&mut self, progress: Progress, stop: &CancellationToken) -> Result<()> {
        let Self { postgres_service, temporal_service, .. } = self;
        let postgres = async {
            let Some(service) = postgres_service else { return std::future::pending().await };
            for _ in 0..RESTARTS {
                let died = service.died().await;
                if stop.is_cancelled() {
                    return std::future::pending().await;
                }
                tracing::error!(%died, "PostgreSQL died, and is started again");
                service.restart(progress).await?;
            }
            anyhow::bail!("PostgreSQL dies again and again: see its log in the data folder")
        };
        let temporal = async {
            let Some(service) = temporal_service else { return std::future::pending().await };
            for _ in 0..RESTARTS {
                let died = service.died().await;
                if stop.is_cancelled() {
                    return std::future::pending().await;
                }
                tracing::error!(%died, "Temporal died, and is started again");
                service.restart(progress).await?;
                // It may need a moment before it dies of the same thing again.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            anyhow::bail!("Temporal dies again and again: see its log in the data folder")
        };
        tokio::select! {
            ended = postgres => ended,
            ended = temporal => ended,
        }
    }

    /// Stops what was started here, and only that.
    async fn stop(&mut self) -> Result<()> {
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
