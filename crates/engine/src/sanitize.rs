//! Sanitising of agent output for terminals.
//!
//! Messages, titles and plans of an agent are shown on people's terminals. Sequences that move the
//! cursor, change the title, fill the clipboard or reverse text are removed on arrival, so that no
//! consumer has to handle them.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use crate::agent::{AgentObserver, AgentUpdate, PlanEntry, ToolCallUpdate, ToolContent};
use crate::permission::PermissionRequest;

const ESCAPE: char = '\u{1b}';
const BELL: char = '\u{7}';
/// Single-character terminator of a control string.
const STRING_END: char = '\u{9c}';

/// Removes complete control sequences from a text. Other control characters are replaced by visible
/// symbols.
pub fn text(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_harmless) {
        return Cow::Borrowed(text);
    }
    let letters: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(&letter) = letters.get(at) {
        if let Some(after) = escape_sequence_end(&letters, at) {
            at = after;
            continue;
        }
        at += 1;
        match letter {
            '\r' if letters.get(at) == Some(&'\n') => {}
            '\r' | '\u{2028}' | '\u{2029}' => out.push('\n'),
            letter if is_harmless(letter) => out.push(letter),
            // Unicode has symbols for the first 32 control characters.
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
        // Line separators, bidirectional controls, and invisible tag characters that can hide
        // instructions for a model.
        '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}' => false,
        letter => !letter.is_control(),
    }
}

/// Returns the end of the complete control sequence that starts at `at`, if there is one.
fn escape_sequence_end(letters: &[char], at: usize) -> Option<usize> {
    let (introducer, mut next) = match letters.get(at)? {
        &ESCAPE => (*letters.get(at + 1)?, at + 2),
        // Single-character forms of the introducers.
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

/// Sanitises every string in a JSON value, including object keys.
#[must_use]
pub fn value(from: Value) -> Value {
    match from {
        Value::String(string) => Value::String(sanitize_owned(string)),
        Value::Array(values) => Value::Array(values.into_iter().map(value).collect()),
        Value::Object(fields) => Value::Object(
            fields.into_iter().map(|(name, of)| (sanitize_owned(name), value(of))).collect(),
        ),
        other => other,
    }
}

fn sanitize_owned(string: String) -> String {
    match text(&string) {
        Cow::Borrowed(_) => string,
        Cow::Owned(plain) => plain,
    }
}

/// Wraps an observer so that it receives sanitised text.
pub(crate) fn sanitizing_observer(observer: &AgentObserver) -> AgentObserver {
    let observer = observer.clone();
    Arc::new(move |update| observer(sanitize_update(update)))
}

fn sanitize_update(update: AgentUpdate) -> AgentUpdate {
    match update {
        AgentUpdate::Session { name, resumed } => {
            AgentUpdate::Session { name: sanitize_owned(name), resumed }
        }
        AgentUpdate::Message(message) => AgentUpdate::Message(sanitize_owned(message)),
        AgentUpdate::Thought(thought) => AgentUpdate::Thought(sanitize_owned(thought)),
        AgentUpdate::ToolCall(call) => AgentUpdate::ToolCall(ToolCallUpdate {
            id: sanitize_owned(call.id),
            title: call.title.map(sanitize_owned),
            status: call.status.map(sanitize_owned),
            kind: call.kind.map(sanitize_owned),
            locations: call.locations.into_iter().map(sanitize_owned).collect(),
            input: call.input.map(value),
            content: call.content.map(|parts| parts.into_iter().map(sanitize_content).collect()),
            exit_code: call.exit_code,
        }),
        AgentUpdate::Plan(entries) => AgentUpdate::Plan(
            entries
                .into_iter()
                .map(|entry| PlanEntry {
                    content: sanitize_owned(entry.content),
                    status: sanitize_owned(entry.status),
                })
                .collect(),
        ),
        AgentUpdate::Progress(message) => AgentUpdate::Progress(sanitize_owned(message)),
        AgentUpdate::PermissionDecided(request, decision) => {
            let (title, command) =
                (sanitize_owned(request.title), request.command.map(sanitize_owned));
            AgentUpdate::PermissionDecided(
                PermissionRequest { title, command, ..request },
                decision,
            )
        }
        AgentUpdate::SubmissionRejected(errors) => {
            AgentUpdate::SubmissionRejected(errors.into_iter().map(sanitize_owned).collect())
        }
        AgentUpdate::Other(other) => AgentUpdate::Other(value(other)),
        other @ (AgentUpdate::ProcessRecorded(_)
        | AgentUpdate::UsageReported(_)
        | AgentUpdate::ModelCalled(_)
        | AgentUpdate::BudgetWarning(_)
        // Sanitised as submissions, and our own words.
        | AgentUpdate::ResultSubmitted(_)
        | AgentUpdate::DocumentSubmitted { .. }
        | AgentUpdate::PromptedAgain(_)) => other,
    }
}

fn sanitize_content(content: ToolContent) -> ToolContent {
    match content {
        ToolContent::Text(text) => ToolContent::Text(sanitize_owned(text)),
        ToolContent::Edit { path, old, new } => ToolContent::Edit {
            path: sanitize_owned(path),
            old: old.map(sanitize_owned),
            new: sanitize_owned(new),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_without_control_characters_is_unchanged() {
        for from in ["", "Grüße, 世界 👩‍💻", "a\n\tb", "שלום world", "50 % [31m"] {
            assert!(matches!(text(from), Cow::Borrowed(same) if same == from), "{from}");
        }
    }

    #[test]
    fn control_sequences_are_removed_and_text_is_kept() {
        for (name, from, expected) in [
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
            assert_eq!(text(from), expected, "{name}");
        }
    }

    #[test]
    fn incomplete_sequences_become_visible() {
        for (name, from, expected) in [
            ("open OSC", "a\u{1b}]52;c;zzz", "a␛]52;c;zzz"),
            ("open CSI", "a\u{1b}[31", "a␛[31"),
            ("malformed CSI", "a\u{1b}[3\nb", "a␛[3\nb"),
            ("ESC at the end", "a\u{1b}", "a␛"),
            ("bell and backspace", "a\u{7}\u{8}b", "a␇␈b"),
            ("delete", "a\u{7f}b", "a␡b"),
            ("C1", "a\u{85}\u{8d}b", "a\u{fffd}\u{fffd}b"),
            ("carriage return", "good\rbad\r\nnext", "good\nbad\nnext"),
            ("bidi override", "\u{202e}txt.exe\u{2066}", "\u{fffd}txt.exe\u{fffd}"),
            ("separators", "a\u{2028}b", "a\nb"),
            ("tags", "a\u{e0041}b", "a\u{fffd}b"),
            ("NUL", "a\0b", "a␀b"),
        ] {
            assert_eq!(text(from), expected, "{name}");
        }
    }

    #[test]
    fn output_never_contains_control_characters() {
        // Every combination of three parts of control sequences.
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
                    assert_eq!(text(&clean), clean, "sanitising is idempotent");
                }
            }
        }
    }

    #[test]
    fn strings_and_keys_of_a_value_are_sanitised() {
        let good = "one\ttwo\nthree – ü 漢 🙂";
        assert!(matches!(text(good), Cow::Borrowed(same) if same == good));
        let nested = json!({ "a\u{1b}": ["\u{1b}[2Jx", 1, null] });
        assert_eq!(value(nested), json!({ "a␛": ["x", 1, null] }));
    }
}
