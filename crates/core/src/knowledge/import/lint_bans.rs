//! Bans in lint configurations.
//!
//! These parsers read only the bans and skip everything else in a file.

use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::Value;

use super::ImportCandidate;
use crate::knowledge::{EntryKind, EntrySeverity};

/// Parses clippy's lists that start with `disallowed`.
pub(super) fn parse_clippy(text: &str) -> Vec<ImportCandidate> {
    static LIST: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"(?m)^[ \t]*disallowed-(?:methods|types|macros|fields)\s*=\s*\[").ok()
    });
    // Table with a path, or only a path.
    static BAN: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r#"\{[^}]*?path\s*=\s*"([^"]+)"(?:[^}]*?reason\s*=\s*"((?:[^"\\]|\\.)+)")?[^}]*\}|"([\w:]+)""#)
            .ok()
    });
    let text = strip_comments(text, &["#"]);
    let (Some(list), Some(ban)) = (&*LIST, &*BAN) else { return Vec::new() };
    let mut candidates = Vec::new();
    for list in list.find_iter(&text) {
        let items = list_contents(&text, list.end());
        candidates.extend(ban.captures_iter(items).filter_map(|captures| {
            let name = captures.get(1).or_else(|| captures.get(3))?;
            let line = line_number(&text, list.end() + name.start());
            Some(ban_candidate(
                name.as_str(),
                captured_reason(&captures, 2),
                &name_in_code(name.as_str()),
                line,
            ))
        }));
    }
    candidates
}

/// Returns the part of a path that appears in code: a method's name, or a function with its module.
fn name_in_code(path: &str) -> String {
    let mut segments: Vec<&str> = path.rsplit("::").collect();
    let is_type = |segment: &str| segment.starts_with(char::is_uppercase);
    let last = segments.first().copied().unwrap_or(path);
    let stands_alone = is_type(last) || segments.get(1).is_none_or(|owner| is_type(owner));
    segments.truncate(if stands_alone { 1 } else { 2 });
    segments.reverse();
    segments.join("::")
}

/// Parses ruff's banned APIs.
pub(super) fn parse_ruff(text: &str) -> Vec<ImportCandidate> {
    // `"cgi".msg = "…"`, `cgi = { msg = "…" }`, and `[….banned-api."cgi"]` with `msg` below it.
    static BAN: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(
            r#"(?x)
            (?: "?([\w.]+?)"? \s*(?: \. \s*msg \s*= | = \s*\{ \s*msg \s*= )
              | banned-api \. "?([\w.]+)"? \s*\] \s* msg \s*= )
            \s* "((?:[^"\\]|\\.)+)""#,
        )
        .ok()
    });
    let text = strip_comments(text, &["#"]);
    let Some(ban) = &*BAN else { return Vec::new() };
    if !text.contains("banned-api") {
        return Vec::new();
    }
    let bans = ban.captures_iter(&text).filter_map(|captures| {
        let name = captures.get(1).or_else(|| captures.get(2))?;
        let line = line_number(&text, name.start());
        Some(ban_candidate(name.as_str(), captured_reason(&captures, 3), name.as_str(), line))
    });
    bans.collect()
}

/// Parses `eslint` rules that start with `no-restricted`.
pub(super) fn parse_eslint(text: &str) -> Vec<ImportCandidate> {
    let stripped = strip_comments(text, &["//", "#"]);
    // YAML includes JSON, and allows trailing commas in lists.
    let Ok(file) = serde_saphyr::from_str::<Value>(&stripped) else { return Vec::new() };
    let overrides = file.get("overrides").and_then(Value::as_array).into_iter().flatten();
    let find_after = |from: usize, needle: &str| {
        stripped.get(from..).and_then(|rest| rest.find(needle)).map_or(from, |at| from + at)
    };
    let sections = std::iter::once((0, &file));
    let sections = sections.chain(overrides.map(|section| (find_after(0, "overrides"), section)));
    let mut candidates = Vec::new();
    for (start, section) in sections {
        let rules = section.get("rules").and_then(Value::as_object).into_iter().flatten();
        for (rule, value) in rules.filter(|(rule, _)| rule.contains("no-restricted-")) {
            let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
            let Some((level, items)) = items.split_first() else { continue };
            if matches!(level, Value::String(off) if off == "off") || level == &Value::from(0) {
                continue;
            }
            let rule_at = find_after(start, rule);
            for item in items {
                collect_restricted(rule, item, &mut |name, reason| {
                    let first = name.split('.').next().unwrap_or(name);
                    let line = line_number(&stripped, find_after(rule_at, first));
                    candidates.push(ban_candidate(name, reason, name, line));
                });
            }
        }
    }
    candidates
}

/// Collects the items that an `eslint` rule restricts.
fn collect_restricted(rule: &str, item: &Value, add: &mut impl FnMut(&str, Option<String>)) {
    let text = |key: &str| item.get(key).and_then(Value::as_str);
    if let Value::String(name) = item {
        // A syntax selector is not code, so there is nothing to search for.
        if !rule.ends_with("-syntax") {
            add(name, None);
        }
        return;
    }
    for key in ["paths", "patterns"] {
        for inner in item.get(key).and_then(Value::as_array).into_iter().flatten() {
            collect_restricted(rule, inner, add);
        }
    }
    let reason = text("message").map(ToOwned::to_owned);
    match (text("object"), text("property"), text("name")) {
        (Some(object), Some(property), _) => {
            add(&format!("{object}.{property}"), reason);
        }
        (.., Some(name)) => add(name, reason),
        _ => {}
    }
}

fn ban_candidate(
    name: &str,
    reason: Option<String>,
    in_code: &str,
    line: usize,
) -> ImportCandidate {
    let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    // A word boundary exists only next to a letter, digit or underscore.
    let boundary = |letter: Option<char>| {
        if letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_') {
            r"\b"
        } else {
            ""
        }
    };
    let (before, after) = (boundary(in_code.chars().next()), boundary(in_code.chars().last()));
    ImportCandidate {
        kind: EntryKind::Convention,
        text: format!("Do not use `{name}`{reason}"),
        globs: Vec::new(),
        pattern: Some(format!("{before}{}{after}", regex::escape(in_code))),
        severity: EntrySeverity::High,
        line,
    }
}

fn captured_reason(captures: &Captures<'_>, group: usize) -> Option<String> {
    captures.get(group).map(|reason| reason.as_str().replace("\\\"", "\""))
}

fn line_number(text: &str, at: usize) -> usize {
    text.get(..at).map_or(1, |before| before.matches('\n').count() + 1)
}

/// Returns the contents of the list that starts at an offset.
fn list_contents(text: &str, start: usize) -> &str {
    let rest = text.get(start..).unwrap_or_default();
    let (mut depth, mut quoted, mut escaped) = (0_u32, false, false);
    for (at, letter) in rest.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '[' if !quoted => depth += 1,
            ']' if !quoted && depth == 0 => return rest.get(..at).unwrap_or(rest),
            ']' if !quoted => depth -= 1,
            _ => {}
        }
    }
    rest
}

/// Removes comments that start with one of `marks`, and `/* … */` if `//` is one. Line numbers and
/// quoted text stay the same.
fn strip_comments(text: &str, marks: &[&str]) -> String {
    let mut stripped = String::with_capacity(text.len());
    let (mut rest, mut quote) = (text, None);
    while let Some(letter) = rest.chars().next() {
        let mut skip = letter.len_utf8();
        if let Some(end) = quote {
            if letter == '\\' && end == '"' {
                skip += rest.chars().nth(1).map_or(0, char::len_utf8);
            } else if letter == end || letter == '\n' {
                quote = None;
            }
        } else if marks.iter().any(|mark| rest.starts_with(mark)) {
            rest = rest.find('\n').and_then(|end| rest.get(end..)).unwrap_or_default();
            continue;
        } else if marks.contains(&"//") && rest.starts_with("/*") {
            let end = rest.find("*/").map_or(rest.len(), |end| end + 2);
            let (comment, after) = rest.split_at(end);
            stripped.extend(comment.chars().filter(|letter| *letter == '\n'));
            rest = after;
            continue;
        } else if letter == '"' || letter == '\'' {
            quote = Some(letter);
        }
        let (chunk, after) = rest.split_at(skip);
        stripped.push_str(chunk);
        rest = after;
    }
    stripped
}
