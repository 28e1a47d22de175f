//! Text that fits into columns of the terminal.

use ratatui::text::Span;

use crate::output::sanitize;

/// Width of a text, in columns.
pub(super) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Cuts a text to one row of at most `columns` columns.
pub(super) fn fit(text: &str, columns: usize) -> String {
    let row = sanitize(&text.split_whitespace().collect::<Vec<_>>().join(" "));
    if width(&row) <= columns {
        return row;
    }
    let mut short = String::new();
    for letter in row.chars() {
        if width(&short) + width(letter.encode_utf8(&mut [0; 4])) + 1 > columns {
            break;
        }
        short.push(letter);
    }
    short + "…"
}

/// Cuts a text to one row, and fills it up to exactly `columns` columns.
pub(super) fn pad(text: &str, columns: usize) -> String {
    let row = fit(text, columns);
    let missing = columns.saturating_sub(width(&row));
    row + &" ".repeat(missing)
}

/// Breaks a text into rows of at most `columns` columns, between words where possible. Indentation
/// stays.
pub(super) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let mut rows = Vec::new();
    for line in text.lines() {
        let line = sanitize(&line.replace('\t', "    "));
        let mut row = String::new();
        for word in line.split_inclusive(' ') {
            if !row.is_empty() && width(&row) + width(word.trim_end()) > columns {
                rows.push(std::mem::take(&mut row).trim_end().to_owned());
            }
            for letter in word.chars() {
                // A word that is longer than a row.
                if width(&row) + width(letter.encode_utf8(&mut [0; 4])) > columns {
                    if letter == ' ' {
                        break;
                    }
                    rows.push(std::mem::take(&mut row));
                }
                row.push(letter);
            }
        }
        rows.push(row.trim_end().to_owned());
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_at_most_the_given_width() {
        assert_eq!(fit("Greet the\nworld", 20), "Greet the world");
        assert_eq!(fit("Greet the world", 9), "Greet th…");
        assert_eq!(fit("日本語", 5), "日本…");
        assert_eq!(pad("日本", 6), "日本  ");
        assert_eq!(fit("a\u{1b}[2Jb", 20), "a\\u{1b}[2Jb", "control sequences are visible");
    }

    #[test]
    fn long_text_is_wrapped_between_words_and_keeps_its_indentation() {
        assert_eq!(wrap("  one two three", 9), ["  one two", "three"]);
        assert_eq!(wrap("abcdef", 4), ["abcd", "ef"]);
        assert_eq!(wrap("a\n\nb", 4), ["a", "", "b"]);
        for row in wrap("日本語 and a_very_long_word_without_spaces", 7) {
            assert!(width(&row) <= 7, "{row}");
        }
    }
}
