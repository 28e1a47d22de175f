//! `tamma chat`: talking with Tamma in a terminal.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use tamma_server::shape::{Reply, Said, short};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use uuid::Uuid;

use crate::client::{self, Asker, Client, Target};
use crate::look::{FAINT, STRONG, styled};
use crate::output::{self, plain};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// What you have to say. Without it, what you type is taken line by line.
    #[arg(trailing_var_arg = true)]
    message: Vec<String>,
    #[command(flatten)]
    asker: Asker,
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    client::run(&arguments.target, async {
        let talk = Talk {
            client: Client::new(&arguments.target)?,
            by: arguments.asker.name()?,
            conversation: client::new_id(),
            json: arguments.target.json,
        };
        if !arguments.message.is_empty() {
            let proposed = talk.say(&arguments.message.join(" ")).await?;
            // Where somebody is there, they can say yes.
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
                line => {
                    talk.say(line).await?;
                }
            }
        }
    })
}

struct Talk {
    client: Client,
    by: String,
    conversation: Uuid,
    json: bool,
}

impl Talk {
    /// Says something, and shows the answer. Returns whether something waits for a yes.
    async fn say(&self, message: &str) -> Result<bool> {
        let said =
            Said { conversation: self.conversation, message: message.to_owned(), task: None };
        let reply: Reply = self.client.post("/chat", &self.by, client::new_id(), &said).await?;
        let proposed = reply.proposal.is_some();
        if self.json {
            output::json(&reply)?;
            return Ok(proposed);
        }
        let mut out = anstream::stdout().lock();
        for line in &reply.lines {
            writeln!(out, "{}", plain(line))?;
        }
        if let Some(note) = &reply.note {
            writeln!(out, "{}", styled(&plain(note), FAINT))?;
        }
        for task in &reply.tasks {
            writeln!(
                out,
                "  {}  {}  {}",
                short(task.task),
                plain(&task.title),
                plain(&task.words)
            )?;
        }
        for reference in &reply.references {
            let (task, text) = (short(reference.task), plain(&reference.text));
            writeln!(out, "  from event {} of {task}: {text}", reference.event)?;
        }
        if let Some(proposal) = &reply.proposal {
            writeln!(out, "\n  {}\n", styled(&plain(&proposal.command), STRONG))?;
            writeln!(out, "Say yes to do it. Anything else does nothing.")?;
        }
        if let Some(command) = &reply.done {
            writeln!(out, "  {}", plain(command))?;
        }
        Ok(proposed)
    }
}
