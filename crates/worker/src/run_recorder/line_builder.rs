//! Conversion of agent updates to readable log lines.
//!
//! Pure: updates with timestamps go in; sanitised lines and transcript records come out. Text
//! chunks are joined before sanitising, so that no secret or control sequence passes in two parts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use serde_json::{Value, json};
use tamma_core::cost::{Cost, Tokens, Usage, Usd};
use tamma_core::format::{format_duration, format_number, format_usd, humanize, pluralize};
use tamma_core::history::EntryName;
use tamma_core::ids::Digest;
use tamma_core::task_loop::Timestamp;
use tamma_core::update_clock::UpdateClock;
use tamma_engine::agent::{AgentUpdate, PlanEntry, ToolCallUpdate, ToolContent};
use tamma_engine::permission::PermissionEffect;
use tamma_engine::{gateway, sanitize};
use tamma_store::{LineKind, ModelCall, NewLine, RunUpdate};

use super::PromptRecord;
use super::relative_paths::relative_paths;
use super::tool_call::ToolCallState;
use crate::task_trace::{EndedCall, EndedModelCall};

/// Function that removes secrets from text.
pub type Redact = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// Length at which text becomes a line of its own, in bytes.
const MAX_SPEECH_BYTES: usize = 2000;

/// Maximum length of text without a space, in bytes.
const MAX_WORD_BYTES: usize = 16 * 1024;

/// Maximum length of a block of JSON that is kept in one piece, in bytes.
const MAX_JSON_BYTES: usize = 64 * 1024;

/// Maximum length of a stored line, in characters.
const MAX_LINE_CHARS: usize = 4000;

/// Maximum length of the data of a stored line, in bytes. Longer data is only in the transcript.
const MAX_DATA_BYTES: usize = 64 * 1024;

/// Maximum number of tool calls that are shown as running.
const MAX_RUNNING_CALLS: usize = 20;

/// Time after which incomplete text is shown.
const SPEECH_TIMEOUT: TimeDelta = TimeDelta::seconds(5);

/// Maximum number of queued lines. Further lines are only in the transcript.
const MAX_PENDING_LINES: usize = 20_000;

/// Key of the requested model in the data of a run's first note. The model of a run record is the
/// one that the provider was called with, which has another name.
pub(crate) const REQUESTED_MODEL: &str = "requested_model";

/// Update of a run.
#[derive(Debug, Clone)]
pub(super) enum Observation {
    /// Update from the engine.
    Update(AgentUpdate),
    /// Note from Tamma.
    Note(String),
    /// Start of the run.
    Started(RunStart),
}

/// Facts that are known when a run starts.
#[derive(Debug, Clone)]
pub(super) struct RunStart {
    pub(super) prompt: PromptRecord,
    /// Requested model, if any.
    pub(super) model: Option<String>,
    /// Number of the iteration and the maximum, for an implementation run.
    pub(super) iteration: Option<(u16, u16)>,
}

/// Text that is still being received.
struct SpeechBuffer {
    kind: LineKind,
    text: String,
    since: Timestamp,
}

/// Progress of an implementation run, reported at a regular interval.
struct ProgressReport {
    started_at: Timestamp,
    clock: UpdateClock,
    tool_calls: u64,
    /// Latest message of the agent about its progress.
    message: Option<String>,
}

/// State of a run, with the lines that are not saved yet.
pub(super) struct LineBuilder {
    redact: Redact,
    /// Folder that the agent works in. Paths in lines are relative to it.
    worktree: String,
    /// Number of the last line.
    sequence: u64,
    /// Number of the last model call.
    call_count: u64,
    speech: Option<SpeechBuffer>,
    /// Tool calls that run, by the agent's ID.
    tools: BTreeMap<String, ToolCallState>,
    /// Whether `tools` has changed since the last update.
    tools_changed: bool,
    /// IDs of the calls that have ended. Later updates about them are only in the transcript.
    ended_tools: BTreeSet<String>,
    /// Calls that have ended since they were taken.
    ended_calls: Vec<EndedCall>,
    /// Calls to models that have ended since they were taken.
    ended_model_calls: Vec<EndedModelCall>,
    lines: VecDeque<NewLine>,
    model_calls: VecDeque<ModelCall>,
    /// Prompt that a resumed session gets instead of the recorded one.
    continuation: Option<(String, Digest)>,
    /// Session of the agent, if it changed since the last update.
    session: Option<String>,
    model: Option<String>,
    usage: Option<(Usage, bool)>,
    has_changes: bool,
    /// Number of lines that are only in the transcript and not mentioned yet.
    dropped_lines: u64,
    /// Records for the transcript.
    records: Vec<Value>,
    /// Regular progress report; `None` for runs without one.
    progress: Option<ProgressReport>,
}

impl LineBuilder {
    /// Creates an empty builder. Lines are numbered after `sequence`; paths in them are relative to
    /// `worktree`.
    pub(super) fn new(redact: Redact, worktree: String, sequence: u64) -> Self {
        Self {
            redact,
            worktree,
            sequence,
            call_count: 0,
            speech: None,
            tools: BTreeMap::new(),
            tools_changed: false,
            ended_tools: BTreeSet::new(),
            ended_calls: Vec::new(),
            ended_model_calls: Vec::new(),
            lines: VecDeque::new(),
            model_calls: VecDeque::new(),
            continuation: None,
            session: None,
            model: None,
            usage: None,
            has_changes: false,
            dropped_lines: 0,
            records: Vec::new(),
            progress: None,
        }
    }

    /// Reports the progress of the run by this clock from now on.
    pub(super) fn report_progress(&mut self, started_at: Timestamp, clock: UpdateClock) {
        self.progress = Some(ProgressReport { started_at, clock, tool_calls: 0, message: None });
    }

    /// Returns the time of the next progress report; `None` for a run without one.
    pub(super) fn next_progress(&self) -> Option<Timestamp> {
        self.progress.as_ref().map(|progress| progress.clock.next())
    }

    /// Processes an update.
    pub(super) fn observe(&mut self, at: Timestamp, observation: Observation) {
        if !matches!(
            observation,
            Observation::Update(AgentUpdate::Message(_) | AgentUpdate::Thought(_))
        ) {
            // Earlier text precedes this update.
            self.end_speech();
        }
        match observation {
            Observation::Update(update) => self.update(at, update),
            Observation::Note(text) => {
                self.record(at, "note", json!(text));
                self.line(at, LineKind::Note, &text, None);
            }
            Observation::Started(start) => self.start(at, start),
        }
    }

    /// Adds the first line of a run: iteration and prompt.
    fn start(&mut self, at: Timestamp, start: RunStart) {
        let RunStart { prompt, model, iteration } = start;
        let PromptRecord { name, template, set, continuation } = prompt;
        self.continuation = continuation;
        let mut data = json!({
            "name": name, "template": template, "set": set, REQUESTED_MODEL: model,
        });
        let mut text = format!("prompt `{name}`, version {}", template.short());
        if let Some((number, max)) = iteration {
            data["iteration"] = json!(number);
            data["max_iterations"] = json!(max);
            text = format!("attempt {number} of {max}, {text}");
        }
        self.record(at, "prompt", data.clone());
        self.line(at, LineKind::Note, &text, Some(data));
    }

    /// Processes an update of the engine. Details that people do not need go to the transcript
    /// only.
    fn update(&mut self, at: Timestamp, update: AgentUpdate) {
        match update {
            AgentUpdate::Message(piece) => self.append_speech(at, LineKind::Said, &piece),
            AgentUpdate::Thought(piece) => self.append_speech(at, LineKind::Thought, &piece),
            AgentUpdate::Session { name, resumed } => {
                self.record(at, "session", json!({ "name": name, "resumed": resumed }));
                if resumed {
                    let mut text = "resumed the session of an earlier run".to_owned();
                    let mut data = None;
                    if let Some((name, template)) = self.continuation.take() {
                        let version = template.short();
                        text = format!("{text} with prompt `{name}`, version {version}");
                        data = Some(json!({ "name": name, "template": template }));
                    }
                    self.line(at, LineKind::Note, &text, data);
                }
                self.session = Some(self.clean(&name));
                self.has_changes = true;
            }
            AgentUpdate::ToolCall(call) => {
                self.record(at, "tool", tool_record(&call));
                self.tool(at, call);
            }
            AgentUpdate::Plan(steps) => self.plan(at, &steps),
            AgentUpdate::Progress(text) => {
                self.record(at, "progress", json!(text));
                self.line(at, LineKind::Progress, &text, None);
                if let Some(progress) = &mut self.progress {
                    progress.message = Some(text);
                }
            }
            AgentUpdate::ModelCalled(call) => self.call(at, &call),
            AgentUpdate::BudgetWarning(whose) => {
                self.record(at, "warned", json!(whose));
                let text = format!("budget of the {whose} is nearly used up");
                self.line(at, LineKind::Note, &text, None);
            }
            AgentUpdate::PermissionDecided(ask, ruling) => {
                let data = json!({
                    "kind": ask.kind.to_string(),
                    "title": ask.title,
                    "paths": ask.paths,
                    "command": ask.command,
                    "verdict": ruling.effect.to_string(),
                    "reason": ruling.reason,
                });
                self.record(at, "asked", data.clone());
                let effect = match ruling.effect {
                    // The tool call has a line of its own.
                    PermissionEffect::Allow => return,
                    PermissionEffect::Ask => "needs a person's decision",
                    PermissionEffect::Deny => "denied",
                };
                let subject = ask.command.as_deref().unwrap_or(&ask.title);
                let text = format!("{subject}: {effect} ({})", ruling.reason);
                self.line(at, LineKind::Asked, &text, Some(data));
            }
            AgentUpdate::UsageReported(usage) => {
                self.record(at, "used", json!(usage));
                // Metered usage takes precedence over what the agent reports.
                if !matches!(self.usage, Some((_, true))) {
                    self.usage = Some((usage, false));
                    self.has_changes = true;
                }
            }
            AgentUpdate::SubmissionRejected(errors) => {
                self.record(at, "refused", json!(errors));
                self.line(at, LineKind::Refused, &errors.join("\n"), Some(json!(errors)));
            }
            AgentUpdate::PromptedAgain(reason) => {
                self.record(at, "prompted_again", json!(reason));
                self.line(at, LineKind::Note, &format!("prompted again: {reason}"), None);
            }
            AgentUpdate::ResultSubmitted(result) => {
                self.record(at, "result", json!(result));
                let status = humanize(&result.status);
                let text = format!("result: {status}. {}", result.to_markdown());
                let data = json!({ "document": "result", "content": result });
                self.line(at, LineKind::Document, &text, Some(data));
            }
            AgentUpdate::DocumentSubmitted { name, content } => {
                let text = format!("{name}: {}", describe_document(&content));
                let data = json!({ "document": name, "content": content });
                self.record(at, "document", data.clone());
                self.line(at, LineKind::Document, &text, Some(data));
            }
            AgentUpdate::ProcessRecorded(process) => self.record(at, "process", json!(process)),
            AgentUpdate::Other(raw) => self.record(at, "other", raw),
        }
    }

    fn append_speech(&mut self, at: Timestamp, kind: LineKind, piece: &str) {
        if self.speech.as_ref().is_some_and(|speech| speech.kind != kind) {
            self.end_speech();
        }
        let speech = self.speech.get_or_insert_with(|| SpeechBuffer {
            kind,
            text: String::new(),
            since: at,
        });
        speech.text.push_str(piece);
        while let Some(speech) = &mut self.speech
            && let Some(end) = paragraph_end(&speech.text).or_else(|| overlong_break(&speech.text))
        {
            let rest = speech.text.split_off(end);
            let text = std::mem::replace(&mut speech.text, rest);
            let since = std::mem::replace(&mut speech.since, at);
            self.push_speech(since, kind, &text);
        }
    }

    /// Completes the current text.
    fn end_speech(&mut self) {
        if let Some(SpeechBuffer { kind, text, since }) = self.speech.take() {
            self.push_speech(since, kind, &text);
        }
    }

    fn push_speech(&mut self, at: Timestamp, kind: LineKind, text: &str) {
        if text.trim().is_empty() {
            return;
        }
        let name = if kind == LineKind::Said { "said" } else { "thought" };
        self.record(at, name, json!(text));
        let text = text.trim_matches('\n').trim_end();
        match without_json_block(text).filter(|_| kind == LineKind::Said) {
            Some((rest, block)) => {
                let rest = if rest.is_empty() { "JSON block" } else { rest.as_str() };
                self.line(at, kind, rest, Some(json!({ "json": block })));
            }
            None => self.line(at, kind, text, None),
        }
    }

    /// Processes an update of a tool call. The call becomes one line, at its end.
    fn tool(&mut self, at: Timestamp, update: ToolCallUpdate) {
        let id = update.id.clone();
        if self.ended_tools.contains(&id) {
            return;
        }
        let is_new = !self.tools.contains_key(&id);
        if let Some(progress) = self.progress.as_mut().filter(|_| is_new) {
            progress.tool_calls += 1;
        }
        let call = self.tools.entry(id.clone()).or_insert_with(|| ToolCallState::new(at));
        // Agents repeat the same state with every chunk of output.
        let has_new_title = call.apply(update);
        self.tools_changed |= is_new || has_new_title;
        if call.has_ended() {
            self.end_tool(at, &id);
        }
    }

    /// Adds the line of a tool call.
    fn end_tool(&mut self, at: Timestamp, id: &str) {
        let Some(call) = self.tools.remove(id) else { return };
        self.tools_changed = true;
        self.ended_tools.insert(id.to_owned());
        let (text, data) = call.to_line(id, at, &|text: &str| self.shown(text));
        let ended = call.ended(id, at, &|text: &str| self.shown(text));
        self.ended_calls.push(ended);
        self.line(at, LineKind::Tool, &text, Some(data));
    }

    fn plan(&mut self, at: Timestamp, steps: &[PlanEntry]) {
        let data: Vec<_> = steps
            .iter()
            .map(|PlanEntry { content, status }| json!({ "step": content, "status": status }))
            .collect();
        self.record(at, "plan", json!(data));
        let mark = |status: &str| match status {
            "completed" => "[x]",
            "in_progress" => "[>]",
            _ => "[ ]",
        };
        let text: Vec<_> =
            steps.iter().map(|step| format!("{} {}", mark(&step.status), step.content)).collect();
        self.line(at, LineKind::Plan, &text.join("\n"), Some(json!(data)));
    }

    fn call(&mut self, at: Timestamp, call: &gateway::ModelCall) {
        self.call_count += 1;
        let millis = |took: Duration| u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let dialect = call.dialect;
        let call = ModelCall {
            sequence: self.call_count,
            at: call.started_at,
            model: self.clean(&call.model),
            status: call.status,
            tokens: call.tokens,
            cost: call.cost,
            first_byte_ms: call.time_to_first_byte.map(millis),
            took_ms: millis(call.duration),
            note: call.note.as_deref().map(|note| self.clean(note)),
        };
        let data = json!(call);
        self.record(at, "model_call", data.clone());
        let text = describe_call(&call);
        self.line(at, LineKind::ModelCall, &text, Some(data));
        self.model = Some(call.model.clone());
        let before = match self.usage {
            Some((usage, true)) => usage,
            // The first metered call replaces what the agent reported.
            _ => Usage { tokens: Tokens::default(), cost: Cost::Known(Usd::ZERO) },
        };
        self.usage = Some((add_usage(before, &call), true));
        self.has_changes = true;
        self.ended_model_calls.push(EndedModelCall { dialect, call: call.clone() });
        if self.model_calls.len() < MAX_PENDING_LINES {
            self.model_calls.push_back(call);
        }
    }

    /// Adds a progress line if one is due. It carries the name of the event, for programs.
    fn add_progress(&mut self, at: Timestamp) {
        let is_due = self.progress.as_mut().is_some_and(|it| it.clock.is_due(at));
        let Some(progress) = self.progress.as_ref().filter(|_| is_due) else { return };
        let elapsed = at - progress.started_at;
        let (tool_calls, message) = (progress.tool_calls, progress.message.clone());
        let usage = self.usage.map(|(usage, _)| usage);
        let tokens = usage.map(|usage| usage.tokens.total());
        let cost = match usage.map(|usage| usage.cost) {
            Some(Cost::Known(usd)) => Some(usd),
            Some(Cost::Unknown) | None => None,
        };
        let mut parts = vec![format_duration(elapsed), pluralize(tool_calls, "tool call")];
        parts.extend(tokens.map(|tokens| format!("{} tokens", format_number(tokens))));
        parts.extend(cost.map(format_usd));
        let text = match &message {
            Some(message) => format!("{}: {message}", parts.join(", ")),
            None => parts.join(", "),
        };
        let data = json!({
            "event": EntryName::SmImplementationProgress,
            "elapsed_seconds": elapsed.num_seconds(),
            "tool_calls": tool_calls,
            "tokens": tokens,
            "cost_usd": cost,
            "message": message,
        });
        self.record(at, "progress_report", data.clone());
        self.line(at, LineKind::Progress, &text, Some(data));
    }

    /// Adds what is due: a progress line, and incomplete text after a delay.
    pub(super) fn tick(&mut self, at: Timestamp) {
        self.add_progress(at);
        let Some(speech) = &mut self.speech else { return };
        if at - speech.since < SPEECH_TIMEOUT {
            return;
        }
        let end = match json_block(&speech.text) {
            // A block of JSON is shown in one piece.
            Some((0, None)) if speech.text.len() < MAX_JSON_BYTES => None,
            Some((start, None)) if start > 0 => Some(start),
            _ => last_space(&speech.text),
        };
        if let Some(end) = end {
            let rest = speech.text.split_off(end);
            let text = std::mem::replace(&mut speech.text, rest);
            let (since, kind) = (std::mem::replace(&mut speech.since, at), speech.kind);
            self.push_speech(since, kind, &text);
        }
    }

    /// Completes all text, and the tool calls that the agent did not end.
    pub(super) fn close(&mut self, at: Timestamp) {
        self.end_speech();
        let ids: Vec<_> = self.tools.keys().cloned().collect();
        for id in ids {
            self.end_tool(at, &id);
        }
    }

    /// Returns the number of queued lines.
    pub(super) fn pending_lines(&self) -> usize {
        self.lines.len()
    }

    /// Returns `true` if there is something that no update contains yet.
    pub(super) fn has_unsaved(&self) -> bool {
        let has_changes = self.has_changes || self.tools_changed || self.dropped_lines > 0;
        has_changes || !self.lines.is_empty() || !self.model_calls.is_empty()
    }

    /// Returns `true` if something is unsaved, or if text has to be completed after a delay.
    pub(super) fn is_incomplete(&self) -> bool {
        self.speech.is_some() || self.has_unsaved()
    }

    /// Takes up to `most` unsaved lines and the changed facts; `None` if there are none.
    pub(super) fn take_batch(&mut self, at: Timestamp, most: usize) -> Option<RunUpdate> {
        if self.dropped_lines > 0 && self.lines.len() < MAX_PENDING_LINES {
            let lost = std::mem::take(&mut self.dropped_lines);
            let text = format!(
                "{lost} lines are only in the transcript: the database was unavailable for too long"
            );
            self.line(at, LineKind::Note, &text, None);
        }
        if !self.has_unsaved() {
            return None;
        }
        self.has_changes = false;
        let running = std::mem::take(&mut self.tools_changed).then(|| {
            let shown = |text: &str| self.shown(text);
            let calls = self.tools.iter().take(MAX_RUNNING_CALLS);
            calls.map(|(id, call)| call.running(id, &shown)).collect()
        });
        let lines = self.lines.drain(..most.min(self.lines.len())).collect();
        let calls = self.model_calls.drain(..most.min(self.model_calls.len())).collect();
        Some(RunUpdate {
            lines,
            calls,
            session: self.session.clone(),
            model: self.model.clone(),
            usage: self.usage,
            running,
        })
    }

    /// Returns the usage so far, and whether it was metered.
    pub(super) fn usage(&self) -> Option<(Usage, bool)> {
        self.usage
    }

    /// Takes the records that are not in the transcript yet.
    pub(super) fn take_records(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.records)
    }

    /// Takes the tool calls that have ended.
    pub(super) fn take_ended_calls(&mut self) -> Vec<EndedCall> {
        std::mem::take(&mut self.ended_calls)
    }

    /// Takes the calls to models that have ended.
    pub(super) fn take_ended_model_calls(&mut self) -> Vec<EndedModelCall> {
        std::mem::take(&mut self.ended_model_calls)
    }

    /// Removes secrets and control sequences from text.
    pub(super) fn clean(&self, text: &str) -> String {
        (self.redact)(&sanitize::text(text))
    }

    /// Cleans text for a line: without secrets and control sequences, with relative paths.
    fn shown(&self, text: &str) -> String {
        relative_paths(&self.clean(text), &self.worktree)
    }

    fn record(&mut self, at: Timestamp, name: &str, value: Value) {
        let value = map_strings(value, &|text: &str| self.clean(text));
        self.records.push(json!({ "at": at, name: value }));
    }

    fn line(&mut self, at: Timestamp, kind: LineKind, text: &str, data: Option<Value>) {
        if self.lines.len() >= MAX_PENDING_LINES {
            self.dropped_lines += 1;
            return;
        }
        let mut text = self.shown(text);
        if let Some((end, _)) = text.char_indices().nth(MAX_LINE_CHARS) {
            text.truncate(end);
            text.push('…');
        }
        // Data that is too long for a line is in the transcript.
        let data = data.filter(|data| data.to_string().len() <= MAX_DATA_BYTES);
        let data = data.map(|data| map_strings(data, &|text: &str| self.shown(text)));
        self.sequence += 1;
        self.lines.push_back(NewLine { sequence: self.sequence, at, kind, text, data });
    }
}

/// Applies a function to every string in a value, including the names of fields.
fn map_strings(value: Value, map: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(map(&text)),
        Value::Array(items) => items.into_iter().map(|item| map_strings(item, map)).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (map(&name), map_strings(value, map))).collect()
        }
        plain => plain,
    }
}

/// Returns an update of a tool call for the transcript.
fn tool_record(call: &ToolCallUpdate) -> Value {
    let ToolCallUpdate { id, title, status, kind, locations, input, content, exit_code } = call;
    let content = content.as_ref().map(|parts| {
        let part = |part: &ToolContent| match part {
            ToolContent::Text(text) => json!({ "text": text }),
            ToolContent::Edit { path, old, new } => json!({ "path": path, "old": old, "new": new }),
        };
        parts.iter().map(part).collect::<Vec<_>>()
    });
    json!({
        "id": id,
        "title": title,
        "status": status,
        "kind": kind,
        "locations": locations,
        "input": input,
        "content": content,
        "exit_code": exit_code,
    })
}

/// Describes a submitted document in one line: the summary of a plan, or the counts of a verdict.
fn describe_document(content: &Value) -> String {
    if let Some(summary) = content["summary"].as_str() {
        return summary.to_owned();
    }
    let criteria = content["criteria"].as_object();
    let all = criteria.map_or(0, serde_json::Map::len);
    let is_met = |judgement: &&Value| judgement["met"].is_object();
    let met = criteria.map_or(0, |criteria| criteria.values().filter(is_met).count());
    let issues = content["issues"].as_array().map_or(0, Vec::len);
    format!(
        "{met} of {} met, {}",
        plural(all, "criterion", "criteria"),
        plural(issues, "issue", "issues")
    )
}

fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Returns the first block of JSON in a text: its start, and its end unless it is still open.
fn json_block(text: &str) -> Option<(usize, Option<usize>)> {
    let starts_line = |at: &usize| *at == 0 || text[..*at].ends_with('\n');
    let start = text.match_indices("```json").map(|(at, _)| at).find(starts_line)?;
    let fence = "\n```";
    let end = text[start..].find(fence).map(|end| start + end + fence.len());
    Some((start, end))
}

/// Splits a complete block of JSON from the text around it.
fn without_json_block(text: &str) -> Option<(String, String)> {
    let (start, end) = json_block(text)?;
    let end = end?;
    let block = text[start..end].trim_start_matches("```json").trim_end_matches("```");
    let rest = format!("{}\n{}", text[..start].trim_end(), text[end..].trim_start());
    Some((rest.trim().to_owned(), block.trim().to_owned()))
}

/// Returns the end of the first paragraph, if there is one. Code blocks are not split.
fn paragraph_end(text: &str) -> Option<usize> {
    text.match_indices("\n\n")
        .find(|(end, _)| text[..*end].matches("```").count().is_multiple_of(2))
        .map(|(end, gap)| end + gap.len())
}

/// Returns where to split text that is too long.
fn overlong_break(text: &str) -> Option<usize> {
    if text.len() < MAX_SPEECH_BYTES {
        return None;
    }
    // A block of JSON stays in one piece, in a line of its own.
    if text.len() < MAX_JSON_BYTES
        && let Some((start, end)) = json_block(text).filter(|(start, _)| *start < MAX_SPEECH_BYTES)
    {
        return if start == 0 { end } else { Some(start) };
    }
    let start = &text[..text.floor_char_boundary(MAX_SPEECH_BYTES)];
    let later = || text.find(char::is_whitespace).map(|space| text.ceil_char_boundary(space + 1));
    last_space(start)
        .or_else(later)
        .or_else(|| (text.len() >= MAX_WORD_BYTES).then_some(text.len()))
}

/// Returns the position after the last whitespace. Secrets have none, so they are never split.
fn last_space(text: &str) -> Option<usize> {
    let (at, space) = text.char_indices().rev().find(|(_, letter)| letter.is_whitespace())?;
    let end = at + space.len_utf8();
    (!text[..end].trim().is_empty()).then_some(end)
}

/// Adds a model call to the usage.
fn add_usage(before: Usage, call: &ModelCall) -> Usage {
    let tokens = call.tokens.unwrap_or_default();
    let cost = match (before.cost, call.cost) {
        (Cost::Known(one), Cost::Known(other)) => Cost::Known(one + other),
        // A refused call used nothing.
        (known, Cost::Unknown) if call.status >= 400 && call.tokens.is_none() => known,
        // One call of unknown cost makes the total unknown.
        _ => Cost::Unknown,
    };
    Usage { tokens: before.tokens + tokens, cost }
}

fn describe_call(call: &ModelCall) -> String {
    let mut parts = vec![call.model.clone()];
    if call.status >= 400 {
        parts.push(format!("status {}", call.status));
    }
    if let Some(Tokens { input, cached, output, .. }) = call.tokens {
        parts.push(format!("{input} in, {cached} cached, {output} out"));
    }
    match call.cost {
        Cost::Known(usd) => parts.push(usd.to_string()),
        Cost::Unknown if call.status < 400 => parts.push("cost unknown".to_owned()),
        Cost::Unknown => {}
    }
    parts.push(format!("{}.{} s", call.took_ms / 1000, call.took_ms % 1000 / 100));
    parts.extend(call.note.clone());
    parts.join(" · ")
}

#[cfg(test)]
#[path = "line_builder_tests.rs"]
mod tests;
