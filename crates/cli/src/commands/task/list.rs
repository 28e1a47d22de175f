//! `tamma task list`, and the tables of all list commands.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use comfy_table::{Attribute, Cell, Color, ContentArrangement, Table, presets};
use tamma_server::dto::{ChecksSummary, TaskCard, TaskPage};

use crate::client::{self, Client, ClientArgs, Error};
use crate::output::{self, sanitize};
use crate::style;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// State, or several separated by commas
    #[arg(long)]
    state: Option<String>,
    /// Phase (column of the board), such as `review`
    #[arg(long)]
    phase: Option<String>,
    /// Label
    #[arg(long, value_name = "WORD")]
    label: Option<String>,
    /// Words in the title or description
    #[arg(long, value_name = "WORDS")]
    search: Option<String>,
    /// Project name
    #[arg(long)]
    project: Option<String>,
    /// List all tasks, including closed ones
    #[arg(long)]
    all: bool,
    /// List tasks that take longer than expected, most overdue first
    #[arg(long, conflicts_with_all = ["state", "phase", "label", "search", "all"])]
    overdue: bool,
    /// List open tasks with at least three failures, most failures first
    #[arg(long, conflicts_with_all = ["state", "phase", "label", "search", "all", "overdue"])]
    failing: bool,
    #[command(flatten)]
    target: ClientArgs,
}

/// Number of tasks listed without `--all`.
const DEFAULT_LIMIT: usize = 50;
const MAX_LIMIT: usize = 100_000;

pub(super) fn run(arguments: &Args) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let live = (!arguments.all && arguments.state.is_none() && arguments.phase.is_none())
            .then_some("live");
        let filters = [
            ("state", arguments.state.as_deref().or(live)),
            ("phase", arguments.phase.as_deref()),
            ("label", arguments.label.as_deref()),
            ("text", arguments.search.as_deref()),
            ("project", arguments.project.as_deref()),
        ];
        let query = filters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        let max = if arguments.all { MAX_LIMIT } else { DEFAULT_LIMIT };
        let (path, query) = match arguments {
            Args { overdue: true, .. } => ("/tasks/overdue", project_query(arguments)),
            Args { failing: true, .. } => ("/tasks/failing", project_query(arguments)),
            _ => ("/tasks", query),
        };
        let page = Pager { client: &client, path, query }.fetch_up_to(max).await?;
        if arguments.target.json {
            output::print_json(&page)?;
        } else {
            let text = format_tasks(&page, empty_hint(arguments), style::now());
            writeln!(anstream::stdout().lock(), "{text}")?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn project_query(arguments: &Args) -> Vec<(&'static str, &str)> {
    arguments.project.iter().map(|project| ("project", project.as_str())).collect()
}

/// Reader of a paginated list.
pub(crate) struct Pager<'a> {
    pub(crate) client: &'a Client,
    pub(crate) path: &'a str,
    pub(crate) query: Vec<(&'a str, &'a str)>,
}

impl Pager<'_> {
    /// Fetches pages until at least `max` tasks are read or the list ends.
    pub(crate) async fn fetch_up_to(&self, max: usize) -> Result<TaskPage, Error> {
        let limit = max.clamp(1, 500).to_string();
        let mut all = TaskPage { tasks: Vec::new(), damaged: Vec::new(), next: None };
        loop {
            let after = all.next.take();
            let mut query = self.query.clone();
            query.push(("limit", &limit));
            if let Some(after) = &after {
                query.push(("after", after));
            }
            let page: TaskPage = self.client.get(self.path, &query).await?;
            all.tasks.extend(page.tasks);
            all.damaged.extend(page.damaged);
            all.next = page.next;
            if all.next.is_none() || all.tasks.len() >= max {
                return Ok(all);
            }
        }
    }
}

/// Empty table with bold column headings.
pub(crate) fn new_table(heads: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    // `anstream` strips the colours where they are not wanted.
    table.enforce_styling();
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(heads.iter().map(|head| Cell::new(head).add_attribute(Attribute::Bold)));
    // Aligns the first column with other output.
    if let Some(first) = table.column_mut(0) {
        first.set_padding((0, 1));
    }
    table
}

/// ANSI sequence that resets a style.
const PLAIN: &str = "\u{1b}[0m";

/// Renders a table without the trailing spaces of its last column.
pub(crate) fn render_table(table: &Table) -> String {
    let tidy = |line: &str| match line.trim_end().strip_suffix(PLAIN) {
        Some(styled) => format!("{}{PLAIN}", styled.trim_end()),
        None => line.trim_end().to_owned(),
    };
    table.to_string().lines().map(tidy).collect::<Vec<_>>().join("\n")
}

/// Converts a colour to the table crate's type.
pub(crate) fn table_colour(colour: anstyle::AnsiColor) -> Color {
    use anstyle::AnsiColor as A;
    match colour {
        A::Black => Color::Black,
        A::Red => Color::DarkRed,
        A::Green => Color::DarkGreen,
        A::Yellow => Color::DarkYellow,
        A::Blue => Color::DarkBlue,
        A::Magenta => Color::DarkMagenta,
        A::Cyan => Color::DarkCyan,
        A::White => Color::Grey,
        A::BrightBlack => Color::DarkGrey,
        A::BrightRed => Color::Red,
        A::BrightGreen => Color::Green,
        A::BrightYellow => Color::Yellow,
        A::BrightBlue => Color::Blue,
        A::BrightMagenta => Color::Magenta,
        A::BrightCyan => Color::Cyan,
        A::BrightWhite => Color::White,
    }
}

/// Text for an empty list.
fn empty_hint(arguments: &Args) -> &'static str {
    match arguments {
        Args { overdue: true, .. } => "No overdue tasks.",
        Args { failing: true, .. } => "No open task has failed three times.",
        Args { all: true, .. } => "No tasks. Add one with `tamma task add`.",
        _ => "No tasks. Use `--all` to include closed ones.",
    }
}

/// Formats tasks as a table.
fn format_tasks(page: &TaskPage, empty: &str, now: chrono::DateTime<chrono::Utc>) -> String {
    if page.tasks.is_empty() && page.damaged.is_empty() {
        return empty.to_owned();
    }
    let mut table = new_table(&["ID", "STATE", "TITLE", "RISK", "RUNS", "COST", "SINCE"]);
    for card in &page.tasks {
        table.add_row(task_row(card, now));
    }
    let mut text = render_table(&table);
    for damaged in &page.damaged {
        let (id, title) = (tamma_server::dto::short_id(damaged.id), sanitize(&damaged.title));
        style::push_fmt(
            &mut text,
            format_args!("\n{id}  cannot load {title}: {}", sanitize(&damaged.error)),
        );
    }
    if page.next.is_some() {
        text += "\n\nMore tasks exist. Use `--all` to list them.";
    }
    text
}

fn task_row(card: &TaskCard, now: chrono::DateTime<chrono::Utc>) -> Vec<Cell> {
    let paused = if card.paused { " ‖" } else { "" };
    let pull_request = card.pull_request_badge.as_ref().map(|it| {
        let mark = match it.checks {
            ChecksSummary::Passed => " ✓",
            ChecksSummary::Failed => " ✗",
            ChecksSummary::Pending => " •",
            ChecksSummary::None => "",
        };
        format!(" #{}{mark}", it.number)
    });
    let pull_request = pull_request.unwrap_or_default();
    let state = format!("{}{pull_request}{paused}", style::humanize(&card.state));
    let risk = match card.risk {
        Some(risk) => Cell::new(risk).fg(table_colour(style::risk_colour(risk))),
        None => Cell::new("-"),
    };
    vec![
        Cell::new(&card.short),
        Cell::new(state).fg(table_colour(style::state_colour(card.state))),
        Cell::new(sanitize(&card.title)),
        risk,
        Cell::new(card.iterations),
        Cell::new(style::format_spend(&card.spend)),
        Cell::new(style::format_ago(card.since, now)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::task::show::tests::awaiting_approval;

    fn render(page: &TaskPage) -> String {
        let now = "2026-11-15T10:23:30Z".parse().expect("a timestamp");
        let text = format_tasks(page, "No tasks.", now);
        anstream::adapter::strip_str(&text).to_string()
    }

    #[test]
    fn tasks_are_listed_with_their_short_ids() {
        let page =
            TaskPage { tasks: vec![awaiting_approval().card], damaged: Vec::new(), next: None };
        // An inline snapshot would not see the first column move.
        assert!(render(&page).starts_with("ID  "));
        insta::assert_snapshot!(render(&page), @r"
        ID        STATE              TITLE                  RISK    RUNS  COST    SINCE
        1a2b3c4d  awaiting approval  Greet the whole world  medium  1     ~$0.42  3 min ago
        ");
    }

    #[test]
    fn an_empty_list_says_how_to_see_other_tasks() {
        use clap::Parser as _;
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            arguments: Args,
        }
        let hint = |options: &[&str]| {
            let line = ["list"].iter().chain(options);
            empty_hint(&Line::parse_from(line).arguments)
        };
        assert_eq!(hint(&[]), "No tasks. Use `--all` to include closed ones.");
        assert_eq!(hint(&["--all"]), "No tasks. Add one with `tamma task add`.");
        assert_eq!(hint(&["--overdue"]), "No overdue tasks.");
        assert_eq!(hint(&["--failing"]), "No open task has failed three times.");
        let page = TaskPage { tasks: Vec::new(), damaged: Vec::new(), next: None };
        assert_eq!(render(&page), "No tasks.");
    }
}
