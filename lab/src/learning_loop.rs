//! Learning loop with a real agent and a scripted model.
//!
//! A task fails twice and leaves a lesson. A pending lesson changes nothing. After a person approves it,
//! the next task that would repeat the mistake is stopped, or passes its first review.

mod cases;
mod scenario;

use std::io::Write as _;

use anyhow::Result;
use strum::IntoEnumIterator as _;
use tamma_testkit::Cluster;

use self::cases::LessonCase;
use self::scenario::LoopAgent;
use crate::support::verdict::Verdict;
use crate::support::{programs, tools};

pub(crate) async fn run(quick: bool) -> Result<Verdict> {
    // Not in /tmp, because each sandbox has its own.
    let folder = programs::folder()?.join(format!("learning-loop-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut cluster = Cluster::builder().folder(&folder).private_servers().server().workers(1);
    let agent = if quick {
        LoopAgent::Scripted
    } else {
        let modules = tools::npm_install(&programs::input("agents/claude-code")).await?;
        let programs = modules.join(".bin");
        let path = std::env::var("PATH").unwrap_or_default();
        cluster = cluster
            .worker_env("PATH", format!("{}:{path}", programs.display()))
            .worker_env("ANTHROPIC_API_KEY", "a-key-that-only-the-gateway-knows");
        LoopAgent::Real
    };
    let cluster = cluster.start().await?;
    let (mut closed, mut out) = (0, std::io::stdout());
    let cases: Vec<LessonCase> = LessonCase::iter().collect();
    for (case, number) in cases.iter().zip(1..) {
        let mut report = String::new();
        let result = scenario::run(&cluster, &agent, number, *case, &mut report).await;
        writeln!(out, "{report}")?;
        match result {
            Ok(()) => closed += 1,
            Err(error) => writeln!(out, "{case}: FAILED: {error:#}")?,
        }
    }
    cluster.stop().await?;
    let passed = closed == cases.len();
    if passed {
        std::fs::remove_dir_all(&folder)?;
    } else {
        writeln!(std::io::stderr(), "logs: {}", folder.display())?;
    }
    Ok(Verdict::new(passed, format!("{closed} of {} loops closed", cases.len())))
}
