//! Plain text: what an agent says, without what a terminal would obey.
//!
//! An agent's words, titles and plans end up on people's terminals. What moves the cursor, changes
//! the title, fills the clipboard or turns text around is taken out where it comes in, so that nobody
//! who shows it has to think of it.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use crate::agent::{Entry, Observer, Update};
use crate::permission::Ask;

const ESCAPE: char = '\u{1b}';
const BELL: char = '\u{7}';
/// Ends a string of control, as one character.
const STRING_END: char = '\u{9c}';

/// A text without control sequences. A sequence that is whole is taken out; whatever else is not
/// a letter of a text is replaced by a picture of it, so that it can be seen.
pub fn text(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_harmless) {
        return Cow::Borrowed(text);
    }
    let letters: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(&letter) = letters.get(at) {
        if let Some(after) = sequence(&letters, at) {
            at = after;
            continue;
        }
        at += 1;
        match letter {
            '\r' if letters.get(at) == Some(&'\n') => {}
            '\r' | '\u{2028}' | '\u{2029}' => out.push('\n'),
            letter if is_harmless(letter) => out.push(letter),
            // Unicode has pictures of the first 32.
            '\0'..='\u{1f}' => out.push(char::from_u32(0x2400 + u32::from(letter)).unwrap_or('?')),
            '\u{7f}' => out.push('\u{2421}'),
            _ => out.push(char::REPLACEMENT_CHARACTER),
        }
    }
    Cow::Owned(out)
}

fn is_harmless(letter: char) -> bool {
    match letter {
        '\n' | '\t' => true,
        // Other ends of lines; embeddings, overrides and isolates of the direction of writing; and
        // letters that are never seen, in which orders for a model can be hidden.
        '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}' => false,
        letter => !letter.is_control(),
    }
}

/// Where a sequence that begins here ends, if it is one and is whole.
fn sequence(letters: &[char], at: usize) -> Option<usize> {
    let (introducer, mut next) = match letters.get(at)? {
        &ESCAPE => (*letters.get(at + 1)?, at + 2),
        // The same in one character.
        '\u{9b}' => ('[', at + 1),
        '\u{9d}' => (']', at + 1),
        '\u{90}' => ('P', at + 1),
        '\u{98}' => ('X', at + 1),
        '\u{9e}' => ('^', at + 1),
        '\u{9f}' => ('_', at + 1),
        _ => return None,
    };
    let skip = |mut from: usize, range: std::ops::RangeInclusive<char>| {
        while letters.get(from).is_some_and(|letter| range.contains(letter)) {
            from += 1;
        }
        from
    };
    match introducer {
        '[' => {
            next = skip(skip(next, '\u{30}'..='\u{3f}'), '\u{20}'..='\u{2f}');
            let last = letters.get(next)?;
            ('\u{40}'..='\u{7e}').contains(last).then_some(next + 1)
        }
        ']' | 'P' | 'X' | '^' | '_' => loop {
            match letters.get(next)? {
                &BELL | &STRING_END => return Some(next + 1),
                &ESCAPE if letters.get(next + 1) == Some(&'\\') => return Some(next + 2),
                _ => next += 1,
            }
        },
        ' '..='/' => {
            next = skip(next, '\u{20}'..='\u{2f}');
            let last = letters.get(next)?;
            ('\u{30}'..='\u{7e}').contains(last).then_some(next + 1)
        }
        '0'..='~' => Some(next),
        _ => None,
    }
}

/// The same for every text in a value, names too.
#[must_use]
pub fn value(from: Value) -> Value {
    match from {
        Value::String(string) => Value::String(owned(string)),
        Value::Array(values) => Value::Array(values.into_iter().map(value).collect()),
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(name, of)| (owned(name), value(of))).collect())
        }
        other => other,
    }
}

fn owned(string: String) -> String {
    match text(&string) {
        Cow::Borrowed(_) => string,
        Cow::Owned(plain) => plain,
    }
}

/// Sees only plain text.
pub(crate) fn observer(observer: &Observer) -> Observer {
    let observer = observer.clone();
    Arc::new(move |seen| observer(update(seen)))
}

fn update(seen: Update) -> Update {
    match seen {
        Update::Session { name, resumed } => Update::Session { name: owned(name), resumed },
        Update::Said(said) => Update::Said(owned(said)),
        Update::Thought(thought) => Update::Thought(owned(thought)),
        Update::Tool { id, title, status, kind, locations } => Update::Tool {
            id: owned(id),
            title: title.map(owned),
            status: status.map(owned),
            kind: kind.map(owned),
            locations: locations.into_iter().map(owned).collect(),
        },
        Update::Plan(entries) => Update::Plan(
            entries
                .into_iter()
                .map(|one| Entry { content: owned(one.content), status: owned(one.status) })
                .collect(),
        ),
        Update::Progress(message) => Update::Progress(owned(message)),
        Update::Asked(ask, ruling) => {
            let (title, command) = (owned(ask.title), ask.command.map(owned));
            Update::Asked(Ask { title, command, ..ask }, ruling)
        }
        Update::Refused(flaws) => Update::Refused(flaws.into_iter().map(owned).collect()),
        Update::Other(other) => Update::Other(value(other)),
        other @ (Update::Recorded(_) | Update::Used(_) | Update::Called(_) | Update::Warned(_)) => {
            other
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_of_letters_stays_as_it_is() {
        for from in ["", "Grüße, 世界 👩‍💻", "a\n\tb", "שלום world", "50 % [31m"] {
            assert!(matches!(text(from), Cow::Borrowed(same) if same == from), "{from}");
        }
    }

    #[test]
    fn sequences_are_taken_out_and_the_text_between_them_stays() {
        for (what, from, expected) in [
            ("CSI colour", "\u{1b}[1;31mred\u{1b}[0m", "red"),
            ("CSI clear", "a\u{1b}[2J\u{1b}[Hb", "ab"),
            ("CSI in one character", "a\u{9b}31mb", "ab"),
            ("CSI private", "a\u{1b}[?1049hb", "ab"),
            ("OSC 8", "\u{1b}]8;;https://evil.example\u{1b}\\here\u{1b}]8;;\u{1b}\\", "here"),
            ("OSC 52", "a\u{1b}]52;c;cm0gLXJmIC8=\u{7}b", "ab"),
            ("OSC title in one character", "a\u{9d}0;title\u{9c}b", "ab"),
            ("DCS", "a\u{1b}Pq#0;2;0;0;0\u{1b}\\b", "ab"),
            ("DCS in one character", "a\u{90}$q\"p\u{9c}b", "ab"),
            ("APC", "a\u{1b}_Gf=100;AAAA\u{1b}\\b", "ab"),
            ("reset", "a\u{1b}cb", "ab"),
            ("character set", "a\u{1b}(0b", "ab"),
        ] {
            assert_eq!(text(from), expected, "{what}");
        }
    }

    #[test]
    fn what_is_no_whole_sequence_is_seen_and_does_nothing() {
        for (what, from, expected) in [
            ("open OSC", "a\u{1b}]52;c;zzz", "a␛]52;c;zzz"),
            ("open CSI", "a\u{1b}[31", "a␛[31"),
            ("CSI that is none", "a\u{1b}[3\nb", "a␛[3\nb"),
            ("the last letter", "a\u{1b}", "a␛"),
            ("bell and backspace", "a\u{7}\u{8}b", "a␇␈b"),
            ("delete", "a\u{7f}b", "a␡b"),
            ("C1", "a\u{85}\u{8d}b", "a\u{fffd}\u{fffd}b"),
            ("carriage return", "good\rbad\r\nnext", "good\nbad\nnext"),
            ("bidi override", "\u{202e}txt.exe\u{2066}", "\u{fffd}txt.exe\u{fffd}"),
            ("separators", "a\u{2028}b", "a\nb"),
            ("tags", "a\u{e0041}b", "a\u{fffd}b"),
            ("NUL", "a\0b", "a␀b"),
        ] {
            assert_eq!(text(from), expected, "{what}");
        }
    }

    #[test]
    fn nothing_that_comes_out_can_command_a_terminal() {
        // Every pair and many triples of what sequences are made of.
        let parts = [
            "\u{1b}", "[", "]", "P", "\\", "\u{7}", "\u{9b}", "\u{9d}", "\u{9c}", "8;;x", "31m",
            "\r", "\u{202e}", "a", "\n", "(", "c",
        ];
        for one in parts {
            for two in parts {
                for three in parts {
                    let from = format!("{one}{two}{three}{one}");
                    let clean = text(&from).into_owned();
                    assert!(clean.chars().all(is_harmless), "{from:?} became {clean:?}");
                    assert_eq!(text(&clean), clean, "clean is clean");
                }
            }
        }
    }

    #[test]
    fn every_text_of_a_value_is_plain_names_too() {
        let good = "one\ttwo\nthree – ü 漢 🙂";
        assert!(matches!(text(good), Cow::Borrowed(same) if same == good));
        let nested = json!({ "a\u{1b}": ["\u{1b}[2Jx", 1, null] });
        assert_eq!(value(nested), json!({ "a␛": ["x", 1, null] }));
    }
}
