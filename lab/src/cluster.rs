//! Strikes the parts of a cluster with many tasks in flight, and checks that nothing is lost
//! (docs/chaos.md).
//!
//! `strike` lists the strikes, `striker` makes them as far as the `machine` allows, `models` are what the
//! agents call through the gateways, `lane` keeps tasks in flight, `round` takes all tasks through one
//! strike after another and examines those that complete, and `report` prints the results.

pub(crate) mod lane;
mod machine;
mod models;
mod report;
mod round;
mod strike;
mod striker;

use std::io::Write as _;

use anyhow::{Context as _, Result, bail, ensure};
use tamma_testkit::Cluster;
use tamma_testkit::temporal::{self, TemporalLayout};

use self::machine::MachineAbilities;
use self::report::Report;
use self::round::{RoundRunner, Turn};
use self::strike::Strike;
use self::striker::Striker;
use crate::support::verdict::Verdict;

/// Number of `tamma serve` and of `tamma work` processes.
const SERVERS: u32 = 2;
const WORKERS: u32 = 3;

/// Host of the worker with the small disk: the last one.
const DISK_WORKER: &str = "work-3";

/// Arguments of the workers: two of them can run an agent for each of 200 tasks.
const WORKER_ARGS: [&str; 2] = ["--slots", "100"];

/// Key of the model, which only the gateway knows, and its variable.
const MODEL_KEY: (&str, &str) = ("OPENAI_API_KEY", "a-key-that-only-the-gateway-knows");

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Least number of strikes
    #[arg(long, default_value_t = 200)]
    strikes: usize,
    /// Least number of interruptions: tasks in flight when a part that they depend on is struck
    #[arg(long, default_value_t = 10_000)]
    interruptions: usize,
    /// Number of tasks in flight
    #[arg(long, default_value_t = 50)]
    tasks: u32,
    /// Number of history shards of Temporal
    #[arg(long, default_value_t = 64)]
    shards: u32,
    /// Make only strikes whose names contain one of these texts, such as `isolate,lose-requests`
    #[arg(long, value_name = "TEXT", value_delimiter = ',')]
    only: Vec<String>,
    /// List the strikes without making them
    #[arg(long)]
    list: bool,
}

/// Extent of a run.
#[derive(Debug, Clone, Copy)]
struct Extent {
    /// Least number of strikes; `None` for each possible one once.
    strikes: Option<usize>,
    interruptions: usize,
    tasks: u32,
    shards: u32,
}

pub(crate) async fn run(arguments: &Args, quick: bool) -> Result<Verdict> {
    let strikes = if quick { Strike::quick() } else { Strike::all() };
    let is_chosen = |strike: &Strike| {
        let contains = |text: &String| strike.to_string().contains(text);
        arguments.only.is_empty() || arguments.only.iter().any(contains)
    };
    let strikes: Vec<_> = strikes.into_iter().filter(is_chosen).collect();
    ensure!(!strikes.is_empty(), "no strike matches the options: `--list` shows all strikes");
    if arguments.list {
        for strike in &strikes {
            writeln!(std::io::stdout(), "{strike}")?;
        }
        return Ok(Verdict::new(true, format!("{} strikes listed", strikes.len())));
    }
    if !temporal::is_built() {
        let build = temporal::BUILD_COMMAND;
        let why = format!("the Temporal server is not built; install Go and run `{build}`");
        if quick {
            return Ok(Verdict::new(true, format!("not run: {why}")));
        }
        bail!(why);
    }
    let &Args { interruptions, tasks, shards, .. } = arguments;
    let extent = if quick {
        Extent { strikes: None, interruptions: 0, tasks: 6, shards: 4 }
    } else {
        Extent { strikes: Some(arguments.strikes), interruptions, tasks, shards }
    };
    let folder = std::env::temp_dir().join(format!("tamma-cluster-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let logs = || format!("logs: {}", folder.display());
    let machine = MachineAbilities::prepare(&folder.join(DISK_WORKER)).await;
    let cluster = Cluster::builder()
        .folder(&folder)
        .temporal_cluster(TemporalLayout::ThreeNodes, extent.shards)
        .database_settings(&["commit_siblings=0"])
        .separate_hosts()
        .standby()
        .servers(SERVERS)
        .workers(WORKERS)
        .worker_args(&WORKER_ARGS)
        .worker_env(MODEL_KEY.0, MODEL_KEY.1)
        .start()
        .await
        .with_context(logs)?;
    let striker = Striker::new(cluster, machine).await.with_context(logs)?;
    let report = strike_all(striker, strikes, extent).await.with_context(logs)?;
    if report.is_clean() {
        std::fs::remove_dir_all(&folder)?;
    } else {
        writeln!(std::io::stderr(), "{}", logs())?;
    }
    Ok(Verdict::new(report.is_clean(), report.end()?))
}

/// Makes the possible strikes one after another, until there are enough of them, and lets all tasks
/// complete.
async fn strike_all(striker: Striker, strikes: Vec<Strike>, extent: Extent) -> Result<Report> {
    let mut out = std::io::stdout();
    let hosts = striker.cluster.network()?.describe();
    writeln!(out, "{hosts}; {} tasks in flight, {} shards", extent.tasks, extent.shards)?;
    let mut possible = Vec::new();
    for strike in strikes {
        match striker.why_not(strike)? {
            None => possible.push(strike),
            Some(why) => writeln!(out, "not run: {strike} ({why})")?,
        }
    }
    ensure!(!possible.is_empty(), "none of the strikes is possible on this machine");
    let mut runner = RoundRunner::start(striker, extent.tasks).await?;
    let mut report = Report::begin()?;
    runner.undisturbed(&mut report).await?;
    let enough = extent.strikes.unwrap_or(possible.len());
    for (made, strike) in possible.iter().copied().cycle().enumerate() {
        if report.strikes() >= enough && report.interruptions() >= extent.interruptions {
            break;
        }
        runner.round(strike, Turn::new(made, possible.len()), &mut report).await?;
    }
    runner.finish(&mut report).await?;
    Ok(report)
}
