//! Restores PostgreSQL to a moment in the middle of live tasks, which have gone on since, and takes all of
//! them to their end (docs/operating.md).
//!
//! The script of `packaging/backup` archives and restores. With a real Temporal server, its databases are
//! on the same PostgreSQL server and go back to the same moment; the development server does not go back,
//! so that the reconciler has to bring both sides together.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tamma_core::history::EntryName;
use tamma_core::ids::TaskId;
use tamma_testkit::Cluster;
use tamma_testkit::cluster::DATABASE;
use tamma_testkit::postgres::PostgresServer;
use tamma_testkit::temporal::{self, TemporalLayout};
use tamma_testkit::wait::wait_until;

use crate::chaos::examination::RunRule;
use crate::cluster::lane::{Lane, Stage};
use crate::support::fleet::{TaskFleet, now};
use crate::support::verdict::Verdict;

/// Number of tasks of the quick slice.
const QUICK_TASKS: u32 = 10;

/// Number of history shards of a real Temporal server.
const SHARDS: u32 = 16;

/// Arguments of the workers: both together can run all agents.
const WORKER_ARGS: [&str; 2] = ["--slots", "60"];

/// Number of workers.
const WORKERS: u32 = 2;

/// Time limit for the archive, and for the end of the recovery.
const ARCHIVE_TIMEOUT: Duration = Duration::from_mins(2);

/// Time within which the tasks repeat what was lost.
const CATCH_UP: Duration = Duration::from_mins(3);

/// Script that archives and restores, in the folder of the server.
const SCRIPT: &str = "postgres-backup";

/// Current time of the database, as the script reads it.
const NOW: &str =
    "SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of live tasks
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100))]
    tasks: u32,
}

pub(crate) async fn run(arguments: &Args, quick: bool) -> Result<Verdict> {
    let tasks = if quick { QUICK_TASKS } else { arguments.tasks };
    let folder = std::env::temp_dir().join(format!("tamma-restore-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let logs = || format!("logs: {}", folder.display());
    let verdict = restore_live_tasks(tasks, &folder).await.with_context(logs)?;
    if verdict.passed {
        fs::remove_dir_all(&folder)?;
    } else {
        writeln!(std::io::stderr(), "{}", logs())?;
    }
    Ok(verdict)
}

async fn restore_live_tasks(tasks: u32, folder: &Path) -> Result<Verdict> {
    let is_real = temporal::is_built();
    let builder = Cluster::builder().folder(folder);
    let builder = if is_real {
        builder.temporal_cluster(TemporalLayout::OneProcess, SHARDS)
    } else {
        builder.private_servers()
    };
    let cluster = builder
        .database_settings(&["archive_mode=on"])
        .server()
        .server_env("TAMMA_RECONCILE_SECONDS", "1")
        // A hundred tasks that start at the same time on a few cores are late with their heartbeats.
        .server_env("TAMMA_HEARTBEAT_SECONDS", "15")
        .workers(WORKERS)
        .worker_args(&WORKER_ARGS)
        .start()
        .await?;
    let mut out = std::io::stdout();
    let backups = start_archive(cluster.postgres()?).await?;
    writeln!(out, "base backup taken, log archived")?;
    let mut fleet = TaskFleet::start(cluster, tasks).await?;
    fleet.settle().await?;
    fleet.record_baseline().await?;
    // Some tasks now wait for approval.
    fleet.release(|stage| stage != Stage::Plan).await?;
    fleet.settle().await?;
    let (live, before) = (fleet.lanes.len(), steps(&fleet).await?);
    let moment = fleet.cluster.postgres()?.query("postgres", NOW).await?;

    // The development server would know completed tasks that the database has as open, and a person
    // would have to say whether their changes are delivered.
    fleet.release(|stage| !is_real && stage == Stage::Deliver).await?;
    fleet.settle().await?;
    let lost = steps(&fleet).await?;
    let gone_on = differences(&before, &lost);
    writeln!(out, "{live} live tasks at {moment}; {gone_on} of them have gone on since")?;
    ensure!(gone_on > 0, "no task has gone on, so there is nothing to lose");

    let began = now();
    restore(&mut fleet.cluster, &backups, &moment).await?;
    let others = differences(&before, &steps(&fleet).await?);
    writeln!(out, "restored; {others} tasks are at another step than at that moment")?;
    start_tamma(&mut fleet.cluster).await?;
    fleet.note(RunRule::HistoryRepeated);
    for lane in fleet.lanes.iter().filter(|lane| lane.is_approved()) {
        // Decisions after the moment are lost, and people are asked again.
        lane.approve(&fleet.cluster).await?;
    }
    // If it takes longer, the end of the tasks says what is wrong.
    let _ = wait_until("the lost steps", CATCH_UP, async || {
        let now = steps(&fleet).await?;
        let is_there = lost.iter().zip(&now).all(|(lost, now)| now.1 >= lost.1);
        Ok(is_there.then_some(()))
    })
    .await;
    let seconds = began.elapsed().as_secs_f64();
    writeln!(out, "tasks have repeated what was lost, {seconds:.0} s after the outage")?;
    let ids: Vec<_> = fleet.lanes.iter().map(|lane| lane.case.task).collect();
    fleet.finish().await?;
    let reconciled = reconciled(&fleet.cluster, &ids).await?;
    let tally = fleet.tally;
    fleet.cluster.stop().await?;
    let temporal = if is_real { "restored with it" } else { "development server, not restored" };
    let figures = format!(
        "{live} live tasks, {gone_on} had gone on: {} continued to their end, {} lost, {} doubled, {} \
         other findings, {reconciled} reconciled; Temporal: {temporal}; {seconds:.0} s",
        tally.tasks, tally.lost, tally.doubled, tally.other
    );
    Ok(Verdict::new(tally.is_clean() && tally.tasks == live, figures))
}

/// Archives the log with the script, and takes a base backup. Returns the folder of the backups.
async fn start_archive(postgres: &PostgresServer) -> Result<String> {
    let script = postgres.folder().join(SCRIPT);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/backup").join(SCRIPT);
    fs::copy(&source, &script).with_context(|| source.display().to_string())?;
    let (script, backups) =
        (script.display().to_string(), postgres.folder().join("server/backups"));
    let backups = backups.display().to_string();
    let list = ["bash", script.as_str(), "list"];
    let unmounted = postgres.run_as_owner(&[("TAMMA_BACKUPS", backups.as_str())], &list).await;
    ensure!(unmounted.is_err(), "the script made the folder of the backups by itself");
    postgres.run_as_owner(&[], &["mkdir", backups.as_str()]).await?;
    let archive = format!(
        "ALTER SYSTEM SET archive_command = 'TAMMA_BACKUPS={backups} bash {script} archive %p %f'"
    );
    postgres.query("postgres", &archive).await?;
    postgres.query("postgres", "SELECT pg_reload_conf()").await?;
    let url = postgres.url("postgres", "postgres");
    let base = ["bash", script.as_str(), "base", "--dbname", &url];
    postgres.run_as_owner(&[("TAMMA_BACKUPS", backups.as_str())], &base).await?;
    Ok(backups)
}

/// Ends everything as a lost machine would, and restores the database to a moment.
async fn restore(cluster: &mut Cluster, backups: &str, moment: &str) -> Result<()> {
    // What was written since is archived, too.
    let switch = "SELECT pg_walfile_name(pg_switch_wal())";
    let segment = cluster.postgres()?.query("postgres", switch).await?;
    let archived = Path::new(backups).join("wal").join(segment);
    wait_until("the archive", ARCHIVE_TIMEOUT, async || Ok(archived.exists().then_some(())))
        .await?;
    for server in cluster.servers_mut() {
        server.kill().await?;
    }
    for worker in cluster.workers_mut() {
        worker.kill().await?;
    }
    if let Ok(temporal) = cluster.temporal_cluster_mut() {
        for node in temporal.nodes_mut() {
            node.kill().await?;
        }
    }
    cluster.store.close().await;
    let postgres = cluster.postgres_mut()?;
    postgres.kill().await?;
    let data = postgres.folder().join("server/data");
    fs::rename(&data, postgres.folder().join("server/data-before"))?;
    let (script, data) = (postgres.folder().join(SCRIPT), data.display().to_string());
    let script = script.display().to_string();
    let call = ["bash", script.as_str(), "restore", data.as_str(), moment];
    postgres.run_as_owner(&[("TAMMA_BACKUPS", backups)], &call).await?;
    postgres.restart().await?;
    wait_until("the end of the recovery", ARCHIVE_TIMEOUT, async || {
        let recovers = postgres.query(DATABASE, "SELECT pg_is_in_recovery()").await?;
        Ok((recovers == "f").then_some(()))
    })
    .await?;
    cluster.reconnect().await
}

/// Starts Temporal, if it was ended, and Tamma.
async fn start_tamma(cluster: &mut Cluster) -> Result<()> {
    if let Ok(temporal) = cluster.temporal_cluster_mut() {
        for node in temporal.nodes_mut() {
            node.restart().await?;
        }
    }
    for server in cluster.servers_mut() {
        server.start().await?;
    }
    for worker in cluster.workers_mut() {
        worker.start().await?;
    }
    Ok(())
}

/// Returns the stored step of each task, in the order of the lanes.
async fn steps(fleet: &TaskFleet) -> Result<Vec<(TaskId, u64)>> {
    let mut steps = Vec::new();
    for Lane { case, .. } in &fleet.lanes {
        steps.push((case.task, fleet.cluster.store.task(case.task).await?.step));
    }
    Ok(steps)
}

/// Returns the number of tasks that are at another step.
fn differences(before: &[(TaskId, u64)], after: &[(TaskId, u64)]) -> usize {
    before.iter().filter(|it| !after.contains(it)).count()
}

/// Returns the number of tasks whose history says that they were reconciled with Temporal.
async fn reconciled(cluster: &Cluster, tasks: &[TaskId]) -> Result<usize> {
    let mut count = 0;
    for task in tasks {
        let entries = cluster.history(*task).await?;
        count += usize::from(entries.iter().any(|it| it.name == EntryName::SmTaskReconciled));
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tamma_testkit::sample::task_id;

    #[test]
    fn a_task_that_is_missing_or_at_another_step_differs() {
        let before = [(task_id(1), 4), (task_id(2), 7), (task_id(3), 1)];
        assert_eq!(differences(&before, &before), 0);
        assert_eq!(differences(&before, &[(task_id(1), 4), (task_id(2), 8)]), 2);
    }
}
