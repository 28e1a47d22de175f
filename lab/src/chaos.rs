//! Kills each part of Tamma at each point of a task's way, and looks what is lost (docs/chaos.md).
//!
//! It drives the built programs `tamma` and `scripted-agent`, and changes nothing in them. `point`
//! has the points and the victims, `parts` the processes, `fixture` the repository and the agent's
//! script, `hold` a hold in the middle of a transaction, `trial` one kill, `finding` the rules of the
//! judgement, `leftover` processes that still run, and `table` the output.

mod finding;
mod fixture;
mod hold;
mod leftover;
mod parts;
mod point;
mod table;
mod trial;

use std::io::Write as _;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use self::point::{Victim, every_kill, quick_kills};
use self::table::Table;
use self::trial::Ground;
use crate::support::programs;
use crate::support::verdict::Verdict;

/// Who adds and approves tasks.
const PERSON: &str = "Ann";

/// Kills each part of Tamma at each point of a task's way, and looks what is lost.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only points that have this in their name.
    #[arg(long, value_name = "TEXT")]
    point: Option<String>,
    /// Only this victim: worker, server, temporal or postgres.
    #[arg(long, value_name = "NAME")]
    victim: Option<Victim>,
    /// Names the kills, and kills nobody.
    #[arg(long)]
    list: bool,
}

pub(crate) async fn run(arguments: &Arguments, quick: bool) -> Result<Verdict> {
    let kills = if quick { quick_kills() } else { every_kill() };
    let kills: Vec<_> = kills
        .into_iter()
        .filter(|(_, victim)| arguments.victim.is_none_or(|wanted| wanted == *victim))
        .filter(|(point, _)| {
            arguments.point.as_ref().is_none_or(|text| point.to_string().contains(text))
        })
        .collect();
    if kills.is_empty() {
        bail!("there is no such kill: `--list` names them");
    }
    if arguments.list {
        for (point, victim) in &kills {
            writeln!(std::io::stdout(), "{victim:<8}  {point}")?;
        }
        return Ok(Verdict::new(true, format!("{} kills, none made", kills.len())));
    }
    let folder = std::env::temp_dir().join(format!("tamma-chaos-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let kept = || format!("the logs are in `{}`", folder.display());
    let (tamma, agent) = (programs::beside("tamma")?, programs::beside("scripted-agent")?);
    let mut ground = Ground::prepare(&tamma, &agent, &folder).await.with_context(kept)?;
    let mut table = Table::begin()?;
    for (point, victim) in kills {
        table.add(&ground.trial(point, victim).await)?;
    }
    let clean = table.is_clean();
    if !clean {
        std::fs::write(folder.join("postgres.log"), ground.parts.postgres.log()?)?;
        writeln!(std::io::stderr(), "{}", kept())?;
    }
    drop(ground);
    if clean {
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(Verdict::new(clean, table.end()?))
}
