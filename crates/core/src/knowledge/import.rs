//! What a repository already says about how things are done in it, as proposals.
//!
//! Files for agents and for people are lists of advice; lint configurations have bans of their own.
//! What is found here is only a proposal: it is pending until a person approves it.

mod bans;

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

/// Whether a file says something that can be proposed, by its path from the root of the repository.
pub fn is_source(path: &str) -> bool {
    reader(path).is_some()
}

/// What a file says. One in a folder speaks of that folder.
pub fn proposals(path: &str, text: &str) -> Vec<Proposal> {
    let mut found = reader(path).map(|read| read(text)).unwrap_or_default();
    let folder = folder(path);
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

/// The folder that a file speaks of, with its slash; nothing where that is the whole repository.
fn folder(path: &str) -> &str {
    let name = path.rfind('/').map_or(0, |at| at + 1);
    let hidden = [".cursor/", ".github/"].into_iter().filter_map(|it| path.find(it));
    path.get(..hidden.min().unwrap_or(name).min(name)).unwrap_or_default()
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
        "clippy.toml" | ".clippy.toml" => Some(bans::clippy),
        "pyproject.toml" | "ruff.toml" | ".ruff.toml" => Some(bans::ruff),
        ".eslintrc.json" | ".eslintrc" | ".eslintrc.yaml" | ".eslintrc.yml" => Some(bans::eslint),
        _ if path.contains(".cursor/rules/") || name.ends_with(".instructions.md") => Some(scoped),
        _ => None,
    }
}

/// The items of lists, and sentences that tell somebody to do or not to do something.
fn advice(text: &str) -> Vec<Proposal> {
    let mut found: Vec<Proposal> = Vec::new();
    for Block { heading, text, line, is_item } in blocks(&without_comments(text)) {
        if is_item {
            found.push(convention(&text, &heading, line));
        } else {
            let sentences = text.split_inclusive(". ").map(str::trim);
            let commands = sentences.filter(|sentence| is_command(sentence));
            found.extend(commands.map(|sentence| convention(sentence, &heading, line)));
        }
    }
    // What is too short says nothing by itself, such as a link or the name of a command.
    found.retain(|it| it.text.split_whitespace().count() >= 4);
    found
}

/// An item of a list, or a paragraph.
struct Block {
    heading: String,
    text: String,
    line: usize,
    is_item: bool,
}

/// The items and paragraphs of a text, without its blocks of code.
fn blocks(text: &str) -> Vec<Block> {
    let mut all: Vec<Block> = Vec::new();
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
        } else if let Some(last) = all.last_mut().filter(|_| open && item(plain).is_none()) {
            last.text.push(' ');
            last.text.push_str(plain);
        } else {
            let (text, is_item) = item(plain).map_or((plain, false), |item| (item, true));
            let (heading, text) = (heading.clone(), text.to_owned());
            all.push(Block { heading, text, line: number + 1, is_item });
            open = true;
        }
    }
    all
}

/// A text without its comments, which nobody sees where it is shown: what is hidden is no advice. The
/// lines stay where they are.
fn without_comments(text: &str) -> String {
    let (mut seen, mut rest) = (String::new(), text);
    while let Some((before, hidden)) = rest.split_once("<!--") {
        seen.push_str(before);
        let (comment, after) = hidden.split_once("-->").unwrap_or((hidden, ""));
        seen.extend(comment.chars().filter(|letter| *letter == '\n'));
        rest = after;
    }
    seen + rest
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

fn convention(text: &str, heading: &str, line: usize) -> Proposal {
    const FORBIDS: [&str; 5] = ["never ", "do not ", "don't ", "must not ", "mustn't "];
    let text = if heading.is_empty() { text.to_owned() } else { format!("{heading}: {text}") };
    let small = text.to_lowercase();
    let forbids = FORBIDS.iter().any(|word| small.contains(word));
    let severity = if forbids { Severity::High } else { Severity::Medium };
    Proposal { kind: Kind::Convention, text, globs: Vec::new(), pattern: None, severity, line }
}

/// Rules of Cursor and instructions of Copilot: advice, with the paths it is about at the head of the
/// file.
fn scoped(text: &str) -> Vec<Proposal> {
    let mut lines = text.lines().enumerate();
    let headed = lines.next().is_some_and(|(_, line)| line.trim_end() == "---");
    let Some((end, _)) = lines.find(|(_, line)| headed && line.trim_end() == "---") else {
        return advice(text);
    };
    let globs = globs(text.lines().take(end));
    let body: Vec<&str> = text.lines().skip(end + 1).collect();
    let mut found = advice(&body.join("\n"));
    for proposal in &mut found {
        proposal.globs.clone_from(&globs);
        proposal.line += end + 1;
    }
    found
}

/// The globs of a head. It looks like YAML and is none: `*.ts` stands there without quotes.
fn globs<'a>(head: impl Iterator<Item = &'a str>) -> Vec<String> {
    let (mut globs, mut in_list) = (Vec::new(), false);
    for line in head {
        let line = line.trim();
        let value = line.strip_prefix("globs:").or_else(|| line.strip_prefix("applyTo:"));
        let item = line.strip_prefix("- ").filter(|_| in_list);
        in_list = value.is_some_and(|value| value.trim().is_empty()) || item.is_some();
        for glob in value.or(item).into_iter().flat_map(split_globs) {
            let glob = glob.trim_matches([' ', '"', '\'', '[', ']']);
            if !glob.is_empty() {
                // There a name without a folder means one in any folder.
                let anywhere = if glob.contains('/') { "" } else { "**/" };
                globs.push(format!("{anywhere}{glob}"));
            }
        }
    }
    globs
}

/// Cuts at the commas that are not within braces.
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
