//! Patch of a change as files and rows, and the words that differ within a line.

use std::collections::BTreeMap;

use similar::{Algorithm, DiffOp, capture_diff_slices};
use tamma_core::ids::Digest;
use tamma_core::review::patch::{self, PatchLine};

/// Longest line whose words are compared, in bytes.
const MAX_COMPARED_BYTES: usize = 1_000;

/// Rows of a file that are kept, at most. Its numbers and its digest count all of them.
const MAX_FILE_ROWS: usize = 20_000;

/// Comparisons of words in one pair of lines, at most.
const MAX_LINE_COMPARISONS: usize = 40_000;

/// Comparisons of words in a file, at most, so that no file takes long. Later lines are not marked.
const MAX_FILE_COMPARISONS: usize = 4_000_000;

/// File of a patch.
#[derive(Debug, Clone)]
pub(super) struct FileDiff<'a> {
    /// Position in the patch, from 1.
    pub(super) number: usize,
    pub(super) path: String,
    pub(super) action: &'static str,
    /// Path before the change, if the file was renamed.
    pub(super) old_path: Option<String>,
    pub(super) is_binary: bool,
    pub(super) added: usize,
    pub(super) removed: usize,
    pub(super) rows: Vec<DiffRow<'a>>,
    /// Number of rows after the kept ones.
    pub(super) hidden_rows: usize,
    /// Hash of all rows, by which a change of the file is noticed.
    pub(super) digest: Digest,
}

impl FileDiff<'_> {
    /// Returns the file with the changed words of its lines marked. Only a file that is shown needs it.
    pub(super) fn with_changed_words(&self) -> Self {
        let mut file = self.clone();
        mark_changed_words(&mut file.rows);
        file
    }
}

/// Row of a file in a patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DiffRow<'a> {
    Hunk(HunkStart<'a>),
    Line(DiffLine<'a>),
    /// Line that git writes about the file.
    Note(&'a str),
}

/// Start of a hunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HunkStart<'a> {
    /// First line in the old file.
    pub(super) old: u32,
    /// First line in the new file.
    pub(super) new: u32,
    /// Function or section that git found.
    pub(super) heading: &'a str,
}

/// Line of a hunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DiffLine<'a> {
    pub(super) kind: RowKind,
    pub(super) text: &'a str,
    /// Line number before the change.
    pub(super) old: Option<u32>,
    /// Line number after the change.
    pub(super) new: Option<u32>,
    /// Ranges of bytes that differ from the paired line.
    pub(super) marks: Vec<(usize, usize)>,
    /// Set if an earlier change did not have this line.
    pub(super) is_fresh: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum RowKind {
    Same,
    Removed,
    Added,
}

impl RowKind {
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Same => "d-same",
            Self::Removed => "d-del",
            Self::Added => "d-add",
        }
    }

    pub(super) fn sign(self) -> &'static str {
        match self {
            Self::Same => " ",
            Self::Removed => "−",
            Self::Added => "+",
        }
    }
}

/// Parses a patch into files.
pub(super) fn parse_files(patch: &str) -> Vec<FileDiff<'_>> {
    let mut files: Vec<FileDiff<'_>> = Vec::new();
    let (mut old, mut rows_text) = (0_u32, String::new());
    for row in patch::lines(patch) {
        if let PatchLine::File(path) = row {
            finish(files.last_mut(), &mut rows_text);
            files.push(FileDiff {
                number: files.len() + 1,
                path,
                action: "changed",
                old_path: None,
                is_binary: false,
                added: 0,
                removed: 0,
                rows: Vec::new(),
                hidden_rows: 0,
                digest: Digest::of(b""),
            });
            continue;
        }
        let Some(file) = files.last_mut() else { continue };
        let line = |kind, text, old, new| {
            DiffRow::Line(DiffLine { kind, text, old, new, marks: Vec::new(), is_fresh: false })
        };
        let (sign, text) = match &row {
            PatchLine::Removed(text) => ('-', *text),
            PatchLine::Added(_, text) => ('+', *text),
            PatchLine::Context(_, text) => (' ', *text),
            PatchLine::Header(text) => ('#', *text),
            PatchLine::Hunk(..) | PatchLine::File(_) => ('@', ""),
        };
        rows_text.push(sign);
        rows_text.push_str(text);
        rows_text.push('\n');
        let row = match row {
            PatchLine::Hunk(first, text) => {
                old = first;
                DiffRow::Hunk(hunk_start(first, text))
            }
            PatchLine::Removed(text) => {
                file.removed += 1;
                old = old.saturating_add(1);
                line(RowKind::Removed, text, Some(old - 1), None)
            }
            PatchLine::Context(number, text) => {
                old = old.saturating_add(1);
                line(RowKind::Same, text, Some(old - 1), Some(number))
            }
            PatchLine::Added(number, text) => {
                file.added += 1;
                line(RowKind::Added, text, None, Some(number))
            }
            PatchLine::Header(text) => match note(file, text) {
                Some(note) => DiffRow::Note(note),
                None => continue,
            },
            PatchLine::File(_) => continue,
        };
        if file.rows.len() < MAX_FILE_ROWS {
            file.rows.push(row);
        } else {
            file.hidden_rows += 1;
        }
    }
    finish(files.last_mut(), &mut rows_text);
    files
}

/// Completes a file once all its rows are known.
fn finish(file: Option<&mut FileDiff<'_>>, rows_text: &mut String) {
    if let Some(file) = file {
        file.digest = Digest::of(rows_text.as_bytes());
    }
    rows_text.clear();
}

/// Takes over a header line of git. Returns it if it is worth a row of its own.
fn note<'a>(file: &mut FileDiff<'_>, text: &'a str) -> Option<&'a str> {
    const ACTIONS: [(&str, &str); 6] = [
        ("new file mode ", "new"),
        ("deleted file mode ", "deleted"),
        ("rename from ", "renamed"),
        ("rename to ", "renamed"),
        ("old mode ", "mode changed"),
        ("new mode ", "mode changed"),
    ];
    if let Some((_, action)) = ACTIONS.iter().find(|(start, _)| text.starts_with(start)) {
        file.action = *action;
        if let Some(from) = text.strip_prefix("rename from ") {
            file.old_path = Some(from.to_owned());
        }
        return None;
    }
    if text.starts_with("Binary files ") || text.starts_with("GIT binary patch") {
        file.is_binary = true;
        return None;
    }
    let is_known =
        text.starts_with("similarity index ") || text.starts_with("dissimilarity index ");
    (!is_known).then_some(text)
}

/// Parses `@@ -3,7 +3,9 @@ fn a()`.
fn hunk_start(old: u32, text: &str) -> HunkStart<'_> {
    let rest = text.split_once(" +").map(|(_, rest)| rest).unwrap_or_default();
    let (range, heading) = rest.split_once(" @@").unwrap_or_default();
    let new = range.split(',').next().and_then(|first| first.parse().ok()).unwrap_or_default();
    HunkStart { old, new, heading: heading.trim() }
}

/// Marks the words that differ between removed lines and the added lines that replace them.
fn mark_changed_words(rows: &mut [DiffRow<'_>]) {
    let kind = |row: &DiffRow<'_>| match row {
        DiffRow::Line(line) => Some(line.kind),
        DiffRow::Hunk(_) | DiffRow::Note(_) => None,
    };
    let (mut at, mut comparisons_left) = (0, MAX_FILE_COMPARISONS);
    while at < rows.len() {
        let run = |from: usize, wanted: RowKind| {
            rows.iter().skip(from).take_while(|row| kind(row) == Some(wanted)).count()
        };
        let removed = run(at, RowKind::Removed);
        let added = run(at + removed, RowKind::Added);
        for pair in 0..removed.min(added) {
            let Some((before, after)) = rows.split_at_mut_checked(at + removed) else { break };
            if let (Some(DiffRow::Line(old)), Some(DiffRow::Line(new))) =
                (before.get_mut(at + pair), after.get_mut(pair))
            {
                (old.marks, new.marks) = changed_words(old.text, new.text, &mut comparisons_left);
            }
        }
        at += (removed + added).max(1);
    }
}

/// Ranges of bytes, in order.
type ByteRanges = Vec<(usize, usize)>;

/// Returns the ranges of both lines that differ. They are empty if the lines have little in common, or
/// if their comparison would take more than is left.
fn changed_words(old: &str, new: &str, comparisons_left: &mut usize) -> (ByteRanges, ByteRanges) {
    if old.len() > MAX_COMPARED_BYTES || new.len() > MAX_COMPARED_BYTES {
        return (Vec::new(), Vec::new());
    }
    let (old_words, new_words) = (words(old), words(new));
    let comparisons = old_words.len() * new_words.len();
    if comparisons > MAX_LINE_COMPARISONS.min(*comparisons_left) {
        return (Vec::new(), Vec::new());
    }
    *comparisons_left -= comparisons;
    let (old_texts, new_texts) = (word_texts(old, &old_words), word_texts(new, &new_words));
    let (mut removed, mut added, mut equal) = (Vec::new(), Vec::new(), 0);
    for op in capture_diff_slices(Algorithm::Myers, &old_texts, &new_texts) {
        match op {
            DiffOp::Equal { old_index, len, .. } => {
                let same = old_texts.iter().skip(old_index).take(len);
                equal += same
                    .filter(|word| !word.trim().is_empty())
                    .map(|word| word.len())
                    .sum::<usize>();
            }
            DiffOp::Delete { old_index, old_len, .. } => {
                removed.push(byte_range(&old_words, old_index, old_len));
            }
            DiffOp::Insert { new_index, new_len, .. } => {
                added.push(byte_range(&new_words, new_index, new_len));
            }
            DiffOp::Replace { old_index, old_len, new_index, new_len } => {
                removed.push(byte_range(&old_words, old_index, old_len));
                added.push(byte_range(&new_words, new_index, new_len));
            }
        }
    }
    // Otherwise nearly everything would be marked.
    if equal * 3 < old.trim().len().max(new.trim().len()) {
        return (Vec::new(), Vec::new());
    }
    (removed, added)
}

/// Returns the words of a line, by their ends.
fn word_texts<'a>(line: &'a str, ends: &[usize]) -> Vec<&'a str> {
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts.zip(ends).map(|(start, end)| line.get(start..*end).unwrap_or_default()).collect()
}

/// Returns the range of bytes of some words, by the ends of all words.
fn byte_range(ends: &[usize], first: usize, count: usize) -> (usize, usize) {
    let end_of = |index: usize| ends.get(index).copied().unwrap_or_default();
    let start = if first == 0 { 0 } else { end_of(first - 1) };
    (start, end_of((first + count).saturating_sub(1)))
}

/// Splits a line into words, spaces and single other characters, and returns where each ends.
fn words(line: &str) -> Vec<usize> {
    let class = |it: char| match it {
        it if it.is_alphanumeric() || it == '_' => 0,
        it if it.is_whitespace() => 1,
        _ => 2,
    };
    let mut ends: Vec<usize> = Vec::new();
    let mut last = None;
    for (at, it) in line.char_indices() {
        let (class, end) = (class(it), at + it.len_utf8());
        match ends.last_mut() {
            Some(open) if last == Some(class) && class != 2 => *open = end,
            _ => ends.push(end),
        }
        last = Some(class);
    }
    ends
}

/// Marks the changed lines that an earlier version of the same file's patch did not have. Returns the
/// number of changed lines that are gone. A line that only moved is neither.
pub(super) fn mark_fresh_rows(file: &mut FileDiff<'_>, earlier: Option<&FileDiff<'_>>) -> usize {
    let mut before: BTreeMap<(RowKind, &str), usize> = BTreeMap::new();
    for row in earlier.map(|file| file.rows.as_slice()).unwrap_or_default() {
        if let DiffRow::Line(line) = row
            && line.kind != RowKind::Same
        {
            *before.entry((line.kind, line.text)).or_default() += 1;
        }
    }
    for row in &mut file.rows {
        let DiffRow::Line(line) = row else { continue };
        if line.kind == RowKind::Same {
            continue;
        }
        match before.get_mut(&(line.kind, line.text)) {
            Some(left) if *left > 0 => *left -= 1,
            _ => line.is_fresh = true,
        }
    }
    before.into_values().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "diff --git a/a.txt b/a.txt\nnew file mode 100644\nindex 0..1\n\
        --- /dev/null\n+++ b/a.txt\n@@ -0,0 +1,2 @@\n+one\n+<b>two</b>\n\
        diff --git a/b.txt b/b.txt\ndeleted file mode 100644\n--- a/b.txt\n+++ /dev/null\n\
        @@ -1 +0,0 @@\n-gone\n\
        diff --git a/c.png b/c.png\nBinary files a/c.png and b/c.png differ\n\
        diff --git a/d b/e\nsimilarity index 90%\nrename from d\nrename to e\n--- a/d\n+++ b/e\n\
        @@ -4,3 +4,3 @@ fn total()\n same\n-let a = 1;\n+let b = 1;\n same\n";

    #[test]
    fn header_lines_describe_their_file() {
        let files = parse_files(PATCH);
        let shown: Vec<_> = files
            .iter()
            .map(|it| (it.path.as_str(), it.action, it.is_binary, it.added, it.removed))
            .collect();
        assert_eq!(
            shown,
            [
                ("a.txt", "new", false, 2, 0),
                ("b.txt", "deleted", false, 0, 1),
                ("c.png", "changed", true, 0, 0),
                ("e", "renamed", false, 1, 1),
            ]
        );
        assert_eq!(files[3].old_path.as_deref(), Some("d"));
        let DiffRow::Hunk(hunk) = &files[3].rows[0] else { panic!("a hunk: {:?}", files[3].rows) };
        assert_eq!(*hunk, HunkStart { old: 4, new: 4, heading: "fn total()" });
    }

    #[test]
    fn removed_lines_have_old_numbers_and_added_lines_new_ones() {
        let files = parse_files(PATCH);
        let numbers: Vec<_> = files[3]
            .rows
            .iter()
            .filter_map(|row| match row {
                DiffRow::Line(line) => Some((line.old, line.new)),
                _ => None,
            })
            .collect();
        let expected = [(Some(4), Some(4)), (Some(5), None), (None, Some(5)), (Some(6), Some(6))];
        assert_eq!(numbers, expected);
    }

    #[test]
    fn only_the_words_that_differ_are_marked() {
        let changed = |old, new| changed_words(old, new, &mut 1_000);
        assert_eq!(changed("let a = 1;", "let b = 1;"), (vec![(4, 5)], vec![(4, 5)]));
        assert_eq!(changed("f(x)", "f(x, yä)"), (vec![], vec![(3, 8)]));
        assert_eq!(changed("x", "something else"), (vec![], vec![]));
        assert_eq!(changed("", ""), (vec![], vec![]));
    }

    #[test]
    fn words_of_long_and_of_many_lines_are_compared_within_limits() {
        // Every character is a word of its own.
        let patch = |length: usize, count: usize| {
            let line = "(".repeat(length - 1);
            let removed = format!("-{line}a\n").repeat(count);
            let added = format!("+{line}b\n").repeat(count);
            format!("--- a/a\n+++ b/a\n@@ -1,{count} +1,{count} @@\n{removed}{added}")
        };
        let marked = |length, count| {
            let text = patch(length, count);
            let file = parse_files(&text)[0].with_changed_words();
            let rows = file.rows.iter();
            rows.filter(|row| matches!(row, DiffRow::Line(line) if !line.marks.is_empty())).count()
        };
        assert_eq!(marked(200, 1), 2);
        assert_eq!(marked(201, 1), 0, "one pair takes too long");
        assert_eq!(marked(1_000_000, 1), 0, "the line is too long");
        assert_eq!(marked(200, 150), 200, "100 pairs, then the limit of the file is reached");
    }

    #[test]
    fn a_changed_file_has_another_digest_and_its_new_lines_are_fresh() {
        let edited = PATCH.replace("+<b>two</b>", "+three");
        let (before, mut now) = (parse_files(PATCH), parse_files(&edited));
        assert_ne!(before[0].digest, now[0].digest);
        assert_eq!(before[3].digest, now[3].digest);
        assert_eq!(mark_fresh_rows(&mut now[0], before.first()), 1);
        let fresh: Vec<_> = now[0]
            .rows
            .iter()
            .filter_map(|row| match row {
                DiffRow::Line(line) if line.is_fresh => Some(line.text),
                _ => None,
            })
            .collect();
        assert_eq!(fresh, ["three"]);
        assert_eq!(mark_fresh_rows(&mut now[3], before.get(3)), 0);
    }
}
