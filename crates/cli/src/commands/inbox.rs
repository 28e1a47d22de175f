//! `tamma inbox`: tasks waiting on a person.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use tamma_server::dto::{TaskCard, TaskPage};

use super::task::list::{Pager, new_table, render_table};
use crate::client::{self, Client, ClientArgs};
use crate::output::{self, sanitize};
use crate::style;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Project name
    #[arg(long)]
    project: Option<String>,
    #[command(flatten)]
    target: ClientArgs,
}

pub(super) fn run(arguments: &Args) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let mut query = Vec::new();
        if let Some(project) = &arguments.project {
            query.push(("project", project.as_str()));
        }
        let page: TaskPage =
            Pager { client: &client, path: "/inbox", query }.fetch_up_to(500).await?;
        if arguments.target.json {
            output::print_json(&page)?;
        } else {
            let text = format_inbox(&page.tasks, style::now());
            writeln!(anstream::stdout().lock(), "{text}")?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Formats the inbox as a table, longest wait first.
fn format_inbox(cards: &[TaskCard], now: chrono::DateTime<chrono::Utc>) -> String {
    if cards.is_empty() {
        return "No tasks are waiting on a person.".to_owned();
    }
    let mut table = new_table(&["ID", "TITLE", "QUESTION", "SINCE", "ANSWERS"]);
    for card in cards {
        let answers: Vec<_> =
            card.answers.iter().map(|answer| answer.to_string().replace('_', "-")).collect();
        let question = match &card.next {
            Some(tamma_core::task_loop::NextStep::Answer { cause, .. }) => cause.to_string(),
            _ => card.next_text.clone().unwrap_or_default(),
        };
        table.add_row([
            card.short.clone(),
            sanitize(&card.title),
            question,
            style::format_ago(card.since, now),
            answers.join(", "),
        ]);
    }
    let first = cards.first().map(|card| card.short.clone()).unwrap_or_default();
    format!(
        "{}\n\nRun `tamma task show {first}` for details and the commands that answer.",
        render_table(&table)
    )
}
