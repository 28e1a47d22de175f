//! `tamma inbox`: tasks and pipelines waiting on a person.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use tamma_server::dto::{
    InboxPage, MergeQueueView, PipelineList, PipelineView, TaskCard, TaskPage,
};

use super::task::list::{PARAGRAPH_INDENT, Pager, new_table, render_table};
use super::task::show::{answer_command, with_task};
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
            let width = style::narrow_width();
            let text = format_inbox(&tasks.tasks, &pipelines, &merge_queues, width, style::now());
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
    width: Option<usize>,
    now: chrono::DateTime<chrono::Utc>,
) -> String {
    let parts = [
        format_tasks(cards, width, now),
        format_pipelines(pipelines, now),
        format_merge_queues(queues, now),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return "No tasks, pipelines or merge queues are waiting on a person.".to_owned();
    }
    parts.join("\n\n")
}

/// Formats tasks as a table, or as paragraphs on a narrow terminal. Answers are commands.
fn format_tasks(
    cards: &[TaskCard],
    width: Option<usize>,
    now: chrono::DateTime<chrono::Utc>,
) -> Option<String> {
    let first = cards.first()?;
    let rows = cards.iter().map(|card| {
        let answers: Vec<_> = card.answers.iter().map(|it| answer_command(*it)).collect();
        let question = match &card.next {
            Some(tamma_core::task_loop::NextStep::Answer { cause, .. }) => cause.to_string(),
            _ => card.next_text.clone().unwrap_or_default(),
        };
        [
            card.short.clone(),
            sanitize(&card.title),
            sanitize(&question),
            style::format_ago(card.since, now),
            answers.join(", "),
        ]
    });
    let list = if let Some(width) = width {
        let wrap = |text: &str| style::wrap(text, width, PARAGRAPH_INDENT);
        let paragraph = |[short, title, question, since, answers]: [String; 5]| {
            let lines = [title, format!("{question}, {since}"), answers];
            let lines: Vec<_> = lines.iter().map(|line| wrap(line)).collect();
            // The title starts on the line of the ID.
            format!("{short}  {}", lines.join("\n").trim_start())
        };
        rows.map(paragraph).collect::<Vec<_>>().join("\n")
    } else {
        let mut table = new_table(&["ID", "TITLE", "QUESTION", "SINCE", "ANSWERS"]);
        table.add_rows(rows);
        render_table(&table)
    };
    let example = first.answers.first().map_or("task show", |answer| answer_command(*answer));
    let short = &first.short;
    let more = format!(
        "An answer is a command, such as `tamma {}`. Run `tamma task show {short}` for details.",
        with_task(example, short)
    );
    let more = width.map_or_else(|| more.clone(), |width| style::wrap(&more, width, 0));
    Some(format!("{list}\n\n{more}"))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::task::show::tests::awaiting_approval;

    fn render(width: Option<usize>) -> String {
        let now = "2026-11-15T10:23:30Z".parse().expect("a timestamp");
        let text = format_inbox(&[awaiting_approval().card], &[], &[], width, now);
        anstream::adapter::strip_str(&text).to_string()
    }

    #[test]
    fn answers_are_commands() {
        insta::assert_snapshot!(render(None), @r"
        ID        TITLE                  QUESTION                         SINCE      ANSWERS
        1a2b3c4d  Greet the whole world  medium-risk plan needs approval  3 min ago  approve, reject, revise-plan, change-task, cancel

        An answer is a command, such as `tamma approve 1a2b3c4d`. Run `tamma task show 1a2b3c4d` for details.
        ");
    }

    #[test]
    fn a_narrow_terminal_gets_short_lines() {
        let text = render(Some(60));
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
        insta::assert_snapshot!(text, @r"
        1a2b3c4d  Greet the whole world
                  medium-risk plan needs approval, 3 min ago
                  approve, reject, revise-plan, change-task, cancel

        An answer is a command, such as `tamma approve 1a2b3c4d`.
        Run `tamma task show 1a2b3c4d` for details.
        ");
    }

    #[test]
    fn an_empty_inbox_says_so() {
        let now = "2026-11-15T10:23:30Z".parse().expect("a timestamp");
        let text = format_inbox(&[], &[], &[], None, now);
        assert_eq!(text, "No tasks, pipelines or merge queues are waiting on a person.");
    }
}
