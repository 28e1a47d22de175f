//! Command line: selects an experiment, and prints its result as the last line and exit code.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{CommandFactory as _, Parser, Subcommand};
use strum::IntoStaticStr;
use tokio::signal::unix::{SignalKind, signal};
use uuid::Uuid;

use crate::support::bench::work;
use crate::support::verdict::Verdict;
use crate::{
    acme, agents, alerts, audit, bench_agents, bench_board, bench_core, bench_gateway, bench_loop,
    bench_replay, bench_store, bench_waiting, bench_workers, browser, canary, chaos, chart, chat,
    cluster, crash_recovery, docs, endurance, escalation, eval, fairness, false_claims,
    first_minute, forge, hostile_repositories, identity, image, knowledge, learning, learning_loop,
    mcp, merge_queue, objects, observe, pipeline, reconcile, restore, review, sandbox_escape,
    task_cost, tenancy, top, upgrade,
};

/// Run one experiment
///
/// The last line on standard output is `<experiment>: <figures>`. The exit code is 0 if the
/// experiment passed, and 1 if it failed.
#[derive(Debug, Parser)]
#[command(name = "lab")]
struct Args {
    /// Run the slice that CI runs (experiments without one run in full)
    #[arg(long, global = true)]
    quick: bool,
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Debug, Subcommand, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
enum Experiment {
    /// Install Tamma from its packages on a minimal system, and take the first task to its end
    FirstMinute(first_minute::Args),
    /// Build the container image, and run it hardened, with and without a sandbox for agents
    Image(image::Args),
    /// Install the Helm chart on a recording API server, and check what it gets
    Chart,
    /// Run every command of the documentation, and compare its output
    Docs(docs::Args),
    /// Run each built-in agent through one contract against a scripted model
    Agents(agents::Args),
    /// Review changes in Rust, Python and TypeScript with the real tools
    Review(review::Args),
    /// Run agents that claim to be done and are not
    FalseClaims(false_claims::Args),
    /// Fail reviews, and compare the reactions with the prediction of `core`
    Escalation(escalation::Args),
    /// Evaluate the scripted agents on the starter set of `tamma eval`
    Eval,
    /// Carry a lesson from a failed task to the next task that needs it
    LearningLoop,
    /// Run tasks with all outcomes, count their lessons and merge near duplicates
    Learning(learning::Args),
    /// Run a hostile agent that tries to escape its sandbox
    SandboxEscape(sandbox_escape::Args),
    /// Take hostile repositories through the whole product
    HostileRepositories(hostile_repositories::Args),
    /// Check one contract over a fake GitHub and a real Gitea, and take an issue to its merge
    Forge(forge::Args),
    /// Kill an agent, its worker or both at random times, and count missing lines
    CrashRecovery(crash_recovery::Args),
    /// Kill each component at each point of a task, and check that nothing is lost
    Chaos(chaos::Args),
    /// Strike a real Temporal cluster, its database and Tamma's processes with many tasks in flight
    Cluster(cluster::Args),
    /// Take stories through pipelines, and kill each component in each phase
    Pipeline(pipeline::Args),
    /// Land changes through the merge queue while a person moves the branch
    MergeQueue,
    /// Terminate, reset and delete workflows, and restore older databases, in each state of a task
    Reconcile(reconcile::Args),
    /// Replace servers and workers by another version and back, with tasks in flight
    Upgrade(upgrade::Args),
    /// Restore PostgreSQL to a moment in the middle of live tasks
    Restore(restore::Args),
    /// Sign people in with two real identity providers, and take their groups away
    Identity,
    /// Get and renew the certificate of two servers from a real certificate authority (ACME)
    Acme,
    /// Send requests of one organisation for what belongs to another, through every interface
    Tenancy,
    /// Control Tamma from real MCP clients
    Mcp,
    /// Send alerts to real receivers
    Alerts,
    /// Write, verify, export and manipulate an audit log of 100,000 entries
    Audit,
    /// Search databases, object storage, logs and traces for marked texts and secrets
    Canary,
    /// Keep transcripts in an S3 bucket of a real server, also during its outage
    Objects,
    /// Watch a task with a real Prometheus, every query of the dashboard, and a real Jaeger
    Observe,
    /// Take a person's day through a real browser, with a screenshot of every page
    Browser(browser::Args),
    /// Drive `tamma top` in a terminal of 80 × 24, with a capture of every screen
    Top(top::Args),
    /// Check labelled plans against labelled entries, and measure the duration
    Knowledge(knowledge::Args),
    /// Read labelled messages with the chat grammar, without a model
    Chat(chat::Args),
    /// Count what one task costs, and compare it with the expected counts
    TaskCost(task_cost::Args),
    /// Measure the waits of a small project behind a large one, with and without fairness
    Fairness(fairness::Args),
    /// Keep a steady load for hours, and check that nothing grows that must not
    Endurance(endurance::Args),
    /// Compare the task loop with a bare Temporal workflow
    BenchLoop(bench_loop::Args),
    /// Measure thousands of tasks that await approval
    BenchWaiting(bench_waiting::Args),
    /// Measure many concurrent agents on one worker
    BenchAgents(bench_agents::Args),
    /// Compare 2 and 4 workers with one
    BenchWorkers(bench_workers::Args),
    /// Measure the latency that the gateway adds to the first byte of a model response
    BenchGateway(bench_gateway::Args),
    /// Measure a board of 10,000 tasks with 200 open browsers
    BenchBoard,
    /// Measure pages with a million finished tasks
    BenchStore(bench_store::Args),
    /// Replay stored histories, as often as a year of weekly releases would keep them
    BenchReplay(bench_replay::Args),
    /// Measure `step` on one core
    BenchCore,
    /// Print the names of all experiments
    #[command(hide = true)]
    List,
    /// Run as a child process of a measurement
    #[command(hide = true)]
    BenchWorker { role: String, temporal: String, database: String, folder: PathBuf },
    /// Write a long log to a task, for `browser`
    #[command(hide = true)]
    WriteLog { database: String, task: Uuid, lines: u64 },
}

/// Runs the selected experiment and returns its exit code.
pub fn main() -> ExitCode {
    let arguments = Args::parse();
    let name: &'static str = (&arguments.experiment).into();
    let result = match arguments.experiment {
        Experiment::List => return exit_code(list()),
        Experiment::BenchWorker { role, temporal, database, folder } => {
            return exit_code(blocking(work::run_role(&role, &temporal, &database, &folder)));
        }
        Experiment::WriteLog { database, task, lines } => {
            return exit_code(blocking(browser::write_log(&database, task, lines)));
        }
        Experiment::SandboxEscape(own) => sandbox_escape::restart_with_key()
            .and_then(|()| blocking(interruptible(sandbox_escape::run(&own, arguments.quick)))),
        experiment => blocking(interruptible(run(experiment, arguments.quick))),
    };
    let verdict = result.unwrap_or_else(|error| Verdict::new(false, format!("failed: {error:#}")));
    match writeln!(std::io::stdout(), "{name}: {}", verdict.figures) {
        Ok(()) if verdict.passed => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

async fn run(experiment: Experiment, quick: bool) -> Result<Verdict> {
    match experiment {
        Experiment::FirstMinute(own) => first_minute::run(&own, quick).await,
        Experiment::Image(own) => image::run(&own, quick).await,
        Experiment::Chart => chart::run().await,
        Experiment::Docs(own) => docs::run(&own).await,
        Experiment::Agents(own) => agents::run(&own, quick).await,
        Experiment::Review(own) => review::run(&own, quick).await,
        Experiment::FalseClaims(own) => false_claims::run(&own).await,
        Experiment::Escalation(own) => escalation::run(&own, quick).await,
        Experiment::Eval => eval::run(quick).await,
        Experiment::LearningLoop => learning_loop::run(quick).await,
        Experiment::Learning(own) => learning::run(&own, quick).await,
        Experiment::SandboxEscape(own) => sandbox_escape::run(&own, quick).await,
        Experiment::HostileRepositories(own) => hostile_repositories::run(&own, quick).await,
        Experiment::Forge(own) => forge::run(&own, quick).await,
        Experiment::CrashRecovery(own) => crash_recovery::run(&own, quick).await,
        Experiment::Chaos(own) => chaos::run(&own, quick).await,
        Experiment::Cluster(own) => cluster::run(&own, quick).await,
        Experiment::Pipeline(own) => pipeline::run(&own, quick).await,
        Experiment::MergeQueue => merge_queue::run(quick).await,
        Experiment::Reconcile(own) => reconcile::run(&own, quick).await,
        Experiment::Upgrade(own) => upgrade::run(&own, quick).await,
        Experiment::Restore(own) => restore::run(&own, quick).await,
        Experiment::Identity => identity::run(quick).await,
        Experiment::Acme => acme::run(quick).await,
        Experiment::Tenancy => tenancy::run(quick).await,
        Experiment::Mcp => mcp::run(quick).await,
        Experiment::Alerts => alerts::run().await,
        Experiment::Audit => audit::run(quick).await,
        Experiment::Canary => canary::run().await,
        Experiment::Objects => objects::run().await,
        Experiment::Observe => observe::run().await,
        Experiment::Browser(own) => browser::run(&own, quick).await,
        Experiment::Top(own) => top::run(&own).await,
        Experiment::Knowledge(own) => knowledge::run(&own).await,
        Experiment::Chat(own) => chat::run(&own),
        Experiment::TaskCost(own) => task_cost::run(&own).await,
        Experiment::Fairness(own) => fairness::run(&own).await,
        Experiment::Endurance(own) => Box::pin(endurance::run(&own, quick)).await,
        Experiment::BenchLoop(own) => bench_loop::run(&own).await,
        Experiment::BenchWaiting(own) => bench_waiting::run(&own).await,
        Experiment::BenchAgents(own) => bench_agents::run(&own).await,
        Experiment::BenchWorkers(own) => bench_workers::run(&own).await,
        Experiment::BenchGateway(own) => bench_gateway::run(&own).await,
        Experiment::BenchBoard => Box::pin(bench_board::run()).await,
        Experiment::BenchStore(own) => Box::pin(bench_store::run(&own)).await,
        Experiment::BenchReplay(own) => bench_replay::run(&own).await,
        Experiment::BenchCore => Ok(bench_core::run()),
        Experiment::List | Experiment::BenchWorker { .. } | Experiment::WriteLog { .. } => {
            bail!("not an experiment")
        }
    }
}

/// Runs a future to completion on a new runtime.
fn blocking<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(future)
}

/// Stops an experiment on Ctrl-C or SIGTERM. Dropping it ends the processes that it started.
async fn interruptible(experiment: impl Future<Output = Result<Verdict>>) -> Result<Verdict> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        result = experiment => result,
        _ = interrupt.recv() => bail!("interrupted"),
        _ = terminate.recv() => bail!("terminated"),
    }
}

/// Prints the names of all experiments, one per line.
fn list() -> Result<()> {
    let command = Args::command();
    let mut out = std::io::stdout();
    for experiment in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        writeln!(out, "{}", experiment.get_name())?;
    }
    Ok(())
}

fn exit_code(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A closed standard error does not change the exit code.
            let _ = writeln!(std::io::stderr(), "lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn every_experiment_is_in_the_readme() {
        let readme = include_str!("../README.md");
        let command = Args::command();
        for experiment in command.get_subcommands().filter(|command| !command.is_hide_set()) {
            let row = format!("| `{}` |", experiment.get_name());
            assert!(readme.contains(&row), "README.md has no row `{row}`");
        }
    }
}
