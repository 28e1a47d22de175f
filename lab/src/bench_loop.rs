//! Cost of the task loop compared with a bare Temporal workflow, without and with the same child
//! processes.
#![expect(clippy::print_stdout, reason = "a measurement prints its figures")]

mod report;

use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result};
use tamma_core::capacity::CACHED_WORKFLOWS;

use crate::support::bench::children::ChildPlan;
use crate::support::bench::cluster::{BenchCluster, Durability};
use crate::support::bench::load::{
    Load, Measurement, Subject, TaskCounter, drive, events, measure,
};
use crate::support::bench::temporal::TemporalArgs;
use crate::support::bench::{history, meter, work};
use crate::support::coefficients;
use crate::support::verdict::Verdict;

/// Share of the slowest variant's throughput at which tasks start in an open loop.
const OPEN_SHARE: f64 = 0.5;

/// Length of a task ID.
const ID_LENGTH: usize = 36;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run the database without waiting for the disk
    #[arg(long)]
    fast_database: bool,
    #[command(flatten)]
    temporal: TemporalArgs,
    /// Number of interleaved runs
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=30))]
    runs: u32,
    /// Numbers of concurrent tasks, separated by commas
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', default_values_t = [1_usize, 10, 50, 200])]
    concurrent: Vec<usize>,
    /// Measure only closed loops
    #[arg(long, conflicts_with = "write")]
    closed_only: bool,
    /// Write the figures of the loop to the coefficients of `tamma capacity`
    #[arg(long)]
    write: bool,
}

/// Measurement of one variant at one load in one run.
struct LoadRow {
    run: u32,
    concurrency: usize,
    /// Tasks started per second, in an open loop.
    rate: Option<f64>,
    subject: &'static str,
    measured: Measurement,
}

pub(crate) async fn run(arguments: &Args) -> Result<Verdict> {
    let durability = if arguments.fast_database { Durability::Fast } else { Durability::Durable };
    println!("machine: {}", meter::machine());
    let cluster = BenchCluster::start_with(durability, 1, arguments.temporal.clone()).await?;
    println!(
        "{}, PostgreSQL {} with fsync {}, one worker process, 2 agent slots, {} cached workflows; {} \
         interleaved runs",
        arguments.temporal.describe(),
        meter::sql(&cluster.database, "SHOW server_version").await?,
        meter::sql(&cluster.database, "SHOW fsync").await?,
        CACHED_WORKFLOWS,
        arguments.runs,
    );
    let counter = TaskCounter::default();
    let recorded = record_task(&cluster, &counter).await?;
    let sequence = recorded.sequence;
    let mut subjects = [
        Subject::Bare(sequence.clone()),
        Subject::BareChildren(sequence),
        Subject::Stubbed,
        Subject::Loop(1),
    ];
    let mut all = Vec::new();
    for run in 1..=arguments.runs {
        for &concurrency in &arguments.concurrent {
            let closed =
                measure_all(&cluster, &subjects, &counter, (run, concurrency), None).await?;
            let slowest = closed.iter().map(|row| row.measured.throughput());
            let rate = slowest.fold(f64::INFINITY, f64::min) * OPEN_SHARE;
            all.extend(closed);
            if !arguments.closed_only {
                let at = (run, concurrency);
                all.extend(measure_all(&cluster, &subjects, &counter, at, Some(rate)).await?);
            }
        }
        // Another variant comes first in the next run.
        subjects.rotate_left(1);
    }
    let processes = recorded.children.counts();
    report::print(&all, processes);
    if arguments.write {
        coefficients::write("loop", &report::coefficients(&all, processes)?).await?;
    }
    Ok(report::judge(&all))
}

/// Measures every variant at one load. With a rate, tasks start in an open loop.
async fn measure_all(
    cluster: &BenchCluster,
    subjects: &[Subject],
    counter: &TaskCounter,
    (run, concurrency): (u32, usize),
    rate: Option<f64>,
) -> Result<Vec<LoadRow>> {
    let load = rate.map_or(Load::Closed(concurrency), Load::Open);
    let mut rows = Vec::new();
    for subject in subjects {
        let tasks = match load {
            Load::Closed(_) => tasks(subject, concurrency),
            Load::Open(_) => (40 + concurrency / 2).min(100),
        };
        let measured = measure(cluster, subject, counter, tasks, load)
            .await
            .with_context(|| format!("{}, {load:?}", subject.name()))?;
        let row = LoadRow { run, concurrency, rate, subject: subject.name(), measured };
        eprint_row(&row);
        rows.push(row);
    }
    Ok(rows)
}

/// Returns the number of tasks in a closed loop: fewer, if each starts processes.
fn tasks(subject: &Subject, concurrency: usize) -> usize {
    match subject {
        Subject::Bare(_) | Subject::Stubbed => (100 + 6 * concurrency).min(600),
        Subject::BareChildren(_) | Subject::Loop(_) => 40 + 2 * concurrency,
    }
}

/// Calls and children of a real task.
struct RecordedTask {
    sequence: crate::support::bench::bare::CallSequence,
    children: ChildPlan,
}

/// Records the Temporal calls and the child processes of a task, from a real one and from stub
/// activities, and checks that the bare workflow can repeat them.
async fn record_task(cluster: &BenchCluster, counter: &TaskCounter) -> Result<RecordedTask> {
    let local_inputs = Arc::new(Mutex::new(Vec::with_capacity(100)));
    let stubs =
        work::stubs(cluster.store().clone(), cluster.folder(), 1, local_inputs.clone()).await?;
    let driven = async { drive(cluster, &Subject::Stubbed, counter, 1, 1).await.map(drop) };
    work::run_stubs(cluster.client.clone(), stubs, || {}, driven).await?;
    let mut worker = cluster.start_recorded_worker().await?;
    // The first task of a worker clones the repository.
    drive(cluster, &Subject::Loop(1), counter, 1, 1).await?;
    cluster.recorder.take().await?;
    let done = drive(cluster, &Subject::Loop(1), counter, 1, 1).await?;
    let children = cluster.recorder.take().await?;
    worker.stop().await?;
    cluster.recorder.stop()?;
    let (id, _) = done.first().context("no task was run")?;
    let local_inputs = local_inputs.lock().map(|sizes| sizes.clone()).unwrap_or_default();
    let calls = history::recorded_calls(&events(cluster, id).await?, &local_inputs)?;
    let names: Vec<_> = calls.sequence.calls.iter().map(|call| format!("{call:?}")).collect();
    println!("Temporal calls of a task (bytes): {}", names.join(" "));
    let task = id.len().checked_sub(ID_LENGTH).and_then(|from| id.get(from..));
    let task = task.context("a workflow ID without a task")?;
    // Processes of the previous task may still have been running.
    let children = children.into_iter().filter(|child| child.start >= calls.start).collect();
    let children = ChildPlan::new(task, children, calls.sequence.calls.len(), &calls.ends)?;
    let (git, all) = children.counts();
    println!("{all} child processes of a task, {git} of them git: {}", children.git_commands());
    children.write(cluster.folder())?;
    let repeats = Subject::BareChildren(calls.sequence.clone());
    let mut workers = repeats.start_workers(cluster).await?;
    drive(cluster, &repeats, counter, 1, 1).await.context("the children cannot be repeated")?;
    for worker in &mut workers {
        worker.stop().await?;
    }
    Ok(RecordedTask { sequence: calls.sequence, children })
}

#[expect(clippy::print_stderr, reason = "shows progress")]
fn eprint_row(row: &LoadRow) {
    let load = match row.rate {
        Some(rate) => format!("{rate:.2} started per second"),
        None => format!("{} concurrent", row.concurrency),
    };
    eprintln!(
        "… run {}, {}, {load}: {:.2} tasks/s",
        row.run,
        row.subject,
        row.measured.throughput()
    );
}
