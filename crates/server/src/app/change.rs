//! The change that a task has made, and what people say of its lines.

use std::fmt::Write as _;

use tamma_core::ids::{CommitId, TaskId};
use tamma_core::review::patch;
use tamma_core::review::record::{Record, Reviewed};

use super::{App, Error};
use crate::shape::{Change, LineComment};

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
        assert!(in_words(" ", &[], patch).is_err());
        assert!(in_words("x", &[on("a.rs", 0, "no line")], patch).is_err());
    }
}
