//! Pages with a million finished tasks in the store, and a hundred thousand that wait.
//!
//! A worker takes some tasks to their end, and leaves others at their approval. Their rows are copied
//! with SQL, so the database has what a year of work leaves behind, without the year.
#![expect(clippy::print_stdout, reason = "a measurement prints its figures")]

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use chrono::Days;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use tamma_testkit::wait_until;

use crate::support::bench::cluster::{self, BenchCluster, Durability};
use crate::support::bench::load::{Subject, TaskCounter, drive, now, start_task};
use crate::support::bench::meter;
use crate::support::figures::ms;
use crate::support::page_times::{self, PageServer};
use crate::support::verdict::Verdict;

/// Function that copies tasks.
const COPY_TASKS: &str = include_str!("bench_store/copy_tasks.sql");

/// Real tasks that are copied, of each kind.
const SOURCES: u32 = 8;

/// First number of the tasks that wait.
const FIRST_WAITING: u64 = 1_000_000;

/// Files of a plan that needs approval.
const WAITING_FILES: usize = 8;

/// Tasks that one transaction copies.
const BATCH: u64 = 50_000;

/// Days over which the finished tasks are spread.
const DAYS: u32 = 365;

const SECONDS_PER_DAY: u64 = 86_400;

/// Time limit of each wait.
const TIMEOUT: Duration = Duration::from_mins(5);

/// Target p95 of every page.
const TARGET: Duration = Duration::from_millis(200);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of finished tasks
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    tasks: u64,
    /// Number of tasks that await approval
    #[arg(long, value_name = "COUNT", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    waiting: u64,
}

pub(crate) async fn run(arguments: &Args) -> Result<Verdict> {
    let Args { tasks, waiting } = *arguments;
    println!("machine: {}", meter::machine());
    let cluster = BenchCluster::start(Durability::Fast, 1).await?;
    finish_and_leave(&cluster).await?;
    let past = today().checked_sub_days(Days::new(u64::from(DAYS) + 1)).context("no such day")?;
    cluster.store().ensure_partitions(past, DAYS / 30 + 2).await?;
    let start = now();
    copy(&cluster, "completed", tasks, u64::from(DAYS) * SECONDS_PER_DAY).await?;
    copy(&cluster, "awaiting_approval", waiting, SECONDS_PER_DAY).await?;
    meter::sql(&cluster.database, "VACUUM ANALYZE").await?;
    let found = meter::sql(
        &cluster.database,
        "SELECT count(*) FILTER (WHERE state = 'completed') || ' finished and '
             || count(*) FILTER (WHERE state = 'awaiting_approval') || ' waiting tasks, '
             || pg_size_pretty(pg_database_size(current_database())) FROM tasks",
    )
    .await?;
    println!("{found}, copied from {} in {} s", 2 * SOURCES, start.elapsed().as_secs());
    let pages = pages(&cluster).await?;
    let server = PageServer::start(&cluster.cluster).await?;
    let times = page_times::measure(&page_times::signed_in_client()?, &server.url, &pages).await?;
    server.stop().await?;
    let slowest = times.iter().max_by_key(|it| it.p95).context("no page was measured")?;
    let first = times.iter().max_by_key(|it| it.first).context("no page was measured")?;
    let slow = times.iter().filter(|it| it.p95 >= TARGET).count();
    let figures = format!(
        "{tasks} finished and {waiting} waiting tasks: {slow} of {} pages over {} ms at p95; slowest \
         {} with {} ms; slowest first request {} with {} ms",
        times.len(),
        ms(Some(TARGET)),
        slowest.page,
        ms(Some(slowest.p95)),
        first.page,
        ms(Some(first.first))
    );
    Ok(Verdict::new(slow == 0, figures))
}

/// Takes some tasks to their end, and others to their approval.
async fn finish_and_leave(cluster: &BenchCluster) -> Result<()> {
    let mut worker = cluster.start_worker().await?;
    let count = usize::try_from(SOURCES)?;
    drive(cluster, &Subject::Loop(1), &TaskCounter::default(), count, 2).await?;
    cluster.plan_files(WAITING_FILES)?;
    stream::iter(FIRST_WAITING..FIRST_WAITING + u64::from(SOURCES))
        .map(|number| start_task(cluster, number))
        .buffer_unordered(2)
        .try_for_each(|_| async { Ok(()) })
        .await?;
    let sql = "SELECT count(*) FROM tasks WHERE state = 'awaiting_approval'";
    wait_until("the tasks that await approval", TIMEOUT, async || {
        let found: u32 = meter::sql(&cluster.database, sql).await?.parse()?;
        Ok((found == SOURCES).then_some(()))
    })
    .await?;
    worker.stop().await
}

/// Copies the tasks of a state until there are `count` more, spread over some seconds.
async fn copy(cluster: &BenchCluster, state: &str, count: u64, seconds: u64) -> Result<()> {
    let sources = format!("SELECT array_agg(id) FROM tasks WHERE state = '{state}'");
    let sources = meter::sql(&cluster.database, &sources).await?;
    ensure!(sources.len() > 2, "no task is in the state {state}");
    let microseconds = seconds * 1_000_000 / count;
    let mut first = 1;
    while first <= count {
        let last = count.min(first + BATCH - 1);
        // One call is one session and one transaction.
        let text = format!(
            "{COPY_TASKS}\nSELECT pg_temp.copy_tasks(
                '{sources}'::uuid [], {first}, {last}, {count}, interval '{microseconds} microseconds'
            )"
        );
        meter::sql(&cluster.database, &text).await?;
        progress(state, last, count);
        first = last + 1;
    }
    Ok(())
}

/// Returns the pages to measure: board, list, task, inbox, search and metrics.
async fn pages(cluster: &BenchCluster) -> Result<Vec<String>> {
    let copy = async |order: &str| {
        let sql = format!(
            "SELECT id FROM tasks WHERE state = 'completed' AND title LIKE '%, part %'
             ORDER BY id {order} LIMIT 1"
        );
        meter::sql(&cluster.database, &sql).await
    };
    let (old, new) = (copy("ASC").await?, copy("DESC").await?);
    let digits = new.get(new.len().saturating_sub(8)..).context("an ID has 8 digits at its end")?;
    let waiting = cluster::id(FIRST_WAITING).to_string();
    let pages = [
        "/".to_owned(),
        "/?project=greeter".to_owned(),
        "/?type=bugfix".to_owned(),
        "/?priority=critical".to_owned(),
        "/?label=money".to_owned(),
        "/?sort=cost".to_owned(),
        "/?phase=approve".to_owned(),
        "/?phase=done".to_owned(),
        "/?text=part".to_owned(),
        "/?text=part+4711".to_owned(),
        format!("/?text={digits}"),
        "/palette?text=part+47".to_owned(),
        "/inbox".to_owned(),
        format!("/tasks/{old}"),
        format!("/tasks/{waiting}"),
        "/figures?days=7".to_owned(),
        "/figures".to_owned(),
        "/?phase=done&type=bugfix".to_owned(),
    ];
    Ok(pages.to_vec())
}

#[expect(clippy::print_stderr, reason = "shows progress")]
fn progress(state: &str, done: u64, all: u64) {
    eprintln!("… {done} of {all} copies of {state} tasks");
}

#[expect(clippy::disallowed_methods, reason = "the history has a partition per month")]
fn today() -> chrono::NaiveDate {
    chrono::Utc::now().date_naive()
}
