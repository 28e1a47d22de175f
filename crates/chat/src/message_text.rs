//! Text of a message with quoted parts masked, split into clauses.
//!
//! Text by others is masked before parsing: quotes, code, pasted log lines, and text after "the
//! agent said:". Masking keeps the length, so offsets are valid in the original message too.

use std::ops::Range;

use regex::Regex;

/// Character that masks text by others.
const MASK: char = '\u{1a}';

/// Regular expression, compiled once. An invalid one matches nothing, and fails a test.
macro_rules! phrase {
    ($text:expr) => {{
        static REGEX: std::sync::LazyLock<Option<regex::Regex>> = std::sync::LazyLock::new(|| {
            let compiled = regex::Regex::new($text);
            debug_assert!(compiled.is_ok(), "{compiled:?}");
            compiled.ok()
        });
        $crate::message_text::PhraseRegex(REGEX.as_ref())
    }};
}
pub(crate) use phrase;

/// Compiled pattern of a phrase.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PhraseRegex(pub(crate) Option<&'static Regex>);

impl PhraseRegex {
    pub(crate) fn is_match(self, text: &str) -> bool {
        self.0.is_some_and(|regex| regex.is_match(text))
    }

    pub(crate) fn find(self, text: &str) -> Option<Range<usize>> {
        Some(self.0?.find(text)?.range())
    }

    /// Returns the range of a named group.
    pub(crate) fn group(self, text: &str, name: &str) -> Option<Range<usize>> {
        Some(self.0?.captures(text)?.name(name)?.range())
    }

    fn find_all(self, text: &str) -> Vec<Range<usize>> {
        self.0
            .map(|regex| regex.find_iter(text).map(|matched| matched.range()).collect())
            .unwrap_or_default()
    }
}

/// Message with text by others masked.
#[derive(Debug)]
pub(crate) struct MessageText<'a> {
    /// Original message.
    pub(crate) original: &'a str,
    /// Lower case and masked, with the length of the original.
    pub(crate) masked: String,
    /// First quoted text, without its quotation marks.
    pub(crate) quoted: Option<&'a str>,
    /// Clauses of the message.
    pub(crate) clauses: Vec<MessageClause>,
}

/// Part of a message between punctuation marks or conjunctions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MessageClause {
    /// Range in the message.
    pub(crate) range: Range<usize>,
    /// Ends with a question mark.
    pub(crate) is_question: bool,
    /// Ends with a colon, so the next clause belongs to it.
    pub(crate) ends_with_colon: bool,
}

impl<'a> MessageText<'a> {
    pub(crate) fn parse(original: &'a str) -> Self {
        let mut masked = original.to_ascii_lowercase();
        let mut quoted = None;
        let pasted = [
            phrase!(r"(?s)```.*?(?:```|$)"),
            phrase!(r"(?m)^\s*(?:>|\$ |\|).*$"),
            phrase!(r"(?m)^.*\d{4}-\d\d-\d\d[t ]\d\d:\d\d.*$"),
            phrase!(
                r"(?m)^\s*\[?(?:error|warn|warning|info|debug|trace|fatal)(?:\]| \[|:? \S*\[).*$"
            ),
            phrase!(r"(?m)^(?:traceback|\s+at \S|\s+file \x22|[a-z.]*(?:error|exception)\b:).*$"),
            // Lines of a chat or transcript, and lines indented below another.
            phrase!(r"(?m)^\s*[\[(]?\d\d?:\d\d(?::\d\d)?\b.*$"),
            phrase!(r"(?m)^\s*(?:assistant|user|bot|agent|human|ai)\s*:.*$"),
            phrase!(r"(?m)\n(?:    |\t).*$"),
            phrase!(r"</?[a-z_-]+>"),
        ];
        for phrase in pasted {
            for range in phrase.find_all(&masked) {
                mask(&mut masked, range);
            }
        }
        // An unclosed quote extends to the end of its line: masking too much is safer than too
        // little.
        let quotes = [
            phrase!("`[^`\n]*(?:`|\n|$)"),
            phrase!("“[^”\n]*(?:”|\n|$)"),
            phrase!("\"[^\"\n]*(?:\"|\n|$)"),
            phrase!(r"(?:^|[\s(:])['‘][^'’\n]+['’](?:$|[\s.,;:!?)])"),
        ];
        for phrase in quotes {
            for range in phrase.find_all(&masked) {
                let marks: &[char] = &['`', '“', '”', '"', '\'', '‘', '’', '(', ')', ':', '.', ','];
                let inside = original.get(range.clone()).unwrap_or_default();
                quoted = quoted.or(Some(inside.trim().trim_matches(marks)));
                let (lead, tail) = quote_margins(inside);
                mask(&mut masked, range.start + lead..range.end - tail);
            }
        }
        let reported = phrase!(
            r"\b(?:says?|said|wrote|writes|prints?|printed|message|replied|asks|asked)\b[^:\n]{0,20}:(?P<reported>[^\n]*)"
        );
        if let Some(range) = reported.group(&masked, "reported") {
            mask(&mut masked, range);
        }
        let clauses = split_clauses(&masked);
        Self { original, masked, quoted, clauses }
    }

    /// Returns true if some of the text is masked.
    pub(crate) fn has_quotes(&self) -> bool {
        self.masked.contains(MASK)
    }

    /// Returns the masked text of a clause.
    pub(crate) fn clause_text(&self, clause: &MessageClause) -> &str {
        self.masked.get(clause.range.clone()).unwrap_or_default()
    }

    /// Returns the original text in a range, on one line and without invisible characters, so that
    /// the text shown is the text used.
    pub(crate) fn original_text(&self, range: Range<usize>) -> String {
        let text = self.original.get(range).unwrap_or_default();
        sanitize_line(text)
    }

    /// Returns the end of the sentence that contains `from`.
    pub(crate) fn sentence_end(&self, from: usize) -> usize {
        let rest = self.masked.get(from..).unwrap_or_default();
        phrase!(r"[.!?](?:\s|$)|\n").find(rest).map_or(self.masked.len(), |end| from + end.start)
    }
}

/// Returns the widths of the space around a quote in single quotation marks.
fn quote_margins(quote: &str) -> (usize, usize) {
    let lead = quote.find(['\'', '‘', '`', '"', '“']).unwrap_or(0);
    let tail = quote.rfind(['\'', '’', '`', '"', '”']).map_or(0, |at| {
        quote.get(at..).map_or(0, |rest| rest.len() - rest.chars().next().map_or(0, char::len_utf8))
    });
    if lead + tail < quote.len() { (lead, tail) } else { (0, 0) }
}

fn mask(text: &mut String, range: Range<usize>) {
    if text.is_char_boundary(range.start) && text.is_char_boundary(range.end) {
        let blank = MASK.to_string().repeat(range.len());
        text.replace_range(range, &blank);
    }
}

/// Puts text on one line and removes invisible characters and direction overrides.
pub(crate) fn sanitize_line(text: &str) -> String {
    let visible: String = text
        .chars()
        .map(|c| if c.is_whitespace() { ' ' } else { c })
        .filter(|c| !c.is_control() && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'))
        .collect();
    let words: Vec<_> = visible.split(' ').filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

fn split_clauses(text: &str) -> Vec<MessageClause> {
    let separators =
        phrase!(r"(?:\s*(?:[.!?;:,]+(?:\s|$)|\n|\s[-–—]\s|&&|\|\||;|\b(?:and|then|but)\b)\s*)+");
    let mut clauses = Vec::new();
    let mut from = 0;
    for separator in separators.find_all(text) {
        let mark = text.get(separator.clone()).unwrap_or_default();
        clauses.push(MessageClause {
            range: from..separator.start,
            is_question: mark.contains('?'),
            ends_with_colon: mark.contains(':'),
        });
        from = separator.end;
    }
    clauses.push(MessageClause {
        range: from..text.len(),
        is_question: false,
        ends_with_colon: false,
    });
    clauses.retain(|clause| {
        text.get(clause.range.clone()).is_some_and(|clause_text| !clause_text.trim().is_empty())
    });
    clauses
}

/// Returns the words of a text, in lower case, with their ranges.
pub(crate) fn tokenize(text: &str) -> Vec<(Range<usize>, &str)> {
    phrase!(r"[a-z0-9_]+(?:['’][a-z]+)?")
        .find_all(text)
        .into_iter()
        .filter_map(|at| Some((at.clone(), text.get(at)?)))
        .collect()
}

/// Returns the stem of a word, so that `retries`, `retrying` and `retry` are equal.
pub(crate) fn stem(word: &str) -> String {
    let word = word.split(['\'', '’']).next().unwrap_or_default();
    let mut stem = word.to_owned();
    for (ending, replacement) in
        [("ies", "y"), ("sses", "ss"), ("ss", "ss"), ("us", "us"), ("is", "is"), ("s", "")]
    {
        if let Some(start) = stem.strip_suffix(ending).filter(|start| start.len() >= 2) {
            stem = format!("{start}{replacement}");
            break;
        }
    }
    for ending in ["ing", "ion", "ed", "er", "e"] {
        if let Some(start) = stem.strip_suffix(ending).filter(|start| start.len() >= 3) {
            stem = start.to_owned();
            break;
        }
    }
    stem
}
