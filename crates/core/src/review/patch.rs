//! Parser for git patches, for checks of added lines and for line comments.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString};

/// Lines that a change adds, by file: line number from 1, and text.
pub type AddedLines = BTreeMap<String, Vec<(u32, String)>>;

/// Version of a file that a line number counts in.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    Display,
    EnumString,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum LineSide {
    /// Before the change.
    Old,
    /// After the change.
    #[default]
    New,
}

/// One line of a patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatchLine<'a> {
    /// Start of a file.
    File(String),
    /// Start of a hunk: its first line in the old file, and its header.
    Hunk(u32, &'a str),
    /// Removed line.
    Removed(&'a str),
    /// Context line, with its number in the new file.
    Context(u32, &'a str),
    /// Added line, with its number in the new file.
    Added(u32, &'a str),
    /// Header line of git, for example for a new or binary file.
    Header(&'a str),
}

/// Parses a patch into lines.
pub fn lines(patch: &str) -> Vec<PatchLine<'_>> {
    let mut rows = Vec::new();
    // Header of a file: its name as far as it is known, and git's header lines, which come before
    // the name.
    let (mut before, mut notes) = (None, Vec::new());
    // Remaining lines of the old and the new file in this hunk, and the number of the next new
    // line. Only these counts tell a header from a content line that looks like one.
    let (mut old, mut new, mut number) = (0_u32, 0_u32, 0_u32);
    for line in patch.split('\n') {
        let text = || line.get(1..).map(|text| text.strip_suffix('\r').unwrap_or(text));
        match line.bytes().next() {
            Some(b'-') if old > 0 => {
                old -= 1;
                rows.extend(text().map(PatchLine::Removed));
            }
            Some(b'+') if new > 0 => {
                rows.extend(text().map(|text| PatchLine::Added(number, text)));
                (new, number) = (new - 1, number.saturating_add(1));
            }
            Some(b' ') if old > 0 && new > 0 => {
                rows.extend(text().map(|text| PatchLine::Context(number, text)));
                (old, new, number) = (old - 1, new - 1, number.saturating_add(1));
            }
            Some(b'@') => {
                let first;
                (first, old, new, number) = parse_hunk_header(line).unwrap_or_default();
                rows.push(PatchLine::Hunk(first, line));
            }
            _ if line.starts_with("--- ") => before = parse_path(&line[4..], "a/"),
            _ if line.starts_with("+++ ") => {
                rows.extend(parse_path(&line[4..], "b/").or(before.take()).map(PatchLine::File));
                rows.extend(notes.drain(..).map(PatchLine::Header));
            }
            None | Some(b'\\') => {}
            _ if line.starts_with("diff --git ") => {
                flush_file_header(&mut rows, &mut before, &mut notes);
                before = parse_unchanged_path(&line["diff --git ".len()..]);
            }
            _ if line.starts_with("index ") => {}
            _ => {
                if let Some(renamed) = line.strip_prefix("rename to ") {
                    before = parse_path(renamed, "");
                }
                notes.push(line);
            }
        }
    }
    flush_file_header(&mut rows, &mut before, &mut notes);
    rows
}

/// Flushes a file that has only header lines, such as a binary or renamed file.
fn flush_file_header<'a>(
    rows: &mut Vec<PatchLine<'a>>,
    name: &mut Option<String>,
    notes: &mut Vec<&'a str>,
) {
    if !notes.is_empty() {
        rows.extend(name.take().map(PatchLine::File));
        rows.extend(notes.drain(..).map(PatchLine::Header));
    }
}

/// Parses the name of an unchanged path from `a/name b/name`.
fn parse_unchanged_path(text: &str) -> Option<String> {
    let (first, second) = text.split_at_checked(text.len() / 2)?;
    let first = parse_path(first, "a/")?;
    (parse_path(second.strip_prefix(' ')?, "b/")? == first).then_some(first)
}

/// Returns the files that a patch changes, also those that it renames, under both names. Returns `None` if
/// a name cannot be parsed.
pub fn changed_files(patch: &str) -> Option<BTreeSet<String>> {
    // No content line starts with this.
    let expected = patch.split('\n').filter(|line| line.starts_with("diff --git ")).count();
    let (mut files, mut found) = (BTreeSet::new(), 0);
    for row in lines(patch) {
        match row {
            PatchLine::File(name) => {
                found += 1;
                files.insert(name);
            }
            PatchLine::Header(header) => {
                if let Some(renamed) = header.strip_prefix("rename from ") {
                    files.insert(parse_path(renamed, "")?);
                }
            }
            PatchLine::Hunk(..)
            | PatchLine::Removed(_)
            | PatchLine::Context(..)
            | PatchLine::Added(..) => {}
        }
    }
    (found == expected).then_some(files)
}

/// Returns the lines that a patch adds.
pub fn added_lines(patch: &str) -> AddedLines {
    let mut added = AddedLines::new();
    let mut file = String::new();
    for row in lines(patch) {
        match row {
            PatchLine::File(name) => file = name,
            PatchLine::Added(number, text) => {
                added.entry(file.clone()).or_default().push((number, text.to_owned()));
            }
            PatchLine::Hunk(..)
            | PatchLine::Removed(_)
            | PatchLine::Context(..)
            | PatchLine::Header(_) => {}
        }
    }
    added
}

/// Returns a line of the old or the new file, if the patch contains it.
pub fn find_line<'a>(patch: &'a str, file: &str, side: LineSide, number: u32) -> Option<&'a str> {
    let (mut in_file, mut old) = (false, 0_u32);
    lines(patch).into_iter().find_map(|row| {
        let (text, old_number, new_number) = match row {
            PatchLine::File(name) => {
                in_file = name == file;
                return None;
            }
            PatchLine::Hunk(first, _) => {
                old = first;
                return None;
            }
            PatchLine::Header(_) => return None,
            PatchLine::Removed(text) => (text, Some(old), None),
            PatchLine::Context(at, text) => (text, Some(old), Some(at)),
            PatchLine::Added(at, text) => (text, None, Some(at)),
        };
        old = old.saturating_add(u32::from(old_number.is_some()));
        let found = match side {
            LineSide::Old => old_number,
            LineSide::New => new_number,
        };
        (in_file && found == Some(number)).then_some(text)
    })
}

/// Parses a hunk header, such as `@@ -3,0 +4,2 @@ fn a()`: old start, old length, new length, new
/// start.
fn parse_hunk_header(text: &str) -> Option<(u32, u32, u32, u32)> {
    let (old, rest) = text.strip_prefix("@@ -")?.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let range = |text: &str| match text.split_once(',') {
        Some((start, count)) => Some((start.parse().ok()?, count.parse().ok()?)),
        None => Some((text.parse().ok()?, 1)),
    };
    let ((first, old), (start, new)): ((u32, u32), (u32, u32)) = (range(old)?, range(new)?);
    Some((first, old, new, start))
}

/// Parses a file name, which git quotes if it has special characters. Returns `None` for no file.
fn parse_path(text: &str, prefix: &str) -> Option<String> {
    // git ends a name that contains a space with a tab.
    let text = text.strip_suffix('\t').unwrap_or(text);
    let name = match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        Some(quoted) => unquote(quoted),
        None => text.to_owned(),
    };
    name.strip_prefix(prefix).map(str::to_owned)
}

fn unquote(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next() {
            Some(b'a') => 7,
            Some(b'b') => 8,
            Some(b't') => b'\t',
            Some(b'n') => b'\n',
            Some(b'v') => 11,
            Some(b'f') => 12,
            Some(b'r') => b'\r',
            Some(first @ b'0'..=b'7') => {
                let octal = [Some(first), rest.next(), rest.next()];
                let digits = octal.into_iter().map(|byte| byte.unwrap_or(b'0').wrapping_sub(b'0'));
                digits.fold(0, |sum: u8, digit| sum.wrapping_mul(8).wrapping_add(digit))
            }
            Some(other) => other,
            None => break,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "diff --git a/a b/a\nindex 1..2 100644\n--- a/a\n+++ b/a\n\
                         @@ -1,3 +1,4 @@ fn a()\n--- b\n-@@ -1 +1 @@\n+++ b/other\n+@@ -1 +1 @@\n\
                         +three\n four\n\\ No newline at end of file\n\
                         diff --git a/b b/b\ndeleted file mode 100644\n--- a/b\n+++ /dev/null\n\
                         @@ -1 +0,0 @@\n-gone\n\
                         diff --git a/c b/c\nBinary files a/c and b/c differ\n\
                         diff --git a/d b/e f\nsimilarity index 100%\nrename from d\nrename to e f\n";

    #[test]
    fn content_lines_that_look_like_headers_are_content() {
        assert_eq!(
            lines(PATCH),
            [
                PatchLine::File("a".to_owned()),
                PatchLine::Hunk(1, "@@ -1,3 +1,4 @@ fn a()"),
                PatchLine::Removed("-- b"),
                PatchLine::Removed("@@ -1 +1 @@"),
                PatchLine::Added(1, "++ b/other"),
                PatchLine::Added(2, "@@ -1 +1 @@"),
                PatchLine::Added(3, "three"),
                PatchLine::Context(4, "four"),
                PatchLine::File("b".to_owned()),
                PatchLine::Header("deleted file mode 100644"),
                PatchLine::Hunk(1, "@@ -1 +0,0 @@"),
                PatchLine::Removed("gone"),
                PatchLine::File("c".to_owned()),
                PatchLine::Header("Binary files a/c and b/c differ"),
                PatchLine::File("e f".to_owned()),
                PatchLine::Header("similarity index 100%"),
                PatchLine::Header("rename from d"),
                PatchLine::Header("rename to e f"),
            ]
        );
        assert_eq!(added_lines(PATCH).keys().collect::<Vec<_>>(), ["a"]);
        assert_eq!(added_lines(PATCH)["a"].len(), 3);
        assert_eq!(find_line(PATCH, "a", LineSide::New, 4), Some("four"));
        assert_eq!(find_line(PATCH, "a", LineSide::New, 5), None);
        assert_eq!(find_line(PATCH, "b", LineSide::New, 1), None);
    }

    #[test]
    fn removed_lines_are_found_by_their_old_number() {
        assert_eq!(find_line(PATCH, "b", LineSide::Old, 1), Some("gone"));
        assert_eq!(find_line(PATCH, "a", LineSide::Old, 2), Some("@@ -1 +1 @@"));
        assert_eq!(find_line(PATCH, "a", LineSide::Old, 3), Some("four"));
        assert_eq!(find_line(PATCH, "a", LineSide::Old, 4), None);
    }

    #[test]
    fn changed_files_are_known_only_if_all_of_them_are() {
        let files = changed_files(PATCH).expect("known");
        assert_eq!(files.iter().collect::<Vec<_>>(), ["a", "b", "c", "d", "e f"]);
        let renamed = "diff --git \"a/p/\\303\\244\" b/q\nsimilarity index 100%\n\
                       rename from \"p/\\303\\244\"\nrename to q\n";
        let both = BTreeSet::from(["p/ä", "q"].map(str::to_owned));
        assert_eq!(changed_files(renamed), Some(both));
        assert_eq!(changed_files(""), Some(BTreeSet::new()));
        assert_eq!(changed_files("diff --git a/a b/b\nold mode 100644\nnew mode 100755\n"), None);
    }

    #[test]
    fn file_names_are_unquoted() {
        for (text, expected) in [
            ("b/a b\t", Some("a b")),
            ("\"b/a\\tb\\\"\\303\\244\"", Some("a\tb\"ä")),
            ("/dev/null", None),
        ] {
            assert_eq!(parse_path(text, "b/").as_deref(), expected, "{text}");
        }
    }
}
