//! Warnings about the content of an entry, shown before a person approves it.
//!
//! Models write lessons from task output, and anyone may have written that output. An approved
//! entry goes into prompts and blocks plans. So hidden instructions, secrets and prohibitions of
//! everything are reported first.

use std::fmt;
use std::sync::LazyLock;

use globset::{GlobBuilder, GlobMatcher};
use regex::Regex;
use serde::{Deserialize, Serialize};
use strum::IntoEnumIterator as _;

use super::{EntryKind, KnowledgeEntry, split_words};
use crate::format::is_hidden_character;
use crate::ids::{Name, Reference};
use crate::review::patterns;
use crate::task::TaskType;

/// Longest text without a warning, in characters.
const MAX_TEXT_CHARS: usize = 1_000;

/// Unrelated paths: globs that match all of them match everything.
const SAMPLE_PATHS: [&str; 4] =
    ["a", "src/main.rs", "docs/deep/down/page.md", ".github/workflows/ci.yml"];

/// Unrelated lines: a pattern that matches each of them matches everything.
const SAMPLE_LINES: [&str; 3] = ["let x = 1;", "# A heading for people", "    return None"];

/// Words that occur in almost every plan, besides common English words.
const COMMON_PLAN_WORDS: [&str; 12] = [
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

/// Warning about the content of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentWarning {
    /// Would block every plan.
    ForbidsEverything,
    /// Addresses the agent that reads it.
    Instruction {
        /// Suspicious words.
        words: String,
    },
    /// Contains invisible characters.
    #[serde(rename = "hidden")]
    HiddenCharacters,
    /// Contains a possible secret.
    Secret {
        /// Kind of the secret.
        form: String,
    },
    /// Too long to be read carefully.
    #[serde(rename = "long")]
    TooLong,
    /// Glob, pattern or keyword is invalid.
    Undecidable {
        /// Invalid condition.
        condition: String,
    },
}

impl fmt::Display for ContentWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ForbidsEverything => write!(
                f,
                "would block every plan: restrict it with paths, task types, keywords or a pattern"
            ),
            Self::Instruction { words } => {
                write!(f, "contains instructions to an agent (`{words}`): remove them")
            }
            Self::HiddenCharacters => write!(f, "contains invisible characters: retype the text"),
            Self::Secret { form } => write!(
                f,
                "contains what looks like {form}: remove it, and rotate it wherever it \
                 is used"
            ),
            Self::TooLong => {
                write!(f, "longer than {MAX_TEXT_CHARS} characters: shorten it to a few sentences")
            }
            Self::Undecidable { condition } => {
                write!(
                    f,
                    "`{condition}` is not a valid glob, pattern or keyword, so it cannot be checked: \
                     fix it"
                )
            }
        }
    }
}

/// Returns the warnings about an entry. Without any, it can be approved as it is.
pub fn content_warnings(entry: &KnowledgeEntry) -> Vec<ContentWarning> {
    let mut warnings = Vec::new();
    let no_globs = entry.globs.iter().filter(|glob| compile_glob(glob).is_none());
    let no_patterns = entry.pattern.iter().filter(|pattern| Regex::new(pattern).is_err());
    let no_words = entry.keywords.iter().filter(|keyword| split_words(keyword).is_empty());
    let undecidable = no_globs.chain(no_patterns).chain(no_words);
    warnings.extend(
        undecidable.map(|condition| ContentWarning::Undecidable { condition: condition.clone() }),
    );
    if entry.kind == EntryKind::Prohibition && matches_everything(entry) {
        warnings.push(ContentWarning::ForbidsEverything);
    }
    // Check every field that agents or people see.
    let texts = || {
        let evidence = entry.evidence.iter().map(Reference::as_str);
        let owner = entry.owner.iter().map(Name::as_str);
        let fields = entry.keywords.iter().chain(&entry.globs).chain(&entry.pattern);
        let fields = fields.map(String::as_str).chain(evidence).chain(owner);
        std::iter::once(entry.text.as_str()).chain(fields)
    };
    warnings.extend(
        texts().find_map(find_instruction).map(|words| ContentWarning::Instruction { words }),
    );
    if texts().any(has_hidden_characters) {
        warnings.push(ContentWarning::HiddenCharacters);
    }
    let lines: Vec<(u32, &str)> = texts().flat_map(str::lines).map(|line| (1, line)).collect();
    if let Some(form) =
        patterns::find_secrets("", &lines).first().and_then(|issue| secret_kind(&issue.message))
    {
        warnings.push(ContentWarning::Secret { form });
    }
    if entry.text.chars().count() > MAX_TEXT_CHARS {
        warnings.push(ContentWarning::TooLong);
    }
    warnings
}

/// Extracts the kind of secret from the message of an issue.
fn secret_kind(message: &str) -> Option<String> {
    let form = message.split(':').next()?;
    Some(form.trim_start_matches("this looks like ").to_owned())
}

fn compile_glob(glob: &str) -> Option<GlobMatcher> {
    let glob = GlobBuilder::new(glob).literal_separator(true).build().ok()?;
    Some(glob.compile_matcher())
}

/// Returns true if no condition restricts an entry. Within a kind one match is enough, so the
/// widest condition decides.
fn matches_everything(entry: &KnowledgeEntry) -> bool {
    let globs: Vec<_> = entry.globs.iter().filter_map(|glob| compile_glob(glob)).collect();
    let is_matched = |path: &&str| globs.iter().any(|glob| glob.is_match(path));
    let narrow_paths = !entry.globs.is_empty() && !SAMPLE_PATHS.iter().all(is_matched);
    let pattern = entry.pattern.as_deref().and_then(|pattern| Regex::new(pattern).ok());
    let narrow_pattern =
        pattern.is_some_and(|pattern| !SAMPLE_LINES.iter().all(|line| pattern.is_match(line)));
    let narrow_words =
        !entry.keywords.is_empty() && !entry.keywords.iter().any(|word| is_common_keyword(word));
    let narrow_types = !entry.task_types.is_empty()
        && !TaskType::iter().all(|task_type| entry.task_types.contains(&task_type));
    !(narrow_paths || narrow_pattern || narrow_words || narrow_types)
}

/// Returns true if the words of a keyword occur in almost every plan.
fn is_common_keyword(keyword: &str) -> bool {
    let is_common = |word: &String| {
        COMMON_PLAN_WORDS.contains(&word.as_str())
            || include_str!("common-words.txt")
                .split_whitespace()
                .any(|common_word| common_word == word)
    };
    split_words(keyword).iter().all(is_common)
}

/// Returns words that address the reader, if there are any.
///
/// This only alerts a person and is not a security boundary: permissions limit what an agent can
/// do.
fn find_instruction(text: &str) -> Option<String> {
    static INSTRUCTION: LazyLock<Option<Regex>> = LazyLock::new(|| {
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
    let instruction = INSTRUCTION.as_ref()?.find(text)?;
    let words: String = instruction
        .as_str()
        .chars()
        .filter(|letter| !is_hidden_character(*letter))
        .take(60)
        .collect();
    Some(words.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn has_hidden_characters(text: &str) -> bool {
    // A Windows line ending is harmless; a lone carriage return can hide text.
    text.replace("\r\n", "\n").contains(is_hidden_character)
}
