//! Stems of the content words of a text: "charged", "charges" and "charging" are equal.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::LazyLock;

use rust_stemmers::{Algorithm, Stemmer};

use super::split_words;

/// Stems, numbered in order of appearance. The stem of each word is computed once.
pub(super) struct StemIndex {
    stemmer: Stemmer,
    by_word: BTreeMap<String, Option<u32>>,
    by_stem: BTreeMap<String, u32>,
    texts: Vec<String>,
}

impl Default for StemIndex {
    fn default() -> Self {
        Self {
            stemmer: Stemmer::create(Algorithm::English),
            by_word: BTreeMap::new(),
            by_stem: BTreeMap::new(),
            texts: Vec::new(),
        }
    }
}

impl fmt::Debug for StemIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stems").field(&self.texts.len()).finish()
    }
}

impl StemIndex {
    /// Number of stems.
    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    /// Returns the stem numbers of a text in order; adds new stems.
    pub(super) fn add_text(&mut self, text: &str) -> Vec<u32> {
        let mut numbers = Vec::new();
        for_each_word(text, |word| {
            let cached = self.by_word.get(word).copied();
            let number = cached.unwrap_or_else(|| self.add_word(word));
            numbers.extend(number);
        });
        numbers
    }

    /// Returns the stem numbers of a text that are known.
    pub(super) fn lookup(&self, text: &str) -> Vec<u32> {
        let mut numbers = Vec::new();
        for_each_word(text, |word| {
            let number = match self.by_word.get(word) {
                Some(cached) => *cached,
                None if is_stop_word(word) => None,
                None => self.by_stem.get(self.stemmer.stem(word).as_ref()).copied(),
            };
            numbers.extend(number);
        });
        numbers
    }

    fn add_word(&mut self, word: &str) -> Option<u32> {
        let number = (!is_stop_word(word)).then(|| {
            let stem = self.stemmer.stem(word).into_owned();
            if let Some(number) = self.by_stem.get(&stem) {
                return *number;
            }
            let number = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
            self.texts.push(stem.clone());
            self.by_stem.insert(stem, number);
            number
        });
        self.by_word.insert(word.to_owned(), number);
        number
    }
}

/// Calls a function with each word of a text, in lower case. Parts of names such as `chargeTwice`
/// and `charge_twice` are words.
fn for_each_word(text: &str, mut visit: impl FnMut(&str)) {
    let mut separated = String::with_capacity(text.len() + 8);
    let mut was_lowercase = false;
    for letter in text.chars() {
        if was_lowercase && letter.is_uppercase() {
            separated.push(' ');
        }
        was_lowercase = letter.is_lowercase();
        separated.push(if letter == '_' { ' ' } else { letter });
    }
    for word in split_words(&separated) {
        visit(&word);
    }
}

/// Returns true if a word says nothing about the subject of a text.
fn is_stop_word(word: &str) -> bool {
    const COMMON: &str = include_str!("common-words.txt");
    static WORDS: LazyLock<BTreeSet<&str>> = LazyLock::new(|| COMMON.split_whitespace().collect());
    word.len() < 2 || WORDS.contains(word)
}
