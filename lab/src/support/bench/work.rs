//! Worker processes of the measurement, set up as the product's are.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tamma_engine::process::ProcessRecords;
use tamma_flow::TaskWorkflow;
use tamma_store::Store;
use tamma_worker::{Activities, WorkerConfig};
use temporalio_client::Client;
use temporalio_sdk::runtime::RuntimeOptions;
use temporalio_sdk::runtime::worker_tuner::{FixedSizeSlotSupplier, TunerHolder};
use temporalio_sdk::{Runtime, Worker, WorkerOptions};
use tokio::signal::unix::{SignalKind, signal};

use super::bare::{self, BareWorkflow, NoopActivities};
use super::cluster;
use super::stubs::StubActivities;

/// How many runs at once, as the product has it.
const SLOTS: usize = 2;

/// How many workflows are kept in task_loop, as the product has it.
const CACHED: usize = 1000;

/// The options of the product's worker of workflows, on a builder: its type says what is set.
macro_rules! usual {
    ($builder:expr) => {
        $builder
            .max_cached_workflows(CACHED)
            .sticky_queue_schedule_to_start_timeout(Duration::from_secs(2))
            .max_heartbeat_throttle_interval(Duration::from_secs(1))
            .graceful_shutdown_period(Duration::from_secs(10))
            .build()
    };
}

/// The options of the product's worker of runs.
macro_rules! slotted {
    ($builder:expr) => {
        $builder
            .tuner(
                TunerHolder::builder()
                    .activity_task_slot_supplier(FixedSizeSlotSupplier::new(SLOTS))
                    .workflow_task_slot_supplier(FixedSizeSlotSupplier::new(1))
                    .local_activity_task_slot_supplier(FixedSizeSlotSupplier::new(1))
                    .nexus_task_slot_supplier(FixedSizeSlotSupplier::new(1))
                    .build(),
            )
            .max_heartbeat_throttle_interval(Duration::from_secs(1))
            .graceful_shutdown_period(Duration::from_secs(10))
            .build()
    };
}

/// Plays a role of a child process: `bare`, or `rest` with the number of files of a plan, such as
/// `rest-1`. Returns when it is asked to end.
pub(crate) async fn play(role: &str, temporal: &str, database: &str, folder: &Path) -> Result<()> {
    let client = cluster::client(temporal).await?;
    let asked = async {
        signal(SignalKind::terminate())?.recv().await;
        Ok(())
    };
    #[expect(clippy::print_stdout, reason = "whoever started this waits for it")]
    let ready = || println!("working");
    match role.strip_prefix("rest-").map(str::parse) {
        Some(files) => {
            let store = Store::connect(database).await?;
            let seen = Arc::new(Mutex::new(Vec::new()));
            let rest = rest(store, folder, files?, seen).await?;
            run_stubs(client, rest, ready, asked).await
        }
        None if role == "bare" => nothing_but_the_engine(client, ready, asked).await,
        None => bail!("there is no role `{role}`"),
    }
}

/// Hands at rest.
pub(crate) async fn rest(
    store: Store,
    folder: &Path,
    files: usize,
    seen: Arc<Mutex<Vec<usize>>>,
) -> Result<StubActivities> {
    let data = folder.join("rest");
    let records = ProcessRecords::open(&data).await?;
    let activities = Activities::new(WorkerConfig::new(data), store.clone(), records).await?;
    Ok(StubActivities { activities, store, plan: cluster::plan(files), seen })
}

/// Works with activities at rest until something has happened.
pub(crate) async fn run_stubs(
    client: Client,
    rest: StubActivities,
    ready: impl FnOnce(),
    until: impl Future<Output = Result<()>>,
) -> Result<()> {
    let queues = (tamma_flow::TASK_QUEUE, tamma_flow::AGENT_TASK_QUEUE);
    let loops = WorkerOptions::new(queues.0)
        .register_workflow::<TaskWorkflow>()?
        .register_activities(rest.clone());
    let engines = WorkerOptions::new(queues.1).register_activities(rest);
    run(client, usual!(loops), slotted!(engines), ready, until).await
}

async fn nothing_but_the_engine(
    client: Client,
    ready: impl FnOnce(),
    until: impl Future<Output = Result<()>>,
) -> Result<()> {
    let loops = WorkerOptions::new(bare::QUEUE)
        .register_workflow::<BareWorkflow>()?
        .register_activities(NoopActivities);
    let engines = WorkerOptions::new(bare::ENGINES).register_activities(NoopActivities);
    run(client, usual!(loops), slotted!(engines), ready, until).await
}

async fn run(
    client: Client,
    loops: WorkerOptions,
    engines: WorkerOptions,
    ready: impl FnOnce(),
    until: impl Future<Output = Result<()>>,
) -> Result<()> {
    let runtime = Runtime::from_current_tokio(RuntimeOptions::default()).context("no runtime")?;
    let mut loops =
        Worker::new(&runtime, client.clone(), loops).map_err(|error| anyhow::anyhow!("{error}"))?;
    let mut engines =
        Worker::new(&runtime, client, engines).map_err(|error| anyhow::anyhow!("{error}"))?;
    let (end_loops, end_engines) = (loops.shutdown_handle(), engines.shutdown_handle());
    ready();
    let asked = async {
        let asked = until.await;
        end_loops();
        end_engines();
        asked
    };
    let (one, two, asked) = tokio::join!(loops.run(), engines.run(), asked);
    one.and(two).map_err(|error| anyhow::anyhow!("{error}"))?;
    asked
}
