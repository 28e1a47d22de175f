//! Whether a text speaks of something as what will be done, or only as what will not.
//!
//! "It does not touch payments" names payments, and a rule about payments has nothing to say to it. So
//! a text is read as a person reads it, roughly: in clauses; a denial reaches as far as its clause or
//! its object does; one denial inside another cancels it; and what follows its subject ("the layout
//! stays as it is") reaches back to it. Where the reading is open, the thing counts as named: a person
//! who is asked once too often loses less than one who is not asked.
//!
//! What is written as code (in backticks) can be named and denied, but denies nothing itself.

mod grammar;

use self::grammar::{
    Cue, END_OF_OBJECT, LISTED, Reach, denial_at, heads_exclusion, is_determiner, is_verb,
    joins_phrases, left_denial_at, starts_clause, starts_phrase,
};

/// How many words a denial reaches at most: nobody reads longer clauses with one in mind.
const REACH: usize = 16;

/// A text as words, each of which is denied or not.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mentions {
    words: Vec<Word>,
}

/// A word, in small letters.
#[derive(Debug, Clone)]
pub(crate) struct Word {
    pub(crate) text: String,
    /// Where it begins in the text.
    at: usize,
    /// In which clause it is, counted from the beginning of the text.
    clause: usize,
    /// A comma stands before it.
    comma: bool,
    /// It is code, or a part of a name such as `--without-table`: it has no grammar.
    is_name: bool,
    denied: bool,
}

/// Where one clause ends and another begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Comma,
    Semicolon,
    Colon,
    /// A line that begins with a dash or a star goes on with a list.
    Bullet,
    Full,
}

impl Mentions {
    pub(crate) fn of(text: &str) -> Self {
        let (mut words, marks) = cut(text);
        // A heading such as "Out of scope:" denies what it introduces.
        let (mut excluded, mut from) = (false, 0);
        for (end, mark) in marks {
            if mark == Mark::Comma {
                continue;
            }
            let Some(clause) = words.get_mut(from..end) else { continue };
            read(clause);
            if excluded && (mark == Mark::Colon || !is_sentence(clause) || is_list(clause)) {
                for word in &mut *clause {
                    word.denied = true;
                }
            }
            excluded = match mark {
                Mark::Colon => heads_exclusion(clause),
                Mark::Full => false,
                Mark::Bullet | Mark::Semicolon | Mark::Comma => excluded,
            };
            from = end;
        }
        Self { words }
    }

    /// Its words, in their order.
    pub(crate) fn words(&self) -> &[Word] {
        &self.words
    }

    /// Whether some words in a row are named, and not denied.
    pub(crate) fn name(&self, wanted: &[String]) -> bool {
        !wanted.is_empty()
            && self.words.windows(wanted.len()).any(|run| {
                let whole = run.first().map(|word| word.clause) == run.last().map(|it| it.clause);
                // What is denied is told by the first: "skip tests" is not denied by its own "skip".
                whole
                    && run.first().is_some_and(|word| !word.denied)
                    && run.iter().zip(wanted).all(|(word, wanted)| is_same(&word.text, wanted))
            })
    }

    /// Whether what is at a place of the text is denied.
    pub(crate) fn denies(&self, at: usize) -> bool {
        // A place inside a word is that word's; between two, the next one's.
        let next = self.words.iter().position(|word| at < word.at + word.text.len());
        next.and_then(|next| self.words.get(next)).is_some_and(|word| word.denied)
    }
}

/// Cuts a text into words, and says before which word there is which mark; the last is after all.
fn cut(text: &str) -> (Vec<Word>, Vec<(usize, Mark)>) {
    let (mut words, mut marks) = (Vec::<Word>::new(), Vec::new());
    let (mut open, mut in_code, mut clause) = (false, false, 0);
    let (mut comma, mut joined) = (false, false);
    for (at, letter) in text.char_indices() {
        let letter = if letter == '\u{2019}' { '\'' } else { letter };
        let rest = &text[at + text[at..].chars().next().map_or(1, char::len_utf8)..];
        if letter.is_alphanumeric() || letter == '_' || (letter == '\'' && open) {
            if !open {
                let is_name = in_code || joined;
                words.push(Word { text: String::new(), at, clause, comma, is_name, denied: false });
                (open, comma) = (true, false);
            }
            if let Some(word) = words.last_mut() {
                word.text.extend(letter.to_lowercase());
            }
            continue;
        }
        let was_open = std::mem::take(&mut open);
        // "no-op" and `--without-table` are names.
        joined = letter == '-' && !rest.starts_with(char::is_whitespace);
        if joined
            && was_open
            && let Some(word) = words.last_mut()
        {
            word.is_name = true;
        }
        if letter == '`' {
            in_code = !in_code;
        }
        let space_follows = rest.is_empty() || rest.starts_with(char::is_whitespace);
        let mark = match letter {
            _ if in_code => None,
            '\n' if rest.trim_start().starts_with(['-', '*', '\u{2022}']) => Some(Mark::Bullet),
            '\n' if rest.trim_start_matches([' ', '\t']).starts_with('\n') => Some(Mark::Full),
            '(' | ')' | '!' | '?' | '\u{2013}' | '\u{2014}' => Some(Mark::Full),
            // A dot inside a name ends nothing.
            '.' if space_follows => Some(Mark::Full),
            ':' if space_follows => Some(Mark::Colon),
            ';' => Some(Mark::Semicolon),
            '-' if space_follows && !was_open => Some(Mark::Full),
            ',' if space_follows => Some(Mark::Comma),
            _ => None,
        };
        match mark {
            Some(Mark::Comma) => comma = true,
            Some(mark) if marks.last().is_none_or(|(end, _)| *end < words.len()) => {
                marks.push((words.len(), mark));
                clause += 1;
                comma = false;
            }
            _ => {}
        }
    }
    marks.push((words.len(), Mark::Full));
    (words, marks)
}

/// Finds out which words of a clause are denied.
fn read(clause: &mut [Word]) {
    let mut scopes: Vec<(Reach, usize)> = Vec::new();
    let mut at = 0;
    while at < clause.len() {
        if ends_all(clause, at) {
            scopes.clear();
        }
        scopes.retain(|(reach, begun)| {
            let is_over = match reach {
                Reach::Clause => false,
                Reach::Object => ends_object(clause, *begun, at),
                Reach::Front => clause[at].comma || ends_object(clause, *begun, at),
            };
            at - begun <= REACH && !is_over
        });
        let denied = scopes.len() % 2 == 1;
        let cue = denial_at(clause, at);
        let length = cue.map_or(1, |cue| cue.words);
        for word in clause.iter_mut().skip(at).take(length) {
            word.denied = denied;
        }
        at += length;
        if let Some(Cue { reach: Some(reach), .. }) = cue {
            scopes.push((reach, at));
        }
    }
    for at in 0..clause.len() {
        if left_denial_at(clause, at) {
            for place in subject_before(clause, at) {
                // Two cancel out here as well: "we do not leave the layout untouched".
                clause[place].denied = !clause[place].denied;
            }
        }
    }
}

/// Whether every denial before a word ends at it.
fn ends_all(clause: &[Word], at: usize) -> bool {
    let word = &clause[at];
    if word.is_name && !word.comma {
        return false;
    }
    if starts_clause(&word.text) && !word.is_name {
        return true;
    }
    let joins = !word.is_name && joins_phrases(&word.text);
    if !joins && !word.comma {
        return false;
    }
    if joins && word.text == "nor" {
        return true;
    }
    let next = if joins { at + 1 } else { at };
    // A denial that is said again begins anew: "no banner and no progress bar".
    if denial_at(clause, next).is_some() {
        return true;
    }
    if joins && word.text != "and" && !word.comma {
        return false;
    }
    let part = part_from(clause, next);
    let has_verb = (next..next + part).any(|place| is_verb(clause, place));
    has_verb || (!joins && part > LISTED)
}

/// How many words there are until the next comma or conjunction.
fn part_from(clause: &[Word], from: usize) -> usize {
    let rest = clause.get(from..).unwrap_or_default();
    let ends = |word: &Word| !word.is_name && joins_phrases(&word.text);
    1 + rest.iter().skip(1).take_while(|word| !word.comma && !ends(word)).count()
}

/// Whether the object that a denial is about ends before a word.
fn ends_object(clause: &[Word], begun: usize, at: usize) -> bool {
    let word = &clause[at];
    if word.is_name || at <= begun {
        return false;
    }
    let before = &clause[at - 1];
    END_OF_OBJECT.contains(&word.text.as_str())
        || is_verb(clause, at)
        // Another thing begins: "instead of snippets the page has …".
        || (is_determiner(&word.text) && (before.is_name || !starts_phrase(&before.text)))
}

/// The words of the subject that stands before a place.
fn subject_before(clause: &[Word], at: usize) -> Vec<usize> {
    let (mut subject, mut listed) = (Vec::new(), false);
    for place in (0..at).rev() {
        let word = &clause[place];
        if is_verb(clause, place) || (!word.is_name && starts_clause(&word.text)) {
            break;
        }
        let joins = !word.is_name && joins_phrases(&word.text);
        // "We call it and the layout stays as it is": it is not of the layout that the first half is.
        if joins && (0..place).any(|earlier| is_verb(clause, earlier)) {
            break;
        }
        listed |= joins;
        subject.push(place);
        let begins = place == 0;
        let before = if begins { None } else { clause.get(place - 1) };
        let apart = before.is_some_and(|it| it.is_name || !starts_phrase(&it.text));
        let another = is_determiner(&word.text) && !word.is_name && apart && !joins;
        if begins || (another && !word.comma) || (word.comma && !listed) {
            break;
        }
    }
    subject
}

/// Whether a clause says something by itself.
fn is_sentence(clause: &[Word]) -> bool {
    (0..clause.len()).any(|at| is_verb(clause, at))
}

/// Whether a clause is of things and not of a deed, though some of them are told with a verb.
fn is_list(clause: &[Word]) -> bool {
    let first = clause.first().map(|word| word.text.as_str());
    first.is_some_and(|word| matches!(word, "any" | "anything" | "all" | "every" | "everything"))
        || (0..clause.len()).find(|at| is_verb(clause, *at)).is_some_and(|verb| {
            verb > 0 && matches!(clause[verb - 1].text.as_str(), "which" | "that")
        })
}

/// Whether two words are the same, but for a plural.
fn is_same(found: &str, wanted: &str) -> bool {
    found == wanted || singulars(found).any(|one| one == wanted) || {
        wanted.strip_suffix('s').is_some_and(|one| one == found)
    }
}

/// What a word may be a plural of.
pub(crate) fn singulars(word: &str) -> impl Iterator<Item = String> {
    let of_s = word.strip_suffix('s').map(str::to_owned);
    let of_es = word.strip_suffix("es").map(str::to_owned);
    let of_ies = word.strip_suffix("ies").map(|one| format!("{one}y"));
    of_s.into_iter().chain(of_es).chain(of_ies)
}
