//! Load: runs tasks at a given concurrency and measures them from outside.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures_util::stream::{self, FuturesUnordered, StreamExt as _, TryStreamExt as _};
use tamma_core::actor::Actor;
use tamma_core::rules::Rules;
use tamma_core::task::Task;
use tamma_core::task_loop::{State, TaskReceived, begin};
use tamma_core::version::Edition;
use tamma_flow::{
    TaskWorkflow, WorkflowInput, WorkflowOrigin, WorkflowTuning, search_attributes, workflow_id,
};
use tamma_testkit::tamma_process::TammaProcess;
use temporalio_client::{
    Client, WorkflowDescribeOptions, WorkflowFetchHistoryOptions, WorkflowGetResultOptions,
    WorkflowStartOptions,
};
use temporalio_common::protos::temporal::api::history::v1::HistoryEvent;
use temporalio_common::search_attributes::SearchAttributes;

use super::bare::{self, BareWorkflow, CallSequence};
use super::cluster::{self, BenchCluster};
use super::history::HistoryTimes;
use super::meter::{self, CpuTime};

/// Maximum number of histories to read after a load; they are all similar.
const MAX_HISTORIES: usize = 200;

/// Variant to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Subject {
    /// Bare Temporal workflow with the calls of a task.
    Bare(CallSequence),
    /// Bare Temporal workflow with the calls and the child processes of a task.
    BareChildren(CallSequence),
    /// This number of Tamma's workers.
    Loop(usize),
    /// Tamma's workflow and writes, with no-op jobs.
    Stubbed,
}

impl Subject {
    /// Returns the name for the table.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Bare(_) => "bare Temporal",
            Self::BareChildren(_) => "bare, same children",
            Self::Loop(_) => "loop",
            Self::Stubbed => "loop, no-op jobs",
        }
    }

    /// Starts the workers.
    pub(crate) async fn start_workers(&self, cluster: &BenchCluster) -> Result<Vec<TammaProcess>> {
        let worker = match self {
            Self::Bare(_) => cluster.start_lab_worker("bare").await?,
            Self::BareChildren(_) => cluster.start_lab_worker("bare-children").await?,
            Self::Loop(count) => return cluster.start_workers(*count).await,
            Self::Stubbed => cluster.start_lab_worker("stubs-1").await?,
        };
        Ok(vec![worker])
    }
}

/// Way to start tasks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Load {
    /// Closed loop: a task starts when another one ends, so that this number runs at a time.
    Closed(usize),
    /// Open loop: this number of tasks starts per second, whether or not others end.
    Open(f64),
}

/// Source of task numbers, each used once.
#[derive(Debug, Default)]
pub(crate) struct TaskCounter(AtomicU64);

impl TaskCounter {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Measurement of one load.
#[derive(Debug, Default)]
pub(crate) struct Measurement {
    /// Number of tasks.
    pub(crate) tasks: usize,
    /// Total duration.
    pub(crate) wall: Duration,
    /// Duration of each task.
    pub(crate) task_times: Vec<Duration>,
    /// Durations within the tasks.
    pub(crate) times: HistoryTimes,
    /// CPU time of the workers and their child processes: git, agents and gates.
    pub(crate) worker: CpuTime,
    /// CPU time of Temporal.
    pub(crate) temporal: Duration,
    /// CPU time of PostgreSQL.
    pub(crate) postgres: Duration,
    /// Average number of history events per task.
    pub(crate) events: f64,
    /// Average history size per task, in bytes.
    pub(crate) bytes: f64,
    /// Database rows per task.
    pub(crate) rows: f64,
    /// SQL statements per task.
    pub(crate) statements: f64,
    /// Bytes of the write-ahead log per task.
    pub(crate) wal: f64,
    /// Growth of the database per task, in bytes.
    pub(crate) size: f64,
}

impl Measurement {
    /// Returns the tasks per second.
    pub(crate) fn throughput(&self) -> f64 {
        per(self.tasks, self.wall.as_secs_f64())
    }

    /// Returns the CPU time of workers, child processes and servers.
    pub(crate) fn total_cpu(&self) -> Duration {
        self.worker.all() + self.temporal + self.postgres
    }

    /// Returns the milliseconds per task of a total.
    pub(crate) fn each(&self, total: Duration) -> f64 {
        per_task(total.as_secs_f64() * 1000.0, self.tasks)
    }
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn per(tasks: usize, seconds: f64) -> f64 {
    tasks as f64 / seconds
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn per_task(total: f64, tasks: usize) -> f64 {
    total / tasks.max(1) as f64
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn float(count: u64) -> f64 {
    count as f64
}

/// Runs tasks at a given concurrency and returns the workflow ID and duration of each.
pub(crate) async fn drive(
    cluster: &BenchCluster,
    subject: &Subject,
    counter: &TaskCounter,
    tasks: usize,
    concurrency: usize,
) -> Result<Vec<(String, Duration)>> {
    stream::iter(0..tasks)
        .map(|_| run_one(cluster, subject, counter.next()))
        .buffer_unordered(concurrency)
        .try_collect()
        .await
}

/// Starts tasks at a fixed rate and returns the workflow ID and duration of each, in the order in which
/// they end.
pub(crate) async fn drive_open(
    cluster: &BenchCluster,
    subject: &Subject,
    counter: &TaskCounter,
    tasks: usize,
    per_second: f64,
) -> Result<Vec<(String, Duration)>> {
    let mut ticks = tokio::time::interval(Duration::from_secs_f64(1.0 / per_second));
    let (mut running, mut started, mut done) = (FuturesUnordered::new(), 0, Vec::new());
    while done.len() < tasks {
        tokio::select! {
            _ = ticks.tick(), if started < tasks => {
                started += 1;
                running.push(run_one(cluster, subject, counter.next()));
            }
            Some(ended) = running.next(), if !running.is_empty() => done.push(ended?),
        }
    }
    Ok(done)
}

async fn run_one(
    cluster: &BenchCluster,
    subject: &Subject,
    number: u64,
) -> Result<(String, Duration)> {
    let start = now();
    let id = match subject {
        Subject::Bare(sequence) | Subject::BareChildren(sequence) => {
            let id = bare::workflow_id(cluster::id(number));
            let task_loop = begin(&received(&cluster.task(number))?, &cluster.rules).next;
            let attributes = SearchAttributes::new(search_attributes::initial_values(&task_loop));
            let options = WorkflowStartOptions::new(bare::QUEUE, id.clone())
                .search_attributes(attributes)
                .task_timeout(Duration::from_secs(5))
                .build();
            let handle =
                cluster.client.start_workflow(BareWorkflow::run, sequence.clone(), options).await?;
            let result = handle.get_result(WorkflowGetResultOptions::default()).await?;
            ensure!(!bare::is_failure(&result), "an activity of `{id}` failed");
            id
        }
        Subject::Loop(_) | Subject::Stubbed => {
            let id = start_task(cluster, number).await?;
            let handle = cluster.client.get_workflow_handle::<TaskWorkflow>(id.clone());
            let ended = handle.get_result(WorkflowGetResultOptions::default()).await?;
            ensure!(ended.state == State::Completed, "a task ended as {}", ended.state);
            id
        }
    };
    Ok((id, start.elapsed()))
}

fn received(task: &Task) -> Result<TaskReceived> {
    Ok(TaskReceived {
        task: task.id,
        project: task.project,
        priority: task.priority,
        at: utc_now(),
        by: Actor::Person("Ann".parse()?),
        auth: None,
        submitted_plan: None,
        edition: Edition::NEWEST,
    })
}

/// Starts the workflow of the task with a number, and returns its ID.
pub(crate) async fn start_task(cluster: &BenchCluster, number: u64) -> Result<String> {
    start_workflow(&cluster.client, &cluster.rules, cluster.task(number)).await
}

/// Starts the workflow of a task like the server does, and returns its ID.
pub(crate) async fn start_workflow(client: &Client, rules: &Rules, task: Task) -> Result<String> {
    let received = received(&task)?;
    let first = begin(&received, rules);
    let id = workflow_id(task.id);
    let options = WorkflowStartOptions::new(tamma_flow::TASK_QUEUE, id.clone())
        .search_attributes(SearchAttributes::new(search_attributes::initial_values(&first.next)))
        .task_timeout(Duration::from_secs(5))
        .build();
    let origin = WorkflowOrigin::New { received, task: Box::new(task) };
    let input = WorkflowInput { rules: rules.clone(), tuning: WorkflowTuning::default(), origin };
    client.start_workflow(TaskWorkflow::run, input, options).await?;
    Ok(id)
}

/// Returns the history events of a workflow so far.
pub(crate) async fn events(cluster: &BenchCluster, id: &str) -> Result<Vec<HistoryEvent>> {
    let handle = cluster.client.get_workflow_handle::<TaskWorkflow>(id.to_owned());
    Ok(handle.fetch_history(WorkflowFetchHistoryOptions::default()).into_events().await?)
}

/// Starts the workers of a variant, warms them up and measures a load.
pub(crate) async fn measure(
    cluster: &BenchCluster,
    subject: &Subject,
    counter: &TaskCounter,
    tasks: usize,
    load: Load,
) -> Result<Measurement> {
    cluster.delete_task_branches().await?;
    let mut workers = subject.start_workers(cluster).await?;
    let warm_up = match load {
        Load::Closed(concurrency) => concurrency.clamp(4, 20),
        Load::Open(_) => 4,
    };
    drive(cluster, subject, counter, warm_up, warm_up).await?;
    let (postgres, temporal) = (cluster.postgres_pid()?, cluster.temporal_pids()?);
    let worker_pids = workers.iter().map(cluster::pid).collect::<Result<Vec<_>>>()?;
    let spent = || {
        let temporal: Duration = temporal.iter().map(|pid| meter::cpu_time(*pid).all()).sum();
        let workers = worker_pids.iter().map(|pid| meter::cpu_time(*pid)).sum::<CpuTime>();
        (workers, temporal, meter::cpu_time(postgres).all())
    };
    let bytes_before = meter::database_bytes(&cluster.database).await?;
    let counted = meter::database(&cluster.database).await?;
    let (before, start) = (spent(), now());
    let done = match load {
        Load::Closed(concurrency) => drive(cluster, subject, counter, tasks, concurrency).await?,
        Load::Open(per_second) => drive_open(cluster, subject, counter, tasks, per_second).await?,
    };
    let (wall, after) = (start.elapsed(), spent());
    let counts = meter::database(&cluster.database).await?;
    let bytes_after = meter::database_bytes(&cluster.database).await?;
    let mut measured = Measurement {
        tasks,
        wall,
        task_times: done.iter().map(|(_, took)| *took).collect(),
        worker: after.0.since(before.0),
        temporal: after.1.saturating_sub(before.1),
        postgres: after.2.saturating_sub(before.2),
        rows: per_task(float(counts.total_rows().saturating_sub(counted.total_rows())), tasks),
        statements: per_task(
            float(counts.total_statements().saturating_sub(counted.total_statements())),
            tasks,
        ),
        wal: per_task(float(bytes_after.wal.saturating_sub(bytes_before.wal)), tasks),
        size: per_task(float(bytes_after.size.saturating_sub(bytes_before.size)), tasks),
        ..Measurement::default()
    };
    for worker in &mut workers {
        ensure!(worker.is_running()?, "a worker ended during the measurement");
        worker.stop().await?;
    }
    let (mut all, mut bytes) = (0, 0);
    let step = tasks.div_ceil(MAX_HISTORIES).max(1);
    let read: Vec<_> = done.iter().step_by(step).collect();
    for (id, _) in &read {
        let events = events(cluster, id).await?;
        all += events.len() as u64;
        bytes += history_size(cluster, id).await?;
        let times = HistoryTimes::of(&events);
        measured.times.transitions.extend(times.transitions);
        measured.times.decisions.extend(times.decisions);
    }
    measured.events = per_task(float(all), read.len());
    measured.bytes = per_task(float(bytes), read.len());
    Ok(measured)
}

/// Returns the history size that Temporal reports.
async fn history_size(cluster: &BenchCluster, id: &str) -> Result<u64> {
    let handle = cluster.client.get_workflow_handle::<TaskWorkflow>(id.to_owned());
    let described = handle.describe(WorkflowDescribeOptions::default()).await?;
    let info = described.raw_description.workflow_execution_info.as_ref();
    Ok(info.map_or(0, |info| info.history_size_bytes.unsigned_abs()))
}

/// Returns the current time, for measurements.
#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "a task is received now")]
fn utc_now() -> chrono::DateTime<chrono::Utc> {
    chrono::Utc::now()
}
