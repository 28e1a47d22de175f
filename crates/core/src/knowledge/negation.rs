//! Detection of negated mentions in a text.
//!
//! "It does not touch payments" mentions payments, but a rule about payments does not apply to it.
//! The text is split into clauses. A negation extends to the end of its clause or object; a
//! negation inside another one cancels it; and a statement after its subject ("the layout stays as
//! it is") extends back to it. In ambiguous cases the thing counts as mentioned, because one
//! question too many costs less than one too few.
//!
//! Text marked as code (in backticks) can be mentioned and negated, but does not negate anything
//! itself.

mod grammar;

use self::grammar::{
    MAX_LIST_ITEM_WORDS, NegationCue, NegationScope, OBJECT_TERMINATORS, backward_negation_at,
    is_determiner, is_exclusion_heading, is_verb, joins_phrases, negation_at, starts_clause,
    starts_phrase,
};

/// Longest extent of a negation, in words.
const MAX_SCOPE_WORDS: usize = 16;

/// Text as words, each negated or not.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mentions {
    words: Vec<MentionWord>,
}

/// Word in lower case.
#[derive(Debug, Clone)]
pub(crate) struct MentionWord {
    pub(crate) text: String,
    /// Byte offset in the text.
    offset: usize,
    /// Index of its clause.
    clause: usize,
    /// Follows a comma.
    follows_comma: bool,
    /// Code, or part of a name such as `--without-table`; has no grammar.
    is_identifier: bool,
    is_negated: bool,
}

/// Boundary between clauses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClauseMark {
    Comma,
    Semicolon,
    Colon,
    /// Line that starts with a dash or asterisk, which continues a list.
    Bullet,
    FullStop,
}

impl Mentions {
    pub(crate) fn parse(text: &str) -> Self {
        let (mut words, marks) = tokenize(text);
        // A heading such as "Out of scope:" negates the text that it introduces.
        let (mut excluded, mut from) = (false, 0);
        for (end, mark) in marks {
            if mark == ClauseMark::Comma {
                continue;
            }
            let Some(clause) = words.get_mut(from..end) else { continue };
            mark_negations(clause);
            if excluded && (mark == ClauseMark::Colon || !is_sentence(clause) || is_list(clause)) {
                for word in &mut *clause {
                    word.is_negated = true;
                }
            }
            excluded = match mark {
                ClauseMark::Colon => is_exclusion_heading(clause),
                ClauseMark::FullStop => false,
                ClauseMark::Bullet | ClauseMark::Semicolon | ClauseMark::Comma => excluded,
            };
            from = end;
        }
        Self { words }
    }

    /// Returns the words in order.
    pub(crate) fn words(&self) -> &[MentionWord] {
        &self.words
    }

    /// Returns true if the text mentions a phrase without negating it.
    pub(crate) fn contains_phrase(&self, phrase: &[String]) -> bool {
        !phrase.is_empty()
            && self.words.windows(phrase.len()).any(|run| {
                let in_one_clause =
                    run.first().map(|word| word.clause) == run.last().map(|word| word.clause);
                // The first word decides: in "skip tests", "skip" does not negate itself.
                in_one_clause
                    && run.first().is_some_and(|word| !word.is_negated)
                    && run
                        .iter()
                        .zip(phrase)
                        .all(|(word, expected)| is_same_word(&word.text, expected))
            })
    }

    /// Returns true if the text at an offset is negated.
    pub(crate) fn is_negated_at(&self, at: usize) -> bool {
        // An offset inside a word belongs to that word; one between two words to the next.
        let next = self.words.iter().position(|word| at < word.offset + word.text.len());
        next.and_then(|next| self.words.get(next)).is_some_and(|word| word.is_negated)
    }
}

/// Splits a text into words and clause boundaries, each with the index of the word after it.
fn tokenize(text: &str) -> (Vec<MentionWord>, Vec<(usize, ClauseMark)>) {
    let (mut words, mut marks) = (Vec::<MentionWord>::new(), Vec::new());
    let (mut in_word, mut in_code, mut clause) = (false, false, 0);
    let (mut comma, mut joined) = (false, false);
    for (at, letter) in text.char_indices() {
        let letter = if letter == '\u{2019}' { '\'' } else { letter };
        let rest = &text[at + text[at..].chars().next().map_or(1, char::len_utf8)..];
        if letter.is_alphanumeric() || letter == '_' || (letter == '\'' && in_word) {
            if !in_word {
                let is_name = in_code || joined;
                words.push(MentionWord {
                    text: String::new(),
                    offset: at,
                    clause,
                    follows_comma: comma,
                    is_identifier: is_name,
                    is_negated: false,
                });
                (in_word, comma) = (true, false);
            }
            if let Some(word) = words.last_mut() {
                word.text.extend(letter.to_lowercase());
            }
            continue;
        }
        let was_in_word = std::mem::take(&mut in_word);
        // "no-op" and `--without-table` are names.
        joined = letter == '-' && !rest.starts_with(char::is_whitespace);
        if joined
            && was_in_word
            && let Some(word) = words.last_mut()
        {
            word.is_identifier = true;
        }
        if letter == '`' {
            in_code = !in_code;
        }
        let space_follows = rest.is_empty() || rest.starts_with(char::is_whitespace);
        let mark = match letter {
            _ if in_code => None,
            '\n' if rest.trim_start().starts_with(['-', '*', '\u{2022}']) => {
                Some(ClauseMark::Bullet)
            }
            '\n' if rest.trim_start_matches([' ', '\t']).starts_with('\n') => {
                Some(ClauseMark::FullStop)
            }
            '(' | ')' | '!' | '?' | '\u{2013}' | '\u{2014}' => Some(ClauseMark::FullStop),
            // A dot inside a name is not a boundary.
            '.' if space_follows => Some(ClauseMark::FullStop),
            ':' if space_follows => Some(ClauseMark::Colon),
            ';' => Some(ClauseMark::Semicolon),
            '-' if space_follows && !was_in_word => Some(ClauseMark::FullStop),
            ',' if space_follows => Some(ClauseMark::Comma),
            _ => None,
        };
        match mark {
            Some(ClauseMark::Comma) => comma = true,
            Some(mark) if marks.last().is_none_or(|(end, _)| *end < words.len()) => {
                marks.push((words.len(), mark));
                clause += 1;
                comma = false;
            }
            _ => {}
        }
    }
    marks.push((words.len(), ClauseMark::FullStop));
    (words, marks)
}

/// Marks the negated words of a clause.
fn mark_negations(clause: &mut [MentionWord]) {
    let mut scopes: Vec<(NegationScope, usize)> = Vec::new();
    let mut at = 0;
    while at < clause.len() {
        if ends_all_negations(clause, at) {
            scopes.clear();
        }
        scopes.retain(|(scope, start)| {
            let is_over = match scope {
                NegationScope::Clause => false,
                NegationScope::Object => ends_object(clause, *start, at),
                NegationScope::Front => clause[at].follows_comma || ends_object(clause, *start, at),
            };
            at - start <= MAX_SCOPE_WORDS && !is_over
        });
        let is_negated = scopes.len() % 2 == 1;
        let cue = negation_at(clause, at);
        let length = cue.map_or(1, |cue| cue.word_count);
        for word in clause.iter_mut().skip(at).take(length) {
            word.is_negated = is_negated;
        }
        at += length;
        if let Some(NegationCue { scope: Some(scope), .. }) = cue {
            scopes.push((scope, at));
        }
    }
    for at in 0..clause.len() {
        if backward_negation_at(clause, at) {
            for position in subject_before(clause, at) {
                // Two negations cancel out here as well: "we do not leave the layout untouched".
                clause[position].is_negated = !clause[position].is_negated;
            }
        }
    }
}

/// Returns true if every negation before a word ends at it.
fn ends_all_negations(clause: &[MentionWord], at: usize) -> bool {
    let word = &clause[at];
    if word.is_identifier && !word.follows_comma {
        return false;
    }
    if starts_clause(&word.text) && !word.is_identifier {
        return true;
    }
    let joins = !word.is_identifier && joins_phrases(&word.text);
    if !joins && !word.follows_comma {
        return false;
    }
    if joins && word.text == "nor" {
        return true;
    }
    let next = if joins { at + 1 } else { at };
    // A repeated negation starts again: "no banner and no progress bar".
    if negation_at(clause, next).is_some() {
        return true;
    }
    if joins && word.text != "and" && !word.follows_comma {
        return false;
    }
    let length = phrase_length(clause, next);
    let has_verb = (next..next + length).any(|position| is_verb(clause, position));
    has_verb || (!joins && length > MAX_LIST_ITEM_WORDS)
}

/// Returns the number of words up to the next comma or conjunction.
fn phrase_length(clause: &[MentionWord], from: usize) -> usize {
    let rest = clause.get(from..).unwrap_or_default();
    let is_conjunction = |word: &MentionWord| !word.is_identifier && joins_phrases(&word.text);
    1 + rest.iter().skip(1).take_while(|word| !word.follows_comma && !is_conjunction(word)).count()
}

/// Returns true if the object of a negation ends before a word.
fn ends_object(clause: &[MentionWord], start: usize, at: usize) -> bool {
    let word = &clause[at];
    if word.is_identifier || at <= start {
        return false;
    }
    let before = &clause[at - 1];
    OBJECT_TERMINATORS.contains(&word.text.as_str())
        || is_verb(clause, at)
        // Another object starts: "instead of snippets the page has …".
        || (is_determiner(&word.text) && (before.is_identifier || !starts_phrase(&before.text)))
}

/// Returns the words of the subject before a position.
fn subject_before(clause: &[MentionWord], at: usize) -> Vec<usize> {
    let (mut subject, mut listed) = (Vec::new(), false);
    for position in (0..at).rev() {
        let word = &clause[position];
        if is_verb(clause, position) || (!word.is_identifier && starts_clause(&word.text)) {
            break;
        }
        let joins = !word.is_identifier && joins_phrases(&word.text);
        // "We call it and the layout stays as it is": the first half is not about the layout.
        if joins && (0..position).any(|earlier| is_verb(clause, earlier)) {
            break;
        }
        listed |= joins;
        subject.push(position);
        let is_first = position == 0;
        let before = if is_first { None } else { clause.get(position - 1) };
        let follows_noun =
            before.is_some_and(|word| word.is_identifier || !starts_phrase(&word.text));
        let starts_phrase_here =
            is_determiner(&word.text) && !word.is_identifier && follows_noun && !joins;
        if is_first
            || (starts_phrase_here && !word.follows_comma)
            || (word.follows_comma && !listed)
        {
            break;
        }
    }
    subject
}

/// Returns true if a clause is a complete statement.
fn is_sentence(clause: &[MentionWord]) -> bool {
    (0..clause.len()).any(|at| is_verb(clause, at))
}

/// Returns true if a clause lists things, even if some of them contain a verb.
fn is_list(clause: &[MentionWord]) -> bool {
    let first = clause.first().map(|word| word.text.as_str());
    first.is_some_and(|word| matches!(word, "any" | "anything" | "all" | "every" | "everything"))
        || (0..clause.len()).find(|at| is_verb(clause, *at)).is_some_and(|verb| {
            verb > 0 && matches!(clause[verb - 1].text.as_str(), "which" | "that")
        })
}

/// Returns true if two words are equal, ignoring a plural ending.
fn is_same_word(word: &str, expected: &str) -> bool {
    word == expected || singulars(word).any(|singular| singular == expected) || {
        expected.strip_suffix('s').is_some_and(|singular| singular == word)
    }
}

/// Returns the possible singular forms of a word.
pub(crate) fn singulars(word: &str) -> impl Iterator<Item = String> {
    let of_s = word.strip_suffix('s').map(str::to_owned);
    let of_es = word.strip_suffix("es").map(str::to_owned);
    let of_ies = word.strip_suffix("ies").map(|stem| format!("{stem}y"));
    of_s.into_iter().chain(of_es).chain(of_ies)
}
