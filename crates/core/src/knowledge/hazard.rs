//! What should make a person look twice before they approve an entry.
//!
//! Lessons are written by models from what tasks have said, and what a task has said may have been
//! written by anybody. An approved entry goes into prompts and stops plans, so a hidden instruction, a
//! secret or a rule that forbids everything is told before that.

use std::fmt;
use std::sync::LazyLock;

use globset::{GlobBuilder, GlobMatcher};
use regex::Regex;
use serde::{Deserialize, Serialize};
use strum::IntoEnumIterator as _;

use super::{Entry, Kind, words};
use crate::ids::{Name, Reference};
use crate::review::patterns;
use crate::task::TaskType;

/// The longest text that people read before they approve it.
const LONG: usize = 1_000;

/// Paths that have nothing in common: globs that reach all of them are about everything.
const ANYWHERE: [&str; 4] =
    ["a", "src/main.rs", "docs/deep/down/page.md", ".github/workflows/ci.yml"];

/// Lines that have nothing in common: a pattern that finds something in each is about everything.
const ANYTHING: [&str; 3] = ["let x = 1;", "# A heading for people", "    return None"];

/// Words that are in almost every plan, besides those that are in every text.
const IN_EVERY_PLAN: [&str; 12] = [
    "add",
    "change",
    "code",
    "file",
    "files",
    "fix",
    "implement",
    "test",
    "tests",
    "task",
    "update",
    "write",
];

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
    /// A glob, a pattern or a word of it is none.
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
            Self::Secret { form } => write!(
                f,
                "there is something in it that looks like {form}: take it out, and change it where \
                 it is used"
            ),
            Self::Long => {
                write!(f, "it has more than {LONG} characters: say it in a few sentences")
            }
            Self::Undecidable { condition } => {
                write!(
                    f,
                    "`{condition}` is not a glob, a pattern or a word, so nobody can decide it: \
                     mend it"
                )
            }
        }
    }
}

/// What of an entry should be looked at twice. An entry with none may be approved just so.
pub fn hazards(entry: &Entry) -> Vec<Hazard> {
    let mut all = Vec::new();
    let no_globs = entry.globs.iter().filter(|glob| compiled(glob).is_none());
    let no_patterns = entry.pattern.iter().filter(|pattern| Regex::new(pattern).is_err());
    let no_words = entry.keywords.iter().filter(|keyword| words(keyword).is_empty());
    let undecidable = no_globs.chain(no_patterns).chain(no_words);
    all.extend(undecidable.map(|it| Hazard::Undecidable { condition: it.clone() }));
    if entry.kind == Kind::Prohibition && is_about_everything(entry) {
        all.push(Hazard::ForbidsEverything);
    }
    // Everything that is shown to agents or people, whichever field somebody hid it in.
    let said = || {
        let evidence = entry.evidence.iter().map(Reference::as_str);
        let owner = entry.owner.iter().map(Name::as_str);
        let fields = entry.keywords.iter().chain(&entry.globs).chain(&entry.pattern);
        let fields = fields.map(String::as_str).chain(evidence).chain(owner);
        std::iter::once(entry.text.as_str()).chain(fields)
    };
    all.extend(said().find_map(instruction).map(|words| Hazard::Instruction { words }));
    if said().any(has_hidden) {
        all.push(Hazard::Hidden);
    }
    let lines: Vec<(u32, &str)> = said().flat_map(str::lines).map(|line| (1, line)).collect();
    if let Some(form) = patterns::secrets("", &lines).first().and_then(|it| secret(&it.message)) {
        all.push(Hazard::Secret { form });
    }
    if entry.text.chars().count() > LONG {
        all.push(Hazard::Long);
    }
    all
}

/// What kind of secret the words of an issue speak of.
fn secret(message: &str) -> Option<String> {
    let form = message.split(':').next()?;
    Some(form.trim_start_matches("this looks like ").to_owned())
}

fn compiled(glob: &str) -> Option<GlobMatcher> {
    let glob = GlobBuilder::new(glob).literal_separator(true).build().ok()?;
    Some(glob.compile_matcher())
}

/// Whether no condition of an entry narrows it. Of each kind of condition one that holds is enough, so
/// together they are as wide as the widest.
fn is_about_everything(entry: &Entry) -> bool {
    let globs: Vec<_> = entry.globs.iter().filter_map(|glob| compiled(glob)).collect();
    let reached = |path: &&str| globs.iter().any(|glob| glob.is_match(path));
    let narrow_paths = !entry.globs.is_empty() && !ANYWHERE.iter().all(reached);
    let pattern = entry.pattern.as_deref().and_then(|pattern| Regex::new(pattern).ok());
    let narrow_pattern =
        pattern.is_some_and(|pattern| !ANYTHING.iter().all(|line| pattern.is_match(line)));
    let narrow_words =
        !entry.keywords.is_empty() && !entry.keywords.iter().any(|word| is_common(word));
    let narrow_types =
        !entry.task_types.is_empty() && !TaskType::iter().all(|it| entry.task_types.contains(&it));
    !(narrow_paths || narrow_pattern || narrow_words || narrow_types)
}

/// Whether words are in almost every plan.
fn is_common(keyword: &str) -> bool {
    let common = |word: &String| {
        IN_EVERY_PLAN.contains(&word.as_str())
            || include_str!("common-words.txt").split_whitespace().any(|it| it == word)
    };
    words(keyword).iter().all(common)
}

/// The words that speak to whoever reads them, if there are any.
///
/// This is a net and no wall: it makes a person look. What keeps an agent to its task is that it can
/// only do what its permissions allow.
fn instruction(text: &str) -> Option<String> {
    static SAID: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(
            r"(?imx)
            \b(ignore|disregard|forget|override|bypass)\s+
                ((all|any|of|the|your|these|those|every|my|our)\s+)*
                ((previous|prior|above|earlier|other|preceding)\b
                | (instructions?|rules?|guardrails?|prompts?|permissions?|restrictions?)\b)
            | \byou\s+(are|must|should|will)\s+now\b
            | \bfrom\s+now\s+on,?\s+you\b
            | \bas\s+an?\s+(ai|language\s+model|assistant|agent),?\s+you\b
            | \b(system|developer)\s+(prompt|message|override)\b
            | \bnew\s+instructions?\s*:
            | \b(reveal|print|send|post|upload|exfiltrate|leak|email)\b[^.\n]{0,40}
                \b(secret|token|api\s+key|password|credential|environment\s+variable)s?\b
                [^.\n]{0,40}\b(to|at|into|with)\b
            | \b(curl|wget)\s+[^\n]{0,60}https?://
            | \b(curl|wget)\b[^\n]{0,80}\|\s*(bash|zsh|sh)\b
            | \b(approve|accept|merge)\s+(every|all|any)(thing)?\s+
                (plan|change|task|lesson|entry|entries|request|proposal)s?\b
            | \b(do\s+not|don't|never)\s+(tell|inform|alert|ask|mention\s+(this|it)\s+to)\s+
                (the\s+|any\s+)?(user|person|people|human|reviewer|approver|operator|anybody|anyone)
            | </?\s*(system|assistant|user|instructions?|tool_(use|result))\s*>
            | ^\s*(system|assistant|human)\s*:
            | <\|(im_start|im_end|system|endoftext)\|>
            | <!--
            ",
        )
        .ok()
    });
    let found = SAID.as_ref()?.find(text)?;
    let words: String = found.as_str().chars().filter(|it| !is_hidden(*it)).take(60).collect();
    Some(words.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn has_hidden(text: &str) -> bool {
    // A line end of Windows is no secret sign; one that goes back to the start of the line is.
    text.replace("\r\n", "\n").contains(is_hidden)
}

/// Characters that change what is read without being seen.
fn is_hidden(letter: char) -> bool {
    matches!(letter,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{e0000}'..='\u{e01ef}')
        || (letter.is_control() && !matches!(letter, '\n' | '\t'))
}
