//! What lint configurations refuse.
//!
//! They are read for what they ban and nothing else, so none of these readers is one of the whole
//! format: what they do not know is passed over.

use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::Value;

use super::Proposal;
use crate::knowledge::{Kind, Severity};

/// What clippy is told to refuse: the lists that begin with `disallowed`.
pub(super) fn clippy(text: &str) -> Vec<Proposal> {
    static LIST: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"(?m)^[ \t]*disallowed-(?:methods|types|macros|fields)\s*=\s*\[").ok()
    });
    // A table with a path, or a path alone.
    static BAN: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r#"\{[^}]*?path\s*=\s*"([^"]+)"(?:[^}]*?reason\s*=\s*"((?:[^"\\]|\\.)+)")?[^}]*\}|"([\w:]+)""#)
            .ok()
    });
    let text = without_comments(text, &["#"]);
    let (Some(list), Some(ban)) = (&*LIST, &*BAN) else { return Vec::new() };
    let mut found = Vec::new();
    for list in list.find_iter(&text) {
        let items = list_from(&text, list.end());
        found.extend(ban.captures_iter(items).filter_map(|it| {
            let name = it.get(1).or_else(|| it.get(3))?;
            let line = line_of(&text, list.end() + name.start());
            Some(refused(name.as_str(), told(&it, 2), &in_rust(name.as_str()), line))
        }));
    }
    found
}

/// What of a path is written where it is used: a method by its name, a function with its module.
fn in_rust(path: &str) -> String {
    let mut parts: Vec<&str> = path.rsplit("::").collect();
    let is_type = |part: &str| part.starts_with(char::is_uppercase);
    let last = parts.first().copied().unwrap_or(path);
    let stands_alone = is_type(last) || parts.get(1).is_none_or(|owner| is_type(owner));
    parts.truncate(if stands_alone { 1 } else { 2 });
    parts.reverse();
    parts.join("::")
}

/// What ruff is told to refuse.
pub(super) fn ruff(text: &str) -> Vec<Proposal> {
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
    let text = without_comments(text, &["#"]);
    let Some(ban) = &*BAN else { return Vec::new() };
    if !text.contains("banned-api") {
        return Vec::new();
    }
    let bans = ban.captures_iter(&text).filter_map(|it| {
        let name = it.get(1).or_else(|| it.get(2))?;
        let line = line_of(&text, name.start());
        Some(refused(name.as_str(), told(&it, 3), name.as_str(), line))
    });
    bans.collect()
}

/// What `eslint` is told to refuse: the rules that begin with `no-restricted`.
pub(super) fn eslint(text: &str) -> Vec<Proposal> {
    let plain = without_comments(text, &["//", "#"]);
    // Of which JSON is a part, and lists may end with a comma.
    let Ok(file) = serde_saphyr::from_str::<Value>(&plain) else { return Vec::new() };
    let overrides = file.get("overrides").and_then(Value::as_array).into_iter().flatten();
    let after = |from: usize, what: &str| {
        plain.get(from..).and_then(|rest| rest.find(what)).map_or(from, |at| from + at)
    };
    let parts = std::iter::once((0, &file));
    let parts = parts.chain(overrides.map(|part| (after(0, "overrides"), part)));
    let mut found = Vec::new();
    for (start, part) in parts {
        let rules = part.get("rules").and_then(Value::as_object).into_iter().flatten();
        for (rule, value) in rules.filter(|(rule, _)| rule.contains("no-restricted-")) {
            let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
            let Some((level, items)) = items.split_first() else { continue };
            if matches!(level, Value::String(off) if off == "off") || level == &Value::from(0) {
                continue;
            }
            let rule_at = after(start, rule);
            for item in items {
                restricted(rule, item, &mut |name, why| {
                    let first = name.split('.').next().unwrap_or(name);
                    let line = line_of(&plain, after(rule_at, first));
                    found.push(refused(name, why, name, line));
                });
            }
        }
    }
    found
}

/// One thing that a rule of `eslint` restricts, or several.
fn restricted(rule: &str, item: &Value, take: &mut impl FnMut(&str, Option<String>)) {
    let text = |key: &str| item.get(key).and_then(Value::as_str);
    if let Value::String(name) = item {
        // A selector of syntax is no code, so nothing can be looked for.
        if !rule.ends_with("-syntax") {
            take(name, None);
        }
        return;
    }
    for key in ["paths", "patterns"] {
        for inner in item.get(key).and_then(Value::as_array).into_iter().flatten() {
            restricted(rule, inner, take);
        }
    }
    let why = text("message").map(ToOwned::to_owned);
    match (text("object"), text("property"), text("name")) {
        (Some(object), Some(property), _) => {
            take(&format!("{object}.{property}"), why);
        }
        (.., Some(name)) => take(name, why),
        _ => {}
    }
}

fn refused(name: &str, why: Option<String>, in_code: &str, line: usize) -> Proposal {
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    // Only a letter has a border between words beside it.
    let border = |letter: Option<char>| {
        if letter.is_some_and(|it| it.is_alphanumeric() || it == '_') { r"\b" } else { "" }
    };
    let (before, after) = (border(in_code.chars().next()), border(in_code.chars().last()));
    Proposal {
        kind: Kind::Convention,
        text: format!("`{name}` is not used here{why}"),
        globs: Vec::new(),
        pattern: Some(format!("{before}{}{after}", regex::escape(in_code))),
        severity: Severity::High,
        line,
    }
}

fn told(found: &Captures<'_>, group: usize) -> Option<String> {
    found.get(group).map(|why| why.as_str().replace("\\\"", "\""))
}

fn line_of(text: &str, at: usize) -> usize {
    text.get(..at).map_or(1, |before| before.matches('\n').count() + 1)
}

/// What a list holds that begins at a place, up to its end.
fn list_from(text: &str, start: usize) -> &str {
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

/// A configuration without its comments, which begin with one of `marks`; `/* … */` too where `//` is
/// one. The lines stay where they are, and what is in quotes stays as it is.
fn without_comments(text: &str, marks: &[&str]) -> String {
    let mut out = String::with_capacity(text.len());
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
            out.extend(comment.chars().filter(|letter| *letter == '\n'));
            rest = after;
            continue;
        } else if letter == '"' || letter == '\'' {
            quote = Some(letter);
        }
        let (kept, after) = rest.split_at(skip);
        out.push_str(kept);
        rest = after;
    }
    out
}
