//! `tamma task log`: output of a task's agents.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use anyhow::{Context as _, Result};
use chrono::FixedOffset;
use eventsource_stream::Eventsource as _;
use futures_util::StreamExt as _;
use reqwest::{Method, StatusCode};
use tamma_server::dto::{CurrentRun, RunDetail, RunLine, RunLines, RunList, TaskCard};
use tamma_store::{Backoff, LineKind, RunNumber};
use uuid::Uuid;

use crate::client::{self, Client, ClientArgs};
use crate::output::sanitize;
use crate::style::{self, FAINT, STRONG, styled};
use crate::watch;

/// Line kinds shown by default: all but thoughts and model calls.
const DEFAULT_KINDS: [LineKind; 8] = [
    LineKind::Said,
    LineKind::Tool,
    LineKind::Plan,
    LineKind::Progress,
    LineKind::Asked,
    LineKind::Document,
    LineKind::Refused,
    LineKind::Note,
];

/// Width of the kind column, in characters.
const KIND: usize = 8;

/// Minimum width of wrapped text, in characters.
const MIN_TEXT_WIDTH: usize = 20;

/// Time after which `--follow` gives up on an unreachable server.
const MAX_OUTAGE: Duration = Duration::from_mins(1);
const MIN_BACKOFF: Duration = Duration::from_millis(250);
const MAX_BACKOFF: Duration = Duration::from_secs(5);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Task ID, or at least four characters from its start or end
    #[arg(value_name = "TASK")]
    id: String,
    /// Follow the log until the task is closed or needs a person
    #[arg(long, short)]
    follow: bool,
    /// Show only this run, such as 4, or 4.2 for its second attempt; `tamma task show` lists the
    /// numbers
    #[arg(long, value_name = "NUMBER", value_parser = parse_run_number)]
    run: Option<String>,
    #[arg(
        long,
        value_name = "KINDS",
        value_delimiter = ',',
        value_parser = parse_kind,
        help = "Line kinds, separated by commas: said, thought, tool, plan, progress, asked, \
                document, refused, model_call, note or all [default: all but thought and model_call]"
    )]
    kinds: Vec<KindFilter>,
    /// Print the complete transcript of the run as JSON lines
    #[arg(long, requires = "run", conflicts_with_all = ["follow", "kinds"])]
    transcript: bool,
    #[command(flatten)]
    target: ClientArgs,
}

/// Line kinds selected on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KindFilter {
    All,
    Only(LineKind),
}

fn parse_kind(text: &str) -> Result<KindFilter, String> {
    match text {
        "all" => Ok(KindFilter::All),
        text => text.parse().map(KindFilter::Only).map_err(|_| {
            "use said, thought, tool, plan, progress, asked, document, refused, model_call, note \
             or all"
                .to_owned()
        }),
    }
}

fn parse_run_number(text: &str) -> Result<String, String> {
    let number: Result<RunNumber, _> = text.parse();
    number.map(|_| text.to_owned()).map_err(|error| error.to_string())
}

pub(super) fn run(arguments: &Args) -> Result<ExitCode> {
    client::block_on(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let id = client.resolve_task(&arguments.id).await?;
        if let Some(run) = arguments.run.as_ref().filter(|_| arguments.transcript) {
            return print_transcript(&client, id, run).await;
        }
        let terminal = !arguments.target.json && std::io::stdout().is_terminal();
        let mut log = LogReader {
            client: &client,
            id,
            query: build_query(arguments),
            json: arguments.target.json,
            width: terminal.then(style::terminal_width).flatten(),
            zone: style::local_offset(),
            runs: BTreeMap::new(),
            current_run: None,
            last_position: None,
        };
        log.load_runs().await?;
        if arguments.follow { log.follow().await } else { log.print_existing().await }
    })
}

/// Query parameters of the log request.
fn build_query(arguments: &Args) -> Vec<(&'static str, String)> {
    let mut query = Vec::new();
    if let Some(run) = &arguments.run {
        query.push(("run", run.clone()));
    }
    let kinds: Vec<_> = match arguments.kinds.as_slice() {
        [] => DEFAULT_KINDS.iter().map(ToString::to_string).collect(),
        kinds if kinds.contains(&KindFilter::All) => return query,
        kinds => {
            let one = |kind: &KindFilter| match kind {
                KindFilter::Only(kind) => Some(kind.to_string()),
                KindFilter::All => None,
            };
            kinds.iter().filter_map(one).collect()
        }
    };
    query.push(("kinds", kinds.join(",")));
    query
}

async fn print_transcript(client: &Client, id: Uuid, run: &str) -> Result<ExitCode> {
    let path = format!("/tasks/{id}/runs/{run}/transcript");
    let response = client.send(client.request(Method::GET, &path)).await?;
    let mut parts = response.bytes_stream();
    while let Some(part) = parts.next().await {
        let part = part.context("transcript is incomplete: the connection broke")?;
        std::io::stdout().lock().write_all(&part)?;
    }
    Ok(ExitCode::SUCCESS)
}

struct LogReader<'a> {
    client: &'a Client,
    id: Uuid,
    query: Vec<(&'static str, String)>,
    json: bool,
    /// Terminal width; `None` if output is not a terminal.
    width: Option<usize>,
    zone: FixedOffset,
    /// Runs of the task, by run number.
    runs: BTreeMap<String, RunDetail>,
    /// Run whose lines were printed last.
    current_run: Option<String>,
    /// Position of the last printed line, used to resume.
    last_position: Option<String>,
}

impl LogReader<'_> {
    async fn load_runs(&mut self) -> Result<()> {
        let RunList { runs } = self.client.get(&format!("/tasks/{}/runs", self.id), &[]).await?;
        self.runs.extend(runs.into_iter().map(|run| (run.run.clone(), run)));
        Ok(())
    }

    /// Prints the stored lines.
    async fn print_existing(&mut self) -> Result<ExitCode> {
        let path = format!("/tasks/{}/lines", self.id);
        loop {
            let mut query: Vec<_> =
                self.query.iter().map(|(name, value)| (*name, value.as_str())).collect();
            query.push(("limit", "500"));
            query.extend(self.last_position.as_deref().map(|last| ("after", last)));
            let page: RunLines = self.client.get(&path, &query).await?;
            for line in &page.lines {
                self.print_line(line)?;
            }
            match page.next {
                Some(next) => self.last_position = Some(next),
                None => break,
            }
        }
        if self.last_position.is_none() && self.current_run.is_none() && !self.json {
            let text = "No log output yet";
            writeln!(anstream::stderr().lock(), "{}", styled(text, FAINT))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Prints stored and new lines, and resumes a broken stream after the last line.
    async fn follow(&mut self) -> Result<ExitCode> {
        let mut outage = Duration::ZERO;
        let mut backoff = Backoff::new(MIN_BACKOFF, MAX_BACKOFF);
        loop {
            let last_position = self.last_position.clone();
            match self.follow_stream().await {
                Ok(true) => return Ok(ExitCode::SUCCESS),
                Err(error) if !watch::is_transient(&error) || outage >= MAX_OUTAGE => {
                    return Err(error);
                }
                // The server ended the stream or is unreachable; it may be restarting.
                Ok(false) | Err(_) => {}
            }
            if self.last_position != last_position {
                outage = Duration::ZERO;
                backoff.reset();
            }
            let wait = backoff.next_delay();
            tokio::time::sleep(wait).await;
            outage += wait;
        }
    }

    /// Follows one stream. Returns `true` if the task is closed or needs a person.
    async fn follow_stream(&mut self) -> Result<bool> {
        let path = format!("/tasks/{}/lines/stream", self.id);
        let mut request = self.client.request(Method::GET, &path).query(&self.query);
        if let Some(last) = &self.last_position {
            request = request.header("last-event-id", last);
        }
        let response = self.client.send(request).await?;
        if response.status() == StatusCode::NO_CONTENT {
            return Ok(true);
        }
        let mut events = response.bytes_stream().eventsource();
        while let Some(event) = events.next().await {
            // The caller resumes a broken stream.
            let Ok(event) = event else { return Ok(false) };
            let parse_error = "cannot parse an event from the server";
            match event.event.as_str() {
                "line" => {
                    let line: RunLine = serde_json::from_str(&event.data).context(parse_error)?;
                    self.print_line(&line)?;
                    self.last_position = Some(line.position);
                }
                "run" => {
                    let current: CurrentRun =
                        serde_json::from_str(&event.data).context(parse_error)?;
                    self.runs.insert(current.run.run.clone(), current.run);
                }
                "task" => {
                    let card: TaskCard = serde_json::from_str(&event.data).context(parse_error)?;
                    if card.state.is_terminal() || card.waits_for_person {
                        return self.print_final_state(&card).map(|()| true);
                    }
                }
                _ => {}
            }
        }
        Ok(false)
    }

    /// Prints why following stopped. Prints nothing with `--json`.
    fn print_final_state(&self, card: &TaskCard) -> Result<()> {
        if self.json {
            return Ok(());
        }
        let text = match style::next_step_text(card, self.zone) {
            Some(next) if card.waits_for_person => format!("waiting on a person: {next}"),
            _ => format!("the task is {}", style::humanize(&card.state)),
        };
        Ok(writeln!(anstream::stderr().lock(), "{}", styled(&sanitize(&text), FAINT))?)
    }

    fn print_line(&mut self, line: &RunLine) -> Result<()> {
        let mut out = anstream::stdout().lock();
        if self.json {
            writeln!(out, "{}", serde_json::to_string(line)?)?;
            return Ok(());
        }
        if self.current_run.as_ref() != Some(&line.run) {
            let before = if self.current_run.is_some() { "\n" } else { "" };
            let head = run_heading(&line.run, self.runs.get(&line.run));
            writeln!(out, "{before}{}", styled(&head, STRONG))?;
            self.current_run = Some(line.run.clone());
        }
        Ok(writeln!(out, "{}", format_line(line, self.zone, self.width))?)
    }
}

/// Heading of a run, printed before its lines.
fn run_heading(number: &str, run: Option<&RunDetail>) -> String {
    let Some(run) = run else { return format!("run {number}") };
    let mut text =
        format!("run {number} · {} · {}", sanitize(&run.mode), watch::agent_and_model(run));
    if let Some(tier) = run.tier {
        style::push_fmt(&mut text, format_args!(" · {tier}"));
    }
    text
}

/// Formats one log line: time, kind and text, wrapped to `width` if given.
fn format_line(line: &RunLine, zone: FixedOffset, width: Option<usize>) -> String {
    let name =
        if line.kind == LineKind::ModelCall { "model".to_owned() } else { line.kind.to_string() };
    let (style, body) = if is_failed_call(line) {
        let red = AnsiColor::Red.on_default();
        (red, red)
    } else {
        line_styles(line.kind)
    };
    let time = style::format_time(line.at, zone);
    let indent = time.len() + 1 + KIND + 1;
    let room = width.map(|width| width.saturating_sub(indent).max(MIN_TEXT_WIDTH));
    let mut text =
        format!("{} {} ", styled(&time, FAINT), styled(&format!("{name:<KIND$}"), style));
    let rows = line.text.lines().flat_map(|row| wrap(&sanitize(&row.replace('\t', "    ")), room));
    for (index, row) in rows.enumerate() {
        if index > 0 {
            style::push_fmt(&mut text, format_args!("\n{:indent$}", ""));
        }
        text += &styled(&row, body);
    }
    text
}

/// Returns whether a line is about a tool call that failed or did not finish.
fn is_failed_call(line: &RunLine) -> bool {
    let status = line.data.as_ref().and_then(|data| data["status"].as_str());
    line.kind == LineKind::Tool && matches!(status, Some("failed" | "unfinished"))
}

/// Styles of a line kind: of its label and of its text.
fn line_styles(kind: LineKind) -> (Style, Style) {
    let plain = Style::new();
    let quiet = |colour: AnsiColor| colour.on_default().dimmed();
    match kind {
        LineKind::Said => (quiet(AnsiColor::Green), plain),
        LineKind::Thought => (FAINT, FAINT.italic()),
        LineKind::Tool => (quiet(AnsiColor::Cyan), plain),
        LineKind::Plan => (quiet(AnsiColor::Blue), plain),
        LineKind::Progress => (quiet(AnsiColor::Magenta), plain),
        LineKind::Asked | LineKind::Note => (quiet(AnsiColor::Yellow), plain),
        LineKind::Document => (quiet(AnsiColor::Green), plain.bold()),
        LineKind::Refused => (quiet(AnsiColor::Red), plain),
        LineKind::ModelCall => (FAINT, FAINT),
    }
}

/// Wraps a row between words, and splits words that are too long.
fn wrap(row: &str, room: Option<usize>) -> Vec<String> {
    let Some(room) = room else { return vec![row.to_owned()] };
    let mut pieces = vec![String::new()];
    for word in row.split_inclusive(' ') {
        let mut word = word;
        loop {
            let Some(piece) = pieces.last_mut() else { return pieces };
            let used = piece.chars().count();
            if used + word.trim_end().chars().count() <= room {
                piece.push_str(word);
                break;
            }
            if used > 0 {
                pieces.push(String::new());
                continue;
            }
            // The word is longer than a row.
            let cut = word.char_indices().nth(room).map_or(word.len(), |(cut, _)| cut);
            piece.push_str(&word[..cut]);
            word = &word[cut..];
            pieces.push(String::new());
        }
    }
    for piece in &mut pieces {
        piece.truncate(piece.trim_end().len());
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(kind: LineKind, text: &str) -> RunLine {
        RunLine {
            position: "4.1.7".to_owned(),
            run: "4".to_owned(),
            at: "2026-11-15T10:20:30Z".parse().expect("a timestamp"),
            kind,
            text: text.to_owned(),
            data: None,
        }
    }

    fn text(kind: LineKind, text: &str, width: Option<usize>) -> String {
        let zone = FixedOffset::east_opt(3600).expect("a zone");
        anstream::adapter::strip_str(&format_line(&line(kind, text), zone, width)).to_string()
    }

    #[test]
    fn a_line_has_its_time_its_kind_and_indented_text() {
        assert_eq!(
            text(LineKind::Said, "I will look\nat the tests first.", None),
            "11:20:30 said     I will look\n                  at the tests first."
        );
        assert_eq!(
            text(LineKind::ModelCall, "large · $0.25", None),
            "11:20:30 model    large · $0.25"
        );
    }

    #[test]
    fn a_long_text_is_wrapped_between_words_and_a_long_word_is_cut() {
        let rows = wrap("one two three", Some(8));
        assert_eq!(rows, ["one two", "three"]);
        assert_eq!(wrap("abcdefghij kl", Some(4)), ["abcd", "efgh", "ij", "kl"]);
        assert_eq!(wrap("", Some(4)), [""]);
        assert_eq!(wrap("a  b", None), ["a  b"]);
    }

    #[test]
    fn control_characters_in_agent_output_are_escaped() {
        let shown = text(LineKind::Tool, "a\u{1b}[2Jb\tc", None);
        assert_eq!(shown, "11:20:30 tool     a\\u{1b}[2Jb    c");
    }

    #[test]
    fn kinds_are_parsed_by_name() {
        assert_eq!(parse_kind("model_call"), Ok(KindFilter::Only(LineKind::ModelCall)));
        assert_eq!(parse_kind("all"), Ok(KindFilter::All));
        assert!(parse_kind("sung").is_err());
        assert!(parse_run_number("4.2").is_ok() && parse_run_number("four").is_err());
    }
}
