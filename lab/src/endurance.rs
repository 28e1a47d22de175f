//! Hours of a steady load: memory and open files of the worker and the server, the rows of each task, and
//! the time of a task must not grow with the tasks that have ended.
#![expect(clippy::print_stdout, reason = "a measurement prints its figures")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tamma_testkit::wait::wait_until_true;
use tokio::time::MissedTickBehavior;

use crate::support::bench::cluster::{self, BenchCluster, Durability};
use crate::support::bench::load::{Subject, TaskCounter, drive, drive_open, now};
use crate::support::bench::meter::{self, CpuTime, DatabaseCounts};
use crate::support::bench::temporal::TemporalArgs;
use crate::support::figures::{ms, percentile, table};
use crate::support::verdict::Verdict;

/// Load of the quick slice.
const QUICK: Load = Load { seconds: 60, per_minute: 60, is_long: false };

/// Number of samples, and the longest time between two of them.
const SAMPLES: u64 = 30;
const LONGEST_INTERVAL: Duration = Duration::from_mins(1);

/// Parts of the run that are compared, in per cent of it. Caches fill before the first one.
const EARLY: (u64, u64) = (20, 40);
const LATE: (u64, u64) = (80, 100);

/// Part whose first sample divides the run for the rows of tables.
const MIDDLE: (u64, u64) = (60, 100);

/// Largest growth between the two parts of the run.
const MAX_MEMORY: f64 = 1.1;
const MAX_OPEN_FILES: u64 = 4;
const MAX_TASK_TIME: f64 = 1.2;
const MAX_ROWS_PER_TASK: f64 = 1.1;

/// Most statements of worker and server per task. `task-cost` counts those of the worker exactly; those of
/// the server depend on how many of its polls coincide.
const MAX_STATEMENTS: f64 = 90.0;

/// Number of the most frequent statements that are printed.
const SHOWN_STATEMENTS: usize = 10;

/// Rows per task from which a table grows with the tasks.
const GROWING: f64 = 0.05;

/// Tables whose rows are deleted when a task or its jobs end.
const TRANSIENT: [&str; 4] = ["holds", "inline_jobs", "leases", "outbox"];

/// Number of their rows that tasks in flight may have.
const IN_FLIGHT: u64 = 10;

/// Length of a run from which memory and durations are compared: caches are full after a fifth of it.
const LONG_MINUTES: u64 = 60;

/// Time that the load may take in addition to twice its length, before tasks count as lost.
const PATIENCE: Duration = Duration::from_mins(10);

/// Size up to which a table that does not grow with the tasks may still grow.
const SMALL_TABLE: u64 = 2 << 20;

/// Time limit for processes of the last tasks to end.
const TIMEOUT: Duration = Duration::from_mins(1);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Duration of the load
    #[arg(long, value_name = "MINUTES", default_value_t = 240, value_parser = clap::value_parser!(u64).range(10..=10_080))]
    minutes: u64,
    /// Number of tasks that start per minute
    #[arg(long, value_name = "TASKS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=600))]
    per_minute: u64,
    #[command(flatten)]
    temporal: TemporalArgs,
}

#[derive(Debug, Clone, Copy)]
struct Load {
    seconds: u64,
    per_minute: u64,
    /// `true` if caches are full long before its end.
    is_long: bool,
}

impl Load {
    fn tasks(self) -> Result<usize> {
        Ok(usize::try_from(self.seconds * self.per_minute / 60)?)
    }

    fn interval(self) -> Duration {
        Duration::from_secs(self.seconds / SAMPLES).min(LONGEST_INTERVAL)
    }
}

/// Process that is measured.
#[derive(Debug, Clone, Copy)]
struct Part {
    name: &'static str,
    pid: u32,
    /// Part of Tamma: its growth is judged. Its children, such as agents, are not part of it.
    is_ours: bool,
}

impl Part {
    fn ours(name: &'static str, pid: u32) -> Self {
        Self { name, pid, is_ours: true }
    }

    fn other(name: &'static str, pid: u32) -> Self {
        Self { name, pid, is_ours: false }
    }

    /// Returns the memory in bytes; shared memory counts in proportion.
    fn memory(self) -> u64 {
        if self.is_ours {
            meter::proportional_alone(self.pid)
        } else {
            meter::proportional(self.pid)
        }
    }
}

/// State of the system at one time.
#[derive(Debug)]
struct Sample {
    at: Duration,
    /// Memory and open files of each part.
    parts: Vec<(u64, u64)>,
    /// CPU time of each part since its start.
    cpu: Vec<CpuTime>,
    /// Rows and executed statements.
    database: DatabaseCounts,
    table_bytes: BTreeMap<String, u64>,
    /// Bytes in the folder of the worker.
    folder: u64,
    /// Time that `tamma inbox` took.
    inbox: Duration,
}

impl Sample {
    /// Returns the number of tasks that have started.
    fn tasks(&self) -> u64 {
        self.rows("tasks")
    }

    fn rows(&self, table: &str) -> u64 {
        self.database.rows.get(table).copied().unwrap_or_default()
    }
}

pub(crate) async fn run(arguments: &Args, quick: bool) -> Result<Verdict> {
    let &Args { minutes, per_minute, .. } = arguments;
    let is_long = minutes >= LONG_MINUTES;
    let load = if quick { QUICK } else { Load { seconds: minutes * 60, per_minute, is_long } };
    println!("machine: {}", meter::machine());
    let cluster =
        BenchCluster::start_with(Durability::Durable, 1, arguments.temporal.clone()).await?;
    println!(
        "{}, one worker process, one server process; {} tasks, {} started per minute for {} min",
        arguments.temporal.describe(),
        load.tasks()?,
        load.per_minute,
        load.seconds / 60,
    );
    let mut worker = cluster.start_worker().await?;
    let mut server = cluster.start_server().await?;
    let pid = cluster::pid(&worker)?;
    let mut parts = vec![Part::ours("worker", pid), Part::ours("server", cluster::pid(&server)?)];
    parts.extend(cluster.temporal_pids()?.into_iter().map(|pid| Part::other("Temporal", pid)));
    parts.push(Part::other("PostgreSQL", cluster.postgres_pid()?));
    let counter = TaskCounter::default();
    // The first task clones the repository.
    drive(&cluster, &Subject::Loop(1), &counter, 1, 1).await?;

    let mut samples = Vec::new();
    let per_second = float(load.per_minute) / 60.0;
    let tasks = load.tasks()?;
    let loaded = async {
        tokio::select! {
            done = drive_open(&cluster, &Subject::Loop(1), &counter, tasks, per_second) => done,
            never = watch(&cluster, &parts, load.interval(), &mut samples) => match never? {},
        }
    };
    let limit = Duration::from_secs(load.seconds * 2) + PATIENCE;
    let done = tokio::time::timeout(limit, loaded).await.context("not all tasks have ended")??;
    let only_the_worker = || meter::processes(pid) == 1;
    wait_until_true("the processes of the last tasks", TIMEOUT, only_the_worker).await?;
    ensure!(worker.is_running()? && server.is_running()?, "a process ended during the load");
    worker.stop().await?;
    server.stop().await?;
    let times: Vec<_> = done.into_iter().map(|(_, took)| took).collect();
    judge(load, &parts, &samples, &times)
}

/// Takes samples until it is dropped.
async fn watch(
    cluster: &BenchCluster,
    parts: &[Part],
    every: Duration,
    samples: &mut Vec<Sample>,
) -> Result<Infallible> {
    let start = now();
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let asked = now();
        let mut inbox = cluster.cluster.cli.command(&["inbox"]);
        let status = inbox.stdout(Stdio::null()).status().await?;
        ensure!(status.success(), "`tamma inbox` ended with {status}");
        let inbox = asked.elapsed();
        // The folder has many files.
        let work = cluster.folder().join("work");
        let folder = tokio::task::spawn_blocking(move || meter::disk(&work)).await?;
        let sample = Sample {
            at: start.elapsed(),
            parts: parts.iter().map(|part| (part.memory(), meter::open_files(part.pid))).collect(),
            cpu: parts.iter().map(|part| meter::cpu_time(part.pid)).collect(),
            database: meter::database(&cluster.database).await?,
            table_bytes: meter::table_bytes(&cluster.database).await?,
            folder,
            inbox,
        };
        let is_measured = |(memory, open): &(u64, u64)| *memory > 0 && *open > 0;
        ensure!(sample.parts.iter().all(is_measured), "a process has ended, or cannot be measured");
        show_progress(&sample);
        samples.push(sample);
    }
}

#[expect(clippy::print_stderr, reason = "shows progress")]
fn show_progress(sample: &Sample) {
    let parts: Vec<_> = sample
        .parts
        .iter()
        .map(|(memory, open)| format!("{} MB with {open} files", memory >> 20))
        .collect();
    eprintln!(
        "… {:.1} min, {} tasks: {}; folder {} MB, inbox {} ms",
        sample.at.as_secs_f64() / 60.0,
        sample.tasks(),
        parts.join(", "),
        sample.folder >> 20,
        ms(Some(sample.inbox))
    );
}

fn judge(load: Load, parts: &[Part], samples: &[Sample], times: &[Duration]) -> Result<Verdict> {
    let length = Duration::from_secs(load.seconds);
    let (early, late) = (part_of(samples, length, EARLY), part_of(samples, length, LATE));
    let (first, last) = early.first().zip(late.last()).context("too few samples")?;
    let mut misses = Vec::new();

    let heading = ["", "memory, MB", "later", "open files", "later"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for (number, &Part { name, is_ours, .. }) in parts.iter().enumerate() {
        let memory = [early, late].map(|samples| median(samples, |it| it.parts[number].0));
        // The least number: open files of tasks come and go.
        let open = [early, late]
            .map(|samples| samples.iter().map(|it| it.parts[number].1).min().unwrap_or_default());
        if is_ours && load.is_long && float(memory[1]) > float(memory[0]) * MAX_MEMORY {
            misses.push(format!("memory of the {name}"));
        }
        if is_ours && load.is_long && open[1] > open[0] + MAX_OPEN_FILES {
            misses.push(format!("open files of the {name}"));
        }
        rows.push(vec![
            name.to_owned(),
            megabytes(memory[0]),
            megabytes(memory[1]),
            open[0].to_string(),
            open[1].to_string(),
        ]);
    }
    println!(
        "\nMedians of the samples from {} to {}% of the time, and from {} to {}%:\n\n{}",
        EARLY.0,
        EARLY.1,
        LATE.0,
        LATE.1,
        table(&rows)
    );

    let middle = part_of(samples, length, MIDDLE).first().context("too few samples")?;
    misses.extend(judge_tables(load, [first, middle, last]));

    let of = |(from, to): (u64, u64)| slice(times, from, to);
    let [p50, p99] = [50, 99]
        .map(|percent| [EARLY, LATE].map(|part| percentile(of(part), percent).unwrap_or_default()));
    println!(
        "tasks: p50 {} ms, later {} ms; p99 {} ms, later {} ms",
        ms(Some(p50[0])),
        ms(Some(p50[1])),
        ms(Some(p99[0])),
        ms(Some(p99[1]))
    );
    if load.is_long && p50[1].as_secs_f64() > p50[0].as_secs_f64() * MAX_TASK_TIME {
        misses.push("time of a task".to_owned());
    }
    let inbox = [early, late]
        .map(|samples| percentile(&samples.iter().map(|it| it.inbox).collect::<Vec<_>>(), 50));
    println!("tamma inbox: p50 {} ms, later {} ms", ms(inbox[0]), ms(inbox[1]));
    let tasks = last.tasks().saturating_sub(first.tasks()).max(1);
    println!("\n{}", table(&cost_rows(parts, [first, last], tasks)));
    let (statements, most_frequent) = statement_rows([first, last], tasks);
    println!("statements per task, with samples: {statements:.1}\n\n{}", table(&most_frequent));
    if statements > MAX_STATEMENTS {
        misses.push(format!("statements per task ({statements:.1}, at most {MAX_STATEMENTS})"));
    }
    println!(
        "folder of the worker: {} MB, later {} MB ({} kB per task)\n",
        megabytes(first.folder),
        megabytes(last.folder),
        last.folder.saturating_sub(first.folder) / tasks / 1024
    );
    let limits = if misses.is_empty() {
        "all within their limits".to_owned()
    } else {
        format!("over their limits: {}", misses.join(", "))
    };
    Ok(Verdict::new(
        misses.is_empty(),
        format!("{} tasks in {} min, all completed; {limits}", times.len(), load.seconds / 60),
    ))
}

/// Compares the tables at three times. Returns those that grew faster than the tasks, or without them.
fn judge_tables(load: Load, [first, middle, last]: [&Sample; 3]) -> Vec<String> {
    let mut misses = Vec::new();
    let heading = ["table", "rows per task", "later", "kB", "later"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for (name, count) in &last.database.rows {
        let per_task = |from: &Sample, to: &Sample| {
            float(to.rows(name).saturating_sub(from.rows(name)))
                / float(to.tasks().saturating_sub(from.tasks()).max(1))
        };
        let (before, after) = (per_task(first, middle), per_task(middle, last));
        let bytes = [first, last].map(|it| it.table_bytes.get(name).copied().unwrap_or_default());
        let is_growing = before > GROWING || after > GROWING;
        let grown = last.rows(name).saturating_sub(first.rows(name));
        if is_growing && grown > IN_FLIGHT && TRANSIENT.contains(&name.as_str()) {
            misses.push(format!("rows of {name}"));
        }
        if is_growing && load.is_long && after > before * MAX_ROWS_PER_TASK + GROWING {
            misses.push(format!("rows of {name} per task"));
        }
        if !is_growing && bytes[1] > SMALL_TABLE.max(2 * bytes[0]) {
            misses.push(format!("size of {name}"));
        }
        if *count > 0 {
            rows.push(vec![
                name.clone(),
                format!("{before:.2}"),
                format!("{after:.2}"),
                (bytes[0] / 1024).to_string(),
                (bytes[1] / 1024).to_string(),
            ]);
        }
    }
    println!("{}", table(&rows));
    misses
}

/// Returns a table of the CPU time per task between two samples, with that of the samples.
fn cost_rows(parts: &[Part], [first, last]: [&Sample; 2], tasks: u64) -> Vec<Vec<String>> {
    let spent = |name: &str| -> CpuTime {
        let of_part = parts.iter().zip(first.cpu.iter().zip(&last.cpu));
        of_part.filter(|(part, _)| part.name == name).map(|(_, (from, to))| to.since(*from)).sum()
    };
    let worker = spent("worker");
    let rows = [
        ("worker", worker.own),
        ("git, agents and gates", worker.children),
        ("server", spent("server").all()),
        ("Temporal", spent("Temporal").all()),
        ("PostgreSQL", spent("PostgreSQL").all()),
    ];
    let built = if cfg!(debug_assertions) { "development build" } else { "optimised build" };
    let unit = format!("CPU ms per task, {built}, with samples");
    let heading = ["part", unit.as_str()].map(str::to_owned).to_vec();
    let rows = rows.into_iter().map(|(name, spent)| {
        let spent = u64::try_from(spent.as_micros()).unwrap_or(u64::MAX) / tasks;
        vec![name.to_owned(), format!("{:.1}", float(spent) / 1000.0)]
    });
    std::iter::once(heading).chain(rows).collect()
}

/// Returns the statements per task between two samples, and a table of the most frequent ones.
fn statement_rows([first, last]: [&Sample; 2], tasks: u64) -> (f64, Vec<Vec<String>>) {
    let mut grown: Vec<_> = (last.database.statements.iter())
        .map(|(text, calls)| {
            let before = first.database.statements.get(text).copied().unwrap_or_default();
            (calls.saturating_sub(before), text)
        })
        .collect();
    grown.sort_unstable_by(|a, b| b.cmp(a));
    let total = float(grown.iter().map(|(calls, _)| calls).sum()) / float(tasks);
    let rows = grown.into_iter().take(SHOWN_STATEMENTS).map(|(calls, text)| {
        vec![text.replace('|', " "), format!("{:.2}", float(calls) / float(tasks))]
    });
    let heading = ["statement", "per task"].map(str::to_owned).to_vec();
    (total, std::iter::once(heading).chain(rows).collect())
}

/// Returns the samples of a part of the run.
fn part_of(samples: &[Sample], length: Duration, (from, to): (u64, u64)) -> &[Sample] {
    let place = |percent: u64| {
        let at = length * u32::try_from(percent).unwrap_or(100) / 100;
        samples.partition_point(|sample| sample.at < at)
    };
    // The last sample may come after the last task has started.
    let end = if to == 100 { samples.len() } else { place(to) };
    samples.get(place(from)..end).unwrap_or_default()
}

/// Returns the values from one percentage of their number to another one.
fn slice(values: &[Duration], from: u64, to: u64) -> &[Duration] {
    let place = |percent: u64| values.len() * usize::try_from(percent).unwrap_or(100) / 100;
    values.get(place(from)..place(to)).unwrap_or_default()
}

fn median(samples: &[Sample], value: impl Fn(&Sample) -> u64) -> u64 {
    let mut values: Vec<_> = samples.iter().map(value).collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1}", float(bytes) / 1_048_576.0)
}

#[expect(clippy::cast_precision_loss, reason = "one decimal is enough")]
fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(minute: u64, leaked: u64, (table, rows): (&str, u64)) -> Sample {
        Sample {
            at: Duration::from_mins(minute),
            parts: vec![(100 + leaked, 10 + leaked), (50, 5)],
            cpu: vec![CpuTime::default(); 2],
            database: DatabaseCounts {
                rows: [("tasks".to_owned(), minute), (table.to_owned(), rows)].into(),
                statements: [("SELECT 1".to_owned(), 40 * minute)].into(),
            },
            table_bytes: BTreeMap::new(),
            folder: 0,
            inbox: Duration::from_millis(1),
        }
    }

    fn judged(of: impl Fn(u64) -> Sample) -> Verdict {
        let load = Load { seconds: 6000, per_minute: 1, is_long: true };
        let samples: Vec<_> = (0..100).map(of).collect();
        let times = vec![Duration::from_secs(1); 100];
        let parts = [Part::ours("worker", 1), Part::ours("server", 2)];
        judge(load, &parts, &samples, &times).expect("samples")
    }

    #[test]
    fn a_steady_system_passes() {
        assert!(judged(|minute| sample(minute, 0, ("leases", 3))).passed);
        assert!(judged(|minute| sample(minute, 0, ("runs", 4 * minute))).passed);
    }

    #[test]
    fn the_cost_of_a_task_is_that_of_the_parts_between_the_samples() {
        let temporal = [2, 3].map(|pid| Part::other("Temporal", pid));
        let parts: Vec<_> = [Part::ours("worker", 1)].into_iter().chain(temporal).collect();
        let cpu = |seconds: u64| {
            let own = Duration::from_secs(seconds);
            let alone = CpuTime { own, ..CpuTime::default() };
            vec![CpuTime { own, children: 2 * own }, alone, alone]
        };
        let (mut first, mut last) = (sample(0, 0, ("runs", 0)), sample(10, 0, ("runs", 0)));
        (first.cpu, last.cpu) = (cpu(1), cpu(2));
        let rows = cost_rows(&parts, [&first, &last], 10);
        let measured: Vec<_> = rows.iter().map(|row| row[1].as_str()).collect();
        assert_eq!(measured[1..], ["100.0", "200.0", "0.0", "200.0", "0.0"]);
    }

    #[test]
    fn what_grows_is_named() {
        let leaking = judged(|minute| sample(minute, minute, ("runs", 3)));
        assert!(!leaking.passed);
        assert!(leaking.figures.contains("memory of the worker"), "{}", leaking.figures);
        assert!(leaking.figures.contains("open files of the worker"), "{}", leaking.figures);
        let faster = judged(|minute| sample(minute, 0, ("runs", minute * minute)));
        assert!(faster.figures.contains("rows of runs per task"), "{}", faster.figures);
        let kept = judged(|minute| sample(minute, 0, ("leases", minute)));
        assert!(kept.figures.contains("rows of leases"), "{}", kept.figures);
        let polling = judged(|minute| {
            let mut sample = sample(minute, 0, ("leases", 3));
            sample.database.statements.insert("SELECT 2".to_owned(), 1000 * minute);
            sample
        });
        assert!(polling.figures.contains("statements per task (1040.0"), "{}", polling.figures);
    }
}
