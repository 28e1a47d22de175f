#![doc = include_str!("../README.md")]

mod finding;
mod fixture;
mod hold;
mod leftover;
mod parts;
mod point;
mod table;
mod trial;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use crate::point::{Victim, every_kill, few_kills};
use crate::table::Table;
use crate::trial::Ground;

/// Who adds and approves tasks.
const PERSON: &str = "Ann";

/// Kills each part of Tamma at each point of a task's way, and looks what is lost.
#[derive(Debug, Parser)]
#[command(name = "chaos")]
struct Arguments {
    /// Only eight kills, which are chosen to find most.
    #[arg(long)]
    few: bool,
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

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let kills = if arguments.few { few_kills() } else { every_kill() };
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
        let mut out = std::io::stdout().lock();
        for (point, victim) in kills {
            writeln!(out, "{victim:<8}  {point}")?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        // What was started goes with what is dropped here.
        tokio::select! {
            ended = run(kills) => ended,
            asked = asked_to_end() => asked.and_then(|()| bail!("it was asked to end")),
        }
    })
}

async fn run(kills: Vec<(point::Point, Victim)>) -> Result<ExitCode> {
    let folder = std::env::temp_dir().join(format!("tamma-chaos-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let kept = || format!("the logs are in `{}`", folder.display());
    let (tamma, agent) = (beside("tamma")?, beside("scripted-agent")?);
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
    table.end()?;
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Waits for Ctrl-C, or for a polite `kill`.
async fn asked_to_end() -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

/// A program that is built with this one.
fn beside(name: &str) -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    let found = here.parent().unwrap_or(Path::new(".")).join(name);
    if !found.is_file() {
        bail!("`{}` is not built: run `cargo build --workspace --bins`", found.display());
    }
    Ok(found)
}
