//! `tamma chat`: chat in the terminal.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::Result;
use tamma_server::dto::{ChatReply, NewChatMessage, short_id};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use uuid::Uuid;

use super::task::add::current_project;
use crate::client::{self, Client, ClientArgs, IdentityArgs};
use crate::output::{self, sanitize};
use crate::style::{FAINT, STRONG, styled};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Message; without it, messages are read from standard input, one per line
    #[arg(trailing_var_arg = true)]
    message: Vec<String>,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

pub(super) fn run(arguments: &Args) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        // Outside a registered repository, Tamma asks for the project. A server that cannot be reached
        // is reported with the first message.
        let project = current_project(&client).await.ok().flatten();
        let talk = ChatClient {
            client,
            person: arguments.identity.resolve_name()?,
            conversation: client::new_id(),
            json: arguments.target.json,
            project,
        };
        if !arguments.message.is_empty() {
            let proposed = talk.send(&arguments.message.join(" ")).await?;
            // On a terminal, the person can confirm the proposal.
            if !(proposed && std::io::stdin().is_terminal()) {
                return Ok(ExitCode::SUCCESS);
            }
        }
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        loop {
            if std::io::stdin().is_terminal() {
                write!(anstream::stdout().lock(), "{} ", styled("›", STRONG))?;
                std::io::stdout().flush()?;
            }
            let Some(line) = lines.next_line().await? else { return Ok(ExitCode::SUCCESS) };
            match line.trim() {
                "" => {}
                "exit" | "quit" => return Ok(ExitCode::SUCCESS),
                line => match talk.send(line).await {
                    // A refusal ends the request, and not the conversation. On a terminal, no error does.
                    Err(error)
                        if !talk.json && (is_refusal(&error) || std::io::stdin().is_terminal()) =>
                    {
                        let _ = output::report_failure(&error);
                    }
                    sent => {
                        sent?;
                    }
                },
            }
        }
    })
}

/// Returns `true` if the server refused a request.
fn is_refusal(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<client::Error>(), Some(client::Error::Problem(_)))
}

struct ChatClient {
    client: Client,
    person: String,
    conversation: Uuid,
    json: bool,
    /// Project of the current folder, which new tasks go to.
    project: Option<String>,
}

impl ChatClient {
    /// Sends a message and prints the reply. Returns `true` if a proposal needs confirmation.
    async fn send(&self, message: &str) -> Result<bool> {
        let body = NewChatMessage {
            conversation: self.conversation,
            message: message.to_owned(),
            task: None,
            project: self.project.clone(),
        };
        let reply: ChatReply =
            self.client.post("/chat", &self.person, client::new_id(), &body).await?;
        let proposed = reply.proposal.is_some();
        if self.json {
            output::print_json(&reply)?;
            return Ok(proposed);
        }
        let mut out = anstream::stdout().lock();
        for line in &reply.lines {
            writeln!(out, "{}", sanitize(line))?;
        }
        if let Some(note) = &reply.note {
            writeln!(out, "{}", styled(&sanitize(note), FAINT))?;
        }
        for task in &reply.tasks {
            writeln!(
                out,
                "  {}  {}  {}",
                short_id(task.task),
                sanitize(&task.title),
                sanitize(&task.status_text)
            )?;
        }
        for reference in &reply.references {
            let (task, text) = (short_id(reference.task), sanitize(&reference.text));
            writeln!(out, "  from event {} of {task}: {text}", reference.event)?;
        }
        if let Some(proposal) = &reply.proposal {
            writeln!(out, "\n  {}\n", styled(&sanitize(&proposal.command), STRONG))?;
            writeln!(out, "Type yes to run it. Any other reply cancels it.")?;
        }
        if let Some(command) = &reply.executed_command {
            writeln!(out, "  {}", sanitize(command))?;
        }
        Ok(proposed)
    }
}
