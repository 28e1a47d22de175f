//! Change of a task under review, and people's comments on its lines.

use std::fmt::Write as _;

use tamma_core::actor::Actor;
use tamma_core::history::EntryData;
use tamma_core::ids::{CommitId, TaskId};
use tamma_core::review::patch;
use tamma_core::review::record::{CheckRecord, ReviewCheck};
use tamma_core::task_loop::{State, Timestamp};

use super::{App, Error, PageRequest};
use crate::dto::{LineComment, ReviewedChange};

/// Comment on one line of a change, as posted.
#[derive(Debug, Clone)]
pub(crate) struct PostedComment {
    /// File, line and text.
    pub(crate) comment: LineComment,
    /// Name of the author.
    pub(crate) by: String,
    /// Time of the review decision.
    pub(crate) at: Timestamp,
}

impl App {
    /// Returns the newest change of a task that has a review.
    pub(crate) async fn latest_change(&self, id: TaskId) -> Result<ReviewedChange, Error> {
        // Reports a missing task as such.
        self.task_loop(id).await?;
        let none = || Error::NotFound { what: "reviewed change for task", key: id.to_string() };
        let reviewed = self.latest_review(id, None).await?.ok_or_else(none)?;
        let patch = self.load_patch(&reviewed).await?.ok_or_else(none)?;
        Ok(ReviewedChange {
            commit: reviewed.commit.to_string(),
            passed: reviewed.verdict.passed,
            patch,
            is_truncated: reviewed.is_diff_truncated,
        })
    }

    /// Returns all line comments that people sent with change requests, oldest first.
    pub(crate) async fn line_comments(&self, id: TaskId) -> Result<Vec<PostedComment>, Error> {
        let mut posted = Vec::new();
        let mut after = None;
        loop {
            let part = self.history_page(id, &PageRequest { after, limit: 500 }).await?;
            for line in part.entries {
                let (Actor::Person(by), EntryData::Stored(text)) =
                    (&line.entry.actor, &line.entry.data)
                else {
                    continue;
                };
                if line.entry.from != State::QualityReview {
                    continue;
                }
                let (by, at) = (by.to_string(), line.entry.at);
                let comments = parse_comments(&self.store.text(text).await?);
                posted.extend(comments.into_iter().map(|comment| PostedComment {
                    comment,
                    by: by.clone(),
                    at,
                }));
            }
            after = part.next;
            if after.is_none() {
                return Ok(posted);
            }
        }
    }

    /// Formats comments on a commit, each with the code line it refers to.
    pub(super) async fn comments_with_code(
        &self,
        id: TaskId,
        commit: CommitId,
        comments: &str,
        lines: &[LineComment],
    ) -> Result<String, Error> {
        let reviewed =
            if lines.is_empty() { None } else { self.latest_review(id, Some(commit)).await? };
        let patch = match &reviewed {
            Some(reviewed) => self.load_patch(reviewed).await?.unwrap_or_default(),
            None => String::new(),
        };
        format_comments(comments, lines, &patch)
    }

    async fn latest_review(
        &self,
        id: TaskId,
        commit: Option<CommitId>,
    ) -> Result<Option<ReviewCheck>, Error> {
        let of = |record| match record {
            CheckRecord::Review(reviewed) if commit.is_none_or(|it| it == reviewed.commit) => {
                Some(reviewed)
            }
            CheckRecord::Review(_) | CheckRecord::Gates(_) => None,
        };
        let checks = self.store.checks(id).await?;
        Ok(checks.into_iter().rev().find_map(|check| of(check.record)))
    }

    async fn load_patch(&self, reviewed: &ReviewCheck) -> Result<Option<String>, Error> {
        match &reviewed.diff {
            Some(diff) => Ok(Some(self.store.text(diff).await?)),
            None => Ok(None),
        }
    }
}

/// Formats comments for the prompt of the next run. A comment is followed by its code line if the
/// patch contains that line.
fn format_comments(comments: &str, lines: &[LineComment], patch: &str) -> Result<String, Error> {
    let mut text = comments.trim().to_owned();
    if text.is_empty() && lines.is_empty() {
        return Err(Error::invalid("The comment is empty.", "Describe the change you want."));
    }
    for LineComment { file, line, text: comment } in lines {
        if file.trim().is_empty() || *line == 0 || comment.trim().is_empty() {
            return Err(Error::invalid(
                format!("The comment on `{file}`, line {line}, is incomplete."),
                "Give a file, a line number from 1, and the change you want.",
            ));
        }
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        let _ = write!(text, "`{file}`, line {line}: {}", comment.trim());
        if let Some(code) = patch::find_line(patch, file, *line) {
            let _ = write!(text, "\n\n    {line} | {code}");
        }
    }
    Ok(text)
}

/// Parses the line comments from the output of [`format_comments`].
fn parse_comments(text: &str) -> Vec<LineComment> {
    let mut comments: Vec<LineComment> = Vec::new();
    // A comment ends at its code line or at the next comment.
    let mut open = false;
    for line in text.lines() {
        let head = || {
            let (file, rest) = line.strip_prefix('`')?.split_once("`, line ")?;
            let (number, text) = rest.split_once(": ")?;
            Some((file.to_owned(), number.parse().ok()?, text.to_owned()))
        };
        if let Some((file, line, text)) = head() {
            comments.push(LineComment { file, line, text });
            open = true;
        } else if let Some(last) = comments.last_mut().filter(|_| open) {
            if line.starts_with(&format!("    {} | ", last.line)) {
                open = false;
            } else {
                last.text.push('\n');
                last.text.push_str(line);
            }
        }
    }
    for comment in &mut comments {
        comment.text.truncate(comment.text.trim_end().len());
    }
    comments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_is_followed_by_its_code_line_and_can_be_parsed_back() {
        let comment = |file: &str, line, text: &str| {
            let (file, text) = (file.to_owned(), text.to_owned());
            LineComment { file, line, text }
        };
        let patch = "--- a/a.rs\n+++ b/a.rs\n@@ -1 +1,2 @@\n one\n+    let x = 1;\n";
        let lines = [comment("a.rs", 2, " name it "), comment("b.rs", 7, "and this")];
        assert_eq!(
            format_comments("Nearly.", &lines, patch).expect("formatted"),
            "Nearly.\n\n`a.rs`, line 2: name it\n\n    2 |     let x = 1;\n\n\
             `b.rs`, line 7: and this"
        );
        assert_eq!(
            format_comments("", &lines[1..], "").expect("formatted"),
            "`b.rs`, line 7: and this"
        );
        // The parser reverses the format.
        let more = [comment("a.rs", 2, "name it\n\nand say why"), comment("b.rs", 7, "and this")];
        let text = format_comments("Nearly.", &more, patch).expect("formatted");
        let read: Vec<_> =
            parse_comments(&text).into_iter().map(|it| (it.file, it.line, it.text)).collect();
        let written: Vec<_> = more.into_iter().map(|it| (it.file, it.line, it.text)).collect();
        assert_eq!(read, written);
        assert!(parse_comments("Nearly.").is_empty());
        assert!(format_comments(" ", &[], patch).is_err());
        assert!(format_comments("x", &[comment("a.rs", 0, "no line")], patch).is_err());
    }
}
