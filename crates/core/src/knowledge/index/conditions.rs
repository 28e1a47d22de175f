//! Index of conditions. Each is stored once with the entries that have it, so a check does not
//! visit every entry.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use globset::{Glob, GlobBuilder, GlobMatcher};
use regex::Regex;

use super::plan_text::PlanText;
use crate::knowledge::negation::{Mentions, singulars};
use crate::knowledge::{MatchReason, split_words};
use crate::plan::FileChange;

/// Longest match that is shown, in characters.
const MAX_FOUND_CHARS: usize = 80;

/// Parses a glob in which `*` does not match across folders.
pub(in crate::knowledge) fn parse_glob(text: &str) -> Option<Glob> {
    GlobBuilder::new(text).literal_separator(true).build().ok()
}

/// Globs of entries, by their literal path prefix.
#[derive(Debug, Default)]
pub(super) struct GlobIndex {
    all: Vec<IndexedGlob>,
    by_text: BTreeMap<String, u32>,
    by_prefix: BTreeMap<String, Vec<u32>>,
    /// Entries with an invalid glob.
    invalid: Vec<u32>,
}

#[derive(Debug)]
pub(super) struct IndexedGlob {
    pub(super) text: String,
    glob: Option<Glob>,
    matcher: OnceLock<GlobMatcher>,
    /// Precision: share of its parts that are literal.
    pub(super) precision: f32,
    pub(super) entries: Vec<u32>,
}

impl GlobIndex {
    pub(super) fn add(&mut self, text: &str, entry: u32) {
        let number = match self.by_text.get(text) {
            Some(number) => *number,
            None => self.insert(text),
        };
        if let Some(glob) = self.all.get_mut(number as usize)
            && glob.entries.last() != Some(&entry)
        {
            glob.entries.push(entry);
        }
    }

    fn insert(&mut self, text: &str) -> u32 {
        let number = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        let glob = parse_glob(text);
        if glob.is_none() {
            self.invalid.push(number);
        } else {
            let prefix = text.split(['*', '?', '[', '{', '\\']).next().unwrap_or_default();
            self.by_prefix.entry(prefix.to_owned()).or_default().push(number);
        }
        self.all.push(IndexedGlob {
            text: text.to_owned(),
            glob,
            matcher: OnceLock::new(),
            precision: precision(text),
            entries: Vec::new(),
        });
        self.by_text.insert(text.to_owned(), number);
        number
    }

    /// Returns the globs that match some of the files, with these files. Invalid globs are
    /// included, without files.
    pub(super) fn matching<'a>(
        &'a self,
        files: &'a [FileChange],
    ) -> Vec<(&'a IndexedGlob, Vec<&'a FileChange>)> {
        let mut files_by_glob: BTreeMap<u32, Vec<&FileChange>> = BTreeMap::new();
        for file in files {
            let boundaries = file.path.char_indices().map(|(at, _)| at).chain([file.path.len()]);
            let prefixes = boundaries.filter_map(|end| file.path.get(..end));
            let candidates = prefixes.filter_map(|prefix| self.by_prefix.get(prefix)).flatten();
            for number in candidates {
                if self.all.get(*number as usize).is_some_and(|glob| glob.is_match(&file.path)) {
                    files_by_glob.entry(*number).or_default().push(file);
                }
            }
        }
        files_by_glob.extend(self.invalid.iter().map(|number| (*number, Vec::new())));
        files_by_glob
            .into_iter()
            .filter_map(|(number, files)| Some((self.all.get(number as usize)?, files)))
            .collect()
    }
}

impl IndexedGlob {
    /// Returns true if the glob is valid.
    pub(super) fn is_valid(&self) -> bool {
        self.glob.is_some()
    }

    fn is_match(&self, path: &str) -> bool {
        // Compiled on first use, because most globs are never needed.
        self.glob
            .as_ref()
            .is_some_and(|glob| self.matcher.get_or_init(|| glob.compile_matcher()).is_match(path))
    }
}

/// Returns the precision of a glob: `src/auth/*.rs` is more precise than `src/**`. Four literal
/// parts are the maximum.
fn precision(text: &str) -> f32 {
    let literal_parts =
        text.split('/').filter(|part| !part.is_empty() && !part.contains('*')).count();
    let ending = text
        .rsplit_once("*.")
        .is_some_and(|(_, ending)| !ending.is_empty() && ending.chars().all(char::is_alphanumeric));
    let ending = if ending { 0.5 } else { 0.0 };
    f32::from(u8::try_from(literal_parts.min(4)).unwrap_or(4)) + ending
}

/// Keywords of prohibitions, by their first word.
#[derive(Debug, Default)]
pub(super) struct KeywordIndex {
    all: Vec<IndexedKeyword>,
    by_text: BTreeMap<String, u32>,
    by_first: BTreeMap<String, Vec<u32>>,
}

#[derive(Debug)]
pub(super) struct IndexedKeyword {
    pub(super) text: String,
    words: Vec<String>,
    pub(super) entries: Vec<u32>,
}

impl KeywordIndex {
    pub(super) fn add(&mut self, text: &str, entry: u32) {
        let number = match self.by_text.get(text) {
            Some(number) => *number,
            None => self.insert(text),
        };
        if let Some(keyword) = self.all.get_mut(number as usize)
            && keyword.entries.last() != Some(&entry)
        {
            keyword.entries.push(entry);
        }
    }

    fn insert(&mut self, text: &str) -> u32 {
        let number = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        let words = split_words(text);
        if let Some(first) = words.first() {
            self.by_first.entry(first.clone()).or_default().push(number);
        }
        self.all.push(IndexedKeyword { text: text.to_owned(), words, entries: Vec::new() });
        self.by_text.insert(text.to_owned(), number);
        number
    }

    /// Returns the keywords that a plan mentions without negating them.
    pub(super) fn mentioned_in(&self, subject: &PlanText<'_>) -> Vec<&IndexedKeyword> {
        let mut candidates = std::collections::BTreeSet::new();
        for word in subject.mentions.iter().flat_map(Mentions::words) {
            let forms = [word.text.clone(), format!("{}s", word.text)];
            for form in forms.into_iter().chain(singulars(&word.text)) {
                candidates.extend(self.by_first.get(&form).into_iter().flatten().copied());
            }
        }
        let candidates = candidates.into_iter().filter_map(|number| self.all.get(number as usize));
        let is_mentioned = |keyword: &&IndexedKeyword| {
            subject.mentions.iter().any(|text| text.contains_phrase(&keyword.words))
        };
        candidates.filter(is_mentioned).collect()
    }
}

/// Patterns of entries.
#[derive(Debug, Default)]
pub(super) struct PatternIndex {
    all: Vec<IndexedPattern>,
    by_text: BTreeMap<String, u32>,
}

#[derive(Debug)]
struct IndexedPattern {
    text: String,
    /// `None` if the pattern is invalid.
    regex: OnceLock<Option<Regex>>,
}

impl PatternIndex {
    /// Adds a pattern and returns its number.
    pub(super) fn add(&mut self, text: &str) -> u32 {
        if let Some(number) = self.by_text.get(text) {
            return *number;
        }
        let number = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        self.all.push(IndexedPattern { text: text.to_owned(), regex: OnceLock::new() });
        self.by_text.insert(text.to_owned(), number);
        number
    }

    /// Compiles a pattern in advance.
    pub(super) fn compile(&self, number: u32) {
        if let Some(pattern) = self.all.get(number as usize) {
            pattern.regex();
        }
    }

    /// Returns the match of a pattern in a plan, unless it is negated there.
    pub(super) fn matches_in(&self, number: u32, subject: &PlanText<'_>) -> Vec<MatchReason> {
        let Some(pattern) = self.all.get(number as usize) else { return Vec::new() };
        let Some(regex) = pattern.regex() else {
            return vec![MatchReason::Undecidable { condition: pattern.text.clone() }];
        };
        let reasons = subject.code_texts().filter_map(|(text, mentions, is_code)| {
            let mut matches = regex.find_iter(text);
            let matched = matches.find(|candidate| {
                is_code(candidate.start()) && !mentions.is_negated_at(candidate.start())
            })?;
            Some(MatchReason::Pattern {
                pattern: pattern.text.clone(),
                found: matched.as_str().chars().take(MAX_FOUND_CHARS).collect(),
            })
        });
        reasons.collect()
    }
}

impl IndexedPattern {
    fn regex(&self) -> Option<&Regex> {
        self.regex.get_or_init(|| Regex::new(&self.text).ok()).as_ref()
    }
}
