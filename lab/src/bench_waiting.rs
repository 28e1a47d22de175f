//! What thousands of tasks cost that wait for approval.
#![expect(clippy::print_stdout, reason = "a measurement prints its figures")]

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use tamma_server::dto::TaskAction;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::bench::cluster::{self, BenchCluster, Durability};
use crate::support::bench::load::{now, start};
use crate::support::bench::meter;
use crate::support::figures::{ms, percentile, table};
use crate::support::verdict::Verdict;

/// How many tasks wait, unless an option says otherwise.
const TASKS: u64 = 5000;

/// Files of a plan that a person must approve. With more, a person would be asked again after the
/// review, and none of the tasks would come to its end by itself.
const FILES: usize = 8;

/// How long approving one may take at the median.
const APPROVAL: Duration = Duration::from_millis(200);

/// A prime, so that every task comes once and none is near the last one.
const STRIDE: u64 = 3571;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The number of tasks that wait
    #[arg(long, value_name = "COUNT", default_value_t = TASKS, value_parser = clap::value_parser!(u64).range(200..))]
    tasks: u64,
}

pub(crate) async fn run(arguments: &Args) -> Result<Verdict> {
    let tasks = arguments.tasks;
    println!("machine: {}", meter::machine());
    let cluster = BenchCluster::set(Durability::Durable, FILES).await?;
    println!(
        "Temporal dev server, PostgreSQL {} with fsync {}, one worker process with 1000 cached \
         workflows, one server process; {tasks} tasks wait for approval",
        meter::sql(&cluster.database, "SHOW server_version").await?,
        meter::sql(&cluster.database, "SHOW fsync").await?,
    );
    let worker = cluster.own_work(&format!("rest-{FILES}"))?;
    let (server, url) = cluster.tamma_serve()?;
    let temporal = cluster.temporal.pid().unwrap_or_default();
    let postgres = cluster.postgres.process()?;
    let parts = [
        ("worker", worker.id()),
        ("server", server.id()),
        ("Temporal", temporal),
        ("PostgreSQL", postgres),
    ];
    // One task, so that everything that is made once is there.
    wait_for_approval(&cluster, 1..2).await?;
    let before = parts.map(|(_, process)| meter::resident(process));
    let rows = meter::database(&cluster.database).await?.rows;
    let disk = meter::disk(cluster.temporal.folder());

    let begun = now();
    wait_for_approval(&cluster, 2..tasks + 1).await?;
    let took = begun.elapsed();
    let size = meter::sql(&cluster.database, "SELECT pg_database_size(current_database())").await?;
    let rows = meter::database(&cluster.database).await?.rows - rows;
    let disk = meter::disk(cluster.temporal.folder()).saturating_sub(disk);
    let after = parts.map(|(_, process)| meter::resident(process));

    let spent = || parts.map(|(_, process)| meter::spent(process).all());
    let idle = spent();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let idle: Vec<_> =
        spent().into_iter().zip(idle).map(|(after, before)| after.saturating_sub(before)).collect();

    let mut rows_of = vec![
        ["", "RSS before, MB", "RSS with all, MB", "kB a waiting task", "idle CPU, % of a core"]
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
        "all wait {:.0} s after the first was added, {:.0}/s; Temporal's files grew by {} kB a task, \
         PostgreSQL has {} rows a task and {} MB in all",
        took.as_secs_f64(),
        seconds(tasks, took),
        tenths(disk, tasks * 1024),
        tenths(rows, tasks),
        tenths(size.parse()?, 1 << 20),
    );
    people(&cluster, &url, tasks).await
}

/// What people feel.
async fn people(cluster: &BenchCluster, url: &str, tasks: u64) -> Result<Verdict> {
    let hash = cluster::plan(FILES).hash().to_string();
    let mut inbox = Vec::new();
    for _ in 0..20 {
        inbox.push(command(cluster, &["inbox", "--server", url])?);
    }
    let address = url.trim_start_matches("http://");
    let body = serde_json::to_string(&TaskAction::Approve { plan: hash.clone(), reason: None })?;
    let mut order = (0..).map(|turn| 1 + (turn * STRIDE + 17) % tasks);
    let mut asked = Vec::new();
    for number in order.by_ref().take(100) {
        let path = format!("/api/v1/tasks/{}/actions", cluster::id(number));
        let begun = now();
        post(address, &path, &body).await?;
        asked.push(begun.elapsed());
        // The next one is asked when this one's work is done, as people do.
        ended(cluster, number).await?;
    }
    let mut commanded = Vec::new();
    for number in order.take(10) {
        let id = cluster::id(number).to_string();
        let words = ["approve", &id, "--plan", &hash, "--as", "Ann", "--server", url];
        commanded.push(command(cluster, &words)?);
        ended(cluster, number).await?;
    }
    let mut rows = vec![["", "times", "p50 ms", "p99 ms"].map(str::to_owned).to_vec()];
    for (name, times) in [
        ("tamma inbox (500 of them are shown)", &inbox),
        ("approving one through the API", &asked),
        ("tamma approve", &commanded),
    ] {
        let p = |percent| ms(percentile(times, percent));
        rows.push(vec![name.to_owned(), times.len().to_string(), p(50), p(99)]);
    }
    println!("\n{}", table(&rows));
    println!(
        "Each was asked when the one before had ended. The tasks are spread over all that wait, so at \
         most 1000 in {tasks} were in the worker's task_loop and the others' histories were played again.\n"
    );
    let median = percentile(&asked, 50);
    let passed = median.is_some_and(|it| it < APPROVAL);
    let verdict = if passed { "reached" } else { "not reached" };
    println!(
        "goal: approving stays under {} ms at the median: {verdict}: measured {} ms",
        ms(Some(APPROVAL)),
        ms(median)
    );
    let figures =
        format!("{tasks} tasks wait, approving one takes {} ms at the median", ms(median));
    Ok(Verdict::new(passed, figures))
}

/// Starts tasks, and waits until all of them wait for approval.
async fn wait_for_approval(cluster: &BenchCluster, numbers: std::ops::Range<u64>) -> Result<()> {
    let last = numbers.end - 1;
    stream::iter(numbers)
        .map(|number| start(cluster, number))
        .buffer_unordered(20)
        .try_for_each(|_| async { Ok(()) })
        .await?;
    let sql = "SELECT count(*) FROM tasks WHERE state = 'awaiting_approval'";
    until(async || Ok(meter::sql(&cluster.database, sql).await?.parse::<u64>()? == last)).await
}

async fn ended(cluster: &BenchCluster, number: u64) -> Result<()> {
    until(async || {
        let task = cluster.store.task(cluster::id(number)).await?;
        Ok(task.task_loop.is_ok_and(|task_loop| task_loop.state.is_terminal()))
    })
    .await
}

async fn until(there: impl AsyncFn() -> Result<bool>) -> Result<()> {
    let looking = async {
        while !there().await? {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    };
    tokio::time::timeout(Duration::from_mins(15), looking).await.context("it takes too long")?
}

/// Runs a command of the product, and returns how long it took.
fn command(cluster: &BenchCluster, words: &[&str]) -> Result<Duration> {
    let (verb, rest) = words.split_first().context("a verb")?;
    let begun = now();
    let status = cluster.tamma(verb)?.args(rest).stdout(Stdio::null()).status()?;
    ensure!(status.success(), "`tamma {verb}` ended with {status}");
    Ok(begun.elapsed())
}

/// One request, on a connection of its own.
async fn post(address: &str, path: &str, body: &str) -> Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ntamma-person: Ann\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "an approval was answered with {answer}");
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "one digit is shown")]
fn tenths(value: u64, unit: u64) -> String {
    format!("{:.1}", value as f64 / unit as f64)
}

#[expect(clippy::cast_precision_loss, reason = "there are few tasks")]
fn seconds(tasks: u64, took: Duration) -> f64 {
    tasks as f64 / took.as_secs_f64()
}
