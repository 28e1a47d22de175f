//! Similarity of two texts.
//!
//! Tasks seldom phrase a lesson twice in the same way, so texts are compared by the stems of their
//! content words. That alone would confuse "always" with "never", and one file with another. So two
//! texts differ, however many words they share, if one negates what the other affirms, if a word is
//! on the other side of a "before", or if names or numbers differ.

use std::collections::{BTreeMap, BTreeSet};

use rust_stemmers::{Algorithm, Stemmer};

/// Similarity from which two texts say nearly the same, in percent.
pub const SIMILARITY_THRESHOLD: u8 = 60;

/// Similarity of the sentences from which keywords count as well, in percent.
const RELATED_THRESHOLD: u8 = 25;

/// Words without meaning of their own in a lesson.
const STOP_WORDS: &str = "a about all also always an and any are as at be because been being but by can \
    could did do does done each else every few for from had has have having here how if in into is \
    it its just may might more most must need needs new of off on once one only or other our out \
    own per project same shall should so some such task tasks than that the their them then there \
    these they this those through thus to too two under until up use used uses using very want was \
    we were what when where which while who why will with would you your";

/// Words that negate their whole clause, such as "must not".
const CLAUSE_NEGATIONS: [&str; 11] = [
    "never",
    "cannot",
    "can't",
    "don't",
    "doesn't",
    "didn't",
    "won't",
    "isn't",
    "aren't",
    "mustn't",
    "shouldn't",
];

/// Words that negate what follows in a clause: "a queue without a thread" affirms the queue.
const FOLLOWING_NEGATIONS: [&str; 14] = [
    "not",
    "no",
    "without",
    "avoid",
    "avoids",
    "avoiding",
    "forbid",
    "forbids",
    "forbidden",
    "nor",
    "neither",
    "nothing",
    "none",
    "instead",
];

/// Token for a comma between clauses.
const COMMA: &str = ",";

/// Words after which "not" negates the whole clause.
const AUXILIARY_VERBS: [&str; 21] = [
    "do", "does", "did", "must", "should", "shall", "may", "might", "can", "could", "will",
    "would", "is", "are", "was", "were", "be", "has", "have", "had", "to",
];

/// Words that separate an earlier thing from a later one.
const BEFORE_WORDS: [&str; 3] = ["before", "over", "precedes"];

/// Words that separate a later thing from an earlier one.
const AFTER_WORDS: [&str; 3] = ["after", "following", "behind"];

/// Pairs of stems with opposite meaning.
const OPPOSITES: [(&str, &str); 16] = [
    ("enabl", "disabl"),
    ("allow", "forbid"),
    ("add", "remov"),
    ("increas", "decreas"),
    ("rais", "lower"),
    ("more", "less"),
    ("first", "last"),
    ("sync", "async"),
    ("synchron", "asynchron"),
    ("public", "privat"),
    ("open", "close"),
    ("start", "stop"),
    ("accept", "reject"),
    ("encrypt", "decrypt"),
    ("min", "max"),
    ("minimum", "maximum"),
];

/// Ways in which a text uses a stem.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "a text can use a stem in several ways")]
struct StemUsage {
    affirmed: bool,
    negated: bool,
    first: bool,
    second: bool,
}

/// Content of a text, for comparison with others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextFeatures {
    /// Stems of the content words, with their use.
    stems: BTreeMap<String, StemUsage>,
    /// Stems of the keywords.
    keyword_stems: BTreeSet<String>,
    /// Paths and identifiers.
    names: BTreeSet<String>,
    numbers: BTreeSet<String>,
}

impl TextFeatures {
    /// Extracts the features of a text and its keywords.
    pub fn new<'a>(text: &str, keywords: impl IntoIterator<Item = &'a String>) -> Self {
        let stemmer = Stemmer::create(Algorithm::English);
        let mut features = Self::default();
        // Text in backticks is an identifier.
        let code =
            text.split('`').skip(1).step_by(2).map(str::trim).filter(|code| !code.is_empty());
        features.names.extend(code.map(str::to_owned));
        for clause in split_clauses(text) {
            features.add_clause(&clause, &stemmer);
        }
        let words = keywords.into_iter().flat_map(|keyword| split_identifier(keyword));
        features.keyword_stems =
            words.filter(|word| is_content_word(word)).map(|word| stem(&stemmer, &word)).collect();
        features
    }

    fn add_clause(&mut self, clause: &[String], stemmer: &Stemmer) {
        let sides = word_sides(clause);
        let mut is_negated = clause.iter().enumerate().any(|(at, word)| {
            let previous = at.checked_sub(1).map(|before| clause[before].as_str());
            CLAUSE_NEGATIONS.contains(&word.as_str())
                || (word == "not" && previous.is_some_and(|word| AUXILIARY_VERBS.contains(&word)))
        });
        for (at, word) in clause.iter().enumerate() {
            let is_rather_than = word == "than" && at > 0 && clause[at - 1] == "rather";
            if FOLLOWING_NEGATIONS.contains(&word.as_str()) || is_rather_than {
                is_negated = true;
                continue;
            }
            if is_identifier(word) {
                self.names.insert(word.clone());
            }
            if word.starts_with(|letter: char| letter.is_ascii_digit())
                && word.chars().all(|letter| letter.is_ascii_digit() || letter == '.')
            {
                self.numbers.insert(word.clone());
            }
            for part in split_identifier(word).into_iter().filter(|part| is_content_word(part)) {
                let usage = self.stems.entry(stem(stemmer, &part)).or_default();
                if is_negated {
                    usage.negated = true;
                } else {
                    usage.affirmed = true;
                }
                match sides(at) {
                    Some(OrderSide::First) => usage.first = true,
                    Some(OrderSide::Second) => usage.second = true,
                    None => {}
                }
            }
        }
    }

    /// Returns the similarity of two texts, in percent. It is symmetric, and 100 for equal texts.
    pub fn similarity(&self, other: &Self) -> u8 {
        let stems = |features: &Self| features.stems.keys().cloned().collect::<BTreeSet<_>>();
        let (own_stems, other_stems) = (stems(self), stems(other));
        let words = overlap_percent(&own_stems, &other_stems);
        if self.keyword_stems.is_empty() || other.keyword_stems.is_empty() {
            return words;
        }
        // Keywords help only if the sentences have something in common.
        if words < RELATED_THRESHOLD {
            return words;
        }
        let with_keywords =
            |words: BTreeSet<String>, features: &Self| &words | &features.keyword_stems;
        words.max(overlap_percent(
            &with_keywords(own_stems, self),
            &with_keywords(other_stems, other),
        ))
    }

    /// Returns true if two texts contradict each other or are about different things.
    pub fn is_different(&self, other: &Self) -> bool {
        let shared =
            || self.stems.iter().filter_map(|(stem, one)| Some((one, other.stems.get(stem)?)));
        let opposed = |one: &StemUsage, two: &StemUsage| {
            (one.affirmed && !one.negated && two.negated && !two.affirmed)
                || (one.first && !one.second && two.second && !two.first)
        };
        shared().any(|(one, two)| opposed(one, two) || opposed(two, one))
            || self.has_opposite(other)
            || other.has_opposite(self)
            || !is_either_subset(&self.names, &other.names)
            || !is_either_subset(&self.numbers, &other.numbers)
    }

    fn has_opposite(&self, other: &Self) -> bool {
        let only = |one: &Self, two: &Self, stem: &str| {
            one.stems.contains_key(stem) && !two.stems.contains_key(stem)
        };
        OPPOSITES.iter().any(|(one, two)| only(self, other, one) && only(other, self, two))
    }

    /// Returns true if two texts say nearly the same.
    pub fn is_similar(&self, other: &Self) -> bool {
        !self.is_different(other) && self.similarity(other) >= SIMILARITY_THRESHOLD
    }
}

/// Side of a "before" that a word is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OrderSide {
    First,
    Second,
}

/// Returns the side of a "before" or "after" for each word of a clause. A clause that starts with
/// one, as in "After an import the cache is stale", has only the next word on a known side, unless
/// a comma ends it. A clause without content words on one side has no sides.
fn word_sides(clause: &[String]) -> impl Fn(usize) -> Option<OrderSide> {
    let pivot = clause.iter().position(|word| {
        let word = word.as_str();
        BEFORE_WORDS.contains(&word) || AFTER_WORDS.contains(&word)
    });
    let has_content = |word: &String| {
        word != COMMA && split_identifier(word).iter().any(|part| is_content_word(part))
    };
    let range = pivot.and_then(|pivot| {
        let next = pivot + 1 + clause[pivot + 1..].iter().position(has_content)?;
        let is_leading = !clause[..pivot].iter().any(has_content);
        let ends_with_comma = clause.last().is_some_and(|word| word == COMMA);
        Some((pivot, if is_leading && !ends_with_comma { next + 1 } else { clause.len() }))
    });
    let swapped = pivot.is_some_and(|at| AFTER_WORDS.contains(&clause[at].as_str()));
    move |at| {
        let (pivot, end) = range?;
        let first = (at < pivot) != swapped;
        let side = if first { OrderSide::First } else { OrderSide::Second };
        (at < end).then_some(side)
    }
}

/// Returns twice the intersection of two sets divided by their total size, in percent. 0 for two
/// empty sets.
fn overlap_percent(one: &BTreeSet<String>, two: &BTreeSet<String>) -> u8 {
    let all = one.len() + two.len();
    let common = one.intersection(two).count();
    (200 * common).checked_div(all).and_then(|percent| u8::try_from(percent).ok()).unwrap_or(0)
}

/// Returns true if one set contains the other.
fn is_either_subset(one: &BTreeSet<String>, two: &BTreeSet<String>) -> bool {
    one.is_subset(two) || two.is_subset(one)
}

/// Splits a text into clauses of words. A negation does not extend to the next clause.
fn split_clauses(text: &str) -> Vec<Vec<String>> {
    let mut clauses = vec![Vec::new()];
    let start_clause = |clauses: &mut Vec<Vec<String>>| clauses.push(Vec::new());
    let tokens: Vec<(&str, String)> =
        text.split_whitespace().map(|token| (token, normalize_token(token))).collect();
    for (at, (token, word)) in tokens.iter().enumerate() {
        let negation_follows = tokens[at + 1..].iter().take(2).any(|(_, next)| is_negation(next));
        let is_turn = match word.as_str() {
            "but" | "because" => true,
            "and" | "or" => negation_follows,
            _ => false,
        };
        if is_turn || token.starts_with(['(', '–', '—']) {
            start_clause(&mut clauses);
        }
        let unquoted = token.trim_end_matches(['`', '"', '\'', '*', '”', '’']);
        if let Some(clause) = clauses.last_mut() {
            if !word.is_empty() {
                clause.push(word.clone());
            }
            if unquoted.ends_with(',') {
                clause.push(COMMA.to_owned());
            }
        }
        if unquoted.ends_with(['.', ',', ';', ':', '!', '?', ')', '–', '—']) || *token == "-" {
            start_clause(&mut clauses);
        }
    }
    clauses
}

/// Removes punctuation around a word.
fn normalize_token(token: &str) -> String {
    let trimmed = token.trim_matches(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let trimmed = if is_identifier(trimmed) { trimmed.to_owned() } else { trimmed.to_lowercase() };
    trimmed.replace('’', "'")
}

fn is_negation(word: &str) -> bool {
    CLAUSE_NEGATIONS.contains(&word) || FOLLOWING_NEGATIONS.contains(&word)
}

/// Splits a name such as `chargeTwice` or `src/pay/charge.rs` into words, in lower case.
fn split_identifier(word: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut was_lowercase = false;
    for letter in word.chars() {
        if !letter.is_alphanumeric() || (was_lowercase && letter.is_uppercase()) {
            parts.push(String::new());
        }
        was_lowercase = letter.is_lowercase();
        if letter.is_alphanumeric()
            && let Some(part) = parts.last_mut()
        {
            part.extend(letter.to_lowercase());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Returns true if a word is a file name or an identifier rather than a natural word.
fn is_identifier(word: &str) -> bool {
    let is_infix = |mark: &str| {
        word.split_once(mark).is_some_and(|(before, after)| {
            before.ends_with(char::is_alphanumeric) && after.starts_with(char::is_alphanumeric)
        })
    };
    let has_letter = word.chars().any(char::is_alphabetic);
    let mut letters = word.chars().zip(word.chars().skip(1));
    has_letter
        && (word.contains('/')
            || word.contains('_')
            || word.contains("::")
            || is_infix(".")
            || letters.any(|(one, two)| one.is_lowercase() && two.is_uppercase()))
}

fn is_content_word(word: &str) -> bool {
    !is_stop_word(word) && !is_negation(word)
}

/// Returns true if a word has no meaning of its own.
pub(super) fn is_stop_word(word: &str) -> bool {
    static WORDS: std::sync::LazyLock<BTreeSet<&str>> =
        std::sync::LazyLock::new(|| STOP_WORDS.split_whitespace().collect());
    WORDS.contains(word)
}

fn stem(stemmer: &Stemmer, word: &str) -> String {
    stemmer.stem(word).into_owned()
}
