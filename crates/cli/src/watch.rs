//! Following a task as it goes its way.
//!
//! The server sends the log as events. When the connection breaks, it is made again from the last
//! entry that was seen, for as long as a minute.

mod line;

pub(crate) use line::line;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use eventsource_stream::Eventsource as _;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, future};
use indicatif::{ProgressBar, ProgressStyle};
use reqwest::{Method, StatusCode};
use tamma_core::task_loop::State;
use tamma_server::shape::{Card, Line, Present, Run, Whole};
use uuid::Uuid;

use crate::client::{Client, Error};
use crate::look::{self, STRONG, ago, lasting, money, paint, styled, words};
use crate::output::plain;

/// Exit code of a task that waits for a person.
const ASKED: u8 = 3;

/// How long a server may be away before it is given up.
const AWAY: Duration = Duration::from_mins(1);
/// How often the clock of the live line moves.
const SECOND: Duration = Duration::from_secs(1);

const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// How a task is followed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    /// Ends as soon as the task waits for a person.
    pub(crate) until_asked: bool,
    /// Writes the entries as they come over the wire.
    pub(crate) json: bool,
}

/// Follows a task until it has ended, or waits for a person where that is the end.
pub(crate) async fn watch(client: &Client, task: Uuid, options: Options) -> Result<ExitCode> {
    let screen = Screen::new(options.json);
    let mut watch =
        Watch { client, task, options, last: 0, asked: None, card: None, run: None, screen };
    let (mut away, mut wait) = (Duration::ZERO, FIRST_WAIT);
    loop {
        let known = watch.last;
        match watch.follow().await {
            Ok(Some(code)) => return Ok(code),
            // The server has ended the stream; it may be starting again.
            Ok(None) => {}
            Err(error) if !passes(&error) || watch.last == 0 => return Err(error),
            Err(error) if away >= AWAY => return Err(error),
            Err(_) => watch.screen.note("the server is away; trying again"),
        }
        if watch.last > known {
            (away, wait) = (Duration::ZERO, FIRST_WAIT);
        }
        tokio::time::sleep(wait).await;
        away += wait;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

/// Whether what went wrong may pass by itself.
pub(crate) fn passes(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<Error>() {
        Some(Error::Unreachable { .. }) => true,
        Some(Error::Problem(problem)) => problem.status == 503,
        Some(_) | None => false,
    }
}

struct Watch<'a> {
    client: &'a Client,
    task: Uuid,
    options: Options,
    /// The last entry that was seen.
    last: u64,
    /// The question that people were told of.
    asked: Option<u32>,
    /// How the task stood at the last look.
    card: Option<Card>,
    /// The run that is under way.
    run: Option<Present>,
    screen: Screen,
}

impl Watch<'_> {
    /// Follows one stream to its end. Returns how it all ended, if it has.
    async fn follow(&mut self) -> Result<Option<ExitCode>> {
        let path = format!("/tasks/{}/events", self.task);
        let request =
            self.client.request(Method::GET, &path).header("last-event-id", self.last.to_string());
        let response = self.client.send(request).await?;
        if response.status() == StatusCode::NO_CONTENT {
            return self.stand().await;
        }
        // Everything that is there is shown at once, and then how it stands.
        let mut batches = response.bytes_stream().eventsource().ready_chunks(256);
        let mut runs = self.runs().await;
        // The live line has a clock in it.
        let mut seconds = tokio::time::interval(SECOND);
        loop {
            let batch = tokio::select! {
                batch = batches.next() => batch,
                run = runs.next(), if self.screen.lives() => {
                    match run {
                        Some(run) => self.run = Some(run),
                        None => runs = nothing(),
                    }
                    self.status();
                    continue;
                }
                _ = seconds.tick(), if self.screen.lives() => {
                    self.status();
                    continue;
                }
            };
            let Some(batch) = batch else { return Ok(None) };
            for event in batch {
                // A broken stream is taken up again by the caller.
                let Ok(event) = event else { return Ok(None) };
                self.show(&event.data)?;
            }
            if let Some(code) = self.stand().await? {
                return Ok(Some(code));
            }
        }
    }

    /// How the runs of the task stand, as that changes; nothing where nobody sees it.
    async fn runs(&self) -> BoxStream<'static, Present> {
        if !self.screen.lives() {
            return nothing();
        }
        let path = format!("/tasks/{}/lines/stream", self.task);
        let request = self.client.request(Method::GET, &path).query(&[("after", "end")]);
        // The log is what matters: without this, the live line says less.
        let Ok(response) = self.client.send(request).await else { return nothing() };
        let present = |event: Result<eventsource_stream::Event, _>| {
            let event = event.ok().filter(|event| event.event == "run");
            future::ready(event.and_then(|event| serde_json::from_str(&event.data).ok()))
        };
        response.bytes_stream().eventsource().filter_map(present).boxed()
    }

    /// Sets the live line.
    fn status(&self) {
        if let Some(card) = &self.card {
            self.screen.note(&status(card, self.run.as_ref(), look::now()));
        }
    }

    fn show(&mut self, data: &str) -> Result<()> {
        let line: Line = serde_json::from_str(data).context("the server sent half an entry")?;
        self.last = line.entry.sequence;
        if self.options.json {
            return self.screen.line(data);
        }
        self.screen.line(&line::line(&line.entry, look::zone()))
    }

    /// Looks how the task stands, and whether that is the end.
    async fn stand(&mut self) -> Result<Option<ExitCode>> {
        let whole: Whole = self.client.get(&format!("/tasks/{}", self.task), &[]).await?;
        if whole.card.state.is_terminal() {
            // What came between the last entry and this look is shown first.
            if whole.card.entries > self.last {
                return Ok(None);
            }
            self.screen.end();
            if !self.options.json {
                self.screen.line(&outcome(&whole))?;
            }
            let done = whole.card.state == State::Completed;
            return Ok(Some(if done { ExitCode::SUCCESS } else { ExitCode::FAILURE }));
        }
        self.card = Some(whole.card.clone());
        self.run.clone_from(&whole.run);
        self.status();
        // What led to the question is shown before it.
        let all_shown = whole.card.entries <= self.last;
        let question = whole.question.as_ref().filter(|_| whole.card.waits_for_person && all_shown);
        match question {
            Some(question) if self.asked != Some(question.number) => {
                self.asked = Some(question.number);
                if !self.options.json {
                    self.screen.line(&request(&whole))?;
                }
            }
            _ => {}
        }
        if question.is_some() && self.options.until_asked {
            self.screen.end();
            return Ok(Some(ExitCode::from(ASKED)));
        }
        Ok(None)
    }
}

/// Nothing ever comes.
fn nothing() -> BoxStream<'static, Present> {
    futures_util::stream::pending().boxed()
}

/// The agent of a run, and its model if that is known.
pub(crate) fn engine(run: &Run) -> String {
    match &run.model {
        Some(model) => format!("{} ({})", plain(&run.agent), plain(model)),
        None => plain(&run.agent),
    }
}

/// The live line while an agent works: who, for how long, what it does, what it has used.
fn working(present: &Present, now: chrono::DateTime<chrono::Utc>) -> String {
    let Present { run, doing } = present;
    let usage = run.usage.as_ref();
    let mut parts = vec![format!("{} for {}", engine(run), lasting(now - run.started_at))];
    // The first row of it: there is one line for all.
    let doing =
        doing.as_ref().and_then(|line| line.text.lines().find(|row| !row.trim().is_empty()));
    parts.push(doing.map_or_else(|| "starting".to_owned(), |row| plain(row.trim())));
    if usage.is_some() {
        parts.push(format!("{} tokens", look::tokens(usage)));
    }
    parts.push(match look::cost(usage).as_str() {
        "unknown" => "cost unknown".to_owned(),
        cost => cost.to_owned(),
    });
    parts.join(" · ")
}

/// The live line: where it is, since when, what it has cost, what comes next.
fn status(card: &Card, run: Option<&Present>, now: chrono::DateTime<chrono::Utc>) -> String {
    if let Some(run) = run {
        return working(run, now);
    }
    let next = card.next_in_words.as_deref().unwrap_or("nothing more to do");
    format!(
        "{} for {} · {} · {}",
        words(&card.state),
        lasting(now - card.since),
        money(&card.spend),
        plain(next)
    )
}

/// The last line: how it ended.
fn outcome(whole: &Whole) -> String {
    let card = &whole.card;
    let (glyph, end) = match card.state {
        State::Completed => ("✔", "completed"),
        State::Cancelled => ("✖", "cancelled"),
        _ => ("✖", "failed"),
    };
    let colour = look::of_state(card.state);
    let after = lasting(card.since - card.created_at);
    let mut text = format!(
        "{} {} is {} after {after}, {}, {}",
        paint(glyph, colour),
        styled(&plain(&card.title), STRONG),
        paint(end, colour),
        crate::output::counted(card.iterations.into(), "run"),
        money(&card.spend),
    );
    if let Some(branch) = look::branch(whole) {
        look::add(&mut text, format_args!("\n  git show {branch}"));
    }
    text
}

/// What is asked of people, and the commands that answer.
fn request(whole: &Whole) -> String {
    let why = whole.question.as_ref().map_or("it waits for a person", |it| &it.in_words);
    let asked = whole.question.as_ref().map(|it| ago(it.asked_at, look::now()));
    let mut text = format!(
        "{} {} ({})",
        paint("?", anstyle::AnsiColor::Yellow),
        styled(&plain(why), STRONG),
        asked.unwrap_or_default()
    );
    if let Some(asks) = whole.question.as_ref().and_then(|it| it.asks.as_ref()) {
        for line in asks.lines() {
            look::add(&mut text, format_args!("\n  {}", plain(line)));
        }
    }
    for command in crate::commands::suggestions(whole) {
        look::add(&mut text, format_args!("\n    {command}"));
    }
    text
}

/// Lines that stay, and below them one that lives.
struct Screen {
    bar: Option<ProgressBar>,
}

impl Screen {
    fn new(json: bool) -> Self {
        let lives = !json && std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
        let bar = lives.then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner:.cyan} {wide_msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self { bar }
    }

    /// Whether there is a line that lives.
    fn lives(&self) -> bool {
        self.bar.is_some()
    }

    /// Writes a line that stays.
    fn line(&self, text: &str) -> Result<()> {
        let write = || writeln!(anstream::stdout().lock(), "{text}");
        match &self.bar {
            Some(bar) => bar.suspend(write)?,
            None => write()?,
        }
        Ok(())
    }

    /// Sets the line that lives.
    fn note(&self, text: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(text.to_owned());
        }
    }

    /// Nothing lives any more.
    fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_live_line_says_who_works_for_how_long_on_what_and_what_that_costs() {
        let run = |usage: serde_json::Value, text: Option<&str>| -> Present {
            let doing = text.map(|text| {
                json!({ "place": "4.1.7", "run": "4", "at": "2026-11-15T10:20:30Z", "kind": "tool",
                        "text": text })
            });
            serde_json::from_value(json!({
                "run": "4", "ticket": 4, "attempt": 1, "agent": "claude-code", "model": "opus",
                "tier": "complex", "mode": "implement", "session": null,
                "started_at": "2026-11-15T10:20:00Z", "ended_at": null, "end": null, "reason": null,
                "usage": usage, "calls": 3, "lines": 7, "transcript": false, "doing": doing,
            }))
            .expect("a run")
        };
        let now = "2026-11-15T10:23:30Z".parse().expect("a moment");
        let counted =
            json!({ "input": 1200, "cached": 30, "output": 4, "usd": "0.03", "metered": true });
        assert_eq!(
            working(&run(counted, Some("Edit src/lib.rs: in progress\nmore")), now),
            "claude-code (opus) for 3 min · Edit src/lib.rs: in progress · 1,234 tokens · $0.03"
        );
        let reported =
            json!({ "input": 12, "cached": 0, "output": 4, "usd": "0.03", "metered": false });
        assert!(
            working(&run(reported, None), now)
                .ends_with("starting · 16 tokens · ≈ $0.03 (as the agent reports)")
        );
        assert!(working(&run(json!(null), None), now).ends_with("· starting · cost unknown"));
    }
}
