//! Table of the results.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Result;
use tamma_engine::sandbox::SandboxKind;

use super::contract::Scenario;
use crate::support::verdict::Verdict;

/// Result of one scenario with one agent.
pub(crate) struct ScenarioResult {
    pub(crate) took: Duration,
    /// Optional remark, or the violation of the contract.
    pub(crate) result: Result<Option<&'static str>>,
}

pub(crate) struct ContractTable {
    scenarios: Vec<Scenario>,
    agents: Vec<(String, Vec<ScenarioResult>)>,
}

/// Prints the kind of sandbox in use.
pub(crate) fn print_sandbox(sandbox: Option<SandboxKind>) {
    let sandbox = sandbox.map_or_else(|| "none".to_owned(), |kind| kind.to_string());
    let _ = writeln!(std::io::stderr(), "sandbox: {sandbox}");
}

/// Prints a result while other scenarios run.
pub(crate) fn progress(agent: &str, scenario: Scenario, cell: &ScenarioResult) {
    let seconds = cell.took.as_secs_f32();
    let word = if cell.result.is_ok() { "ok" } else { "FAILED" };
    // Errors are ignored: the table repeats the result.
    let _ = writeln!(std::io::stderr(), "{agent}: {scenario}: {word} ({seconds:.1} s)");
}

impl ContractTable {
    pub(crate) fn of(scenarios: &[Scenario]) -> Self {
        Self { scenarios: scenarios.to_vec(), agents: Vec::new() }
    }

    pub(crate) fn add(&mut self, agent: &str, cells: Vec<ScenarioResult>) -> Result<()> {
        anyhow::ensure!(cells.len() == self.scenarios.len(), "a scenario of {agent} is missing");
        self.agents.push((agent.to_owned(), cells));
        Ok(())
    }

    pub(crate) fn print(self) -> Result<Verdict> {
        let mut out = std::io::stdout().lock();
        write!(out, "{:<44}", "scenario")?;
        for (agent, _) in &self.agents {
            write!(out, "{agent:>24}")?;
        }
        writeln!(out)?;
        for (row, scenario) in self.scenarios.iter().enumerate() {
            write!(out, "{:<44}", scenario.to_string())?;
            for (_, cells) in &self.agents {
                let cell = &cells[row];
                let seconds = format!("{:.1} s", cell.took.as_secs_f32());
                let word = match &cell.result {
                    Ok(None) => "ok",
                    Ok(Some(note)) => note,
                    Err(_) => "FAILED",
                };
                write!(out, "{:>24}", format!("{word}, {seconds}"))?;
            }
            writeln!(out)?;
        }
        let (mut held, mut all) = (0, 0);
        for (agent, cells) in &self.agents {
            for (scenario, cell) in self.scenarios.iter().zip(cells) {
                all += 1;
                match &cell.result {
                    Ok(_) => held += 1,
                    Err(error) => writeln!(out, "\n{agent}: {scenario}: {error:#}")?,
                }
            }
        }
        writeln!(out)?;
        Ok(Verdict::new(held == all, format!("{held} of {all}")))
    }
}
