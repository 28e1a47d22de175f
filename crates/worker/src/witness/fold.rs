//! What happens in a run, folded into lines that a person can follow.
//!
//! Pure: what was seen and when goes in, lines and records of the transcript come out, all of them
//! clean. Pieces of speech are put together before they are cleaned, so that neither a secret nor a
//! control sequence slips through because it came in two pieces.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use serde_json::{Value, json};
use tamma_core::cost::{Cost, Tokens, Usage, Usd};
use tamma_core::task_loop::Timestamp;
use tamma_engine::agent::{Entry, Update};
use tamma_engine::permission::Verdict;
use tamma_engine::{gateway, plain};
use tamma_store::{LineKind, ModelCall, NewLine, News};

/// Takes secrets out of a text.
pub type Redact = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// How long a piece of speech may become before it is a line of its own.
const LONG: usize = 2000;

/// How long words without a space between them are waited for. More is no word.
const ENDLESS: usize = 16 * 1024;

/// How much of a line is kept beside the transcript.
const LINE: usize = 4000;

/// How long speech is put together before it is shown, unless it comes to an end.
const PATIENCE: TimeDelta = TimeDelta::seconds(5);

/// How many lines wait for the store before new ones are only in the transcript.
const WAITING: usize = 20_000;

/// Something that was seen in a run.
#[derive(Debug, Clone)]
pub(super) enum Seen {
    /// By the engine.
    Update(Update),
    /// Something that Tamma has to say about it.
    Note(String),
}

/// Speech that goes on.
struct Speech {
    kind: LineKind,
    text: String,
    since: Timestamp,
}

/// What is known of a tool call.
#[derive(Clone, Default, PartialEq)]
struct Tool {
    title: Option<String>,
    status: Option<String>,
}

/// What is known of a run, and what of it has not been told yet.
pub(super) struct Fold {
    redact: Redact,
    /// The number of the last line.
    sequence: u64,
    /// The number of the last call.
    calls: u64,
    speech: Option<Speech>,
    tools: BTreeMap<String, Tool>,
    lines: VecDeque<NewLine>,
    called: VecDeque<ModelCall>,
    /// Facts that have changed since they were told.
    session: Option<String>,
    model: Option<String>,
    usage: Option<(Usage, bool)>,
    changed: bool,
    /// Lines that are only in the transcript, and were not spoken of yet.
    lost: u64,
    /// Records for the transcript.
    records: Vec<Value>,
}

impl Fold {
    /// Nothing was seen yet. Lines are numbered from the one after `sequence`.
    pub(super) fn new(redact: Redact, sequence: u64) -> Self {
        Self {
            redact,
            sequence,
            calls: 0,
            speech: None,
            tools: BTreeMap::new(),
            lines: VecDeque::new(),
            called: VecDeque::new(),
            session: None,
            model: None,
            usage: None,
            changed: false,
            lost: 0,
            records: Vec::new(),
        }
    }

    /// Takes in something that was seen.
    pub(super) fn see(&mut self, at: Timestamp, seen: Seen) {
        if !matches!(seen, Seen::Update(Update::Said(_) | Update::Thought(_))) {
            // What was said before it comes before it.
            self.cut();
        }
        match seen {
            Seen::Update(update) => self.update(at, update),
            Seen::Note(text) => {
                self.record(at, "note", json!(text));
                self.line(at, LineKind::Note, &text, None);
            }
        }
    }

    /// What the engine tells. What no person needs to see is only in the transcript.
    fn update(&mut self, at: Timestamp, update: Update) {
        match update {
            Update::Said(piece) => self.speak(at, LineKind::Said, &piece),
            Update::Thought(piece) => self.speak(at, LineKind::Thought, &piece),
            Update::Session { name, resumed } => {
                self.record(at, "session", json!({ "name": name, "resumed": resumed }));
                if resumed {
                    let text = "goes on with the session of an earlier run";
                    self.line(at, LineKind::Note, text, None);
                }
                self.session = Some(self.clean(&name));
                self.changed = true;
            }
            Update::Tool { id, title, status, kind, locations } => {
                let data = json!({
                    "id": id,
                    "title": title,
                    "status": status,
                    "kind": kind,
                    "locations": locations,
                });
                self.record(at, "tool", data);
                self.tool(at, &id, title, status);
            }
            Update::Plan(steps) => self.plan(at, &steps),
            Update::Progress(text) => {
                self.record(at, "progress", json!(text));
                self.line(at, LineKind::Progress, &text, None);
            }
            Update::Called(call) => self.call(at, &call),
            Update::Warned(whose) => {
                self.record(at, "warned", json!(whose));
                let text = format!("the budget of the {whose} is nearly spent");
                self.line(at, LineKind::Note, &text, None);
            }
            Update::Asked(ask, ruling) => {
                let data = json!({
                    "kind": ask.kind.to_string(),
                    "title": ask.title,
                    "paths": ask.paths,
                    "command": ask.command,
                    "verdict": ruling.verdict.to_string(),
                    "reason": ruling.reason,
                });
                self.record(at, "asked", data.clone());
                let ruled = match ruling.verdict {
                    Verdict::Allow => "allowed",
                    Verdict::Ask => "a person is asked",
                    Verdict::Deny => "refused",
                };
                let what = ask.command.as_deref().unwrap_or(&ask.title);
                let text = format!("{what}: {ruled} ({})", ruling.reason);
                self.line(at, LineKind::Asked, &text, Some(data));
            }
            Update::Used(usage) => {
                self.record(at, "used", json!(usage));
                // What was counted on the way stands over what the agent says.
                if !matches!(self.usage, Some((_, true))) {
                    self.usage = Some((usage, false));
                    self.changed = true;
                }
            }
            Update::Refused(flaws) => {
                self.record(at, "refused", json!(flaws));
                self.line(at, LineKind::Refused, &flaws.join("\n"), Some(json!(flaws)));
            }
            Update::Recorded(process) => self.record(at, "process", json!(process)),
            Update::Other(raw) => self.record(at, "other", raw),
        }
    }

    fn speak(&mut self, at: Timestamp, kind: LineKind, piece: &str) {
        if self.speech.as_ref().is_some_and(|speech| speech.kind != kind) {
            self.cut();
        }
        let speech =
            self.speech.get_or_insert_with(|| Speech { kind, text: String::new(), since: at });
        speech.text.push_str(piece);
        while let Some(speech) = &mut self.speech
            && let Some(end) = paragraph(&speech.text).or_else(|| long(&speech.text))
        {
            let rest = speech.text.split_off(end);
            let text = std::mem::replace(&mut speech.text, rest);
            let since = std::mem::replace(&mut speech.since, at);
            self.said(since, kind, &text);
        }
    }

    /// Ends what is being said.
    fn cut(&mut self) {
        if let Some(Speech { kind, text, since }) = self.speech.take() {
            self.said(since, kind, &text);
        }
    }

    fn said(&mut self, at: Timestamp, kind: LineKind, text: &str) {
        if text.trim().is_empty() {
            return;
        }
        let name = if kind == LineKind::Said { "said" } else { "thought" };
        self.record(at, name, json!(text));
        self.line(at, kind, text.trim_matches('\n').trim_end(), None);
    }

    fn tool(&mut self, at: Timestamp, id: &str, title: Option<String>, status: Option<String>) {
        let known = self.tools.entry(id.to_owned()).or_default();
        let before = known.clone();
        known.title = title.or(known.title.take());
        known.status = status.or(known.status.take());
        // Agents tell the same again with every piece of output.
        if *known == before && before != Tool::default() {
            return;
        }
        let tool = known.clone();
        let name = tool.title.clone().unwrap_or_else(|| id.to_owned());
        let text = match &tool.status {
            Some(status) => format!("{name}: {}", status.replace('_', " ")),
            None => name,
        };
        let data = json!({ "id": id, "title": tool.title, "status": tool.status });
        if matches!(tool.status.as_deref(), Some("completed" | "failed")) {
            self.tools.remove(id);
        }
        self.line(at, LineKind::Tool, &text, Some(data));
    }

    fn plan(&mut self, at: Timestamp, steps: &[Entry]) {
        let data: Vec<_> = steps
            .iter()
            .map(|Entry { content, status }| json!({ "step": content, "status": status }))
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
        self.calls += 1;
        let millis = |took: Duration| u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let call = ModelCall {
            sequence: self.calls,
            at: call.at,
            model: self.clean(&call.model),
            status: call.status,
            tokens: call.tokens,
            cost: call.cost,
            first_byte_ms: call.first_byte.map(millis),
            took_ms: millis(call.took),
            note: call.note.as_deref().map(|note| self.clean(note)),
        };
        let data = json!(call);
        self.record(at, "model_call", data.clone());
        let text = in_words(&call);
        self.line(at, LineKind::ModelCall, &text, Some(data));
        self.model = Some(call.model.clone());
        let before = match self.usage {
            Some((usage, true)) => usage,
            // The first call that was counted ourselves: what the agent said is not added to it.
            _ => Usage { tokens: Tokens::default(), cost: Cost::Known(Usd::ZERO) },
        };
        self.usage = Some((add(before, &call), true));
        self.changed = true;
        if self.called.len() < WAITING {
            self.called.push_back(call);
        }
    }

    /// Time has passed.
    pub(super) fn tick(&mut self, at: Timestamp) {
        let Some(speech) = &mut self.speech else { return };
        if at - speech.since < PATIENCE {
            return;
        }
        if let Some(end) = last_space(&speech.text) {
            let rest = speech.text.split_off(end);
            let text = std::mem::replace(&mut speech.text, rest);
            let (since, kind) = (std::mem::replace(&mut speech.since, at), speech.kind);
            self.said(since, kind, &text);
        }
    }

    /// Nothing more comes.
    pub(super) fn close(&mut self) {
        self.cut();
    }

    /// How many lines wait.
    pub(super) fn waiting(&self) -> usize {
        self.lines.len()
    }

    /// What was not told yet: at most so many lines. Nothing, if there is nothing.
    pub(super) fn take(&mut self, at: Timestamp, most: usize) -> Option<News> {
        if self.lost > 0 && self.lines.len() < WAITING {
            let lost = std::mem::take(&mut self.lost);
            let text = format!(
                "{lost} lines are only in the transcript: the database was away for too long"
            );
            self.line(at, LineKind::Note, &text, None);
        }
        if self.lines.is_empty() && self.called.is_empty() && !self.changed {
            return None;
        }
        self.changed = false;
        let lines = self.lines.drain(..most.min(self.lines.len())).collect();
        let calls = self.called.drain(..most.min(self.called.len())).collect();
        Some(News {
            lines,
            calls,
            session: self.session.clone(),
            model: self.model.clone(),
            usage: self.usage,
        })
    }

    /// What it has used, if anybody has said so, and whether that was counted.
    pub(super) fn usage(&self) -> Option<(Usage, bool)> {
        self.usage
    }

    /// The records that the transcript does not have yet.
    pub(super) fn records(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.records)
    }

    /// A text without secrets and control sequences.
    pub(super) fn clean(&self, text: &str) -> String {
        (self.redact)(&plain::text(text))
    }

    fn record(&mut self, at: Timestamp, what: &str, value: Value) {
        let value = self.cleaned(value);
        self.records.push(json!({ "at": at, what: value }));
    }

    fn line(&mut self, at: Timestamp, kind: LineKind, text: &str, data: Option<Value>) {
        if self.lines.len() >= WAITING {
            self.lost += 1;
            return;
        }
        let mut text = self.clean(text);
        if let Some((end, _)) = text.char_indices().nth(LINE) {
            text.truncate(end);
            text.push('…');
        }
        // What is too long for a line is in the transcript.
        let data = data.filter(|data| data.to_string().len() <= 4 * LINE);
        let data = data.map(|data| self.cleaned(data));
        self.sequence += 1;
        self.lines.push_back(NewLine { sequence: self.sequence, at, kind, text, data });
    }

    /// A value with every text in it clean.
    fn cleaned(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.clean(&text)),
            Value::Array(items) => items.into_iter().map(|item| self.cleaned(item)).collect(),
            Value::Object(fields) => fields
                .into_iter()
                .map(|(name, value)| (self.clean(&name), self.cleaned(value)))
                .collect(),
            plain => plain,
        }
    }
}

/// Where the first paragraph ends, if one does. A block of code is one with what is around it.
fn paragraph(text: &str) -> Option<usize> {
    text.match_indices("\n\n")
        .find(|(end, _)| text[..*end].matches("```").count().is_multiple_of(2))
        .map(|(end, gap)| end + gap.len())
}

/// Where a text is cut that has become too long.
fn long(text: &str) -> Option<usize> {
    if text.len() < LONG {
        return None;
    }
    let start = &text[..text.floor_char_boundary(LONG)];
    let later = || text.find(char::is_whitespace).map(|space| text.ceil_char_boundary(space + 1));
    last_space(start).or_else(later).or_else(|| (text.len() >= ENDLESS).then_some(text.len()))
}

/// After the last space or new line. A secret has none in it, so it is never cut in two.
fn last_space(text: &str) -> Option<usize> {
    let (at, space) = text.char_indices().rev().find(|(_, letter)| letter.is_whitespace())?;
    let end = at + space.len_utf8();
    (!text[..end].trim().is_empty()).then_some(end)
}

/// What was used before, and one call more.
fn add(before: Usage, call: &ModelCall) -> Usage {
    let tokens = call.tokens.unwrap_or_default();
    let cost = match (before.cost, call.cost) {
        (Cost::Known(one), Cost::Known(other)) => Cost::Known(one + other),
        // A call that was refused has used nothing that would have to be priced.
        (known, Cost::Unknown) if call.status >= 400 && call.tokens.is_none() => known,
        // One call that nobody can price, and nobody knows what the run has cost.
        _ => Cost::Unknown,
    };
    Usage {
        tokens: Tokens {
            input: before.tokens.input.saturating_add(tokens.input),
            cached: before.tokens.cached.saturating_add(tokens.cached),
            output: before.tokens.output.saturating_add(tokens.output),
        },
        cost,
    }
}

fn in_words(call: &ModelCall) -> String {
    let mut parts = vec![call.model.clone()];
    if call.status >= 400 {
        parts.push(format!("answered {}", call.status));
    }
    if let Some(Tokens { input, cached, output }) = call.tokens {
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
#[path = "fold_tests.rs"]
mod tests;
