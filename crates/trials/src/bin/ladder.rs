//! What follows a failed review, with a real agent and a scripted model, through the real loop.
//!
//! Four ways are gone to their ends. The results that were recorded on each are then given to `core`
//! alone, and what it makes of them must be what happened: state by state, decision by decision.

#[path = "../ladder/ground.rs"]
mod ground;
#[path = "../ladder/predict.rs"]
mod predict;
#[path = "../ladder/told.rs"]
mod told;
#[path = "../ladder/way.rs"]
mod way;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use strum::IntoEnumIterator as _;
use tamma_trials::stage::{self, beside};

use crate::ground::{Agent, Ground};
use crate::way::Way;

/// The ways that CI goes, with an agent that has no model.
const FEW: [Way; 2] = [Way::Stuck, Way::Security];

/// Goes the ways that follow a failed review, and compares them with what `core` predicts.
#[derive(Debug, Parser)]
#[command(name = "ladder")]
struct Arguments {
    /// Only two of the ways, with an agent that follows a script.
    #[arg(long)]
    few: bool,
    /// The agent: claude-code, codex, or scripted for one without a model.
    #[arg(long, default_value = "claude-code")]
    agent: String,
    /// Only this way: `always_new`, stuck, security or budget.
    #[arg(long, value_name = "WAY")]
    only: Option<String>,
    /// Where the agents are installed, each in a folder of its name.
    #[arg(long, value_name = "FOLDER", default_value = "e2e/agents")]
    installed: PathBuf,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    stage::main(async { run(&arguments).await })
}

async fn run(arguments: &Arguments) -> Result<ExitCode> {
    let ways: Vec<Way> = Way::iter()
        .filter(|way| !arguments.few || FEW.contains(way))
        .filter(|way| arguments.only.as_ref().is_none_or(|only| *only == way.to_string()))
        .collect();
    if ways.is_empty() {
        bail!("there is no such way");
    }
    let agent = agent(arguments)?;
    // Not where temporary files are: a sandbox has those of its own.
    let folder = beside("")?.join(format!("ladder-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let kept = || format!("the logs are in `{}`", folder.display());
    let ground = Ground::prepare(&folder, agent).await.with_context(kept)?;
    let (mut good, mut out) = (0, std::io::stdout());
    // All at once: a way mostly waits for its agent.
    let going = ways.iter().zip(1..).map(|(way, number)| ground.go(number, *way));
    let gone = futures_util::future::join_all(going).await;
    for (way, gone) in ways.iter().zip(gone) {
        let told = match gone {
            Ok(gone) => told::tell(&ground.stage.store, *way, &gone).await,
            Err(error) => Err(error),
        };
        match told {
            Ok(told) => {
                good += usize::from(told.faults.is_empty());
                writeln!(out, "{told}\n")?;
            }
            Err(error) => writeln!(out, "{way}: it could not be gone: {error:#}\n")?,
        }
    }
    drop(ground);
    writeln!(out, "ladder: {good} of {} as core predicts", ways.len())?;
    if good == ways.len() {
        std::fs::remove_dir_all(&folder)?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(std::io::stderr(), "{}", kept())?;
    Ok(ExitCode::FAILURE)
}

/// Who does the work.
fn agent(arguments: &Arguments) -> Result<Agent> {
    let key = match arguments.agent.as_str() {
        _ if arguments.few => return Ok(Agent::Scripted(beside("scripted-agent")?)),
        "scripted" => return Ok(Agent::Scripted(beside("scripted-agent")?)),
        "claude-code" => "ANTHROPIC_API_KEY",
        "codex" => "OPENAI_API_KEY",
        other => bail!("the ladder is not gone with `{other}`: claude-code, codex or scripted"),
    };
    let name = arguments.agent.clone();
    let programs = std::path::absolute(&arguments.installed)?.join(&name).join("node_modules/.bin");
    if !programs.is_dir() {
        bail!("`{name}` is not installed in `{}`: run `just ladder`", programs.display());
    }
    Ok(Agent::Real { name, programs, key })
}
