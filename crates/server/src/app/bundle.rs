//! Everything about a task, for somebody who has to find out what went wrong.
//!
//! A part that cannot be read does not fail the bundle; `problems.txt` names it. Secrets are
//! redacted here, so that they never leave the server.

use std::collections::BTreeSet;

use futures_util::StreamExt as _;
use serde::Serialize;
use serde_json::{Value, json};
use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::redaction::Redactor;
use tamma_core::review::patterns;
use tamma_core::rules::Rules;
use tamma_store::{LineFilter, LinePosition, parse_text_reference};

use super::{App, Error};
use crate::dto::{BundleFile, RunDetail, TaskBundle};

/// Bytes kept at each end of a transcript.
const TRANSCRIPT_END: usize = 256 * 1024;

/// Bytes kept at each end of a stored text.
const STORED_TEXT_END: usize = 64 * 1024;

/// Bytes kept at each end of any other file.
const FILE_END: usize = 2 * 1024 * 1024;

/// Maximum size of all files together, in bytes. Files beyond it are left out.
const MAX_BUNDLE_BYTES: usize = 32 * 1024 * 1024;

/// Maximum number of log lines of a run without a transcript.
const MAX_LOG_LINES: u32 = 2000;

/// Maximum number of runs whose transcripts are included, newest first.
const MAX_TRANSCRIPTS: usize = 40;

/// Maximum number of stored texts.
const MAX_TEXTS: usize = 100;

/// Longest value that is checked together with its key, in bytes.
const MAX_NAMED_VALUE: usize = 300;

const REDACTED: &str = "[redacted]";

impl App {
    /// Collects everything about a task, without secrets. Long files are cut in the middle.
    pub(crate) async fn bundle(&self, id: TaskId) -> Result<TaskBundle, Error> {
        let stored = self.store.task(id).await?;
        let pin = stored.task_loop.as_ref().ok().and_then(|task_loop| task_loop.pin);
        let mut parts = BundleParts::default();
        parts.add("task.json", self.task_detail(id).await);
        let state = stored.task_loop.map_err(|damage| tamma_store::Error::from(damage).into());
        parts.add("state.json", state);
        parts.add("report.json", self.report(id, None).await);
        match self.store.plan_versions(id).await {
            Ok(plans) => {
                for (version, at, plan) in plans {
                    let plan = json!({ "version": version, "at": at, "plan": plan });
                    parts.add_json(format!("plans/{version}.json"), plan);
                }
            }
            Err(error) => parts.problem("plans", &error.into()),
        }
        match self.store.checks(id).await {
            Ok(checks) => {
                let check = |check: &tamma_store::CommitCheck| {
                    json!({
                        "job": check.job_number,
                        "iteration": check.iteration,
                        "at": check.at,
                        "record": check.record,
                    })
                };
                parts.add_json("checks.json", checks.iter().map(check).collect());
            }
            Err(error) => parts.problem("checks.json", &error.into()),
        }
        match self.store.job_results::<Value>(id).await {
            Ok(jobs) => {
                let jobs =
                    jobs.into_iter().map(|(job, result)| json!({ "job": job, "result": result }));
                parts.add_json("jobs.json", jobs.collect());
            }
            Err(error) => parts.problem("jobs.json", &error.into()),
        }
        match self.full_history(id).await {
            Ok(entries) => parts.add_json_lines("history.jsonl", &entries),
            Err(error) => parts.problem("history.jsonl", &error),
        }
        let rules = match pin {
            Some(pin) => self.store.rules(pin.policy).await.map_err(Error::from),
            None => self.current_rules(stored.task.project).await,
        };
        parts.add("rules.json", rules.map(|rules| rules.without_secrets()));
        let server = json!({ "tamma": env!("CARGO_PKG_VERSION"), "health": self.health().await });
        parts.add_json("server.json", server);
        let runs = self.runs(id).await;
        if let Ok(list) = &runs {
            parts.add("runs.json", Ok(list));
        }
        // Log lines and transcripts repeat what agents write; no reference in them counts.
        let references = parts.text_references();
        match runs {
            Ok(list) => {
                let left_out = list.runs.len().saturating_sub(MAX_TRANSCRIPTS);
                if left_out > 0 {
                    parts.problems.push(format!("runs: the oldest {left_out} were left out"));
                }
                for run in list.runs.iter().rev().take(MAX_TRANSCRIPTS) {
                    self.add_run(id, run, &mut parts).await;
                }
            }
            Err(error) => parts.problem("runs.json", &error),
        }
        self.add_texts(references, &mut parts).await;
        let redactor = self.bundle_redactor(stored.task.project, &mut parts).await;
        let files = tokio::task::spawn_blocking(move || parts.into_files(&redactor)).await;
        Ok(TaskBundle { files: files.map_err(|error| Error::Internal(error.into()))? })
    }

    /// Loads the rules that a task of a project would start with now, with secrets.
    async fn current_rules(&self, project: ProjectId) -> Result<Rules, Error> {
        let project = self.store.project(project).await?;
        self.rules_with_secrets(&project.repository).await
    }

    /// Adds stored texts, such as failure briefs and questions.
    async fn add_texts(&self, references: BTreeSet<String>, parts: &mut BundleParts) {
        let left_out = references.len().saturating_sub(MAX_TEXTS);
        if left_out > 0 {
            parts.problems.push(format!("texts: {left_out} were left out"));
        }
        for name in references.into_iter().take(MAX_TEXTS) {
            let Some(reference) = parse_text_reference(&name) else { continue };
            let path = format!("texts/{}.txt", name.rsplit(':').next().unwrap_or(&name));
            match self.store.text(&reference).await {
                Ok(text) => {
                    let mut clipped = ClippedText::new(STORED_TEXT_END);
                    clipped.push(text.as_bytes());
                    parts.push(path, PartContent::Text(clipped.finish()));
                }
                Err(error) => parts.problem(&path, &error.into()),
            }
        }
    }

    /// Adds the transcript of a run, or its log lines if there is no transcript.
    async fn add_run(&self, id: TaskId, run: &RunDetail, parts: &mut BundleParts) {
        let number = format!("{}.{}", run.job_number, run.attempt);
        if run.transcript {
            let path = format!("runs/{number}/transcript.jsonl");
            match self.read_transcript(id, &number).await {
                Ok(text) => return parts.push(path, PartContent::Lines(text)),
                Err(error) => parts.problem(&path, &error),
            }
        }
        let (job_number, attempt) = (Some(run.job_number), Some(run.attempt));
        let filter = LineFilter { job_number, attempt, ..LineFilter::default() };
        let path = format!("runs/{number}/log.jsonl");
        match self.run_lines(id, &filter, LinePosition::START, MAX_LOG_LINES).await {
            Ok(page) => parts.add_json_lines(path, &page.lines),
            Err(error) => parts.problem(&path, &error),
        }
    }

    async fn read_transcript(&self, id: TaskId, number: &str) -> Result<String, Error> {
        let (_, pieces) = self.transcript(id, number).await?;
        let mut pieces = std::pin::pin!(pieces);
        let mut clipped = ClippedText::new(TRANSCRIPT_END);
        while let Some(piece) = pieces.next().await {
            clipped.push(&piece.map_err(|error| Error::Internal(error.into()))?);
        }
        Ok(clipped.finish())
    }

    /// Creates a redactor that knows the secrets of the server and of a project's configuration.
    async fn bundle_redactor(&self, project: ProjectId, parts: &mut BundleParts) -> BundleRedactor {
        let mut secrets: Vec<String> = self.secret_values().map(str::to_owned).collect();
        match self.current_rules(project).await {
            Ok(rules) => {
                let own = rules.agents.into_values().flat_map(|agent| agent.env.into_values());
                secrets.extend(own.filter(|value| !value.contains("{{")));
                let channels = rules.scrum_master.alerts.channels.into_iter();
                secrets.extend(channels.flat_map(|channel| channel.config.into_values()));
            }
            // The error itself may quote the file.
            Err(_) => parts.problems.push(
                "rules: could not be read; values from tamma.yaml were not redacted".to_owned(),
            ),
        }
        BundleRedactor { secrets: Redactor::new(secrets) }
    }
}

/// Content of a file before redaction.
enum PartContent {
    Json(Value),
    JsonLines(Vec<Value>),
    /// Lines that are JSON, as far as they can be parsed.
    Lines(String),
    Text(String),
}

struct BundlePart {
    path: String,
    content: PartContent,
}

/// Files of a bundle before redaction, and the parts that could not be read.
#[derive(Default)]
struct BundleParts {
    parts: Vec<BundlePart>,
    problems: Vec<String>,
}

impl BundleParts {
    fn push(&mut self, path: impl Into<String>, content: PartContent) {
        self.parts.push(BundlePart { path: path.into(), content });
    }

    fn problem(&mut self, path: &str, error: &Error) {
        self.problems.push(format!("{path}: {error}"));
    }

    fn add(&mut self, path: &str, value: Result<impl Serialize, Error>) {
        let value = value.and_then(|value| {
            serde_json::to_value(value).map_err(|error| Error::Internal(error.into()))
        });
        match value {
            Ok(value) => self.add_json(path, value),
            Err(error) => self.problem(path, &error),
        }
    }

    fn add_json(&mut self, path: impl Into<String>, value: Value) {
        self.push(path, PartContent::Json(value));
    }

    fn add_json_lines(&mut self, path: impl Into<String>, lines: &[impl Serialize]) {
        // The types come from JSON, so they always serialise.
        let lines = lines.iter().filter_map(|line| serde_json::to_value(line).ok());
        self.push(path, PartContent::JsonLines(lines.collect()));
    }

    /// Returns the references to stored texts in the parts.
    fn text_references(&self) -> BTreeSet<String> {
        let mut references = BTreeSet::new();
        for part in &self.parts {
            match &part.content {
                PartContent::Json(value) => collect_references(value, &mut references),
                PartContent::JsonLines(values) => {
                    for value in values {
                        collect_references(value, &mut references);
                    }
                }
                PartContent::Lines(_) | PartContent::Text(_) => {}
            }
        }
        references
    }

    /// Redacts the parts, cuts long ones, and leaves out those beyond the maximum size.
    fn into_files(self, redactor: &BundleRedactor) -> Vec<BundleFile> {
        let (mut files, mut problems, mut size) = (Vec::new(), self.problems, 0);
        for BundlePart { path, content } in self.parts {
            let mut clipped = ClippedText::new(FILE_END);
            clipped.push(redactor.content(content).as_bytes());
            let text = clipped.finish();
            if size + text.len() > MAX_BUNDLE_BYTES {
                problems.push(format!("{path}: left out, because the bundle is too large"));
                continue;
            }
            size += text.len();
            files.push(BundleFile { path, text });
        }
        if !problems.is_empty() {
            let text = redactor.text(&format!("{}\n", problems.join("\n")));
            files.push(BundleFile { path: "problems.txt".to_owned(), text });
        }
        files
    }
}

/// Adds the references to stored texts in a value.
fn collect_references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::String(text) if parse_text_reference(text).is_some() => {
            found.insert(text.clone());
        }
        Value::Array(items) => items.iter().for_each(|item| collect_references(item, found)),
        Value::Object(fields) => {
            fields.values().for_each(|field| collect_references(field, found));
        }
        _ => {}
    }
}

/// Replaces known secrets, and texts that look like secrets.
struct BundleRedactor {
    secrets: Redactor,
}

impl BundleRedactor {
    fn content(&self, content: PartContent) -> String {
        match content {
            PartContent::Json(value) => format!("{:#}\n", self.value(value)),
            PartContent::JsonLines(values) => {
                let lines: Vec<_> =
                    values.into_iter().map(|value| format!("{}\n", self.value(value))).collect();
                lines.concat()
            }
            PartContent::Lines(text) => {
                let line = |line: &str| match serde_json::from_str(line) {
                    Ok(value) => format!("{}\n", self.value(value)),
                    Err(_) => format!("{}\n", self.text(line)),
                };
                text.lines().map(line).collect()
            }
            PartContent::Text(text) => self.text(&text),
        }
    }

    fn text(&self, text: &str) -> String {
        patterns::redact_secrets(&self.secrets.redact(text)).0
    }

    /// Redacts every text in a value. A text is also judged together with its key, as in
    /// `"password": "…"`.
    fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&text)),
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => {
                let field = |(key, value): (String, Value)| match value {
                    Value::String(text) if is_named_secret(&key, &text) => (key, REDACTED.into()),
                    value => (self.text(&key), self.value(value)),
                };
                fields.into_iter().map(field).collect()
            }
            value => value,
        }
    }
}

/// Returns true if a text is a secret only because of its key.
fn is_named_secret(key: &str, text: &str) -> bool {
    text.len() <= MAX_NAMED_VALUE
        && patterns::redact_secrets(text).1.is_empty()
        && !patterns::redact_secrets(&format!("{key}: \"{text}\"")).1.is_empty()
}

/// Start and end of a text that may be too long to keep.
struct ClippedText {
    /// Maximum size of each end, in bytes.
    end_size: usize,
    start: Vec<u8>,
    end: Vec<u8>,
    left_out: usize,
}

impl ClippedText {
    fn new(end_size: usize) -> Self {
        Self { end_size, start: Vec::new(), end: Vec::new(), left_out: 0 }
    }

    fn push(&mut self, bytes: &[u8]) {
        let room = self.end_size.saturating_sub(self.start.len()).min(bytes.len());
        let (start, end) = bytes.split_at(room);
        self.start.extend_from_slice(start);
        self.end.extend_from_slice(end);
        // Twice the size, so that the end is moved seldom.
        if self.end.len() > 2 * self.end_size {
            self.shorten_end();
        }
    }

    fn shorten_end(&mut self) {
        let excess = self.end.len().saturating_sub(self.end_size);
        self.end.drain(..excess);
        self.left_out += excess;
    }

    /// Returns the text with a note in place of what was left out. Only whole lines are kept next
    /// to it, because half a secret would not be recognised.
    fn finish(mut self) -> String {
        self.shorten_end();
        if self.left_out == 0 {
            self.start.append(&mut self.end);
            return String::from_utf8_lossy(&self.start).into_owned();
        }
        let is_break = |byte: &u8| *byte == b'\n';
        let start = self.start.iter().rposition(is_break).map_or(0, |at| at + 1);
        let end = self.end.iter().position(is_break).map_or(self.end.len(), |at| at + 1);
        let left_out = self.left_out + (self.start.len() - start) + end;
        format!(
            "{}[{left_out} bytes left out here]\n{}",
            String::from_utf8_lossy(&self.start[..start]),
            String::from_utf8_lossy(&self.end[end..])
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Token in GitHub's form, put together so that no scanner takes this file for a leak.
    fn token() -> String {
        format!("ghp_{}", "a1B2".repeat(9))
    }

    fn redactor() -> BundleRedactor {
        BundleRedactor { secrets: Redactor::new(["open sesame"]) }
    }

    #[test]
    fn known_and_recognised_secrets_are_redacted_in_every_kind_of_file() {
        let secret = format!("{} and open sesame, b3BlbiBzZXNhbWU=", token());
        let value = json!({ "a": [{ "b": secret }], "password": "n0t-very-g00d" });
        let lines = format!("{value}\nno JSON: {secret}\n");
        let mut parts = BundleParts::default();
        parts.add_json("a.json", value.clone());
        parts.add_json_lines("b.jsonl", &[value]);
        parts.push("c.jsonl", PartContent::Lines(lines));
        parts.push("d.txt", PartContent::Text(secret.clone()));
        parts.problems.push(secret);
        let files = parts.into_files(&redactor());
        assert_eq!(files.len(), 5);
        for BundleFile { path, text } in files {
            // The last one is the known secret in base64.
            for secret in [token().as_str(), "open sesame", "n0t-very-g00d", "b3BlbiBzZXNhbW"] {
                assert!(!text.contains(secret), "{path}: {text}");
            }
            assert!(text.contains(REDACTED), "{path}: {text}");
        }
    }

    #[test]
    fn a_long_text_keeps_whole_lines_at_both_ends() {
        let lines: Vec<String> = (0..1000).map(|number| format!("line {number}\n")).collect();
        let mut clipped = ClippedText::new(100);
        for line in lines {
            clipped.push(line.as_bytes());
        }
        let text = clipped.finish();
        assert!(text.starts_with("line 0\nline 1\n") && text.ends_with("line 999\n"), "{text}");
        assert!(text.len() < 300 && text.contains(" bytes left out here]\n"), "{text}");
        assert!(text.lines().all(|line| line.starts_with("line ") || line.starts_with('[')));
        // A short text is unchanged, and a long line without breaks is left out completely.
        let mut clipped = ClippedText::new(100);
        clipped.push(b"short");
        assert_eq!(clipped.finish(), "short");
        let mut clipped = ClippedText::new(100);
        clipped.push(&[b'x'; 1000]);
        assert_eq!(clipped.finish(), "[1000 bytes left out here]\n");
    }

    #[test]
    fn references_to_texts_are_found_anywhere() {
        let value = json!({ "a": ["text:0a1b", { "b": "text:ff" }], "c": "text: hello" });
        let mut found = BTreeSet::new();
        collect_references(&value, &mut found);
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["text:0a1b", "text:ff"]);
    }
}
