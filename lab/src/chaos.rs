//! Kills each component at each point of a task, and checks that nothing is lost (docs/chaos.md).
//!
//! The experiment runs the unchanged programs `tamma` and `scripted-agent`. `point` lists points and
//! kills, `fixture` has the repository and the agent's script, `trial` makes one kill, `examination`
//! and `finding` judge it, and `table` prints the results.

pub(crate) mod examination;
pub(crate) mod finding;
pub(crate) mod fixture;
mod point;
mod table;
mod trial;

use std::io::Write as _;

use anyhow::{Context as _, Result, bail};

use self::point::{every_kill, quick_kills};
use self::table::KillTable;
use self::trial::TrialRunner;
use crate::support::components::Victim;
use crate::support::verdict::Verdict;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run only points whose name contains this text
    #[arg(long, value_name = "TEXT")]
    point: Option<String>,
    /// Kill only this component: worker, server, temporal or postgres
    #[arg(long, value_name = "NAME")]
    victim: Option<Victim>,
    /// List the kills without making them
    #[arg(long)]
    list: bool,
}

pub(crate) async fn run(arguments: &Args, quick: bool) -> Result<Verdict> {
    let kills = if quick { quick_kills() } else { every_kill() };
    let kills: Vec<_> = kills
        .into_iter()
        .filter(|(_, victim)| arguments.victim.is_none_or(|name| name == *victim))
        .filter(|(point, _)| {
            arguments.point.as_ref().is_none_or(|text| point.to_string().contains(text))
        })
        .collect();
    if kills.is_empty() {
        bail!("no kill matches the options: `--list` shows all kills");
    }
    if arguments.list {
        for (point, victim) in &kills {
            writeln!(std::io::stdout(), "{victim:<8}  {point}")?;
        }
        return Ok(Verdict::new(true, format!("{} kills listed", kills.len())));
    }
    let folder = std::env::temp_dir().join(format!("tamma-chaos-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let logs = || format!("logs: {}", folder.display());
    let mut runner = TrialRunner::start(&folder).await.with_context(logs)?;
    let mut table = KillTable::begin()?;
    for (point, victim) in kills {
        table.add(&runner.trial(point, victim).await)?;
    }
    let clean = table.is_clean();
    if !clean {
        std::fs::write(folder.join("postgres.log"), runner.components.cluster.postgres()?.log()?)?;
        writeln!(std::io::stderr(), "{}", logs())?;
    }
    drop(runner);
    if clean {
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(Verdict::new(clean, table.end()?))
}
