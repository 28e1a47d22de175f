//! Shared parts of `up`, `serve` and `work`: connections to the database and Temporal, and the roles
//! that run on them.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use chrono::TimeDelta;
use tamma_core::ids::Name;
use tamma_core::operator::{RetentionDays, TlsSettings};
use tamma_flow::WorkflowTuning;
use tamma_keys::Keys;
use tamma_server::{MonitoringServer, PollerProbe};
use tamma_store::{Backoff, ObjectStorage, RemovedRows, RetentionCutoffs, Store};
use temporalio_client::Client;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::commands::backend_args::{BackendArgs, PromptArgs};
use crate::endpoint::{self, Endpoint};
use crate::progress::Progress;
use crate::temporal_connection::TemporalTarget;
use crate::{clock_check, operator_file, span_export};

/// Time limit for connecting to a configured server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Time for which migrations wait for tables that are in use.
const MIGRATE_TIMEOUT: Duration = Duration::from_mins(2);

/// Time between two reads of the key file.
const RELOAD_KEYS_EVERY: Duration = Duration::from_secs(5);

/// Interval of the server's presence updates.
const PRESENCE_INTERVAL: Duration = Duration::from_secs(10);

/// Time limit for a server to remove its presence.
const SIGN_OFF_TIMEOUT: Duration = Duration::from_secs(1);

/// Number of monthly history partitions to create ahead.
const MONTHS_AHEAD: u32 = 3;

/// Preparation of the database schema at startup.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SchemaStep {
    /// Run the missing migrations.
    Migrate,
    /// Only check that this version can use the schema. Several versions can share a database, so
    /// an operator decides when it changes.
    Check,
}

/// Connections to the database and Temporal.
#[derive(Clone)]
pub(crate) struct Backends {
    pub(crate) store: Store,
    pub(crate) temporal: Client,
    /// Keys of what is written to Temporal.
    pub(crate) keys: Keys,
}

impl Backends {
    /// Connects to both, prepares the schema and creates the search attributes.
    pub(crate) async fn connect(
        database: &str,
        temporal: &TemporalTarget,
        schema: SchemaStep,
        progress: Progress,
    ) -> Result<Self> {
        let step = progress.start("connecting to the database and Temporal");
        let keys = temporal.keys.clone();
        let (store, temporal) = tokio::try_join!(connect_store(database), temporal.connect())?;
        match schema {
            SchemaStep::Migrate => {
                step.update("running database migrations");
                migrate(&store).await?;
            }
            SchemaStep::Check => {
                store.check_schema().await?;
                create_partitions(&store).await;
            }
        }
        prepare_namespaces(&store, &temporal).await;
        match clock_check::clock_problem(&store).await {
            Ok(None) => {}
            Ok(Some(problem)) => tracing::warn!(help = clock_check::HELP, "{problem}"),
            Err(error) => tracing::warn!(%error, "failed to compare the clock with the database's"),
        }
        step.finish("connected to the database and Temporal");
        Ok(Self { store, temporal, keys })
    }
}

/// Creates what the namespaces of organisations lack: search attributes that a newer version needs, or all,
/// if Temporal has lost its data. One that cannot be used concerns its organisation only.
async fn prepare_namespaces(store: &Store, temporal: &Client) {
    let namespaces = match store.namespaces().await {
        Ok(namespaces) => namespaces,
        Err(error) => {
            tracing::warn!(%error, "failed to list the namespaces of organisations");
            return;
        }
    };
    for namespace in namespaces {
        if let Err(error) = tamma_server::prepare_namespace(temporal, &namespace, true).await {
            tracing::warn!(namespace, %error, "failed to prepare the namespace of an organisation");
        }
    }
}

/// Connects to the database.
pub(crate) async fn connect_store(url: &str) -> Result<Store> {
    retry_connect(|| Store::connect(url)).await.context(
        "cannot connect to the database (check `--database` or TAMMA_DATABASE_URL, and that the server \
         is running)",
    )
}

/// Runs migrations and creates the history partitions of the coming months.
pub(crate) async fn migrate(store: &Store) -> Result<()> {
    retry_while_busy(|| store.migrate()).await.context("cannot run database migrations")?;
    retry_while_busy(|| store.ensure_partitions(today(), MONTHS_AHEAD))
        .await
        .context("cannot create history partitions")?;
    Ok(())
}

/// Retries with backoff, because requests may hold the tables. A statement waits for them a moment only, as
/// it holds up the requests that come after it.
async fn retry_while_busy<T, F>(mut attempt: impl FnMut() -> F) -> Result<T, tamma_store::Error>
where
    F: Future<Output = Result<T, tamma_store::Error>>,
{
    let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(10));
    let mut waited = Duration::ZERO;
    loop {
        match attempt().await {
            Err(error) if error.is_retryable() && waited < MIGRATE_TIMEOUT => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the database is busy; retrying"
                );
                let wait = backoff.next_delay();
                tokio::time::sleep(wait).await;
                waited += wait;
            }
            done => return done,
        }
    }
}

/// Creates the history partitions of the coming months.
///
/// Needed before anything is written: PostgreSQL refuses a row that is on its way to the default
/// partition while the partition of its month is created.
async fn create_partitions(store: &Store) {
    if let Err(error) = store.ensure_partitions(today(), MONTHS_AHEAD).await {
        tracing::warn!(%error, "failed to create history partitions; retrying in 24 h");
    }
}

/// Creates history partitions and removes old data, once a day.
async fn maintain_storage(
    store: &Store,
    retention: &RetentionDays,
    objects: Option<&ObjectStorage>,
) {
    let cutoff = |days: Option<u32>| days.map(|days| now() - TimeDelta::days(days.into()));
    let mut days = tokio::time::interval(Duration::from_hours(24));
    loop {
        days.tick().await;
        create_partitions(store).await;
        if let Some(before) = cutoff(retention.log_lines) {
            match store.delete_lines(before).await {
                Ok(0) => {}
                Ok(months) => tracing::info!(months, "removed old log lines"),
                Err(error) => {
                    tracing::warn!(%error, "failed to remove old log lines; retrying in 24 h");
                }
            }
        }
        let cutoffs = RetentionCutoffs {
            job_results: cutoff(retention.job_results),
            model_calls: cutoff(retention.model_calls),
            deliveries: cutoff(retention.deliveries),
            forge_records: cutoff(retention.forge_records),
            texts: cutoff(retention.texts),
        };
        match store.apply_retention(&cutoffs).await {
            Ok(removed) if removed == RemovedRows::default() => {}
            Ok(removed) => tracing::info!(?removed, "removed old rows"),
            Err(error) => tracing::warn!(%error, "failed to remove old rows; retrying in 24 h"),
        }
        if let (Some(before), Some(objects)) = (cutoff(retention.transcripts), objects) {
            match objects.delete_transcripts(before).await {
                Ok(0) => {}
                Ok(transcripts) => tracing::info!(transcripts, "removed old transcripts"),
                Err(error) => {
                    tracing::warn!(%error, "failed to remove old transcripts; retrying in 24 h");
                }
            }
        }
    }
}

/// Reads the key file again and again, so that a new active key is used without a restart.
async fn reload_keys(keys: &Keys) {
    let mut ticks = tokio::time::interval(RELOAD_KEYS_EVERY);
    let mut has_failed = false;
    loop {
        ticks.tick().await;
        match keys.reload() {
            Ok(_) => has_failed = false,
            Err(error) => {
                if !has_failed {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(
                        error,
                        "failed to read the encryption keys; keeping the old ones"
                    );
                }
                has_failed = true;
            }
        }
    }
}

/// Reports the presence and the version of this server until `ended` is cancelled.
async fn report_server(store: &Store, ended: &CancellationToken) {
    let name = process_name();
    let mut tick = tokio::time::interval(PRESENCE_INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let report = async {
            tick.tick().await;
            store.record_server(&name).await
        };
        let reported = tokio::select! {
            reported = report => reported,
            () = ended.cancelled() => break,
        };
        // A failure matters only to an upgrade that is finished after a minute of them.
        if let Err(error) = reported {
            tracing::debug!(%error, "failed to report server presence");
        }
    }
    // Without a database, it counts as offline a minute later.
    let _ = tokio::time::timeout(SIGN_OFF_TIMEOUT, store.remove_server(&name)).await;
}

/// Retries with backoff, because the servers may still be starting.
pub(crate) async fn retry_connect<T, E, F>(mut attempt: impl FnMut() -> F) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
    let mut waited = Duration::ZERO;
    loop {
        match attempt().await {
            Err(_) if waited < CONNECT_TIMEOUT => {
                let wait = backoff.next_delay();
                tokio::time::sleep(wait).await;
                waited += wait;
            }
            done => return done,
        }
    }
}

/// Roles that this process runs.
pub(crate) struct ProcessRoles {
    /// API server; `None` if this process does not serve the API.
    pub(crate) server: Option<tamma_server::ServerConfig>,
    /// Worker; `None` if this process runs none.
    pub(crate) worker: Option<tamma_worker::WorkerConfig>,
    /// Name for a sign-in link of the server; `None` to create no link.
    pub(crate) sign_in_as: Option<Name>,
    /// Address of the monitoring endpoint; `None` for no endpoint.
    pub(crate) monitoring: Option<SocketAddr>,
    /// Data folder, where clients find the endpoint file.
    pub(crate) data: PathBuf,
}

impl ProcessRoles {
    /// Runs the roles until `stop` is cancelled. `ready` gets the URL of the API, if it is served,
    /// and the sign-in link.
    pub(crate) async fn run(
        self,
        backends: &Backends,
        stop: &CancellationToken,
        ready: impl FnOnce(Option<&str>, Option<&str>) -> Result<()>,
    ) -> Result<()> {
        let Backends { store, temporal, keys } = backends;
        let retention = operator_file::read(&self.data)?.unwrap_or_default().retention;
        let objects = self.server.as_ref().map(|it| it.objects.clone());
        let objects = objects.or_else(|| self.worker.as_ref().map(|it| it.objects.clone()));
        let monitoring = match self.monitoring {
            Some(address) => {
                let (backends, is_server) =
                    ((store.clone(), temporal.clone()), self.server.is_some());
                let pollers = self.worker.as_ref().map(|worker| -> PollerProbe {
                    let pollers = worker.pollers.clone();
                    Arc::new(move || pollers.is_polling())
                });
                let stop = stop.clone();
                let server =
                    MonitoringServer::bind(address, backends, is_server, pollers, stop).await?;
                tracing::info!(address = %server.address(), "monitoring endpoint started");
                Some(server)
            }
            None => None,
        };
        let exporter = span_export::exporter(match (&self.server, &self.worker) {
            (Some(_), None) => "tamma-server",
            (None, Some(_)) => "tamma-worker",
            _ => "tamma",
        })?;
        let server = match self.server {
            Some(config) => {
                let token = Some(config.token.clone());
                let server =
                    tamma_server::ApiServer::bind(config, store.clone(), temporal.clone()).await?;
                let url = server.url();
                let pid = std::process::id();
                endpoint::write(&self.data, &Endpoint { url: url.clone(), pid, token })
                    .context("cannot write the endpoint file")?;
                Some((server, url))
            }
            None => None,
        };
        let link = match (&server, &self.sign_in_as) {
            (Some((server, _)), Some(name)) => Some(server.sign_in_link(name).await?),
            _ => None,
        };
        ready(server.as_ref().map(|(_, url)| url.as_str()), link.as_deref())?;
        let serving = async {
            match server {
                Some((server, _)) => {
                    // Until the last request is answered.
                    let ended = CancellationToken::new();
                    let serving = async {
                        let served = Box::pin(server.run(stop.clone())).await;
                        ended.cancel();
                        // Without the API nobody can act on tasks, so the whole process stops.
                        stop.cancel();
                        served
                    };
                    let (served, ()) = tokio::join!(serving, report_server(store, &ended));
                    drop(endpoint::remove(&self.data, std::process::id()));
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
                    worked.context("worker failed")
                }
                None => Ok(()),
            }
        };
        let housekeeping = async {
            tokio::select! {
                () = maintain_storage(store, &retention, objects.as_ref()) => {}
                () = reload_keys(keys) => {}
                () = stop.cancelled() => {}
            }
        };
        // Boxed, because these futures are large.
        let (serving, working) = (Box::pin(serving), Box::pin(working));
        // The endpoint says that the process stops, until it has stopped.
        let done = CancellationToken::new();
        let monitored = async {
            match monitoring {
                Some(monitoring) => monitoring.run(done.clone()).await,
                None => Ok(()),
            }
        };
        let roles = async {
            let ended = tokio::join!(serving, working, housekeeping);
            done.cancel();
            ended
        };
        let exported = span_export::run(exporter, done.clone());
        let ((served, worked, ()), monitored, ()) = tokio::join!(roles, monitored, exported);
        served.and(worked).and(monitored.context("monitoring endpoint failed"))
    }
}

/// Cancels `stop` on SIGINT or SIGTERM. A second signal exits immediately.
pub(crate) fn cancel_on_signal(stop: &CancellationToken) -> Result<()> {
    let stop = stop.clone();
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        stop.cancel();
        // The second signal does not wait.
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        #[expect(clippy::exit, reason = "the second signal forces an exit")]
        std::process::exit(130);
    });
    Ok(())
}

/// Ignores SIGHUP, so that a background process outlives its terminal.
pub(crate) fn ignore_hangups() -> Result<()> {
    let mut hangups = signal(SignalKind::hangup())?;
    tokio::spawn(async move { while hangups.recv().await.is_some() {} });
    Ok(())
}

/// Returns the environment variables of this process, for configuration and agents.
pub(crate) fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Returns the workflow tuning for new tasks, with the heartbeat timeout if given.
pub(crate) fn workflow_tuning(heartbeat_seconds: Option<u32>) -> WorkflowTuning {
    let usual = WorkflowTuning::default();
    WorkflowTuning {
        heartbeat_seconds: heartbeat_seconds.unwrap_or(usual.heartbeat_seconds),
        ..usual
    }
}

/// Returns a name for this process, unique among servers and among workers.
fn process_name() -> String {
    format!("{}-{}", host_name(), std::process::id())
}

/// Returns the host name, or `worker`.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = name.or_else(|| std::env::var("HOSTNAME").ok());
    let name = name.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    name.unwrap_or_else(|| "worker".to_owned())
}

/// Returns the configuration of a worker with its files under `data`.
pub(crate) fn worker_config(
    data: &Path,
    objects: ObjectStorage,
    slots: usize,
    prompts: &PromptArgs,
    backend: &BackendArgs,
) -> Result<tamma_worker::WorkerConfig> {
    // The absolute path: after an upgrade, PATH could lead to another version.
    let program = std::env::current_exe().unwrap_or_else(|_| "tamma".into());
    let operator = operator_file::read(data)?.unwrap_or_default();
    let mut private_keys = backend.private_keys();
    private_keys.extend(operator.tls.as_ref().and_then(tls_key));
    Ok(tamma_worker::WorkerConfig {
        operator,
        name: process_name(),
        environment: environment(),
        launcher: tamma_worker::Launcher { program, args: vec!["sandbox-launcher".to_owned()] },
        objects,
        slots,
        forges: data.join("forges"),
        public_url: std::env::var("TAMMA_PUBLIC_URL").ok().filter(|url| !url.is_empty()),
        hidden: hidden_paths(data, backend.key_file(data).path(), &private_keys)?,
        allow_project_prompts: prompts.allow_project_prompts,
        ..tamma_worker::WorkerConfig::new(data.join("work"))
    })
}

/// Returns the file or folder with the key of the server's certificate; `None` if it is in the data folder.
fn tls_key(tls: &TlsSettings) -> Option<PathBuf> {
    match tls {
        TlsSettings::Files(files) => Some(PathBuf::from(&files.key)),
        // The folder, because a renewal replaces the file.
        TlsSettings::Acme(acme) => acme.cache.as_ref().map(PathBuf::from),
    }
}

/// Returns the paths that no sandbox may see, although it may see a folder above them.
///
/// The operator's token, the passwords of the private servers and, by default, the encryption keys are in
/// the data folder. Elsewhere, the folder of the encryption keys is hidden, not only the file: a rotation
/// replaces the file, and in sandboxes that are running the kernel then removes a mount that covers it.
fn hidden_paths(data: &Path, keys: &Path, private_keys: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut hidden = vec![data.to_owned()];
    for (file, is_key_ring) in
        std::iter::once((keys, true)).chain(private_keys.iter().map(|key| (key.as_path(), false)))
    {
        let absolute =
            std::path::absolute(file).with_context(|| format!("cannot find {}", file.display()))?;
        // Also where a link leads.
        let target = absolute.canonicalize().ok();
        for path in std::iter::once(absolute).chain(target) {
            // Without a folder of the system, such as /etc, nothing could run.
            let folder = path.parent().filter(|it| is_key_ring && it.components().count() > 2);
            let place = folder.map_or_else(|| path.clone(), Path::to_owned);
            if !path.starts_with(data) && !hidden.contains(&place) {
                hidden.push(place);
            }
        }
    }
    Ok(hidden)
}

/// Runs `tamma serve` or `tamma work` on configured servers until a signal arrives.
pub(crate) fn run_standalone(
    backend: &BackendArgs,
    keys: Keys,
    roles: ProcessRoles,
) -> Result<ExitCode> {
    if let Some(config) = &roles.server {
        config.check()?;
    }
    let (database, _) = backend.servers()?;
    let temporal = backend.temporal_target(keys)?;
    block_on(async {
        let stop = CancellationToken::new();
        cancel_on_signal(&stop)?;
        let backends =
            Backends::connect(database, &temporal, SchemaStep::Check, Progress::new(false)).await?;
        let running = roles.run(&backends, &stop, |url, _| {
            let mut out = anstream::stdout().lock();
            match url {
                Some(url) => writeln!(out, "serving at {url}")?,
                None => writeln!(out, "working")?,
            }
            Ok(())
        });
        Box::pin(running).await
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Runs a future on a new runtime, with logs on standard error.
pub(crate) fn block_on<T>(role: impl Future<Output = Result<T>>) -> Result<T> {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_env("TAMMA_LOG")
        // Tamma reports unreachable servers itself, so the SDK's warnings are hidden.
        .unwrap_or_else(|_| {
            EnvFilter::new("warn,temporalio_sdk_core=error,temporalio_client=error")
        });
    let is_terminal = std::io::stderr().is_terminal();
    // Fails only if a subscriber is already set. `tamma logs` selects lines by their target.
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(is_terminal && std::env::var_os("NO_COLOR").is_none())
        .with_target(!is_terminal);
    let _ = if std::env::var("TAMMA_LOG_FORMAT").is_ok_and(|format| format == "json") {
        // Fields of the task's span are in each line.
        subscriber.json().flatten_event(true).with_target(true).try_init()
    } else {
        subscriber.try_init()
    };
    // Sessions of agents are polled deep in the stack, in development builds most of all.
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.enable_all().thread_stack_size(8 * 1024 * 1024).build()?.block_on(role)
}

fn today() -> chrono::NaiveDate {
    now().date_naive()
}

/// Returns the current time.
#[expect(clippy::disallowed_methods, reason = "the command line reads the clock")]
pub(crate) fn now() -> chrono::DateTime<chrono::Utc> {
    chrono::Utc::now()
}

#[cfg(test)]
mod tests {
    use tamma_core::operator::OperatorConfig;

    use super::*;

    #[test]
    fn sandboxes_see_no_keys_also_after_a_rotation() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let data = folder.join("data");
        let hide = |keys: &Path, others: &[PathBuf]| hidden_paths(&data, keys, others).unwrap();
        assert_eq!(hide(&data.join("keys.json"), &[]), std::slice::from_ref(&data));
        // The folder, because a rotation replaces the file.
        let own = folder.join("own");
        assert_eq!(hide(&own.join("keys.json"), &[]), [data.clone(), own.clone()]);
        // Links are hidden with their targets.
        std::fs::create_dir_all(folder.join("secret")).unwrap();
        std::fs::create_dir_all(&own).unwrap();
        std::fs::write(folder.join("secret/keys.json"), "").unwrap();
        std::os::unix::fs::symlink(folder.join("secret/keys.json"), own.join("link")).unwrap();
        let expected = [data.clone(), own.clone(), folder.join("secret")];
        assert_eq!(hide(&own.join("link"), &[]), expected);
        // Folders of the system stay, and so do those of other keys.
        let (keys, tls) =
            (Path::new("/etc/keys.json"), PathBuf::from("/etc/ssl/tamma-nowhere.key"));
        assert_eq!(hide(keys, std::slice::from_ref(&tls)), [data.clone(), keys.to_owned(), tls]);
    }

    #[test]
    fn sandboxes_see_neither_the_key_of_the_certificate_nor_the_folder_of_renewed_ones() {
        let key = |tls: &str| {
            let operator = OperatorConfig::parse(&format!("tls: {tls}")).unwrap();
            operator.tls.as_ref().and_then(tls_key)
        };
        let files = "{certificate: /etc/tamma/a.pem, key: /etc/tamma/b.pem}";
        assert_eq!(key(files), Some("/etc/tamma/b.pem".into()));
        let acme = "acme: {directory: 'https://a.example/directory'";
        assert_eq!(key(&format!("{{{acme}, cache: /srv/acme}}}}")), Some("/srv/acme".into()));
        assert_eq!(key(&format!("{{{acme}}}}}")), None);
    }
}
