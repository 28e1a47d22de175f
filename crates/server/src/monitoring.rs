//! Monitoring endpoint of a process: metrics, liveness and readiness.
//!
//! It has its own address and no authentication, because probes and Prometheus have no token. It tells
//! nothing about tasks or people.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;
use strum::IntoEnumIterator as _;
use tamma_core::state::State as TaskState;
use tamma_store::{InstallationMetrics, Store};
use tamma_telemetry::{names, registry};
use temporalio_client::Client;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::app::check_backends;
use crate::server::Error;

/// Media type of the text format of Prometheus.
const METRICS_MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Time for which values from the database are not read again.
const MAX_AGE: Duration = Duration::from_secs(10);

/// Time limit for these values. Prometheus waits for 10 s by default, and a scrape that takes longer would
/// look like a server that is down.
const READ_TIMEOUT: Duration = Duration::from_secs(4);

/// Returns `true` while the worker of this process polls its task queues.
pub type PollerProbe = Arc<dyn Fn() -> bool + Send + Sync>;

/// Monitoring endpoint that is bound to its address.
pub struct MonitoringServer {
    listener: TcpListener,
    address: SocketAddr,
    services: ProbeServices,
}

#[derive(Clone)]
struct ProbeServices {
    store: Store,
    temporal: Client,
    /// Whether this process reports values of the whole installation.
    reports_installation: bool,
    /// Probe of the worker; `None` if this process runs none.
    pollers: Option<PollerProbe>,
    /// Time of the last query of these values.
    read_at: Arc<Mutex<Option<Instant>>>,
    stop: CancellationToken,
}

impl MonitoringServer {
    /// Binds the address. Values of the whole installation belong to the role of the API server, and
    /// `pollers` to that of a worker.
    pub async fn bind(
        address: SocketAddr,
        (store, temporal): (Store, Client),
        reports_installation: bool,
        pollers: Option<PollerProbe>,
        stop: CancellationToken,
    ) -> Result<Self, Error> {
        let listener =
            TcpListener::bind(address).await.map_err(|source| Error::Bind { address, source })?;
        let address = listener.local_addr()?;
        let read_at = Arc::default();
        let services =
            ProbeServices { store, temporal, reports_installation, pollers, read_at, stop };
        Ok(Self { listener, address, services })
    }

    /// Returns the bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests until `done` is cancelled, also while the process stops.
    pub async fn run(self, done: CancellationToken) -> Result<(), Error> {
        let router = Router::new()
            .route("/metrics", get(metrics))
            .route("/livez", get(live))
            .route("/readyz", get(ready))
            .with_state(self.services);
        axum::serve(self.listener, router).with_graceful_shutdown(done.cancelled_owned()).await?;
        Ok(())
    }
}

/// Answers as long as the process runs.
async fn live() -> &'static str {
    "live\n"
}

/// Answers 200 if the process can do its work, and 503 otherwise, also once it stops.
async fn ready(State(services): State<ProbeServices>) -> Response {
    let health = check_backends(&services.store, &services.temporal).await;
    let stopping = services.stop.is_cancelled();
    // The servers may respond while the worker cannot start, or fails again and again.
    let polling = services.pollers.as_ref().map(|is_polling| is_polling());
    let is_ready = health.healthy && polling != Some(false) && !stopping;
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut body = json!({
        "ready": is_ready,
        "database": health.store,
        "temporal": health.temporal,
        "stopping": stopping,
    });
    if let Some(polling) = polling {
        body["polling"] = polling.into();
    }
    (status, Json(body)).into_response()
}

async fn metrics(State(services): State<ProbeServices>) -> Response {
    if services.reports_installation {
        services.refresh().await;
    }
    ([(header::CONTENT_TYPE, METRICS_MEDIA_TYPE)], registry().render()).into_response()
}

impl ProbeServices {
    /// Reads the values of the installation, unless that was done a moment ago.
    async fn refresh(&self) {
        let mut read_at = self.read_at.lock().await;
        if read_at.is_some_and(|at| at.elapsed() < MAX_AGE) {
            return;
        }
        let names_of = |is_terminal: bool| -> Vec<String> {
            let states = TaskState::iter().filter(|state| state.is_terminal() == is_terminal);
            states.map(|state| state.to_string()).collect()
        };
        let (open, ended) = (names_of(false), names_of(true));
        let reading = self.store.installation_metrics(&open, &ended);
        match tokio::time::timeout(READ_TIMEOUT, reading).await {
            Ok(Ok(values)) => set_installation(&values),
            Ok(Err(error)) => {
                tracing::warn!(%error, "failed to read metrics of the installation");
                registry().set(&names::INSTALLATION_UP, &[], 0.0);
            }
            Err(_) => {
                tracing::warn!("timed out reading metrics of the installation");
                registry().set(&names::INSTALLATION_UP, &[], 0.0);
            }
        }
        *read_at = Some(Instant::now());
    }
}

fn set_installation(values: &InstallationMetrics) {
    let set = |metric: &tamma_telemetry::Metric, value| registry().set(metric, &[], value);
    set(&names::INSTALLATION_UP, 1.0);
    registry().clear(&names::OPEN_TASKS);
    for (state, count) in &values.open_tasks {
        registry().set(&names::OPEN_TASKS, &[("state", state.as_str())], *count);
    }
    registry().clear(&names::ENDED_TASKS);
    registry().clear(&names::ENDED_TASK_SPEND);
    for (state, count, usd) in &values.ended_tasks {
        registry().set(&names::ENDED_TASKS, &[("state", state.as_str())], *count);
        registry().set(&names::ENDED_TASK_SPEND, &[("state", state.as_str())], *usd);
    }
    set(&names::WAITING_DECISIONS, values.waiting_decisions.0);
    set(&names::OLDEST_DECISION, values.waiting_decisions.1);
    set(&names::QUEUED_RUNS, values.queued_runs.0);
    set(&names::OLDEST_QUEUED_RUN, values.queued_runs.1);
    set(&names::WORKERS, values.workers.0);
    set(&names::AGENT_SLOTS, values.workers.1);
    set(&names::PENDING_AUDIT, values.pending_audit.0);
    set(&names::OLDEST_PENDING_AUDIT, values.pending_audit.1);
    set(&names::AUDIT_ENTRIES, values.audit_entries);
    registry().clear(&names::AUDIT_EXPORT_LAG);
    for (receiver, lag) in &values.audit_export_lags {
        registry().set(&names::AUDIT_EXPORT_LAG, &[("receiver", receiver.as_str())], *lag);
    }
}
