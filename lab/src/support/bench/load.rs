//! Load: so many tasks, so many at a time, from the outside.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use tamma_core::actor::Actor;
use tamma_core::task_loop::{State, TaskReceived, begin};
use tamma_core::version::Edition;
use tamma_flow::{
    TaskWorkflow, WorkflowInput, WorkflowOrigin, WorkflowTuning, search_attributes, workflow_id,
};
use temporalio_client::{
    WorkflowDescribeOptions, WorkflowFetchHistoryOptions, WorkflowGetResultOptions,
    WorkflowStartOptions,
};
use temporalio_common::protos::temporal::api::history::v1::HistoryEvent;
use temporalio_common::search_attributes::SearchAttributes;

use super::bare::{self, BareWorkflow, CallSequence};
use super::cluster::{self, BenchCluster, MeasuredProcess};
use super::history::HistoryTimes;
use super::meter::{self, CpuTime};

/// How many histories are read after a load, at most: they are all alike.
const READ: usize = 200;

/// What is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The engine by itself, playing what a task asks of it.
    Bare(CallSequence),
    /// The product's worker.
    Loop,
    /// The product's workflow and writes, with activities at rest.
    Stubbed,
}

impl Subject {
    /// Its name in the table.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Bare(_) => "bare engine",
            Self::Loop => "loop",
            Self::Stubbed => "loop, activities at rest",
        }
    }

    /// Starts its worker.
    pub(crate) fn worker(&self, cluster: &BenchCluster) -> Result<MeasuredProcess> {
        match self {
            Self::Bare(_) => cluster.own_work("bare"),
            Self::Loop => cluster.tamma_work(),
            Self::Stubbed => cluster.own_work("rest-1"),
        }
    }
}

/// Which task is the next. Numbers are used once in a run.
#[derive(Debug, Default)]
pub(crate) struct TaskCounter(AtomicU64);

impl TaskCounter {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// What a load came to.
#[derive(Debug, Default)]
pub(crate) struct Measurement {
    /// How many tasks.
    pub(crate) tasks: usize,
    /// In how long.
    pub(crate) wall: Duration,
    /// How long each took, from its start to its end.
    pub(crate) whole: Vec<Duration>,
    /// How long its transitions took.
    pub(crate) times: HistoryTimes,
    /// The processor time of the worker, and of what it started: git, agents, gates.
    pub(crate) worker: CpuTime,
    /// Of Temporal.
    pub(crate) temporal: Duration,
    /// Of PostgreSQL.
    pub(crate) postgres: Duration,
    /// History events of a task, on average.
    pub(crate) events: f64,
    /// Bytes of history of a task, on average.
    pub(crate) bytes: f64,
    /// Rows that a task leaves in the database.
    pub(crate) rows: f64,
    /// Statements that a task costs the database.
    pub(crate) statements: f64,
}

impl Measurement {
    /// Tasks in a second.
    pub(crate) fn throughput(&self) -> f64 {
        per(self.tasks, self.wall.as_secs_f64())
    }

    /// Milliseconds of a task, out of a total.
    pub(crate) fn each(&self, total: Duration) -> f64 {
        per_task(total.as_secs_f64() * 1000.0, self.tasks)
    }
}

#[expect(clippy::cast_precision_loss, reason = "there are few tasks")]
fn per(tasks: usize, seconds: f64) -> f64 {
    tasks as f64 / seconds
}

#[expect(clippy::cast_precision_loss, reason = "there are few tasks")]
fn per_task(total: f64, tasks: usize) -> f64 {
    total / tasks.max(1) as f64
}

#[expect(clippy::cast_precision_loss, reason = "counts are small")]
fn float(count: u64) -> f64 {
    count as f64
}

/// Runs tasks to their end, so many at a time, and returns how long each took.
pub(crate) async fn drive(
    cluster: &BenchCluster,
    subject: &Subject,
    counter: &TaskCounter,
    tasks: usize,
    at_a_time: usize,
) -> Result<Vec<(String, Duration)>> {
    stream::iter(0..tasks)
        .map(|_| one(cluster, subject, counter.next()))
        .buffer_unordered(at_a_time)
        .try_collect()
        .await
}

async fn one(cluster: &BenchCluster, subject: &Subject, number: u64) -> Result<(String, Duration)> {
    let begun = now();
    let id = match subject {
        Subject::Bare(score) => {
            let id = format!("bare-{}", cluster::id(number));
            let task_loop = begin(&received(cluster, number)?, &cluster.rules).next;
            let attributes = SearchAttributes::new(search_attributes::initial_values(&task_loop));
            let options = WorkflowStartOptions::new(bare::QUEUE, id.clone())
                .search_attributes(attributes)
                .task_timeout(Duration::from_secs(5))
                .build();
            let handle =
                cluster.client.start_workflow(BareWorkflow::run, score.clone(), options).await?;
            handle.get_result(WorkflowGetResultOptions::default()).await?;
            id
        }
        Subject::Loop | Subject::Stubbed => {
            let id = start(cluster, number).await?;
            let handle = cluster.client.get_workflow_handle::<TaskWorkflow>(id.clone());
            let ended = handle.get_result(WorkflowGetResultOptions::default()).await?;
            ensure!(ended.state == State::Completed, "a task ended as {}", ended.state);
            id
        }
    };
    Ok((id, begun.elapsed()))
}

fn received(cluster: &BenchCluster, number: u64) -> Result<TaskReceived> {
    let task = cluster.task(number);
    Ok(TaskReceived {
        task: task.id,
        project: task.project,
        priority: task.priority,
        at: utc_now(),
        by: Actor::Person("Ann".parse()?),
        submitted_plan: None,
        edition: Edition::NEWEST,
    })
}

/// Starts the workflow of a task, as the server does, and returns its id.
pub(crate) async fn start(cluster: &BenchCluster, number: u64) -> Result<String> {
    let (task, received) = (cluster.task(number), received(cluster, number)?);
    let first = begin(&received, &cluster.rules);
    let id = workflow_id(task.id);
    let options = WorkflowStartOptions::new(tamma_flow::TASK_QUEUE, id.clone())
        .search_attributes(SearchAttributes::new(search_attributes::initial_values(&first.next)))
        .task_timeout(Duration::from_secs(5))
        .static_summary(task.title.clone())
        .build();
    let origin = WorkflowOrigin::New { received, task: Box::new(task) };
    let input =
        WorkflowInput { rules: cluster.rules.clone(), tuning: WorkflowTuning::default(), origin };
    cluster.client.start_workflow(TaskWorkflow::run, input, options).await?;
    Ok(id)
}

/// The events of a workflow that has ended.
pub(crate) async fn events(cluster: &BenchCluster, id: &str) -> Result<Vec<HistoryEvent>> {
    let handle = cluster.client.get_workflow_handle::<TaskWorkflow>(id.to_owned());
    Ok(handle.fetch_history(WorkflowFetchHistoryOptions::default()).into_events().await?)
}

/// Starts a worker, warms it up, and measures a load.
pub(crate) async fn measure(
    cluster: &BenchCluster,
    subject: &Subject,
    counter: &TaskCounter,
    tasks: usize,
    at_a_time: usize,
) -> Result<Measurement> {
    let worker = subject.worker(cluster)?;
    drive(cluster, subject, counter, at_a_time.clamp(4, 20), at_a_time).await?;
    let temporal = cluster.temporal.pid().unwrap_or_default();
    let postgres = cluster.postgres.process()?;
    let spent =
        || (meter::spent(worker.id()), meter::spent(temporal).all(), meter::spent(postgres).all());
    let counted = meter::database(&cluster.database).await?;
    let (before, begun) = (spent(), now());
    let done = drive(cluster, subject, counter, tasks, at_a_time).await?;
    let (wall, after) = (begun.elapsed(), spent());
    let counts = meter::database(&cluster.database).await?;
    let mut measured = Measurement {
        tasks,
        wall,
        whole: done.iter().map(|(_, took)| *took).collect(),
        worker: after.0.since(before.0),
        temporal: after.1.saturating_sub(before.1),
        postgres: after.2.saturating_sub(before.2),
        rows: per_task(float(counts.rows.saturating_sub(counted.rows)), tasks),
        statements: per_task(float(counts.statements.saturating_sub(counted.statements)), tasks),
        ..Measurement::default()
    };
    drop(worker);
    let (mut all, mut bytes) = (0, 0);
    let step = tasks.div_ceil(READ).max(1);
    let read: Vec<_> = done.iter().step_by(step).collect();
    for (id, _) in &read {
        let events = events(cluster, id).await?;
        all += events.len() as u64;
        bytes += size(cluster, id).await?;
        let times = HistoryTimes::of(&events);
        measured.times.transitions.extend(times.transitions);
        measured.times.steps.extend(times.steps);
    }
    measured.events = per_task(float(all), read.len());
    measured.bytes = per_task(float(bytes), read.len());
    Ok(measured)
}

/// How large the engine says that a history is.
async fn size(cluster: &BenchCluster, id: &str) -> Result<u64> {
    let handle = cluster.client.get_workflow_handle::<TaskWorkflow>(id.to_owned());
    let described = handle.describe(WorkflowDescribeOptions::default()).await?;
    let info = described.raw_description.workflow_execution_info.as_ref();
    Ok(info.map_or(0, |info| info.history_size_bytes.unsigned_abs()))
}

/// The moment it is, to measure from.
#[expect(clippy::disallowed_methods, reason = "this is a measurement")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "this is the edge: a task is received now")]
fn utc_now() -> chrono::DateTime<chrono::Utc> {
    chrono::Utc::now()
}
