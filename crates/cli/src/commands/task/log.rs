//! `tamma task log`: what a task's agents say and do, now and before.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use anyhow::{Context as _, Result};
use chrono::FixedOffset;
use clap::Args;
use eventsource_stream::Eventsource as _;
use futures_util::StreamExt as _;
use reqwest::{Method, StatusCode};
use tamma_server::shape::{Card, Present, Run, RunLine, RunLines, Runs};
use tamma_store::{LineKind, RunNumber};
use uuid::Uuid;

use crate::client::{self, Client, Target};
use crate::look::{self, FAINT, STRONG, styled};
use crate::output::plain;
use crate::watch;

/// What is shown unless other kinds are named: not every thought and every call.
const USUAL: [LineKind; 7] = [
    LineKind::Said,
    LineKind::Tool,
    LineKind::Plan,
    LineKind::Progress,
    LineKind::Asked,
    LineKind::Refused,
    LineKind::Note,
];

/// How wide the column of the kinds is.
const KIND: usize = 8;

/// The narrowest text that is wrapped.
const NARROW: usize = 20;

/// How long a server may be away before it is given up.
const AWAY: Duration = Duration::from_mins(1);
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The task: its id, or at least four digits of its beginning or end.
    id: String,
    /// Stays, and shows what comes, until the task has ended or waits for a person.
    #[arg(long, short)]
    follow: bool,
    /// Of this run only: a number such as 4, or 4.2 for its second attempt. `tamma task show` has
    /// them.
    #[arg(long, value_name = "NUMBER", value_parser = number)]
    run: Option<String>,
    /// The kinds of lines, separated by commas: said, thought, tool, plan, progress, asked, refused,
    /// `model_call`, note, or all. By default all but thought and `model_call`.
    #[arg(long, value_name = "KINDS", value_delimiter = ',', value_parser = kind)]
    kinds: Vec<Kind>,
    /// Writes the whole transcript of the run instead, as lines of JSON.
    #[arg(long, requires = "run", conflicts_with_all = ["follow", "kinds"])]
    transcript: bool,
    #[command(flatten)]
    target: Target,
}

/// Kinds of lines that were asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    All,
    One(LineKind),
}

fn kind(text: &str) -> Result<Kind, String> {
    match text {
        "all" => Ok(Kind::All),
        text => text.parse().map(Kind::One).map_err(|_| {
            "the kinds are said, thought, tool, plan, progress, asked, refused, model_call, note and \
             all"
                .to_owned()
        }),
    }
}

fn number(text: &str) -> Result<String, String> {
    let number: Result<RunNumber, _> = text.parse();
    number.map(|_| text.to_owned()).map_err(|error| error.to_string())
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    client::run(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let id = client.which(&arguments.id).await?;
        if let Some(run) = arguments.run.as_ref().filter(|_| arguments.transcript) {
            return transcript(&client, id, run).await;
        }
        let terminal = !arguments.target.json && std::io::stdout().is_terminal();
        let mut log = Log {
            client: &client,
            id,
            query: query(arguments),
            json: arguments.target.json,
            width: terminal.then(look::width).flatten(),
            zone: look::zone(),
            runs: BTreeMap::new(),
            shown: None,
            last: None,
        };
        log.know_runs().await?;
        if arguments.follow { log.follow().await } else { log.read().await }
    })
}

/// What the server is asked for.
fn query(arguments: &Arguments) -> Vec<(&'static str, String)> {
    let mut query = Vec::new();
    if let Some(run) = &arguments.run {
        query.push(("run", run.clone()));
    }
    let kinds: Vec<_> = match arguments.kinds.as_slice() {
        [] => USUAL.iter().map(ToString::to_string).collect(),
        kinds if kinds.contains(&Kind::All) => return query,
        kinds => {
            let one = |kind: &Kind| match kind {
                Kind::One(kind) => Some(kind.to_string()),
                Kind::All => None,
            };
            kinds.iter().filter_map(one).collect()
        }
    };
    query.push(("kinds", kinds.join(",")));
    query
}

async fn transcript(client: &Client, id: Uuid, run: &str) -> Result<ExitCode> {
    let path = format!("/tasks/{id}/runs/{run}/transcript");
    let response = client.send(client.request(Method::GET, &path)).await?;
    let mut parts = response.bytes_stream();
    while let Some(part) = parts.next().await {
        let part = part.context("the transcript broke off: it is not whole")?;
        std::io::stdout().lock().write_all(&part)?;
    }
    Ok(ExitCode::SUCCESS)
}

struct Log<'a> {
    client: &'a Client,
    id: Uuid,
    query: Vec<(&'static str, String)>,
    json: bool,
    /// How wide the terminal is, if there is one.
    width: Option<usize>,
    zone: FixedOffset,
    /// What is known of the runs, by their numbers.
    runs: BTreeMap<String, Run>,
    /// The run whose lines were shown last.
    shown: Option<String>,
    /// The place of the last line.
    last: Option<String>,
}

impl Log<'_> {
    async fn know_runs(&mut self) -> Result<()> {
        let Runs { runs } = self.client.get(&format!("/tasks/{}/runs", self.id), &[]).await?;
        self.runs.extend(runs.into_iter().map(|run| (run.run.clone(), run)));
        Ok(())
    }

    /// Shows what is there.
    async fn read(&mut self) -> Result<ExitCode> {
        let path = format!("/tasks/{}/lines", self.id);
        loop {
            let mut query: Vec<_> =
                self.query.iter().map(|(name, value)| (*name, value.as_str())).collect();
            query.push(("limit", "500"));
            query.extend(self.last.as_deref().map(|last| ("after", last)));
            let page: RunLines = self.client.get(&path, &query).await?;
            for line in &page.lines {
                self.show(line)?;
            }
            match page.next {
                Some(next) => self.last = Some(next),
                None => break,
            }
        }
        if self.last.is_none() && self.shown.is_none() && !self.json {
            let text = "nothing yet: no agent of this task has said or done anything that is kept";
            writeln!(anstream::stderr().lock(), "{}", styled(text, FAINT))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Shows what is there and what comes, and takes up a broken stream where it was.
    async fn follow(&mut self) -> Result<ExitCode> {
        let (mut away, mut wait) = (Duration::ZERO, FIRST_WAIT);
        loop {
            let known = self.last.clone();
            match self.stream().await {
                Ok(true) => return Ok(ExitCode::SUCCESS),
                Err(error) if !watch::passes(&error) || away >= AWAY => return Err(error),
                // The server has ended the stream, or is away; it may be starting again.
                Ok(false) | Err(_) => {}
            }
            if self.last != known {
                (away, wait) = (Duration::ZERO, FIRST_WAIT);
            }
            tokio::time::sleep(wait).await;
            away += wait;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// Follows one stream. Returns whether there is nothing more to wait for.
    async fn stream(&mut self) -> Result<bool> {
        let path = format!("/tasks/{}/lines/stream", self.id);
        let mut request = self.client.request(Method::GET, &path).query(&self.query);
        if let Some(last) = &self.last {
            request = request.header("last-event-id", last);
        }
        let response = self.client.send(request).await?;
        if response.status() == StatusCode::NO_CONTENT {
            return Ok(true);
        }
        let mut events = response.bytes_stream().eventsource();
        while let Some(event) = events.next().await {
            // A broken stream is taken up again by the caller.
            let Ok(event) = event else { return Ok(false) };
            let half = "the server sent half an event";
            match event.event.as_str() {
                "line" => {
                    let line: RunLine = serde_json::from_str(&event.data).context(half)?;
                    self.show(&line)?;
                    self.last = Some(line.place);
                }
                "run" => {
                    let present: Present = serde_json::from_str(&event.data).context(half)?;
                    self.runs.insert(present.run.run.clone(), present.run);
                }
                "task" => {
                    let card: Card = serde_json::from_str(&event.data).context(half)?;
                    if card.state.is_terminal() || card.waits_for_person {
                        return self.stand(&card).map(|()| true);
                    }
                }
                _ => {}
            }
        }
        Ok(false)
    }

    /// Says why nothing more is waited for, to people.
    fn stand(&self, card: &Card) -> Result<()> {
        if self.json {
            return Ok(());
        }
        let text = match &card.next_in_words {
            Some(next) if card.waits_for_person => format!("it waits for a person: {next}"),
            _ => format!("the task is {}", look::words(&card.state)),
        };
        Ok(writeln!(anstream::stderr().lock(), "{}", styled(&plain(&text), FAINT))?)
    }

    fn show(&mut self, line: &RunLine) -> Result<()> {
        let mut out = anstream::stdout().lock();
        if self.json {
            writeln!(out, "{}", serde_json::to_string(line)?)?;
            return Ok(());
        }
        if self.shown.as_ref() != Some(&line.run) {
            let before = if self.shown.is_some() { "\n" } else { "" };
            let head = heading(&line.run, self.runs.get(&line.run));
            writeln!(out, "{before}{}", styled(&head, STRONG))?;
            self.shown = Some(line.run.clone());
        }
        Ok(writeln!(out, "{}", shown(line, self.zone, self.width))?)
    }
}

/// What is said of a run before its lines.
fn heading(number: &str, run: Option<&Run>) -> String {
    let Some(run) = run else { return format!("run {number}") };
    let mut text = format!("run {number} · {} · {}", plain(&run.mode), watch::engine(run));
    if let Some(tier) = run.tier {
        look::add(&mut text, format_args!(" · {tier}"));
    }
    text
}

/// One line of a run: when, what kind, and its text, wrapped where there is a width.
fn shown(line: &RunLine, zone: FixedOffset, width: Option<usize>) -> String {
    let name =
        if line.kind == LineKind::ModelCall { "model".to_owned() } else { line.kind.to_string() };
    let (style, body) = looks(line.kind);
    let time = look::clock(line.at, zone);
    let indent = time.len() + 1 + KIND + 1;
    let room = width.map(|width| width.saturating_sub(indent).max(NARROW));
    let mut text =
        format!("{} {} ", styled(&time, FAINT), styled(&format!("{name:<KIND$}"), style));
    let rows = line.text.lines().flat_map(|row| wrapped(&plain(&row.replace('\t', "    ")), room));
    for (index, row) in rows.enumerate() {
        if index > 0 {
            look::add(&mut text, format_args!("\n{:indent$}", ""));
        }
        text += &styled(&row, body);
    }
    text
}

/// How a kind looks: its word, and its text.
fn looks(kind: LineKind) -> (Style, Style) {
    let plain = Style::new();
    let quiet = |colour: AnsiColor| colour.on_default().dimmed();
    match kind {
        LineKind::Said => (quiet(AnsiColor::Green), plain),
        LineKind::Thought => (FAINT, FAINT.italic()),
        LineKind::Tool => (quiet(AnsiColor::Cyan), plain),
        LineKind::Plan => (quiet(AnsiColor::Blue), plain),
        LineKind::Progress => (quiet(AnsiColor::Magenta), plain),
        LineKind::Asked | LineKind::Note => (quiet(AnsiColor::Yellow), plain),
        LineKind::Refused => (quiet(AnsiColor::Red), plain),
        LineKind::ModelCall => (FAINT, FAINT),
    }
}

/// A row in pieces that fit, cut between words where there are some.
fn wrapped(row: &str, room: Option<usize>) -> Vec<String> {
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
            // A word that is longer than a row.
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
            place: "4.1.7".to_owned(),
            run: "4".to_owned(),
            at: "2026-11-15T10:20:30Z".parse().expect("a moment"),
            kind,
            text: text.to_owned(),
            data: None,
        }
    }

    fn text(kind: LineKind, text: &str, width: Option<usize>) -> String {
        let zone = FixedOffset::east_opt(3600).expect("a zone");
        anstream::adapter::strip_str(&shown(&line(kind, text), zone, width)).to_string()
    }

    #[test]
    fn a_line_has_its_time_its_kind_and_its_text_below_itself() {
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
        let rows = wrapped("one two three", Some(8));
        assert_eq!(rows, ["one two", "three"]);
        assert_eq!(wrapped("abcdefghij kl", Some(4)), ["abcd", "efgh", "ij", "kl"]);
        assert_eq!(wrapped("", Some(4)), [""]);
        assert_eq!(wrapped("a  b", None), ["a  b"]);
    }

    #[test]
    fn what_an_agent_says_does_not_command_the_terminal() {
        let shown = text(LineKind::Tool, "a\u{1b}[2Jb\tc", None);
        assert_eq!(shown, "11:20:30 tool     a\\u{1b}[2Jb    c");
    }

    #[test]
    fn kinds_are_read_by_their_names() {
        assert_eq!(kind("model_call"), Ok(Kind::One(LineKind::ModelCall)));
        assert_eq!(kind("all"), Ok(Kind::All));
        assert!(kind("sung").is_err());
        assert!(number("4.2").is_ok() && number("four").is_err());
    }
}
