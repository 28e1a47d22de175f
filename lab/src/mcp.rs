//! Controls Tamma from real clients of the Model Context Protocol.
//!
//! Each client lists the tools, adds a task, reads its state and approves its plan by hash. A client
//! whose person lacks the permission is refused. The server requires a token, and each person has one.

mod client;
mod scenario;

use std::io::Write as _;

use anyhow::Result;
use tamma_testkit::Cluster;

use self::client::{McpClient, Transport};
use crate::support::verdict::Verdict;
use crate::support::{programs, tools};

/// Token of the server itself, which no client has.
const TOKEN: &str = "token-of-the-server-itself";

pub(crate) async fn run(quick: bool) -> Result<Verdict> {
    let folder = programs::folder()?.join(format!("mcp-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let inspector = tools::npm_install(&programs::input("mcp")).await?.join(".bin/mcp-inspector");
    let agent = (!quick).then(|| programs::input("agents/claude-code"));
    if let Some(agent) = &agent {
        tools::npm_install(agent).await?;
    }
    let cluster = Cluster::builder()
        .folder(&folder)
        .private_servers()
        .server_with_token(TOKEN)
        .workers(1)
        .start()
        .await?;
    let fixture = scenario::McpFixture::prepare(&cluster).await?;
    let mut clients = vec![
        McpClient::Inspector(inspector.clone(), Transport::Stdio),
        McpClient::Inspector(inspector, Transport::Http),
    ];
    clients.extend(agent.map(McpClient::Agent));
    let (mut passing, mut out) = (0, std::io::stdout());
    for client in &clients {
        let mut report = String::new();
        let result = scenario::run(&cluster, &fixture, client, &mut report).await;
        writeln!(out, "\n== {client} ==\n{report}")?;
        match result {
            Ok(()) => passing += 1,
            Err(error) => writeln!(out, "   FAILED: {error:#}")?,
        }
    }
    let mut report = String::new();
    let revoked = scenario::revoke(&cluster, &fixture, &clients, &mut report).await;
    writeln!(out, "\n== revoked token ==\n{report}")?;
    if let Err(error) = &revoked {
        writeln!(out, "   FAILED: {error:#}")?;
    }
    cluster.stop().await?;
    let all = clients.len();
    let passed = passing == all && revoked.is_ok();
    if passed {
        std::fs::remove_dir_all(&folder)?;
    } else {
        writeln!(std::io::stderr(), "logs: {}", folder.display())?;
    }
    let figures = format!(
        "{passing} of {all} clients added, read and approved a task, and were refused what they may not do"
    );
    Ok(Verdict::new(passed, figures))
}
