//! The words of a text that say something, without their endings: "charged", "charges" and "charging"
//! are one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::LazyLock;

use rust_stemmers::{Algorithm, Stemmer};

use super::words;

/// Stems, numbered as they come. A word's stem is found once, however often the word is read.
pub(super) struct Stems {
    stemmer: Stemmer,
    by_word: BTreeMap<String, Option<u32>>,
    by_stem: BTreeMap<String, u32>,
    texts: Vec<String>,
}

impl Default for Stems {
    fn default() -> Self {
        Self {
            stemmer: Stemmer::create(Algorithm::English),
            by_word: BTreeMap::new(),
            by_stem: BTreeMap::new(),
            texts: Vec::new(),
        }
    }
}

impl fmt::Debug for Stems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stems").field(&self.texts.len()).finish()
    }
}

impl Stems {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    /// The stems of a text, in its order; new ones get a number.
    pub(super) fn numbers_of(&mut self, text: &str) -> Vec<u32> {
        let mut numbers = Vec::new();
        each_word(text, |word| {
            let known = self.by_word.get(word).copied();
            let number = known.unwrap_or_else(|| self.learn(word));
            numbers.extend(number);
        });
        numbers
    }

    /// The stems of a text that are among these.
    pub(super) fn known_in(&self, text: &str) -> Vec<u32> {
        let mut numbers = Vec::new();
        each_word(text, |word| {
            let number = match self.by_word.get(word) {
                Some(known) => *known,
                None if is_empty(word) => None,
                None => self.by_stem.get(self.stemmer.stem(word).as_ref()).copied(),
            };
            numbers.extend(number);
        });
        numbers
    }

    fn learn(&mut self, word: &str) -> Option<u32> {
        let number = (!is_empty(word)).then(|| {
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

/// Does something with each word of a text, in small letters. The parts of names such as
/// `chargeTwice` and `charge_twice` are words.
fn each_word(text: &str, mut does: impl FnMut(&str)) {
    let mut apart = String::with_capacity(text.len() + 8);
    let mut small = false;
    for letter in text.chars() {
        if small && letter.is_uppercase() {
            apart.push(' ');
        }
        small = letter.is_lowercase();
        apart.push(if letter == '_' { ' ' } else { letter });
    }
    for word in words(&apart) {
        does(&word);
    }
}

/// Whether a word says nothing about what a text is about.
fn is_empty(word: &str) -> bool {
    const COMMON: &str = include_str!("common-words.txt");
    static WORDS: LazyLock<BTreeSet<&str>> = LazyLock::new(|| COMMON.split_whitespace().collect());
    word.len() < 2 || WORDS.contains(word)
}
