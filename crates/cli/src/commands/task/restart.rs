//! `tamma task restart`: restarts a task from the database.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use tamma_server::dto::{TaskStatus, short_id};

use crate::client::{self, Client, ClientArgs, IdentityArgs};
use crate::output::{self, sanitize};
use crate::style;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Task ID, or at least four characters from its start or end
    #[arg(value_name = "TASK")]
    id: String,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

pub(super) fn run(arguments: &Args) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let by = arguments.identity.resolve_name()?;
        let id = client.resolve_task(&arguments.id).await?;
        let path = format!("/tasks/{id}/restart");
        let status: TaskStatus =
            client.post(&path, &by, client::new_id(), &serde_json::json!({})).await?;
        if arguments.target.json {
            output::print_json(&status)?;
            return Ok(ExitCode::SUCCESS);
        }
        let state = style::paint(status.state.label(), style::state_colour(status.state));
        let mut out = anstream::stdout().lock();
        writeln!(out, "{} restarted by {}; now {state}", short_id(id), sanitize(&status.by))?;
        Ok(ExitCode::SUCCESS)
    })
}
