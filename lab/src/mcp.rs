//! Steering Tamma from elsewhere: real clients of the Model Context Protocol list the tools, add a task,
//! read how it stands and approve its plan by its hash; and one whose person may not is refused. The
//! server wants a token, and everybody has one of their own.

mod client;
mod story;

use std::io::Write as _;

use anyhow::Result;

use self::client::{Client, Way};
use crate::support::stage::Stage;
use crate::support::verdict::Verdict;
use crate::support::{programs, tools};

/// What the server was started with, and nobody else has.
const TOKEN: &str = "the-own-token-of-the-server";

pub(crate) async fn run(quick: bool) -> Result<Verdict> {
    let folder = programs::folder()?.join(format!("mcp-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let inspector = tools::npm_install(&programs::input("mcp")).await?.join(".bin/mcp-inspector");
    let agent = (!quick).then(|| programs::input("agents/claude-code"));
    if let Some(agent) = &agent {
        tools::npm_install(agent).await?;
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
    let passed = good == all && revoked.is_ok();
    if passed {
        std::fs::remove_dir_all(&folder)?;
    } else {
        writeln!(std::io::stderr(), "the logs are in `{}`", folder.display())?;
    }
    let figures = format!(
        "{good} of {all} clients added, read and approved a task, and were refused what they may not"
    );
    Ok(Verdict::new(passed, figures))
}
