//! Rendering of a log: one row per line, and details of the expanded ones.

use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use serde_json::Value;
use tamma_server::dto::RunLine;
use tamma_store::LineKind;

use super::{BAD, FAINT, visible};
use crate::style::{format_duration, format_run_cost, format_time, format_tokens};
use crate::top::log_state::FILTERS;
use crate::top::state::TopState;
use crate::top::text::{fit, pad, wrap};

/// Width of the column with the kind of a line.
const KIND_WIDTH: usize = 8;

/// Indentation of details, in columns.
const INDENT: usize = 11;

/// Maximum number of rows of one detail, such as an output.
const MAX_DETAIL_ROWS: usize = 200;

/// Rows of the log: a status, the lines around the selected one, and the running calls.
pub(super) fn rows(state: &TopState, area: Rect) -> Vec<Line<'static>> {
    let columns = usize::from(area.width);
    let mut all = vec![status(state, columns)];
    let running = running_rows(state, columns);
    let height = usize::from(area.height).saturating_sub(1 + running.len());
    let log = &state.log;
    if log.lines.is_empty() {
        let text = if log.is_loaded { "No log output" } else { "Loading…" };
        all.push(Line::styled(text, FAINT));
    }
    let (mut lines, mut selected_row) = (Vec::new(), 0);
    for (index, line) in log.lines.iter().enumerate() {
        let is_expanded = log.expanded.contains(&line.position);
        let row = line_row(state, line, is_expanded, columns);
        if index == log.selected {
            selected_row = lines.len();
            lines.push(row.patch_style(Style::new().add_modifier(Modifier::REVERSED)));
        } else {
            lines.push(row);
        }
        if is_expanded {
            lines.extend(detail_rows(line, columns));
        }
        if index == log.selected && log.follows() {
            selected_row = lines.len();
        }
    }
    all.extend(visible(lines, selected_row, height));
    all.extend(running);
    all
}

/// First row: filter, search, and whether the log is live.
fn status(state: &TopState, columns: usize) -> Line<'static> {
    let log = &state.log;
    let filter = FILTERS.get(log.filter).map_or("", |(name, _)| *name);
    let search =
        if log.search.is_empty() { String::new() } else { format!(" · “{}”", log.search) };
    let live = match (log.paused, log.follows()) {
        (true, _) => format!("paused, {} new", log.held.len()),
        (false, true) => "live".to_owned(),
        (false, false) => "G follows".to_owned(),
    };
    let title = state.detail.as_ref().map(|detail| detail.card.title.as_str()).unwrap_or_default();
    Line::styled(fit(&format!("{filter}{search} · {live} · {title}"), columns), FAINT)
}

/// Last rows: the running calls of the agent, its tokens and its cost.
fn running_rows(state: &TopState, columns: usize) -> Vec<Line<'static>> {
    let current = state.detail.as_ref().and_then(|detail| detail.current_run.as_ref());
    let Some(run) = current.map(|current| &current.run) else { return Vec::new() };
    let usage = run.usage.as_ref();
    let call = |call: &tamma_server::dto::RunningCall| {
        let took = format_duration(state.now - call.since);
        Line::styled(fit(&format!("▶ {} ({took})", call.title), columns), Color::Cyan)
    };
    let summary = format!(
        "run {} · {} · {} tokens · cost {}",
        run.run,
        run.agent,
        format_tokens(usage),
        format_run_cost(usage)
    );
    let mut rows: Vec<_> = run.running.iter().take(3).map(call).collect();
    rows.push(Line::styled(fit(&summary, columns), FAINT));
    rows
}

fn line_row(state: &TopState, line: &RunLine, is_expanded: bool, columns: usize) -> Line<'static> {
    let is_failed = is_failed(line);
    let kind = match line.kind {
        LineKind::ModelCall => "model".to_owned(),
        kind => kind.to_string(),
    };
    let mark = match (has_details(line, columns), is_expanded) {
        (false, _) => "  ",
        (true, false) => "▸ ",
        (true, true) => "▾ ",
    };
    let style = match line.kind {
        _ if is_failed => BAD,
        LineKind::Said | LineKind::Document => Style::new(),
        LineKind::Tool => Style::new().fg(Color::Cyan),
        LineKind::Refused => BAD,
        LineKind::Asked => Style::new().fg(Color::Yellow),
        LineKind::Thought
        | LineKind::Plan
        | LineKind::Progress
        | LineKind::ModelCall
        | LineKind::Note => FAINT,
    };
    let sign = if is_failed { "✗ " } else { "" };
    let room = columns.saturating_sub(9 + KIND_WIDTH + 1 + 2);
    Line::from(vec![
        Span::styled(format!("{} ", format_time(line.at, state.zone)), FAINT),
        Span::styled(format!("{} ", pad(&kind, KIND_WIDTH)), FAINT),
        Span::raw(mark),
        Span::styled(fit(&format!("{sign}{}", line.text), room), style),
    ])
}

fn is_failed(line: &RunLine) -> bool {
    let status = line.data.as_ref().and_then(|data| data["status"].as_str());
    line.kind == LineKind::Tool && matches!(status, Some("failed" | "unfinished"))
}

/// Returns whether there is more than the row shows.
fn has_details(line: &RunLine, columns: usize) -> bool {
    let has = |name: &str| line.data.as_ref().is_some_and(|data| !data[name].is_null());
    line.text.contains('\n')
        || line.text.chars().count() + 9 + KIND_WIDTH + 3 > columns
        || ["input", "output", "edits", "json", "content"].into_iter().any(has)
}

/// Rows below an expanded line: its whole text, and the input, edits and output of a call.
fn detail_rows(line: &RunLine, columns: usize) -> Vec<Line<'static>> {
    let room = columns.saturating_sub(INDENT);
    let mut rows = Vec::new();
    let mut add = |text: &str, style: fn(&str) -> Style| {
        for row in wrap(text, room).into_iter().take(MAX_DETAIL_ROWS) {
            let style = style(&row);
            rows.push(Line::styled(format!("{:INDENT$}{row}", ""), style));
        }
    };
    let plain: fn(&str) -> Style = |_| Style::new();
    let faint: fn(&str) -> Style = |_| FAINT;
    let data = line.data.as_ref();
    let text = |name: &str| data.and_then(|data| data[name].as_str());
    if line.kind != LineKind::Tool {
        add(&line.text, plain);
    }
    if let Some(input) = text("input") {
        add(&format!("$ {input}"), plain);
    }
    let edits = data.and_then(|data| data["edits"].as_array()).into_iter().flatten();
    for edit in edits {
        add(edit["path"].as_str().unwrap_or_default(), plain);
        add(edit["diff"].as_str().unwrap_or("too large to compare"), diff_style);
    }
    if let Some(output) = text("output").or_else(|| text("json")) {
        add(output, faint);
    }
    if let Some(content) = data.map(|data| &data["content"]).filter(|content| content.is_object()) {
        add(&document_text(content), plain);
    }
    rows
}

fn diff_style(row: &str) -> Style {
    match row.chars().next() {
        Some('+') => Style::new().fg(Color::Green),
        Some('-') => BAD,
        _ => FAINT,
    }
}

/// Text of a submitted document: each field under its name.
fn document_text(content: &Value) -> String {
    let item = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut text = String::new();
    for (name, value) in content.as_object().into_iter().flatten() {
        let body = match value {
            Value::Null => continue,
            Value::Array(items) if items.is_empty() => continue,
            Value::Array(items) => {
                items.iter().map(|it| format!("- {}", item(it))).collect::<Vec<_>>().join("\n")
            }
            Value::Object(fields) => {
                let field = |(key, value): (&String, &Value)| format!("- {key}: {}", item(value));
                fields.iter().map(field).collect::<Vec<_>>().join("\n")
            }
            other => item(other),
        };
        text = format!("{text}{}\n{body}\n\n", name.replace('_', " "));
    }
    text
}
