//! The circle: a task fails twice and teaches, the lesson waits, a person approves it, and the next task
//! that would do the same is stopped, or passes at once. With a real agent and a scripted model, through
//! the real loop; told as a story with the events of each task.

mod story;
mod ways;

use std::io::Write as _;

use anyhow::Result;
use strum::IntoEnumIterator as _;

use self::story::Agent;
use self::ways::Way;
use crate::support::stage::Stage;
use crate::support::verdict::Verdict;
use crate::support::{programs, tools};

pub(crate) async fn run(quick: bool) -> Result<Verdict> {
    // Not where temporary files are: a sandbox has those of its own.
    let folder = programs::folder()?.join(format!("learning-loop-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut stage = Stage::start(&folder).await?;
    let mut worker = stage.worker("work", &[]);
    let agent = if quick {
        Agent::Scripted
    } else {
        let modules = tools::npm_install(&programs::input("agents/claude-code")).await?;
        let programs = modules.join(".bin");
        let path = std::env::var("PATH").unwrap_or_default();
        worker = worker
            .with_env("PATH", format!("{}:{path}", programs.display()))
            .with_env("ANTHROPIC_API_KEY", "a-key-that-only-the-gateway-knows");
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
    let passed = good == ways.len();
    if passed {
        std::fs::remove_dir_all(&folder)?;
    } else {
        writeln!(std::io::stderr(), "the logs are in `{}`", folder.display())?;
    }
    Ok(Verdict::new(passed, format!("{good} of {} came round", ways.len())))
}
