//! Import of advice that a repository already contains, as candidates for entries.
//!
//! Files for agents and people contain lists of advice, and lint configurations contain bans. Every
//! candidate is pending until a person approves it.

mod lint_bans;

use super::{EntryKind, EntrySeverity};

/// Advice found in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportCandidate {
    /// Kind of the proposed entry.
    pub kind: EntryKind,
    /// Text of the proposed entry.
    pub text: String,
    /// Globs of the files it applies to.
    pub globs: Vec<String>,
    /// Regular expression for code that it applies to.
    pub pattern: Option<String>,
    /// Severity of ignoring it.
    pub severity: EntrySeverity,
    /// Line number in the file, from 1.
    pub line: usize,
}

/// Returns true if advice can be imported from a file, judged by its path from the root of the
/// repository.
pub fn is_importable(path: &str) -> bool {
    parser_for(path).is_some()
}

/// Returns the advice in a file. A file in a folder applies to that folder.
pub fn candidates(path: &str, text: &str) -> Vec<ImportCandidate> {
    let mut found = parser_for(path).map(|read| read(text)).unwrap_or_default();
    let folder = scope_folder(path);
    for proposal in found.iter_mut().filter(|_| !folder.is_empty()) {
        for glob in &mut proposal.globs {
            *glob = format!("{folder}{glob}");
        }
        if proposal.globs.is_empty() {
            proposal.globs.push(format!("{folder}**"));
        }
    }
    found
}

/// Returns the folder that a file applies to, with a trailing slash; empty for the whole
/// repository.
fn scope_folder(path: &str) -> &str {
    let name = path.rfind('/').map_or(0, |at| at + 1);
    let hidden = [".cursor/", ".github/"].into_iter().filter_map(|it| path.find(it));
    path.get(..hidden.min().unwrap_or(name).min(name)).unwrap_or_default()
}

type FileParser = fn(&str) -> Vec<ImportCandidate>;

fn parser_for(path: &str) -> Option<FileParser> {
    let name = path.rsplit('/').next().unwrap_or(path);
    match name {
        "AGENTS.md"
        | "CLAUDE.md"
        | "GEMINI.md"
        | "CONTRIBUTING.md"
        | "copilot-instructions.md"
        | ".cursorrules" => Some(parse_advice),
        "clippy.toml" | ".clippy.toml" => Some(lint_bans::parse_clippy),
        "pyproject.toml" | "ruff.toml" | ".ruff.toml" => Some(lint_bans::parse_ruff),
        ".eslintrc.json" | ".eslintrc" | ".eslintrc.yaml" | ".eslintrc.yml" => {
            Some(lint_bans::parse_eslint)
        }
        _ if path.contains(".cursor/rules/") || name.ends_with(".instructions.md") => {
            Some(parse_scoped_advice)
        }
        _ => None,
    }
}

/// Returns list items, and sentences that require or forbid something.
fn parse_advice(text: &str) -> Vec<ImportCandidate> {
    let mut found: Vec<ImportCandidate> = Vec::new();
    for MarkdownBlock { heading, text, line, is_item } in parse_blocks(&strip_comments(text)) {
        if is_item {
            found.push(convention_candidate(&text, &heading, line));
        } else {
            let sentences = text.split_inclusive(". ").map(str::trim);
            let commands = sentences.filter(|sentence| is_imperative(sentence));
            found.extend(commands.map(|sentence| convention_candidate(sentence, &heading, line)));
        }
    }
    // Shorter texts, such as a link or the name of a command, are meaningless on their own.
    found.retain(|it| it.text.split_whitespace().count() >= 4);
    found
}

/// List item or paragraph.
struct MarkdownBlock {
    heading: String,
    text: String,
    line: usize,
    is_item: bool,
}

/// Splits a text into list items and paragraphs, without code blocks.
fn parse_blocks(text: &str) -> Vec<MarkdownBlock> {
    let mut all: Vec<MarkdownBlock> = Vec::new();
    let (mut heading, mut fence, mut open) = (String::new(), None, false);
    for (number, line) in text.lines().enumerate() {
        let plain = line.trim();
        let mark = ["```", "~~~"].into_iter().find(|mark| plain.starts_with(mark));
        if fence.is_some() || mark.is_some() || plain.is_empty() {
            fence = if fence.is_none() { mark } else { fence.filter(|end| mark != Some(*end)) };
            open = false;
        } else if let Some(title) = plain.strip_prefix('#') {
            title.trim_matches(['#', ' ']).clone_into(&mut heading);
            open = false;
        } else if let Some(last) =
            all.last_mut().filter(|_| open && strip_list_marker(plain).is_none())
        {
            last.text.push(' ');
            last.text.push_str(plain);
        } else {
            let (text, is_item) =
                strip_list_marker(plain).map_or((plain, false), |item| (item, true));
            let (heading, text) = (heading.clone(), text.to_owned());
            all.push(MarkdownBlock { heading, text, line: number + 1, is_item });
            open = true;
        }
    }
    all
}

/// Removes comments, which are invisible when the file is rendered, so they are not advice. Line
/// numbers stay the same.
fn strip_comments(text: &str) -> String {
    let (mut seen, mut rest) = (String::new(), text);
    while let Some((before, hidden)) = rest.split_once("<!--") {
        seen.push_str(before);
        let (comment, after) = hidden.split_once("-->").unwrap_or((hidden, ""));
        seen.extend(comment.chars().filter(|letter| *letter == '\n'));
        rest = after;
    }
    seen + rest
}

fn strip_list_marker(line: &str) -> Option<&str> {
    let rest = line.strip_prefix(['-', '*', '+']).or_else(|| {
        let digits = line.trim_start_matches(|letter: char| letter.is_ascii_digit());
        (digits.len() < line.len()).then(|| digits.strip_prefix(['.', ')'])).flatten()
    })?;
    let item = rest.strip_prefix(' ')?.trim();
    Some(item.strip_prefix("[ ] ").unwrap_or(item))
}

fn is_imperative(sentence: &str) -> bool {
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

fn convention_candidate(text: &str, heading: &str, line: usize) -> ImportCandidate {
    const FORBIDS: [&str; 5] = ["never ", "do not ", "don't ", "must not ", "mustn't "];
    let text = if heading.is_empty() { text.to_owned() } else { format!("{heading}: {text}") };
    let small = text.to_lowercase();
    let forbids = FORBIDS.iter().any(|word| small.contains(word));
    let severity = if forbids { EntrySeverity::High } else { EntrySeverity::Medium };
    ImportCandidate {
        kind: EntryKind::Convention,
        text,
        globs: Vec::new(),
        pattern: None,
        severity,
        line,
    }
}

/// Parses Cursor rules and Copilot instructions: advice with its globs in the front matter.
fn parse_scoped_advice(text: &str) -> Vec<ImportCandidate> {
    let mut lines = text.lines().enumerate();
    let headed = lines.next().is_some_and(|(_, line)| line.trim_end() == "---");
    let Some((end, _)) = lines.find(|(_, line)| headed && line.trim_end() == "---") else {
        return parse_advice(text);
    };
    let globs = parse_globs(text.lines().take(end));
    let body: Vec<&str> = text.lines().skip(end + 1).collect();
    let mut found = parse_advice(&body.join("\n"));
    for proposal in &mut found {
        proposal.globs.clone_from(&globs);
        proposal.line += end + 1;
    }
    found
}

/// Parses the globs of a front matter. It is not valid YAML, because `*.ts` is not quoted.
fn parse_globs<'a>(head: impl Iterator<Item = &'a str>) -> Vec<String> {
    let (mut globs, mut in_list) = (Vec::new(), false);
    for line in head {
        let line = line.trim();
        let value = line.strip_prefix("globs:").or_else(|| line.strip_prefix("applyTo:"));
        let item = line.strip_prefix("- ").filter(|_| in_list);
        in_list = value.is_some_and(|value| value.trim().is_empty()) || item.is_some();
        for glob in value.or(item).into_iter().flat_map(split_globs) {
            let glob = glob.trim_matches([' ', '"', '\'', '[', ']']);
            if !glob.is_empty() {
                // There, a name without a folder matches in any folder.
                let anywhere = if glob.contains('/') { "" } else { "**/" };
                globs.push(format!("{anywhere}{glob}"));
            }
        }
    }
    globs
}

/// Splits at commas outside braces.
fn split_globs(text: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    text.split(|letter: char| {
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    })
    .collect()
}
