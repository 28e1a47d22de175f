//! The conditions of entries, each kept once with the entries that have it: what a plan fulfils is
//! found from the plan, and not by asking every entry.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use globset::{Glob, GlobBuilder, GlobMatcher};
use regex::Regex;

use super::subject::Subject;
use crate::knowledge::mention::{Mentions, singulars};
use crate::knowledge::{MatchReason, words};
use crate::plan::FileChange;

/// How much of what a pattern found is shown.
const SHOWN: usize = 80;

/// A glob as people mean it: a star stays within a folder.
pub(in crate::knowledge) fn glob(text: &str) -> Option<Glob> {
    GlobBuilder::new(text).literal_separator(true).build().ok()
}

/// The globs of entries, by what a path must begin with to be under them.
#[derive(Debug, Default)]
pub(super) struct Globs {
    all: Vec<PathGlob>,
    by_text: BTreeMap<String, u32>,
    by_beginning: BTreeMap<String, Vec<u32>>,
    /// Those that cannot be read.
    bad: Vec<u32>,
}

#[derive(Debug)]
pub(super) struct PathGlob {
    pub(super) text: String,
    glob: Option<Glob>,
    matcher: OnceLock<GlobMatcher>,
    /// How much it says: how many of its parts are spelled out.
    pub(super) precision: f32,
    pub(super) entries: Vec<u32>,
}

impl Globs {
    pub(super) fn add(&mut self, text: &str, entry: u32) {
        let number = match self.by_text.get(text) {
            Some(number) => *number,
            None => self.learn(text),
        };
        if let Some(it) = self.all.get_mut(number as usize)
            && it.entries.last() != Some(&entry)
        {
            it.entries.push(entry);
        }
    }

    fn learn(&mut self, text: &str) -> u32 {
        let number = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        let glob = glob(text);
        if glob.is_none() {
            self.bad.push(number);
        } else {
            let beginning = text.split(['*', '?', '[', '{', '\\']).next().unwrap_or_default();
            self.by_beginning.entry(beginning.to_owned()).or_default().push(number);
        }
        self.all.push(PathGlob {
            text: text.to_owned(),
            glob,
            matcher: OnceLock::new(),
            precision: precision(text),
            entries: Vec::new(),
        });
        self.by_text.insert(text.to_owned(), number);
        number
    }

    /// The globs that one of some files is under, each with those files, and those that nobody can
    /// read, with none.
    pub(super) fn over<'a>(
        &'a self,
        files: &'a [FileChange],
    ) -> Vec<(&'a PathGlob, Vec<&'a FileChange>)> {
        let mut under: BTreeMap<u32, Vec<&FileChange>> = BTreeMap::new();
        for file in files {
            let ends = file.path.char_indices().map(|(at, _)| at).chain([file.path.len()]);
            let beginnings = ends.filter_map(|end| file.path.get(..end));
            let candidates = beginnings.filter_map(|it| self.by_beginning.get(it)).flatten();
            for number in candidates {
                if self.all.get(*number as usize).is_some_and(|glob| glob.is_match(&file.path)) {
                    under.entry(*number).or_default().push(file);
                }
            }
        }
        under.extend(self.bad.iter().map(|number| (*number, Vec::new())));
        let found = under.into_iter();
        found.filter_map(|(number, files)| Some((self.all.get(number as usize)?, files))).collect()
    }
}

impl PathGlob {
    /// Whether it can be read.
    pub(super) fn is_readable(&self) -> bool {
        self.glob.is_some()
    }

    fn is_match(&self, path: &str) -> bool {
        // Most globs of many entries are never asked, and making a matcher is dear.
        self.glob
            .as_ref()
            .is_some_and(|glob| self.matcher.get_or_init(|| glob.compile_matcher()).is_match(path))
    }
}

/// How much a glob says: `src/auth/*.rs` more than `src/**`. Four parts are all.
fn precision(text: &str) -> f32 {
    let spelled = text.split('/').filter(|part| !part.is_empty() && !part.contains('*')).count();
    let ending = text
        .rsplit_once("*.")
        .is_some_and(|(_, ending)| !ending.is_empty() && ending.chars().all(char::is_alphanumeric));
    let ending = if ending { 0.5 } else { 0.0 };
    f32::from(u8::try_from(spelled.min(4)).unwrap_or(4)) + ending
}

/// The keywords of prohibitions, by their first word.
#[derive(Debug, Default)]
pub(super) struct Keywords {
    all: Vec<Keyword>,
    by_text: BTreeMap<String, u32>,
    by_first: BTreeMap<String, Vec<u32>>,
}

#[derive(Debug)]
pub(super) struct Keyword {
    pub(super) text: String,
    words: Vec<String>,
    pub(super) entries: Vec<u32>,
}

impl Keywords {
    pub(super) fn add(&mut self, text: &str, entry: u32) {
        let number = match self.by_text.get(text) {
            Some(number) => *number,
            None => self.learn(text),
        };
        if let Some(it) = self.all.get_mut(number as usize)
            && it.entries.last() != Some(&entry)
        {
            it.entries.push(entry);
        }
    }

    fn learn(&mut self, text: &str) -> u32 {
        let number = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        let words = words(text);
        if let Some(first) = words.first() {
            self.by_first.entry(first.clone()).or_default().push(number);
        }
        self.all.push(Keyword { text: text.to_owned(), words, entries: Vec::new() });
        self.by_text.insert(text.to_owned(), number);
        number
    }

    /// The keywords that a plan names, and does not deny.
    pub(super) fn named_by(&self, subject: &Subject<'_>) -> Vec<&Keyword> {
        let mut candidates = std::collections::BTreeSet::new();
        for word in subject.mentions.iter().flat_map(Mentions::words) {
            let more = [word.text.clone(), format!("{}s", word.text)];
            for form in more.into_iter().chain(singulars(&word.text)) {
                candidates.extend(self.by_first.get(&form).into_iter().flatten().copied());
            }
        }
        let candidates = candidates.into_iter().filter_map(|it| self.all.get(it as usize));
        let named = |it: &&Keyword| subject.mentions.iter().any(|text| text.name(&it.words));
        candidates.filter(named).collect()
    }
}

/// The patterns of entries.
#[derive(Debug, Default)]
pub(super) struct Patterns {
    all: Vec<Pattern>,
    by_text: BTreeMap<String, u32>,
}

#[derive(Debug)]
struct Pattern {
    text: String,
    /// Nothing where it is no expression.
    regex: OnceLock<Option<Regex>>,
}

impl Patterns {
    /// The number of a pattern.
    pub(super) fn add(&mut self, text: &str) -> u32 {
        if let Some(number) = self.by_text.get(text) {
            return *number;
        }
        let number = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        self.all.push(Pattern { text: text.to_owned(), regex: OnceLock::new() });
        self.by_text.insert(text.to_owned(), number);
        number
    }

    /// Makes a pattern ready before it is needed.
    pub(super) fn prepare(&self, number: u32) {
        if let Some(pattern) = self.all.get(number as usize) {
            pattern.regex();
        }
    }

    /// Where a plan describes what a pattern matches, and does not deny it.
    pub(super) fn described_by(&self, number: u32, subject: &Subject<'_>) -> Vec<MatchReason> {
        let Some(pattern) = self.all.get(number as usize) else { return Vec::new() };
        let Some(regex) = pattern.regex() else {
            return vec![MatchReason::Undecidable { condition: pattern.text.clone() }];
        };
        let found = subject.code().filter_map(|(text, mentions, is_code)| {
            let mut all = regex.find_iter(text);
            let found = all.find(|it| is_code(it.start()) && !mentions.denies(it.start()))?;
            Some(MatchReason::Pattern {
                pattern: pattern.text.clone(),
                found: found.as_str().chars().take(SHOWN).collect(),
            })
        });
        found.collect()
    }
}

impl Pattern {
    fn regex(&self) -> Option<&Regex> {
        self.regex.get_or_init(|| Regex::new(&self.text).ok()).as_ref()
    }
}
