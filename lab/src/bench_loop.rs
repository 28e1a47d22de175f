//! Cost of the task loop compared with a bare Temporal workflow.
#![expect(clippy::print_stdout, reason = "a measurement prints its figures")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::support::bench::cluster::{BenchCluster, Durability};
use crate::support::bench::load::{Measurement, Subject, TaskCounter, drive, events, measure};
use crate::support::bench::{history, meter, work};
use crate::support::figures::{ms, percentile, table};
use crate::support::verdict::Verdict;

/// Concurrency, number of tasks without real jobs, and number of tasks with real jobs.
const LOADS: [(usize, usize, usize); 3] = [(1, 100, 40), (10, 250, 80), (50, 400, 150)];

/// Target number of history events of a low-risk task with one iteration.
const EVENTS: f64 = 60.0;

/// Target throughput of the loop relative to bare Temporal.
const RATIO: f64 = 0.9;

/// Target p99 of a transition, with one task at a time.
const TRANSITION: Duration = Duration::from_millis(100);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run the database without waiting for the disk
    #[arg(long)]
    fast_database: bool,
}

pub(crate) async fn run(arguments: &Args) -> Result<Verdict> {
    let durability = if arguments.fast_database { Durability::Fast } else { Durability::Durable };
    println!("machine: {}", meter::machine());
    let cluster = BenchCluster::start(durability, 1).await?;
    println!(
        "Temporal dev server (SQLite: WAL, synchronous=1; transferProcessorMaxPollRPS=100), \
         PostgreSQL {} with fsync {}, one worker process, 2 agent slots, 1,000 cached workflows",
        meter::sql(&cluster.database, "SHOW server_version").await?,
        meter::sql(&cluster.database, "SHOW fsync").await?,
    );
    let counter = TaskCounter::default();
    let subjects =
        [Subject::Bare(record_calls(&cluster, &counter).await?), Subject::Stubbed, Subject::Loop];
    let mut all = Vec::new();
    for (concurrency, light, heavy) in LOADS {
        for subject in &subjects {
            let tasks = if *subject == Subject::Loop { heavy } else { light };
            let measured = measure(&cluster, subject, &counter, tasks, concurrency)
                .await
                .with_context(|| format!("{}, {concurrency} concurrent", subject.name()))?;
            eprint_row(subject.name(), concurrency, &measured);
            all.push((subject.name(), concurrency, measured));
        }
    }
    print(&all);
    Ok(judge(&all))
}

/// Records the Temporal calls of a task, from the history of a real task and from stub activities.
async fn record_calls(
    cluster: &BenchCluster,
    counter: &TaskCounter,
) -> Result<crate::support::bench::bare::CallSequence> {
    let local_inputs = Arc::new(Mutex::new(Vec::with_capacity(100)));
    let stubs =
        work::stubs(cluster.store().clone(), cluster.folder(), 1, local_inputs.clone()).await?;
    let driven = async { drive(cluster, &Subject::Stubbed, counter, 1, 1).await.map(drop) };
    work::run_stubs(cluster.client.clone(), stubs, || {}, driven).await?;
    let mut worker = Subject::Loop.worker(cluster).await?;
    let done = drive(cluster, &Subject::Loop, counter, 1, 1).await?;
    worker.stop().await?;
    let (id, _) = done.first().context("no task was run")?;
    let local_inputs = local_inputs.lock().map(|sizes| sizes.clone()).unwrap_or_default();
    let sequence = history::call_sequence(&events(cluster, id).await?, &local_inputs)?;
    let names: Vec<_> = sequence.calls.iter().map(|call| format!("{call:?}")).collect();
    println!("Temporal calls of a task (bytes): {}", names.join(" "));
    Ok(sequence)
}

#[expect(clippy::print_stderr, reason = "shows progress")]
fn eprint_row(name: &str, concurrency: usize, measured: &Measurement) {
    eprintln!("… {name}, {concurrency} concurrent: {:.2} tasks/s", measured.throughput());
}

type Row = (&'static str, usize, Measurement);

fn find<'a>(all: &'a [Row], name: &str, concurrency: usize) -> Option<&'a Measurement> {
    all.iter().find(|row| row.0 == name && row.1 == concurrency).map(|row| &row.2)
}

fn print(all: &[Row]) {
    let heading = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let mut speed = vec![heading(&[
        "",
        "concurrent",
        "tasks",
        "tasks/s",
        "ratio",
        "transition p50 ms",
        "p99 ms",
        "step with job p50 ms",
        "p99 ms",
        "task p50 ms",
        "p99 ms",
    ])];
    let mut cost = vec![heading(&[
        "",
        "concurrent",
        "CPU ms/task: worker",
        "child processes",
        "Temporal",
        "PostgreSQL",
        "total",
        "cores busy",
        "history events",
        "history bytes",
        "rows",
        "round trips",
    ])];
    for (name, concurrency, it) in all {
        let bare =
            find(all, "bare Temporal", *concurrency).map_or(f64::NAN, Measurement::throughput);
        let p = |values: &[Duration], percent| ms(percentile(values, percent));
        speed.push(vec![
            (*name).to_owned(),
            concurrency.to_string(),
            it.tasks.to_string(),
            format!("{:.2}", it.throughput()),
            format!("{:.2}", it.throughput() / bare),
            p(&it.times.transitions, 50),
            p(&it.times.transitions, 99),
            p(&it.times.steps, 50),
            p(&it.times.steps, 99),
            p(&it.task_times, 50),
            p(&it.task_times, 99),
        ]);
        let sum = it.worker.all() + it.temporal + it.postgres;
        cost.push(vec![
            (*name).to_owned(),
            concurrency.to_string(),
            format!("{:.1}", it.each(it.worker.own)),
            format!("{:.1}", it.each(it.worker.children)),
            format!("{:.1}", it.each(it.temporal)),
            format!("{:.1}", it.each(it.postgres)),
            format!("{:.1}", it.each(sum)),
            format!("{:.2}", sum.as_secs_f64() / it.wall.as_secs_f64()),
            format!("{:.1}", it.events),
            format!("{:.0}", it.bytes),
            format!("{:.1}", it.rows),
            format!("{:.1}", it.statements),
        ]);
    }
    println!("\n{}", table(&speed));
    println!("{}", table(&cost));
    println!(
        "Ratio is the throughput relative to bare Temporal. A transition starts when the task can move: its \
         start, the end of a job, or a worker's update. It ends when the next job starts, the worker \
         gets its response, or the task closes. It includes local activities and excludes regular ones. \
         A step with job is the time from one completed workflow task to the next, including the job. \
         Round trips are statements counted by pg_stat_statements. Child processes are git, agents and \
         gates.\n"
    );
}

fn judge(all: &[Row]) -> Verdict {
    let (mut met, mut targets) = (0, 0);
    println!("The targets apply to `loop`: real git, real agent processes, Tamma's worker.");
    for (concurrency, ..) in LOADS {
        let of = |name| find(all, name, concurrency);
        let (Some(bare), Some(stubbed), Some(full)) =
            (of("bare Temporal"), of("loop, no-op jobs"), of("loop"))
        else {
            continue;
        };
        let ratio = full.throughput() / bare.throughput();
        let no_op = stubbed.throughput() / bare.throughput();
        let what =
            format!("throughput ratio of at least {RATIO} with {concurrency} concurrent tasks");
        let measured = format!("{ratio:.2} (no-op jobs: {no_op:.2})");
        targets += 1;
        met += u32::from(ratio >= RATIO);
        if ratio >= RATIO {
            println!("target: {what}: met, measured {measured}");
        } else {
            println!(
                "target: {what}: missed, measured {measured}; CPU time: {}",
                cpu_breakdown(full, bare)
            );
        }
    }
    let full: Vec<_> = all.iter().filter(|row| row.0 == "loop").map(|row| &row.2).collect();
    let events = full.iter().map(|it| it.events).fold(0.0, f64::max);
    let verdict = if events <= EVENTS { "met" } else { "missed" };
    targets += 1;
    met += u32::from(events <= EVENTS);
    println!("target: at most {EVENTS} history events: {verdict}, measured {events:.1}");
    for name in ["loop", "loop, no-op jobs"] {
        let Some(it) = find(all, name, 1) else { continue };
        let measured = percentile(&it.times.transitions, 99);
        let is_met = measured.is_some_and(|it| it < TRANSITION);
        let verdict = if is_met { "met" } else { "missed" };
        if name == "loop" {
            targets += 1;
            met += u32::from(is_met);
        }
        let what = if name == "loop" { "target: " } else { "for comparison, no-op jobs: " };
        println!(
            "{what}transition p99 under {} ms, one task at a time: {verdict}, measured {} ms",
            ms(Some(TRANSITION)),
            ms(measured)
        );
    }
    Verdict::new(met == targets, format!("{met} of {targets} targets met"))
}

/// Describes the CPU time of a task by process, highest first, compared with bare Temporal.
fn cpu_breakdown(full: &Measurement, bare: &Measurement) -> String {
    let of = |it: &Measurement| {
        [
            ("git, agents and gates", it.each(it.worker.children)),
            ("the worker itself", it.each(it.worker.own)),
            ("Temporal", it.each(it.temporal)),
            ("PostgreSQL", it.each(it.postgres)),
        ]
    };
    let mut parts: Vec<_> = of(full).into_iter().zip(of(bare)).collect();
    parts.sort_by(|one, two| two.0.1.total_cmp(&one.0.1));
    let texts: Vec<_> = parts
        .into_iter()
        .map(|((name, ms), (_, bare))| format!("{name} {ms:.0} ms per task (bare {bare:.0})"))
        .collect();
    texts.join(", ")
}
