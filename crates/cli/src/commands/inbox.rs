//! `tamma inbox`: tasks and pipelines waiting on a person.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use tamma_server::dto::{
    InboxPage, MergeQueueView, PipelineList, PipelineView, TaskCard, TaskPage,
};

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
        let mut waiting = query.clone();
        waiting.push(("needs_person", "true"));
        let mut first = query.clone();
        first.push(("limit", "1"));
        let tasks: TaskPage =
            Pager { client: &client, path: "/inbox", query }.fetch_up_to(500).await?;
        let PipelineList { mut pipelines } = client.get("/pipelines", &waiting).await?;
        pipelines.reverse();
        let first: InboxPage = client.get("/inbox", &first).await?;
        let merge_queues = first.merge_queues;
        if arguments.target.json {
            output::print_json(&InboxPage { tasks, pipelines, merge_queues })?;
        } else {
            let text = format_inbox(&tasks.tasks, &pipelines, &merge_queues, style::now());
            writeln!(anstream::stdout().lock(), "{text}")?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Formats the inbox as tables, longest wait first.
fn format_inbox(
    cards: &[TaskCard],
    pipelines: &[PipelineView],
    queues: &[MergeQueueView],
    now: chrono::DateTime<chrono::Utc>,
) -> String {
    let parts = [
        format_tasks(cards, now),
        format_pipelines(pipelines, now),
        format_merge_queues(queues, now),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return "No tasks, pipelines or merge queues are waiting on a person.".to_owned();
    }
    parts.join("\n\n")
}

fn format_tasks(cards: &[TaskCard], now: chrono::DateTime<chrono::Utc>) -> Option<String> {
    let first = cards.first()?.short.clone();
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
    Some(format!(
        "{}\n\nRun `tamma task show {first}` for details and the commands that answer.",
        render_table(&table)
    ))
}

fn format_merge_queues(
    queues: &[MergeQueueView],
    now: chrono::DateTime<chrono::Utc>,
) -> Option<String> {
    let first = queues.first()?;
    let mut table = new_table(&["MERGE QUEUE", "QUESTION", "SINCE"]);
    for view in queues {
        table.add_row([
            sanitize(&format!("{} {} ({})", view.repository, view.branch, view.forge)),
            sanitize(view.question.as_deref().unwrap_or_default()),
            style::format_ago(view.updated_at, now),
        ]);
    }
    let name = format!("{} {} {}", first.forge, first.repository, first.branch);
    Some(format!(
        "{}\n\nRun `tamma queue list` for details, and `tamma queue resume {}` to go on.",
        render_table(&table),
        sanitize(&name)
    ))
}

fn format_pipelines(
    pipelines: &[PipelineView],
    now: chrono::DateTime<chrono::Utc>,
) -> Option<String> {
    let first = pipelines.first()?.story_id.clone();
    let mut table = new_table(&["ID", "STORY", "STATE", "SINCE", "ACTIONS"]);
    for view in pipelines {
        let actions: Vec<_> = view.actions.iter().map(ToString::to_string).collect();
        table.add_row([
            view.short.clone(),
            sanitize(&view.story_id),
            sanitize(&view.state_text),
            style::format_ago(view.updated_at, now),
            actions.join(", "),
        ]);
    }
    Some(format!(
        "{}\n\nRun `tamma pipeline show {first}` for details and the commands that answer.",
        render_table(&table)
    ))
}
