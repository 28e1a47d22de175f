//! Table of the results.

use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use tamma_engine::sandbox::SandboxKind;

use super::contract::Scenario;
use super::token_usage::{self, TaskTokens};
use crate::support::verdict::Verdict;

/// Name of the build that must keep the limits.
pub(crate) const CURRENT: &str = "current";

/// Result of one scenario with one agent.
pub(crate) struct ScenarioResult {
    pub(crate) took: Duration,
    /// Optional remark, or the violation of the contract.
    pub(crate) result: Result<Option<&'static str>>,
}

pub(crate) struct ContractTable {
    scenarios: Vec<Scenario>,
    agents: Vec<(String, Vec<ScenarioResult>)>,
    /// Tokens of a task by agent and build.
    tokens: Vec<(String, &'static str, Result<TaskTokens>)>,
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
        Self { scenarios: scenarios.to_vec(), agents: Vec::new(), tokens: Vec::new() }
    }

    pub(crate) fn add(&mut self, agent: &str, cells: Vec<ScenarioResult>) -> Result<()> {
        anyhow::ensure!(cells.len() == self.scenarios.len(), "a scenario of {agent} is missing");
        self.agents.push((agent.to_owned(), cells));
        Ok(())
    }

    /// Adds the tokens of a task with an agent. Those of the current build are checked.
    pub(crate) fn add_tokens(
        &mut self,
        agent: &str,
        build: &'static str,
        tokens: Result<TaskTokens>,
    ) {
        let word = if tokens.is_ok() { "measured" } else { "FAILED" };
        // Errors are ignored: the table repeats the result.
        let _ =
            writeln!(std::io::stderr(), "{agent}: {}, {build} build: {word}", token_usage::NAME);
        self.tokens.push((agent.to_owned(), build, tokens));
    }

    /// Prints the tokens of all tasks, and returns the number of measurements that hold and of all.
    fn print_tokens(&self, out: &mut impl Write) -> Result<(usize, usize)> {
        let (mut held, mut text, mut errors) = (0, String::new(), Vec::new());
        for (agent, build, tokens) in &self.tokens {
            let result = match tokens {
                Ok(tokens) => {
                    tokens.write_rows(&mut text, agent, build);
                    // Earlier builds are only compared.
                    if *build == CURRENT { tokens.check() } else { Ok(()) }
                }
                Err(error) => Err(anyhow::anyhow!("{error:#}")),
            };
            match result {
                Ok(()) => held += 1,
                Err(error) => errors.push(format!("{agent}: {}: {error}", token_usage::NAME)),
            }
        }
        if !text.is_empty() {
            writeln!(out, "\n{}{text}", token_usage::TABLE_HEAD)?;
        }
        for error in errors {
            writeln!(out, "\n{error}")?;
        }
        Ok((held, self.tokens.len()))
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
        let (mut held, mut all) = self.print_tokens(&mut out)?;
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
