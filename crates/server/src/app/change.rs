//! The change that a task has made, and what people say of its lines.

use std::fmt::Write as _;

use tamma_core::actor::Actor;
use tamma_core::ids::{CommitId, TaskId};
use tamma_core::log::Fact;
use tamma_core::review::patch;
use tamma_core::review::record::{Record, Reviewed};
use tamma_core::task_loop::{State, Timestamp};

use super::{App, Error, Window};
use crate::shape::{Change, LineComment};

/// What somebody has said of a line.
#[derive(Debug, Clone)]
pub(crate) struct Said {
    /// What, and of which line.
    pub(crate) on: LineComment,
    /// Who.
    pub(crate) by: String,
    /// When.
    pub(crate) at: Timestamp,
}

impl App {
    /// The newest change of a task that was reviewed.
    pub(crate) async fn change(&self, id: TaskId) -> Result<Change, Error> {
        // That there is no such task is told as that.
        self.machine(id).await?;
        let none = || Error::NotFound { what: "reviewed change yet of task", key: id.to_string() };
        let reviewed = self.reviewed(id, None).await?.ok_or_else(none)?;
        let patch = self.patch(&reviewed).await?.ok_or_else(none)?;
        Ok(Change { commit: reviewed.commit.to_string(), passed: reviewed.verdict.passed, patch })
    }

    /// What people have said of the lines of its changes when they sent them back, in its order.
    pub(crate) async fn said_of_lines(&self, id: TaskId) -> Result<Vec<Said>, Error> {
        let mut said = Vec::new();
        let mut after = None;
        loop {
            let part = self.history(id, &Window { after, limit: 500 }).await?;
            for line in part.entries {
                let (Actor::Person(by), Fact::Kept(text)) = (&line.entry.actor, &line.entry.data)
                else {
                    continue;
                };
                if line.entry.from != State::QualityReview {
                    continue;
                }
                let (by, at) = (by.to_string(), line.entry.at);
                let comments = from_words(&self.store.kept(text).await?);
                said.extend(comments.into_iter().map(|on| Said { on, by: by.clone(), at }));
            }
            after = part.next;
            if after.is_none() {
                return Ok(said);
            }
        }
    }

    /// What a person says of a commit, with the code that each comment is about.
    pub(super) async fn commented(
        &self,
        id: TaskId,
        commit: CommitId,
        comments: &str,
        lines: &[LineComment],
    ) -> Result<String, Error> {
        let reviewed =
            if lines.is_empty() { None } else { self.reviewed(id, Some(commit)).await? };
        let patch = match &reviewed {
            Some(reviewed) => self.patch(reviewed).await?.unwrap_or_default(),
            None => String::new(),
        };
        in_words(comments, lines, &patch)
    }

    async fn reviewed(
        &self,
        id: TaskId,
        commit: Option<CommitId>,
    ) -> Result<Option<Reviewed>, Error> {
        let of = |record| match record {
            Record::Review(reviewed) if commit.is_none_or(|it| it == reviewed.commit) => {
                Some(reviewed)
            }
            Record::Review(_) | Record::Gates(_) => None,
        };
        let checks = self.store.checks(id).await?;
        Ok(checks.into_iter().rev().find_map(|check| of(check.record)))
    }

    async fn patch(&self, reviewed: &Reviewed) -> Result<Option<String>, Error> {
        match &reviewed.diff {
            Some(diff) => Ok(Some(self.store.kept(diff).await?)),
            None => Ok(None),
        }
    }
}

/// Comments as the next run reads them: each with the line of code that it is about, where the change
/// shows it.
fn in_words(comments: &str, lines: &[LineComment], patch: &str) -> Result<String, Error> {
    let mut text = comments.trim().to_owned();
    if text.is_empty() && lines.is_empty() {
        return Err(Error::invalid("There is no comment.", "Say what is to be different."));
    }
    for LineComment { file, line, text: said } in lines {
        if file.trim().is_empty() || *line == 0 || said.trim().is_empty() {
            return Err(Error::invalid(
                format!("The comment on `{file}`, line {line}, is not whole."),
                "Name a file, a line from 1 on, and what is to be different.",
            ));
        }
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        let _ = write!(text, "`{file}`, line {line}: {}", said.trim());
        if let Some(code) = patch::line(patch, file, *line) {
            let _ = write!(text, "\n\n    {line} | {code}");
        }
    }
    Ok(text)
}

/// The comments on lines in what [`in_words`] has written.
fn from_words(text: &str) -> Vec<LineComment> {
    let mut comments: Vec<LineComment> = Vec::new();
    // A comment goes on until the code that it is about, or until the next one.
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
    fn a_comment_comes_with_the_line_of_code_that_it_is_about() {
        let on = |file: &str, line, text: &str| {
            let (file, text) = (file.to_owned(), text.to_owned());
            LineComment { file, line, text }
        };
        let patch = "--- a/a.rs\n+++ b/a.rs\n@@ -1 +1,2 @@\n one\n+    let x = 1;\n";
        let lines = [on("a.rs", 2, " name it "), on("b.rs", 7, "and this")];
        assert_eq!(
            in_words("Nearly.", &lines, patch).expect("words"),
            "Nearly.\n\n`a.rs`, line 2: name it\n\n    2 |     let x = 1;\n\n\
             `b.rs`, line 7: and this"
        );
        assert_eq!(in_words("", &lines[1..], "").expect("words"), "`b.rs`, line 7: and this");
        // And back, for whoever looks at the change later.
        let more = [on("a.rs", 2, "name it\n\nand say why"), on("b.rs", 7, "and this")];
        let text = in_words("Nearly.", &more, patch).expect("words");
        let read: Vec<_> =
            from_words(&text).into_iter().map(|it| (it.file, it.line, it.text)).collect();
        let written: Vec<_> = more.into_iter().map(|it| (it.file, it.line, it.text)).collect();
        assert_eq!(read, written);
        assert!(from_words("Nearly.").is_empty());
        assert!(in_words(" ", &[], patch).is_err());
        assert!(in_words("x", &[on("a.rs", 0, "no line")], patch).is_err());
    }
}
