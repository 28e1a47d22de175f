//! `tamma task list`, and the table that lists are shown in.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use comfy_table::{Attribute, Cell, Color, ContentArrangement, Table, presets};
use tamma_server::shape::{Card, Page};

use crate::client::{self, Client, Error, Target};
use crate::look;
use crate::output::{self, plain};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A state they are in, or several, separated by commas.
    #[arg(long)]
    state: Option<String>,
    /// A column of the board they are in, such as `review`.
    #[arg(long)]
    phase: Option<String>,
    /// A label they have.
    #[arg(long, value_name = "WORD")]
    label: Option<String>,
    /// Words in their title or description.
    #[arg(long, value_name = "WORDS")]
    search: Option<String>,
    /// The name of their project.
    #[arg(long)]
    project: Option<String>,
    /// Lists also tasks that have ended, and all of them.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    target: Target,
}

/// How many are listed, unless all are wanted.
const FEW: usize = 50;
const ALL: usize = 100_000;

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    client::run(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let live = (!arguments.all && arguments.state.is_none() && arguments.phase.is_none())
            .then_some("live");
        let given = [
            ("state", arguments.state.as_deref().or(live)),
            ("phase", arguments.phase.as_deref()),
            ("label", arguments.label.as_deref()),
            ("text", arguments.search.as_deref()),
            ("project", arguments.project.as_deref()),
        ];
        let query = given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        let most = if arguments.all { ALL } else { FEW };
        let page = Pager { client: &client, path: "/tasks", query }.up_to(most).await?;
        if arguments.target.json {
            output::json(&page)?;
        } else {
            let text = tasks(&page, arguments.all, look::now());
            writeln!(anstream::stdout().lock(), "{text}")?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// A list that is read page by page.
pub(crate) struct Pager<'a> {
    pub(crate) client: &'a Client,
    pub(crate) path: &'a str,
    pub(crate) query: Vec<(&'a str, &'a str)>,
}

impl Pager<'_> {
    /// At least so many, if there are as many.
    pub(crate) async fn up_to(&self, most: usize) -> Result<Page, Error> {
        let limit = most.clamp(1, 500).to_string();
        let mut whole = Page { tasks: Vec::new(), damaged: Vec::new(), next: None };
        loop {
            let after = whole.next.take();
            let mut query = self.query.clone();
            query.push(("limit", &limit));
            if let Some(after) = &after {
                query.push(("after", after));
            }
            let page: Page = self.client.get(self.path, &query).await?;
            whole.tasks.extend(page.tasks);
            whole.damaged.extend(page.damaged);
            whole.next = page.next;
            if whole.next.is_none() || whole.tasks.len() >= most {
                return Ok(whole);
            }
        }
    }
}

/// An empty table with its heads.
pub(crate) fn table(heads: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    // `anstream` takes the colours out again where they are not wanted.
    table.enforce_styling();
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(heads.iter().map(|head| Cell::new(head).add_attribute(Attribute::Bold)));
    // The table begins where every other line does.
    if let Some(first) = table.column_mut(0) {
        first.set_padding((0, 1));
    }
    table
}

/// What ends a style.
const PLAIN: &str = "\u{1b}[0m";

/// A table as text, without the blanks that fill its last column.
pub(crate) fn drawn(table: &Table) -> String {
    let tidy = |line: &str| match line.trim_end().strip_suffix(PLAIN) {
        Some(styled) => format!("{}{PLAIN}", styled.trim_end()),
        None => line.trim_end().to_owned(),
    };
    table.to_string().lines().map(tidy).collect::<Vec<_>>().join("\n")
}

/// A colour as tables have it.
pub(crate) fn colour(colour: anstyle::AnsiColor) -> Color {
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

/// Tasks as a table.
fn tasks(page: &Page, all: bool, now: chrono::DateTime<chrono::Utc>) -> String {
    if page.tasks.is_empty() && page.damaged.is_empty() {
        let hint = if all {
            "Add one with `tamma task add`."
        } else {
            "`--all` lists those that have ended too."
        };
        return format!("No tasks. {hint}");
    }
    let mut table = table(&["ID", "STATE", "TITLE", "RISK", "RUNS", "COST", "SINCE"]);
    for card in &page.tasks {
        table.add_row(row(card, now));
    }
    let mut text = drawn(&table);
    for damaged in &page.damaged {
        let (id, title) = (tamma_server::shape::short(damaged.id), plain(&damaged.title));
        look::add(
            &mut text,
            format_args!("\n{id}  cannot be read: {title}: {}", plain(&damaged.why)),
        );
    }
    if page.next.is_some() {
        text += "\n\nThere are more: `--all` lists them.";
    }
    text
}

fn row(card: &Card, now: chrono::DateTime<chrono::Utc>) -> Vec<Cell> {
    let paused = if card.paused { " ‖" } else { "" };
    let state = format!("{}{paused}", look::words(&card.state));
    let risk = match card.risk {
        Some(risk) => Cell::new(risk).fg(colour(look::of_risk(risk))),
        None => Cell::new("-"),
    };
    vec![
        Cell::new(&card.short),
        Cell::new(state).fg(colour(look::of_state(card.state))),
        Cell::new(plain(&card.title)),
        risk,
        Cell::new(card.iterations),
        Cell::new(look::money(&card.spend)),
        Cell::new(look::ago(card.since, now)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::task::show::tests::whole;

    fn shown(page: &Page, all: bool) -> String {
        let now = "2026-11-15T10:23:30Z".parse().expect("a moment");
        let text = tasks(page, all, now);
        anstream::adapter::strip_str(&text).to_string()
    }

    #[test]
    fn tasks_are_a_table_with_the_digits_that_tell_them_apart() {
        let page = Page { tasks: vec![whole().card], damaged: Vec::new(), next: None };
        // An inline snapshot would not see the first column move.
        assert!(shown(&page, false).starts_with("ID  "));
        insta::assert_snapshot!(shown(&page, false), @r"
        ID        STATE              TITLE                  RISK    RUNS  COST    SINCE
        1a2b3c4d  awaiting approval  Greet the whole world  medium  1     ~$0.42  3 min ago
        ");
    }

    #[test]
    fn no_tasks_say_where_the_others_are() {
        let page = Page { tasks: Vec::new(), damaged: Vec::new(), next: None };
        assert_eq!(shown(&page, false), "No tasks. `--all` lists those that have ended too.");
        assert_eq!(shown(&page, true), "No tasks. Add one with `tamma task add`.");
    }
}
