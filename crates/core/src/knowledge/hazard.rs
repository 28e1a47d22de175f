//! What should make a person look twice before they approve an entry.
//!
//! Lessons are written by models from what tasks have said, and what a task has said may have been
//! written by anybody. An approved entry goes into prompts and stops plans, so a hidden instruction, a
//! secret or a rule that forbids everything is told before that.

use std::fmt;
use std::sync::LazyLock;

use globset::Glob;
use regex::Regex;
use serde::{Deserialize, Serialize};

use super::{Entry, Kind};
use crate::review::patterns;

/// The longest text that people read before they approve it.
const LONG: usize = 1_000;

/// Paths that have nothing in common: a glob that matches all of them is about everything.
const ANYWHERE: [&str; 4] =
    ["a", "src/main.rs", "docs/deep/down/page.md", ".github/workflows/ci.yml"];

/// Lines that have nothing in common: a pattern that matches all of them is about everything.
const ANYTHING: [&str; 4] = ["let x = 1;", "# A heading", "    return None", "}"];

/// Something to look at twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hazard {
    /// It would stop every plan.
    ForbidsEverything,
    /// It speaks to the agent that reads it, and not of the work.
    Instruction {
        /// The words.
        words: String,
    },
    /// It has characters in it that nobody sees.
    Hidden,
    /// It has something in it that looks like a secret.
    Secret {
        /// What of.
        form: String,
    },
    /// It is so long that nobody reads it to the end.
    Long,
    /// A glob or a pattern of it is none.
    Undecidable {
        /// Which.
        condition: String,
    },
}

impl fmt::Display for Hazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ForbidsEverything => write!(
                f,
                "it would stop every plan: narrow it with paths, task types, words or a pattern"
            ),
            Self::Instruction { words } => {
                write!(
                    f,
                    "it tells an agent what to do (`{words}`): nothing of the work needs that"
                )
            }
            Self::Hidden => write!(f, "it has characters in it that nobody sees: write it anew"),
            Self::Secret { form } => write!(f, "there is something in it that looks like {form}"),
            Self::Long => {
                write!(f, "it has more than {LONG} characters: say it in a few sentences")
            }
            Self::Undecidable { condition } => {
                write!(f, "`{condition}` is not a glob or a pattern, so it would match everything")
            }
        }
    }
}

/// What of an entry should be looked at twice.
pub fn hazards(entry: &Entry) -> Vec<Hazard> {
    let mut all = Vec::new();
    let undecidable = entry
        .globs
        .iter()
        .filter(|glob| Glob::new(glob).is_err())
        .chain(entry.pattern.iter().filter(|pattern| Regex::new(pattern).is_err()));
    all.extend(undecidable.map(|it| Hazard::Undecidable { condition: it.clone() }));
    if entry.kind == Kind::Prohibition && is_about_everything(entry) {
        all.push(Hazard::ForbidsEverything);
    }
    let words = std::iter::once(&entry.text).chain(&entry.keywords);
    for text in words.clone() {
        if let Some(words) = instruction(text) {
            all.push(Hazard::Instruction { words });
        }
    }
    if words.clone().any(|text| text.contains(is_hidden)) {
        all.push(Hazard::Hidden);
    }
    let lines: Vec<(u32, &str)> =
        words.clone().flat_map(|text| text.lines()).map(|line| (1, line)).collect();
    if let Some(secret) = patterns::secrets("", &lines).first() {
        let form = secret.message.split(':').next().unwrap_or_default();
        let form = form.trim_start_matches("this looks like ").to_owned();
        all.push(Hazard::Secret { form });
    }
    if entry.text.chars().count() > LONG {
        all.push(Hazard::Long);
    }
    all
}

/// Whether no condition of an entry narrows it.
fn is_about_everything(entry: &Entry) -> bool {
    let narrow_paths = !entry.globs.is_empty()
        && !entry.globs.iter().filter_map(|glob| Glob::new(glob).ok()).any(|glob| {
            let glob = glob.compile_matcher();
            ANYWHERE.iter().all(|path| glob.is_match(path))
        });
    let narrow_pattern = entry
        .pattern
        .as_deref()
        .and_then(|pattern| Regex::new(pattern).ok())
        .is_some_and(|pattern| !ANYTHING.iter().all(|line| pattern.is_match(line)));
    // A few words that are in almost every plan narrow nothing.
    let common = ["a", "add", "change", "code", "file", "fix", "test", "the", "update"];
    let narrow_words = !entry.keywords.is_empty()
        && !entry.keywords.iter().any(|word| common.contains(&word.trim().to_lowercase().as_str()));
    !(narrow_paths || narrow_pattern || narrow_words || !entry.task_types.is_empty())
}

fn instruction(text: &str) -> Option<String> {
    static SAID: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(
            r"(?ix)
            \b(ignore|disregard|forget)\s+(all\s+|any\s+|the\s+|your\s+)*(previous|prior|above|earlier|other)\b
            | \byou\s+(are|must|should)\s+now\b
            | \b(system|developer)\s+(prompt|message)\b
            | \b(reveal|print|send|post|upload|exfiltrate)\b[^.\n]{0,40}\b(secret|token|key|password|credential|environment)s?\b
            | \b(curl|wget)\s+[^\s]*https?://
            | \b(approve|accept)\s+(every|all|any)\b
            | <!--
            ",
        )
        .ok()
    });
    let found = SAID.as_ref()?.find(text)?;
    Some(found.as_str().chars().take(60).collect())
}

/// Characters that change what is read without being seen.
fn is_hidden(letter: char) -> bool {
    matches!(letter,
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
        | '\u{e0000}'..='\u{e007f}')
        || (letter.is_control() && !matches!(letter, '\n' | '\t' | '\r'))
}
