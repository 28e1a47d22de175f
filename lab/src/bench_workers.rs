//! Throughput and CPU time per task with several workers.
#![expect(clippy::print_stdout, reason = "a measurement prints its figures")]

use anyhow::{Context as _, Result};

use crate::support::bench::cluster::{BenchCluster, Durability};
use crate::support::bench::load::{Load, Measurement, Subject, TaskCounter, measure};
use crate::support::bench::meter;
use crate::support::bench::temporal::TemporalArgs;
use crate::support::figures::{mean_ratio, show_ratio, table};
use crate::support::verdict::Verdict;

/// Numbers of workers, and the target throughput of each relative to one worker.
const WORKERS: [(usize, f64); 3] = [(1, 1.0), (2, 1.8), (4, 3.2)];

/// Cores that a worker, its agents and its part of the servers keep busy. With fewer, several workers
/// only share them.
const CORES_PER_WORKER: usize = 2;

/// Largest CPU time per task relative to one worker, where the cores are missing.
const MAX_CPU: f64 = 1.1;

/// Number of concurrent tasks, whatever the number of workers.
const CONCURRENT: usize = 20;

/// Number of tasks in each measurement.
const TASKS: usize = 80;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    temporal: TemporalArgs,
    /// Number of interleaved runs
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=30))]
    runs: u32,
}

/// Measurements with one number of workers, one for each run.
struct WorkerRow {
    workers: usize,
    target: f64,
    runs: Vec<Measurement>,
}

impl WorkerRow {
    fn mean(&self, figure: impl Fn(&Measurement) -> f64) -> f64 {
        let count = u32::try_from(self.runs.len()).map_or(f64::NAN, f64::from);
        self.runs.iter().map(figure).sum::<f64>() / count
    }

    /// Returns a figure relative to that of another row in the same run, for each run.
    fn ratios(&self, to: &Self, figure: fn(&Measurement) -> f64) -> Vec<f64> {
        self.runs.iter().zip(&to.runs).map(|(own, other)| figure(own) / figure(other)).collect()
    }
}

pub(crate) async fn run(arguments: &Args) -> Result<Verdict> {
    println!("machine: {}", meter::machine());
    let cluster =
        BenchCluster::start_with(Durability::Durable, 1, arguments.temporal.clone()).await?;
    println!(
        "{}, 2 agent slots per worker, {CONCURRENT} concurrent tasks; {} interleaved runs",
        arguments.temporal.describe(),
        arguments.runs
    );
    let counter = TaskCounter::default();
    let mut rows = WORKERS.map(|(workers, target)| WorkerRow { workers, target, runs: Vec::new() });
    for run in 1..=arguments.runs {
        for row in &mut rows {
            let subject = Subject::Loop(row.workers);
            let load = Load::Closed(CONCURRENT);
            let measured = measure(&cluster, &subject, &counter, TASKS, load)
                .await
                .with_context(|| format!("{} workers", row.workers))?;
            show_progress(run, row.workers, &measured);
            row.runs.push(measured);
        }
        // Another number of workers comes first in the next run.
        rows.rotate_left(1);
    }
    rows.sort_by_key(|row| row.workers);
    Ok(judge(&rows))
}

#[expect(clippy::print_stderr, reason = "shows progress")]
fn show_progress(run: u32, workers: usize, measured: &Measurement) {
    eprintln!("… run {run}, {workers} workers: {:.2} tasks/s", measured.throughput());
}

fn judge(rows: &[WorkerRow; 3]) -> Verdict {
    let [one, ..] = rows;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let heading = ["workers", "tasks/s", "ratio", "CPU ms per task", "ratio", "of it the workers"];
    let mut lines = vec![heading.map(str::to_owned).to_vec()];
    let (mut met, mut figures) = (true, Vec::new());
    for row in rows {
        let throughput = row.ratios(one, Measurement::throughput);
        let cpu = row.ratios(one, cpu_per_task);
        lines.push(vec![
            row.workers.to_string(),
            format!("{:.2}", row.mean(Measurement::throughput)),
            show_ratio(&throughput),
            format!("{:.0}", row.mean(cpu_per_task)),
            show_ratio(&cpu),
            format!("{:.0}", row.mean(|it| it.each(it.worker.own))),
        ]);
        if row.workers == 1 {
            continue;
        }
        let workers = row.workers;
        if cores >= workers * CORES_PER_WORKER {
            met &= mean_ratio(&throughput).is_some_and(|it| it >= row.target);
            figures.push(format!(
                "{workers} workers: {} times the throughput of one (target {})",
                show_ratio(&throughput),
                row.target
            ));
        } else {
            met &= mean_ratio(&cpu).is_some_and(|it| it <= MAX_CPU);
            figures.push(format!(
                "{workers} workers: {} times the CPU time per task of one (target {MAX_CPU}; {cores} \
                 cores are too few for throughput)",
                show_ratio(&cpu)
            ));
        }
    }
    println!("\n{}", table(&lines));
    Verdict::new(met, figures.join("; "))
}

fn cpu_per_task(it: &Measurement) -> f64 {
    it.each(it.total_cpu())
}
