//! Runs each built-in agent, as a real program, through one contract.
//!
//! Everything is real except the model: the agent with its built-in definition, its process, the
//! gateway, Tamma's tools and git. The model is a local script, so runs are free, repeatable and
//! reach nothing else.

mod contract;
pub(crate) mod fixture;
mod given_scenarios;
mod table;
mod token_usage;
mod tool_scenarios;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use tamma_core::rules::Rules;
use tamma_engine::sandbox;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use self::contract::Scenario;
use self::fixture::Candidate;
use self::table::{ContractTable, ScenarioResult};
use self::token_usage::TammaBuild;
use crate::support::verdict::Verdict;
use crate::support::{programs, tools};

/// Agents of a quick run.
const QUICK: [&str; 2] = ["claude-code", "codex"];

/// Agent whose tokens a quick run measures.
const QUICK_TOKENS: &str = "claude-code";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run only these agents (repeatable)
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Run only scenarios whose name contains this text
    #[arg(long, value_name = "TEXT")]
    scenario: Option<String>,
    /// Number of scenarios of an agent that run concurrently
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    at_once: usize,
    /// Run the agents without a sandbox
    #[arg(long)]
    open: bool,
    /// Also measure the tokens of a `tamma` program from before repairs resumed sessions (commit 68560ff)
    #[arg(long, value_name = "PROGRAM")]
    before: Option<PathBuf>,
}

pub(crate) async fn run(arguments: &Args, quick: bool) -> Result<Verdict> {
    let is_selected = |name: &str| match (arguments.only.as_slice(), quick) {
        ([], true) => QUICK.contains(&name),
        ([], false) => true,
        (only, _) => only.iter().any(|one| one == name),
    };
    let agents: Vec<_> =
        Rules::default().agents.into_iter().filter(|(name, _)| is_selected(name)).collect();
    let scenarios: Vec<Scenario> = Scenario::all()
        .filter(|scenario| !quick || scenario.is_quick())
        .filter(|scenario| {
            arguments.scenario.as_ref().is_none_or(|text| scenario.to_string().contains(text))
        })
        .collect();
    let measures =
        arguments.scenario.as_ref().is_none_or(|text| token_usage::NAME.contains(text.as_str()));
    if agents.is_empty() || (scenarios.is_empty() && !measures) {
        bail!("no agent or scenario matches the options");
    }
    let sandbox = if arguments.open { None } else { sandbox::best_available() };
    table::print_sandbox(sandbox);
    let mut table = ContractTable::of(&scenarios);
    // One agent at a time, because some use more than 500 MB.
    for (name, rules) in agents {
        let installed = programs::input("agents").join(&name);
        tools::npm_install(&installed).await?;
        let candidate = Candidate { name, rules, installed, sandbox };
        let candidate = Arc::new(candidate);
        table.add(&candidate.name, check(&candidate, &scenarios, arguments.at_once).await?)?;
        if measures && (!quick || candidate.name == QUICK_TOKENS) {
            measure(&candidate, arguments.before.as_deref(), &mut table).await;
        }
    }
    table.print()
}

/// Measures the tokens of a task with one agent, and with an earlier build if there is one.
async fn measure(candidate: &Candidate, before: Option<&Path>, table: &mut ContractTable) {
    let builds = before.map(|program| ("before", TammaBuild::Before(program)));
    for (name, build) in builds.into_iter().chain([(table::CURRENT, TammaBuild::Current)]) {
        let tokens = token_usage::measure(candidate, build).await;
        table.add_tokens(&candidate.name, name, tokens);
    }
}

/// Runs the scenarios of one agent.
async fn check(
    candidate: &Arc<Candidate>,
    scenarios: &[Scenario],
    at_once: usize,
) -> Result<Vec<ScenarioResult>> {
    let permits = Arc::new(Semaphore::new(at_once.max(1)));
    let mut running = Vec::new();
    for scenario in scenarios.iter().copied() {
        let (permits, candidate) = (permits.clone(), candidate.clone());
        running.push(tokio::spawn(async move {
            let _permit = permits.acquire().await;
            let start = Instant::now();
            let result = contract::check(scenario, &candidate).await;
            let cell = ScenarioResult { took: start.elapsed(), result };
            table::progress(&candidate.name, scenario, &cell);
            cell
        }));
    }
    let mut cells = Vec::new();
    for handle in running {
        cells.push(handle.await.context("a scenario panicked")?);
    }
    Ok(cells)
}
