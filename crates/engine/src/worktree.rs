//! A worktree: the checkout that one task's agents work in, on the branch `tamma/<task>`.
//!
//! Everything here can be done again after a crash and comes to the same end:
//! - a folder gets its final name only when it is complete, so that a folder with that name is
//!   always somebody's work;
//! - a commit is made from a snapshot of the files and becomes visible by moving the branch once;
//! - a folder loses its name before it is removed, and what it had is saved before that.
//!
//! No call trusts what an agent may have done to the index, to `HEAD` or to the hooks. Whoever
//! calls makes sure that no process of an earlier run still writes here
//! ([`reap`](crate::process::Records::reap)).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tamma_core::ids::{CommitId, TaskId};
use tamma_core::plan::Action;
use tokio::fs;

use crate::mirror::{Error, Lock, Mirror, branch, disk};

/// The trailer by which a commit says which piece of work made it.
const TRAILER: &str = "Tamma-Run";

/// Who a commit is by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Author {
    /// Their name.
    pub name: String,
    /// Their address.
    pub email: String,
}

/// The checkout of one task.
#[derive(Debug, Clone)]
pub struct Worktree {
    mirror: Mirror,
    task: TaskId,
    path: PathBuf,
}

impl Worktree {
    /// Opens the worktree of a task, and makes it first, on its branch from `base`, where there is
    /// none. A branch that is there already is taken as it is.
    pub async fn open(mirror: &Mirror, task: TaskId, base: CommitId) -> Result<Self, Error> {
        let worktrees = mirror.data.join("worktrees");
        fs::create_dir_all(&worktrees).await.map_err(disk("make", &worktrees))?;
        let tree = Self { mirror: mirror.clone(), task, path: worktrees.join(task.to_string()) };
        mirror.require(base).await?;
        let _lock = mirror.lock().await?;
        if exists(&tree.path).await? {
            tree.repair().await?;
            return Ok(tree);
        }
        if mirror.commit(&tree.reference()).await?.is_none() {
            // The empty old value: only if it is not there.
            let call = ["update-ref", &tree.reference(), &base.to_string(), ""];
            mirror.git.at(&mirror.path).run(call).await?;
        }
        let unfinished = worktrees.join("new").join(task.to_string());
        clear(&unfinished).await?;
        // Twice, because an add that was killed leaves its folder locked.
        let add = ["worktree", "add", "--quiet", "--force", "--force"].map(AsRef::as_ref);
        let branch = branch(task);
        let place = [unfinished.as_os_str(), branch.as_ref()];
        mirror.git.at(&mirror.path).run(add.into_iter().chain(place)).await?;
        fs::rename(&unfinished, &tree.path).await.map_err(disk("rename", &unfinished))?;
        tree.repair().await?;
        Ok(tree)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whose it is.
    pub fn task(&self) -> TaskId {
        self.task
    }

    /// The commit that the branch is at.
    pub async fn head(&self) -> Result<CommitId, Error> {
        self.require(&self.reference()).await
    }

    /// Commits all there is as the work of one ticket, and returns the commit.
    ///
    /// When nothing has changed, that is the commit the branch is at. A ticket has at most one
    /// commit at the tip: where it is there already and the files have changed since, the commit is
    /// replaced.
    pub async fn commit_all(
        &self,
        ticket: u32,
        message: &str,
        author: &Author,
    ) -> Result<CommitId, Error> {
        let _lock = self.lock().await?;
        let tip = self.head().await?;
        let tree = self.snapshot(tip).await?;
        let commit = if tree == self.tree_of(tip).await? {
            tip
        } else {
            let run = format!("{}/{ticket}", self.task);
            let parents = if self.made_by(tip).await? == run {
                let line = self.git(["rev-list", "--parents", "-1", &tip.to_string()]).await?;
                line.split(' ').skip(1).map(str::to_owned).collect()
            } else {
                vec![tip.to_string()]
            };
            let message = format!("{}\n\n{TRAILER}: {run}\n", message.trim_end());
            let commit = self.record(&tree, &parents, &message, author).await?;
            self.move_ref(&self.reference(), commit, Some(tip)).await?;
            commit
        };
        // The agent may have left the branch, and the index is the one of the commit before.
        self.git(["symbolic-ref", "HEAD", &self.reference()]).await?;
        self.git(["read-tree", "HEAD"]).await?;
        Ok(commit)
    }

    /// The commit that a ticket has made, if it is the one the branch is at.
    pub async fn commit_of(&self, ticket: u32) -> Result<Option<CommitId>, Error> {
        let tip = self.head().await?;
        let made_by = self.made_by(tip).await?;
        Ok((made_by == format!("{}/{ticket}", self.task)).then_some(tip))
    }

    /// Which piece of work a commit says it is of.
    async fn made_by(&self, commit: CommitId) -> Result<String, Error> {
        let format = format!("--format=%(trailers:key={TRAILER},valueonly)");
        let said = self.git(["log", "-1", &format, &commit.to_string()]).await?;
        Ok(said.trim().to_owned())
    }

    /// Saves what is not committed on the branch under `refs/tamma/salvage/<task>`.
    ///
    /// Returns what was saved, or nothing where there is nothing to save. An earlier salvage stays
    /// reachable from the new one.
    pub async fn salvage(&self) -> Result<Option<CommitId>, Error> {
        let _lock = self.lock().await?;
        self.save().await
    }

    /// Saves what is not committed, then removes the worktree. The branch stays.
    pub async fn remove(self) -> Result<Option<CommitId>, Error> {
        let _list = self.mirror.lock().await?;
        let _lock = self.lock().await?;
        let old = self.mirror.data.join("worktrees").join("old");
        let removed = old.join(self.task.to_string());
        let mut saved = None;
        if exists(&self.path).await? {
            self.relink().await?;
            saved = self.save().await?;
            // What an interrupted removal has left here was saved before it got this name.
            clear(&removed).await?;
            fs::create_dir_all(&old).await.map_err(disk("make", &old))?;
            fs::rename(&self.path, &removed).await.map_err(disk("rename", &self.path))?;
        }
        clear(&removed).await?;
        let prune = ["worktree", "prune", "--expire", "now"];
        self.mirror.git.at(&self.mirror.path).run(prune).await?;
        Ok(saved)
    }

    /// Every file that differs from a commit, in the files as they are now, committed or not.
    pub async fn diff_stat(&self, base: CommitId) -> Result<BTreeMap<String, Action>, Error> {
        let _lock = self.lock().await?;
        let tree = self.snapshot(base).await?;
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

    /// Whether the files that git knows are exactly those of a commit, and `HEAD` is there.
    pub(crate) async fn is_at(&self, commit: CommitId) -> Result<bool, Error> {
        let head = self.require("HEAD").await?;
        let changed = self.git(["status", "--porcelain", "--untracked-files=no"]).await?;
        Ok(head == commit && changed.is_empty())
    }

    /// Waits until nobody else looks at or changes this worktree.
    async fn lock(&self) -> Result<Lock, Error> {
        Lock::hold(self.mirror.data.join("worktrees").join(format!("{}.lock", self.task))).await
    }

    async fn save(&self) -> Result<Option<CommitId>, Error> {
        let branch = self.head().await?;
        let head = self.require("HEAD").await?;
        let tree = self.snapshot(head).await?;
        if head == branch && tree == self.tree_of(head).await? {
            return Ok(None);
        }
        let reference = format!("refs/tamma/salvage/{}", self.task);
        let before = self.mirror.commit(&reference).await?;
        let mut parents = vec![head.to_string()];
        if let Some(before) = before {
            let same_tree = self.tree_of(before).await? == tree;
            if same_tree && self.require(&format!("{before}^1")).await? == head {
                return Ok(Some(before));
            }
            parents.push(before.to_string());
        }
        let message = format!("Work of {} that was not committed\n", self.task);
        let tamma = Author { name: "Tamma".to_owned(), email: "tamma@localhost".to_owned() };
        let commit = self.record(&tree, &parents, &message, &tamma).await?;
        self.move_ref(&reference, commit, before).await?;
        Ok(Some(commit))
    }

    /// Writes all files, as they are, as a tree, through an index of our own.
    ///
    /// The agent's index is left alone and not believed: it may hide files.
    async fn snapshot(&self, base: CommitId) -> Result<String, Error> {
        let index = self.folder_in_mirror().join("tamma-index");
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
        let all = ["add", "--all", "--", "."].map(str::to_owned);
        git().run(all.into_iter().chain(around)).await?;
        let files = self.files_of(nested).await?;
        if !files.is_empty() {
            let call = ["update-index", "--add", "--remove", "-z", "--stdin"];
            git().input(files).run(call).await?;
        }
        let tree = git().run(["write-tree"]).await?;
        clear(&index).await?;
        Ok(tree)
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
        parents: &[String],
        message: &str,
        author: &Author,
    ) -> Result<CommitId, Error> {
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
        let references = [self.reference(), format!("refs/tamma/salvage/{}", self.task)];
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

    fn reference(&self) -> String {
        format!("refs/heads/{}", branch(self.task))
    }

    async fn tree_of(&self, commit: CommitId) -> Result<String, Error> {
        self.git(["rev-parse", "--verify", &format!("{commit}^{{tree}}")]).await
    }

    async fn require(&self, name: &str) -> Result<CommitId, Error> {
        let name = format!("{name}^{{commit}}");
        Ok(self.git(["rev-parse", "--verify", &name]).await?.parse()?)
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
async fn clear(path: &Path) -> Result<(), Error> {
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
