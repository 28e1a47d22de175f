//! Change tab of a task: its diff.

use axum::extract::{Path, Query};
use serde::Deserialize;
use tamma_core::ids::TaskId;
use tamma_core::review::patch::{self, PatchLine};
use tamma_core::task_loop::AnswerKind;
use uuid::Uuid;

use super::super::labels::short_hash;
use super::super::layout::{DisplayTime, Layout};
use super::super::session::Session;
use super::super::{PageError, PageResult, WebState, render};
use super::{TaskPageContext, task_page};
use crate::app::{Error, PostedComment};

/// Maximum number of lines without `?all=true`.
const MAX_LINES: usize = 2_000;

task_page!(ChangePage, "task_change.html", { change: Option<ChangeView> });

struct ChangeView {
    short_commit: String,
    summary: String,
    /// The end of the patch is missing.
    is_truncated: bool,
    accepts_comments: bool,
    files: Vec<DiffFile>,
    /// Number of lines that are left out.
    remaining: usize,
}

struct DiffFile {
    id: String,
    path: String,
    action: &'static str,
    added: usize,
    removed: usize,
    is_planned: bool,
    rows: Vec<DiffRow>,
}

enum DiffRow {
    /// Start of a hunk, or another line that git writes about the file.
    Header(String),
    Line(DiffLine),
}

struct DiffLine {
    kind: &'static str,
    sign: &'static str,
    text: String,
    /// Line number before the change.
    old_number: Option<u32>,
    /// Line number after the change.
    new_number: Option<u32>,
    comments: Vec<LineCommentView>,
}

/// Comment on a line of the diff.
struct LineCommentView {
    by: String,
    at: DisplayTime,
    text: String,
}

/// Query parameters of the change tab.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::web) struct ChangeQuery {
    all: bool,
}

pub(in crate::web) async fn page(
    state: WebState,
    session: Session,
    Path(id): Path<Uuid>,
    Query(query): Query<ChangeQuery>,
) -> PageResult {
    let (context, data) = TaskPageContext::load(&state, &session, id, "change").await?;
    let loaded = async {
        let planned: Vec<String> = match &data.detail.plan {
            Some(_) => {
                let plan = state.app.current_plan(TaskId(id)).await?.content;
                plan.map(|plan| plan.file_changes.into_iter().map(|it| it.path).collect())
                    .unwrap_or_default()
            }
            None => Vec::new(),
        };
        let comments = state.app.line_comments(TaskId(id)).await?;
        match state.app.latest_change(TaskId(id)).await {
            Ok(change) => Ok(Some((change, planned, comments))),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    };
    let loaded =
        loaded.await.map_err(|error| PageError::new(Layout::for_session(&session), error))?;
    let accepts_comments = data.detail.card.answers.contains(&AnswerKind::RequestChanges);
    let change = loaded.map(|(change, planned, comments)| {
        let limit = if query.all { usize::MAX } else { MAX_LINES };
        let (files, remaining) = diff_files(&change.patch, &planned, &comments, limit);
        let passed = if change.passed { "Passed review" } else { "Did not pass review" };
        ChangeView {
            short_commit: short_hash(&change.commit),
            summary: format!("{passed}. Lines that look like secrets are hidden."),
            is_truncated: change.is_truncated,
            accepts_comments,
            files,
            remaining,
        }
    });
    render(&ChangePage::new(context, change))
}

/// Parses a patch into files with their comments, and counts the lines beyond `limit`.
fn diff_files(
    patch: &str,
    planned: &[String],
    comments: &[PostedComment],
    limit: usize,
) -> (Vec<DiffFile>, usize) {
    let mut files: Vec<DiffFile> = Vec::new();
    let (mut shown, mut remaining, mut old) = (0, 0, 0_u32);
    for row in patch::lines(patch) {
        if let PatchLine::File(path) = row {
            let is_planned = planned.is_empty() || planned.contains(&path);
            files.push(DiffFile {
                id: format!("f{}", files.len() + 1),
                action: "changed",
                is_planned,
                path,
                added: 0,
                removed: 0,
                rows: Vec::new(),
            });
            continue;
        }
        let Some(file) = files.last_mut() else { continue };
        if let PatchLine::Header(text) = row
            && let Some(word) = file_header_action(text)
        {
            file.action = if word.is_empty() { file.action } else { word };
            continue;
        }
        let row = match row {
            PatchLine::Hunk(first, text) => {
                old = first;
                DiffRow::Header(text.to_owned())
            }
            PatchLine::Removed(text) => {
                file.removed += 1;
                old += 1;
                DiffRow::Line(DiffLine::new("del", "−", text, Some(old - 1), None))
            }
            PatchLine::Context(number, text) => {
                old += 1;
                DiffRow::Line(DiffLine::new("same", " ", text, Some(old - 1), Some(number)))
            }
            PatchLine::Added(number, text) => {
                file.added += 1;
                DiffRow::Line(DiffLine::new("add", "+", text, None, Some(number)))
            }
            PatchLine::Header(text) => DiffRow::Header(text.to_owned()),
            PatchLine::File(_) => continue,
        };
        if shown >= limit {
            remaining += 1;
            continue;
        }
        shown += 1;
        file.rows.push(match row {
            DiffRow::Line(line) => DiffRow::Line(line.with_comments(&file.path, comments)),
            header @ DiffRow::Header(_) => header,
        });
    }
    (files, remaining)
}

/// Returns the label of a header line that git writes for a file. It is empty for a header without
/// a label, and `None` for other lines.
fn file_header_action(text: &str) -> Option<&'static str> {
    const KNOWN: [(&str, &str); 8] = [
        ("new file mode ", "new"),
        ("deleted file mode ", "deleted"),
        ("rename from ", "renamed"),
        ("rename to ", "renamed"),
        ("similarity index ", ""),
        ("dissimilarity index ", ""),
        ("old mode ", "mode changed"),
        ("new mode ", "mode changed"),
    ];
    KNOWN.iter().find(|(start, _)| text.starts_with(start)).map(|(_, word)| *word)
}

impl DiffLine {
    fn new(
        kind: &'static str,
        sign: &'static str,
        text: &str,
        old_number: Option<u32>,
        new_number: Option<u32>,
    ) -> Self {
        Self { kind, sign, text: text.to_owned(), old_number, new_number, comments: Vec::new() }
    }

    /// Adds the comments on this line of `path`.
    fn with_comments(self, path: &str, posted: &[PostedComment]) -> Self {
        let number = self.new_number;
        let about = posted
            .iter()
            .filter(|it| it.comment.file == path && Some(it.comment.line) == number)
            .map(LineCommentView::new);
        Self { comments: about.collect(), ..self }
    }
}

impl LineCommentView {
    fn new(posted: &PostedComment) -> Self {
        Self {
            by: posted.by.clone(),
            at: DisplayTime::absolute(posted.at),
            text: posted.comment.text.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dto::LineComment;

    const PATCH: &str = "diff --git a/a.txt b/a.txt\nnew file mode 100644\nindex 0..1\n\
        --- /dev/null\n+++ b/a.txt\n@@ -0,0 +1,2 @@\n+one\n+<b>two</b>\n\
        diff --git a/b.txt b/b.txt\ndeleted file mode 100644\n--- a/b.txt\n+++ /dev/null\n\
        @@ -1 +0,0 @@\n-gone\n";

    #[test]
    fn git_header_lines_label_their_file() {
        let (files, remaining) = diff_files(PATCH, &["a.txt".to_owned()], &[], usize::MAX);
        let shown: Vec<_> = files
            .iter()
            .map(|it| (it.path.as_str(), it.action, it.is_planned, it.rows.len()))
            .collect();
        assert_eq!(shown, [("a.txt", "new", true, 3), ("b.txt", "deleted", false, 2)]);
        assert_eq!(remaining, 0);
        assert_eq!(self::diff_files(PATCH, &[], &[], 2).1, 3);
    }

    #[test]
    fn comments_appear_under_their_line() {
        let comment = LineComment { file: "a.txt".to_owned(), line: 2, text: "why?".to_owned() };
        let at = chrono::DateTime::from_timestamp(0, 0).expect("a valid time");
        let posted = [PostedComment { comment, by: "Ada".to_owned(), at }];
        let (files, _) = diff_files(PATCH, &[], &posted, usize::MAX);
        let comments = |row: &DiffRow| match row {
            DiffRow::Line(line) => line.comments.iter().map(|it| it.text.clone()).collect(),
            DiffRow::Header(_) => Vec::new(),
        };
        let all: Vec<Vec<String>> = files[0].rows.iter().map(comments).collect();
        assert_eq!(all, [vec![], vec![], vec!["why?".to_owned()]]);
    }
}
