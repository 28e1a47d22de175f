//! A patch, as git writes it, read line by line: for what a change adds, and for people who comment on
//! its lines.

use std::collections::BTreeMap;

/// Lines that a change adds, by file: their numbers, counted from 1, and what they are.
pub type Added = BTreeMap<String, Vec<(u32, String)>>;

/// One line of a patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Row<'a> {
    /// A file begins.
    File(String),
    /// A piece of the file begins: its first line of the old file, and what git says of it.
    Piece(u32, &'a str),
    /// A line that is gone.
    Removed(&'a str),
    /// A line that was there and is shown for what is around it.
    Kept(u32, &'a str),
    /// A line that is new.
    Added(u32, &'a str),
    /// What git says of the file before its lines, such as that it is new, or not text.
    Note(&'a str),
}

/// The lines of a patch.
pub fn rows(patch: &str) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    // The head of a file: its name as far as it is known, and what git says of it, which comes before
    // the name does.
    let (mut before, mut notes) = (None, Vec::new());
    // How many lines of the old and of the new file are still to come in this piece, and the number
    // of the next new one. Only these tell a line that looks like a head from a head.
    let (mut old, mut new, mut number) = (0_u32, 0_u32, 0_u32);
    for line in patch.split('\n') {
        let text = || line.get(1..).map(|text| text.strip_suffix('\r').unwrap_or(text));
        match line.bytes().next() {
            Some(b'-') if old > 0 => {
                old -= 1;
                rows.extend(text().map(Row::Removed));
            }
            Some(b'+') if new > 0 => {
                rows.extend(text().map(|text| Row::Added(number, text)));
                (new, number) = (new - 1, number.saturating_add(1));
            }
            Some(b' ') if old > 0 && new > 0 => {
                rows.extend(text().map(|text| Row::Kept(number, text)));
                (old, new, number) = (old - 1, new - 1, number.saturating_add(1));
            }
            Some(b'@') => {
                let first;
                (first, old, new, number) = piece(line).unwrap_or_default();
                rows.push(Row::Piece(first, line));
            }
            _ if line.starts_with("--- ") => before = name(&line[4..], "a/"),
            _ if line.starts_with("+++ ") => {
                rows.extend(name(&line[4..], "b/").or(before.take()).map(Row::File));
                rows.extend(notes.drain(..).map(Row::Note));
            }
            None | Some(b'\\') => {}
            _ if line.starts_with("diff --git ") => {
                begin(&mut rows, &mut before, &mut notes);
                before = both(&line["diff --git ".len()..]);
            }
            _ if line.starts_with("index ") => {}
            _ => {
                if let Some(renamed) = line.strip_prefix("rename to ") {
                    before = name(renamed, "");
                }
                notes.push(line);
            }
        }
    }
    begin(&mut rows, &mut before, &mut notes);
    rows
}

/// Begins a file of which nothing but notes was said: one that is not text, or only has another name.
fn begin<'a>(rows: &mut Vec<Row<'a>>, name: &mut Option<String>, notes: &mut Vec<&'a str>) {
    if !notes.is_empty() {
        rows.extend(name.take().map(Row::File));
        rows.extend(notes.drain(..).map(Row::Note));
    }
}

/// The name of a file that has the same before and after, as `a/name b/name` says it.
fn both(text: &str) -> Option<String> {
    let (first, second) = text.split_at_checked(text.len() / 2)?;
    let first = name(first, "a/")?;
    (name(second.strip_prefix(' ')?, "b/")? == first).then_some(first)
}

/// The lines that a patch adds.
pub fn added(patch: &str) -> Added {
    let mut added = Added::new();
    let mut file = String::new();
    for row in rows(patch) {
        match row {
            Row::File(name) => file = name,
            Row::Added(number, text) => {
                added.entry(file.clone()).or_default().push((number, text.to_owned()));
            }
            Row::Piece(..) | Row::Removed(_) | Row::Kept(..) | Row::Note(_) => {}
        }
    }
    added
}

/// A line of a file after the change, if the patch shows it.
pub fn line<'a>(patch: &'a str, file: &str, number: u32) -> Option<&'a str> {
    let mut here = false;
    rows(patch).into_iter().find_map(|row| match row {
        Row::File(name) => {
            here = name == file;
            None
        }
        Row::Added(at, text) | Row::Kept(at, text) if here && at == number => Some(text),
        _ => None,
    })
}

/// The head of a piece, such as `@@ -3,0 +4,2 @@ fn a()`: where it is in the old file, how many lines
/// are of the old and of the new one, and where it is in the new one.
fn piece(text: &str) -> Option<(u32, u32, u32, u32)> {
    let (old, rest) = text.strip_prefix("@@ -")?.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let range = |text: &str| match text.split_once(',') {
        Some((start, count)) => Some((start.parse().ok()?, count.parse().ok()?)),
        None => Some((text.parse().ok()?, 1)),
    };
    let ((first, old), (start, new)): ((u32, u32), (u32, u32)) = (range(old)?, range(new)?);
    Some((first, old, new, start))
}

/// The name of a file, which git quotes where it has letters that are none. None for no file.
fn name(text: &str, prefix: &str) -> Option<String> {
    // A name with a space in it ends with a tab.
    let text = text.strip_suffix('\t').unwrap_or(text);
    let name = match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        Some(quoted) => unquoted(quoted),
        None => text.to_owned(),
    };
    name.strip_prefix(prefix).map(str::to_owned)
}

fn unquoted(text: &str) -> String {
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
    fn lines_that_look_like_heads_are_lines() {
        assert_eq!(
            rows(PATCH),
            [
                Row::File("a".to_owned()),
                Row::Piece(1, "@@ -1,3 +1,4 @@ fn a()"),
                Row::Removed("-- b"),
                Row::Removed("@@ -1 +1 @@"),
                Row::Added(1, "++ b/other"),
                Row::Added(2, "@@ -1 +1 @@"),
                Row::Added(3, "three"),
                Row::Kept(4, "four"),
                Row::File("b".to_owned()),
                Row::Note("deleted file mode 100644"),
                Row::Piece(1, "@@ -1 +0,0 @@"),
                Row::Removed("gone"),
                Row::File("c".to_owned()),
                Row::Note("Binary files a/c and b/c differ"),
                Row::File("e f".to_owned()),
                Row::Note("similarity index 100%"),
                Row::Note("rename from d"),
                Row::Note("rename to e f"),
            ]
        );
        assert_eq!(added(PATCH).keys().collect::<Vec<_>>(), ["a"]);
        assert_eq!(added(PATCH)["a"].len(), 3);
        assert_eq!(line(PATCH, "a", 4), Some("four"));
        assert_eq!(line(PATCH, "a", 5), None);
        assert_eq!(line(PATCH, "b", 1), None);
    }

    #[test]
    fn names_are_those_of_the_files() {
        for (told, expected) in [
            ("b/a b\t", Some("a b")),
            ("\"b/a\\tb\\\"\\303\\244\"", Some("a\tb\"ä")),
            ("/dev/null", None),
        ] {
            assert_eq!(name(told, "b/").as_deref(), expected, "{told}");
        }
    }
}
