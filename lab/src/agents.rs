//! Runs every built-in agent, as the program that users have, through one contract.
//!
//! Everything is real but the model: the agent with its built-in definition, its process, the
//! gateway, our tools, git. The model is a script on this machine, so that every run costs nothing,
//! is the same every time, and reaches nothing else.

mod contract;
mod stage;
mod table;

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use tamma_core::rules::Rules;
use tamma_engine::sandbox;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use self::contract::Scenario;
use self::stage::Candidate;
use self::table::{Cell, Table};
use crate::support::verdict::Verdict;
use crate::support::{programs, tools};

/// The agents of a quick run.
const QUICK: [&str; 2] = ["claude-code", "codex"];

/// Runs every built-in agent, as a real program, through one contract against a scripted model.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only these agents.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Only scenarios that have this in their name.
    #[arg(long, value_name = "TEXT")]
    scenario: Option<String>,
    /// How many scenarios of an agent run at once.
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    at_once: usize,
    /// Without a cage around the agents.
    #[arg(long)]
    open: bool,
}

pub(crate) async fn run(arguments: &Arguments, quick: bool) -> Result<Verdict> {
    let wanted = |name: &str| match (arguments.only.as_slice(), quick) {
        ([], true) => QUICK.contains(&name),
        ([], false) => true,
        (only, _) => only.iter().any(|one| one == name),
    };
    let agents: Vec<_> =
        Rules::default().agents.into_iter().filter(|(name, _)| wanted(name)).collect();
    let scenarios: Vec<Scenario> = Scenario::all()
        .filter(|scenario| !quick || scenario.is_quick())
        .filter(|scenario| {
            arguments.scenario.as_ref().is_none_or(|text| scenario.to_string().contains(text))
        })
        .collect();
    if agents.is_empty() || scenarios.is_empty() {
        bail!("there is no such agent or scenario");
    }
    let cage = if arguments.open { None } else { sandbox::best_available() };
    table::confined_by(cage);
    let mut table = Table::of(&scenarios);
    // One agent at a time: one of them alone takes more than half a gigabyte.
    for (name, rules) in agents {
        let installed = programs::input("agents").join(&name);
        tools::npm_install(&installed).await?;
        let candidate = Candidate { name, rules, installed, cage };
        let candidate = Arc::new(candidate);
        table.add(&candidate.name, hold(&candidate, &scenarios, arguments.at_once).await?)?;
    }
    table.print()
}

/// Runs the scenarios of one agent.
async fn hold(
    candidate: &Arc<Candidate>,
    scenarios: &[Scenario],
    at_once: usize,
) -> Result<Vec<Cell>> {
    let places = Arc::new(Semaphore::new(at_once.max(1)));
    let mut running = Vec::new();
    for scenario in scenarios.iter().copied() {
        let (places, candidate) = (places.clone(), candidate.clone());
        running.push(tokio::spawn(async move {
            let _place = places.acquire().await;
            let began = Instant::now();
            let result = contract::hold(scenario, &candidate).await;
            let cell = Cell { took: began.elapsed(), result };
            table::progress(&candidate.name, scenario, &cell);
            cell
        }));
    }
    let mut cells = Vec::new();
    for one in running {
        cells.push(one.await.context("a scenario did not come to its end")?);
    }
    Ok(cells)
}
