//! Change of a task under review, and people's comments on its lines.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use tamma_core::actor::Actor;
use tamma_core::history::EntryName;
use tamma_core::ids::{CommitId, Name, ProjectId, TaskId};
use tamma_core::review::patch::{self, LineSide};
use tamma_core::review::record::{CheckRecord, ReviewCheck};
use tamma_core::task_loop::{State, Timestamp};
use tamma_store::{CommentDraft, StoredComment};

use super::{App, Error, PageRequest, Principal};
use crate::clock;
use crate::dto::{LineComment, RecordedEntry, ReviewedChange};
use crate::server::CommitFile;

/// Longest comment, in characters.
const MAX_COMMENT_CHARS: usize = 10_000;

/// Change that a person reads in the browser.
#[derive(Debug, Clone)]
pub(crate) struct ChangeForReview {
    /// Commit that was reviewed.
    pub(crate) commit: CommitId,
    /// Commit that the patch starts from, if the gates recorded it.
    pub(crate) base: Option<CommitId>,
    /// Set if the change passed review.
    pub(crate) passed: bool,
    /// Patch, without lines that look like secrets.
    pub(crate) patch: String,
    /// The end of the patch is missing.
    pub(crate) is_truncated: bool,
    /// Older change that the person decided on last; `None` if there is none.
    pub(crate) last_reviewed: Option<EarlierChange>,
    /// The person has decided on this commit before: the agent ran again, and changed nothing.
    pub(crate) is_unchanged: bool,
}

/// Earlier change of a task.
#[derive(Debug, Clone)]
pub(crate) struct EarlierChange {
    pub(crate) commit: CommitId,
    pub(crate) patch: String,
}

/// Line of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LineLocation {
    pub(crate) path: String,
    pub(crate) side: LineSide,
    pub(crate) line: u32,
}

impl App {
    /// Returns the newest change of a task that has a review.
    pub(crate) async fn latest_change(&self, id: TaskId) -> Result<ReviewedChange, Error> {
        // Reports a missing task as such.
        self.task_loop(id).await?;
        let reviewed = self.latest_review(id, None).await?.ok_or_else(|| no_change(id))?;
        let patch = self.load_patch(&reviewed).await?.ok_or_else(|| no_change(id))?;
        Ok(ReviewedChange {
            commit: reviewed.commit.to_string(),
            passed: reviewed.verdict.passed,
            patch,
            is_truncated: reviewed.is_diff_truncated,
        })
    }

    /// Returns the newest change of a task, with the one that a person reviewed before.
    pub(crate) async fn change_for_review(
        &self,
        id: TaskId,
        person: Option<&Name>,
    ) -> Result<ChangeForReview, Error> {
        self.task_loop(id).await?;
        let checks = self.store.checks(id).await?;
        let reviews: Vec<(&ReviewCheck, Timestamp)> = checks
            .iter()
            .filter_map(|check| match &check.record {
                CheckRecord::Review(reviewed) => Some((reviewed, check.at)),
                CheckRecord::Gates(_) => None,
            })
            .collect();
        let (newest, _) = reviews.last().copied().ok_or_else(|| no_change(id))?;
        let patch = self.load_patch(newest).await?.ok_or_else(|| no_change(id))?;
        let base = checks.iter().rev().find_map(|check| match &check.record {
            CheckRecord::Gates(gates) if gates.commit == newest.commit => Some(gates.base),
            CheckRecord::Gates(_) | CheckRecord::Review(_) => None,
        });
        let decided_at = match person {
            Some(person) => self.last_review_decision(id, person).await?,
            None => None,
        };
        let seen = decided_at.and_then(|decided_at| {
            let seen = reviews.iter().rev().find(|(_, at)| *at <= decided_at);
            seen.map(|(review, _)| *review)
        });
        let is_unchanged = decided_at.is_some_and(|decided_at| {
            let reviews: Vec<_> = reviews.iter().map(|(review, at)| (review.commit, *at)).collect();
            repeats_decided_commit(&reviews, decided_at)
        });
        let earlier = seen.filter(|review| review.commit != newest.commit);
        let last_reviewed = match earlier {
            Some(review) => match self.load_patch(review).await {
                Ok(patch) => patch.map(|patch| EarlierChange { commit: review.commit, patch }),
                // Retention may have removed it.
                Err(Error::NotFound { .. }) => None,
                Err(error) => return Err(error),
            },
            None => None,
        };
        Ok(ChangeForReview {
            commit: newest.commit,
            base,
            passed: newest.verdict.passed,
            patch,
            is_truncated: newest.is_diff_truncated,
            last_reviewed,
            is_unchanged,
        })
    }

    /// Returns the time at which a person last accepted a change of a task or requested changes.
    async fn last_review_decision(
        &self,
        id: TaskId,
        person: &Name,
    ) -> Result<Option<Timestamp>, Error> {
        let mut last = None;
        let mut after = None;
        loop {
            let part = self.history_page(id, &PageRequest { after, limit: 500 }).await?;
            for line in part.entries {
                let entry = &line.entry;
                let is_decision =
                    matches!(entry.name, EntryName::SmReviewPassed | EntryName::SmReviewFailed);
                let is_own = matches!(&entry.actor, Actor::Person(name) if name == person);
                if is_decision && is_own && entry.from == State::QualityReview {
                    last = Some(entry.at);
                }
            }
            after = part.next;
            if after.is_none() {
                return Ok(last);
            }
        }
    }

    /// Returns the history entries with words or reasons of people and questions of agents, oldest
    /// first.
    pub(crate) async fn entries_with_words(&self, id: TaskId) -> Result<Vec<RecordedEntry>, Error> {
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let part = self.history_page(id, &PageRequest { after, limit: 500 }).await?;
            let has_words = |line: &RecordedEntry| {
                let is_person = matches!(line.entry.actor, Actor::Person(_));
                line.text.is_some() || (is_person && line.entry.reason.is_some())
            };
            found.extend(part.entries.into_iter().filter(has_words));
            after = part.next;
            if after.is_none() {
                return Ok(found);
            }
        }
    }

    /// Returns a file of a project at a commit, if this server can read it and it is small enough.
    pub(crate) async fn commit_file(
        &self,
        project: ProjectId,
        commit: CommitId,
        path: &str,
        max_bytes: usize,
    ) -> Result<Option<Vec<u8>>, Error> {
        let Some(read) = &self.read_commit_file else { return Ok(None) };
        let repository = self.store.project(project).await?.repository;
        let path = path.to_owned();
        Ok(read(CommitFile { project, repository, commit, path, max_bytes }).await)
    }

    /// Returns the comments on the lines of a task's changes, oldest first.
    pub(crate) async fn line_comments(&self, id: TaskId) -> Result<Vec<StoredComment>, Error> {
        Ok(self.store.line_comments(id).await?)
    }

    /// Saves a comment that a person has not sent yet. An empty text removes it.
    pub(crate) async fn save_draft(
        &self,
        id: TaskId,
        by: &Principal,
        at: &LineLocation,
        content: &str,
    ) -> Result<(), Error> {
        let LineLocation { path, side, line } = at;
        if content.trim().is_empty() {
            return Ok(self.store.remove_draft(id, by, (path, *side, *line)).await?);
        }
        let change = self.change_for_review(id, None).await?;
        shown_code(&change, at)?;
        let draft = CommentDraft {
            path: path.clone(),
            side: *side,
            line: *line,
            content: checked_comment(content)?,
        };
        Ok(self.store.save_draft(id, by, &draft).await?)
    }

    /// Posts a comment for the other readers of a change. No agent gets it until somebody requests
    /// changes. A draft on the same line becomes the comment.
    pub(crate) async fn post_comment(
        &self,
        id: TaskId,
        by: &Principal,
        at: &LineLocation,
        content: &str,
    ) -> Result<(), Error> {
        let change = self.change_for_review(id, None).await?;
        let code = shown_code(&change, at)?;
        let comment = StoredComment {
            person: by.name.clone(),
            commit: change.commit,
            path: at.path.clone(),
            side: at.side,
            line: at.line,
            code,
            content: checked_comment(content)?,
            at: clock::now(),
        };
        self.store.add_line_comments(id, std::slice::from_ref(&comment)).await?;
        Ok(self.store.remove_draft(id, by, (&at.path, at.side, at.line)).await?)
    }

    /// Returns the drafts of a person that belong to lines of the current change.
    pub(crate) async fn sendable_drafts(
        &self,
        id: TaskId,
        by: &Name,
    ) -> Result<Vec<LineComment>, Error> {
        let drafts = self.store.drafts(id, by).await?;
        if drafts.is_empty() {
            return Ok(Vec::new());
        }
        let change = self.change_for_review(id, None).await?;
        let is_sendable = |draft: &CommentDraft| {
            patch::find_line(&change.patch, &draft.path, draft.side, draft.line).is_some()
        };
        Ok(drafts
            .into_iter()
            .filter(is_sendable)
            .map(|draft| LineComment {
                file: draft.path,
                line: draft.line,
                side: draft.side,
                text: draft.content,
            })
            .collect())
    }

    /// Posts comments that a person sent with a decision, and removes the drafts on their lines.
    pub(crate) async fn post_with_decision(
        &self,
        id: TaskId,
        by: &Name,
        lines: &[LineComment],
    ) -> Result<(), Error> {
        if lines.is_empty() {
            return Ok(());
        }
        let change = self.change_for_review(id, None).await?;
        let at = clock::now();
        let comments: Vec<StoredComment> = lines
            .iter()
            .map(|comment| {
                let code =
                    patch::find_line(&change.patch, &comment.file, comment.side, comment.line);
                StoredComment {
                    person: by.clone(),
                    commit: change.commit,
                    path: comment.file.clone(),
                    side: comment.side,
                    line: comment.line,
                    code: code.unwrap_or_default().to_owned(),
                    content: comment.text.trim().to_owned(),
                    at,
                }
            })
            .collect();
        self.store.add_line_comments(id, &comments).await?;
        for comment in lines {
            let location = (comment.file.as_str(), comment.side, comment.line);
            self.store.remove_draft(id, by, location).await?;
        }
        Ok(())
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
        let is_truncated = reviewed.is_some_and(|reviewed| reviewed.is_diff_truncated);
        format_comments(comments, lines, &patch, is_truncated)
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

    /// Returns the files that a commit changes; `None` if its patch is missing or incomplete.
    pub(super) async fn changed_files(
        &self,
        id: TaskId,
        commit: CommitId,
    ) -> Result<Option<BTreeSet<String>>, Error> {
        let Some(reviewed) = self.latest_review(id, Some(commit)).await? else { return Ok(None) };
        if reviewed.is_diff_truncated {
            return Ok(None);
        }
        let Some(patch) = self.load_patch(&reviewed).await? else { return Ok(None) };
        Ok(patch::changed_files(&patch))
    }

    async fn load_patch(&self, reviewed: &ReviewCheck) -> Result<Option<String>, Error> {
        match &reviewed.diff {
            Some(diff) => Ok(Some(self.store.text(diff).await?)),
            None => Ok(None),
        }
    }
}

/// Returns `true` if the newest review came after a decision, and is about the commit that was decided on.
fn repeats_decided_commit(reviews: &[(CommitId, Timestamp)], decided_at: Timestamp) -> bool {
    let decided = reviews.iter().rev().find(|(_, at)| *at <= decided_at);
    match (decided, reviews.last()) {
        (Some((decided, _)), Some((newest, at))) => *at > decided_at && decided == newest,
        _ => false,
    }
}

fn no_change(id: TaskId) -> Error {
    Error::NotFound { what: "reviewed change for task", key: id.to_string() }
}

/// Returns the code of a line that the change shows, or an error if it shows no such line.
fn shown_code(change: &ChangeForReview, at: &LineLocation) -> Result<String, Error> {
    let LineLocation { path, side, line } = at;
    match patch::find_line(&change.patch, path, *side, *line) {
        Some(code) => Ok(code.to_owned()),
        None if change.is_truncated => Ok(String::new()),
        None => Err(no_such_line(path, *side, *line)),
    }
}

fn no_such_line(path: &str, side: LineSide, line: u32) -> Error {
    let version = match side {
        LineSide::Old => "before the change",
        LineSide::New => "after the change",
    };
    Error::invalid(
        format!("The change does not show line {line} of `{path}` {version}."),
        "Comment on a line that the change shows, or write the comment without a line.",
    )
}

fn checked_comment(content: &str) -> Result<String, Error> {
    let content = content.trim();
    if content.is_empty() {
        return Err(Error::invalid("The comment is empty.", "Describe the change you want."));
    }
    if content.chars().count() > MAX_COMMENT_CHARS {
        return Err(Error::invalid(
            format!("The comment is longer than {MAX_COMMENT_CHARS} characters."),
            "Shorten it.",
        ));
    }
    Ok(content.to_owned())
}

/// Formats comments for the prompt of the next run. A comment is followed by its code line. A comment
/// on a line that the patch does not show is refused, unless the end of the patch is missing.
fn format_comments(
    comments: &str,
    lines: &[LineComment],
    patch: &str,
    is_truncated: bool,
) -> Result<String, Error> {
    let mut text = comments.trim().to_owned();
    if text.is_empty() && lines.is_empty() {
        return Err(Error::invalid("The comment is empty.", "Describe the change you want."));
    }
    for LineComment { file, line, side, text: comment } in lines {
        if file.trim().is_empty() || *line == 0 || comment.trim().is_empty() {
            return Err(Error::invalid(
                format!("The comment on `{file}`, line {line}, is incomplete."),
                "Give a file, a line number from 1, and the change you want.",
            ));
        }
        let code = patch::find_line(patch, file, *side, *line);
        if code.is_none() && !is_truncated {
            return Err(no_such_line(file, *side, *line));
        }
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        let version = match side {
            LineSide::Old => " before the change",
            LineSide::New => "",
        };
        let _ = write!(text, "`{file}`, line {line}{version}: {}", comment.trim());
        if let Some(code) = code {
            let _ = write!(text, "\n\n    {line} | {code}");
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str =
        "--- a/a.rs\n+++ b/a.rs\n@@ -1,2 +1,2 @@\n one\n-    let y = 1;\n+    let x = 1;\n";

    fn comment(file: &str, side: LineSide, line: u32, text: &str) -> LineComment {
        LineComment { file: file.to_owned(), line, side, text: text.to_owned() }
    }

    #[test]
    fn a_commit_that_comes_back_after_a_decision_is_noticed() {
        let commit = |digit: &str| digit.repeat(40).parse::<CommitId>().expect("a commit");
        let at = |second: i64| Timestamp::from_timestamp(second, 0).expect("a time");
        let (a, b) = (commit("a"), commit("b"));
        for (reviews, expected) in [
            (vec![(a, at(1)), (a, at(3))], true),
            (vec![(a, at(1)), (b, at(3))], false),
            (vec![(a, at(1))], false),
            (vec![(a, at(3))], false),
            (vec![], false),
        ] {
            assert_eq!(repeats_decided_commit(&reviews, at(2)), expected, "{reviews:?}");
        }
    }

    #[test]
    fn a_comment_is_followed_by_its_code_line_also_if_the_line_was_removed() {
        let lines = [
            comment("a.rs", LineSide::New, 2, " name it "),
            comment("a.rs", LineSide::Old, 2, "keep it"),
        ];
        assert_eq!(
            format_comments("Nearly.", &lines, PATCH, false).expect("formatted"),
            "Nearly.\n\n`a.rs`, line 2: name it\n\n    2 |     let x = 1;\n\n\
             `a.rs`, line 2 before the change: keep it\n\n    2 |     let y = 1;"
        );
        assert!(format_comments(" ", &[], PATCH, false).is_err());
    }

    #[test]
    fn a_comment_on_a_line_that_the_change_does_not_show_is_refused() {
        for missing in [
            comment("a.rs", LineSide::New, 99, "no such line"),
            comment("b.rs", LineSide::New, 1, "no such file"),
            comment("a.rs", LineSide::New, 0, "no line"),
        ] {
            let lines = std::slice::from_ref(&missing);
            assert!(format_comments("x", lines, PATCH, false).is_err(), "{missing:?}");
        }
        // A patch whose end is missing may have the line.
        let line = comment("b.rs", LineSide::New, 7, "and this");
        assert_eq!(
            format_comments("", &[line], PATCH, true).expect("formatted"),
            "`b.rs`, line 7: and this"
        );
    }
}
