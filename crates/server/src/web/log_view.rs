//! Log of agents as pages show it: one line per tool call, grouped by purpose, with documents and a
//! live tail.
//!
//! Everything in a line was written by an agent. Templates escape it, and nothing in it becomes an
//! address.

pub(super) mod document;

use chrono::TimeDelta;
use serde::Deserialize;
use serde_json::Value;
use tamma_core::format::{
    capitalize, format_duration, format_number, format_usd, humanize, pluralize,
};
use tamma_core::ids::TaskId;
use tamma_store::{LineFilter, LineKind, LinePosition};
use uuid::Uuid;

use self::document::DocumentView;
use super::layout::{DisplayTime, SelectOption};
use crate::app::{App, Error, parse_run_number};
use crate::dto;

/// Number of lines on a page. The last page comes first, whatever the length of the log.
const PAGE_SIZE: u32 = 120;

/// Size of the lines of a page, with their details, after which earlier ones are on an earlier page.
const MAX_PAGE_BYTES: usize = 1_000_000;

/// Maximum length of a search text, in characters.
const MAX_SEARCH_CHARS: usize = 200;

/// Kinds of lines shown by default: all but thoughts and model calls.
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

/// Query parameters of a log.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(in crate::web) struct LogQuery {
    pub(super) run: String,
    kinds: String,
    text: String,
    before: String,
}

impl LogQuery {
    pub(in crate::web) fn line_filter(&self) -> Result<LineFilter, Error> {
        let (job_number, attempt) = match self.run.as_str() {
            "" => (None, None),
            run => {
                let (job_number, attempt) = parse_run_number(run)?;
                (Some(job_number), attempt)
            }
        };
        let kinds = match self.kinds.as_str() {
            "all" => Vec::new(),
            "messages" => vec![LineKind::Said, LineKind::Document],
            "tools" => vec![LineKind::Tool],
            "failures" => vec![LineKind::Tool, LineKind::Asked, LineKind::Refused],
            _ => DEFAULT_KINDS.to_vec(),
        };
        let text: String = self.text.trim().chars().take(MAX_SEARCH_CHARS).collect();
        let failed = self.kinds == "failures";
        Ok(LineFilter { job_number, attempt, kinds, text: Some(text), failed })
    }

    /// Returns whether the person asked for some lines only.
    pub(super) fn is_filtered(&self) -> bool {
        !self.kinds.is_empty() || !self.text.trim().is_empty()
    }

    /// Returns whether the page ends with the newest line.
    pub(super) fn is_last_page(&self) -> bool {
        self.before.is_empty()
    }

    /// Returns the query of another page of the same log.
    pub(super) fn with_before(&self, before: Option<&str>) -> String {
        let pairs = [
            ("run", self.run.as_str()),
            ("kinds", self.kinds.as_str()),
            ("text", self.text.trim()),
            ("before", before.unwrap_or_default()),
        ];
        let set = pairs.into_iter().filter(|(_, value)| !value.is_empty());
        form_urlencoded::Serializer::new(String::new()).extend_pairs(set).finish()
    }

    /// Returns the kinds that people can choose.
    pub(super) fn kind_options(&self) -> Vec<SelectOption> {
        [
            ("", "Messages and actions"),
            ("messages", "Messages"),
            ("tools", "Tool calls"),
            ("failures", "Failures"),
            ("all", "All, including thoughts and model calls"),
        ]
        .map(|(value, text)| SelectOption::new(value, text, &self.kinds))
        .into()
    }
}

/// Page of a log.
pub(super) struct LogView {
    pub(super) groups: Vec<LineGroup>,
    pub(super) kinds: Vec<SelectOption>,
    /// Runs to choose from; empty on the page of one run.
    pub(super) runs: Vec<SelectOption>,
    pub(super) search: String,
    /// Text of a page without lines.
    pub(super) empty_text: &'static str,
    /// `None` on the first page.
    pub(super) earlier_href: Option<String>,
    /// `None` on the last page.
    pub(super) latest_href: Option<String>,
    /// End of the log; `None` on an earlier page.
    pub(super) tail: Option<TailView>,
    /// Position of the last line.
    pub(super) last: LinePosition,
}

impl LogView {
    /// Loads the page that the query names; without a position, the last one.
    pub(super) async fn load(
        app: &App,
        task: TaskId,
        query: &LogQuery,
        runs: &[dto::RunDetail],
    ) -> Result<Self, Error> {
        let before = match query.before.as_str() {
            "" => LinePosition::END,
            before => App::parse_end_position(before)?,
        };
        let page = app.run_lines_before(task, &query.line_filter()?, before, PAGE_SIZE).await?;
        let page = within_page(page, MAX_PAGE_BYTES);
        let last = page.lines.last().and_then(|line| line.position.parse().ok());
        let href = |before: Option<&str>| format!("?{}", query.with_before(before));
        Ok(Self {
            groups: group_lines(task.0, &page.lines, None, runs),
            kinds: query.kind_options(),
            runs: Vec::new(),
            search: query.text.trim().to_owned(),
            empty_text: if query.is_filtered() { "No matching lines" } else { "No log output yet" },
            earlier_href: page.previous.as_deref().map(|before| href(Some(before))),
            latest_href: (!query.is_last_page()).then(|| href(None)),
            tail: None,
            last: last.unwrap_or(LinePosition::START),
        })
    }
}

/// Leaves out the first lines of a page that is too large. At least the last line stays.
fn within_page(mut page: dto::RunLines, max_bytes: usize) -> dto::RunLines {
    let mut bytes = 0;
    let newest_first = page.lines.iter().rev();
    let kept = newest_first.take_while(|line| {
        let is_first = bytes == 0;
        bytes += line.text.len() + line.data.as_ref().map_or(0, text_bytes);
        is_first || bytes <= max_bytes
    });
    let kept = kept.count();
    if kept < page.lines.len() {
        page.lines.drain(..page.lines.len() - kept);
        page.previous = page.lines.first().map(|line| line.position.clone());
    }
    page
}

/// Returns the size of the texts in a value, in bytes.
fn text_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(text_bytes).sum(),
        Value::Object(fields) => fields.values().map(text_bytes).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// Returns the address of a run's page.
pub(super) fn run_href(task: Uuid, run: &str) -> String {
    format!("/runs/{task}-{run}")
}

/// Consecutive lines of one run with the same purpose.
pub(in crate::web) struct LineGroup {
    /// Run and purpose. Adjacent groups with the same key are one group.
    pub(super) key: String,
    pub(super) label: &'static str,
    /// `true` if the group can be collapsed: it has tool calls.
    pub(super) is_calls: bool,
    pub(super) is_open: bool,
    /// Number of calls, and of failed ones.
    pub(super) summary: String,
    /// Heading of the run, if the group is its first one.
    pub(super) run: Option<RunHeading>,
    pub(super) lines: Vec<LogLineView>,
}

/// Heading above the lines of a run.
pub(in crate::web) struct RunHeading {
    pub(super) href: String,
    pub(super) text: String,
}

/// Groups consecutive lines by run and purpose. `previous` is the run of the line before them.
pub(in crate::web) fn group_lines(
    task: Uuid,
    lines: &[dto::RunLine],
    previous: Option<&str>,
    runs: &[dto::RunDetail],
) -> Vec<LineGroup> {
    let mut groups: Vec<LineGroup> = Vec::new();
    let mut last_run = previous;
    for line in lines {
        let (purpose, label, is_calls) = purpose(line);
        let key = format!("{} {purpose}", line.run);
        if groups.last().is_none_or(|group| group.key != key) {
            let heading =
                RunHeading { href: run_href(task, &line.run), text: run_heading(&line.run, runs) };
            groups.push(LineGroup {
                key,
                label,
                is_calls,
                is_open: purpose != "explore",
                summary: String::new(),
                run: (last_run != Some(line.run.as_str())).then_some(heading),
                lines: Vec::new(),
            });
        }
        last_run = Some(line.run.as_str());
        if let Some(group) = groups.last_mut() {
            group.lines.push(LogLineView::new(line));
        }
    }
    for group in &mut groups {
        let failed = group.lines.iter().filter(|line| line.is_failed).count();
        group.summary = pluralize(group.lines.len(), "call");
        if failed > 0 {
            group.summary = format!("{}, {failed} failed", group.summary);
            group.is_open = true;
        }
    }
    groups
}

/// Returns the purpose of a line, its label, and whether it is a tool call.
fn purpose(line: &dto::RunLine) -> (&'static str, &'static str, bool) {
    if line.kind != LineKind::Tool {
        return ("talk", "Messages", false);
    }
    let kind = line.data.as_ref().and_then(|data| data["kind"].as_str()).unwrap_or_default();
    match kind {
        "read" | "search" | "fetch" => ("explore", "Explore", true),
        "edit" | "delete" | "move" => ("edit", "Edit", true),
        "execute" => ("run", "Run commands", true),
        _ => ("other", "Use tools", true),
    }
}

fn run_heading(number: &str, runs: &[dto::RunDetail]) -> String {
    match runs.iter().find(|run| run.run == number) {
        Some(run) => format!("Run {number} · {} · {}", humanize(&run.mode), run.agent),
        None => format!("Run {number}"),
    }
}

/// Log line.
pub(in crate::web) struct LogLineView {
    pub(super) anchor: String,
    pub(super) kind: String,
    pub(super) kind_label: &'static str,
    pub(super) at: DisplayTime,
    pub(super) text: String,
    pub(super) is_failed: bool,
    pub(super) call: Option<CallView>,
    pub(super) document: Option<DocumentView>,
    /// Block of JSON that the agent wrote.
    pub(super) json: Option<String>,
}

impl LogLineView {
    fn new(line: &dto::RunLine) -> Self {
        let data = line.data.as_ref();
        let call = data.filter(|_| line.kind == LineKind::Tool).map(CallView::new);
        let status = data.and_then(|data| data["status"].as_str());
        Self {
            anchor: line.position.replace('.', "-"),
            kind: super::board::serialized_name(&line.kind),
            kind_label: match line.kind {
                LineKind::Said => "message",
                LineKind::Thought => "thought",
                LineKind::Tool => "tool",
                LineKind::Plan => "to-do list",
                LineKind::Progress => "progress",
                LineKind::Asked => "permission",
                LineKind::Document => "submitted",
                LineKind::Refused => "rejected",
                LineKind::ModelCall => "model",
                LineKind::Note => "note",
            },
            at: DisplayTime::of_log_line(line.at),
            text: line.text.clone(),
            is_failed: match line.kind {
                LineKind::Tool => matches!(status, Some("failed" | "unfinished")),
                LineKind::Asked => data.is_some_and(|data| data["verdict"] == "deny"),
                LineKind::Refused => true,
                _ => false,
            },
            call,
            document: data
                .filter(|_| line.kind == LineKind::Document)
                .and_then(DocumentView::from_data),
            json: data
                .filter(|_| line.kind == LineKind::Said)
                .and_then(|data| data["json"].as_str())
                .map(str::to_owned),
        }
    }
}

/// Tool call, with what people see when they expand it.
pub(in crate::web) struct CallView {
    pub(super) duration: Option<String>,
    pub(super) files: Vec<String>,
    pub(super) input: Option<String>,
    pub(super) output: Option<String>,
    pub(super) edits: Vec<EditView>,
}

/// Edit of a file.
pub(in crate::web) struct EditView {
    pub(super) path: String,
    pub(super) summary: String,
    pub(super) rows: Vec<EditRow>,
}

/// Line of an edit's diff.
pub(in crate::web) struct EditRow {
    pub(super) kind: &'static str,
    pub(super) text: String,
}

impl CallView {
    fn new(data: &Value) -> Self {
        let text = |name: &str| data[name].as_str().map(str::to_owned);
        let files = data["locations"].as_array().into_iter().flatten();
        Self {
            duration: data["ms"].as_u64().map(format_ms),
            files: files.filter_map(Value::as_str).map(str::to_owned).collect(),
            input: text("input"),
            output: text("output"),
            edits: data["edits"].as_array().into_iter().flatten().map(EditView::new).collect(),
        }
    }

    /// Returns whether there is something to expand.
    pub(super) fn has_details(&self) -> bool {
        self.input.is_some() || self.output.is_some() || !self.edits.is_empty()
    }
}

impl EditView {
    fn new(edit: &Value) -> Self {
        let summary = match (edit["added"].as_u64(), edit["removed"].as_u64()) {
            (Some(added), Some(removed)) => format!("+{added} −{removed}"),
            _ => "too large to compare".to_owned(),
        };
        let row = |text: &str| EditRow {
            kind: match text.chars().next() {
                Some('+') => "add",
                Some('-') => "del",
                Some('@') => "hunk",
                _ => "same",
            },
            text: text.to_owned(),
        };
        Self {
            path: edit["path"].as_str().unwrap_or_default().to_owned(),
            summary,
            rows: edit["diff"].as_str().unwrap_or_default().lines().map(row).collect(),
        }
    }
}

/// Formats a duration in milliseconds.
fn format_ms(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..60_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        _ => format_duration(TimeDelta::milliseconds(i64::try_from(ms).unwrap_or(i64::MAX))),
    }
}

/// End of a log: running calls, and the usage of the run so far.
#[derive(Default)]
pub(in crate::web) struct TailView {
    pub(super) calls: Vec<RunningCallView>,
    /// State, tokens and cost of the run; `None` without a run.
    pub(super) usage: Option<String>,
}

/// Tool call that runs now.
pub(in crate::web) struct RunningCallView {
    pub(super) title: String,
    pub(super) since: DisplayTime,
}

impl TailView {
    pub(in crate::web) fn of_run(run: Option<&dto::RunDetail>) -> Self {
        let Some(run) = run else { return Self::default() };
        let call = |call: &dto::RunningCall| RunningCallView {
            title: call.title.clone(),
            since: DisplayTime::elapsed(call.since),
        };
        let state = run.end.map_or_else(|| "running".to_owned(), |end| humanize(&end));
        let usage = format!("Run {}: {state} · {}", run.run, usage_text(run));
        Self { calls: run.running.iter().map(call).collect(), usage: Some(usage) }
    }

    /// Returns a text that changes when the tail does, but not as time passes.
    pub(in crate::web) fn key(&self) -> String {
        let calls = self.calls.iter().map(|call| format!("{} {}\n", call.since.iso, call.title));
        calls.chain(self.usage.clone()).collect()
    }
}

/// Describes the tokens and the cost of a run so far. An unknown cost is not zero.
pub(super) fn usage_text(run: &dto::RunDetail) -> String {
    let Some(usage) = &run.usage else { return "no usage reported yet".to_owned() };
    let cached = usage.cached_percent.map(|share| format!(" ({share}% cached)"));
    let tokens = usage.input + usage.cached + usage.output;
    let tokens = format!("{} tokens{}", format_number(tokens), cached.unwrap_or_default());
    let cost = usage.usd.map_or_else(|| "cost unknown".to_owned(), format_usd);
    let source = if usage.metered { "" } else { ", reported by the agent" };
    let calls = match run.calls {
        0 => String::new(),
        calls => format!(" · {}", pluralize(calls, "model call")),
    };
    format!("{tokens} · {cost}{source}{calls}")
}

/// Describes how a run ended, or for how long it has been running.
pub(super) fn run_state(run: &dto::RunDetail) -> String {
    match (run.end, run.ended_at) {
        (Some(end), Some(at)) => {
            // A normal end needs no reason.
            let reason = run.reason.as_ref().filter(|reason| *reason != "end_turn");
            let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            let took = format_duration(at - run.started_at);
            format!("{} after {took}{reason}", capitalize(&humanize(&end)))
        }
        _ => format!("Running for {}", format_duration(crate::clock::now() - run.started_at)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(sequence: u32, kind: &str, data: &Value) -> dto::RunLine {
        serde_json::from_value(json!({
            "place": format!("4.1.{sequence}"), "run": "4", "at": "2026-11-15T10:20:30Z",
            "kind": kind, "text": "text", "data": data,
        }))
        .expect("a line")
    }

    #[test]
    fn consecutive_calls_with_one_purpose_are_one_group() {
        let call = |sequence, kind: &str, status: &str| {
            line(sequence, "tool", &json!({ "kind": kind, "status": status }))
        };
        let lines = [
            line(1, "said", &Value::Null),
            call(2, "read", "completed"),
            call(3, "search", "completed"),
            call(4, "execute", "completed"),
            call(5, "execute", "failed"),
            line(6, "note", &Value::Null),
        ];
        let groups = group_lines(Uuid::nil(), &lines, None, &[]);
        let shown: Vec<_> = groups
            .iter()
            .map(|group| (group.label, group.is_calls, group.is_open, group.summary.as_str()))
            .collect();
        let expected = [
            ("Messages", false, true, "1 call"),
            ("Explore", true, false, "2 calls"),
            ("Run commands", true, true, "2 calls, 1 failed"),
            ("Messages", false, true, "1 call"),
        ];
        assert_eq!(shown, expected);
        let headings: Vec<_> = groups.iter().map(|group| group.run.is_some()).collect();
        assert_eq!(headings, [true, false, false, false], "one heading for each run");
        assert!(group_lines(Uuid::nil(), &lines, Some("4"), &[])[0].run.is_none());
    }

    #[test]
    fn a_failed_call_is_marked_and_a_call_of_an_older_version_has_no_details() {
        let failed = LogLineView::new(&line(1, "tool", &json!({ "status": "failed", "ms": 1234 })));
        assert!(failed.is_failed);
        let call = failed.call.expect("a call");
        assert_eq!((call.duration.as_deref(), call.has_details()), (Some("1.2 s"), false));
        let edit =
            json!({ "path": "a.rs", "added": 1, "removed": 0, "diff": "@@ -0,0 +1 @@\n+a\n" });
        let edited =
            LogLineView::new(&line(2, "tool", &json!({ "status": "completed", "edits": [edit] })));
        let call = edited.call.expect("a call");
        assert!(call.has_details() && !edited.is_failed);
        let kinds: Vec<_> = call.edits[0].rows.iter().map(|row| row.kind).collect();
        assert_eq!(kinds, ["hunk", "add"]);
        for strange in [json!([1]), json!("text"), json!({ "edits": 1, "locations": {} })] {
            let shown = LogLineView::new(&line(3, "tool", &strange));
            assert!(shown.call.is_some_and(|call| !call.has_details()));
        }
    }

    #[test]
    fn a_page_with_large_lines_is_shorter() {
        let page = |previous: Option<&str>| dto::RunLines {
            lines: (1..=9)
                .map(|it| line(it, "tool", &json!({ "output": "x".repeat(996) })))
                .collect(),
            next: None,
            previous: previous.map(str::to_owned),
        };
        let shown = |page: &dto::RunLines| (page.lines.len(), page.previous.clone());
        assert_eq!(shown(&within_page(page(None), 9_000)), (9, None));
        assert_eq!(shown(&within_page(page(None), 8_999)), (8, Some("4.1.2".to_owned())));
        let earlier = within_page(page(Some("4.1.1")), 2_000);
        assert_eq!(shown(&earlier), (2, Some("4.1.8".to_owned())));
        assert_eq!(shown(&within_page(page(None), 10)), (1, Some("4.1.9".to_owned())));
    }

    #[test]
    fn a_query_names_another_page_of_the_same_log() {
        let query = LogQuery { text: " a&b ".to_owned(), ..LogQuery::default() };
        assert_eq!(query.with_before(Some("4.1.20")), "text=a%26b&before=4.1.20");
        assert_eq!(query.with_before(None), "text=a%26b");
        let failures = LogQuery { kinds: "failures".to_owned(), ..LogQuery::default() };
        assert!(failures.line_filter().is_ok_and(|filter| filter.failed));
    }
}
