//! `tamma task list`, and the tables of all list commands.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use chrono::{DateTime, FixedOffset, Utc};
use comfy_table::{
    Attribute, Cell, Color, ColumnConstraint, ContentArrangement, Table, Width, presets,
};
use tamma_server::dto::{ChecksSummary, ProjectList, TaskCard, TaskPage};
use uuid::Uuid;

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
    /// Words, or their beginnings, in the title or description
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
            let ProjectList { projects } = client.get("/projects", &[]).await?;
            let projects = projects.into_iter().map(|it| (it.id, it.name)).collect();
            let (width, zone) = (style::narrow_width(), style::local_offset());
            let listing = TaskListing { projects, width, zone };
            let text = listing.format(&page, empty_hint(arguments), style::now());
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
    let mut table = table.clone();
    if style::terminal_width().is_some() {
        keep_words_whole(&mut table);
    }
    let tidy = |line: &str| match line.trim_end().strip_suffix(PLAIN) {
        Some(styled) => format!("{}{PLAIN}", styled.trim_end()),
        None => line.trim_end().to_owned(),
    };
    table.to_string().lines().map(tidy).collect::<Vec<_>>().join("\n")
}

/// Keeps every column at least as wide as its longest word: on a narrow terminal, a table that is too
/// wide can still be read, and broken words cannot.
fn keep_words_whole(table: &mut Table) {
    let longest = |text: &str| text.split_whitespace().map(|word| word.chars().count()).max();
    let widths: Vec<usize> = table
        .column_iter()
        .map(|column| {
            let cells = table.column_cells_with_header_iter(column.index);
            let widths = cells.flatten().filter_map(|cell| longest(&cell.content()));
            widths.max().unwrap_or_default()
        })
        .collect();
    for (column, width) in table.column_iter_mut().zip(widths) {
        // Two characters are for the padding.
        let width = u16::try_from(width.saturating_add(2)).unwrap_or(u16::MAX);
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width)));
    }
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

/// Form of a list of tasks.
struct TaskListing {
    /// Names of the projects. They are shown only if there are several.
    projects: BTreeMap<Uuid, String>,
    /// Width of a terminal that is too narrow for a table.
    width: Option<usize>,
    /// Time zone of the times.
    zone: FixedOffset,
}

impl TaskListing {
    /// Formats tasks as a table, or as paragraphs on a narrow terminal.
    fn format(&self, page: &TaskPage, empty: &str, now: DateTime<Utc>) -> String {
        if page.tasks.is_empty() && page.damaged.is_empty() {
            return empty.to_owned();
        }
        let mut text = match self.width {
            Some(width) => {
                let cards = page.tasks.iter().map(|card| self.paragraph(card, width, now));
                cards.collect::<Vec<_>>().join("\n")
            }
            None => self.table(&page.tasks, now),
        };
        push_notes(&mut text, page);
        text
    }

    /// Returns the name of a task's project, if there are several.
    fn project(&self, card: &TaskCard) -> Option<String> {
        let name = self.projects.get(&card.project).filter(|_| self.projects.len() > 1)?;
        Some(sanitize(name))
    }

    fn table(&self, cards: &[TaskCard], now: DateTime<Utc>) -> String {
        let mut heads = vec!["ID", "STATE", "TITLE"];
        let several = self.projects.len() > 1;
        if several {
            heads.push("PROJECT");
        }
        heads.extend(["PRIORITY", "RISK", "ATTEMPTS", "COST", "SINCE", "WAITING FOR"]);
        let mut table = new_table(&heads);
        for card in cards {
            let mut row = vec![
                Cell::new(&card.short),
                Cell::new(state_text(card)).fg(table_colour(style::state_colour(card.state))),
                Cell::new(sanitize(&card.title)),
            ];
            if several {
                row.push(Cell::new(self.project(card).unwrap_or_default()));
            }
            row.extend([
                Cell::new(card.priority),
                match card.risk {
                    Some(risk) => Cell::new(risk).fg(table_colour(style::risk_colour(risk))),
                    None => Cell::new("-"),
                },
                Cell::new(card.iterations),
                Cell::new(style::format_spend(&card.spend)),
                Cell::new(style::format_ago(card.since, now)),
                Cell::new(waiting_text(card, self.zone)),
            ]);
            table.add_row(row);
        }
        render_table(&table)
    }

    /// Formats a task in a few short lines.
    fn paragraph(&self, card: &TaskCard, width: usize, now: DateTime<Utc>) -> String {
        let state = style::paint(&state_text(card), style::state_colour(card.state));
        let title = style::wrap(&sanitize(&card.title), width, PARAGRAPH_INDENT);
        let mut facts: Vec<String> = self.project(card).into_iter().collect();
        facts.push(format!("{} priority", card.priority));
        facts.extend(card.risk.map(|risk| format!("{risk} risk")));
        facts.push(style::format_spend(&card.spend));
        facts.push(style::format_ago(card.since, now));
        let facts = style::wrap(&facts.join(", "), width, PARAGRAPH_INDENT);
        let waiting = style::wrap(&waiting_text(card, self.zone), width, PARAGRAPH_INDENT);
        let lines = [format!("{}  {state}", card.short), title, waiting, facts];
        lines.into_iter().filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
    }
}

/// Indentation of the lines under a short ID.
pub(crate) const PARAGRAPH_INDENT: usize = 10;

/// Returns what a task is waiting for.
fn waiting_text(card: &TaskCard, zone: FixedOffset) -> String {
    sanitize(&style::next_step_text(card, zone).unwrap_or_default())
}

/// Adds tasks that cannot be read, and a note about further ones.
fn push_notes(text: &mut String, page: &TaskPage) {
    for damaged in &page.damaged {
        let (id, title) = (tamma_server::dto::short_id(damaged.id), sanitize(&damaged.title));
        style::push_fmt(
            text,
            format_args!("\n{id}  cannot load {title}: {}", sanitize(&damaged.error)),
        );
    }
    if page.next.is_some() {
        text.push_str("\n\nMore tasks exist. Use `--all` to list them.");
    }
}

/// Returns the state of a task, with its pull request.
fn state_text(card: &TaskCard) -> String {
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
    format!("{}{pull_request}{paused}", card.state.label())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::task::show::tests::awaiting_approval;

    fn render_with(page: &TaskPage, projects: &[&str], width: Option<usize>) -> String {
        let now = "2026-11-15T10:23:30Z".parse().expect("a timestamp");
        let id =
            |index: usize| if index == 0 { awaiting_approval().card.project } else { Uuid::nil() };
        let projects = projects.iter().enumerate();
        let projects = projects.map(|(index, name)| (id(index), (*name).to_owned())).collect();
        let zone = FixedOffset::east_opt(3600).expect("a zone");
        let text = TaskListing { projects, width, zone }.format(page, "No tasks.", now);
        anstream::adapter::strip_str(&text).to_string()
    }

    fn render(page: &TaskPage) -> String {
        render_with(page, &["shop"], None)
    }

    #[test]
    fn tasks_are_listed_with_their_short_ids() {
        let page =
            TaskPage { tasks: vec![awaiting_approval().card], damaged: Vec::new(), next: None };
        // An inline snapshot would not see the first column move.
        assert!(render(&page).starts_with("ID  "));
        insta::assert_snapshot!(render(&page), @r"
        ID        STATE              TITLE                  PRIORITY  RISK    ATTEMPTS  COST    SINCE      WAITING FOR
        1a2b3c4d  awaiting approval  Greet the whole world  high      medium  1         ~$0.42  3 min ago  medium-risk plan needs approval
        ");
        let several = render_with(&page, &["shop", "api"], None);
        assert!(several.contains("  Greet the whole world  shop     high "), "{several}");
    }

    #[test]
    fn a_narrow_terminal_gets_short_lines_with_whole_words() {
        let page =
            TaskPage { tasks: vec![awaiting_approval().card], damaged: Vec::new(), next: None };
        let text = render_with(&page, &["shop", "api"], Some(40));
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        insta::assert_snapshot!(text, @r"
        1a2b3c4d  awaiting approval
                  Greet the whole world
                  medium-risk plan needs
                  approval
                  shop, high priority, medium
                  risk, ~$0.42, 3 min ago
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
