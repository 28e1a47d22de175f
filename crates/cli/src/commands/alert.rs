//! `tamma alert`: what people were told, and whether it arrives.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use tamma_server::shape::{Deliveries, Delivery, Receipts, TestAlerts, short};

use super::task::list::{drawn, table};
use crate::client::{self, Asker, Client, Target};
use crate::commands::doctor::Verdict;
use crate::look;
use crate::output::{self, plain};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Lists messages to people, the newest first, with what came of each.
    List(List),
    /// Sends a test to every channel of a project, and says whether it arrived.
    ///
    /// Exits with 1 if one of them did not.
    Test(Test),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Of this task only: at least four digits of its id.
    #[arg(long)]
    task: Option<String>,
    /// How many at most.
    #[arg(long, default_value_t = 50)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=500))]
    limit: u16,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Test {
    /// The name of the project.
    #[arg(long)]
    project: Option<String>,
    #[command(flatten)]
    asker: Asker,
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::List(arguments) => list(arguments),
        Command::Test(arguments) => test(arguments),
    }
}

fn list(arguments: &List) -> Result<ExitCode> {
    client::run(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let limit = arguments.limit.to_string();
        let mut query = vec![("limit", limit.as_str())];
        let task = match &arguments.task {
            Some(said) => Some(client.which(said).await?.to_string()),
            None => None,
        };
        if let Some(task) = &task {
            query.push(("task", task));
        }
        let found: Deliveries = client.get("/alerts", &query).await?;
        if arguments.target.json {
            output::json(&found)?;
        } else {
            writeln!(anstream::stdout().lock(), "{}", listed(&found.deliveries))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn listed(deliveries: &[Delivery]) -> String {
    if deliveries.is_empty() {
        return "Nobody was told anything yet. `tamma alert test` tries the channels.".to_owned();
    }
    let now = look::now();
    let mut table = table(&["TASK", "WHY", "TO", "STANDS", "TRIED", "WHY NOT"]);
    for one in deliveries {
        let stands = match (&one.outcome, one.due_at) {
            (Some(outcome), _) => outcome.replace('_', " "),
            (None, Some(due)) if due > now => format!("in {}", look::lasting(due - now)),
            (None, _) => "now".to_owned(),
        };
        table.add_row([
            short(one.task),
            one.in_words.clone(),
            one.receiver.clone(),
            stands,
            one.attempts.to_string(),
            plain(one.error.as_deref().unwrap_or_default()),
        ]);
    }
    drawn(&table)
}

fn test(arguments: &Test) -> Result<ExitCode> {
    client::run(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let by = arguments.asker.name()?;
        let whose = TestAlerts { project: arguments.project.clone() };
        let Receipts { receipts } =
            client.post("/alerts/test", &by, client::new_id(), &whose).await?;
        let all = receipts.iter().all(|receipt| receipt.arrived);
        if arguments.target.json {
            output::json(&Receipts { receipts })?;
        } else {
            let mut out = anstream::stdout().lock();
            for receipt in &receipts {
                let verdict = if receipt.arrived { Verdict::Good } else { Verdict::Missing };
                let words = receipt.error.as_deref().unwrap_or("it arrived");
                output::check(&mut out, verdict, &receipt.receiver, &plain(words))?;
            }
        }
        Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}
