//! What the loop costs beside the bare engine.
#![expect(clippy::print_stdout, reason = "a measurement prints its figures")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::support::bench::cluster::{BenchCluster, Durability};
use crate::support::bench::load::{Measurement, Subject, TaskCounter, drive, events, measure};
use crate::support::bench::{history, meter, work};
use crate::support::figures::{ms, percentile, table};
use crate::support::verdict::Verdict;

/// How many at a time, and how many tasks of the bare engine and of activities at rest, and of the loop.
const LOADS: [(usize, usize, usize); 3] = [(1, 100, 40), (10, 250, 80), (50, 400, 150)];

/// History events that a task of low risk with one iteration may cost.
const EVENTS: f64 = 60.0;

/// Throughput of the loop, as a part of the bare engine's.
const RATIO: f64 = 0.9;

/// A transition at the 99th percentile, with one task at a time.
const TRANSITION: Duration = Duration::from_millis(100);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Let the database not wait for the disk
    #[arg(long)]
    fast_database: bool,
}

pub(crate) async fn run(arguments: &Args) -> Result<Verdict> {
    let durability = if arguments.fast_database { Durability::Fast } else { Durability::Durable };
    println!("machine: {}", meter::machine());
    let cluster = BenchCluster::set(durability, 1).await?;
    println!(
        "Temporal dev server (SQLite: WAL, synchronous=1; transferProcessorMaxPollRPS=100), \
         PostgreSQL {} with fsync {}, one worker process, 2 engine slots, 1000 cached workflows",
        meter::sql(&cluster.database, "SHOW server_version").await?,
        meter::sql(&cluster.database, "SHOW fsync").await?,
    );
    let counter = TaskCounter::default();
    let subjects =
        [Subject::Bare(sound(&cluster, &counter).await?), Subject::Stubbed, Subject::Loop];
    let mut all = Vec::new();
    for (at_a_time, light, heavy) in LOADS {
        for subject in &subjects {
            let tasks = if *subject == Subject::Loop { heavy } else { light };
            let measured = measure(&cluster, subject, &counter, tasks, at_a_time)
                .await
                .with_context(|| format!("{}, {at_a_time} at a time", subject.name()))?;
            eprint_row(subject.name(), at_a_time, &measured);
            all.push((subject.name(), at_a_time, measured));
        }
    }
    print(&all);
    Ok(judge(&all))
}

/// What a task asks of the engine: from the history of a real one, and from activities at rest for what
/// no history has.
async fn sound(
    cluster: &BenchCluster,
    counter: &TaskCounter,
) -> Result<crate::support::bench::bare::CallSequence> {
    let seen = Arc::new(Mutex::new(Vec::with_capacity(100)));
    let rest = work::rest(cluster.store.clone(), cluster.folder.path(), 1, seen.clone()).await?;
    let driven = async { drive(cluster, &Subject::Stubbed, counter, 1, 1).await.map(drop) };
    work::run_stubs(cluster.client.clone(), rest, || {}, driven).await?;
    let worker = Subject::Loop.worker(cluster)?;
    let done = drive(cluster, &Subject::Loop, counter, 1, 1).await?;
    drop(worker);
    let (id, _) = done.first().context("one task")?;
    let seen = seen.lock().map(|seen| seen.clone()).unwrap_or_default();
    let score = history::score(&events(cluster, id).await?, &seen)?;
    let names: Vec<_> = score.ops.iter().map(|op| format!("{op:?}")).collect();
    println!("what a task asks of the engine (bytes): {}", names.join(" "));
    Ok(score)
}

#[expect(clippy::print_stderr, reason = "whoever waits sees how far it is")]
fn eprint_row(name: &str, at_a_time: usize, measured: &Measurement) {
    eprintln!("… {name}, {at_a_time} at a time: {:.2} tasks/s", measured.throughput());
}

type Row = (&'static str, usize, Measurement);

fn find<'a>(all: &'a [Row], name: &str, at_a_time: usize) -> Option<&'a Measurement> {
    all.iter().find(|row| row.0 == name && row.1 == at_a_time).map(|row| &row.2)
}

fn print(all: &[Row]) {
    let heading = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let mut speed = vec![heading(&[
        "",
        "at a time",
        "tasks",
        "tasks/s",
        "b/a",
        "transition p50 ms",
        "p99 ms",
        "step with job p50 ms",
        "p99 ms",
        "task p50 ms",
        "p99 ms",
    ])];
    let mut cost = vec![heading(&[
        "",
        "at a time",
        "CPU ms/task: worker",
        "its children",
        "Temporal",
        "PostgreSQL",
        "sum",
        "cores busy",
        "history events",
        "history bytes",
        "rows",
        "round trips",
    ])];
    for (name, at_a_time, it) in all {
        let bare = find(all, "bare engine", *at_a_time).map_or(f64::NAN, Measurement::throughput);
        let p = |values: &[Duration], percent| ms(percentile(values, percent));
        speed.push(vec![
            (*name).to_owned(),
            at_a_time.to_string(),
            it.tasks.to_string(),
            format!("{:.2}", it.throughput()),
            format!("{:.2}", it.throughput() / bare),
            p(&it.times.transitions, 50),
            p(&it.times.transitions, 99),
            p(&it.times.steps, 50),
            p(&it.times.steps, 99),
            p(&it.whole, 50),
            p(&it.whole, 99),
        ]);
        let sum = it.worker.all() + it.temporal + it.postgres;
        cost.push(vec![
            (*name).to_owned(),
            at_a_time.to_string(),
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
        "a = bare engine, b = each row. A transition is from what moved the task (its start, the end \
         of a job, a worker's word) to the next job's being taken up, the worker's being answered, or \
         the task's end, by the times in the history; local jobs and records are in it, regular jobs \
         are not. A step is from one completed workflow task to the next, with the job in between. \
         Round trips are statements counted by pg_stat_statements. Children of the worker are git, \
         agents and gates.\n"
    );
}

fn judge(all: &[Row]) -> Verdict {
    let (mut reached, mut goals) = (0, 0);
    println!(
        "The goals are judged by `loop`: real git, real agent processes, the product's worker."
    );
    for (at_a_time, ..) in LOADS {
        let of = |name| find(all, name, at_a_time);
        let (Some(bare), Some(rest), Some(whole)) =
            (of("bare engine"), of("loop, activities at rest"), of("loop"))
        else {
            continue;
        };
        let ratio = whole.throughput() / bare.throughput();
        let run_stubs = rest.throughput() / bare.throughput();
        let what = format!("throughput b/a at least {RATIO} at {at_a_time} at a time");
        let beside = format!("{ratio:.2} (activities at rest {run_stubs:.2})");
        goals += 1;
        reached += u32::from(ratio >= RATIO);
        if ratio >= RATIO {
            println!("goal: {what}: reached: {beside}");
        } else {
            println!(
                "goal: {what}: not reached: measured {beside}; the time goes to {}",
                destination(whole, bare)
            );
        }
    }
    let whole: Vec<_> = all.iter().filter(|row| row.0 == "loop").map(|row| &row.2).collect();
    let events = whole.iter().map(|it| it.events).fold(0.0, f64::max);
    let verdict = if events <= EVENTS { "reached" } else { "not reached" };
    goals += 1;
    reached += u32::from(events <= EVENTS);
    println!("goal: at most {EVENTS} history events: {verdict}: measured {events:.1}");
    for name in ["loop", "loop, activities at rest"] {
        let Some(it) = find(all, name, 1) else { continue };
        let measured = percentile(&it.times.transitions, 99);
        let reached_it = measured.is_some_and(|it| it < TRANSITION);
        let verdict = if reached_it { "reached" } else { "not reached" };
        if name == "loop" {
            goals += 1;
            reached += u32::from(reached_it);
        }
        let what = if name == "loop" { "goal: " } else { "beside it, activities at rest: " };
        println!(
            "{what}a transition under {} at the 99th percentile, one at a time: {verdict}: measured {} ms",
            ms(Some(TRANSITION)),
            ms(measured)
        );
    }
    Verdict::new(reached == goals, format!("{reached} of {goals} goals reached"))
}

/// Where the time of a task goes, the most first, beside what the bare engine needs.
fn destination(whole: &Measurement, bare: &Measurement) -> String {
    let of = |it: &Measurement| {
        [
            ("git, agents and gates", it.each(it.worker.children)),
            ("the worker itself", it.each(it.worker.own)),
            ("Temporal", it.each(it.temporal)),
            ("PostgreSQL", it.each(it.postgres)),
        ]
    };
    let mut parts: Vec<_> = of(whole).into_iter().zip(of(bare)).collect();
    parts.sort_by(|one, two| two.0.1.total_cmp(&one.0.1));
    let words: Vec<_> = parts
        .into_iter()
        .map(|((name, ms), (_, bare))| format!("{name} {ms:.0} ms of CPU a task (bare {bare:.0})"))
        .collect();
    words.join(", ")
}
