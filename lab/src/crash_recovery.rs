//! Kills an agent, its worker or both at random moments of an edit, and looks what is missing.
//!
//! The agent appends numbered lines with the time to a file. Where the worker dies, its disk goes
//! with it, and a second worker with an empty disk takes the task over. Nothing that was written
//! more than the salvage interval before the kill may be missing when the second begins.

mod journal;
mod runner;
mod schedule;

use std::io::Write as _;

use anyhow::{Context as _, Result};

use self::runner::RecoveryRunner;
use self::schedule::KillSchedule;
use crate::support::verdict::Verdict;

/// Kills an agent, its worker or both at random moments, and looks what is missing.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many kills.
    #[arg(long, default_value_t = 20)]
    kills: u32,
    /// The seed of the moments, to have the same again.
    #[arg(long)]
    seed: Option<u64>,
    /// The salvage interval, in seconds.
    #[arg(long, default_value_t = 1)]
    interval: u32,
}

pub(crate) async fn run(arguments: &Args, quick: bool) -> Result<Verdict> {
    let kills = if quick { 3 } else { arguments.kills };
    let seed = arguments.seed.unwrap_or_else(schedule::seed);
    let mut schedule = KillSchedule::new(seed);
    let folder = std::env::temp_dir().join(format!("tamma-crash-recovery-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let kept = || format!("the logs are in `{}`", folder.display());
    let mut runner =
        RecoveryRunner::prepare(&folder, arguments.interval).await.with_context(kept)?;
    let mut out = std::io::stdout();
    writeln!(out, "seed {seed}, salvage interval {} s", arguments.interval)?;
    writeln!(
        out,
        "{:>2}  {:<6}  {:>7}  {:>7}  {:>6}  {:>5}  {:>8}  outcome",
        "", "killed", "after", "written", "needed", "found", "took"
    )?;
    let mut good = 0;
    for number in 1..=kills {
        let kill = schedule.kill(number);
        let line = match runner.trial(number, kill).await {
            Ok(found) => {
                good += u32::from(found.missing().is_none());
                found.to_string()
            }
            Err(error) => {
                format!("{:<6}  it could not be tried: {error:#}", kill.victim.to_string())
            }
        };
        writeln!(out, "{number:>2}  {line}")?;
    }
    let all = good == kills;
    drop(runner);
    if all {
        std::fs::remove_dir_all(&folder)?;
    } else {
        writeln!(std::io::stderr(), "{}", kept())?;
    }
    Ok(Verdict::new(all, format!("{good} of {kills}")))
}
