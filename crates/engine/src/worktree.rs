//! A worktree: the checkout that one task's agents work in, on the branch `tamma/<task>`.
//!
//! Everything here can be done again after a crash and comes to the same end:
//! - a folder gets its final name only when it is complete, so that a folder with that name is
//!   always somebody's work;
//! - a commit is made from a snapshot of the files and becomes visible by moving the branch once;
//! - a folder loses its name before it is removed, and what it had is saved before that.
//!
//! No work is on one machine only: what is committed and what is not is pushed to hidden refs of the
//! project's repository (`refs`), and a machine that has nothing, or less, goes on from there.
//!
//! No call trusts what an agent may have done to the index, to `HEAD` or to the hooks. Whoever
//! calls makes sure that no process of an earlier run still writes here
//! ([`reap`](crate::process::Records::reap)).

mod refs;
mod salvage;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tamma_core::ids::{CommitId, TaskId};
use tamma_core::plan::Action;
use tamma_core::review::patch::{self, Added};
use tokio::fs;

pub(crate) use self::refs::work as work_ref;
use self::refs::{RUN, Refs};
pub(crate) use self::salvage::Uncommitted;
pub use self::salvage::{Newest, Saved, forget};
use crate::mirror::{Error, Lock, Mirror, branch, disk};

/// The index that snapshots are made through, beside the one that the agent uses.
const INDEX: &str = "tamma-index";

/// Who a commit is by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Author {
    /// Their name.
    pub name: String,
    /// Their address.
    pub email: String,
}

/// How much of the files a snapshot must have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Care {
    /// Every file, or it fails.
    Everything,
    /// What can be read: an agent is at work, and files come and go.
    WhatCanBeRead,
}

/// The checkout of one task.
#[derive(Debug, Clone)]
pub struct Worktree {
    mirror: Mirror,
    task: TaskId,
    path: PathBuf,
}

impl Worktree {
    /// Opens the worktree of a task with the newest of its work, wherever that was done.
    pub async fn open(mirror: &Mirror, task: TaskId, base: CommitId) -> Result<Self, Error> {
        Self::open_at(mirror, task, base, Newest::Unknown).await
    }

    /// Opens the worktree of a task, and makes it first where there is none: on its branch, which
    /// starts from `base`, with what was not committed when it was left.
    ///
    /// Where the newest may be on another host, the project's repository is asked for it. What is
    /// here and is not part of that is put aside, under `refs/tamma/aside/`.
    pub async fn open_at(
        mirror: &Mirror,
        task: TaskId,
        base: CommitId,
        newest: Newest,
    ) -> Result<Self, Error> {
        let worktrees = mirror.data.join("worktrees");
        fs::create_dir_all(&worktrees).await.map_err(disk("make", &worktrees))?;
        let tree = Self { mirror: mirror.clone(), task, path: worktrees.join(task.to_string()) };
        mirror.require(base).await?;
        let mut refs = tree.refs().await?;
        let is_newest = match newest {
            Newest::Nothing => true,
            Newest::At(commit) => refs.head() == Some(commit),
            Newest::Unknown => false,
        };
        if !is_newest {
            refs = tree.catch_up(refs, base).await?;
        }
        if let Newest::At(commit) = newest
            && refs.head() != Some(commit)
        {
            return Err(Error::Elsewhere { task, commit });
        }
        let _lock = mirror.lock().await?;
        if exists(&tree.path).await? {
            tree.repair().await?;
            return Ok(tree);
        }
        tree.make(&refs, base).await?;
        tree.repair().await?;
        Ok(tree)
    }

    /// Makes the folder, which gets its name when it is complete.
    async fn make(&self, refs: &Refs, base: CommitId) -> Result<(), Error> {
        let git = || self.mirror.git.at(&self.mirror.path);
        if refs.branch.is_none() {
            // The empty old value: only if it is not there.
            let call = ["update-ref", &refs::on_branch(self.task), &base.to_string(), ""];
            git().run(call).await?;
        }
        let unfinished = self.mirror.data.join("worktrees").join("new").join(self.task.to_string());
        clear(&unfinished).await?;
        // Twice, because an add that was killed leaves its folder locked.
        let mut add = vec!["worktree", "add", "--quiet", "--force", "--force"];
        let uncommitted = refs.uncommitted();
        if uncommitted.is_some() {
            add.push("--no-checkout");
        }
        let branch = branch(self.task);
        let place = [unfinished.as_os_str(), branch.as_ref()];
        git().run(add.into_iter().map(AsRef::as_ref).chain(place)).await?;
        if let Some(tree) = uncommitted {
            let git = || self.mirror.git.at(&unfinished);
            git().run(["read-tree", "--reset", "-u", tree]).await?;
            // The files stay; what is not committed is seen as that again.
            git().run(["read-tree", "HEAD"]).await?;
        }
        fs::rename(&unfinished, &self.path).await.map_err(disk("rename", &unfinished))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The repository that it hangs on.
    pub fn repository(&self) -> &Path {
        &self.mirror.path
    }

    /// Whose it is.
    pub fn task(&self) -> TaskId {
        self.task
    }

    /// The commit that the branch is at.
    pub async fn head(&self) -> Result<CommitId, Error> {
        self.refs().await?.head().ok_or_else(|| self.no_branch())
    }

    /// Commits all there is as the work of one ticket, and returns the commit.
    ///
    /// When nothing has changed, that is the commit the branch is at. A ticket has at most one
    /// commit at the tip: where it is there already and the files have changed since, the commit is
    /// replaced. It is pushed; that the project's repository cannot be reached is no error, and it
    /// is tried again with the next salvage.
    pub async fn commit_all(
        &self,
        ticket: u32,
        message: &str,
        author: &Author,
    ) -> Result<CommitId, Error> {
        let _lock = self.lock().await?;
        let mut refs = self.refs().await?;
        let tip = refs.branch.clone().ok_or_else(|| self.no_branch())?;
        let tree = self.snapshot(tip.commit, Care::Everything).await?;
        let mut commit = tip.commit;
        if tree != tip.tree {
            let run = format!("{}/{ticket}", self.task);
            let parents = if tip.run == run { tip.parents } else { vec![tip.commit] };
            let message = format!("{}\n\n{RUN}: {run}\n", message.trim_end());
            commit = self.record(&tree, &parents, &message, author).await?;
            self.move_ref(&refs::on_branch(self.task), commit, Some(tip.commit)).await?;
            refs.branch = Some(refs::Tip { commit, tree, parents, run, branch: None });
        }
        // The agent may have left the branch, and the index is the one of the commit before.
        if self.left_the_branch().await?.is_some() {
            self.git(["symbolic-ref", "HEAD", &refs::on_branch(self.task)]).await?;
        }
        // The one that the snapshot was made through has exactly these files.
        let folder = self.folder_in_mirror();
        let index = folder.join("index");
        fs::rename(folder.join(INDEX), &index).await.map_err(disk("rename", &index))?;
        if let Some(why) = salvage::push(&self.mirror, self.task, &mut refs).await? {
            tracing::warn!(task = %self.task, %commit, why, "a commit is on this machine only");
        }
        Ok(commit)
    }

    /// The commit that a ticket has made, if it is the one the branch is at.
    pub async fn commit_of(&self, ticket: u32) -> Result<Option<CommitId>, Error> {
        let tip = self.refs().await?.branch;
        let run = format!("{}/{ticket}", self.task);
        Ok(tip.filter(|tip| tip.run == run).map(|tip| tip.commit))
    }

    /// The worktree of a task, if this machine has one.
    pub async fn find(mirror: &Mirror, task: TaskId) -> Result<Option<Self>, Error> {
        let path = mirror.data.join("worktrees").join(task.to_string());
        let tree = Self { mirror: mirror.clone(), task, path };
        Ok(exists(&tree.path).await?.then_some(tree))
    }

    /// Saves what is not committed, then removes the worktree. The branch stays. What is saved is
    /// pushed, unless all that counts has been delivered.
    pub async fn remove(self, push: bool) -> Result<Saved, Error> {
        let _list = self.mirror.lock().await?;
        let _lock = self.lock().await?;
        let (mut commit, mut refs) = (None, self.refs().await?);
        if exists(&self.path).await? {
            self.relink().await?;
            (commit, refs) = self.save().await?;
        }
        let why =
            if push { salvage::push(&self.mirror, self.task, &mut refs).await? } else { None };
        self.take_down().await?;
        Ok(Saved { commit, pushed: push && why.is_none(), why })
    }

    /// Every file that differs from a commit, in the files as they are now, committed or not.
    pub async fn diff_stat(&self, base: CommitId) -> Result<BTreeMap<String, Action>, Error> {
        let _lock = self.lock().await?;
        let tree = self.snapshot(base, Care::Everything).await?;
        self.differing(&base.to_string(), &tree).await
    }

    /// Every file that differs between two commits.
    pub async fn touched(
        &self,
        base: CommitId,
        commit: CommitId,
    ) -> Result<BTreeMap<String, Action>, Error> {
        self.differing(&base.to_string(), &commit.to_string()).await
    }

    /// What differs between two commits, as a patch.
    pub async fn diff(&self, base: CommitId, commit: CommitId) -> Result<String, Error> {
        let (base, commit) = (base.to_string(), commit.to_string());
        self.git(["diff-tree", "-r", "-p", "--no-renames", "--no-ext-diff", &base, &commit]).await
    }

    /// The lines that a commit adds to each file, counted from 1.
    ///
    /// Every file is taken for text: what an agent writes into `.gitattributes` must not hide lines.
    pub async fn added(&self, base: CommitId, commit: CommitId) -> Result<Added, Error> {
        let (base, commit) = (base.to_string(), commit.to_string());
        let options = ["--no-renames", "--no-ext-diff", "--no-textconv", "--text", "--unified=0"];
        let call = ["-c", "core.quotePath=false", "diff-tree", "-r", "-p"];
        let call = call.into_iter().chain(options).chain([base.as_str(), commit.as_str()]);
        Ok(patch::added(&self.mirror.git.at(&self.path).run(call).await?))
    }

    /// Whether a commit comes from another, so that nothing before it was rewritten.
    pub async fn descends(&self, base: CommitId, commit: CommitId) -> Result<bool, Error> {
        let call = ["merge-base", "--is-ancestor", &base.to_string(), &commit.to_string()];
        Ok(self.mirror.git.at(&self.path).ask(&call).await?.code == Some(0))
    }

    /// The text of a file at a commit, if it is there and is a file.
    pub async fn text(&self, commit: CommitId, path: &str) -> Result<Option<String>, Error> {
        let call = ["cat-file", "blob", &format!("{commit}:{path}")];
        let answer = self.mirror.git.at(&self.path).ask(&call).await?;
        Ok((answer.code == Some(0)).then_some(answer.stdout))
    }

    async fn differing(&self, from: &str, to: &str) -> Result<BTreeMap<String, Action>, Error> {
        let call = ["diff-tree", "-r", "-z", "--no-renames", "--name-status", from, to];
        let listed = self.git(call).await?;
        let mut parts = listed.split('\0').filter(|part| !part.is_empty());
        let mut touched = BTreeMap::new();
        while let (Some(status), Some(path)) = (parts.next(), parts.next()) {
            let action = match status {
                "A" => Action::Create,
                "D" => Action::Delete,
                // Modified, or another type of file: `M`, `T`.
                _ => Action::Modify,
            };
            touched.insert(path.to_owned(), action);
        }
        Ok(touched)
    }

    /// Waits until nobody else looks at or changes this worktree.
    async fn lock(&self) -> Result<Lock, Error> {
        Lock::hold(self.mirror.data.join("worktrees").join(format!("{}.lock", self.task))).await
    }

    /// Writes all files, as they are, as a tree, through an index of our own.
    ///
    /// The agent's index is left alone and not believed: it may hide files.
    async fn snapshot(&self, base: CommitId, care: Care) -> Result<String, Error> {
        let index = self.folder_in_mirror().join(INDEX);
        for stale in [index.clone(), index.with_extension("lock")] {
            clear(&stale).await?;
        }
        let git = || self.mirror.git.at(&self.path).env("GIT_INDEX_FILE", &index);
        git().run(["read-tree", &base.to_string()]).await?;
        // A repository that the agent made inside the worktree: git would keep a pointer to it, or
        // refuse, and the files would be lost with the folder.
        let nested =
            nested(&git().run(["ls-files", "-z", "--others", "--exclude-standard"]).await?);
        let around = nested.iter().map(|folder| format!(":(exclude,literal){folder}"));
        let mut all = vec!["add", "--all"];
        all.extend((care == Care::WhatCanBeRead).then_some("--ignore-errors"));
        all.extend(["--", "."]);
        let all = all.into_iter().map(str::to_owned);
        let added = git().run(all.chain(around)).await;
        if care == Care::Everything {
            added?;
        }
        let files = self.files_of(nested).await?;
        if !files.is_empty() {
            let call = ["update-index", "--add", "--remove", "-z", "--stdin"];
            git().input(files).run(call).await?;
        }
        Ok(git().run(["write-tree"]).await?)
    }

    /// The files of repositories inside the worktree, each ended by a null character.
    async fn files_of(&self, mut repositories: Vec<String>) -> Result<String, Error> {
        let mut files = String::new();
        while let Some(folder) = repositories.pop() {
            let call = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
            let listed = self.mirror.git.at(&self.path.join(&folder)).run(call).await?;
            repositories.extend(nested(&listed).iter().map(|deeper| format!("{folder}{deeper}")));
            let here = listed.split('\0').filter(|path| !path.is_empty() && !path.ends_with('/'));
            files.extend(here.map(|path| format!("{folder}{path}\0")));
        }
        Ok(files)
    }

    async fn record(
        &self,
        tree: &str,
        parents: &[CommitId],
        message: &str,
        author: &Author,
    ) -> Result<CommitId, Error> {
        let parents: Vec<_> = parents.iter().map(ToString::to_string).collect();
        let parents = parents.iter().flat_map(|parent| ["-p", parent]);
        let written = self
            .mirror
            .git
            .at(&self.path)
            .env("GIT_AUTHOR_NAME", &author.name)
            .env("GIT_AUTHOR_EMAIL", &author.email)
            .env("GIT_COMMITTER_NAME", "Tamma")
            .env("GIT_COMMITTER_EMAIL", "tamma@localhost")
            .input(message)
            .run(["commit-tree", "-F", "-", tree].into_iter().chain(parents))
            .await?;
        Ok(written.parse()?)
    }

    /// Moves a ref, if it is still where we saw it.
    async fn move_ref(
        &self,
        name: &str,
        to: CommitId,
        from: Option<CommitId>,
    ) -> Result<(), Error> {
        let from = from.map(|from| from.to_string()).unwrap_or_default();
        self.git(["update-ref", name, &to.to_string(), &from]).await?;
        Ok(())
    }

    /// Mends what a crash can leave: a link to where the folder was before it got its name, and the
    /// locks of a git that was killed.
    async fn repair(&self) -> Result<(), Error> {
        self.relink().await?;
        let folder = self.folder_in_mirror();
        let references = [refs::on_branch(self.task), refs::salvage(self.task)];
        let locks = ["index.lock", "HEAD.lock"]
            .map(|lock| folder.join(lock))
            .into_iter()
            .chain(references.map(|name| self.mirror.path.join(format!("{name}.lock"))));
        for lock in locks {
            clear(&lock).await?;
        }
        Ok(())
    }

    async fn relink(&self) -> Result<(), Error> {
        let link = self.path.join(".git");
        let text = format!("gitdir: {}\n", self.folder_in_mirror().display());
        if fs::read_to_string(&link).await.is_ok_and(|found| found == text) {
            let back = self.folder_in_mirror().join("gitdir");
            let here = format!("{}\n", link.display());
            if fs::read_to_string(&back).await.is_ok_and(|found| found == here) {
                return Ok(());
            }
            return fs::write(&back, here).await.map_err(disk("write", &back));
        }
        // An agent removed or replaced it; the files beside it are still its work.
        if exists(&link).await? {
            let aside = self.path.join(".git-replaced");
            fs::rename(&link, &aside).await.map_err(disk("rename", &link))?;
        }
        fs::write(&link, text).await.map_err(disk("write", &link))?;
        let back = self.folder_in_mirror().join("gitdir");
        let here = format!("{}\n", link.display());
        fs::write(&back, here).await.map_err(disk("write", &back))
    }

    /// Where the mirror keeps the worktree's `HEAD` and index. Git names it after the folder.
    fn folder_in_mirror(&self) -> PathBuf {
        self.mirror.path.join("worktrees").join(self.task.to_string())
    }

    /// Where the task's work is.
    async fn refs(&self) -> Result<Refs, Error> {
        Refs::read(&self.mirror, self.task).await
    }

    fn no_branch(&self) -> Error {
        let (revision, repository) = (branch(self.task), self.mirror.path.display().to_string());
        Error::Unknown { revision, repository }
    }

    /// The commit that `HEAD` is at, where it is not on the branch.
    async fn left_the_branch(&self) -> Result<Option<CommitId>, Error> {
        let file = self.folder_in_mirror().join("HEAD");
        let text = fs::read_to_string(&file).await.map_err(disk("read", &file))?;
        if text.trim_end() == format!("ref: {}", refs::on_branch(self.task)) {
            return Ok(None);
        }
        let call = ["rev-parse", "--verify", "HEAD^{commit}"];
        Ok(Some(self.git(call).await?.parse()?))
    }

    async fn tree_of(&self, commit: CommitId) -> Result<String, Error> {
        self.git(["rev-parse", "--verify", &format!("{commit}^{{tree}}")]).await
    }

    async fn git<const N: usize>(&self, arguments: [&str; N]) -> Result<String, Error> {
        Ok(self.mirror.git.at(&self.path).run(arguments).await?)
    }
}

/// The repositories in a list of files: git shows each as a folder.
fn nested(listed: &str) -> Vec<String> {
    listed.split('\0').filter(|path| path.ends_with('/')).map(str::to_owned).collect()
}

async fn exists(path: &Path) -> Result<bool, Error> {
    match fs::symlink_metadata(path).await {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(disk("look at", path)(error)),
    }
}

/// Removes a file or a folder with all that is in it, if it is there.
pub(crate) async fn clear(path: &Path) -> Result<(), Error> {
    let removed = match fs::symlink_metadata(path).await {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path).await,
        Ok(_) => fs::remove_file(path).await,
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(disk("remove", path)(error))
        }
        _ => Ok(()),
    }
}
