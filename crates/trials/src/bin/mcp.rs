//! Steering Tamma from elsewhere: real clients of the Model Context Protocol list the tools, add a task,
//! read how it stands and approve its plan by its hash; and one whose person may not is refused. The
//! server wants a token, and everybody has one of their own.

#[path = "../mcp/client.rs"]
mod client;
#[path = "../mcp/story.rs"]
mod story;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser;
use tamma_trials::stage::{self, Stage, beside};

use crate::client::{Client, Way};

/// What the server was started with, and nobody else has.
const TOKEN: &str = "the-own-token-of-the-server";

/// Lets real clients of the Model Context Protocol take tasks to their approval.
#[derive(Debug, Parser)]
#[command(name = "mcp")]
struct Arguments {
    /// Without the real agent.
    #[arg(long)]
    few: bool,
    /// Where the protocol's own inspector is installed.
    #[arg(long, value_name = "FOLDER", default_value = "e2e/mcp")]
    inspector: PathBuf,
    /// Where the agents are installed, each in a folder of its name.
    #[arg(long, value_name = "FOLDER", default_value = "e2e/agents")]
    installed: PathBuf,
}

fn main() -> Result<ExitCode> {
    stage::main(run(Arguments::parse()))
}

async fn run(arguments: Arguments) -> Result<ExitCode> {
    let folder = beside("")?.join(format!("mcp-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let inspector =
        std::path::absolute(&arguments.inspector)?.join("node_modules/.bin/mcp-inspector");
    let agent = std::path::absolute(&arguments.installed)?.join("claude-code");
    let agent = (!arguments.few).then_some(agent);
    for program in [Some(&inspector), agent.as_ref()].into_iter().flatten() {
        ensure!(program.exists(), "`{}` is not there: run `just mcp`", program.display());
    }
    let mut stage = Stage::guarded(&folder, TOKEN).await?;
    let worker = stage.worker("work", &[]);
    stage.employ(worker).await?;
    let ground = story::Ground::prepare(&stage).await?;
    let mut clients = vec![
        Client::Inspector(inspector.clone(), Way::Stdio),
        Client::Inspector(inspector, Way::Http),
    ];
    clients.extend(agent.map(Client::Agent));
    let (mut good, mut out) = (0, std::io::stdout());
    for client in &clients {
        let mut told = String::new();
        let went = story::tell(&stage, &ground, client, &mut told).await;
        writeln!(out, "\n== {client} ==\n{told}")?;
        match went {
            Ok(()) => good += 1,
            Err(error) => writeln!(out, "   IT IS NOT SO: {error:#}")?,
        }
    }
    let mut told = String::new();
    let revoked = story::revoke(&stage, &ground, &clients, &mut told).await;
    writeln!(out, "\n== a token is taken away ==\n{told}")?;
    if let Err(error) = &revoked {
        writeln!(out, "   IT IS NOT SO: {error:#}")?;
    }
    stage.end().await?;
    let all = clients.len();
    writeln!(
        out,
        "\nmcp: {good} of {all} clients added, read and approved a task, and were refused what they may not"
    )?;
    if good == all && revoked.is_ok() {
        std::fs::remove_dir_all(&folder)?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(std::io::stderr(), "the logs are in `{}`", folder.display())?;
    Ok(ExitCode::FAILURE)
}
