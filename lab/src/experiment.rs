//! The command line: one experiment, its options, and its result as the last line and exit code.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{CommandFactory as _, Parser, Subcommand};
use strum::IntoStaticStr;
use tokio::signal::unix::{SignalKind, signal};

use crate::support::bench::work;
use crate::support::verdict::Verdict;
use crate::{
    agents, alerts, bench_agents, bench_board, bench_core, bench_gateway, bench_loop,
    bench_waiting, browser, chaos, chat, crash_recovery, escalation, false_claims, knowledge,
    learning, learning_loop, mcp, review, sandbox_escape,
};

/// Run one experiment
///
/// The last line on standard output is `<experiment>: <figures>`. The exit code is 0 if the
/// experiment passed, and 1 if it failed.
#[derive(Debug, Parser)]
#[command(name = "lab")]
struct Arguments {
    /// Run the slice that CI runs; an experiment without one runs in full
    #[arg(long, global = true)]
    quick: bool,
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Debug, Subcommand, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
enum Experiment {
    /// Run every built-in agent, as a real program, through one contract against a scripted model
    Agents(agents::Arguments),
    /// Review changes in Rust, Python and TypeScript with the real tools
    Review(review::Arguments),
    /// Play agents that claim to be done and are not
    FalseClaims(false_claims::Arguments),
    /// Follow the ways after a failed review, and compare them with the prediction of `core`
    Escalation(escalation::Arguments),
    /// Take a lesson from a failed task to the next task that needs it
    LearningLoop,
    /// Play tasks of all outcomes, count their lessons, and merge near duplicates
    Learning(learning::Arguments),
    /// Let a hostile agent try every known way out of its sandbox
    SandboxEscape(sandbox_escape::Arguments),
    /// Kill an agent, its worker or both at random moments, and count the lines that are missing
    CrashRecovery(crash_recovery::Arguments),
    /// Kill each part of Tamma at each point of a task, and count what is lost
    Chaos(chaos::Arguments),
    /// Steer Tamma from real MCP clients
    Mcp,
    /// Send alerts to real receivers
    Alerts,
    /// Go through a person's day in a real browser, and write a picture of every page
    Browser,
    /// Check labelled plans against labelled entries, and measure how long a check takes
    Knowledge(knowledge::Arguments),
    /// Read labelled messages with the grammar of the chat alone
    Chat(chat::Arguments),
    /// Measure the loop beside the bare engine
    BenchLoop(bench_loop::Arguments),
    /// Measure thousands of tasks that wait for approval
    BenchWaiting(bench_waiting::Arguments),
    /// Measure 50 agents at once on one worker
    BenchAgents,
    /// Measure the time that the gateway adds to the first byte of a model's answer
    BenchGateway(bench_gateway::Arguments),
    /// Measure a board of 10,000 tasks and 200 open browsers
    BenchBoard,
    /// Measure `step` on one core
    BenchCore,
    /// Print the names of all experiments
    #[command(hide = true)]
    List,
    /// Work as a child process of a measurement
    #[command(hide = true)]
    BenchWorker { role: String, temporal: String, database: String, folder: PathBuf },
}

/// Runs the experiment that the command line names, and returns its exit code.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let name: &'static str = (&arguments.experiment).into();
    let ended = match arguments.experiment {
        Experiment::List => return done(list()),
        Experiment::BenchWorker { role, temporal, database, folder } => {
            return done(blocking(work::play(&role, &temporal, &database, &folder)));
        }
        Experiment::SandboxEscape(own) => sandbox_escape::with_key()
            .and_then(|()| blocking(interruptible(sandbox_escape::run(&own)))),
        experiment => blocking(interruptible(run(experiment, arguments.quick))),
    };
    let verdict = ended.unwrap_or_else(|error| Verdict::new(false, format!("failed: {error:#}")));
    match writeln!(std::io::stdout(), "{name}: {}", verdict.figures) {
        Ok(()) if verdict.passed => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

async fn run(experiment: Experiment, quick: bool) -> Result<Verdict> {
    match experiment {
        Experiment::Agents(own) => agents::run(&own, quick).await,
        Experiment::Review(own) => review::run(&own, quick).await,
        Experiment::FalseClaims(own) => false_claims::run(&own).await,
        Experiment::Escalation(own) => escalation::run(&own, quick).await,
        Experiment::LearningLoop => learning_loop::run(quick).await,
        Experiment::Learning(own) => learning::run(&own, quick).await,
        Experiment::SandboxEscape(own) => sandbox_escape::run(&own).await,
        Experiment::CrashRecovery(own) => crash_recovery::run(&own, quick).await,
        Experiment::Chaos(own) => chaos::run(&own, quick).await,
        Experiment::Mcp => mcp::run(quick).await,
        Experiment::Alerts => alerts::run().await,
        Experiment::Browser => browser::run(quick).await,
        Experiment::Knowledge(own) => knowledge::run(&own).await,
        Experiment::Chat(own) => chat::run(&own),
        Experiment::BenchLoop(own) => bench_loop::run(&own).await,
        Experiment::BenchWaiting(own) => bench_waiting::run(&own).await,
        Experiment::BenchAgents => bench_agents::run().await,
        Experiment::BenchGateway(own) => bench_gateway::run(&own).await,
        Experiment::BenchBoard => bench_board::run().await,
        Experiment::BenchCore => Ok(bench_core::run()),
        Experiment::List | Experiment::BenchWorker { .. } => bail!("this is no experiment"),
    }
}

/// Runs a future to its end on a runtime of its own.
fn blocking<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(future)
}

/// Stops an experiment at Ctrl-C or SIGTERM. Dropping it ends the processes that it has started.
async fn interruptible(experiment: impl Future<Output = Result<Verdict>>) -> Result<Verdict> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        ended = experiment => ended,
        _ = interrupt.recv() => bail!("interrupted"),
        _ = terminate.recv() => bail!("terminated"),
    }
}

/// Prints the name of every experiment on a line of its own.
fn list() -> Result<()> {
    let command = Arguments::command();
    let mut out = std::io::stdout();
    for experiment in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        writeln!(out, "{}", experiment.get_name())?;
    }
    Ok(())
}

fn done(ended: Result<()>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody listens if this fails.
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
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_experiment_is_in_the_readme() {
        let readme = include_str!("../README.md");
        let command = Arguments::command();
        for experiment in command.get_subcommands().filter(|one| !one.is_hide_set()) {
            let row = format!("| `{}` |", experiment.get_name());
            assert!(readme.contains(&row), "there is no row `{row}`");
        }
    }
}
