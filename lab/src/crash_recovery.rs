//! Kills an agent, its worker or both at random times during an edit, and counts missing lines.
//!
//! The agent appends numbered lines with timestamps to a file. If the worker is killed, its disk is
//! removed too, and a second worker with an empty disk takes over the task. Only lines written within
//! one checkpoint interval before the kill may be missing then.

mod journal;
mod runner;
mod schedule;

use std::io::Write as _;

use anyhow::{Context as _, Result};

use self::runner::RecoveryRunner;
use self::schedule::KillSchedule;
use crate::support::verdict::Verdict;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of kills
    #[arg(long, default_value_t = 20)]
    kills: u32,
    /// Seed of the kill times, to repeat a run
    #[arg(long)]
    seed: Option<u64>,
    /// Checkpoint interval, in seconds
    #[arg(long, default_value_t = 1)]
    interval: u32,
}

pub(crate) async fn run(arguments: &Args, quick: bool) -> Result<Verdict> {
    let kills = if quick { 3 } else { arguments.kills };
    let seed = arguments.seed.unwrap_or_else(schedule::seed);
    let mut schedule = KillSchedule::new(seed);
    let folder = std::env::temp_dir().join(format!("tamma-crash-recovery-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let logs = || format!("logs: {}", folder.display());
    let mut runner = RecoveryRunner::start(&folder, arguments.interval).await.with_context(logs)?;
    let mut out = std::io::stdout();
    writeln!(out, "seed {seed}, checkpoint interval {} s", arguments.interval)?;
    writeln!(
        out,
        "{:>2}  {:<6}  {:>7}  {:>7}  {:>6}  {:>5}  {:>8}  outcome",
        "", "killed", "after", "written", "needed", "found", "duration"
    )?;
    let mut passed = 0;
    for number in 1..=kills {
        let kill = schedule.kill(number);
        let line = match runner.trial(number, kill).await {
            Ok(outcome) => {
                passed += u32::from(outcome.failure().is_none());
                outcome.to_string()
            }
            Err(error) => {
                format!("{:<6}  not run: {error:#}", kill.victim.to_string())
            }
        };
        writeln!(out, "{number:>2}  {line}")?;
    }
    let all = passed == kills;
    drop(runner);
    if all {
        std::fs::remove_dir_all(&folder)?;
    } else {
        writeln!(std::io::stderr(), "{}", logs())?;
    }
    Ok(Verdict::new(all, format!("{passed} of {kills}")))
}
