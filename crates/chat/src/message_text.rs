//! Text of a message with quoted parts masked, split into clauses.
//!
//! Text by others is masked before parsing: quotes, code, pasted log lines, and text after "the
//! agent said:". Masking keeps the length, so offsets are valid in the original message too.
//!
//! A quote that is exactly the title or the ID of a task is not text by others: it names the task. A
//! character that stands for the task replaces it, so that no word of the title is read as a command.

use std::ops::Range;

use regex::Regex;

use crate::ChatTask;

/// Character that masks text by others.
const MASK: char = '\u{1a}';

/// Character that fills the rest of a quoted title.
const TITLE_FILL: &str = "\u{1b}";

/// First of the private-use characters that stand for tasks named by their title, by position.
const FIRST_TITLE_MARK: u32 = 0xe000;

/// First of those that stand for tasks named by their number or ID.
const FIRST_ID_MARK: u32 = 0xec00;

/// Number of characters of each kind.
const MARKS: u32 = FIRST_ID_MARK - FIRST_TITLE_MARK;

/// Task that a quote names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuotedTask {
    /// Position of the task in the context; of the first one, if several have the title.
    pub(crate) index: usize,
    /// The quote is a title, which several tasks can have.
    pub(crate) is_title: bool,
}

/// Returns the task that a character stands for.
pub(crate) fn marked_task(character: char) -> Option<QuotedTask> {
    let code = u32::from(character).checked_sub(FIRST_TITLE_MARK)?;
    let is_title = code < MARKS;
    let index = if is_title { code } else { code - MARKS };
    let index = usize::try_from(index).ok().filter(|_| code < 2 * MARKS)?;
    Some(QuotedTask { index, is_title })
}

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
    /// First quoted text that names no task, without its quotation marks.
    pub(crate) quoted: Option<&'a str>,
    /// All quoted texts.
    quotes: Vec<&'a str>,
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
    /// Parses a message about these tasks.
    pub(crate) fn parse(original: &'a str, tasks: &[ChatTask]) -> Self {
        let mut masked = original.to_ascii_lowercase();
        let (mut quoted, mut quotes) = (None, Vec::new());
        // Nobody can write the characters that stand for tasks.
        let forged: Vec<Range<usize>> = masked
            .char_indices()
            .filter(|(_, character)| marked_task(*character).is_some())
            .map(|(at, character)| at..at + character.len_utf8())
            .collect();
        for range in forged {
            mask(&mut masked, range);
        }
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
        let patterns = [
            phrase!("`[^`\n]*(?:`|\n|$)"),
            phrase!("“[^”\n]*(?:”|\n|$)"),
            phrase!("\"[^\"\n]*(?:\"|\n|$)"),
            phrase!(r"(?:^|[\s(:])['‘][^'’\n]+['’](?:$|[\s.,;:!?)])"),
        ];
        for phrase in patterns {
            for range in phrase.find_all(&masked) {
                let marks: &[char] = &['`', '“', '”', '"', '\'', '‘', '’', '(', ')', ':', '.', ','];
                let inside = original.get(range.clone()).unwrap_or_default();
                let quote = inside.trim().trim_matches(marks);
                quotes.push(quote);
                let (lead, tail) = quote_margins(inside);
                let range = range.start + lead..range.end - tail;
                let mark = quoted_task(quote, tasks).and_then(|task| task_mark(task, range.len()));
                if let Some(mark) = mark {
                    replace(&mut masked, range, &mark);
                } else {
                    quoted = quoted.or(Some(quote));
                    mask(&mut masked, range);
                }
            }
        }
        let reported = phrase!(
            r"\b(?:says?|said|wrote|writes|prints?|printed|message|replied|asks|asked)\b[^:\n]{0,20}:(?P<reported>[^\n]*)"
        );
        if let Some(range) = reported.group(&masked, "reported") {
            mask(&mut masked, range);
        }
        let clauses = split_clauses(&masked);
        Self { original, masked, quoted, quotes, clauses }
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

/// Returns the task whose title, number or ID is exactly this quote.
fn quoted_task(quote: &str, tasks: &[ChatTask]) -> Option<QuotedTask> {
    let quote = comparable_title(quote);
    if quote.is_empty() {
        return None;
    }
    if let Some(index) = tasks.iter().position(|task| comparable_title(&task.title) == quote) {
        return Some(QuotedTask { index, is_title: true });
    }
    let number = quote.strip_prefix('#').and_then(|digits| digits.parse::<u32>().ok());
    let is_fragment = quote.chars().all(|digit| digit.is_ascii_hexdigit() || digit == '-')
        && quote.bytes().any(|digit| digit.is_ascii_digit());
    let is_named = |task: &ChatTask| {
        (number.is_some() && task.number == number)
            || (is_fragment && matches_id_fragment(&task.id.to_string(), &quote))
    };
    let mut named = tasks.iter().enumerate().filter(|(_, task)| is_named(task));
    match (named.next(), named.next()) {
        (Some((index, _)), None) => Some(QuotedTask { index, is_title: false }),
        _ => None,
    }
}

/// Returns true if an ID starts or ends with `fragment`, as on the command line.
pub(crate) fn matches_id_fragment(id: &str, fragment: &str) -> bool {
    let (id, fragment) = (id.replace('-', ""), fragment.replace('-', ""));
    fragment.len() >= 4
        && (id.starts_with(&fragment) || id.ends_with(&fragment) || matches_id_tail(&id, &fragment))
}

/// Matches the tail of an ID without its leading zeros, because people omit them.
fn matches_id_tail(id: &str, fragment: &str) -> bool {
    let tail = id.get(id.len().saturating_sub(12)..).unwrap_or_default().trim_start_matches('0');
    tail.starts_with(fragment)
}

/// Returns a title in the form in which titles are compared: one line, lower case, and without marks
/// at its ends.
pub(crate) fn comparable_title(title: &str) -> String {
    let marks: &[char] =
        &['`', '“', '”', '"', '\'', '‘', '’', '(', ')', ':', ';', '.', ',', '!', '?', ' '];
    sanitize_line(title).trim_matches(marks).to_lowercase()
}

/// Returns text of this length, in bytes, that stands for a task; `None` if it is too short.
fn task_mark(task: QuotedTask, length: usize) -> Option<String> {
    let first = if task.is_title { FIRST_TITLE_MARK } else { FIRST_ID_MARK };
    let index = u32::try_from(task.index).ok().filter(|index| *index < MARKS)?;
    let mark = char::from_u32(first + index)?;
    let rest = length.checked_sub(mark.len_utf8())?;
    Some(format!("{mark}{}", TITLE_FILL.repeat(rest)))
}

/// Returns the quoted texts of a message, which can be titles or IDs of tasks.
pub fn quoted_names(message: &str) -> Vec<String> {
    let text = MessageText::parse(message, &[]);
    text.quotes.iter().map(|quote| sanitize_line(quote)).filter(|it| !it.is_empty()).collect()
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
    let blank = MASK.to_string().repeat(range.len());
    replace(text, range, &blank);
}

fn replace(text: &mut String, range: Range<usize>, with: &str) {
    if text.is_char_boundary(range.start) && text.is_char_boundary(range.end) {
        text.replace_range(range, with);
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
        phrase!(r"(?:\s*(?:[.!?;:,]+(?:\s|$)|\n|\s[-–—&]\s|&&|\|\||;|\b(?:and|then|but)\b)\s*)+");
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
