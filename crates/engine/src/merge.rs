//! Merges, rebases and pushes in the mirror, without a worktree.
//!
//! Results depend on the arguments only, including names and times: the same call makes the same
//! commit again, so callers can repeat it after a crash. Pushes name the commit that they replace,
//! and a push whose answer was lost is looked up.

use tamma_core::ids::CommitId;
use tamma_core::task_loop::Timestamp;

use crate::delivery::{self, PushOutcome};
use crate::git::{self, GitOutput, QUERY_LIMIT, TRANSFER_LIMIT, remote_arguments};
use crate::mirror::{Error, Mirror};
use crate::worktree::Author;

/// Most commits that are rebased one by one. More become one commit.
const MAX_PICKS: usize = 100;

/// Most conflicting paths that are listed.
const MAX_PATHS: usize = 50;

/// Maximum size of the description of conflicts, in bytes.
const MAX_CONFLICT_BYTES: usize = 32_000;

/// Maximum size of a conflicting file that is shown, in bytes.
const MAX_FILE_BYTES: usize = 1_000_000;

/// Fields of a commit, each followed by NUL.
const COMMIT_FORMAT: &str =
    "--format=tformat:%H%x00%P%x00%an%x00%ae%x00%ad%x00%cn%x00%ce%x00%cd%x00%B";

/// Number of fields in [`COMMIT_FORMAT`].
const COMMIT_FIELDS: usize = 9;

/// Result of merging two commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeMerge {
    /// ID of the merged tree.
    Merged(String),
    /// Both sides changed the same.
    Conflicts(MergeConflicts),
}

/// Conflicts of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeConflicts {
    /// Conflicting paths. At most 50 are listed.
    pub paths: Vec<String>,
    /// Messages of git, and the conflicting lines.
    pub text: String,
}

/// Result of a rebase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RebaseOutcome {
    /// Commits are on top of the new base.
    Rebased {
        /// New head.
        commit: CommitId,
        /// The change itself is another one.
        changed: bool,
    },
    /// Commits conflict with the new base.
    Conflicts(MergeConflicts),
}

/// Commit that is made again elsewhere.
struct PickedCommit {
    id: CommitId,
    parents: Vec<CommitId>,
    identity: CommitIdentity,
    message: String,
}

/// Author and committer of a commit, with times as git prints them.
#[derive(Clone)]
struct CommitIdentity {
    author: Author,
    author_date: String,
    committer: Author,
    committer_date: String,
}

impl CommitIdentity {
    /// Identity of a commit that Tamma makes for an author.
    fn new(author: &Author, at: Timestamp) -> Self {
        let date = format!("{} +0000", at.timestamp());
        let committer = Author { name: "Tamma".to_owned(), email: "tamma@localhost".to_owned() };
        let author = author.clone();
        Self { author, author_date: date.clone(), committer, committer_date: date }
    }
}

impl Mirror {
    /// Returns the ID of a commit's tree.
    pub async fn tree_of(&self, commit: CommitId) -> Result<String, Error> {
        self.ensure_commit(commit).await?;
        let name = format!("{commit}^{{tree}}");
        Ok(self.git.bare(&self.path).run(["rev-parse", "--verify", &name]).await?)
    }

    /// Merges two commits, and returns the tree. No ref or file changes.
    pub async fn merge_trees(&self, base: CommitId, head: CommitId) -> Result<TreeMerge, Error> {
        self.ensure_commit(base).await?;
        self.ensure_commit(head).await?;
        self.merge_commits(base, head).await
    }

    /// Makes a commit. The same arguments make the same commit.
    pub async fn commit_tree(
        &self,
        tree: &str,
        parents: &[CommitId],
        message: &str,
        author: &Author,
        at: Timestamp,
    ) -> Result<CommitId, Error> {
        self.make_commit(tree, parents, message, &CommitIdentity::new(author, at)).await
    }

    /// Puts the commits of `head` on top of `onto`, and compares the change with the one before.
    ///
    /// Each commit keeps its message, its author and its times. A history with merges becomes one
    /// commit. No ref or file changes; [`Worktree`](crate::worktree::Worktree) has `move_to`.
    pub async fn rebase_onto(
        &self,
        head: CommitId,
        onto: CommitId,
    ) -> Result<RebaseOutcome, Error> {
        self.ensure_commit(head).await?;
        self.ensure_commit(onto).await?;
        if self.is_ancestor(onto, head).await? {
            return Ok(RebaseOutcome::Rebased { commit: head, changed: false });
        }
        let picks = self.commits_between(onto, head).await?;
        let Some(newest) = picks.last() else {
            // The base has the whole change already.
            return Ok(RebaseOutcome::Rebased { commit: onto, changed: true });
        };
        let is_linear = picks.iter().all(|pick| pick.parents.len() == 1);
        let rebased = if is_linear && picks.len() <= MAX_PICKS {
            self.pick_each(&picks, onto).await?
        } else {
            match self.merge_commits(onto, head).await? {
                TreeMerge::Conflicts(conflicts) => Err(conflicts),
                TreeMerge::Merged(tree) => {
                    let (message, identity) = (&newest.message, &newest.identity);
                    Ok(self.make_commit(&tree, &[onto], message, identity).await?)
                }
            }
        };
        let commit = match rebased {
            Ok(commit) => commit,
            Err(conflicts) => return Ok(RebaseOutcome::Conflicts(conflicts)),
        };
        let before = self.merge_base(onto, head).await?;
        let changed = match before {
            Some(before) => {
                self.patch_id(before, head).await? != self.patch_id(onto, commit).await?
            }
            None => true,
        };
        Ok(RebaseOutcome::Rebased { commit, changed })
    }

    /// Returns the commit of a ref in the project's repository, such as `refs/heads/main`.
    pub async fn ls_remote_ref(&self, name: &str) -> Result<Option<CommitId>, Error> {
        let call = ["ls-remote", "--quiet"].into_iter();
        let call = call.chain(remote_arguments(&self.source, [name]));
        let listed = self.remote(QUERY_LIMIT).run(call).await?;
        // Git lists refs that end with the name, too.
        let mut refs = listed.lines().filter_map(|line| line.split_once('\t'));
        let commit = refs.find(|(_, listed_name)| *listed_name == name).map(|(commit, _)| commit);
        Ok(commit.map(str::parse).transpose()?)
    }

    /// Moves a ref of the project's repository, if it has the expected commit; `None` means that it
    /// does not exist, before or after.
    ///
    /// A ref that is there already is a success.
    pub async fn push_ref(
        &self,
        name: &str,
        commit: Option<CommitId>,
        expected_old: Option<CommitId>,
    ) -> Result<PushOutcome, delivery::Error> {
        let pushed = self.push_with_lease(name, commit, expected_old).await;
        // The answer may be lost although the push was accepted.
        match pushed {
            Ok(output) if output.code == Some(0) => Ok(delivery::push_outcome(output)),
            Ok(output) => {
                let found = self.ls_remote_ref(name).await?;
                if found == commit {
                    Ok(PushOutcome::UpToDate)
                } else if found == expected_old {
                    let branch = name.trim_start_matches("refs/heads/").to_owned();
                    Err(delivery::rejection(branch, output))
                } else {
                    Err(delivery::Error::Moved { name: name.to_owned(), found })
                }
            }
            Err(error) => match self.ls_remote_ref(name).await {
                Ok(found) if found == commit => Ok(PushOutcome::UpToDate),
                Ok(_) | Err(_) => Err(error.into()),
            },
        }
    }

    /// Advances a branch of the project's repository to a descendant, if it has the expected commit.
    /// Never forces.
    pub async fn advance_branch(
        &self,
        branch: &str,
        expected_old: CommitId,
        new: CommitId,
    ) -> Result<PushOutcome, delivery::Error> {
        self.ensure_commit(expected_old).await?;
        self.ensure_commit(new).await?;
        if !self.is_ancestor(expected_old, new).await? {
            return Err(delivery::Error::Conflict {
                branch: branch.to_owned(),
                remote_commit: expected_old,
                commit: new,
            });
        }
        self.push_ref(&format!("refs/heads/{branch}"), Some(new), Some(expected_old)).await
    }

    /// Returns `true` if `older` is `newer` or an ancestor of it. Both must be in the mirror.
    pub(crate) async fn is_ancestor(
        &self,
        older: CommitId,
        newer: CommitId,
    ) -> Result<bool, Error> {
        let call = ["merge-base", "--is-ancestor", &older.to_string(), &newer.to_string()];
        let output = self.git.bare(&self.path).output(&call).await?;
        if output.code == Some(1) {
            return Ok(false);
        }
        output.check(&call, &self.path)?;
        Ok(true)
    }

    /// Pushes one ref with a lease.
    pub(crate) async fn push_with_lease(
        &self,
        name: &str,
        commit: Option<CommitId>,
        expected_old: Option<CommitId>,
    ) -> Result<GitOutput, Error> {
        let text = |commit: Option<CommitId>| commit.map(|it| it.to_string()).unwrap_or_default();
        let lease = format!("--force-with-lease={name}:{}", text(expected_old));
        let refspec = format!("{}:{name}", text(commit));
        let call = ["push", "--porcelain", "--no-verify", &lease].into_iter();
        let call: Vec<_> = call.chain(remote_arguments(&self.source, [refspec.as_str()])).collect();
        Ok(self.remote(TRANSFER_LIMIT).output(&call).await?)
    }

    /// Makes each commit again on top of the one before.
    async fn pick_each(
        &self,
        picks: &[PickedCommit],
        onto: CommitId,
    ) -> Result<Result<CommitId, MergeConflicts>, Error> {
        let mut head = onto;
        let mut head_tree = self.tree_of(onto).await?;
        for pick in picks {
            // Merging finds its base in the history, and older versions of git cannot be told
            // another one. A commit with the files of the new base on top of the picked one's parent
            // has the right history.
            let stand_in =
                self.make_commit(&head_tree, &pick.parents, "stand-in", &pick.identity).await?;
            let tree = match self.merge_commits(stand_in, pick.id).await? {
                TreeMerge::Merged(tree) => tree,
                TreeMerge::Conflicts(conflicts) => return Ok(Err(conflicts)),
            };
            // The base has this commit's change already.
            if tree == head_tree {
                continue;
            }
            head = self.make_commit(&tree, &[head], &pick.message, &pick.identity).await?;
            head_tree = tree;
        }
        Ok(Ok(head))
    }

    /// Returns the commits of `head` that `onto` does not have, oldest first.
    async fn commits_between(
        &self,
        onto: CommitId,
        head: CommitId,
    ) -> Result<Vec<PickedCommit>, Error> {
        let range = format!("{onto}..{head}");
        let call = [
            "log",
            "-z",
            "--reverse",
            "--topo-order",
            "--date=raw",
            "--no-show-signature",
            COMMIT_FORMAT,
            &range,
            "--",
        ];
        let text = self.git.bare(&self.path).run(call).await?;
        let fields: Vec<_> = text.split('\0').collect();
        let mut commits = Vec::new();
        for commit in fields.chunks_exact(COMMIT_FIELDS) {
            let [id, parents, name, email, date, by_name, by_email, by_date, message] = commit
            else {
                continue;
            };
            let author =
                |name: &str, email: &str| Author { name: name.to_owned(), email: email.to_owned() };
            let parents = parents.split(' ').filter(|parent| !parent.is_empty());
            commits.push(PickedCommit {
                id: id.parse()?,
                parents: parents.map(str::parse).collect::<Result<_, _>>()?,
                identity: CommitIdentity {
                    author: author(name, email),
                    author_date: (*date).to_owned(),
                    committer: author(by_name, by_email),
                    committer_date: (*by_date).to_owned(),
                },
                message: (*message).to_owned(),
            });
        }
        Ok(commits)
    }

    async fn make_commit(
        &self,
        tree: &str,
        parents: &[CommitId],
        message: &str,
        identity: &CommitIdentity,
    ) -> Result<CommitId, Error> {
        let parents: Vec<_> = parents.iter().map(ToString::to_string).collect();
        let parents = parents.iter().flat_map(|parent| ["-p", parent]);
        let CommitIdentity { author, author_date, committer, committer_date } = identity;
        let commit = self
            .git
            .bare(&self.path)
            .env("GIT_AUTHOR_NAME", or_unknown(&author.name))
            .env("GIT_AUTHOR_EMAIL", or_unknown(&author.email))
            .env("GIT_AUTHOR_DATE", format!("@{author_date}"))
            .env("GIT_COMMITTER_NAME", or_unknown(&committer.name))
            .env("GIT_COMMITTER_EMAIL", or_unknown(&committer.email))
            .env("GIT_COMMITTER_DATE", format!("@{committer_date}"))
            .input(message)
            .run(["commit-tree", "-F", "-", tree].into_iter().chain(parents))
            .await?;
        Ok(commit.parse()?)
    }

    async fn merge_base(&self, one: CommitId, other: CommitId) -> Result<Option<CommitId>, Error> {
        let call = ["merge-base", &one.to_string(), &other.to_string()];
        let found = self.git.bare(&self.path).run_if_successful(&call).await?;
        Ok(found.map(|commit| commit.parse()).transpose()?)
    }

    /// Returns a hash of the change between two commits that does not depend on line numbers.
    async fn patch_id(&self, from: CommitId, to: CommitId) -> Result<String, Error> {
        let (from, to) = (from.to_string(), to.to_string());
        let call = ["diff-tree", "-p", "--binary", "--no-ext-diff", "--no-textconv", &from, &to];
        let diff = self.git.bare(&self.path).run_bytes(call).await?;
        let id = self.git.bare(&self.path).input(diff).run(["patch-id", "--stable"]).await?;
        Ok(id.split(' ').next().unwrap_or_default().to_owned())
    }

    async fn merge_commits(&self, ours: CommitId, theirs: CommitId) -> Result<TreeMerge, Error> {
        let (ours, theirs) = (ours.to_string(), theirs.to_string());
        let call = ["merge-tree", "--write-tree", "--name-only", "-z", &ours, &theirs];
        let output = self.git.bare(&self.path).output(&call).await?;
        if output.is_truncated {
            let (command, folder) = (call.join(" "), self.path.clone());
            let limit = output.stdout.len();
            return Err(git::Error::TooMuchOutput { command, folder, limit }.into());
        }
        match output.code {
            Some(0) => {
                let text = output.text();
                Ok(TreeMerge::Merged(text.split('\0').next().unwrap_or_default().to_owned()))
            }
            // The tree with conflict markers, then paths and messages.
            Some(1) => Ok(TreeMerge::Conflicts(self.describe_conflicts(&output.text()).await?)),
            _ => {
                output.check(&call, &self.path)?;
                Ok(TreeMerge::Conflicts(MergeConflicts { paths: Vec::new(), text: String::new() }))
            }
        }
    }

    async fn describe_conflicts(&self, output: &str) -> Result<MergeConflicts, Error> {
        let (listed, messages) = output.split_once("\0\0").unwrap_or((output, ""));
        let mut listed = listed.split('\0');
        let tree = listed.next().unwrap_or_default();
        let paths: Vec<String> = listed.take(MAX_PATHS).map(str::to_owned).collect();
        // Each message has paths, a type and a text, which is a line.
        let is_text = |part: &&str| part.starts_with("CONFLICT") && part.ends_with('\n');
        let mut text: String = messages.split('\0').filter(is_text).collect();
        for path in &paths {
            if text.len() > MAX_CONFLICT_BYTES {
                break;
            }
            let call = ["cat-file", "blob", &format!("{tree}:{path}")];
            let file = self.git.bare(&self.path).max_output(MAX_FILE_BYTES).output(&call).await?;
            let hunks = conflict_hunks(&file.text());
            if !hunks.is_empty() {
                text = format!("{text}\n{path}:\n{hunks}");
            }
        }
        text.truncate(text.floor_char_boundary(MAX_CONFLICT_BYTES));
        Ok(MergeConflicts { paths, text })
    }
}

/// Returns the parts of a file between conflict markers.
fn conflict_hunks(text: &str) -> String {
    let (mut hunks, mut is_inside) = (String::new(), false);
    for line in text.lines() {
        is_inside |= line.starts_with("<<<<<<< ");
        if is_inside {
            hunks.push_str(line);
            hunks.push('\n');
        }
        is_inside &= !line.starts_with(">>>>>>> ");
    }
    hunks
}

/// Git refuses an empty name.
fn or_unknown(name: &str) -> &str {
    if name.trim().is_empty() { "unknown" } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_conflicting_lines_are_shown() {
        let text = "a\n<<<<<<< x\nb\n=======\nc\n>>>>>>> y\nd\n";
        assert_eq!(conflict_hunks(text), "<<<<<<< x\nb\n=======\nc\n>>>>>>> y\n");
        assert_eq!(conflict_hunks("a\n"), "");
    }
}
