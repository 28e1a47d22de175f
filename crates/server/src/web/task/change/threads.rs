//! Comments and drafts, placed on the lines of a file's diff.

use std::collections::BTreeMap;

use tamma_core::ids::CommitId;
use tamma_core::review::patch::LineSide;
use tamma_store::{CommentDraft, StoredComment};

use super::diff::{DiffRow, FileDiff, RowKind};

/// Side and number of a line.
pub(super) type LineKey = (LineSide, u32);

/// Comments on a file.
#[derive(Debug, Default)]
pub(super) struct FileThreads<'a> {
    /// Threads by their line.
    pub(super) by_line: BTreeMap<LineKey, LineThread<'a>>,
    /// Comments on lines that the diff does not show any more.
    pub(super) outdated: Vec<&'a StoredComment>,
    /// Own drafts on such lines.
    pub(super) outdated_drafts: Vec<&'a CommentDraft>,
}

/// Comments on one line, oldest first, and the viewer's own draft.
#[derive(Debug, Default)]
pub(super) struct LineThread<'a> {
    pub(super) comments: Vec<&'a StoredComment>,
    pub(super) draft: Option<&'a str>,
}

impl<'a> FileThreads<'a> {
    /// Places the comments on a file. A comment on an earlier commit moves with its line of code.
    pub(super) fn new(
        file: &FileDiff<'_>,
        comments: &'a [StoredComment],
        drafts: &'a [CommentDraft],
        commit: CommitId,
    ) -> Self {
        let is_here =
            |path: &str| path == file.path || file.old_path.as_deref().is_some_and(|it| it == path);
        let mut threads = Self::default();
        for comment in comments.iter().filter(|comment| is_here(&comment.path)) {
            match find_line(file, comment, commit) {
                Some(line) => {
                    threads.by_line.entry((comment.side, line)).or_default().comments.push(comment);
                }
                None => threads.outdated.push(comment),
            }
        }
        for draft in drafts.iter().filter(|draft| is_here(&draft.path)) {
            let is_shown = side_lines(file, draft.side).any(|(line, _)| line == draft.line);
            if is_shown {
                let thread = threads.by_line.entry((draft.side, draft.line)).or_default();
                thread.draft = Some(&draft.content);
            } else {
                threads.outdated_drafts.push(draft);
            }
        }
        threads
    }

    /// Returns the number of comments and drafts.
    pub(super) fn count(&self) -> usize {
        let on_lines = self.by_line.values();
        let on_lines = on_lines.map(|it| it.comments.len() + usize::from(it.draft.is_some()));
        on_lines.sum::<usize>() + self.outdated.len() + self.outdated_drafts.len()
    }
}

/// Returns the line that a comment belongs to now: the same number with the same code, or the nearest
/// line with the same code.
fn find_line(file: &FileDiff<'_>, comment: &StoredComment, commit: CommitId) -> Option<u32> {
    let same_code = side_lines(file, comment.side).filter(|(_, text)| *text == comment.code);
    let nearest = same_code.map(|(line, _)| line).min_by_key(|line| line.abs_diff(comment.line));
    let is_blank = comment.code.trim().is_empty();
    let same_number = || side_lines(file, comment.side).any(|(line, _)| line == comment.line);
    match nearest {
        Some(line) if line == comment.line || !is_blank => Some(line),
        _ if comment.commit == commit && same_number() => Some(comment.line),
        _ => None,
    }
}

/// Returns the numbers and texts of the lines of one side.
fn side_lines<'f>(file: &'f FileDiff<'_>, side: LineSide) -> impl Iterator<Item = (u32, &'f str)> {
    file.rows.iter().filter_map(move |row| match row {
        DiffRow::Line(line) => {
            let number = match side {
                LineSide::Old if line.kind != RowKind::Added => line.old,
                LineSide::New if line.kind != RowKind::Removed => line.new,
                LineSide::Old | LineSide::New => None,
            };
            Some((number?, line.text))
        }
        DiffRow::Hunk(_) | DiffRow::Note(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::diff::parse_files;
    use super::*;

    const PATCH: &str =
        "--- a/a.rs\n+++ b/a.rs\n@@ -1,3 +1,4 @@\n one\n-old\n+first\n+second\n three\n";

    fn comment(side: LineSide, line: u32, code: &str) -> StoredComment {
        StoredComment {
            person: "Ada".parse().expect("name"),
            commit: "a".repeat(40).parse().expect("commit"),
            path: "a.rs".to_owned(),
            side,
            line,
            code: code.to_owned(),
            content: "why?".to_owned(),
            at: chrono::DateTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn comments_stay_on_their_line_of_code_in_a_later_commit() {
        let files = parse_files(PATCH);
        let later: CommitId = "b".repeat(40).parse().expect("commit");
        let comments = [
            comment(LineSide::New, 3, "second"),
            comment(LineSide::New, 2, "second"),
            comment(LineSide::Old, 2, "old"),
            comment(LineSide::New, 9, "removed since"),
        ];
        let threads = FileThreads::new(&files[0], &comments, &[], later);
        let placed: Vec<_> =
            threads.by_line.iter().map(|(key, thread)| (*key, thread.comments.len())).collect();
        assert_eq!(placed, [((LineSide::Old, 2), 1), ((LineSide::New, 3), 2)]);
        assert_eq!(threads.outdated, [&comments[3]]);
        assert_eq!(threads.count(), 4);
    }

    #[test]
    fn a_draft_on_a_line_that_is_gone_is_kept() {
        let files = parse_files(PATCH);
        let draft = |line| CommentDraft {
            path: "a.rs".to_owned(),
            side: LineSide::Old,
            line,
            content: format!("draft on {line}"),
        };
        let drafts = [draft(2), draft(7)];
        let commit = "a".repeat(40).parse().expect("commit");
        let threads = FileThreads::new(&files[0], &[], &drafts, commit);
        assert_eq!(threads.by_line[&(LineSide::Old, 2)].draft, Some("draft on 2"));
        assert_eq!(threads.outdated_drafts, [&drafts[1]]);
    }
}
