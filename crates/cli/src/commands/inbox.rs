//! `tamma inbox`: what waits for a person.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use tamma_server::shape::{Card, Page};

use super::task::list::{Pager, drawn, table};
use crate::client::{self, Client, Target};
use crate::look;
use crate::output::{self, plain};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The name of the project.
    #[arg(long)]
    project: Option<String>,
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    client::run(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let mut query = Vec::new();
        if let Some(project) = &arguments.project {
            query.push(("project", project.as_str()));
        }
        let page: Page = Pager { client: &client, path: "/inbox", query }.up_to(500).await?;
        if arguments.target.json {
            output::json(&page)?;
        } else {
            let text = inbox(&page.tasks, look::now());
            writeln!(anstream::stdout().lock(), "{text}")?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// The inbox as a table, the longest wait first.
fn inbox(cards: &[Card], now: chrono::DateTime<chrono::Utc>) -> String {
    if cards.is_empty() {
        return "Nothing waits for you.".to_owned();
    }
    let mut table = table(&["ID", "TITLE", "WHY", "SINCE", "ANSWERS"]);
    for card in cards {
        let answers: Vec<_> =
            card.answers.iter().map(|answer| answer.to_string().replace('_', "-")).collect();
        let why = match &card.next {
            Some(tamma_core::task_loop::Next::Answer { cause, .. }) => cause.to_string(),
            _ => card.next_in_words.clone().unwrap_or_default(),
        };
        table.add_row([
            card.short.clone(),
            plain(&card.title),
            why,
            look::ago(card.since, now),
            answers.join(", "),
        ]);
    }
    let first = cards.first().map(|card| card.short.clone()).unwrap_or_default();
    format!(
        "{}\n\n`tamma task show {first}` shows what is asked, and the commands that answer.",
        drawn(&table)
    )
}
