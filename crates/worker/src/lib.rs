#![doc = include_str!("../README.md")]

mod activities;
mod activity_registration;
mod admission;
mod aftercare;
mod agent_gates;
mod answered_questions;
mod change_check;
mod checkpoints;
mod clock;
mod config;
mod content_cache;
mod embeddings;
mod environment;
mod error;
mod failed_setup;
mod fault_injection;
mod feedback_text;
mod forge_context;
mod gates;
mod heartbeats;
mod job_context;
mod knowledge_context;
mod live_questions;
mod maintenance;
mod merge_queue;
mod namespaces;
mod pipeline;
mod pollers;
mod project_config;
mod project_context;
mod prompts;
mod pull_request_text;
mod repositories;
mod results;
mod retry;
mod run_budget;
mod run_recorder;
mod running_attempts;
mod runs;
mod sdk_metrics;
mod secret_use;
mod services;
mod setup;
mod slot_queue;
mod step_writer;
mod task_text;
mod task_trace;
pub mod toolchains;
mod unsaved_results;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use tamma_core::capacity::CACHED_WORKFLOWS;
use tamma_core::operator::ResourceLimits;
use tamma_engine::git::Git;
use tamma_engine::process::{ProcessRecords, enable_cgroups};
use tamma_engine::{mirror, sandbox};
use tamma_flow::merge_queue::MergeQueueWorkflow;
use tamma_flow::pipeline::PipelineWorkflow;
use tamma_flow::{AGENT_TASK_QUEUE, NAMESPACE, TASK_QUEUE, TaskWorkflow};
use tamma_store::Store;
use temporalio_client::{Client, NamespacedClient as _};
use temporalio_common::telemetry::TelemetryOptions;
use temporalio_common::telemetry::metrics::CoreMeter;
use temporalio_sdk::runtime::RuntimeOptions;
use temporalio_sdk::runtime::worker_tuner::{FixedSizeSlotSupplier, TunerHolder};
use temporalio_sdk::{Runtime, Worker, WorkerOptions};
use tokio_util::sync::CancellationToken;

use self::maintenance::MaintenanceSwitch;
use self::namespaces::work_in_namespaces;
use self::repositories::Repositories;
use self::sdk_metrics::SdkMeter;

pub use activities::Activities;
pub use config::WorkerConfig;
pub use error::Error;
pub use failed_setup::FailedSetup;
pub use fault_injection::FaultInjection;
pub use job_context::{AnnounceStart, OpenQuestionUpdate, WorkflowCallbacks};
pub use merge_queue::{MergeQueueActivities, enqueue_merge};
pub use pipeline::PipelineActivities;
pub use pollers::PollerStatus;
pub use prompts::{PromptProblem, check_prompt};
pub use run_recorder::{PromptRecord, Redact, RunEnding, RunFacts, RunRecorder};
/// Launcher inside a sandbox, for the program that runs it.
pub use tamma_engine::sandbox::{Launcher, run_launcher};

/// Least grace period of running jobs on shutdown. Without a longer one, jobs are stopped and resumed by
/// another worker.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(500);

/// Delay before a failed worker is restarted.
const RESTART_DELAY: Duration = Duration::from_secs(2);

/// Time from the start of a worker to the first maintenance of its mirrors.
const FIRST_MAINTENANCE: Duration = Duration::from_hours(1);

/// Interval of the maintenance of mirrors.
const MAINTENANCE_INTERVAL: Duration = Duration::from_hours(24);

/// Interval in which the worker looks for namespaces of new organisations, and tries those again that
/// cannot be used.
const NAMESPACE_INTERVAL: Duration = Duration::from_secs(10);

/// Interval of the worker's presence updates.
const PRESENCE_INTERVAL: Duration = Duration::from_secs(10);

/// Runs a worker until `stop` is cancelled.
///
/// It first stops processes that a dead worker left on this machine. Fails if another worker uses the data
/// folder. The future is not `Send`, because workflows run on the thread that awaits it.
pub async fn run(
    config: WorkerConfig,
    store: Store,
    client: Client,
    stop: CancellationToken,
) -> Result<(), Error> {
    if let Err(error) = enable_cgroups() {
        // Runs are measured in any case.
        tracing::info!(%error, "cgroups are not available");
    }
    let records = ProcessRecords::open(&config.data_dir).await?;
    let _claim = records.claim()?;
    for record in records.stop_orphans(Duration::from_secs(2)).await? {
        tracing::warn!(run = %record.run, "stopped orphaned process of a dead worker");
    }
    // There may be many transcripts, and nothing waits for them.
    let (data, objects, transcript_store) =
        (config.data_dir.clone(), config.objects.clone(), store.clone());
    tokio::spawn(async move {
        match run_recorder::upload_leftovers(&data, &objects, &transcript_store).await {
            Ok(0) => {}
            Ok(put) => tracing::info!(put, "uploaded transcripts of a dead worker"),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "failed to upload transcripts of a dead worker");
            }
        }
    });
    let slots = config.slots;
    let cached = usize::try_from(CACHED_WORKFLOWS).unwrap_or(usize::MAX);
    let (data_dir, retention) = (config.data_dir.clone(), config.operator.retention.workspaces);
    let (name, limits) = (config.name.clone(), config.operator.sandbox.limits);
    let drain = config.drain.max(SHUTDOWN_GRACE);
    let pollers = config.pollers.clone();
    let activities = Activities::new(config, store.clone(), records).await?;
    // Before the first job; later, with each heartbeat.
    activities.maintenance().set(store.maintenance().await?.is_some());
    // Until the last job has ended, other workers must not take this one for a dead one.
    let ended = CancellationToken::new();
    let presence = Box::pin(report_presence(
        (store.clone(), name),
        (slots, limits),
        activities.maintenance(),
        (stop.clone(), ended.clone()),
    ));
    let upkeep =
        Box::pin(maintain_folders(data_dir, (activities.repositories(), retention), stop.clone()));
    let aftercare = Box::pin(activities.aftercare().run(stop.clone()));
    let meter: Arc<dyn CoreMeter> = Arc::new(SdkMeter);
    let telemetry = TelemetryOptions::builder().metrics(meter).attach_service_name(false).build();
    let options = RuntimeOptions::builder().telemetry_options(telemetry).build();
    let runtime =
        Runtime::from_current_tokio(options.unwrap_or_default()).map_err(temporal_error)?;
    let workflows = |client: &Client| {
        // Short timeouts, so that another worker takes over quickly and cancellations arrive
        // quickly.
        let options = WorkerOptions::new(TASK_QUEUE)
            .register_workflow::<TaskWorkflow>()
            .map_err(temporal_error)?
            .register_workflow::<PipelineWorkflow>()
            .map_err(temporal_error)?
            .register_workflow::<MergeQueueWorkflow>()
            .map_err(temporal_error)?
            .register_activities(activities.clone())
            .register_activities(activities.pipelines())
            .register_activities(activities.merge_queues())
            .max_cached_workflows(cached)
            .sticky_queue_schedule_to_start_timeout(Duration::from_secs(2))
            .max_heartbeat_throttle_interval(Duration::from_secs(1))
            .graceful_shutdown_period(drain)
            .build();
        Worker::new(&runtime, client.clone(), options).map_err(temporal_error)
    };
    let agents = |client: &Client| {
        // Each namespace can use all slots; the activities keep to their number together.
        let slots = TunerHolder::builder()
            .activity_task_slot_supplier(FixedSizeSlotSupplier::new(slots))
            // This queue has no such tasks, but every kind needs a size.
            .workflow_task_slot_supplier(FixedSizeSlotSupplier::new(1))
            .local_activity_task_slot_supplier(FixedSizeSlotSupplier::new(1))
            .nexus_task_slot_supplier(FixedSizeSlotSupplier::new(1))
            .build();
        let options = WorkerOptions::new(AGENT_TASK_QUEUE)
            .register_activities(activities.clone())
            .register_activities(activities.pipelines())
            .tuner(slots)
            .max_heartbeat_throttle_interval(Duration::from_secs(1))
            .graceful_shutdown_period(drain)
            .build();
        Worker::new(&runtime, client.clone(), options).map_err(temporal_error)
    };
    let (workflows, agents, pollers, stopping) = (&workflows, &agents, &pollers, &stop);
    let work = |client: Client| async move {
        let namespace = client.namespace();
        // An organisation's namespace that is unusable does not make the worker unready.
        let pollers =
            if namespace == NAMESPACE { pollers.clone() } else { PollerStatus::default() };
        let (workflows, agents) = tokio::join!(
            supervise(&namespace, || workflows(&client), (TASK_QUEUE, &pollers), stopping),
            supervise(&namespace, || agents(&client), (AGENT_TASK_QUEUE, &pollers), stopping),
        );
        workflows.and(agents)
    };
    let working = Box::pin(async {
        let worked = work_in_namespaces(&store, &client, NAMESPACE_INTERVAL, work).await;
        ended.cancel();
        worked
    });
    let (worked, (), (), ()) = tokio::join!(working, presence, upkeep, aftercare);
    worked
}

/// Reports the worker's presence to the store until `ended` is cancelled, and learns about maintenance. A
/// worker that stops has no free slots.
async fn report_presence(
    (store, name): (Store, String),
    (slots, limits): (usize, ResourceLimits),
    maintenance: MaintenanceSwitch,
    (stop, ended): (CancellationToken, CancellationToken),
) {
    let slots = u32::try_from(slots).unwrap_or(u32::MAX);
    // Testing the sandbox blocks.
    let describe = move || sandbox::describe(&limits).unwrap_or_else(|error| error.to_string());
    let sandbox = tokio::task::spawn_blocking(describe).await.unwrap_or_default();
    tracing::info!(%sandbox, "sandbox selected");
    let mut tick = tokio::time::interval(PRESENCE_INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = ended.cancelled() => break,
        }
        let slots = if stop.is_cancelled() { 0 } else { slots };
        match store.record_heartbeat(&name, slots, &sandbox).await {
            Ok(is_maintained) => maintenance.set(is_maintained),
            // A failure only delays the display and maintenance.
            Err(error) => tracing::debug!(%error, "failed to report worker presence"),
        }
    }
    let _ = store.remove_worker(&name).await;
}

/// Packs the mirrors of this worker and removes old workspaces once a day, until `stop` is cancelled.
async fn maintain_folders(
    data: PathBuf,
    (repositories, retention): (Repositories, Option<u32>),
    stop: CancellationToken,
) {
    let mut days = tokio::time::interval_at(
        tokio::time::Instant::now() + FIRST_MAINTENANCE,
        MAINTENANCE_INTERVAL,
    );
    loop {
        let maintain = async {
            days.tick().await;
            let git = Git::find("git").await?;
            if let Some(days) = retention {
                remove_old_workspaces(&repositories, days).await;
            }
            Ok::<_, Error>(mirror::maintain_mirrors(&git, &data).await?)
        };
        let maintained = tokio::select! {
            maintained = maintain => maintained,
            () = stop.cancelled() => return,
        };
        match maintained {
            Ok(mirror::MirrorMaintenance { done, in_use, failed }) => {
                tracing::info!(done, in_use, failed = failed.len(), "maintained mirrors");
                for (mirror, error) in failed {
                    tracing::warn!(mirror = %mirror.display(), error, "failed to maintain mirror");
                }
            }
            Err(error) => tracing::warn!(%error, "failed to maintain mirrors; retrying in 24 h"),
        }
    }
}

/// Removes the workspaces of ended tasks and stories that have not changed for some days.
async fn remove_old_workspaces(repositories: &Repositories, days: u32) {
    let before = clock::now() - TimeDelta::days(days.into());
    match repositories.remove_old_workspaces(before.into()).await {
        Ok(0) => {}
        Ok(removed) => tracing::info!(removed, "removed old workspaces"),
        Err(error) => tracing::warn!(%error, "failed to remove old workspaces; retrying in 24 h"),
    }
}

fn temporal_error(error: impl std::fmt::Display) -> Error {
    Error::Temporal(error.to_string())
}

/// Runs a Temporal worker in a namespace and restarts it after failures, until `stop` is cancelled.
async fn supervise(
    namespace: &str,
    make: impl Fn() -> Result<Worker, Error>,
    (queue, pollers): (&'static str, &PollerStatus),
    stop: &CancellationToken,
) -> Result<(), Error> {
    while !stop.is_cancelled() {
        let mut worker = make()?;
        let end = worker.shutdown_handle();
        let over = CancellationToken::new();
        let shutdown = async {
            tokio::select! {
                () = stop.cancelled() => end(),
                () = over.cancelled() => {}
            }
        };
        let work = async {
            pollers.start(queue, tokio::time::Instant::now());
            let ended = worker.run().await;
            pollers.end(queue, ended.is_err());
            over.cancel();
            ended
        };
        let (ended, ()) = tokio::join!(work, shutdown);
        if let Err(error) = ended {
            tracing::error!(namespace, %error, "worker failed; restarting");
            // Only then the client accepts another one for the same task queue.
            end();
            let delay = if namespace == NAMESPACE { RESTART_DELAY } else { NAMESPACE_INTERVAL };
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                () = stop.cancelled() => {}
            }
        }
    }
    Ok(())
}
