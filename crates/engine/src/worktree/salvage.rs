//! Saving what a worktree has, so that it is never on one machine only, and bringing it back.

use std::time::Duration;

use tamma_core::ids::{CommitId, TaskId};
use tokio::fs;

use super::refs::{self, BRANCH, Refs, There};
use super::{Author, Care, Worktree, clear, exists};
use crate::git;
use crate::mirror::{Error, Mirror, disk};

/// How long the project's repository may take to take something. What it has not taken by then is
/// offered again the next time.
const PUSH: Duration = Duration::from_secs(20);

/// What was saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// What is not committed on the branch, as a commit, now or from before. Nothing where all is
    /// committed.
    pub commit: Option<CommitId>,
    /// Whether the project's repository has all of it too, what is committed and what is not.
    pub pushed: bool,
    /// Why it does not, in git's words.
    pub why: Option<String>,
}

/// Where the newest work of a task is, as far as whoever opens its worktree knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Newest {
    /// Nobody has worked on it yet, anywhere.
    Nothing,
    /// A run has ended with this commit, and nobody has worked on it since.
    At(CommitId),
    /// It may be anywhere, so the project's repository is asked.
    Unknown,
}

/// What a worktree has.
pub(crate) struct Holds {
    /// What runs have committed, if they have.
    pub(crate) committed: Option<CommitId>,
    /// What is not committed.
    pub(crate) uncommitted: Uncommitted,
}

/// What a worktree has that is not committed.
pub(crate) enum Uncommitted {
    Nothing,
    /// It is saved as this, at least here.
    Saved(CommitId),
    Unsaved,
}

impl Worktree {
    /// Looks what it has, and changes nothing.
    pub(crate) async fn holds(&self) -> Result<Holds, Error> {
        let _lock = self.lock().await?;
        self.relink().await?;
        let refs = self.refs().await?;
        let branch = refs.branch.clone().ok_or_else(|| self.no_branch())?;
        let head = self.left_the_branch().await?;
        let tree = self.snapshot(head.unwrap_or(branch.commit), Care::WhatCanBeRead).await?;
        let saved = refs.salvage.as_ref().filter(|_| refs.uncommitted() == Some(&tree));
        let is_clean = head.is_none() && tree == branch.tree;
        Ok(Holds {
            committed: refs.wanted(self.task).work,
            uncommitted: match saved {
                _ if is_clean => Uncommitted::Nothing,
                Some(tip) => Uncommitted::Saved(tip.commit),
                None => Uncommitted::Unsaved,
            },
        })
    }

    /// Saves what is not committed on the branch under `refs/tamma/salvage/<task>`, and sees to it
    /// that the project's repository has it, and the branch.
    ///
    /// An earlier salvage stays reachable from the new one. That the project's repository cannot be
    /// reached is no error: it is said, and tried again the next time.
    pub async fn salvage(&self) -> Result<Saved, Error> {
        let _lock = self.lock().await?;
        let (commit, mut refs) = self.save().await?;
        let why = push(&self.mirror, self.task, &mut refs).await?;
        Ok(Saved { commit, pushed: why.is_none(), why })
    }

    /// Saves what is not committed, here. Returns it, and where everything is then.
    pub(super) async fn save(&self) -> Result<(Option<CommitId>, Refs), Error> {
        let mut refs = self.refs().await?;
        let branch = refs.branch.clone().ok_or_else(|| self.no_branch())?;
        let (head, head_tree) = match self.left_the_branch().await? {
            None => (branch.commit, branch.tree.clone()),
            Some(head) => (head, self.tree_of(head).await?),
        };
        let tree = self.snapshot(head, Care::WhatCanBeRead).await?;
        let is_clean = head == branch.commit && tree == head_tree;
        let same = refs.uncommitted() == Some(&tree);
        if let Some(before) = refs.salvage.as_ref().filter(|_| same) {
            if is_clean {
                return Ok((None, refs));
            }
            if before.parents.first() == Some(&head) {
                return Ok((Some(before.commit), refs));
            }
        }
        // Files that were not committed and are gone now must not come back on another host.
        if is_clean && refs.uncommitted().is_none() {
            return Ok((None, refs));
        }
        let before = refs.salvage.as_ref().map(|tip| tip.commit);
        let parents: Vec<_> = [head].into_iter().chain(before).collect();
        let message = format!(
            "Work of {} that was not committed\n\n{BRANCH}: {}\n",
            self.task, branch.commit
        );
        let tamma = Author { name: "Tamma".to_owned(), email: "tamma@localhost".to_owned() };
        let commit = self.record(&tree, &parents, &message, &tamma).await?;
        self.move_ref(&refs::salvage(self.task), commit, before).await?;
        let (run, branch) = (String::new(), Some(branch.commit));
        refs.salvage = Some(refs::Tip { commit, tree, parents, run, branch });
        Ok(((!is_clean).then_some(commit), refs))
    }

    /// Lets the project's repository have the newest of the task before the worktree is used, and
    /// puts aside what is here where others have gone past it.
    pub(super) async fn catch_up(&self, refs: Refs, base: CommitId) -> Result<Refs, Error> {
        let there = There::ask(&self.mirror, self.task).await?;
        if there == refs.seen {
            return Ok(refs);
        }
        let bring: Vec<_> =
            [(refs::work(self.task), there.work), (refs::salvage(self.task), there.salvage)]
                .into_iter()
                .filter(|(_, commit)| commit.is_some())
                .map(|(name, _)| name)
                .collect();
        if !bring.is_empty() {
            // Only what they lead to. The refs move when there is nothing left to lose.
            let call = ["fetch", "--quiet", "--no-write-fetch-head", "--no-tags"];
            let call = call.into_iter().chain([self.mirror.source.as_str()]);
            let call = call.chain(bring.iter().map(String::as_str));
            self.mirror.git.at(&self.mirror.path).run(call).await?;
        }
        let salvaged = refs.salvage.as_ref().map(|tip| tip.commit);
        let is_ours = self.is_behind(there.work, refs.head()).await?
            && self.is_behind(there.salvage, salvaged).await?;
        if is_ours {
            // We have written it ourselves, and died before we wrote down that we had.
            there.keep(&self.mirror, self.task).await?;
            return Ok(Refs { seen: there, ..refs });
        }
        let _lock = self.lock().await?;
        self.put_aside(&there).await?;
        let (branch, saved) = (refs::on_branch(self.task), refs::salvage(self.task));
        let to = there.work.unwrap_or(base);
        let mut moves = format!("update {branch} {to}\n");
        if let Some(salvage) = there.salvage {
            moves = format!("{moves}update {saved} {salvage}\n");
        } else if refs.salvage.is_some() {
            moves = format!("{moves}delete {saved}\n");
        }
        let call = ["update-ref", "--stdin"];
        self.mirror.git.at(&self.mirror.path).input(moves).run(call).await?;
        there.keep(&self.mirror, self.task).await?;
        self.refs().await
    }

    /// Keeps what is here under names of its own, here and there, and removes the folder.
    async fn put_aside(&self, there: &There) -> Result<(), Error> {
        let mut refs = self.refs().await?;
        if exists(&self.path).await? {
            self.relink().await?;
            refs = self.save().await?.1;
        }
        let salvaged = refs.salvage.as_ref().map(|tip| tip.commit);
        let mut aside = Vec::new();
        for (mine, theirs) in [(refs.head(), there.work), (salvaged, there.salvage)] {
            let Some(mine) = mine else { continue };
            let is_base = Some(mine) == refs.head() && refs.wanted(self.task).work.is_none();
            if !is_base && !self.is_behind(Some(mine), theirs).await? {
                let name = refs::aside(self.task, mine);
                self.mirror
                    .git
                    .at(&self.mirror.path)
                    .run(["update-ref", &name, &mine.to_string()])
                    .await?;
                aside.push((name, None, Some(mine)));
            }
        }
        if !aside.is_empty() {
            let names: Vec<_> = aside.iter().map(|(name, ..)| name.as_str()).collect();
            tracing::warn!(task = %self.task, aside = names.join(" "), "others have gone past what was here");
            if let Some(why) = offered(&self.mirror, &aside).await? {
                tracing::warn!(task = %self.task, why, "what was put aside is on this machine only");
            }
        }
        self.take_down().await
    }

    /// Removes the folder, which has been saved. It loses its name first.
    pub(super) async fn take_down(&self) -> Result<(), Error> {
        let old = self.mirror.data.join("worktrees").join("old");
        let removed = old.join(self.task.to_string());
        if exists(&self.path).await? {
            // What an interrupted removal has left here was saved before it got this name.
            clear(&removed).await?;
            fs::create_dir_all(&old).await.map_err(disk("make", &old))?;
            fs::rename(&self.path, &removed).await.map_err(disk("rename", &self.path))?;
        }
        clear(&removed).await?;
        clear(&self.folder_in_mirror()).await
    }

    /// Whether one commit is the other or an ancestor of it. No commit is behind any.
    async fn is_behind(
        &self,
        older: Option<CommitId>,
        newer: Option<CommitId>,
    ) -> Result<bool, Error> {
        let (Some(older), Some(newer)) = (older, newer) else { return Ok(older.is_none()) };
        if older == newer {
            return Ok(true);
        }
        let call = ["merge-base", "--is-ancestor", &older.to_string(), &newer.to_string()];
        Ok(self.mirror.git.at(&self.mirror.path).ask(&call).await?.code == Some(0))
    }
}

/// Gives the project's repository what it does not have. Returns why it has not taken it.
pub(super) async fn push(
    mirror: &Mirror,
    task: TaskId,
    refs: &mut Refs,
) -> Result<Option<String>, Error> {
    let wanted = refs.wanted(task);
    if wanted == refs.seen {
        return Ok(None);
    }
    let changes: Vec<_> = [
        (refs::work(task), refs.seen.work, wanted.work),
        (refs::salvage(task), refs.seen.salvage, wanted.salvage),
    ]
    .into_iter()
    .filter(|(_, from, to)| from != to)
    .collect();
    let why = offered(mirror, &changes).await?;
    if why.is_none() {
        wanted.keep(mirror, task).await?;
        refs.seen = wanted;
    }
    Ok(why)
}

/// Offers something to the project's repository. Returns why it has not taken it.
async fn offered(
    mirror: &Mirror,
    changes: &[(String, Option<CommitId>, Option<CommitId>)],
) -> Result<Option<String>, Error> {
    match tokio::time::timeout(PUSH, refs::push(mirror, changes)).await {
        Ok(Ok(answer)) if answer.code == Some(0) => Ok(None),
        Ok(Ok(answer)) => Ok(Some(answer.stderr)),
        Ok(Err(Error::Git(error @ git::Error::Start { .. }))) => Err(error.into()),
        Ok(Err(error)) => Ok(Some(error.to_string())),
        Err(_) => Ok(Some(format!("it has not answered within {} seconds", PUSH.as_secs()))),
    }
}

/// Removes what the project's repository keeps of a task beside its branches: all of the task is
/// in a branch there now. What it had is still in the mirror. Returns why it was not done.
pub async fn forget(
    mirror: &Mirror,
    task: TaskId,
    delivered: CommitId,
) -> Result<Option<String>, Error> {
    let mut there = There::seen(mirror, task).await?;
    if there.work != Some(delivered) {
        there = There::ask(mirror, task).await?;
    }
    if there.work.is_some_and(|work| work != delivered) {
        return Ok(Some(format!("its work is not at {delivered}, which was delivered")));
    }
    let changes: Vec<_> =
        [(refs::work(task), there.work, None), (refs::salvage(task), there.salvage, None)]
            .into_iter()
            .filter(|(_, from, _)| from.is_some())
            .collect();
    if changes.is_empty() {
        return Ok(None);
    }
    let why = offered(mirror, &changes).await?;
    if why.is_none() {
        There::default().keep(mirror, task).await?;
    }
    Ok(why)
}
