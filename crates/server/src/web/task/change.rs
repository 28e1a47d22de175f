//! The change of a task, line by line.

use axum::extract::{Path, Query, State};
use serde::Deserialize;
use tamma_core::ids::TaskId;
use tamma_core::review::patch::{self, Row};
use tamma_core::task_loop::Answer;
use uuid::Uuid;

use super::super::door::Visitor;
use super::super::shell::{Shell, When};
use super::super::{Hall, Oops, Page, render};
use super::{Around, task_page};
use crate::app::{Error, Said};

/// How many lines are shown at first.
const LINES: usize = 2_000;

task_page!(ChangePage, "task_change.html", { change: Shown });

struct Shown {
    any: bool,
    none: String,
    short: String,
    words: String,
    commentable: bool,
    files: Vec<File>,
    more: String,
    more_href: String,
}

struct File {
    id: String,
    path: String,
    action: &'static str,
    added: usize,
    removed: usize,
    planned: &'static str,
    lines: Vec<Line>,
}

struct Line {
    kind: &'static str,
    sign: &'static str,
    text: String,
    old: String,
    new: String,
    comments: Vec<Comment>,
}

/// What somebody has said of a line.
struct Comment {
    by: String,
    at: When,
    text: String,
}

/// Whether all of it is wanted.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::web) struct Wanted {
    all: bool,
}

pub(in crate::web) async fn page(
    State(hall): State<Hall>,
    visitor: Visitor,
    Path(id): Path<Uuid>,
    Query(wanted): Query<Wanted>,
) -> Page {
    let (around, known) = Around::of(&hall, &visitor, id, "change").await?;
    let found = async {
        let planned: Vec<String> = match &known.whole.plan {
            Some(_) => {
                let plan = hall.app.plan(TaskId(id)).await?.content;
                plan.map(|plan| plan.file_changes.into_iter().map(|it| it.path).collect())
                    .unwrap_or_default()
            }
            None => Vec::new(),
        };
        let said = hall.app.said_of_lines(TaskId(id)).await?;
        match hall.app.change(TaskId(id)).await {
            Ok(change) => Ok(Some((change, planned, said))),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    };
    let found = found.await.map_err(|error| Oops::new(Shell::of(&visitor), error))?;
    let commentable = known.whole.card.answers.contains(&Answer::Rework);
    let shown = match found {
        None => Shown {
            any: false,
            none:
                "A change is shown here when a run has made one and our checks have looked at it."
                    .to_owned(),
            short: String::new(),
            words: String::new(),
            commentable: false,
            files: Vec::new(),
            more: String::new(),
            more_href: String::new(),
        },
        Some((change, planned, said)) => {
            let limit = if wanted.all { usize::MAX } else { LINES };
            let (files, left) = files(&change.patch, &planned, &said, limit);
            let passed =
                if change.passed { "passed our checks" } else { "did not pass our checks" };
            Shown {
                any: true,
                none: String::new(),
                short: change.commit.chars().take(8).collect(),
                words: format!("{passed}. Lines that look like secrets are hidden."),
                commentable,
                files,
                more: super::super::words::counted(left as u64, "line"),
                more_href: if left > 0 { "?all=true".to_owned() } else { String::new() },
            }
        }
    };
    render(&ChangePage::new(around, shown))
}

/// The files of a patch, with what was said of their lines, and how many lines were left out.
fn files(patch: &str, planned: &[String], said: &[Said], limit: usize) -> (Vec<File>, usize) {
    let mut files: Vec<File> = Vec::new();
    let (mut shown, mut left, mut old) = (0, 0, 0_u32);
    for row in patch::rows(patch) {
        if let Row::File(path) = row {
            let is_planned = planned.is_empty() || planned.contains(&path);
            files.push(File {
                id: format!("f{}", files.len() + 1),
                action: "changed",
                planned: if is_planned { "" } else { "not in the plan" },
                path,
                added: 0,
                removed: 0,
                lines: Vec::new(),
            });
            continue;
        }
        let Some(file) = files.last_mut() else { continue };
        if let Row::Note(text) = row
            && let Some(word) = heading(text)
        {
            file.action = if word.is_empty() { file.action } else { word };
            continue;
        }
        let (kind, sign, text, before, after) = match row {
            Row::Piece(first, text) => {
                old = first;
                ("hunk", "", text.to_owned(), None, None)
            }
            Row::Removed(text) => {
                file.removed += 1;
                old += 1;
                ("del", "−", text.to_owned(), Some(old - 1), None)
            }
            Row::Kept(number, text) => {
                old += 1;
                ("same", " ", text.to_owned(), Some(old - 1), Some(number))
            }
            Row::Added(number, text) => {
                file.added += 1;
                ("add", "+", text.to_owned(), None, Some(number))
            }
            Row::Note(text) => ("hunk", "", text.to_owned(), None, None),
            Row::File(_) => continue,
        };
        if shown >= limit {
            left += 1;
            continue;
        }
        shown += 1;
        let number = |number: Option<u32>| number.map(|it| it.to_string()).unwrap_or_default();
        let about = said.iter().filter(|it| it.on.file == file.path && Some(it.on.line) == after);
        let comments = about.map(Comment::new).collect();
        let (old, new) = (number(before), number(after));
        file.lines.push(Line { kind, sign, text, old, new, comments });
    }
    (files, left)
}

/// What a line that git writes in the head of a file says of the file; empty where it says nothing that
/// people need. Nothing where it is no such line.
fn heading(text: &str) -> Option<&'static str> {
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

impl Comment {
    fn new(said: &Said) -> Self {
        Self { by: said.by.clone(), at: When::clock(said.at), text: said.on.text.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::LineComment;

    const PATCH: &str = "diff --git a/a.txt b/a.txt\nnew file mode 100644\nindex 0..1\n\
        --- /dev/null\n+++ b/a.txt\n@@ -0,0 +1,2 @@\n+one\n+<b>two</b>\n\
        diff --git a/b.txt b/b.txt\ndeleted file mode 100644\n--- a/b.txt\n+++ /dev/null\n\
        @@ -1 +0,0 @@\n-gone\n";

    #[test]
    fn what_git_says_of_a_file_stands_at_that_file() {
        let (files, left) = files(PATCH, &["a.txt".to_owned()], &[], usize::MAX);
        let shown: Vec<_> = files
            .iter()
            .map(|it| (it.path.as_str(), it.action, it.planned, it.lines.len()))
            .collect();
        assert_eq!(shown, [("a.txt", "new", "", 3), ("b.txt", "deleted", "not in the plan", 2)]);
        assert_eq!(left, 0);
        assert_eq!(self::files(PATCH, &[], &[], 2).1, 3);
    }

    #[test]
    fn what_was_said_of_a_line_stands_under_it() {
        let on = LineComment { file: "a.txt".to_owned(), line: 2, text: "why?".to_owned() };
        let at = chrono::DateTime::from_timestamp(0, 0).expect("a moment");
        let said = [Said { on, by: "Ada".to_owned(), at }];
        let (files, _) = files(PATCH, &[], &said, usize::MAX);
        let with: Vec<_> = files[0].lines.iter().map(|line| line.comments.len()).collect();
        assert_eq!(with, [0, 0, 1]);
        assert_eq!(files[0].lines[2].comments[0].text, "why?");
    }
}
