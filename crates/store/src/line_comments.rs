//! Reviews in a browser: comments on lines of a change, drafts of them, and viewed files.
//!
//! Names of people are compared as they are spelt in their token. Drafts and marks belong to one
//! person; nobody else reads them.

use std::collections::BTreeMap;

use sqlx::types::Uuid;
use tamma_core::ids::{CommitId, Digest, Name, TaskId};
use tamma_core::review::patch::LineSide;
use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::encoding::{read_number, read_word, word};
use crate::error::{CorruptData, Result};

/// Comment on one line of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredComment {
    /// Author.
    pub person: Name,
    /// Commit that the author read.
    pub commit: CommitId,
    /// Path from the repository root.
    pub path: String,
    /// Version of the file that `line` counts in.
    pub side: LineSide,
    /// Line number, from 1.
    pub line: u32,
    /// Text of the line.
    pub code: String,
    /// Text of the comment.
    pub content: String,
    /// Time of the comment.
    pub at: Timestamp,
}

impl StoredComment {
    /// Returns the ID, which is the same for the same comment of the same person.
    fn id(&self, task: TaskId) -> Uuid {
        let Self { person, commit, path, side, line, content, .. } = self;
        let key = format!("{task}\n{person}\n{commit}\n{path}\n{side}\n{line}\n{content}");
        let digits = Digest::of(key.as_bytes()).to_string();
        let number = digits.get(..32).and_then(|digits| u128::from_str_radix(digits, 16).ok());
        Uuid::from_u128(number.unwrap_or_default())
    }
}

/// Comment that its author has not sent yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommentDraft {
    /// Path from the repository root.
    pub path: String,
    /// Version of the file that `line` counts in.
    pub side: LineSide,
    /// Line number, from 1.
    pub line: u32,
    /// Text of the comment.
    pub content: String,
}

impl Store {
    /// Adds comments to a task. A comment that exists already is left as it is.
    pub async fn add_line_comments(&self, task: TaskId, comments: &[StoredComment]) -> Result<()> {
        for comment in comments {
            sqlx::query!(
                "INSERT INTO line_comments
                    (id, task, person, commit, path, side, line, code, content, at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
                 ON CONFLICT DO NOTHING",
                comment.id(task),
                task.0,
                comment.person.to_string(),
                comment.commit.to_string(),
                without_nul(&comment.path),
                word(&comment.side),
                i64::from(comment.line),
                without_nul(&comment.code),
                without_nul(&comment.content),
                comment.at,
            )
            .execute(&self.steps)
            .await?;
        }
        Ok(())
    }

    /// Returns the comments on the lines of a task's changes, oldest first.
    pub async fn line_comments(&self, task: TaskId) -> Result<Vec<StoredComment>> {
        let rows = sqlx::query!(
            "SELECT person, commit, path, side, line, code, content, at
             FROM line_comments WHERE task = $1 ORDER BY at, id",
            task.0
        )
        .fetch_all(&self.reads)
        .await?;
        let what = "line comment";
        rows.into_iter()
            .map(|row| {
                Ok(StoredComment {
                    person: read_word(what, row.person)?,
                    commit: read_word(what, row.commit)?,
                    path: row.path,
                    side: read_word(what, row.side)?,
                    line: read_number(what, row.line)?,
                    code: row.code,
                    content: row.content,
                    at: row.at,
                })
            })
            .collect::<Result<_, CorruptData>>()
            .map_err(|damage| damage.with_key(task.to_string()).into())
    }

    /// Saves a draft. It replaces the draft of the same person on the same line.
    pub async fn save_draft(
        &self,
        task: TaskId,
        person: &Name,
        draft: &CommentDraft,
    ) -> Result<()> {
        sqlx::query!(
            "INSERT INTO comment_drafts (task, person, path, side, line, content)
             VALUES ($1, $2, $3, $4, $5, $6)
             ON CONFLICT (task, person, path, side, line) DO UPDATE SET
                content = excluded.content, updated_at = clock_timestamp()",
            task.0,
            person.to_string(),
            without_nul(&draft.path),
            word(&draft.side),
            i64::from(draft.line),
            without_nul(&draft.content),
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Removes the draft of a person on one line, if there is one.
    pub async fn remove_draft(
        &self,
        task: TaskId,
        person: &Name,
        (path, side, line): (&str, LineSide, u32),
    ) -> Result<()> {
        sqlx::query!(
            "DELETE FROM comment_drafts
             WHERE task = $1 AND person = $2 AND path = $3 AND side = $4 AND line = $5",
            task.0,
            person.to_string(),
            without_nul(path),
            word(&side),
            i64::from(line),
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Returns the drafts of a person for a task, by file and line.
    pub async fn drafts(&self, task: TaskId, person: &Name) -> Result<Vec<CommentDraft>> {
        let rows = sqlx::query!(
            "SELECT path, side, line, content FROM comment_drafts
             WHERE task = $1 AND person = $2 ORDER BY path, line, side",
            task.0,
            person.to_string(),
        )
        .fetch_all(&self.reads)
        .await?;
        let what = "draft";
        rows.into_iter()
            .map(|row| {
                Ok(CommentDraft {
                    path: row.path,
                    side: read_word(what, row.side)?,
                    line: read_number(what, row.line)?,
                    content: row.content,
                })
            })
            .collect::<Result<_, CorruptData>>()
            .map_err(|damage| damage.with_key(task.to_string()).into())
    }

    /// Marks a file of a change as viewed, or removes the mark if `digest` is `None`.
    pub async fn mark_viewed(
        &self,
        task: TaskId,
        person: &Name,
        path: &str,
        digest: Option<Digest>,
    ) -> Result<()> {
        let (person, path) = (person.to_string(), without_nul(path));
        match digest {
            Some(digest) => {
                sqlx::query!(
                    "INSERT INTO viewed_files (task, person, path, digest)
                     VALUES ($1, $2, $3, $4)
                     ON CONFLICT (task, person, path) DO UPDATE SET
                        digest = excluded.digest, viewed_at = clock_timestamp()",
                    task.0,
                    person,
                    path,
                    digest.to_string(),
                )
                .execute(&self.steps)
                .await?;
            }
            None => {
                sqlx::query!(
                    "DELETE FROM viewed_files WHERE task = $1 AND person = $2 AND path = $3",
                    task.0,
                    person,
                    path,
                )
                .execute(&self.steps)
                .await?;
            }
        }
        Ok(())
    }

    /// Returns the files that a person has viewed, each with the hash of the patch that they saw.
    pub async fn viewed_files(
        &self,
        task: TaskId,
        person: &Name,
    ) -> Result<BTreeMap<String, String>> {
        let rows = sqlx::query!(
            "SELECT path, digest FROM viewed_files WHERE task = $1 AND person = $2",
            task.0,
            person.to_string(),
        )
        .fetch_all(&self.reads)
        .await?;
        Ok(rows.into_iter().map(|row| (row.path, row.digest)).collect())
    }
}

/// Replaces NUL, which PostgreSQL text cannot contain.
fn without_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}
