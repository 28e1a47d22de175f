//! Text formats of numbers, amounts, durations and names, shared by the terminal, the pages, chat
//! and reports.

use std::fmt::Display;

use chrono::TimeDelta;

use crate::cost::Usd;

/// Formats an amount with two to four decimal places, such as `$0.40`.
pub fn format_usd(usd: Usd) -> String {
    let text = usd.to_string();
    match text.split_once('.').map(|(_, cents)| cents.len()) {
        None => format!("{text}.00"),
        Some(1) => format!("{text}0"),
        Some(_) => text,
    }
}

/// Formats a number with thousands separators, such as `12,345`.
pub fn format_number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a duration in seconds or minutes, and from 1 h on in its two largest units. A negative
/// duration counts as zero.
pub fn format_duration(time: TimeDelta) -> String {
    let seconds = time.num_seconds().max(0);
    match (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{} {hours} h", pluralize(days, "day")),
    }
}

/// Formats a count with its noun, such as `1 task`, `2 tasks` or `2 entries`.
pub fn pluralize<N: Copy + Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    if number == N::from(1) {
        return format!("{number} {noun}");
    }
    match noun.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u'])) {
        Some(stem) => format!("{number} {stem}ies"),
        None => format!("{number} {noun}s"),
    }
}

/// Replaces the underscores of a serialised name with spaces.
pub fn humanize(name: &(impl ToString + ?Sized)) -> String {
    name.to_string().replace('_', " ")
}

/// Capitalises the first letter.
pub fn capitalize(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Joins the lines of a text into one, with single spaces.
pub fn single_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns true for characters that change what is read without being visible.
pub fn is_hidden_character(letter: char) -> bool {
    matches!(letter,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{e0000}'..='\u{e01ef}')
        || (letter.is_control() && !matches!(letter, '\n' | '\t'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_at_least_two_decimals() {
        let all = ["3", "0.4", "0.42", "0.1234"].map(|it| format_usd(it.parse().expect("money")));
        assert_eq!(all, ["$3.00", "$0.40", "$0.42", "$0.1234"]);
    }

    #[test]
    fn numbers_have_thousands_separators() {
        let all = [0, 12, 123, 1234, 123_456, 1_234_567].map(format_number);
        assert_eq!(all, ["0", "12", "123", "1,234", "123,456", "1,234,567"]);
    }

    #[test]
    fn durations_use_their_two_largest_units() {
        let all = [-5, 59, 60, 3_599, 3_600, 7_320, 86_399, 90_000, 200_000]
            .map(|seconds| format_duration(TimeDelta::seconds(seconds)));
        let expected = [
            "0 s",
            "59 s",
            "1 min",
            "59 min",
            "1 h 0 min",
            "2 h 2 min",
            "23 h 59 min",
            "1 day 1 h",
            "2 days 7 h",
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn nouns_are_in_the_plural_unless_there_is_one() {
        let all = [(0, "task"), (1, "entry"), (2, "entry"), (3, "day")]
            .map(|(number, noun)| pluralize(number, noun));
        assert_eq!(all, ["0 tasks", "1 entry", "2 entries", "3 days"]);
    }

    #[test]
    fn names_are_turned_into_words() {
        assert_eq!(humanize("awaiting_approval"), "awaiting approval");
        assert_eq!(capitalize("awaiting approval"), "Awaiting approval");
        assert_eq!(single_line("a\n  b"), "a b");
    }
}
