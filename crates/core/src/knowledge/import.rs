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
    let mut candidates = parser_for(path).map(|parse| parse(text)).unwrap_or_default();
    let folder = scope_folder(path);
    for candidate in candidates.iter_mut().filter(|_| !folder.is_empty()) {
        for glob in &mut candidate.globs {
            *glob = format!("{folder}{glob}");
        }
        if candidate.globs.is_empty() {
            candidate.globs.push(format!("{folder}**"));
        }
    }
    candidates
}

/// Returns the folder that a file applies to, with a trailing slash; empty for the whole
/// repository.
fn scope_folder(path: &str) -> &str {
    let name_start = path.rfind('/').map_or(0, |at| at + 1);
    let config_folders =
        [".cursor/", ".github/"].into_iter().filter_map(|marker| path.find(marker));
    path.get(..config_folders.min().unwrap_or(name_start).min(name_start)).unwrap_or_default()
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
    let mut candidates: Vec<ImportCandidate> = Vec::new();
    for MarkdownBlock { heading, text, line, is_item } in parse_blocks(&strip_comments(text)) {
        if is_item {
            candidates.push(convention_candidate(&text, &heading, line));
        } else {
            let sentences = text.split_inclusive(". ").map(str::trim);
            let commands = sentences.filter(|sentence| is_imperative(sentence));
            candidates
                .extend(commands.map(|sentence| convention_candidate(sentence, &heading, line)));
        }
    }
    // Shorter texts, such as a link or the name of a command, are meaningless on their own.
    candidates.retain(|candidate| candidate.text.split_whitespace().count() >= 4);
    candidates
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
    let mut blocks: Vec<MarkdownBlock> = Vec::new();
    let (mut heading, mut fence, mut open) = (String::new(), None, false);
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim();
        let mark = ["```", "~~~"].into_iter().find(|mark| trimmed.starts_with(mark));
        if fence.is_some() || mark.is_some() || trimmed.is_empty() {
            fence = if fence.is_none() { mark } else { fence.filter(|end| mark != Some(*end)) };
            open = false;
        } else if let Some(title) = trimmed.strip_prefix('#') {
            title.trim_matches(['#', ' ']).clone_into(&mut heading);
            open = false;
        } else if let Some(block) =
            blocks.last_mut().filter(|_| open && strip_list_marker(trimmed).is_none())
        {
            block.text.push(' ');
            block.text.push_str(trimmed);
        } else {
            let (text, is_item) =
                strip_list_marker(trimmed).map_or((trimmed, false), |item| (item, true));
            let (heading, text) = (heading.clone(), text.to_owned());
            blocks.push(MarkdownBlock { heading, text, line: number + 1, is_item });
            open = true;
        }
    }
    blocks
}

/// Removes comments, which are invisible when the file is rendered, so they are not advice. Line
/// numbers stay the same.
fn strip_comments(text: &str) -> String {
    let (mut visible, mut rest) = (String::new(), text);
    while let Some((before, hidden)) = rest.split_once("<!--") {
        visible.push_str(before);
        let (comment, after) = hidden.split_once("-->").unwrap_or((hidden, ""));
        visible.extend(comment.chars().filter(|letter| *letter == '\n'));
        rest = after;
    }
    visible + rest
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
    const OPENINGS: [&str; 12] = [
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
    let lowercase = sentence.to_lowercase();
    OPENINGS.iter().any(|opening| {
        lowercase
            .strip_prefix(opening)
            .is_some_and(|rest| rest.starts_with(|c: char| !c.is_alphanumeric()))
    })
}

fn convention_candidate(text: &str, heading: &str, line: usize) -> ImportCandidate {
    const FORBIDS: [&str; 5] = ["never ", "do not ", "don't ", "must not ", "mustn't "];
    let text = if heading.is_empty() { text.to_owned() } else { format!("{heading}: {text}") };
    let lowercase = text.to_lowercase();
    let forbids = FORBIDS.iter().any(|word| lowercase.contains(word));
    let severity = if forbids { EntrySeverity::High } else { EntrySeverity::Medium };
    // A prohibition without a condition would match every plan.
    let globs = if forbids { quoted_paths(&text) } else { Vec::new() };
    let kind = if globs.is_empty() { EntryKind::Convention } else { EntryKind::Prohibition };
    ImportCandidate { kind, text, globs, pattern: None, severity, line }
}

/// Returns the paths in backticks, as globs. Commands and names of items are no paths.
fn quoted_paths(text: &str) -> Vec<String> {
    let is_path = |quoted: &&str| {
        let allowed = |letter: char| letter.is_alphanumeric() || "/._-*".contains(letter);
        let is_relative = !quoted.starts_with(['/', '.', '-']) && !quoted.contains("..");
        (quoted.contains('/') || quoted.starts_with("*."))
            && is_relative
            && quoted.chars().all(allowed)
    };
    let quoted = text.split('`').skip(1).step_by(2).filter(is_path);
    let globs = quoted.map(|path| match path.strip_suffix('/') {
        Some(_) => format!("{path}**"),
        None if path.contains('/') => path.to_owned(),
        None => format!("**/{path}"),
    });
    globs.collect()
}

/// Parses Cursor rules and Copilot instructions: advice with its globs in the front matter.
fn parse_scoped_advice(text: &str) -> Vec<ImportCandidate> {
    let mut lines = text.lines().enumerate();
    let has_front_matter = lines.next().is_some_and(|(_, line)| line.trim_end() == "---");
    let Some((end, _)) = lines.find(|(_, line)| has_front_matter && line.trim_end() == "---")
    else {
        return parse_advice(text);
    };
    let globs = parse_globs(text.lines().take(end));
    let body: Vec<&str> = text.lines().skip(end + 1).collect();
    let mut candidates = parse_advice(&body.join("\n"));
    for candidate in &mut candidates {
        // A prohibition keeps the paths that it names.
        if candidate.kind != EntryKind::Prohibition {
            candidate.globs.clone_from(&globs);
        }
        candidate.line += end + 1;
    }
    candidates
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
