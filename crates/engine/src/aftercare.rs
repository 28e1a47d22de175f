//! Commits that follow a merge, and the lines that they change.
//!
//! Whether a later commit changes lines of a merged change is told by blame: the lines that it removes
//! or replaces must come from the merge. Line numbers may have moved meanwhile.

use std::collections::BTreeSet;

use tamma_core::ids::CommitId;

use crate::git;
use crate::mirror::{Error, Mirror};

/// Most later commits that are read at once, newest first.
const MAX_LATER: &str = "--max-count=2000";

/// Most commits of one pull request that are looked for after a rebase.
const MAX_OWN: usize = 100;

/// Most parts of a commit that are compared.
const MAX_HUNKS: usize = 200;

/// Maximum size of a commit's difference that is compared, in bytes.
const MAX_DIFF_BYTES: usize = 4_000_000;

/// Commit on a branch, after a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaterCommit {
    /// Commit.
    pub commit: CommitId,
    /// It joins two branches, so its message is not about lines.
    pub is_merge: bool,
    /// Name of its author.
    pub author: String,
    /// Message, as its author wrote it.
    pub message: String,
}

/// Lines of a file before a commit that the commit changes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ChangedLines {
    path: String,
    /// First line, from 1. For an insertion, the line before it.
    start: u32,
    /// Number of lines; 0 for an insertion.
    count: u32,
}

impl Mirror {
    /// Returns the commits of `tip` that `since` does not have, newest first. Both must be in the mirror,
    /// as after [`fetch`](Self::fetch).
    pub async fn commits_after(
        &self,
        since: CommitId,
        tip: CommitId,
    ) -> Result<Vec<LaterCommit>, Error> {
        let range = format!("{since}..{tip}");
        let format = "--format=tformat:%H%x00%P%x00%an%x00%B";
        let call = ["log", "-z", MAX_LATER, "--no-show-signature", format, &range, "--"];
        let text = self.git.bare(&self.path).run(call).await?;
        let fields: Vec<_> = text.split('\0').collect();
        let mut commits = Vec::new();
        for commit in fields.chunks_exact(4) {
            let [id, parents, author, message] = commit else { continue };
            commits.push(LaterCommit {
                commit: id.parse()?,
                is_merge: parents.contains(' '),
                author: (*author).to_owned(),
                message: (*message).to_owned(),
            });
        }
        Ok(commits)
    }

    /// Returns the first parent of a commit, if it has one. The commit must be in the mirror.
    pub async fn first_parent(&self, commit: CommitId) -> Result<Option<CommitId>, Error> {
        self.find_commit(&format!("{commit}^1")).await
    }

    /// Returns the commits that a merge brought to its branch: the merge itself, and the commits of the
    /// pull request, as far as they are there. `head` is the newest commit of the pull request.
    pub async fn landed_commits(
        &self,
        merged: CommitId,
        head: Option<CommitId>,
    ) -> Result<BTreeSet<CommitId>, Error> {
        let mut landed = BTreeSet::from([merged]);
        if self.find_commit(&format!("{merged}^2")).await?.is_some() {
            let range = format!("{merged}^1..{merged}");
            let listed = self.git.bare(&self.path).run(["rev-list", &range, "--"]).await?;
            for line in listed.lines() {
                landed.insert(line.parse()?);
            }
            return Ok(landed);
        }
        let Some(head) = head else { return Ok(landed) };
        if self.find_commit(&head.to_string()).await?.is_none() {
            return Ok(landed);
        }
        // A rebase keeps author, time and subject of each commit. A squash does not.
        let own = self.authorships(&format!("{merged}..{head}")).await?;
        let own: BTreeSet<_> = own.into_iter().map(|(_, authorship)| authorship).collect();
        for (commit, authorship) in self.authorships(&merged.to_string()).await? {
            if landed.len() > own.len() || !own.contains(&authorship) {
                break;
            }
            landed.insert(commit);
        }
        Ok(landed)
    }

    /// Returns commits of a range along first parents, newest first, each with what a rebase keeps of it.
    async fn authorships(&self, range: &str) -> Result<Vec<(CommitId, String)>, Error> {
        let count = format!("--max-count={MAX_OWN}");
        let format = "--format=tformat:%H %at %ae %s";
        let call = ["log", "--first-parent", &count, "--no-show-signature", format, range, "--"];
        let listed = self.git.bare(&self.path).run(call).await?;
        let mut commits = Vec::new();
        for (commit, authorship) in listed.lines().filter_map(|line| line.split_once(' ')) {
            commits.push((commit.parse()?, authorship.to_owned()));
        }
        Ok(commits)
    }

    /// Returns `true` if a commit changes or removes lines that came from the given commits, or inserts
    /// lines between two of them. A merge is compared with its first parent.
    pub async fn changes_lines_of(
        &self,
        commit: CommitId,
        origin: &BTreeSet<CommitId>,
    ) -> Result<bool, Error> {
        let Some(before) = self.first_parent(commit).await? else { return Ok(false) };
        let (from, to) = (before.to_string(), commit.to_string());
        let call = [
            "diff-tree",
            "-p",
            "-U0",
            "-r",
            "--no-color",
            "--no-renames",
            "--no-ext-diff",
            "--no-textconv",
            "--src-prefix=a/",
            "--dst-prefix=b/",
            &from,
            &to,
        ];
        let diff = self.git.bare(&self.path).max_output(MAX_DIFF_BYTES).output(&call).await?;
        diff.check(&call, &self.path)?;
        for lines in changed_lines(&diff.text()).iter().take(MAX_HUNKS) {
            if self.come_from(before, lines, origin).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns `true` if a changed line came from the commits, or both lines around an insertion.
    async fn come_from(
        &self,
        before: CommitId,
        lines: &ChangedLines,
        origin: &BTreeSet<CommitId>,
    ) -> Result<bool, Error> {
        let is_insertion = lines.count == 0;
        let count = if is_insertion { 2 } else { lines.count };
        let range = format!("-L{},+{count}", lines.start);
        let before = before.to_string();
        let call = ["blame", "-l", "-s", "--root", &range, &before, "--", &lines.path];
        let blamed = match self.git.bare(&self.path).run_if_successful(&call).await {
            Ok(Some(blamed)) => blamed,
            // A file that takes too long, or that cannot be blamed, shows nothing.
            Ok(None) | Err(git::Error::TimedOut { .. } | git::Error::TooMuchOutput { .. }) => {
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        };
        let ours = |line: &str| {
            let commit = line.split(' ').next().and_then(|id| id.parse::<CommitId>().ok());
            commit.is_some_and(|commit| origin.contains(&commit))
        };
        if is_insertion {
            return Ok(blamed.lines().count() == 2 && blamed.lines().all(ours));
        }
        Ok(blamed.lines().any(ours))
    }
}

/// Returns the lines that a difference without context changes. Files with names that git has to quote
/// are left out, and so are new files.
fn changed_lines(diff: &str) -> Vec<ChangedLines> {
    let mut found = Vec::new();
    let mut path: Option<&str> = None;
    let mut lines = diff.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("diff --git ") {
            path = None;
        } else if let Some(name) = line.strip_prefix("--- a/") {
            // A name with spaces has a tab after it.
            path = Some(name.trim_end_matches('\t'));
        } else if let Some((old, new)) = hunk_ranges(line) {
            // Content can look like a header, so it is skipped.
            for _ in 0..u64::from(old.1) + u64::from(new.1) {
                let mut skipped = lines.next();
                if skipped.is_some_and(|text| text.starts_with('\\')) {
                    skipped = lines.next();
                }
                if skipped.is_none() {
                    break;
                }
            }
            if let Some(path) = path.filter(|_| old.0 > 0) {
                found.push(ChangedLines { path: path.to_owned(), start: old.0, count: old.1 });
            }
        }
    }
    found
}

/// Reads `@@ -start,count +start,count @@`.
fn hunk_ranges(line: &str) -> Option<((u32, u32), (u32, u32))> {
    let mut parts = line.strip_prefix("@@ ")?.split(' ');
    let mut range = |sign: char| -> Option<(u32, u32)> {
        let text = parts.next()?.strip_prefix(sign)?;
        let (start, count) = text.split_once(',').unwrap_or((text, "1"));
        Some((start.parse().ok()?, count.parse().ok()?))
    };
    Some((range('-')?, range('+')?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_lines_are_read_from_hunks_and_never_from_content() {
        let diff = "diff --git a/a.txt b/a.txt\nindex 1..2 100644\n--- a/a.txt\n+++ b/a.txt\n\
                    @@ -3,2 +3 @@ fn x\n--- a/evil.txt\n-two\n\\ No newline at end of file\n+three\n\
                    @@ -9,0 +9,1 @@\n+@@ -1,1 +1,1 @@\n\
                    diff --git a/new.txt b/new.txt\n--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+x\n\
                    diff --git a/b c.txt b/b c.txt\n--- a/b c.txt\t\n+++ b/b c.txt\t\n@@ -7 +7 @@\n-x\n+y\n";
        let lines = |path: &str, start, count| ChangedLines { path: path.to_owned(), start, count };
        assert_eq!(
            changed_lines(diff),
            [lines("a.txt", 3, 2), lines("a.txt", 9, 0), lines("b c.txt", 7, 1)]
        );
        assert_eq!(changed_lines("@@ -1 +1 @@\n-a\n+b\n"), []);
        assert_eq!(changed_lines("--- a/x\n@@ -1,999999 +1 @@\n-a\n"), [lines("x", 1, 999_999)]);
    }
}
