//! What a repository already says about how things are done in it, as proposals.
//!
//! Files for agents and for people are lists of advice; lint configurations have bans of their own.
//! What is found here is only a proposal: it is pending until a person approves it.

use std::sync::LazyLock;

use regex::Regex;

use super::{Kind, Severity};

/// Something that a file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// What it should become.
    pub kind: Kind,
    /// What it says.
    pub text: String,
    /// The paths it is about.
    pub globs: Vec<String>,
    /// The code it is about, as a regular expression.
    pub pattern: Option<String>,
    /// How bad it is to ignore it.
    pub severity: Severity,
    /// The line of the file, counted from 1.
    pub line: usize,
}

/// Whether a file says something that can be proposed, by its path from the root.
pub fn is_source(path: &str) -> bool {
    reader(path).is_some()
}

/// What a file says.
pub fn proposals(path: &str, text: &str) -> Vec<Proposal> {
    reader(path).map(|read| read(text)).unwrap_or_default()
}

type Reader = fn(&str) -> Vec<Proposal>;

fn reader(path: &str) -> Option<Reader> {
    let name = path.rsplit('/').next().unwrap_or(path);
    match name {
        "AGENTS.md"
        | "CLAUDE.md"
        | "GEMINI.md"
        | "CONTRIBUTING.md"
        | "copilot-instructions.md"
        | ".cursorrules" => Some(advice),
        "clippy.toml" | ".clippy.toml" => Some(clippy),
        "pyproject.toml" | "ruff.toml" => Some(ruff),
        ".eslintrc.json" | ".eslintrc" => Some(eslint),
        _ if path.contains(".cursor/rules/") => Some(cursor),
        _ => None,
    }
}

/// The items of lists, and sentences that tell somebody to do or not to do something.
fn advice(text: &str) -> Vec<Proposal> {
    let mut found: Vec<Proposal> = Vec::new();
    let (mut heading, mut fenced, mut open) = (String::new(), false, false);
    for (number, line) in text.lines().enumerate() {
        let plain = line.trim();
        if plain.starts_with("```") || plain.starts_with("~~~") {
            fenced = !fenced;
            open = false;
        }
        if fenced || plain.is_empty() {
            open = false;
            continue;
        }
        if let Some(title) = plain.strip_prefix('#') {
            heading = title.trim_matches(['#', ' ']).to_owned();
            open = false;
        } else if let Some(item) = item(plain) {
            let text = item.to_owned();
            found.push(convention(text, &heading, number + 1));
            open = true;
        } else if open && line.starts_with([' ', '\t']) {
            // An item goes on in the next line, a little to the right.
            if let Some(last) = found.last_mut() {
                last.text.push(' ');
                last.text.push_str(plain);
            }
        } else {
            open = false;
            let sentences = plain.split_inclusive(". ").map(str::trim);
            for sentence in sentences.filter(|sentence| is_command(sentence)) {
                found.push(convention(sentence.to_owned(), &heading, number + 1));
            }
        }
    }
    // What is too short says nothing by itself, such as a link or the name of a command.
    found.retain(|it| it.text.split_whitespace().count() >= 4);
    found
}

fn item(line: &str) -> Option<&str> {
    let rest = line.strip_prefix(['-', '*', '+']).or_else(|| {
        let digits = line.trim_start_matches(|letter: char| letter.is_ascii_digit());
        (digits.len() < line.len()).then(|| digits.strip_prefix(['.', ')'])).flatten()
    })?;
    let item = rest.strip_prefix(' ')?.trim();
    Some(item.strip_prefix("[ ] ").unwrap_or(item))
}

fn is_command(sentence: &str) -> bool {
    const FIRST: [&str; 12] = [
        "always",
        "never",
        "use",
        "prefer",
        "avoid",
        "do not",
        "don't",
        "must",
        "keep",
        "run",
        "make sure",
        "ensure",
    ];
    let small = sentence.to_lowercase();
    FIRST.iter().any(|first| {
        small
            .strip_prefix(first)
            .is_some_and(|rest| rest.starts_with(|c: char| !c.is_alphanumeric()))
    })
}

fn convention(text: String, heading: &str, line: usize) -> Proposal {
    let text = if heading.is_empty() { text } else { format!("{heading}: {text}") };
    let forbids = ["never ", "do not ", "don't ", "must not "];
    let small = text.to_lowercase();
    let severity = if forbids.iter().any(|word| small.contains(word)) {
        Severity::High
    } else {
        Severity::Medium
    };
    Proposal { kind: Kind::Convention, text, globs: Vec::new(), pattern: None, severity, line }
}

/// Rules of Cursor: advice, with the paths it is about at the head of the file.
fn cursor(text: &str) -> Vec<Proposal> {
    let Some((head, body)) = text.strip_prefix("---\n").and_then(|rest| rest.split_once("\n---"))
    else {
        return advice(text);
    };
    let globs: Vec<String> = head
        .lines()
        .filter_map(|line| line.trim().strip_prefix("globs:"))
        .flat_map(|globs| globs.split(','))
        .map(|glob| glob.trim_matches([' ', '"', '\'', '[', ']']).to_owned())
        .filter(|glob| !glob.is_empty())
        .collect();
    let before = text.len() - body.len();
    let skipped = text.get(..before).map_or(0, |head| head.lines().count().saturating_sub(1));
    let mut found = advice(body);
    for proposal in &mut found {
        proposal.globs.clone_from(&globs);
        proposal.line += skipped;
    }
    found
}

/// What clippy is told to refuse.
fn clippy(text: &str) -> Vec<Proposal> {
    static BAN: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r#"path\s*=\s*"([^"]+)"(?:[^}\n]*?reason\s*=\s*"([^"]+)")?"#).ok()
    });
    bans(&BAN, text, |name| name.rsplit("::").next().unwrap_or(name).to_owned())
}

/// What ruff is told to refuse.
fn ruff(text: &str) -> Vec<Proposal> {
    static BAN: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r#"(?m)^\s*"([\w.]+)"\.msg\s*=\s*"([^"]+)""#).ok());
    bans(&BAN, text, ToOwned::to_owned)
}

/// What ESLint is told to refuse.
fn eslint(text: &str) -> Vec<Proposal> {
    static BAN: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r#""name"\s*:\s*"([^"]+)"(?:\s*,\s*"message"\s*:\s*"([^"]+)")?"#).ok()
    });
    if !text.contains("no-restricted") {
        return Vec::new();
    }
    bans(&BAN, text, ToOwned::to_owned)
}

fn bans(ban: &Option<Regex>, text: &str, in_code: impl Fn(&str) -> String) -> Vec<Proposal> {
    let Some(ban) = ban else { return Vec::new() };
    ban.captures_iter(text)
        .filter_map(|found| {
            let (at, name) = (found.get(0)?.start(), found.get(1)?.as_str());
            let why = found.get(2).map(|why| format!(": {}", why.as_str())).unwrap_or_default();
            Some(Proposal {
                kind: Kind::Convention,
                text: format!("`{name}` is not used here{why}"),
                globs: Vec::new(),
                pattern: Some(format!(r"\b{}\b", regex::escape(&in_code(name)))),
                severity: Severity::High,
                line: text.get(..at).map_or(1, |before| before.matches('\n').count() + 1),
            })
        })
        .collect()
}
