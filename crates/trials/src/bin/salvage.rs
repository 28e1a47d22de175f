//! Kills an agent, its worker or both at random moments of an edit, and looks what is missing.
//!
//! The agent appends numbered lines with the time to a file. Where the worker dies, its disk goes
//! with it, and a second worker with an empty disk takes the task over. Nothing that was written
//! more than the salvage interval before the kill may be missing when the second begins.

#[path = "../salvage/ground.rs"]
mod ground;
#[path = "../salvage/journal.rs"]
mod journal;
#[path = "../salvage/moment.rs"]
mod moment;

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser;
use tamma_trials::stage;

use self::ground::Ground;
use self::moment::Dice;

/// Kills an agent, its worker or both at random moments, and looks what is missing.
#[derive(Debug, Parser)]
#[command(name = "salvage")]
struct Arguments {
    /// Only three kills, one of each kind.
    #[arg(long)]
    few: bool,
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

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    stage::main(async { run(&arguments).await })
}

async fn run(arguments: &Arguments) -> Result<ExitCode> {
    let kills = if arguments.few { 3 } else { arguments.kills };
    let seed = arguments.seed.unwrap_or_else(moment::seed);
    let mut dice = Dice::new(seed);
    let folder = std::env::temp_dir().join(format!("tamma-salvage-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let kept = || format!("the logs are in `{}`", folder.display());
    let mut ground = Ground::prepare(&folder, arguments.interval).await.with_context(kept)?;
    let mut out = std::io::stdout();
    writeln!(out, "seed {seed}, salvage interval {} s", arguments.interval)?;
    writeln!(
        out,
        "{:>2}  {:<6}  {:>7}  {:>7}  {:>6}  {:>5}  {:>8}  outcome",
        "", "killed", "after", "written", "needed", "found", "took"
    )?;
    let mut good = 0;
    for number in 1..=kills {
        let kill = dice.kill(number);
        let line = match ground.trial(number, kill).await {
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
    drop(ground);
    if all {
        std::fs::remove_dir_all(&folder)?;
    } else {
        writeln!(std::io::stderr(), "{}", kept())?;
    }
    writeln!(out, "salvage: {good} of {kills}")?;
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
