//! What follows a failed review, with a real agent and a scripted model, through the real loop.
//!
//! Four cases are outcome to their ends. The results that were recorded on each are then backend_args to `core`
//! alone, and what it makes of them must be what happened: state by state, decision by decision.

mod case;
mod predict;
mod report;
mod runner;

use std::io::Write as _;

use anyhow::{Context as _, Result, bail};
use strum::IntoEnumIterator as _;

use self::case::EscalationCase;
use self::runner::{AgentSetup, EscalationRunner};
use crate::support::verdict::Verdict;
use crate::support::{programs, tools};

/// The cases of a quick run, with an agent that has no model.
const QUICK: [EscalationCase; 2] = [EscalationCase::Stuck, EscalationCase::Security];

/// Goes the cases that follow a failed review, and compares them with what `core` predicts.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The agent: claude-code, codex, or scripted for one without a model.
    #[arg(long, default_value = "claude-code")]
    agent: String,
    /// Only this case: `always_new`, stuck, security or budget.
    #[arg(long, value_name = "WAY")]
    only: Option<String>,
}

pub(crate) async fn run(arguments: &Args, quick: bool) -> Result<Verdict> {
    let cases: Vec<EscalationCase> = EscalationCase::iter()
        .filter(|case| !quick || QUICK.contains(case))
        .filter(|case| arguments.only.as_ref().is_none_or(|only| *only == case.to_string()))
        .collect();
    if cases.is_empty() {
        bail!("there is no such case");
    }
    let agent = agent(arguments, quick).await?;
    // Not where temporary files are: a sandbox has those of its own.
    let folder = programs::folder()?.join(format!("escalation-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let kept = || format!("the logs are in `{}`", folder.display());
    let runner = EscalationRunner::prepare(&folder, agent).await.with_context(kept)?;
    let (mut good, mut out) = (0, std::io::stdout());
    // All at once: a case mostly waits for its agent.
    let going = cases.iter().zip(1..).map(|(case, number)| runner.go(number, *case));
    let outcome = futures_util::future::join_all(going).await;
    for (case, outcome) in cases.iter().zip(outcome) {
        let told = match outcome {
            Ok(outcome) => report::compare(&runner.cluster.store, *case, &outcome).await,
            Err(error) => Err(error),
        };
        match told {
            Ok(told) => {
                good += usize::from(told.faults.is_empty());
                writeln!(out, "{told}\n")?;
            }
            Err(error) => writeln!(out, "{case}: it could not be outcome: {error:#}\n")?,
        }
    }
    drop(runner);
    let passed = good == cases.len();
    if passed {
        std::fs::remove_dir_all(&folder)?;
    } else {
        writeln!(std::io::stderr(), "{}", kept())?;
    }
    Ok(Verdict::new(passed, format!("{good} of {} as core predicts", cases.len())))
}

/// Who does the work.
async fn agent(arguments: &Args, quick: bool) -> Result<AgentSetup> {
    let key = match arguments.agent.as_str() {
        _ if quick => return Ok(AgentSetup::Scripted(programs::beside("scripted-agent")?)),
        "scripted" => return Ok(AgentSetup::Scripted(programs::beside("scripted-agent")?)),
        "claude-code" => "ANTHROPIC_API_KEY",
        "codex" => "OPENAI_API_KEY",
        other => bail!("there is no agent `{other}` here: claude-code, codex or scripted"),
    };
    let name = arguments.agent.clone();
    let modules = tools::npm_install(&programs::input("agents").join(&name)).await?;
    let programs = modules.join(".bin");
    Ok(AgentSetup::Real { name, programs, key })
}
