//! What follows a failed review, with a real agent and a scripted model, through the real loop.
//!
//! Four ways are gone to their ends. The results that were recorded on each are then given to `core`
//! alone, and what it makes of them must be what happened: state by state, decision by decision.

mod ground;
mod predict;
mod told;
mod way;

use std::io::Write as _;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use strum::IntoEnumIterator as _;

use self::ground::{Agent, Ground};
use self::way::Way;
use crate::support::verdict::Verdict;
use crate::support::{programs, tools};

/// The ways of a quick run, with an agent that has no model.
const QUICK: [Way; 2] = [Way::Stuck, Way::Security];

/// Goes the ways that follow a failed review, and compares them with what `core` predicts.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The agent: claude-code, codex, or scripted for one without a model.
    #[arg(long, default_value = "claude-code")]
    agent: String,
    /// Only this way: `always_new`, stuck, security or budget.
    #[arg(long, value_name = "WAY")]
    only: Option<String>,
}

pub(crate) async fn run(arguments: &Arguments, quick: bool) -> Result<Verdict> {
    let ways: Vec<Way> = Way::iter()
        .filter(|way| !quick || QUICK.contains(way))
        .filter(|way| arguments.only.as_ref().is_none_or(|only| *only == way.to_string()))
        .collect();
    if ways.is_empty() {
        bail!("there is no such way");
    }
    let agent = agent(arguments, quick).await?;
    // Not where temporary files are: a sandbox has those of its own.
    let folder = programs::folder()?.join(format!("escalation-{}", std::process::id()));
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
    let passed = good == ways.len();
    if passed {
        std::fs::remove_dir_all(&folder)?;
    } else {
        writeln!(std::io::stderr(), "{}", kept())?;
    }
    Ok(Verdict::new(passed, format!("{good} of {} as core predicts", ways.len())))
}

/// Who does the work.
async fn agent(arguments: &Arguments, quick: bool) -> Result<Agent> {
    let key = match arguments.agent.as_str() {
        _ if quick => return Ok(Agent::Scripted(programs::beside("scripted-agent")?)),
        "scripted" => return Ok(Agent::Scripted(programs::beside("scripted-agent")?)),
        "claude-code" => "ANTHROPIC_API_KEY",
        "codex" => "OPENAI_API_KEY",
        other => bail!("there is no agent `{other}` here: claude-code, codex or scripted"),
    };
    let name = arguments.agent.clone();
    let modules = tools::npm_install(&programs::input("agents").join(&name)).await?;
    let programs = modules.join(".bin");
    Ok(Agent::Real { name, programs, key })
}
