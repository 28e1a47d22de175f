//! `tamma top`: board, inbox, tasks, logs and decisions in the terminal.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::client::{self, Client, ClientArgs, IdentityArgs};
use crate::top;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

pub(super) fn run(arguments: &Args) -> Result<ExitCode> {
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if arguments.target.json || !is_terminal {
        bail!(
            "`tamma top` needs a terminal\n  help: in a script, use `tamma task list --json`, \
             `tamma inbox --json` or `tamma task log TASK --follow`"
        );
    }
    client::block_on(&arguments.target, async {
        let by = arguments.identity.resolve_name()?;
        top::run(Client::new(&arguments.target)?, by).await
    })
}
