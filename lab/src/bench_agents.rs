//! What fifty agents at once cost one worker, and whether they slow down everybody else.
#![expect(clippy::print_stdout, reason = "a measurement prints its figures")]

use std::time::Duration;

use anyhow::{Context as _, Result};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};

use crate::support::bench::cluster::{BenchCluster, Durability};
use crate::support::bench::history::HistoryTimes;
use crate::support::bench::load::{Subject, TaskCounter, drive, events, start};
use crate::support::bench::meter;
use crate::support::figures::{ms, percentile, table};
use crate::support::verdict::Verdict;

/// How many agents run at once.
const ENGINES: u64 = 50;

/// Slots beside them, for the tasks that are measured.
const FREE: usize = 4;

/// How many tasks are measured each time, one at a time.
const TASKS: usize = 30;

/// Numbers of the tasks whose agents run all the time: far from those that are counted.
const FIRST: u64 = 100_000;

/// How often a transition may take longer than without them.
const TIMES: f64 = 2.0;

pub(crate) async fn run() -> Result<Verdict> {
    println!("machine: {}", meter::machine());
    let cluster = BenchCluster::set(Durability::Durable, 1).await?;
    let slots = usize::try_from(ENGINES)? + FREE;
    println!(
        "Temporal dev server, PostgreSQL {} with fsync {}, one worker process with {slots} slots, \
         the scripted agent",
        meter::sql(&cluster.database, "SHOW server_version").await?,
        meter::sql(&cluster.database, "SHOW fsync").await?,
    );
    let worker = cluster.tamma_work_with(slots)?;
    let counter = TaskCounter::default();
    // So that everything that is made once is there.
    drive(&cluster, &Subject::Loop, &counter, 10, 4).await?;

    let idle = transitions(&cluster, &counter).await?;
    let before = meter::resident_alone(worker.id());
    let go = cluster.folder.path().join("go");
    cluster.hold(Some(&go))?;
    let begun: Vec<String> = stream::iter(FIRST..FIRST + ENGINES)
        .map(|number| start(&cluster, number))
        .buffer_unordered(10)
        .try_collect()
        .await?;
    let running = "SELECT count(*) FROM tasks WHERE state = 'in_progress'";
    until(&cluster, running, ENGINES).await.context("not all agents are at work")?;
    // A task is in progress a moment before its agent has read what to do.
    let held = || std::fs::read_to_string(go.with_file_name("held")).unwrap_or_default();
    while (held().lines().count() as u64) < ENGINES {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    cluster.hold(None)?;
    let after = meter::resident_alone(worker.id());
    let agents = meter::resident(worker.id()).saturating_sub(after);
    let spent = meter::spent(worker.id());
    tokio::time::sleep(Duration::from_secs(10)).await;
    let spent = meter::spent(worker.id()).since(spent);

    let busy = transitions(&cluster, &counter).await?;
    let still = meter::sql(&cluster.database, running).await?;
    std::fs::write(&go, "")?;
    let ended = "SELECT count(*) FROM tasks WHERE state = 'completed'";
    let all = ENGINES + 10 + 2 * u64::try_from(TASKS)?;
    until(&cluster, ended, all).await.context("not all tasks came to their end")?;

    println!(
        "{} agents at work, {still} of them still when the last task was measured; all {} tasks \
         completed\n",
        begun.len(),
        all
    );
    println!(
        "worker: {} MB with none at work, {} MB with {ENGINES}: {} kB a slot; agent processes: {} MB \
         in all, {} kB each (shared task_loop is counted for each)",
        megabytes(before),
        megabytes(after),
        after.saturating_sub(before) / ENGINES / 1024,
        megabytes(agents),
        agents / ENGINES / 1024,
    );
    println!(
        "while they do nothing but wait: worker {:.1} % of a core, its children {:.1} %\n",
        spent.own.as_secs_f64() * 10.0,
        spent.children.as_secs_f64() * 10.0
    );
    Ok(judge(&idle, &busy))
}

/// The transitions of tasks that come one at a time.
async fn transitions(cluster: &BenchCluster, counter: &TaskCounter) -> Result<Vec<Duration>> {
    let mut all = Vec::new();
    for (id, _) in drive(cluster, &Subject::Loop, counter, TASKS, 1).await? {
        all.extend(HistoryTimes::of(&events(cluster, &id).await?).transitions);
    }
    Ok(all)
}

fn judge(idle: &[Duration], busy: &[Duration]) -> Verdict {
    let mut rows = vec![["", "transitions", "p50 ms", "p99 ms"].map(str::to_owned).to_vec()];
    let with = format!("beside {ENGINES} agents");
    for (name, times) in [("no agent beside them", idle), (with.as_str(), busy)] {
        let p = |percent| ms(percentile(times, percent));
        rows.push(vec![name.to_owned(), times.len().to_string(), p(50), p(99)]);
    }
    println!("{}", table(&rows));
    let (mut passed, mut figures) = (true, Vec::new());
    for percent in [50, 99] {
        let of = |times| percentile(times, percent).unwrap_or_default().as_secs_f64();
        let ratio = of(busy) / of(idle);
        let verdict = if ratio <= TIMES { "reached" } else { "not reached" };
        println!(
            "goal: a transition takes at most {TIMES} times as long, at the {percent}th percentile: \
             {verdict}: measured {ratio:.2}"
        );
        passed &= ratio <= TIMES;
        figures.push(format!("{ratio:.2} at p{percent}"));
    }
    let figures = figures.join(" and ");
    Verdict::new(
        passed,
        format!("a transition beside {ENGINES} agents takes {figures} times as long"),
    )
}

/// Waits until the database counts so many.
async fn until(cluster: &BenchCluster, sql: &str, wanted: u64) -> Result<()> {
    let looking = async {
        while meter::sql(&cluster.database, sql).await?.parse::<u64>()? < wanted {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    };
    tokio::time::timeout(Duration::from_mins(5), looking).await.context("it takes too long")?
}

fn megabytes(bytes: u64) -> u64 {
    bytes >> 20
}
