//! Reactions to failed reviews, with a real agent, a scripted model and the real task loop.
//!
//! Four cases run to their end. `core` then replays the recorded results alone and must predict each
//! state and each decision.

mod case;
mod predict;
mod report;
mod runner;

use std::io::Write as _;

use anyhow::{Context as _, Result, bail};
use strum::IntoEnumIterator as _;

use self::case::EscalationCase;
use self::runner::EscalationRunner;
use crate::support::agent_setup::AgentSetup;
use crate::support::programs;
use crate::support::verdict::Verdict;

/// Cases of a quick run, which uses an agent without a model.
const QUICK: [EscalationCase; 2] = [EscalationCase::Stuck, EscalationCase::Security];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Agent: a built-in one, or scripted (without a model)
    #[arg(long, default_value = "claude-code")]
    agent: String,
    /// Run only this case: `always_new`, stuck, security or budget
    #[arg(long, value_name = "CASE")]
    only: Option<String>,
}

pub(crate) async fn run(arguments: &Args, quick: bool) -> Result<Verdict> {
    let cases: Vec<EscalationCase> = EscalationCase::iter()
        .filter(|case| !quick || QUICK.contains(case))
        .filter(|case| arguments.only.as_ref().is_none_or(|only| *only == case.to_string()))
        .collect();
    if cases.is_empty() {
        bail!("no case matches the options: use always_new, stuck, security or budget");
    }
    let agent = if quick { "scripted" } else { arguments.agent.as_str() };
    let agent = AgentSetup::install(agent).await?;
    // Not in /tmp, because each sandbox has its own.
    let folder = programs::folder()?.join(format!("escalation-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let logs = || format!("logs: {}", folder.display());
    let runner = EscalationRunner::start(&folder, agent).await.with_context(logs)?;
    let (mut predicted, mut out) = (0, std::io::stdout());
    // Concurrently, because a case mostly waits for its agent.
    let running = cases.iter().zip(1..).map(|(case, number)| runner.run(number, *case));
    let outcomes = futures_util::future::join_all(running).await;
    for (case, outcome) in cases.iter().zip(outcomes) {
        let report = match outcome {
            Ok(outcome) => report::compare(&runner.cluster.store, *case, &outcome).await,
            Err(error) => Err(error),
        };
        match report {
            Ok(report) => {
                predicted += usize::from(report.failures.is_empty());
                writeln!(out, "{report}\n")?;
            }
            Err(error) => writeln!(out, "{case}: not run: {error:#}\n")?,
        }
    }
    drop(runner);
    let passed = predicted == cases.len();
    if passed {
        std::fs::remove_dir_all(&folder)?;
    } else {
        writeln!(std::io::stderr(), "{}", logs())?;
    }
    Ok(Verdict::new(passed, format!("{predicted} of {} as core predicts", cases.len())))
}
