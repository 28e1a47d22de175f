#![doc = include_str!("../README.md")]

mod answers;
mod drawer;
mod error;
mod faults;
mod gates;
mod hands;
mod known;
mod meaning;
mod prompts;
mod runs;
mod site;
mod toolchains;
mod turns;
mod witness;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tamma_engine::agent::Patience;
use tamma_engine::process::Records;
use tamma_flow::{ENGINES, QUEUE, TaskFlow};
use tamma_store::{Objects, Store};
use temporalio_client::Client;
use temporalio_sdk::runtime::RuntimeOptions;
use temporalio_sdk::runtime::worker_tuner::{FixedSizeSlotSupplier, TunerHolder};
use temporalio_sdk::{Runtime, Worker, WorkerOptions};
use tokio_util::sync::CancellationToken;

pub use error::Error;
pub use faults::Faults;
pub use hands::{Activities, Announce, Call};
/// What the launcher inside a sandbox does, for the program that is it.
pub use tamma_engine::confine::{Launcher, inside};
pub use witness::{Ending, Redact, RunFacts, Witness};

/// How long running jobs go on when the worker is told to stop. What takes longer than a moment takes
/// hours, so it is stopped, and taken up by the next worker.
const FAREWELL: Duration = Duration::from_millis(500);

/// How long to wait before a worker that failed is started again.
const AGAIN: Duration = Duration::from_secs(2);

/// How often a worker says that it is there.
const PRESENT: Duration = Duration::from_secs(10);

/// What a worker works with.
#[derive(Debug, Clone)]
pub struct Config {
    /// What people know it by. No two workers have the same.
    pub name: String,
    /// Where mirrors, worktrees and records of processes are.
    pub data: PathBuf,
    /// Where large things are kept, such as transcripts: a folder.
    pub objects: Objects,
    /// The variables that the configuration may name and agents may inherit.
    pub environment: BTreeMap<String, String>,
    /// How many runs at once.
    pub slots: usize,
    /// How many workflows are kept in memory between two of their steps.
    pub cached: usize,
    /// How long an agent is waited for.
    pub patience: Patience,
    /// The program that comes first in a sandbox: one that calls [`inside()`].
    pub launcher: Launcher,
    /// Where the worker is made to fail; nowhere, but in tests.
    pub faults: Faults,
}

impl Config {
    /// A worker with its data in a folder, and defaults for the rest.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        let data = data.into();
        Self {
            name: format!("worker-{}", std::process::id()),
            objects: Objects::new(data.join("objects").display().to_string()),
            data,
            environment: BTreeMap::new(),
            slots: 2,
            cached: 1000,
            patience: Patience::default(),
            launcher: Launcher { program: "tamma".into(), args: vec!["inside".to_owned()] },
            faults: Faults::none(),
        }
    }
}

/// Works until it is told to stop.
///
/// What a dead worker left running on this machine is ended first. The future cannot be moved to
/// another thread, because workflows run on the one that awaits it.
pub async fn run(
    config: Config,
    store: Store,
    client: Client,
    stop: CancellationToken,
) -> Result<(), Error> {
    let records = Records::open(&config.data).await?;
    for record in records.reap(Duration::from_secs(2)).await? {
        tracing::warn!(run = %record.run, "ended what a dead worker left running");
    }
    // It may be a lot, and nobody waits for it.
    let (data, objects, kept) = (config.data.clone(), config.objects.clone(), store.clone());
    tokio::spawn(async move {
        match witness::put_leftovers(&data, &objects, &kept).await {
            Ok(0) => {}
            Ok(put) => tracing::info!(put, "transcripts of a dead worker are in their place"),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "transcripts of a dead worker stay on this machine");
            }
        }
    });
    let (slots, cached) = (config.slots, config.cached);
    let presence = Box::pin(presence(store.clone(), config.name.clone(), slots, stop.clone()));
    let activities = Activities::new(config, store, records).await?;
    let runtime = Runtime::from_current_tokio(RuntimeOptions::default()).map_err(engine)?;
    let loops = || {
        // How soon another worker takes over from a dead one, how fast a job hears of a
        // cancellation, and how long it may take to stop.
        let options = WorkerOptions::new(QUEUE)
            .register_workflow::<TaskFlow>()
            .map_err(engine)?
            .register_activities(activities.clone())
            .max_cached_workflows(cached)
            .sticky_queue_schedule_to_start_timeout(Duration::from_secs(2))
            .max_heartbeat_throttle_interval(Duration::from_secs(1))
            .graceful_shutdown_period(FAREWELL)
            .build();
        Worker::new(&runtime, client.clone(), options).map_err(engine)
    };
    let engines = || {
        let slots = TunerHolder::builder()
            .activity_task_slot_supplier(FixedSizeSlotSupplier::new(slots))
            // There are none of these on this queue, and each kind has to have a number.
            .workflow_task_slot_supplier(FixedSizeSlotSupplier::new(1))
            .local_activity_task_slot_supplier(FixedSizeSlotSupplier::new(1))
            .nexus_task_slot_supplier(FixedSizeSlotSupplier::new(1))
            .build();
        let options = WorkerOptions::new(ENGINES)
            .register_activities(activities.clone())
            .tuner(slots)
            .max_heartbeat_throttle_interval(Duration::from_secs(1))
            .graceful_shutdown_period(FAREWELL)
            .build();
        Worker::new(&runtime, client.clone(), options).map_err(engine)
    };
    let (loops, engines, ()) =
        tokio::join!(supervise(loops, &stop), supervise(engines, &stop), presence);
    loops.and(engines)
}

/// Tells the store that this worker is there, until it is told to stop.
async fn presence(store: Store, name: String, slots: usize, stop: CancellationToken) {
    let slots = u32::try_from(slots).unwrap_or(u32::MAX);
    let mut tick = tokio::time::interval(PRESENT);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = stop.cancelled() => break,
        }
        // It only shows less for a while.
        if let Err(error) = store.worker_is_there(&name, slots).await {
            tracing::debug!(%error, "the worker could not say that it is there");
        }
    }
    let _ = store.worker_is_gone(&name).await;
}

fn engine(error: impl std::fmt::Display) -> Error {
    Error::Engine(error.to_string())
}

/// Runs a worker, and starts it again when it fails, until it is told to stop.
async fn supervise(
    make: impl Fn() -> Result<Worker, Error>,
    stop: &CancellationToken,
) -> Result<(), Error> {
    while !stop.is_cancelled() {
        let mut worker = make()?;
        let end = worker.shutdown_handle();
        let over = CancellationToken::new();
        let told = async {
            tokio::select! {
                () = stop.cancelled() => end(),
                () = over.cancelled() => {}
            }
        };
        let work = async {
            let ended = worker.run().await;
            over.cancel();
            ended
        };
        let (ended, ()) = tokio::join!(work, told);
        if let Err(error) = ended {
            tracing::error!(%error, "the worker failed, and is started again");
            tokio::select! {
                () = tokio::time::sleep(AGAIN) => {}
                () = stop.cancelled() => {}
            }
        }
    }
    Ok(())
}
