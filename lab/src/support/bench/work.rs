//! Worker processes of the measurements, with the options of Tamma's worker.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tamma_core::capacity::CACHED_WORKFLOWS;
use tamma_engine::process::ProcessRecords;
use tamma_flow::TaskWorkflow;
use tamma_store::Store;
use tamma_testkit::sample_plan;
use tamma_worker::{Activities, WorkerConfig};
use temporalio_client::Client;
use temporalio_sdk::runtime::RuntimeOptions;
use temporalio_sdk::runtime::worker_tuner::{FixedSizeSlotSupplier, TunerHolder};
use temporalio_sdk::{Runtime, Worker, WorkerOptions};
use tokio::signal::unix::{SignalKind, signal};

use super::bare::{self, BareActivities, BareWorkflow};
use super::children::{ChildPlan, ChildPlayer};
use super::stubs::StubActivities;

/// Number of agent slots, as in Tamma.
const SLOTS: usize = 2;

/// Applies the options of Tamma's workflow worker. A macro, because each builder has its own type.
macro_rules! workflow_options {
    ($builder:expr) => {
        $builder
            .max_cached_workflows(usize::try_from(CACHED_WORKFLOWS).unwrap_or(usize::MAX))
            .sticky_queue_schedule_to_start_timeout(Duration::from_secs(2))
            .max_heartbeat_throttle_interval(Duration::from_secs(1))
            .graceful_shutdown_period(Duration::from_secs(10))
            .build()
    };
}

/// Applies the options of Tamma's agent worker.
macro_rules! agent_options {
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

/// Runs a child process: `bare`, `bare-children`, or `stubs` with the number of files of a plan, such as
/// `stubs-1`.
///
/// Returns on SIGTERM.
pub(crate) async fn run_role(
    role: &str,
    temporal: &str,
    database: &str,
    folder: &Path,
) -> Result<()> {
    let client = tamma_testkit::temporal::connect(temporal).await?;
    let stopped = async {
        signal(SignalKind::terminate())?.recv().await;
        Ok(())
    };
    #[expect(clippy::print_stdout, reason = "the parent process waits for this line")]
    let ready = || println!("working");
    if let Some(files) = role.strip_prefix("stubs-") {
        let store = Store::connect(database).await?;
        let local_inputs = Arc::new(Mutex::new(Vec::new()));
        let stubs = stubs(store, folder, files.parse()?, local_inputs).await?;
        return run_stubs(client, stubs, ready, stopped).await;
    }
    let children = match role {
        "bare" => None,
        "bare-children" => Some(ChildPlan::read(folder)?),
        _ => bail!("unknown role `{role}`"),
    };
    let children = children.map(|plan| Arc::new(ChildPlayer::new(plan)));
    run_bare(client, BareActivities { children }, ready, stopped).await
}

/// Creates stub activities.
pub(crate) async fn stubs(
    store: Store,
    folder: &Path,
    files: usize,
    local_inputs: Arc<Mutex<Vec<usize>>>,
) -> Result<StubActivities> {
    let data = folder.join("stubs");
    let records = ProcessRecords::open(&data).await?;
    let activities = Activities::new(WorkerConfig::new(data), store.clone(), records).await?;
    Ok(StubActivities { activities, store, plan: sample_plan(files), local_inputs })
}

/// Runs a worker with stub activities until a future completes.
pub(crate) async fn run_stubs(
    client: Client,
    stubs: StubActivities,
    ready: impl FnOnce(),
    until: impl Future<Output = Result<()>>,
) -> Result<()> {
    let queues = (tamma_flow::TASK_QUEUE, tamma_flow::AGENT_TASK_QUEUE);
    let workflows = WorkerOptions::new(queues.0)
        .register_workflow::<TaskWorkflow>()?
        .register_activities(stubs.clone());
    let agents = WorkerOptions::new(queues.1).register_activities(stubs);
    run(client, workflow_options!(workflows), agent_options!(agents), ready, until).await
}

async fn run_bare(
    client: Client,
    activities: BareActivities,
    ready: impl FnOnce(),
    until: impl Future<Output = Result<()>>,
) -> Result<()> {
    let workflows = WorkerOptions::new(bare::QUEUE)
        .register_workflow::<BareWorkflow>()?
        .register_activities(activities.clone());
    let agents = WorkerOptions::new(bare::AGENT_QUEUE).register_activities(activities);
    run(client, workflow_options!(workflows), agent_options!(agents), ready, until).await
}

async fn run(
    client: Client,
    workflows: WorkerOptions,
    agents: WorkerOptions,
    ready: impl FnOnce(),
    until: impl Future<Output = Result<()>>,
) -> Result<()> {
    let runtime = Runtime::from_current_tokio(RuntimeOptions::default())
        .context("cannot create the Temporal runtime")?;
    let mut workflows = Worker::new(&runtime, client.clone(), workflows)
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    let mut agents =
        Worker::new(&runtime, client, agents).map_err(|error| anyhow::anyhow!("{error}"))?;
    let (stop_workflows, stop_agents) = (workflows.shutdown_handle(), agents.shutdown_handle());
    ready();
    let stopped = async {
        let stopped = until.await;
        stop_workflows();
        stop_agents();
        stopped
    };
    let (one, two, stopped) = tokio::join!(workflows.run(), agents.run(), stopped);
    one.and(two).map_err(|error| anyhow::anyhow!("{error}"))?;
    stopped
}
