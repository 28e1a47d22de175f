//! Tool call of an agent, and the log line that it becomes when it ends.
//!
//! A call is one line. Its data has the input, the output and the edits, each shortened; the
//! transcript has all of them. Agents report a command that failed as completed, so the exit code
//! decides.

use std::time::Duration;

use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};
use tamma_core::format::single_line;
use tamma_core::task_loop::Timestamp;
use tamma_engine::agent::{ToolCallUpdate, ToolContent};
use tamma_store::RunningCall;

use crate::task_trace::EndedCall;

/// Kinds of tools of the Agent Client Protocol.
const KINDS: [&str; 9] =
    ["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode"];

/// Maximum length of the ID of a call in traces, in characters. Agents choose it.
const MAX_ID_CHARS: usize = 100;

/// Maximum length of a title, in characters.
const MAX_TITLE_CHARS: usize = 300;

/// Maximum length of the kept input, in characters.
const MAX_INPUT_CHARS: usize = 2000;

/// Maximum length of the kept output, in characters.
const MAX_OUTPUT_CHARS: usize = 4000;

/// Maximum length of the kept edits of one call, in characters.
const MAX_EDIT_CHARS: usize = 8000;

/// Size above which two versions of a file are not compared, in bytes.
const MAX_COMPARED_BYTES: usize = 512 * 1024;

/// Time after which the comparison of two versions becomes coarse.
const COMPARE_TIMEOUT: Duration = Duration::from_millis(100);

/// Beginnings of lines in which agents report the exit code of a command.
const EXIT_CODE_LABELS: [&str; 4] =
    ["Exit code ", "Exit code: ", "Exit Code: ", "Command exited with code: "];

/// Function that removes secrets, control sequences and the path of the worktree from text.
pub(super) type Clean<'a> = &'a dyn Fn(&str) -> String;

/// Tool call that has not ended yet.
pub(super) struct ToolCallState {
    started_at: Timestamp,
    title: Option<String>,
    status: Option<String>,
    kind: Option<String>,
    locations: Vec<String>,
    input: Option<Value>,
    content: Vec<ToolContent>,
    exit_code: Option<i64>,
}

/// Result of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ToolOutcome {
    Completed,
    Failed,
    /// The run ended before the call did.
    Unfinished,
}

impl ToolCallState {
    pub(super) fn new(started_at: Timestamp) -> Self {
        Self {
            started_at,
            title: None,
            status: None,
            kind: None,
            locations: Vec::new(),
            input: None,
            content: Vec::new(),
            exit_code: None,
        }
    }

    /// Applies an update. Fields that it lacks stay. Returns whether the title has changed.
    pub(super) fn apply(&mut self, update: ToolCallUpdate) -> bool {
        let ToolCallUpdate { id: _, title, status, kind, locations, input, content, exit_code } =
            update;
        let has_new_title = title.is_some() && title != self.title;
        self.title = title.or(self.title.take());
        self.status = status.or(self.status.take());
        self.kind = kind.or(self.kind.take());
        self.input = input.or(self.input.take());
        self.exit_code = exit_code.or(self.exit_code);
        if !locations.is_empty() {
            self.locations = locations;
        }
        // An update with the output of a command must not hide the edit of an earlier one.
        if let Some(content) = content.filter(|content| !content.is_empty()) {
            let is_edit = |part: &ToolContent| matches!(part, ToolContent::Edit { .. });
            let edits: Vec<_> = if content.iter().any(is_edit) {
                Vec::new()
            } else {
                self.content.drain(..).filter(|part| is_edit(part)).collect()
            };
            self.content = edits.into_iter().chain(content).collect();
        }
        has_new_title
    }

    /// Returns whether the agent reported the end of the call.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.status.as_deref(), Some("completed" | "failed"))
    }

    /// Returns what the trace of the task says about the call.
    pub(super) fn ended(&self, id: &str, at: Timestamp, clean: Clean<'_>) -> EndedCall {
        EndedCall {
            id: clean(id).chars().take(MAX_ID_CHARS).collect(),
            // Agents choose the word.
            kind: self
                .kind
                .as_deref()
                .filter(|kind| KINDS.contains(kind))
                .unwrap_or("other")
                .to_owned(),
            started_at: self.started_at,
            ended_at: at,
            has_failed: self.status.as_deref() != Some("completed"),
        }
    }

    /// Returns the call as shown while it runs.
    pub(super) fn running(&self, id: &str, clean: Clean<'_>) -> RunningCall {
        RunningCall {
            title: self.shown_title(id, clean),
            kind: self.kind.as_deref().map(clean),
            since: self.started_at,
        }
    }

    /// Returns the text and the data of the log line.
    pub(super) fn to_line(&self, id: &str, at: Timestamp, clean: Clean<'_>) -> (String, Value) {
        let title = self.shown_title(id, clean);
        let output = self.output(clean);
        let exit_code = self.exit_code.or_else(|| {
            let is_command = self.kind.as_deref() == Some("execute");
            output.as_deref().filter(|_| is_command).and_then(exit_code_in)
        });
        let outcome = match (self.status.as_deref(), exit_code) {
            (Some("failed"), _) => ToolOutcome::Failed,
            (Some("completed"), Some(code)) if code != 0 => ToolOutcome::Failed,
            (Some("completed"), _) => ToolOutcome::Completed,
            _ => ToolOutcome::Unfinished,
        };
        let (status, text) = match (outcome, exit_code.filter(|code| *code != 0)) {
            (ToolOutcome::Completed, _) => ("completed", title.clone()),
            (ToolOutcome::Failed, Some(code)) => {
                ("failed", format!("{title}: failed (exit code {code})"))
            }
            (ToolOutcome::Failed, None) => ("failed", format!("{title}: failed")),
            (ToolOutcome::Unfinished, _) => ("unfinished", format!("{title}: did not finish")),
        };
        let locations: Vec<_> = self.locations.iter().map(|path| clean(path)).collect();
        let data = json!({
            "id": clean(id),
            "title": title,
            "status": status,
            "kind": self.kind.as_deref().map(clean),
            "exit_code": exit_code,
            "ms": (at - self.started_at).num_milliseconds().max(0),
            "locations": locations,
            "input": self.input_text(clean),
            "output": output.map(|text| shorten(&text, MAX_OUTPUT_CHARS)),
            "edits": self.edits(clean),
        });
        (text, without_nulls(data))
    }

    fn shown_title(&self, id: &str, clean: Clean<'_>) -> String {
        let title = single_line(&clean(self.title.as_deref().unwrap_or(id)));
        match title.char_indices().nth(MAX_TITLE_CHARS) {
            Some((end, _)) => format!("{}…", &title[..end]),
            None => title,
        }
    }

    /// Returns the command line, or the arguments as JSON.
    fn input_text(&self, clean: Clean<'_>) -> Option<String> {
        let input = self.input.as_ref()?;
        let command = match &input["command"] {
            Value::String(command) => Some(command.clone()),
            Value::Array(words) => {
                let words: Option<Vec<_>> = words.iter().map(Value::as_str).collect();
                words.map(|words| words.join(" "))
            }
            _ => None,
        };
        let text = command.or_else(|| serde_json::to_string_pretty(input).ok())?;
        Some(shorten(&clean(&text), MAX_INPUT_CHARS)).filter(|text| text != "{}")
    }

    /// Returns the output as text, without the code fences that some agents add.
    fn output(&self, clean: Clean<'_>) -> Option<String> {
        let texts: Vec<_> = self
            .content
            .iter()
            .filter_map(|part| match part {
                ToolContent::Text(text) => Some(without_fences(text)),
                ToolContent::Edit { .. } => None,
            })
            .collect();
        let text = clean(texts.join("\n").trim_end());
        (!text.trim().is_empty()).then_some(text)
    }

    fn edits(&self, clean: Clean<'_>) -> Option<Vec<Value>> {
        let mut room = MAX_EDIT_CHARS;
        let edits: Vec<_> = self
            .content
            .iter()
            .filter_map(|part| match part {
                ToolContent::Text(_) => None,
                ToolContent::Edit { path, old, new } => {
                    Some(describe_edit(&clean(path), old.as_deref(), new, clean, &mut room))
                }
            })
            .collect();
        (!edits.is_empty()).then_some(edits)
    }
}

/// Describes an edit by its path, numbers of lines and, as far as there is room, its diff.
fn describe_edit(
    path: &str,
    old: Option<&str>,
    new: &str,
    clean: Clean<'_>,
    room: &mut usize,
) -> Value {
    if old.map_or(0, str::len).max(new.len()) > MAX_COMPARED_BYTES {
        return json!({ "path": path });
    }
    // Secrets are removed before the diff can split them.
    let (old, new) = (clean(old.unwrap_or_default()), clean(new));
    let diff =
        TextDiff::configure().timeout(COMPARE_TIMEOUT).diff_lines(old.as_str(), new.as_str());
    let count = |tag: ChangeTag| diff.iter_all_changes().filter(|it| it.tag() == tag).count();
    let (added, removed) = (count(ChangeTag::Insert), count(ChangeTag::Delete));
    let text = diff.unified_diff().context_radius(2).missing_newline_hint(false).to_string();
    let shown = shorten_end(&text, *room);
    *room = room.saturating_sub(shown.chars().count());
    json!({ "path": path, "added": added, "removed": removed, "diff": shown })
}

/// Returns the exit code that an agent reports in the text of a command's output.
fn exit_code_in(output: &str) -> Option<i64> {
    let lines: Vec<_> = output.lines().map(str::trim).collect();
    let near_ends = lines.iter().take(1).chain(lines.iter().rev().take(5));
    near_ends
        .flat_map(|line| EXIT_CODE_LABELS.map(|label| (line, label)))
        .find_map(|(line, label)| line.strip_prefix(label)?.trim_end_matches('.').parse().ok())
}

/// Returns text without the code fence around it.
fn without_fences(text: &str) -> &str {
    let inner = text.trim().strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    inner.and_then(|inner| inner.split_once('\n')).map_or(text, |(_, inner)| inner)
}

/// Leaves out the middle of a long text: the beginning says what it is, the end how it ended.
fn shorten(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let head: String = text.chars().take(most / 4).collect();
    let tail: String = text.chars().skip(count - (most - most / 4)).collect();
    format!("{head}\n… {} characters left out …\n{tail}", count - most)
}

/// Leaves out the end of a long text.
fn shorten_end(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => {
            let left_out = text[end..].chars().count();
            format!("{}\n… {left_out} characters left out", &text[..end])
        }
        None => text.to_owned(),
    }
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            Value::Object(fields.into_iter().filter(|(_, value)| !value.is_null()).collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_timestamp(1_800_000_000 + seconds, 0).expect("valid timestamp")
    }

    fn clean(text: &str) -> String {
        text.replace("sk-secret", "…")
    }

    /// Line of a call with these updates, 3 s after its start.
    fn line(updates: impl IntoIterator<Item = ToolCallUpdate>) -> (String, Value) {
        let mut call = ToolCallState::new(at(0));
        for update in updates {
            call.apply(update);
        }
        call.to_line("call-1", at(3), &clean)
    }

    fn command(status: &str, output: &str, exit_code: Option<i64>) -> ToolCallUpdate {
        ToolCallUpdate {
            id: "call-1".to_owned(),
            title: Some("cargo test".to_owned()),
            status: Some(status.to_owned()),
            kind: Some("execute".to_owned()),
            input: Some(json!({ "command": "cargo test -q" })),
            content: Some(vec![ToolContent::Text(output.to_owned())]),
            exit_code,
            ..ToolCallUpdate::default()
        }
    }

    #[test]
    fn a_command_with_another_exit_code_than_0_has_failed() {
        for (update, text, status) in [
            (command("completed", "ok", Some(0)), "cargo test", "completed"),
            (command("completed", "ok", None), "cargo test", "completed"),
            (command("completed", "no", Some(101)), "cargo test: failed (exit code 101)", "failed"),
            (
                command("completed", "out\nExit Code: 2\n", None),
                "cargo test: failed (exit code 2)",
                "failed",
            ),
            (command("failed", "no", None), "cargo test: failed", "failed"),
            (command("in_progress", "…", None), "cargo test: did not finish", "unfinished"),
        ] {
            let (shown, data) = line([update]);
            assert_eq!((shown.as_str(), &data["status"]), (text, &json!(status)));
        }
        // The words are the content of a file, not a report about a command.
        let read = ToolCallUpdate {
            kind: Some("read".to_owned()),
            ..command("completed", "Exit code 1", None)
        };
        assert_eq!(line([read]).1["status"], "completed");
    }

    #[test]
    fn a_line_has_input_output_and_duration_without_secrets() {
        let (_, data) = line([command("completed", "```console\nkey sk-secret\n```", Some(0))]);
        let expected = json!({
            "id": "call-1", "title": "cargo test", "status": "completed", "kind": "execute",
            "exit_code": 0, "ms": 3000, "locations": [], "input": "cargo test -q",
            "output": "key …",
        });
        assert_eq!(data, expected);
    }

    #[test]
    fn edits_are_shown_as_diffs_also_after_a_later_update() {
        let edit = ToolCallUpdate {
            title: Some("Edit a.rs".to_owned()),
            kind: Some("edit".to_owned()),
            content: Some(vec![ToolContent::Edit {
                path: "a.rs".to_owned(),
                old: Some("one\ntwo\n".to_owned()),
                new: "one\nsk-secret\nthree\n".to_owned(),
            }]),
            ..ToolCallUpdate::default()
        };
        let done = ToolCallUpdate {
            status: Some("completed".to_owned()),
            content: Some(vec![ToolContent::Text("written".to_owned())]),
            ..ToolCallUpdate::default()
        };
        let (_, data) = line([edit, done]);
        let diff = "@@ -1,2 +1,3 @@\n one\n-two\n+…\n+three\n";
        let expected = json!([{ "path": "a.rs", "added": 2, "removed": 1, "diff": diff }]);
        assert_eq!((&data["edits"], &data["output"]), (&expected, &json!("written")));
    }

    #[test]
    fn long_output_keeps_its_beginning_and_its_end() {
        let output = format!("begin{}end", "x".repeat(3 * MAX_OUTPUT_CHARS));
        let (_, data) = line([command("completed", &output, Some(0))]);
        let kept = data["output"].as_str().expect("output");
        assert!(kept.starts_with("begin") && kept.ends_with("end"), "{kept}");
        assert!(kept.contains("characters left out") && kept.len() < MAX_OUTPUT_CHARS + 100);
        let big = "x\n".repeat(MAX_COMPARED_BYTES);
        let mut room = MAX_EDIT_CHARS;
        let edit = describe_edit("a", Some(""), &big, &clean, &mut room);
        assert_eq!(edit, json!({ "path": "a" }), "too large to compare");
    }
}
