//! `--watch` and `tamma task watch`: follow a task in the terminal.
//!
//! The server streams history entries as events. A broken connection is resumed after the last entry,
//! with retries for up to 1 min.

mod entry_line;

pub(crate) use entry_line::format_entry;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use eventsource_stream::Eventsource as _;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, future};
use indicatif::{ProgressBar, ProgressStyle};
use reqwest::{Method, StatusCode};
use tamma_core::history::{EntryData, EntryName, HistoryEntry};
use tamma_core::task_loop::State;
use tamma_server::dto::{CurrentRun, RecordedEntry, RunDetail, TaskCard, TaskDetail, TaskUpdate};
use tamma_store::Backoff;
use uuid::Uuid;

use crate::client::{Client, Error};
use crate::output::sanitize;
use crate::style::{self, STRONG, format_ago, format_duration, format_spend, paint, styled};

/// Exit code if the task needs a person.
const EXIT_NEEDS_PERSON: u8 = 3;

/// Time after which watching gives up on an unreachable server.
const MAX_OUTAGE: Duration = Duration::from_mins(1);
/// Refresh interval of the status line.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

const MIN_BACKOFF: Duration = Duration::from_millis(250);
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// Options for watching a task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WatchOptions {
    /// Stop when the task needs a person.
    pub(crate) until_asked: bool,
    /// Print entries as JSON lines, as the server sends them.
    pub(crate) json: bool,
    /// Print questions without the commands that answer them: the caller asks.
    pub(crate) asks_inline: bool,
}

/// Reason why watching ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchEnd {
    /// The task was completed.
    Completed,
    /// The task failed or was cancelled.
    Unsuccessful,
    /// The task needs a person.
    NeedsPerson,
}

impl WatchEnd {
    /// Returns the documented exit code.
    pub(crate) fn exit_code(self) -> ExitCode {
        match self {
            Self::Completed => ExitCode::SUCCESS,
            Self::Unsuccessful => ExitCode::FAILURE,
            Self::NeedsPerson => ExitCode::from(EXIT_NEEDS_PERSON),
        }
    }
}

/// Part of a task's history that was already shown, so that watching can continue after it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WatchPosition {
    /// Sequence number of the last printed entry; 0 before the first.
    last_sequence: u64,
    /// Number of the question that was printed last.
    shown_question: Option<u32>,
    /// Number of the question that the person has answered. It may still be stored as open.
    answered_question: Option<u32>,
}

impl WatchPosition {
    /// Marks the last printed question as answered.
    pub(crate) fn mark_answered(&mut self) {
        self.answered_question = self.shown_question;
    }
}

/// Follows a task until it is closed, or with `until_asked` until it needs a person.
pub(crate) async fn watch(client: &Client, task: Uuid, options: WatchOptions) -> Result<ExitCode> {
    let end = watch_from(client, task, options, &mut WatchPosition::default()).await?;
    Ok(end.exit_code())
}

/// Follows a task from a position, and moves the position.
pub(crate) async fn watch_from(
    client: &Client,
    task: Uuid,
    options: WatchOptions,
    position: &mut WatchPosition,
) -> Result<WatchEnd> {
    let screen = Screen::new(options.json);
    let mut watch = TaskWatcher {
        client,
        task,
        options,
        position,
        unchecked_plan: None,
        card: None,
        run: None,
        screen,
    };
    let mut outage = Duration::ZERO;
    let mut backoff = Backoff::new(MIN_BACKOFF, MAX_BACKOFF);
    loop {
        let last_sequence = watch.position.last_sequence;
        match watch.follow().await {
            Ok(Some(end)) => return Ok(end),
            // The server ended the stream; it may be restarting.
            Ok(None) => {}
            Err(error) if !is_transient(&error) || watch.position.last_sequence == 0 => {
                return Err(error);
            }
            Err(error) if outage >= MAX_OUTAGE => return Err(error),
            Err(_) => watch.screen.set_status("server unreachable; retrying"),
        }
        if watch.position.last_sequence > last_sequence {
            outage = Duration::ZERO;
            backoff.reset();
        }
        let wait = backoff.next_delay();
        tokio::time::sleep(wait).await;
        outage += wait;
    }
}

/// Returns `true` if a retry can succeed.
pub(crate) fn is_transient(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<Error>() {
        Some(Error::Unreachable { .. }) => true,
        Some(Error::Problem(problem)) => problem.status == 503,
        Some(_) | None => false,
    }
}

struct TaskWatcher<'a> {
    client: &'a Client,
    task: Uuid,
    options: WatchOptions,
    position: &'a mut WatchPosition,
    /// Entry of a new plan, which is printed together with its check.
    unchecked_plan: Option<HistoryEntry>,
    /// Task as last fetched.
    card: Option<TaskCard>,
    /// Current run, if any.
    run: Option<CurrentRun>,
    screen: Screen,
}

impl TaskWatcher<'_> {
    /// Follows one stream to its end. Returns a reason if there is nothing more to follow.
    async fn follow(&mut self) -> Result<Option<WatchEnd>> {
        let path = format!("/tasks/{}/events", self.task);
        let request = self
            .client
            .request(Method::GET, &path)
            .header("last-event-id", self.position.last_sequence.to_string());
        let response = self.client.send(request).await?;
        if response.status() == StatusCode::NO_CONTENT {
            return self.check_state().await;
        }
        // Print all buffered entries before fetching the state.
        let mut batches = response.bytes_stream().eventsource().ready_chunks(256);
        let mut runs = self.run_updates().await;
        // The status line shows elapsed time.
        let mut seconds = tokio::time::interval(STATUS_INTERVAL);
        loop {
            let batch = tokio::select! {
                batch = batches.next() => batch,
                run = runs.next(), if self.screen.is_live() => {
                    match run {
                        Some(run) => self.run = Some(run),
                        None => runs = never_ready(),
                    }
                    self.update_status();
                    continue;
                }
                _ = seconds.tick(), if self.screen.is_live() => {
                    self.update_status();
                    continue;
                }
            };
            let Some(batch) = batch else { return Ok(None) };
            for event in batch {
                // The caller resumes a broken stream.
                let Ok(event) = event else { return Ok(None) };
                match event.event.as_str() {
                    "update" => self.print_update(&event.data)?,
                    _ => self.print_entry(&event.data)?,
                }
            }
            if let Some(end) = self.check_state().await? {
                return Ok(Some(end));
            }
        }
    }

    /// Stream of run updates for the status line; never ready if there is none.
    async fn run_updates(&self) -> BoxStream<'static, CurrentRun> {
        if !self.screen.is_live() {
            return never_ready();
        }
        let path = format!("/tasks/{}/lines/stream", self.task);
        let request = self.client.request(Method::GET, &path).query(&[("after", "end")]);
        // Optional: without it, the status line has less detail.
        let Ok(response) = self.client.send(request).await else { return never_ready() };
        let run_event = |event: Result<eventsource_stream::Event, _>| {
            let event = event.ok().filter(|event| event.event == "run");
            future::ready(event.and_then(|event| serde_json::from_str(&event.data).ok()))
        };
        response.bytes_stream().eventsource().filter_map(run_event).boxed()
    }

    /// Refreshes the status line.
    fn update_status(&self) {
        if let Some(card) = &self.card {
            self.screen.set_status(&status_line(card, self.run.as_ref(), style::now()));
        }
    }

    /// Prints a regular update about the task. A live status line already shows it.
    fn print_update(&mut self, data: &str) -> Result<()> {
        let update: TaskUpdate =
            serde_json::from_str(data).context("cannot parse an update from the server")?;
        if self.options.json {
            return self.screen.print_line(data);
        }
        if self.screen.is_live() {
            return Ok(());
        }
        let (at, phase) = (update.at, update.task.state.phase());
        let colour = style::state_colour(update.task.state);
        let line = entry_line::format_line(("…", colour), at, phase, style::local_offset());
        let status = status_line(&update.task, update.run.as_ref(), update.at);
        self.screen.print_line(&format!("{line}{status}"))
    }

    fn print_entry(&mut self, data: &str) -> Result<()> {
        let line: RecordedEntry =
            serde_json::from_str(data).context("cannot parse a history entry from the server")?;
        self.position.last_sequence = line.entry.sequence;
        if self.options.json {
            return self.screen.print_line(data);
        }
        let (entry, zone) = (line.entry, style::local_offset());
        if let Some(plan) = self.unchecked_plan.take() {
            if let EntryData::Plan(summary) = &plan.data
                && let Some(text) = entry_line::format_checked_plan(summary, &entry, zone)
            {
                return self.screen.print_line(&text);
            }
            self.screen.print_line(&format_entry(&plan, zone))?;
        }
        match entry.name {
            EntryName::SmPlanGenerated => self.unchecked_plan = Some(entry),
            // The final line says so, with duration and cost.
            EntryName::SmTaskCompleted => {}
            _ => self.screen.print_line(&format_entry(&entry, zone))?,
        }
        Ok(())
    }

    /// Fetches the task and returns a reason if watching is over.
    async fn check_state(&mut self) -> Result<Option<WatchEnd>> {
        let detail: TaskDetail = self.client.get(&format!("/tasks/{}", self.task), &[]).await?;
        if detail.card.state.is_terminal() {
            // Print entries that arrived since the last one first.
            if detail.card.entries > self.position.last_sequence {
                return Ok(None);
            }
            self.screen.clear_status();
            if !self.options.json {
                self.screen.print_line(&outcome_message(&detail))?;
            }
            let done = detail.card.state == State::Completed;
            return Ok(Some(if done { WatchEnd::Completed } else { WatchEnd::Unsuccessful }));
        }
        self.card = Some(detail.card.clone());
        self.run.clone_from(&detail.current_run);
        self.update_status();
        // The entries that led to the question are printed before it.
        let all_shown = detail.card.entries <= self.position.last_sequence;
        let question =
            detail.question.as_ref().filter(|_| detail.card.waits_for_person && all_shown);
        match question {
            Some(question) if self.position.shown_question != Some(question.number) => {
                self.position.shown_question = Some(question.number);
                if !self.options.json {
                    let with_commands = !self.options.asks_inline;
                    self.screen.print_line(&question_message(&detail, with_commands))?;
                }
            }
            _ => {}
        }
        let answered = self.position.answered_question;
        let is_open = question.is_some_and(|question| Some(question.number) != answered);
        if is_open && self.options.until_asked {
            self.screen.clear_status();
            return Ok(Some(WatchEnd::NeedsPerson));
        }
        Ok(None)
    }
}

/// Stream that never yields.
fn never_ready() -> BoxStream<'static, CurrentRun> {
    futures_util::stream::pending().boxed()
}

/// Formats the agent of a run with its model, if known.
pub(crate) fn agent_and_model(run: &RunDetail) -> String {
    match &run.model {
        Some(model) => format!("{} ({})", sanitize(&run.agent), sanitize(model)),
        None => sanitize(&run.agent),
    }
}

/// Status line during a run: agent, duration, current activity and usage.
fn run_status_line(current: &CurrentRun, now: chrono::DateTime<chrono::Utc>) -> String {
    let CurrentRun { run, current_line: activity } = current;
    let usage = run.usage.as_ref();
    let mut parts =
        vec![format!("{} for {}", agent_and_model(run), format_duration(now - run.started_at))];
    // Only the first row: the status is a single line.
    let activity =
        activity.as_ref().and_then(|line| line.text.lines().find(|row| !row.trim().is_empty()));
    parts.push(activity.map_or_else(|| "starting".to_owned(), |row| sanitize(row.trim())));
    if usage.is_some() {
        let cached = style::format_cached(usage);
        let cached = if cached.is_empty() { cached } else { format!(" ({cached} cached)") };
        parts.push(format!("{} tokens{cached}", style::format_tokens(usage)));
    }
    parts.push(match style::format_run_cost(usage).as_str() {
        "unknown" => "cost unknown".to_owned(),
        cost => cost.to_owned(),
    });
    parts.join(" · ")
}

/// Status line: state, duration, cost and next step.
fn status_line(
    card: &TaskCard,
    run: Option<&CurrentRun>,
    now: chrono::DateTime<chrono::Utc>,
) -> String {
    if let Some(run) = run {
        return run_status_line(run, now);
    }
    let next = style::next_step_text(card, style::local_offset());
    let next = next.as_deref().unwrap_or("no next step");
    format!(
        "{} for {} · {} · {}",
        card.state.label(),
        format_duration(now - card.since),
        format_spend(&card.spend),
        sanitize(next)
    )
}

/// Final line: result, duration, attempts and cost. A task has more runs than attempts: planners and
/// validators run too.
fn outcome_message(detail: &TaskDetail) -> String {
    let card = &detail.card;
    let (glyph, end) = match card.state {
        State::Completed => ("✔", "completed in"),
        State::Cancelled => ("✖", "cancelled after"),
        _ => ("✖", "failed after"),
    };
    let colour = style::state_colour(card.state);
    let zone = style::local_offset();
    let mut text = entry_line::format_line((glyph, colour), card.since, card.state.phase(), zone);
    style::push_fmt(
        &mut text,
        format_args!(
            "{} {}: {}, {}",
            paint(end, colour),
            format_duration(card.since - card.created_at),
            crate::output::pluralize(card.iterations.into(), "attempt"),
            format_spend(&card.spend),
        ),
    );
    if let Some(branch) = style::delivered_branch(detail) {
        style::push_fmt(&mut text, format_args!("\nBranch ready: git show {branch}"));
    }
    text
}

/// Formats the open question, and the commands that answer it.
fn question_message(detail: &TaskDetail, with_commands: bool) -> String {
    let cause = detail.question.as_ref().map_or("a decision is needed", |it| &it.cause_text);
    let asked_ago = detail.question.as_ref().map(|it| format_ago(it.asked_at, style::now()));
    let mut text = format!(
        "{} {} ({})",
        paint("?", anstyle::AnsiColor::Yellow),
        styled(&sanitize(cause), STRONG),
        asked_ago.unwrap_or_default()
    );
    if let Some(asks) = detail.question.as_ref().and_then(|it| it.agent_question.as_ref()) {
        for line in asks.lines() {
            style::push_fmt(&mut text, format_args!("\n  {}", sanitize(line)));
        }
    }
    if with_commands {
        for command in crate::commands::suggested_commands(detail) {
            style::push_fmt(&mut text, format_args!("\n    {command}"));
        }
    }
    text
}

/// Terminal output: permanent lines above one status line.
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

    /// Returns `true` if there is a status line.
    fn is_live(&self) -> bool {
        self.bar.is_some()
    }

    /// Prints a permanent line.
    fn print_line(&self, text: &str) -> Result<()> {
        let write = || writeln!(anstream::stdout().lock(), "{text}");
        match &self.bar {
            Some(bar) => bar.suspend(write)?,
            None => write()?,
        }
        Ok(())
    }

    /// Sets the text of the status line.
    fn set_status(&self, text: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(text.to_owned());
        }
    }

    /// Removes the status line.
    fn clear_status(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.clear_status();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_status_line_shows_agent_duration_activity_and_usage() {
        let run = |usage: serde_json::Value, text: Option<&str>| -> CurrentRun {
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
        let now = "2026-11-15T10:23:30Z".parse().expect("a timestamp");
        let counted = json!({
            "input": 1200, "cached": 30, "cached_percent": 2, "output": 4, "usd": "0.03",
            "metered": true,
        });
        assert_eq!(
            run_status_line(&run(counted, Some("Edit src/lib.rs: in progress\nmore")), now),
            "claude-code (opus) for 3 min · Edit src/lib.rs: in progress · \
             1,234 tokens (2% cached) · $0.03"
        );
        let reported =
            json!({ "input": 12, "cached": 0, "output": 4, "usd": "0.03", "metered": false });
        assert!(
            run_status_line(&run(reported, None), now)
                .ends_with("starting · 16 tokens · ≈ $0.03 (reported by the agent)")
        );
        assert!(
            run_status_line(&run(json!(null), None), now).ends_with("· starting · cost unknown")
        );
    }

    #[test]
    fn the_last_line_counts_attempts_as_lists_and_details_do() {
        let task = include_str!("../tests/fixtures/waits.json");
        let mut detail: TaskDetail = serde_json::from_str(task).expect("a task");
        detail.card.state = State::Completed;
        for (iterations, expected) in [(1, ": 1 attempt, "), (2, ": 2 attempts, ")] {
            detail.card.iterations = iterations;
            let text = outcome_message(&detail);
            assert!(text.contains(expected) && !text.contains(" run"), "{text}");
        }
    }
}
