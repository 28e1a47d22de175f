//! `tamma maintenance`: keeps agents from starting.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::json;
use tamma_server::dto::{MaintenanceStatus, MaintenanceView, NewMaintenance};

use crate::client::{self, Client, ClientArgs, IdentityArgs};
use crate::output::{self, sanitize};
use crate::style;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start maintenance: no agents start until it ends
    ///
    /// Running agents are not stopped. Tasks can be added and decided about; they wait, and continue by
    /// themselves. Workers notice it within 10 s.
    On(StartMaintenanceArgs),
    /// End maintenance
    Off(MaintenanceArgs),
    /// Show whether there is maintenance
    Status(MaintenanceArgs),
}

#[derive(Debug, Args)]
pub(crate) struct MaintenanceArgs {
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

#[derive(Debug, Args)]
pub(crate) struct StartMaintenanceArgs {
    /// Reason, shown on every page
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    more: MaintenanceArgs,
}

pub(super) fn run(command: &Command) -> Result<ExitCode> {
    let (Command::On(StartMaintenanceArgs { more, .. })
    | Command::Off(more)
    | Command::Status(more)) = command;
    client::block_on(&more.target, async {
        let client = Client::new(&more.target)?;
        let by = more.identity.resolve_name()?;
        let status: MaintenanceStatus = match command {
            Command::On(StartMaintenanceArgs { reason, .. }) => {
                let new = NewMaintenance { reason: reason.clone() };
                client.post("/maintenance", &by, client::new_id(), &new).await?
            }
            Command::Off(_) => {
                client.post("/maintenance/end", &by, client::new_id(), &json!({})).await?
            }
            Command::Status(_) => client.get_as("/maintenance", &by, &[]).await?,
        };
        if more.target.json {
            output::print_json(&status)?;
        } else {
            writeln!(anstream::stdout().lock(), "{}", format_status(&status))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn format_status(status: &MaintenanceStatus) -> String {
    match &status.maintenance {
        Some(MaintenanceView { reason, started_by, started_at }) => format!(
            "maintenance, started {} by {}: {}\nno agents start until `tamma maintenance off`",
            style::format_ago(*started_at, style::now()),
            sanitize(started_by),
            sanitize(reason)
        ),
        None => "no maintenance".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_cannot_change_the_terminal() {
        let view = MaintenanceView {
            reason: "new \u{1b}[31mdisks".to_owned(),
            started_by: "Ada".to_owned(),
            started_at: style::now(),
        };
        let text = format_status(&MaintenanceStatus { maintenance: Some(view) });
        assert!(text.contains("by Ada") && !text.contains('\u{1b}'), "{text:?}");
        let none = format_status(&MaintenanceStatus { maintenance: None });
        assert_eq!(none, "no maintenance");
    }
}
