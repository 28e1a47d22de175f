//! The circle: a task fails twice and teaches, the lesson waits, a person approves it, and the next task
//! that would do the same is stopped, or passes at once. With a real agent and a scripted model, through
//! the real loop; report as a scenario with the events of each task.

mod cases;
mod scenario;

use std::io::Write as _;

use anyhow::Result;
use strum::IntoEnumIterator as _;

use self::cases::LessonCase;
use self::scenario::LoopAgent;
use crate::support::cluster::Cluster;
use crate::support::verdict::Verdict;
use crate::support::{programs, tools};

pub(crate) async fn run(quick: bool) -> Result<Verdict> {
    // Not where temporary files are: a sandbox has those of its own.
    let folder = programs::folder()?.join(format!("learning-loop-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut cluster = Cluster::start(&folder).await?;
    let mut worker = cluster.worker("work", &[]);
    let agent = if quick {
        LoopAgent::Scripted
    } else {
        let modules = tools::npm_install(&programs::input("agents/claude-code")).await?;
        let programs = modules.join(".bin");
        let path = std::env::var("PATH").unwrap_or_default();
        worker = worker
            .with_env("PATH", format!("{}:{path}", programs.display()))
            .with_env("ANTHROPIC_API_KEY", "a-key-that-only-the-gateway-knows");
        LoopAgent::Real
    };
    cluster.start_worker(worker).await?;
    let (mut good, mut out) = (0, std::io::stdout());
    let cases: Vec<LessonCase> = LessonCase::iter().collect();
    for (case, number) in cases.iter().zip(1..) {
        let mut report = String::new();
        let result = scenario::tell(&cluster, &agent, number, *case, &mut report).await;
        writeln!(out, "{report}")?;
        match result {
            Ok(()) => good += 1,
            Err(error) => writeln!(out, "{case}: IT IS NOT SO: {error:#}")?,
        }
    }
    cluster.stop().await?;
    let passed = good == cases.len();
    if passed {
        std::fs::remove_dir_all(&folder)?;
    } else {
        writeln!(std::io::stderr(), "the logs are in `{}`", folder.display())?;
    }
    Ok(Verdict::new(passed, format!("{good} of {} came round", cases.len())))
}
