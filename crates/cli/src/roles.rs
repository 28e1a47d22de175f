//! What `up`, `serve` and `work` have in common: the way to the database and to Temporal, and the
//! roles that run on them.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tamma_flow::Pace;
use tamma_store::{Objects, Store};
use temporalio_client::{Client, ClientOptions, Connection, ConnectionOptions, Url};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::endpoint::{self, Endpoint};
use crate::progress::Progress;

/// How long a server that was named may take to answer before we say that it does not.
const PATIENCE: Duration = Duration::from_secs(30);

/// How many months of the log have a place of their own, counted from now.
const MONTHS_AHEAD: u32 = 3;

/// How long what agents said line by line is kept, in whole months. Transcripts stay.
const LINES_KEPT: chrono::TimeDelta = chrono::TimeDelta::days(90);

/// The namespace of Temporal that tasks are in.
const NAMESPACE: &str = "default";

/// The database and Temporal, reached.
#[derive(Clone)]
pub(crate) struct Backends {
    pub(crate) store: Store,
    pub(crate) temporal: Client,
}

impl Backends {
    /// Reaches both, brings the tables to their newest form and makes the search attributes.
    pub(crate) async fn reach(database: &str, address: &str, progress: Progress) -> Result<Self> {
        let step = progress.begin("reaching the database and Temporal");
        let (store, temporal) = tokio::try_join!(store(database), temporal(address))?;
        step.change("bringing the tables to their newest form");
        prepare(&store).await?;
        step.done("database and Temporal reached");
        Ok(Self { store, temporal })
    }
}

/// Connects to the database.
pub(crate) async fn store(url: &str) -> Result<Store> {
    patiently(|| Store::connect(url)).await.context(
        "the database cannot be reached: check its address (`--database`, TAMMA_DATABASE_URL) and \
         that it runs",
    )
}

/// Brings the tables to their newest form, with room for the months to come.
pub(crate) async fn prepare(store: &Store) -> Result<()> {
    store.migrate().await.context("the tables cannot be brought to their newest form")?;
    store.ensure_partitions(today(), MONTHS_AHEAD).await.context("the log has no room to grow")?;
    Ok(())
}

/// Makes room in the log for the months to come, and removes old lines of runs, once a day.
async fn keep_room(store: &Store) {
    let mut days = tokio::time::interval(Duration::from_hours(24));
    loop {
        days.tick().await;
        if let Err(error) = store.ensure_partitions(today(), MONTHS_AHEAD).await {
            tracing::warn!(%error, "the log has no room made ahead; it is tried again tomorrow");
        }
        match store.forget_lines(now() - LINES_KEPT).await {
            Ok(0) => {}
            Ok(months) => tracing::info!(months, "old lines of runs were removed"),
            Err(error) => {
                tracing::warn!(%error, "old lines of runs stay; it is tried again tomorrow");
            }
        }
    }
}

/// Connects to Temporal.
async fn temporal(address: &str) -> Result<Client> {
    let url: Url = format!("http://{address}")
        .parse()
        .with_context(|| format!("`{address}` is not an address such as `127.0.0.1:7233`"))?;
    let connection = patiently(|| {
        let options = ConnectionOptions::new(url.clone())
            .identity(format!("tamma-{}", std::process::id()))
            .connect_timeout(Duration::from_secs(5))
            .build();
        Connection::connect(options)
    })
    .await
    .with_context(|| {
        format!(
            "Temporal cannot be reached at {address}: check the address (`--temporal`, \
             TAMMA_TEMPORAL_ADDRESS) and that it runs"
        )
    })?;
    let client = Client::new(connection, ClientOptions::new(NAMESPACE).build())
        .context("Temporal cannot be used")?;
    make_attributes(&client).await?;
    Ok(client)
}

/// Sees to it that tasks can be searched by what the workflow publishes. A Temporal of ours has been
/// started with these; one that was named may not know them yet.
async fn make_attributes(client: &Client) -> Result<()> {
    use temporalio_client::tonic::{Code, Request};
    use temporalio_common::protos::temporal::api::enums::v1::IndexedValueType;
    use temporalio_common::protos::temporal::api::operatorservice::v1 as operator;

    let mut service = client.connection().operator_service();
    let list = operator::ListSearchAttributesRequest { namespace: NAMESPACE.to_owned() };
    let known = match service.list_search_attributes(Request::new(list)).await {
        Ok(known) => known.into_inner().custom_attributes,
        // Who may not list them may not make them either; their keeper has to.
        Err(_) => return Ok(()),
    };
    let keyword = IndexedValueType::Keyword as i32;
    let missing: std::collections::HashMap<_, _> = tamma_flow::attributes::NAMES
        .iter()
        .filter(|name| !known.contains_key(**name))
        .map(|name| ((*name).to_owned(), keyword))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let add = operator::AddSearchAttributesRequest {
        search_attributes: missing,
        namespace: NAMESPACE.to_owned(),
    };
    match service.add_search_attributes(Request::new(add)).await {
        Ok(_) => Ok(()),
        Err(status) if status.code() == Code::AlreadyExists => Ok(()),
        Err(status) => Err(status).context(
            "Temporal does not know the search attributes TammaPhase, TammaState, TammaProject, \
             TammaPriority and TammaRisk (Keyword), and they cannot be made: ask its keeper for them",
        ),
    }
}

/// Tries for a while: both servers may be on their way up.
async fn patiently<T, E, F>(mut attempt: impl FnMut() -> F) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    let mut wait = Duration::from_millis(50);
    let mut waited = Duration::ZERO;
    loop {
        match attempt().await {
            Err(_) if waited < PATIENCE => {
                tokio::time::sleep(wait).await;
                waited += wait;
                wait = (wait * 2).min(Duration::from_secs(2));
            }
            done => return done,
        }
    }
}

/// The roles of a process, and what they need.
pub(crate) struct Roles {
    /// Where the API listens, and its token, if this process has the API.
    pub(crate) server: Option<tamma_server::Config>,
    /// How the worker works, if this process has one.
    pub(crate) worker: Option<tamma_worker::Config>,
    /// The data folder, where clients find the server.
    pub(crate) data: PathBuf,
}

impl Roles {
    /// Plays the roles until told to stop. `ready` is told where the API listens.
    pub(crate) async fn play(
        self,
        backends: &Backends,
        stop: &CancellationToken,
        ready: impl FnOnce(Option<&str>) -> Result<()>,
    ) -> Result<()> {
        let Backends { store, temporal } = backends;
        let server = match self.server {
            Some(config) => {
                let token = config.token.clone();
                let server =
                    tamma_server::Server::bind(config, store.clone(), temporal.clone()).await?;
                let url = format!("http://{}", server.address());
                let pid = std::process::id();
                endpoint::write(&self.data, &Endpoint { url: url.clone(), pid, token })
                    .context("cannot write down where the server is")?;
                Some((server, url))
            }
            None => None,
        };
        ready(server.as_ref().map(|(_, url)| url.as_str()))?;
        let serving = async {
            match server {
                Some((server, _)) => {
                    let served = server.run(stop.clone()).await;
                    drop(endpoint::remove(&self.data, std::process::id()));
                    // Without the API nobody can reach the loop: the process ends as a whole.
                    stop.cancel();
                    Ok(served?)
                }
                None => Ok(()),
            }
        };
        let working = async {
            match self.worker {
                Some(config) => {
                    let work =
                        tamma_worker::run(config, store.clone(), temporal.clone(), stop.clone());
                    let worked = work.await;
                    stop.cancel();
                    worked.context("the worker cannot work")
                }
                None => Ok(()),
            }
        };
        let housekeeping = async {
            tokio::select! {
                () = keep_room(store) => {}
                () = stop.cancelled() => {}
            }
        };
        // Whole programs: they are kept apart from whoever waits for them.
        let (serving, working) = (Box::pin(serving), Box::pin(working));
        let (served, worked, ()) = tokio::join!(serving, working, housekeeping);
        served.and(worked)
    }
}

/// Cancels when the process is asked to end: Ctrl-C, or a polite `kill`.
pub(crate) fn until_asked_to_end(stop: &CancellationToken) -> Result<()> {
    let stop = stop.clone();
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        stop.cancel();
        // A second one does not wait.
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        #[expect(clippy::exit, reason = "somebody has asked twice")]
        std::process::exit(130);
    });
    Ok(())
}

/// The variables of this process, for configuration and agents.
pub(crate) fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// How patient new tasks are with their workers.
pub(crate) fn pace(heartbeat_seconds: Option<u32>) -> Pace {
    let usual = Pace::default();
    Pace { heartbeat_seconds: heartbeat_seconds.unwrap_or(usual.heartbeat_seconds), ..usual }
}

/// What this machine is called.
fn machine() -> String {
    let named = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let named = named.or_else(|| std::env::var("HOSTNAME").ok());
    let named = named.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    named.unwrap_or_else(|| "worker".to_owned())
}

/// How a worker works with its data in a folder.
pub(crate) fn worker(data: &Path, objects: Objects, slots: usize) -> tamma_worker::Config {
    // Found anew it could be another one, after an upgrade for instance.
    let program = std::env::current_exe().unwrap_or_else(|_| "tamma".into());
    tamma_worker::Config {
        name: format!("{}-{}", machine(), std::process::id()),
        environment: environment(),
        launcher: tamma_worker::Launcher { program, args: vec!["inside".to_owned()] },
        objects,
        slots,
        ..tamma_worker::Config::new(data.join("work"))
    }
}

/// Runs a role to its end on a runtime of its own, and says on standard error what goes wrong.
pub(crate) fn run<T>(role: impl Future<Output = Result<T>>) -> Result<T> {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_env("TAMMA_LOG")
        // The engine's own complaints about servers that are away are ours to word.
        .unwrap_or_else(|_| {
            EnvFilter::new("warn,temporalio_sdk_core=error,temporalio_client=error")
        });
    // Only the first one counts, and there is only one.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .with_target(false)
        .try_init();
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(role)
}

fn today() -> chrono::NaiveDate {
    now().date_naive()
}

#[expect(clippy::disallowed_methods, reason = "this is the edge: the command reads the clock")]
fn now() -> chrono::DateTime<chrono::Utc> {
    chrono::Utc::now()
}
