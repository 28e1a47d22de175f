//! Cost of many concurrent agents on one worker, and their effect on other tasks.
#![expect(clippy::print_stdout, reason = "a measurement prints its figures")]

use std::time::Duration;

use anyhow::{Context as _, Result};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use tamma_testkit::wait::{wait_until, wait_until_true};

use crate::support::bench::cluster::{self, BenchCluster, Durability};
use crate::support::bench::history::HistoryTimes;
use crate::support::bench::load::{Subject, TaskCounter, drive, events, start_task};
use crate::support::bench::meter;
use crate::support::coefficients;
use crate::support::figures::{ms, percentile, table};
use crate::support::verdict::Verdict;

/// Default number of concurrent agents.
const AGENTS: u64 = 200;

/// Additional slots for the measured tasks.
const FREE: usize = 4;

/// Number of measured tasks, one at a time. The p99 of their transitions is about the eighth slowest.
const TASKS: usize = 100;

/// First number of the tasks whose agents keep running.
const FIRST: u64 = 100_000;

/// Time limit of each wait.
const TIMEOUT: Duration = Duration::from_mins(5);

/// Target ratio of transition times with and without the agents.
const MAX_RATIO: f64 = 1.3;

/// Time after the start of the last agent until all agents only wait.
const SETTLE_TIME: Duration = Duration::from_secs(75);

/// Time for which the worker's CPU time is measured: every agent has a checkpoint in it.
const MEASURED_TIME: Duration = Duration::from_secs(30);

/// Target of the worker's CPU time while the agents only wait, in per cent of a core.
const MAX_CPU: f64 = 8.0;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of concurrent agents
    #[arg(long, value_name = "COUNT", default_value_t = AGENTS, value_parser = clap::value_parser!(u64).range(1..))]
    agents: u64,
    /// Write the figures to the coefficients of `tamma capacity`
    #[arg(long)]
    write: bool,
}

pub(crate) async fn run(arguments: &Args) -> Result<Verdict> {
    let agents_wanted = arguments.agents;
    println!("machine: {}", meter::machine());
    let cluster = BenchCluster::start(Durability::Durable, 1).await?;
    let slots = usize::try_from(agents_wanted)? + FREE;
    println!(
        "Temporal dev server, PostgreSQL {} with fsync {}, one worker process with {slots} slots, \
         the scripted agent",
        meter::sql(&cluster.database, "SHOW server_version").await?,
        meter::sql(&cluster.database, "SHOW fsync").await?,
    );
    let worker = cluster.start_worker_with_slots(slots).await?;
    let pid = cluster::pid(&worker)?;
    let counter = TaskCounter::default();
    // Warm up.
    drive(&cluster, &Subject::Loop(1), &counter, 10, 4).await?;

    let idle = transitions(&cluster, &counter).await?;
    let before = meter::resident_alone(pid);
    let go = cluster.folder().join("go");
    cluster.hold(Some(&go))?;
    let started: Vec<String> = stream::iter(FIRST..FIRST + agents_wanted)
        .map(|number| start_task(&cluster, number))
        .buffer_unordered(10)
        .try_collect()
        .await?;
    let running = "SELECT count(*) FROM tasks WHERE state = 'in_progress'";
    until(&cluster, running, agents_wanted).await.context("not all agents are running")?;
    // A task is in progress shortly before its agent reads the script.
    let held = || std::fs::read_to_string(go.with_file_name("held")).unwrap_or_default();
    let all_held = || held().lines().count() as u64 >= agents_wanted;
    wait_until_true("the agents", TIMEOUT, all_held).await?;
    cluster.hold(None)?;
    let after = meter::resident_alone(pid);
    let agents = meter::resident(pid).saturating_sub(after);
    // The first checkpoints of a run are whole ones. Later ones only look for changes.
    tokio::time::sleep(SETTLE_TIME).await;
    let spent = meter::cpu_time(pid);
    tokio::time::sleep(MEASURED_TIME).await;
    let spent = meter::cpu_time(pid).since(spent);

    let busy = transitions(&cluster, &counter).await?;
    let still = meter::sql(&cluster.database, running).await?;
    std::fs::write(&go, "")?;
    let ended = "SELECT count(*) FROM tasks WHERE state = 'completed'";
    let all = agents_wanted + 10 + 2 * u64::try_from(TASKS)?;
    until(&cluster, ended, all).await.context("not all tasks were completed")?;

    println!(
        "{} agents running, {still} of them until the last measured task; all {} tasks completed\n",
        started.len(),
        all
    );
    println!(
        "worker: {} MB without agents, {} MB with {agents_wanted}: {} kB per slot; agent processes: {} \
         MB in total, {} kB each (shared memory counts for each)",
        megabytes(before),
        megabytes(after),
        after.saturating_sub(before) / agents_wanted / 1024,
        megabytes(agents),
        agents / agents_wanted / 1024,
    );
    let percent = 100.0 / MEASURED_TIME.as_secs_f64();
    let cpu = spent.own.as_secs_f64() * percent;
    println!(
        "while the agents wait: worker {cpu:.1}% of a core, child processes {:.1}%\n",
        spent.children.as_secs_f64() * percent
    );
    if arguments.write {
        let measured = u128::from(MEASURED_TIME.as_secs());
        let waiting = spent.own.as_micros() / measured / u128::from(agents_wanted);
        let values = [
            ("slot_memory_bytes", after.saturating_sub(before) / agents_wanted),
            ("worker_cpu_us_per_second", u64::try_from(waiting)?),
        ];
        coefficients::write("agents", &values).await?;
    }
    Ok(judge(agents_wanted, &idle, &busy, cpu))
}

/// Measures the transitions of tasks that run one at a time.
async fn transitions(cluster: &BenchCluster, counter: &TaskCounter) -> Result<Vec<Duration>> {
    let mut all = Vec::new();
    for (id, _) in drive(cluster, &Subject::Loop(1), counter, TASKS, 1).await? {
        all.extend(HistoryTimes::of(&events(cluster, &id).await?).transitions);
    }
    Ok(all)
}

fn judge(agents: u64, idle: &[Duration], busy: &[Duration], cpu: f64) -> Verdict {
    let mut rows = vec![["", "transitions", "p50 ms", "p99 ms"].map(str::to_owned).to_vec()];
    let with = format!("beside {agents} agents");
    for (name, times) in [("no agents", idle), (with.as_str(), busy)] {
        let p = |percent| ms(percentile(times, percent));
        rows.push(vec![name.to_owned(), times.len().to_string(), p(50), p(99)]);
    }
    println!("{}", table(&rows));
    let (mut passed, mut figures) = (true, Vec::new());
    for percent in [50, 99] {
        let of = |times| percentile(times, percent).unwrap_or_default().as_secs_f64();
        let ratio = of(busy) / of(idle);
        let verdict = if ratio <= MAX_RATIO { "met" } else { "missed" };
        println!(
            "target: transition p{percent} at most {MAX_RATIO} times as long: {verdict}, measured {ratio:.2}"
        );
        passed &= ratio <= MAX_RATIO;
        figures.push(format!("{ratio:.2} at p{percent}"));
    }
    let verdict = if cpu <= MAX_CPU { "met" } else { "missed" };
    println!(
        "target: at most {MAX_CPU} % of a core while they wait: {verdict}, measured {cpu:.1} %"
    );
    let figures = figures.join(" and ");
    Verdict::new(
        passed && cpu <= MAX_CPU,
        format!(
            "a transition beside {agents} agents takes {figures} times as long; while they wait, the \
             worker uses {cpu:.1} % of a core"
        ),
    )
}

/// Waits until a count in the database reaches a number.
async fn until(cluster: &BenchCluster, sql: &str, expected: u64) -> Result<()> {
    wait_until("the tasks", TIMEOUT, async || {
        let count: u64 = meter::sql(&cluster.database, sql).await?.parse()?;
        Ok((count >= expected).then_some(()))
    })
    .await
}

fn megabytes(bytes: u64) -> u64 {
    bytes >> 20
}
