//! A person's own words: what is left of a message without what it quotes, and the parts it has.
//!
//! Whatever somebody else said is covered up before anything is read: quotes, code, pasted lines of
//! a log, and what follows "the agent said:". The text keeps its length, so that a place in it is
//! the same place in the message.

use std::ops::Range;

use regex::Regex;

/// What covers somebody else's words.
const COVER: char = '\u{1a}';

/// A regular expression, made once. One that cannot be made matches nothing, and stops a test.
macro_rules! form {
    ($text:expr) => {{
        static READY: std::sync::LazyLock<Option<regex::Regex>> = std::sync::LazyLock::new(|| {
            let made = regex::Regex::new($text);
            debug_assert!(made.is_ok(), "{made:?}");
            made.ok()
        });
        $crate::words::Form(READY.as_ref())
    }};
}
pub(crate) use form;

/// A form that text may have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form(pub(crate) Option<&'static Regex>);

impl Form {
    pub(crate) fn is(self, text: &str) -> bool {
        self.0.is_some_and(|regex| regex.is_match(text))
    }

    pub(crate) fn find(self, text: &str) -> Option<Range<usize>> {
        Some(self.0?.find(text)?.range())
    }

    /// Where a named group is.
    pub(crate) fn group(self, text: &str, name: &str) -> Option<Range<usize>> {
        Some(self.0?.captures(text)?.name(name)?.range())
    }

    fn all(self, text: &str) -> Vec<Range<usize>> {
        self.0.map(|regex| regex.find_iter(text).map(|it| it.range()).collect()).unwrap_or_default()
    }
}

/// A message with what is not the person's own covered up.
#[derive(Debug)]
pub(crate) struct Own<'a> {
    /// As it was written.
    pub(crate) message: &'a str,
    /// In lower case, covered; as long as the message.
    pub(crate) text: String,
    /// The first thing that was quoted, without its marks.
    pub(crate) quoted: Option<&'a str>,
    /// Its parts.
    pub(crate) clauses: Vec<Clause>,
}

/// A part of a message between marks or joining words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Clause {
    /// Where.
    pub(crate) at: Range<usize>,
    /// Whether a question mark ends it.
    pub(crate) asked: bool,
    /// Whether a colon ends it, so that what follows belongs to it.
    pub(crate) colon: bool,
}

impl<'a> Own<'a> {
    pub(crate) fn of(message: &'a str) -> Self {
        let mut text = message.to_ascii_lowercase();
        let mut quoted = None;
        let pasted = [
            form!(r"(?s)```.*?(?:```|$)"),
            form!(r"(?m)^\s*(?:>|\$ |\|).*$"),
            form!(r"(?m)^.*\d{4}-\d\d-\d\d[t ]\d\d:\d\d.*$"),
            form!(
                r"(?m)^\s*\[?(?:error|warn|warning|info|debug|trace|fatal)(?:\]| \[|:? \S*\[).*$"
            ),
            form!(r"(?m)^(?:traceback|\s+at \S|\s+file \x22|[a-z.]*(?:error|exception)\b:).*$"),
            // Lines of a chat or a transcript, and what is set in under another line.
            form!(r"(?m)^\s*[\[(]?\d\d?:\d\d(?::\d\d)?\b.*$"),
            form!(r"(?m)^\s*(?:assistant|user|bot|agent|human|ai)\s*:.*$"),
            form!(r"(?m)\n(?:    |\t).*$"),
            form!(r"</?[a-z_-]+>"),
        ];
        for form in pasted {
            for range in form.all(&text) {
                cover(&mut text, range);
            }
        }
        // A quote that never ends goes to the end of its line: too much is covered rather than too
        // little.
        let quotes = [
            form!("`[^`\n]*(?:`|\n|$)"),
            form!("“[^”\n]*(?:”|\n|$)"),
            form!("\"[^\"\n]*(?:\"|\n|$)"),
            form!(r"(?:^|[\s(:])['‘][^'’\n]+['’](?:$|[\s.,;:!?)])"),
        ];
        for form in quotes {
            for range in form.all(&text) {
                let marks: &[char] = &['`', '“', '”', '"', '\'', '‘', '’', '(', ')', ':', '.', ','];
                let inside = message.get(range.clone()).unwrap_or_default();
                quoted = quoted.or(Some(inside.trim().trim_matches(marks)));
                let (lead, tail) = around(inside);
                cover(&mut text, range.start + lead..range.end - tail);
            }
        }
        let told = form!(
            r"\b(?:says?|said|wrote|writes|prints?|printed|message|replied|asks|asked)\b[^:\n]{0,20}:(?P<told>[^\n]*)"
        );
        if let Some(range) = told.group(&text, "told") {
            cover(&mut text, range);
        }
        let clauses = clauses(&text);
        Self { message, text, quoted, clauses }
    }

    /// Whether some of it is not the person's own.
    pub(crate) fn quotes(&self) -> bool {
        self.text.contains(COVER)
    }

    /// What a clause says.
    pub(crate) fn clause(&self, clause: &Clause) -> &str {
        self.text.get(clause.at.clone()).unwrap_or_default()
    }

    /// The person's words at a place as they wrote them, in one line and without what cannot be
    /// seen, so that what is shown is what is done.
    pub(crate) fn said(&self, range: Range<usize>) -> String {
        let said = self.message.get(range).unwrap_or_default();
        clean(said)
    }

    /// Where the sentence ends that a place is in.
    pub(crate) fn sentence_end(&self, from: usize) -> usize {
        let rest = self.text.get(from..).unwrap_or_default();
        form!(r"[.!?](?:\s|$)|\n").find(rest).map_or(self.text.len(), |found| from + found.start)
    }
}

/// How much of a quote in single marks is the space around it.
fn around(quote: &str) -> (usize, usize) {
    let lead = quote.find(['\'', '‘', '`', '"', '“']).unwrap_or(0);
    let tail = quote.rfind(['\'', '’', '`', '"', '”']).map_or(0, |at| {
        quote.get(at..).map_or(0, |rest| rest.len() - rest.chars().next().map_or(0, char::len_utf8))
    });
    if lead + tail < quote.len() { (lead, tail) } else { (0, 0) }
}

fn cover(text: &mut String, range: Range<usize>) {
    if text.is_char_boundary(range.start) && text.is_char_boundary(range.end) {
        let blank = COVER.to_string().repeat(range.len());
        text.replace_range(range, &blank);
    }
}

/// Text in one line, without characters that cannot be seen or that turn the direction of others.
pub(crate) fn clean(text: &str) -> String {
    let seen: String = text
        .chars()
        .map(|c| if c.is_whitespace() { ' ' } else { c })
        .filter(|c| !c.is_control() && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'))
        .collect();
    let words: Vec<_> = seen.split(' ').filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

fn clauses(text: &str) -> Vec<Clause> {
    let ends =
        form!(r"(?:\s*(?:[.!?;:,]+(?:\s|$)|\n|\s[-–—]\s|&&|\|\||;|\b(?:and|then|but)\b)\s*)+");
    let mut clauses = Vec::new();
    let mut from = 0;
    for end in ends.all(text) {
        let mark = text.get(end.clone()).unwrap_or_default();
        clauses.push(Clause {
            at: from..end.start,
            asked: mark.contains('?'),
            colon: mark.contains(':'),
        });
        from = end.end;
    }
    clauses.push(Clause { at: from..text.len(), asked: false, colon: false });
    clauses.retain(|clause| text.get(clause.at.clone()).is_some_and(|it| !it.trim().is_empty()));
    clauses
}

/// The words of a text, in lower case, with their places.
pub(crate) fn words(text: &str) -> Vec<(Range<usize>, &str)> {
    form!(r"[a-z0-9_]+(?:['’][a-z]+)?")
        .all(text)
        .into_iter()
        .filter_map(|at| Some((at.clone(), text.get(at)?)))
        .collect()
}

/// A word without its ending, so that `retries`, `retrying` and `retry` are one.
pub(crate) fn stem(word: &str) -> String {
    let word = word.split(['\'', '’']).next().unwrap_or_default();
    let mut stem = word.to_owned();
    for (ending, instead) in
        [("ies", "y"), ("sses", "ss"), ("ss", "ss"), ("us", "us"), ("is", "is"), ("s", "")]
    {
        if let Some(start) = stem.strip_suffix(ending).filter(|start| start.len() >= 2) {
            stem = format!("{start}{instead}");
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
