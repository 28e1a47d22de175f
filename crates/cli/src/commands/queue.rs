//! `tamma queue`: merge queues.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use tamma_server::dto::{MergeQueueActionBody, MergeQueueList, MergeQueueView, short_id};

use super::task::list::{new_table, render_table};
use crate::client::{self, Client, ClientArgs, IdentityArgs};
use crate::output::{self, sanitize};
use crate::style::{self, STRONG, styled};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List merge queues and their entries
    List(ListQueuesArgs),
    /// Pause a merge queue; nothing lands until it is resumed
    Pause(PauseQueueArgs),
    /// Resume a merge queue
    Resume(QueueArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListQueuesArgs {
    #[command(flatten)]
    target: ClientArgs,
}

/// Merge queue to act on, and the person acting.
#[derive(Debug, Args)]
pub(crate) struct QueueArgs {
    /// Name of the forge
    forge: String,
    /// Repository
    #[arg(value_name = "OWNER/NAME")]
    repository: String,
    /// Branch that changes land on
    #[arg(default_value = "main")]
    branch: String,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    target: ClientArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PauseQueueArgs {
    #[command(flatten)]
    queue: QueueArgs,
    /// Reason, shown with the queue
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

pub(super) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::List(arguments) => client::block_on(&arguments.target, list(arguments)),
        Command::Pause(PauseQueueArgs { queue, reason }) => {
            client::block_on(&queue.target, change(queue, "pause", Some(reason.clone())))
        }
        Command::Resume(queue) => client::block_on(&queue.target, change(queue, "resume", None)),
    }
}

async fn list(arguments: &ListQueuesArgs) -> Result<ExitCode> {
    let client = Client::new(&arguments.target)?;
    let list: MergeQueueList = client.get("/merge-queues", &[]).await?;
    if arguments.target.json {
        output::print_json(&list)?;
    } else {
        writeln!(anstream::stdout().lock(), "{}", format_queues(&list.queues, style::now()))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn change(queue: &QueueArgs, action: &str, reason: Option<String>) -> Result<ExitCode> {
    let client = Client::new(&queue.target)?;
    let by = queue.identity.resolve_name()?;
    let body = MergeQueueActionBody {
        forge: queue.forge.clone(),
        repository: queue.repository.clone(),
        branch: queue.branch.clone(),
        reason,
    };
    let path = format!("/merge-queues/{action}");
    let view: MergeQueueView = client.post(&path, &by, client::new_id(), &body).await?;
    if queue.target.json {
        output::print_json(&view)?;
    } else {
        let done = format!("merge queue of {} {action}d", view.repository);
        output::write_done(&mut anstream::stdout().lock(), &done)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn format_queues(queues: &[MergeQueueView], now: chrono::DateTime<chrono::Utc>) -> String {
    if queues.is_empty() {
        return "No merge queues. Set `delivery.queue.mode: tamma` in tamma.yaml to use one."
            .to_owned();
    }
    let mut parts = Vec::new();
    for queue in queues {
        let name = format!("{} {} ({})", queue.repository, queue.branch, queue.forge);
        let mut text = styled(&sanitize(&name), STRONG);
        if let Some(reason) = &queue.paused {
            style::push_fmt(&mut text, format_args!("\npaused: {}", sanitize(reason)));
        }
        if queue.entries.is_empty() {
            text += "\nempty";
        } else {
            let mut table = new_table(&["TASK", "STATE", "TITLE", "PRIORITY", "QUEUED", "REASON"]);
            for entry in &queue.entries {
                table.add_row([
                    short_id(entry.task),
                    sanitize(&entry.state),
                    sanitize(entry.title.as_deref().unwrap_or_default()),
                    sanitize(&entry.priority),
                    style::format_ago(entry.queued_at, now),
                    sanitize(entry.reason.as_deref().unwrap_or_default()),
                ]);
            }
            style::push_fmt(&mut text, format_args!("\n{}", render_table(&table)));
        }
        parts.push(text);
    }
    parts.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_listed_with_their_entries() {
        let answer = serde_json::json!({ "queues": [{
            "project": "01932f00-4c1e-7a10-8b00-000000000001", "incident": false, "landed": 3,
            "returned": 0, "gate_runs": 4, "flaky": 0, "updated_at": "2026-11-17T09:04:00Z",
            "forge": "gitea", "repository": "acme/shop", "branch": "main",
            "paused": "release today",
            "entries": [{
                "task": "01932f00-4c1e-7a10-8b00-000000a7f31c", "title": "Retry webhooks",
                "head": "abc",
                "state": "testing", "priority": "high", "queued_at": "2026-11-17T09:00:00Z",
            }],
        }]});
        let MergeQueueList { queues } = serde_json::from_value(answer).expect("queues");
        let now = "2026-11-17T09:05:00Z".parse().expect("a timestamp");
        let text = anstream::adapter::strip_str(&format_queues(&queues, now)).to_string();
        assert!(text.starts_with("acme/shop main (gitea)\npaused: release today\n"), "{text}");
        assert!(text.contains("00a7f31c") && text.contains("testing"), "{text}");
        assert!(text.contains("Retry webhooks") && text.contains("5 min ago"), "{text}");
    }
}
