//! Replaces the servers and workers of a cluster one after the other, by another version and back, with
//! tasks in flight and requests on the way (docs/operating.md).
//!
//! The way there starts with the workers, and the way back with the servers, so that no server adds tasks
//! that a worker does not know. Tasks are added, approved and moved on at every point.

mod requests;

use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures_util::StreamExt as _;
use tamma_flow::{TaskWorkflow, WorkflowInput, workflow_id};
use tamma_testkit::Cluster;
use tamma_testkit::cluster::DATABASE;
use tamma_testkit::programs::find_program;
use tamma_testkit::temporal;
use temporalio_client::WorkflowFetchHistoryOptions;
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use tokio::process::Command;
use tokio::time::sleep;

use self::requests::RequestLoad;
use crate::chaos::examination::RunRule;
use crate::support::components::output_text;
use crate::support::fleet::{TaskFleet, now};
use crate::support::verdict::Verdict;

/// Number of `tamma serve` and of `tamma work` processes.
const SERVERS: usize = 2;
const WORKERS: usize = 2;

/// Arguments of the workers: one of them can run all agents.
const WORKER_ARGS: [&str; 2] = ["--slots", "40"];

/// Time after which a supervisor kills a process that it has stopped.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Number of tasks in flight of the quick slice.
const QUICK_TASKS: u32 = 5;

/// Delay between the release of the tasks and a replacement that finds them on their way.
const ON_THE_WAY: Duration = Duration::from_millis(700);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(
        long,
        value_name = "FOLDER",
        help = "Folder with the `tamma` of the old version [default: this build stands for both versions]"
    )]
    from: Option<PathBuf>,
    /// Number of tasks in flight
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=40))]
    tasks: u32,
}

/// Process that is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Replaced {
    Worker(usize),
    Server(usize),
}

impl fmt::Display for Replaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&match self {
            Self::Worker(at) => format!("worker {}", at + 1),
            Self::Server(at) => format!("server {}", at + 1),
        })
    }
}

/// Programs of both versions.
#[derive(Debug)]
struct Versions {
    old: PathBuf,
    new: PathBuf,
    /// `false` if one build stands for both.
    differ: bool,
}

impl Versions {
    fn find(from: Option<&Path>) -> Result<Self> {
        let new = find_program("tamma")?;
        let old = from.map_or_else(|| new.clone(), |folder| folder.join("tamma"));
        ensure!(old.is_file(), "`{}` does not exist; build the old version first", old.display());
        Ok(Self { old, new, differ: from.is_some() })
    }
}

/// Returns the processes in the order of the way there: a worker of each version knows the tasks of old
/// servers, but not the other way round.
fn way_there() -> Vec<Replaced> {
    let workers = (0..WORKERS).map(Replaced::Worker);
    workers.chain((0..SERVERS).map(Replaced::Server)).collect()
}

pub(crate) async fn run(arguments: &Args, quick: bool) -> Result<Verdict> {
    let versions = Versions::find(arguments.from.as_deref())?;
    let tasks = if quick { QUICK_TASKS } else { arguments.tasks };
    let folder = std::env::temp_dir().join(format!("tamma-upgrade-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let logs = || format!("logs: {}", folder.display());
    let verdict = upgrade(&versions, tasks, (quick, &folder)).await.with_context(logs)?;
    if verdict.passed {
        std::fs::remove_dir_all(&folder)?;
    } else {
        writeln!(std::io::stderr(), "{}", logs())?;
    }
    Ok(verdict)
}

async fn upgrade(
    versions: &Versions,
    tasks: u32,
    (quick, folder): (bool, &Path),
) -> Result<Verdict> {
    let cluster = Cluster::builder()
        .folder(folder)
        .private_servers()
        .servers(u32::try_from(SERVERS)?)
        .workers(u32::try_from(WORKERS)?)
        .worker_args(&WORKER_ARGS)
        .program(&versions.old)
        .start()
        .await?;
    // Earlier versions leave this number. A new database of this version has nothing to finish.
    let unfinished = "UPDATE schema_compatibility SET oldest_version = 14";
    cluster.postgres()?.query(DATABASE, unfinished).await?;
    let mut fleet = TaskFleet::start(cluster, tasks).await?;
    let first = fleet.lanes.first().context("there is no task")?;
    let load =
        RequestLoad::start(fleet.cluster.clis(), first.case.task, first.case.add_arguments());
    let mut out = std::io::stdout();
    migrate(&versions.new, &fleet.cluster, &[]).await?;
    writeln!(out, "migrated with {tasks} tasks in flight")?;
    fleet.settle().await?;
    fleet.record_baseline().await?;
    let (there, back) = (way_there(), way_there().into_iter().rev().collect::<Vec<_>>());
    let mut ways = vec![("there", &versions.new, &there)];
    if !quick {
        ways.extend([("back", &versions.old, &back), ("there again", &versions.new, &there)]);
    }
    let mut replaced = 0;
    for (way, program, order) in ways {
        for which in order {
            let began = now();
            replace(&mut fleet, *which, program, replaced % 2 == 1).await?;
            replaced += 1;
            let (seconds, tally) = (began.elapsed().as_secs_f64(), fleet.tally);
            writeln!(
                out,
                "{way:<12} {which:<9} {seconds:>6.1} s, {} tasks completed",
                tally.tasks
            )?;
            let has_both = matches!(which, Replaced::Worker(0)) && way != "back";
            if versions.differ && has_both {
                let refused = migrate(&versions.new, &fleet.cluster, &["--finish"]).await;
                ensure!(refused.is_err(), "an upgrade was finished while an old worker was online");
            }
        }
        if way == "there" {
            fleet.refill(1).await?;
            let is_new = has_compact_history(&fleet).await?;
            ensure!(!is_new, "a task has the new behaviour, which old workers do not know");
        }
    }
    migrate(&versions.new, &fleet.cluster, &["--finish"]).await?;
    ensure!(fleet.cluster.store.is_upgrade_finished().await?, "the upgrade is not finished");
    writeln!(out, "upgrade finished")?;
    fleet.refill(tasks).await?;
    let is_new = has_compact_history(&fleet).await?;
    ensure!(is_new, "a task has the old behaviour after the end of the upgrade");
    fleet.finish().await?;
    if versions.differ {
        let mut old = fleet.cluster.new_worker("work-old")?;
        old.use_program(&versions.old);
        ensure!(old.start().await.is_err(), "an old worker started after the end of the upgrade");
    }
    let requests = load.end().await?;
    for failure in &requests.failed {
        writeln!(out, "  request: {failure}")?;
    }
    let tally = fleet.tally;
    fleet.cluster.stop().await?;
    let kind = if versions.differ { "another version" } else { "one build as both versions" };
    let figures = format!(
        "{replaced} replacements, {kind}; {} tasks: {} lost, {} doubled, {} other findings, {} reruns; \
         {} requests: {} retried, {} failed",
        tally.tasks,
        tally.lost,
        tally.doubled,
        tally.other,
        tally.reruns,
        requests.sent,
        requests.retried,
        requests.failed.len()
    );
    Ok(Verdict::new(tally.is_clean() && requests.failed.is_empty(), figures))
}

/// Replaces a process by one of another version, while every task moves on by one job. Completed tasks
/// are replaced by new ones.
async fn replace(
    fleet: &mut TaskFleet,
    which: Replaced,
    program: &Path,
    on_the_way: bool,
) -> Result<()> {
    if on_the_way {
        fleet.release(|_| false).await?;
        sleep(ON_THE_WAY).await;
    }
    let cluster = &mut fleet.cluster;
    // People get the new command line with the first server.
    if matches!(which, Replaced::Server(0)) {
        program.clone_into(&mut cluster.cli.program);
    }
    let process = match which {
        Replaced::Worker(at) => cluster.workers_mut().get_mut(at),
        Replaced::Server(at) => cluster.servers_mut().get_mut(at),
    };
    let process = process.context("the cluster has no such process")?;
    // A worker waits for a push that has begun, and the hook of the repository holds that.
    process.stop_within(STOP_TIMEOUT).await?;
    process.use_program(program);
    process.start().await.with_context(|| format!("the new {which} does not start"))?;
    fleet.note(match which {
        // Its runs start again elsewhere.
        Replaced::Worker(_) => RunRule::RunsRepeated,
        Replaced::Server(_) => RunRule::Once,
    });
    if !on_the_way {
        fleet.release(|_| false).await?;
    }
    fleet.settle().await?;
    let completed = fleet.examine_completed().await?;
    fleet.refill(completed).await?;
    fleet.settle().await
}

/// Returns `true` if the workflow of the newest task has a compact history, which is a behaviour of new
/// versions.
async fn has_compact_history(fleet: &TaskFleet) -> Result<bool> {
    let newest = fleet.lanes.iter().map(|lane| lane.case.task).max().context("there is no task")?;
    let client = temporal::connect(&fleet.cluster.temporal_address()?).await?;
    let handle = client.get_workflow_handle::<TaskWorkflow>(workflow_id(newest));
    let mut history = handle.fetch_history(WorkflowFetchHistoryOptions::default());
    let event = history.next().await.context("the workflow has no history")??;
    let Some(Attributes::WorkflowExecutionStartedEventAttributes(started)) = event.attributes
    else {
        bail!("the history does not begin with its start");
    };
    let payload = started.input.and_then(|input| input.payloads.into_iter().next());
    let payload = payload.context("the workflow has no input")?;
    let input: WorkflowInput = serde_json::from_slice(&payload.data)?;
    Ok(input.tuning.compact_history)
}

/// Runs `tamma migrate` of a version.
async fn migrate(program: &Path, cluster: &Cluster, more: &[&str]) -> Result<()> {
    let output = Command::new(program)
        .args(["migrate", "--database", &cluster.database_url()])
        .args(more)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await?;
    ensure!(output.status.success(), "`tamma migrate`: {}", output_text(&output));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_replaced_first_and_go_back_last() {
        let there = way_there();
        let is_worker = |it: &Replaced| matches!(it, Replaced::Worker(_));
        assert_eq!(there.len(), SERVERS + WORKERS);
        assert!(there.iter().take(WORKERS).all(is_worker));
        assert!(there.iter().rev().take(SERVERS).all(|it| !is_worker(it)));
    }
}
