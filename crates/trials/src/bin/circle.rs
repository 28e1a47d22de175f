//! The circle: a task fails twice and teaches, the lesson waits, a person approves it, and the next task
//! that would do the same is stopped, or passes at once. With a real agent and a scripted model, through
//! the real loop; told as a story with the events of each task.

#[path = "../circle/story.rs"]
mod story;
#[path = "../circle/ways.rs"]
mod ways;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser;
use strum::IntoEnumIterator as _;
use tamma_trials::stage::{self, Stage, beside};

use crate::story::Agent;
use crate::ways::Way;

/// Goes round the circle of learning, once with a prohibition and once with a recommendation.
#[derive(Debug, Parser)]
#[command(name = "circle")]
struct Arguments {
    /// With an agent that follows a script, and no model.
    #[arg(long)]
    few: bool,
    /// Where the agents are installed, each in a folder of its name.
    #[arg(long, value_name = "FOLDER", default_value = "e2e/agents")]
    installed: PathBuf,
}

fn main() -> Result<ExitCode> {
    stage::main(run(Arguments::parse()))
}

async fn run(arguments: Arguments) -> Result<ExitCode> {
    // Not where temporary files are: a sandbox has those of its own.
    let folder = beside("")?.join(format!("circle-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut stage = Stage::start(&folder).await?;
    let mut worker = stage.worker("work", &[]);
    let agent = if arguments.few {
        Agent::Scripted
    } else {
        let programs =
            std::path::absolute(&arguments.installed)?.join("claude-code/node_modules/.bin");
        ensure!(programs.is_dir(), "`{}` is not there: run `just circle`", programs.display());
        let path = std::env::var("PATH").unwrap_or_default();
        worker = worker
            .with("PATH", format!("{}:{path}", programs.display()))
            .with("ANTHROPIC_API_KEY", "a-key-that-only-the-gateway-knows");
        Agent::Real
    };
    stage.employ(worker).await?;
    let (mut good, mut out) = (0, std::io::stdout());
    let ways: Vec<Way> = Way::iter().collect();
    for (way, number) in ways.iter().zip(1..) {
        let mut told = String::new();
        let went = story::tell(&stage, &agent, number, *way, &mut told).await;
        writeln!(out, "{told}")?;
        match went {
            Ok(()) => good += 1,
            Err(error) => writeln!(out, "{way}: IT IS NOT SO: {error:#}")?,
        }
    }
    stage.end().await?;
    writeln!(out, "circle: {good} of {} came round", ways.len())?;
    if good == ways.len() {
        std::fs::remove_dir_all(&folder)?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(std::io::stderr(), "the logs are in `{}`", folder.display())?;
    Ok(ExitCode::FAILURE)
}
