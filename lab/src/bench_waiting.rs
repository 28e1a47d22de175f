//! Cost of thousands of tasks that await approval.
#![expect(clippy::print_stdout, reason = "a measurement prints its figures")]

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use tamma_core::capacity::CACHED_WORKFLOWS;
use tamma_core::task_loop::TaskLoop;
use tamma_server::dto::TaskAction;
use tamma_testkit::{sample_plan, wait_until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::bench::cluster::{self, BenchCluster, Durability};
use crate::support::bench::load::{now, start_task};
use crate::support::bench::meter;
use crate::support::coefficients;
use crate::support::figures::{ms, percentile, table};
use crate::support::verdict::Verdict;

/// Default number of waiting tasks.
const TASKS: u64 = 5000;

/// Number of files of a plan that needs approval. With more, the change would also need a review by a
/// person, and no task would complete on its own.
const FILES: usize = 8;

/// Time limit of a wait.
const TIMEOUT: Duration = Duration::from_mins(15);

/// Number of tasks for which a wait gets its time limit once more.
const TASKS_PER_TIMEOUT: u32 = 10_000;

/// Target of the median approval time.
const APPROVAL: Duration = Duration::from_millis(200);

/// Prime step through the tasks, so that each comes once and far from the previous one.
const STRIDE: u64 = 3571;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of waiting tasks
    #[arg(long, value_name = "COUNT", default_value_t = TASKS, value_parser = clap::value_parser!(u64).range(200..))]
    tasks: u64,
    /// Write the figures to the coefficients of `tamma capacity`
    #[arg(long)]
    write: bool,
}

pub(crate) async fn run(arguments: &Args) -> Result<Verdict> {
    let tasks = arguments.tasks;
    println!("machine: {}", meter::machine());
    let cluster = BenchCluster::start(Durability::Durable, FILES).await?;
    println!(
        "Temporal dev server, PostgreSQL {} with fsync {}, one worker process with {} cached \
         workflows, one server process; {tasks} tasks await approval",
        meter::sql(&cluster.database, "SHOW server_version").await?,
        meter::sql(&cluster.database, "SHOW fsync").await?,
        CACHED_WORKFLOWS,
    );
    let worker = cluster.start_lab_worker(&format!("stubs-{FILES}")).await?;
    let server = cluster.start_server().await?;
    let [temporal, postgres] = cluster.server_pids()?;
    let parts = [
        ("worker", cluster::pid(&worker)?),
        ("server", cluster::pid(&server)?),
        ("Temporal", temporal),
        ("PostgreSQL", postgres),
    ];
    let temporal_folder = cluster.cluster.temporal()?.folder();
    // Warm up with one task.
    wait_for_approval(&cluster, 1..2).await?;
    let before = parts.map(|(_, process)| meter::resident(process));
    let rows = meter::database(&cluster.database).await?.total_rows();
    let disk = meter::disk(temporal_folder);
    let empty = meter::database_bytes(&cluster.database).await?.size;

    let start = now();
    wait_for_approval(&cluster, 2..tasks + 1).await?;
    let took = start.elapsed();
    let size = meter::database_bytes(&cluster.database).await?.size;
    let rows = meter::database(&cluster.database).await?.total_rows() - rows;
    let disk = meter::disk(temporal_folder).saturating_sub(disk);
    let after = parts.map(|(_, process)| meter::resident(process));

    let spent = || parts.map(|(_, process)| meter::cpu_time(process).all());
    let idle = spent();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let idle: Vec<_> =
        spent().into_iter().zip(idle).map(|(after, before)| after.saturating_sub(before)).collect();

    let mut rows_of = vec![
        ["", "RSS before, MB", "RSS after, MB", "kB per task", "idle CPU, % of a core"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for (number, (name, _)) in parts.iter().enumerate() {
        let grown = after[number].saturating_sub(before[number]);
        rows_of.push(vec![
            (*name).to_owned(),
            tenths(before[number], 1 << 20),
            tenths(after[number], 1 << 20),
            tenths(grown, tasks * 1024),
            format!("{:.1}", idle[number].as_secs_f64() * 10.0),
        ]);
    }
    println!("\n{}", table(&rows_of));
    println!(
        "all tasks were waiting {:.0} s after the first was added ({:.0} per second); Temporal's files \
         grew by {} kB per task, PostgreSQL has {} rows per task and {} MB in total",
        took.as_secs_f64(),
        per_second(tasks, took),
        tenths(disk, tasks * 1024),
        tenths(rows, tasks),
        tenths(size, 1 << 20),
    );
    if arguments.write {
        let growth = |part: usize| after[part].saturating_sub(before[part]);
        let values = [
            ("worker_memory_bytes", growth(0) / tasks.min(CACHED_WORKFLOWS.into())),
            ("temporal_memory_bytes", growth(2) / tasks),
            ("temporal_disk_bytes", disk / tasks),
            ("rows", rows.div_ceil(tasks)),
            ("database_bytes", size.saturating_sub(empty) / tasks),
        ];
        coefficients::write("waiting", &values).await?;
    }
    measure_people(&cluster, tasks).await
}

/// Measures inbox and approvals, as people use them.
async fn measure_people(cluster: &BenchCluster, tasks: u64) -> Result<Verdict> {
    let hash = sample_plan(FILES).hash().to_string();
    let mut inbox = Vec::new();
    for _ in 0..20 {
        inbox.push(command(cluster, &["inbox"]).await?);
    }
    let address = cluster.cluster.url().trim_start_matches("http://");
    let body = serde_json::to_string(&TaskAction::Approve { plan: hash.clone(), reason: None })?;
    let mut order = (0..).map(|index| 1 + (index * STRIDE + 17) % tasks);
    let mut api_times = Vec::new();
    for number in order.by_ref().take(100) {
        let path = format!("/api/v1/tasks/{}/actions", cluster::id(number));
        let start = now();
        post(address, &cluster.cluster.cli.token, &path, &body).await?;
        api_times.push(start.elapsed());
        // Wait for the task to end before the next approval.
        wait_until_closed(cluster, number).await?;
    }
    let mut command_times = Vec::new();
    for number in order.take(10) {
        let id = cluster::id(number).to_string();
        command_times.push(command(cluster, &["approve", &id, "--plan", &hash]).await?);
        wait_until_closed(cluster, number).await?;
    }
    let mut rows = vec![["", "times", "p50 ms", "p99 ms"].map(str::to_owned).to_vec()];
    for (name, times) in [
        ("tamma inbox (shows 500)", &inbox),
        ("approval over the API", &api_times),
        ("tamma approve", &command_times),
    ] {
        let p = |percent| ms(percentile(times, percent));
        rows.push(vec![name.to_owned(), times.len().to_string(), p(50), p(99)]);
    }
    println!("\n{}", table(&rows));
    println!(
        "Approvals are sent one after the other, spread over all waiting tasks. At most \
         {CACHED_WORKFLOWS} of {tasks} workflows are in the worker's cache; the others are replayed \
         from their histories.\n"
    );
    let median = percentile(&api_times, 50);
    let passed = median.is_some_and(|it| it < APPROVAL);
    let verdict = if passed { "met" } else { "missed" };
    println!(
        "target: median approval under {} ms: {verdict}, measured {} ms",
        ms(Some(APPROVAL)),
        ms(median)
    );
    let figures = format!("{tasks} tasks waiting, an approval takes {} ms (median)", ms(median));
    Ok(Verdict::new(passed, figures))
}

/// Starts tasks and waits until all of them await approval.
async fn wait_for_approval(cluster: &BenchCluster, numbers: std::ops::Range<u64>) -> Result<()> {
    let last = numbers.end - 1;
    let limit = TIMEOUT * (1 + u32::try_from(last)? / TASKS_PER_TIMEOUT);
    stream::iter(numbers)
        .map(|number| start_task(cluster, number))
        .buffer_unordered(20)
        .try_for_each(|_| async { Ok(()) })
        .await?;
    let sql = "SELECT count(*) FROM tasks WHERE state = 'awaiting_approval'";
    wait_until("the tasks", limit, async || {
        let count: u64 = meter::sql(&cluster.database, sql).await?.parse()?;
        Ok((count == last).then_some(()))
    })
    .await
}

async fn wait_until_closed(cluster: &BenchCluster, number: u64) -> Result<()> {
    let is_closed = |task_loop: &TaskLoop| Ok(task_loop.state.is_terminal());
    cluster.cluster.wait_for_task(cluster::id(number), TIMEOUT, is_closed).await?;
    Ok(())
}

/// Runs a `tamma` command and returns its duration.
async fn command(cluster: &BenchCluster, arguments: &[&str]) -> Result<Duration> {
    let mut command = cluster.cluster.cli.command(arguments);
    command.stdout(Stdio::null()).current_dir(cluster.project.repository.path());
    let start = now();
    let status = command.status().await?;
    ensure!(status.success(), "`tamma {}` ended with {status}", arguments.join(" "));
    Ok(start.elapsed())
}

/// Sends one request on a new connection.
async fn post(address: &str, token: &str, path: &str, body: &str) -> Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ntamma-person: Ann\r\nconnection: close\r\n\
         authorization: Bearer {token}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "an approval failed: {answer}");
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "one decimal is enough")]
fn tenths(value: u64, unit: u64) -> String {
    format!("{:.1}", value as f64 / unit as f64)
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn per_second(tasks: u64, took: Duration) -> f64 {
    tasks as f64 / took.as_secs_f64()
}
