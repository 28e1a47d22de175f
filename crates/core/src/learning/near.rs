//! Whether two texts say nearly the same thing.
//!
//! A task seldom words a lesson as an earlier one did, so texts are compared by the stems of the words
//! that say something. That alone would take "always" for "never" and one file for another. So what
//! is denied in one text and affirmed in the other, what stands on the other side of a "before", and
//! names and numbers of other things keep two texts apart, however many words they share.

use std::collections::{BTreeMap, BTreeSet};

use rust_stemmers::{Algorithm, Stemmer};

/// From how much likeness on two texts say nearly the same, in percent.
pub const NEAR: u8 = 60;

/// From how much likeness of the sentences on their keywords count as well, in percent.
const RELATED: u8 = 25;

/// Words that say nothing by themselves in a lesson.
const COMMON: &str = "a about all also always an and any are as at be because been being but by can \
    could did do does done each else every few for from had has have having here how if in into is \
    it its just may might more most must need needs new of off on once one only or other our out \
    own per project same shall should so some such task tasks than that the their them then there \
    these they this those through thus to too two under until up use used uses using very want was \
    we were what when where which while who why will with would you your";

/// Words that deny the whole clause they are in: who "must not call it" is denied to call it.
const DENY_ALL: [&str; 11] = [
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

/// Words that deny what follows in a clause: "a queue without a thread" has a queue.
const DENY_NEXT: [&str; 14] = [
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

/// What ends a clause that goes on after it.
const COMMA: &str = ",";

/// Words after which "not" denies the whole clause.
const AUXILIARY: [&str; 21] = [
    "do", "does", "did", "must", "should", "shall", "may", "might", "can", "could", "will",
    "would", "is", "are", "was", "were", "be", "has", "have", "had", "to",
];

/// Words that divide a clause in what comes first and what comes second.
const FIRST: [&str; 3] = ["before", "over", "precedes"];

/// The same the other way round.
const SECOND: [&str; 3] = ["after", "following", "behind"];

/// Stems that say the contrary of each other.
const CONTRARY: [(&str, &str); 16] = [
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

/// How a text speaks of something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "a text may speak of it in all of these ways")]
struct Sense {
    affirmed: bool,
    denied: bool,
    first: bool,
    second: bool,
}

/// What a text says, as far as it is compared with others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gist {
    /// The stems of the words that say something, and how the text speaks of each.
    stems: BTreeMap<String, Sense>,
    /// What else it is about, in words of its own.
    about: BTreeSet<String>,
    /// Paths and names of code.
    names: BTreeSet<String>,
    numbers: BTreeSet<String>,
}

impl Gist {
    /// The gist of a text and its keywords.
    pub fn of<'a>(text: &str, keywords: impl IntoIterator<Item = &'a String>) -> Self {
        let stemmer = Stemmer::create(Algorithm::English);
        let mut gist = Self::default();
        // What is written as code is a name, whatever is in it.
        let code = text.split('`').skip(1).step_by(2).map(str::trim).filter(|it| !it.is_empty());
        gist.names.extend(code.map(str::to_owned));
        for clause in clauses(text) {
            gist.read(&clause, &stemmer);
        }
        let words = keywords.into_iter().flat_map(|keyword| parts(keyword));
        gist.about =
            words.filter(|word| says_something(word)).map(|it| stem(&stemmer, &it)).collect();
        gist
    }

    fn read(&mut self, clause: &[String], stemmer: &Stemmer) {
        let sides = sides(clause);
        let mut denied = clause.iter().enumerate().any(|(at, word)| {
            let after = at.checked_sub(1).map(|before| clause[before].as_str());
            DENY_ALL.contains(&word.as_str())
                || (word == "not" && after.is_some_and(|word| AUXILIARY.contains(&word)))
        });
        for (at, word) in clause.iter().enumerate() {
            let rather = word == "than" && at > 0 && clause[at - 1] == "rather";
            if DENY_NEXT.contains(&word.as_str()) || rather {
                denied = true;
                continue;
            }
            if is_name(word) {
                self.names.insert(word.clone());
            }
            if word.starts_with(|letter: char| letter.is_ascii_digit())
                && word.chars().all(|letter| letter.is_ascii_digit() || letter == '.')
            {
                self.numbers.insert(word.clone());
            }
            for part in parts(word).into_iter().filter(|part| says_something(part)) {
                let sense = self.stems.entry(stem(stemmer, &part)).or_default();
                if denied {
                    sense.denied = true;
                } else {
                    sense.affirmed = true;
                }
                match sides(at) {
                    Some(Side::First) => sense.first = true,
                    Some(Side::Second) => sense.second = true,
                    None => {}
                }
            }
        }
    }

    /// How much two texts share, in percent. It is the same from both sides, and a text shares all
    /// with itself.
    pub fn likeness(&self, other: &Self) -> u8 {
        let said = |gist: &Self| gist.stems.keys().cloned().collect::<BTreeSet<_>>();
        let (mine, theirs) = (said(self), said(other));
        let words = shared(&mine, &theirs);
        if self.about.is_empty() || other.about.is_empty() {
            return words;
        }
        // Words chosen for a subject help where sentences differ that share something by themselves.
        if words < RELATED {
            return words;
        }
        let with = |words: BTreeSet<String>, gist: &Self| &words | &gist.about;
        words.max(shared(&with(mine, self), &with(theirs, other)))
    }

    /// Whether two texts contradict each other, or are about other things, whatever they share.
    pub fn is_apart(&self, other: &Self) -> bool {
        let both =
            || self.stems.iter().filter_map(|(stem, one)| Some((one, other.stems.get(stem)?)));
        let opposed = |one: &Sense, two: &Sense| {
            (one.affirmed && !one.denied && two.denied && !two.affirmed)
                || (one.first && !one.second && two.second && !two.first)
        };
        both().any(|(one, two)| opposed(one, two) || opposed(two, one))
            || self.has_contrary(other)
            || other.has_contrary(self)
            || !one_has_all(&self.names, &other.names)
            || !one_has_all(&self.numbers, &other.numbers)
    }

    fn has_contrary(&self, other: &Self) -> bool {
        let only = |one: &Self, two: &Self, stem: &str| {
            one.stems.contains_key(stem) && !two.stems.contains_key(stem)
        };
        CONTRARY.iter().any(|(one, two)| only(self, other, one) && only(other, self, two))
    }

    /// Whether two texts say nearly the same.
    pub fn is_near(&self, other: &Self) -> bool {
        !self.is_apart(other) && self.likeness(other) >= NEAR
    }
}

/// On which side of a "before" something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    First,
    Second,
}

/// On which side of a "before" or "after" each word of a clause stands. A clause that begins with one,
/// as in "After an import the cache is stale", has only the word after it on a side for sure, unless a
/// comma ends it; and one with nothing that says something on one side divides nothing.
fn sides(clause: &[String]) -> impl Fn(usize) -> Option<Side> {
    let turn = clause.iter().position(|word| {
        let word = word.as_str();
        FIRST.contains(&word) || SECOND.contains(&word)
    });
    let says = |word: &String| word != COMMA && parts(word).iter().any(|part| says_something(part));
    let range = turn.and_then(|turn| {
        let next = turn + 1 + clause[turn + 1..].iter().position(says)?;
        let leads = !clause[..turn].iter().any(says);
        let ends = clause.last().is_some_and(|word| word == COMMA);
        Some((turn, if leads && !ends { next + 1 } else { clause.len() }))
    });
    let swapped = turn.is_some_and(|at| SECOND.contains(&clause[at].as_str()));
    move |at| {
        let (turn, end) = range?;
        let first = (at < turn) != swapped;
        let side = if first { Side::First } else { Side::Second };
        (at < end).then_some(side)
    }
}

/// Twice what two sets share, of all that is in them, in percent. Two empty ones share nothing that
/// anybody could tell.
fn shared(one: &BTreeSet<String>, two: &BTreeSet<String>) -> u8 {
    let all = one.len() + two.len();
    let common = one.intersection(two).count();
    (200 * common).checked_div(all).and_then(|percent| u8::try_from(percent).ok()).unwrap_or(0)
}

/// Whether one of two sets has everything that is in the other.
fn one_has_all(one: &BTreeSet<String>, two: &BTreeSet<String>) -> bool {
    one.is_subset(two) || two.is_subset(one)
}

/// A text in clauses, each in words: what is denied in one is not denied in the next.
fn clauses(text: &str) -> Vec<Vec<String>> {
    let mut clauses = vec![Vec::new()];
    let end = |clauses: &mut Vec<Vec<String>>| clauses.push(Vec::new());
    let tokens: Vec<(&str, String)> =
        text.split_whitespace().map(|token| (token, bare(token))).collect();
    for (at, (token, word)) in tokens.iter().enumerate() {
        let denial = tokens[at + 1..].iter().take(2).any(|(_, next)| denies(next));
        let turns = match word.as_str() {
            "but" | "because" => true,
            "and" | "or" => denial,
            _ => false,
        };
        if turns || token.starts_with(['(', '–', '—']) {
            end(&mut clauses);
        }
        let closed = token.trim_end_matches(['`', '"', '\'', '*', '”', '’']);
        if let Some(clause) = clauses.last_mut() {
            if !word.is_empty() {
                clause.push(word.clone());
            }
            if closed.ends_with(',') {
                clause.push(COMMA.to_owned());
            }
        }
        if closed.ends_with(['.', ',', ';', ':', '!', '?', ')', '–', '—']) || *token == "-" {
            end(&mut clauses);
        }
    }
    clauses
}

/// A word without what stands around it.
fn bare(token: &str) -> String {
    let bare = token.trim_matches(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let bare = if is_name(bare) { bare.to_owned() } else { bare.to_lowercase() };
    bare.replace('’', "'")
}

fn denies(word: &str) -> bool {
    DENY_ALL.contains(&word) || DENY_NEXT.contains(&word)
}

/// The words in a name such as `chargeTwice` or `src/pay/charge.rs`, in small letters.
fn parts(word: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut small = false;
    for letter in word.chars() {
        if !letter.is_alphanumeric() || (small && letter.is_uppercase()) {
            parts.push(String::new());
        }
        small = letter.is_lowercase();
        if letter.is_alphanumeric()
            && let Some(part) = parts.last_mut()
        {
            part.extend(letter.to_lowercase());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Whether a word is the name of a file or of something in code, and none of a language.
fn is_name(word: &str) -> bool {
    let inner = |mark: &str| {
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
            || inner(".")
            || letters.any(|(one, two)| one.is_lowercase() && two.is_uppercase()))
}

fn says_something(word: &str) -> bool {
    !is_common(word) && !denies(word)
}

/// Whether a word says nothing by itself.
pub(super) fn is_common(word: &str) -> bool {
    static WORDS: std::sync::LazyLock<BTreeSet<&str>> =
        std::sync::LazyLock::new(|| COMMON.split_whitespace().collect());
    WORDS.contains(word)
}

fn stem(stemmer: &Stemmer, word: &str) -> String {
    stemmer.stem(word).into_owned()
}
