//! `tamma alert`: lists deliveries and tests channels.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use tamma_server::dto::{
    AlertDeliveries, AlertDelivery, AlertTestRequest, AlertTestResults, short_id,
};

use super::task::add::current_project;
use super::task::list::{new_table, render_table};
use crate::client::{self, Client, ClientArgs, IdentityArgs};
use crate::commands::doctor::CheckStatus;
use crate::output::{self, sanitize};
use crate::style;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List alerts, newest first, with their delivery status
    List(ListAlertsArgs),
    /// Send a test message to every channel of a project
    ///
    /// Exits with 1 if a delivery fails.
    Test(TestAlertsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListAlertsArgs {
    /// Task ID, or at least four characters from its start or end
    #[arg(long)]
    task: Option<String>,
    /// Maximum number of alerts
    #[arg(long, default_value_t = 50)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=500))]
    limit: u16,
    #[command(flatten)]
    target: ClientArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TestAlertsArgs {
    #[arg(long, help = "Project name or ID [default: the project of this repository]")]
    project: Option<String>,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

pub(super) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::List(arguments) => list(arguments),
        Command::Test(arguments) => test(arguments),
    }
}

fn list(arguments: &ListAlertsArgs) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let limit = arguments.limit.to_string();
        let mut query = vec![("limit", limit.as_str())];
        let task = match &arguments.task {
            Some(id) => Some(client.resolve_task(id).await?.to_string()),
            None => None,
        };
        if let Some(task) = &task {
            query.push(("task", task));
        }
        let list: AlertDeliveries = client.get("/alerts", &query).await?;
        if arguments.target.json {
            output::print_json(&list)?;
        } else {
            writeln!(anstream::stdout().lock(), "{}", format_deliveries(&list.deliveries))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn format_deliveries(deliveries: &[AlertDelivery]) -> String {
    if deliveries.is_empty() {
        return "No alerts yet. Test the channels with `tamma alert test`.".to_owned();
    }
    let now = style::now();
    let mut table = new_table(&["TASK", "ALERT", "RECEIVER", "STATUS", "ATTEMPTS", "ERROR"]);
    for delivery in deliveries {
        let status = match (&delivery.outcome, delivery.due_at) {
            (Some(outcome), _) => style::humanize(outcome),
            (None, Some(due)) if due > now => format!("in {}", style::format_duration(due - now)),
            (None, _) => "sending".to_owned(),
        };
        table.add_row([
            short_id(delivery.task),
            delivery.cause_text.clone(),
            delivery.receiver.clone(),
            status,
            delivery.attempts.to_string(),
            sanitize(delivery.error.as_deref().unwrap_or_default()),
        ]);
    }
    render_table(&table)
}

fn test(arguments: &TestAlertsArgs) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let by = arguments.identity.resolve_name()?;
        let project = match &arguments.project {
            Some(project) => Some(project.clone()),
            None => current_project(&client).await?,
        };
        let request = AlertTestRequest { project };
        let AlertTestResults { results: receipts } =
            client.post("/alerts/test", &by, client::new_id(), &request).await?;
        let all = receipts.iter().all(|receipt| receipt.arrived);
        if arguments.target.json {
            output::print_json(&AlertTestResults { results: receipts })?;
        } else {
            let mut out = anstream::stdout().lock();
            for receipt in &receipts {
                let verdict =
                    if receipt.arrived { CheckStatus::Passed } else { CheckStatus::Missing };
                let result = receipt.error.as_deref().unwrap_or("delivered");
                output::write_check(&mut out, verdict, &receipt.receiver, &sanitize(result))?;
            }
        }
        Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}
