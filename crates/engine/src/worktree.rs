//! Worktree of one task, in which its agents work on the branch `tamma/<task>` of the mirror.
//!
//! All operations can be repeated after a crash, with the same result:
//! - A directory gets its final name only when it is complete, so a directory with that name always
//!   contains work.
//! - A commit is made from a snapshot of the files, and becomes visible by moving the branch once.
//! - A directory is renamed before it is removed, and saved before it is renamed.
//!
//! Work is never on one machine only: commits and uncommitted files are pushed to hidden refs of
//! the project's repository (`refs`). A machine with older work, or none, continues from there.
//!
//! Nothing here trusts the index, `HEAD` or hooks, because an agent may have changed them. Callers
//! must ensure that no process of an earlier run still writes here
//! ([`stop_orphans`](crate::process::ProcessRecords::stop_orphans)).

mod agent_snapshot;
mod checkpoint;
mod conflicts;
mod merge;
mod patch;
mod refs;
mod restore;
mod snapshot;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tamma_core::ids::{CommitId, TaskId};
use tamma_core::plan::FileAction;
use tamma_core::task_loop::Timestamp;
use tokio::fs;
use tokio_util::sync::CancellationToken;

pub(crate) use self::checkpoint::UncommittedWork;
pub use self::checkpoint::{Checkpoint, CheckpointProgress, LatestWork, remove_remote_refs};
pub use self::merge::MergeOutcome;
pub use self::patch::{ChangePatch, TouchedFiles};
use self::refs::{RUN_TRAILER, TaskRefs};
pub(crate) use self::refs::{aside_ref, work_ref};
use self::snapshot::Snapshot;
use crate::files::FileLock;
use crate::files::replace_file;
use crate::git::{self, GitCommand};
use crate::mirror::{Error, Mirror, disk_error, lock_file, task_branch};
use crate::private_git::{PrivateGit, PrivateGitSource, is_private_link};
use crate::process::{ProcessRecords, RunId};
use crate::setup::{self, SetupCommand, SetupOutcome, SetupPlace, SetupRecord};
use crate::special_files::read_git_link;

/// Index file for snapshots, separate from the agent's.
const SNAPSHOT_INDEX: &str = "tamma-index";

/// Space that a disk must have after a failed commit: more than an index and a few objects need.
const DISK_CHECK_BYTES: usize = 1024 * 1024;

/// Index file with the files before a setup.
const SETUP_INDEX: &str = "tamma-setup-index";

/// Maximum size of a file's text, in bytes.
const MAX_TEXT_BYTES: usize = 16 * 1024 * 1024;

/// Author of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Author {
    /// Display name.
    pub name: String,
    /// Email address.
    pub email: String,
}

/// Completeness of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SnapshotMode {
    /// Fails if a file cannot be read.
    AllFiles,
    /// Skips unreadable files, because a running agent creates and removes files.
    BestEffort,
}

/// Worktree of one task.
#[derive(Debug, Clone)]
pub struct Worktree {
    mirror: Mirror,
    task: TaskId,
    path: PathBuf,
}

impl Worktree {
    /// Opens the worktree of a task with its latest work, from any host.
    pub async fn open(mirror: &Mirror, task: TaskId, base: CommitId) -> Result<Self, Error> {
        Self::open_at(mirror, task, base, LatestWork::Unknown).await
    }

    /// Opens the worktree of a task, and creates it if needed: on its branch, which starts at
    /// `base`, with the uncommitted files of the last checkpoint.
    ///
    /// If another host may have newer work, the project's repository is queried. Local work that is
    /// not part of it is kept under `refs/tamma/aside/`.
    pub async fn open_at(
        mirror: &Mirror,
        task: TaskId,
        base: CommitId,
        newest: LatestWork,
    ) -> Result<Self, Error> {
        let worktrees = mirror.data.join("worktrees");
        fs::create_dir_all(&worktrees).await.map_err(disk_error("create", &worktrees))?;
        let tree = Self { mirror: mirror.clone(), task, path: worktrees.join(task.to_string()) };
        mirror.ensure_commit(base).await?;
        let mut refs = tree.refs().await?;
        let is_newest = match newest {
            LatestWork::NoWork => true,
            LatestWork::Commit(commit) => refs.head() == Some(commit),
            LatestWork::Unknown => false,
        };
        if !is_newest {
            refs = tree.catch_up(refs, base).await?;
        }
        if let LatestWork::Commit(commit) = newest
            && refs.head() != Some(commit)
        {
            refs = tree.switch_to(commit, refs.remote).await?;
        }
        let _lock = mirror.lock().await?;
        if exists(&tree.path).await? {
            tree.repair().await?;
            return Ok(tree);
        }
        tree.create(&refs, base).await?;
        tree.repair().await?;
        Ok(tree)
    }

    /// Creates the directory, and renames it once it is complete.
    async fn create(&self, refs: &TaskRefs, base: CommitId) -> Result<(), Error> {
        let git = || self.mirror.git.bare(&self.mirror.path);
        if refs.branch.is_none() {
            // The empty old value means: only if the ref does not exist.
            let call = ["update-ref", &refs::branch_ref(self.task), &base.to_string(), ""];
            git().run(call).await?;
        }
        let unfinished = self.mirror.data.join("worktrees").join("new").join(self.task.to_string());
        remove_path(&unfinished).await?;
        // Forced twice, because a killed `worktree add` leaves its directory locked.
        let mut add = vec!["worktree", "add", "--quiet", "--force", "--force"];
        let (uncommitted, sparse) = (refs.uncommitted(), &self.mirror.sparse);
        if uncommitted.is_some() || !sparse.is_empty() {
            add.push("--no-checkout");
        }
        let branch = task_branch(self.task);
        let target = [unfinished.as_os_str(), branch.as_ref()];
        git().run(add.into_iter().map(AsRef::as_ref).chain(target)).await?;
        let git_dir = self.git_dir();
        let git = || self.mirror.git.in_worktree(&git_dir, &unfinished);
        sparse.save(&git_dir).await?;
        match uncommitted {
            None if sparse.is_empty() => {}
            None => sparse.check_out(git, &unfinished, "HEAD").await?,
            Some(tree) => {
                if sparse.is_empty() {
                    git().run(["read-tree", "--reset", "-u", tree]).await?;
                } else {
                    sparse.check_out(git, &unfinished, tree).await?;
                }
                // Keeps the files, and shows them as uncommitted again.
                git().run(["read-tree", "HEAD"]).await?;
                sparse.mark(git, &unfinished).await?;
            }
        }
        fs::rename(&unfinished, &self.path).await.map_err(disk_error("rename", &unfinished))
    }

    /// Returns the path of the worktree.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the repository that the worktree belongs to.
    pub fn repository(&self) -> &Path {
        &self.mirror.path
    }

    /// Returns the mirror that the worktree belongs to.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// Returns the task.
    pub fn task(&self) -> TaskId {
        self.task
    }

    /// Returns the commit of the branch.
    pub async fn head(&self) -> Result<CommitId, Error> {
        self.refs().await?.head().ok_or_else(|| self.missing_branch_error())
    }

    /// Runs the setup, unless the worktree is already prepared for its lock files.
    ///
    /// Files that the setup creates are left out of commits, and changes of other files are undone.
    pub async fn set_up(
        &self,
        setup: &SetupCommand,
        which: (RunId, Timestamp),
        records: &ProcessRecords,
        cancel: &CancellationToken,
    ) -> Result<SetupOutcome, setup::Error> {
        if self.is_set_up(setup).await? {
            return Ok(SetupOutcome::UpToDate);
        }
        let (git_dir, index) = (self.git_dir(), self.git_dir().join(SETUP_INDEX));
        let (git, path) = (&self.mirror.git, self.path.as_path());
        let place = SetupPlace { git, path, git_dir: &git_dir, index: &index };
        {
            let _lock = self.lock().await?;
            self.snapshot_through(SETUP_INDEX, self.head().await?, SnapshotMode::AllFiles).await?;
        }
        setup.run(&place, which, records, cancel).await
    }

    /// Returns `true` if the worktree is prepared for its lock files.
    pub async fn is_set_up(&self, setup: &SetupCommand) -> Result<bool, setup::Error> {
        let (git_dir, index) = (self.git_dir(), self.git_dir().join(SETUP_INDEX));
        let (git, path) = (&self.mirror.git, self.path.as_path());
        let place = SetupPlace { git, path, git_dir: &git_dir, index: &index };
        Ok(!setup.is_needed(&place).await?)
    }

    /// Opens the private git directory of an agent, at the commit of the branch.
    pub async fn private_git(&self, folder: &Path, fresh: bool) -> Result<PrivateGit, Error> {
        let git_dir = self.git_dir();
        let source = PrivateGitSource {
            mirror: &self.mirror,
            worktree: &self.path,
            git_dir: &git_dir,
            commit: self.head().await?,
            branch: &task_branch(self.task),
            exclude: SetupRecord::read(&git_dir).await.ignore_patterns().collect(),
        };
        PrivateGit::open(folder, &source, fresh).await
    }

    /// Commits all files as the work of one job, and returns the commit.
    ///
    /// Without changes, that is the current commit of the branch. A job has at most one commit at
    /// the tip; if files have changed since, it is replaced. The commit is pushed. If an outdated host
    /// was faster, it is pushed beside the work of that host. A failed push is not an error, because
    /// the next checkpoint retries it.
    pub async fn commit_all(
        &self,
        job_number: u32,
        message: &str,
        author: &Author,
    ) -> Result<CommitId, Error> {
        // The disk may have been full, which is not the fault of a file. Git's message is no proof: the
        // agent chooses the names in it.
        let bytes = match self.try_commit_all(job_number, message, author).await {
            Err(Error::NotCommittable { path, .. }) => {
                fs::symlink_metadata(self.path.join(path)).await.map_or(0, |file| file.len())
            }
            Err(Error::Git(git::Error::Failed { .. })) => 0,
            committed => return committed,
        };
        self.check_disk(bytes).await?;
        self.try_commit_all(job_number, message, author).await
    }

    /// Fails if the disk has no space for a file of this size.
    async fn check_disk(&self, bytes: u64) -> Result<(), Error> {
        let folder = self.git_dir();
        let path = folder.join("tamma-disk-check");
        // A quota does not show in the free space.
        let written = replace_file(&path, &vec![0; DISK_CHECK_BYTES]).await;
        let _ = fs::remove_file(&path).await;
        written.map_err(disk_error("write", &path))?;
        let disk = rustix::fs::statvfs(&folder)
            .map_err(|error| disk_error("check the space of", &folder)(error.into()))?;
        if disk.f_bavail.saturating_mul(disk.f_frsize) < bytes {
            return Err(disk_error("write", &path)(io::ErrorKind::StorageFull.into()));
        }
        Ok(())
    }

    async fn try_commit_all(
        &self,
        job_number: u32,
        message: &str,
        author: &Author,
    ) -> Result<CommitId, Error> {
        let _lock = self.lock().await?;
        let mut refs = self.refs().await?;
        let tip = refs.branch.clone().ok_or_else(|| self.missing_branch_error())?;
        let snapshot = self.snapshot_through(SNAPSHOT_INDEX, tip.commit, SnapshotMode::AllFiles);
        let Snapshot { tree, is_small } = snapshot.await?;
        let mut commit = tip.commit;
        if tree != tip.tree {
            if !is_small {
                self.check_size(&tip.tree, &tree).await?;
            }
            let run = format!("{}/{job_number}", self.task);
            let parents = if tip.run == run { tip.parents } else { vec![tip.commit] };
            let message = format!("{}\n\n{RUN_TRAILER}: {run}\n", message.trim_end());
            commit = self.create_commit(&tree, &parents, &message, author).await?;
            self.move_ref(&refs::branch_ref(self.task), commit, Some(tip.commit)).await?;
            refs.branch = Some(refs::RefTip { commit, tree, parents, run, branch: None });
        }
        // The agent may have switched branches, and the index belongs to the previous commit.
        if self.detached_head().await?.is_some() {
            self.git(["symbolic-ref", "HEAD", &refs::branch_ref(self.task)]).await?;
        }
        // The snapshot's index contains exactly these files.
        let folder = self.git_dir();
        let index = folder.join("index");
        fs::rename(folder.join(SNAPSHOT_INDEX), &index)
            .await
            .map_err(disk_error("rename", &index))?;
        if let Some(reason) = checkpoint::push_refs(&self.mirror, self.task, &mut refs).await?
            && let Some(second) = checkpoint::push_aside(&self.mirror, self.task, commit).await?
        {
            tracing::warn!(task = %self.task, %commit, reason, second, "failed to push commit; work is on this worker only");
        }
        Ok(commit)
    }

    /// Moves the branch of a story to the delivered one in the project's repository, if people have
    /// added commits to it. Returns the new commit.
    ///
    /// There must be no uncommitted work. A delivered branch that lacks commits of this one is
    /// ignored, so nothing is lost.
    pub async fn adopt_delivered(&self) -> Result<Option<CommitId>, Error> {
        self.mirror.fetch().await?;
        let name = format!("refs/remotes/origin/{}", task_branch(self.task));
        let (head, delivered) = (self.head().await?, self.mirror.find_commit(&name).await?);
        let Some(commit) = delivered.filter(|commit| *commit != head) else { return Ok(None) };
        if !self.is_descendant(head, commit).await? {
            return Ok(None);
        }
        let _lock = self.lock().await?;
        self.git(["merge", "--quiet", "--ff-only", &commit.to_string()]).await?;
        Ok(Some(commit))
    }

    /// Returns the commit of a job, if it is the tip of the branch.
    pub async fn commit_for_job(&self, job_number: u32) -> Result<Option<CommitId>, Error> {
        let tip = self.refs().await?.branch;
        let run = format!("{}/{job_number}", self.task);
        Ok(tip.filter(|tip| tip.run == run).map(|tip| tip.commit))
    }

    /// Returns the worktree of a task, if this machine has one.
    pub async fn find(mirror: &Mirror, task: TaskId) -> Result<Option<Self>, Error> {
        let path = mirror.data.join("worktrees").join(task.to_string());
        let tree = Self { mirror: mirror.clone(), task, path };
        Ok(exists(&tree.path).await?.then_some(tree))
    }

    /// Saves uncommitted work and removes the worktree. The branch stays. With `push`, saved work
    /// is pushed; this is unnecessary once the task is delivered.
    pub async fn remove(self, push: bool) -> Result<Checkpoint, Error> {
        let _list = self.mirror.lock().await?;
        let _lock = self.lock().await?;
        let (commit, mut refs) = if exists(&self.path).await? {
            self.relink().await?;
            self.save_uncommitted().await?
        } else {
            (None, self.refs().await?)
        };
        let push_error = if push {
            checkpoint::push_refs(&self.mirror, self.task, &mut refs).await?
        } else {
            None
        };
        self.remove_folder().await?;
        Ok(Checkpoint { commit, pushed: push && push_error.is_none(), push_error })
    }

    /// Returns files that differ from a commit, including uncommitted ones.
    pub async fn diff_stat(&self, base: CommitId) -> Result<BTreeMap<String, FileAction>, Error> {
        let _lock = self.lock().await?;
        let tree = self.snapshot(base, SnapshotMode::AllFiles).await?;
        self.changed_between(&base.to_string(), &tree).await
    }

    /// Returns files that differ between two commits.
    pub async fn changed_files(
        &self,
        base: CommitId,
        commit: CommitId,
    ) -> Result<BTreeMap<String, FileAction>, Error> {
        self.changed_between(&base.to_string(), &commit.to_string()).await
    }

    /// Returns `true` if `commit` is a descendant of `base`, so that no history was rewritten.
    pub async fn is_descendant(&self, base: CommitId, commit: CommitId) -> Result<bool, Error> {
        let call = ["merge-base", "--is-ancestor", &base.to_string(), &commit.to_string()];
        Ok(self.own_git().output(&call).await?.code == Some(0))
    }

    /// Returns the text of a file at a commit, if it exists and has at most 16 MiB.
    pub async fn file_text(&self, commit: CommitId, path: &str) -> Result<Option<String>, Error> {
        let call = ["cat-file", "blob", &format!("{commit}:{path}")];
        let git = self.mirror.git.bare(&self.mirror.path).max_output(MAX_TEXT_BYTES);
        match git.run_if_successful(&call).await {
            Err(git::Error::TooMuchOutput { .. }) => Ok(None),
            text => Ok(text?),
        }
    }

    /// Returns the paths of all files at a commit.
    pub async fn files_at(&self, commit: CommitId) -> Result<BTreeSet<String>, Error> {
        let call = ["ls-tree", "-r", "-z", "--name-only", "--full-tree", &commit.to_string()];
        let listed = self.git(call).await?;
        Ok(listed.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
    }

    async fn changed_between(
        &self,
        from: &str,
        to: &str,
    ) -> Result<BTreeMap<String, FileAction>, Error> {
        let call = ["diff-tree", "-r", "-z", "--no-renames", "--name-status", from, to];
        let listed = self.git(call).await?;
        let mut parts = listed.split('\0').filter(|part| !part.is_empty());
        let mut touched = BTreeMap::new();
        while let (Some(status), Some(path)) = (parts.next(), parts.next()) {
            let action = match status {
                "A" => FileAction::Create,
                "D" => FileAction::Delete,
                // Modified (`M`), or changed type (`T`).
                _ => FileAction::Modify,
            };
            touched.insert(path.to_owned(), action);
        }
        Ok(touched)
    }

    /// Locks this worktree, and waits if it is locked.
    async fn lock(&self) -> Result<FileLock, Error> {
        lock_file(self.mirror.data.join("worktrees").join(format!("{}.lock", self.task))).await
    }

    async fn create_commit(
        &self,
        tree: &str,
        parents: &[CommitId],
        message: &str,
        author: &Author,
    ) -> Result<CommitId, Error> {
        let parents: Vec<_> = parents.iter().map(ToString::to_string).collect();
        let parents = parents.iter().flat_map(|parent| ["-p", parent]);
        let commit = self
            .own_git()
            .env("GIT_AUTHOR_NAME", &author.name)
            .env("GIT_AUTHOR_EMAIL", &author.email)
            .env("GIT_COMMITTER_NAME", "Tamma")
            .env("GIT_COMMITTER_EMAIL", "tamma@localhost")
            .input(message)
            .run(["commit-tree", "-F", "-", tree].into_iter().chain(parents))
            .await?;
        Ok(commit.parse()?)
    }

    /// Moves a ref, if it still has the expected value.
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

    /// Repairs the effects of a crash: links to the directory's previous name, and locks of a
    /// killed git.
    async fn repair(&self) -> Result<(), Error> {
        self.relink().await?;
        let folder = self.git_dir();
        let references = [refs::branch_ref(self.task), refs::checkpoint_ref(self.task)];
        let locks = ["index.lock", "HEAD.lock"]
            .map(|lock| folder.join(lock))
            .into_iter()
            .chain(references.map(|name| self.mirror.path.join(format!("{name}.lock"))));
        for lock in locks {
            remove_path(&lock).await?;
        }
        Ok(())
    }

    async fn relink(&self) -> Result<(), Error> {
        let link = self.path.join(".git");
        let text = format!("gitdir: {}\n", self.git_dir().display());
        let current = read_git_link(&link).await;
        if current.as_ref() == Some(&text) {
            let back = self.git_dir().join("gitdir");
            let location = format!("{}\n", link.display());
            if fs::read_to_string(&back).await.is_ok_and(|current| current == location) {
                return Ok(());
            }
            return fs::write(&back, location).await.map_err(disk_error("write", &back));
        }
        // An agent removed or replaced the link. The other files are still its work. A link to the
        // private directory of an earlier run is ours.
        let is_private = current.is_some_and(|it| is_private_link(&it));
        if is_private {
            remove_path(&link).await?;
        } else if exists(&link).await? {
            let replaced = self.path.join(".git-replaced");
            remove_path(&replaced).await?;
            fs::rename(&link, &replaced).await.map_err(disk_error("rename", &link))?;
        }
        fs::write(&link, text).await.map_err(disk_error("write", &link))?;
        let back = self.git_dir().join("gitdir");
        let location = format!("{}\n", link.display());
        fs::write(&back, location).await.map_err(disk_error("write", &back))
    }

    /// Returns git's directory for this worktree in the mirror, named after the task.
    fn git_dir(&self) -> PathBuf {
        self.mirror.path.join("worktrees").join(self.task.to_string())
    }

    /// Reads the refs of the task.
    async fn refs(&self) -> Result<TaskRefs, Error> {
        TaskRefs::read(&self.mirror, self.task).await
    }

    fn missing_branch_error(&self) -> Error {
        let (revision, repository) =
            (task_branch(self.task), self.mirror.path.display().to_string());
        Error::Unknown { revision, repository }
    }

    /// Returns the commit of `HEAD` if it is not on the branch.
    async fn detached_head(&self) -> Result<Option<CommitId>, Error> {
        let file = self.git_dir().join("HEAD");
        let text = fs::read_to_string(&file).await.map_err(disk_error("read", &file))?;
        if text.trim_end() == format!("ref: {}", refs::branch_ref(self.task)) {
            return Ok(None);
        }
        let call = ["rev-parse", "--verify", "HEAD^{commit}"];
        Ok(Some(self.git(call).await?.parse()?))
    }

    async fn tree_of(&self, commit: CommitId) -> Result<String, Error> {
        self.git(["rev-parse", "--verify", &format!("{commit}^{{tree}}")]).await
    }

    /// Starts a git command that does not read the link in the worktree, which agents can change.
    fn own_git(&self) -> GitCommand<'_> {
        self.mirror.git.in_worktree(&self.git_dir(), &self.path)
    }

    async fn git<const N: usize>(&self, arguments: [&str; N]) -> Result<String, Error> {
        Ok(self.own_git().run(arguments).await?)
    }
}

async fn exists(path: &Path) -> Result<bool, Error> {
    match fs::symlink_metadata(path).await {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(disk_error("read", path)(error)),
    }
}

/// Removes a file or directory, if it exists. Agents and gates may have made directories
/// inaccessible.
pub(crate) async fn remove_path(path: &Path) -> Result<(), Error> {
    let removed = match fs::symlink_metadata(path).await {
        Ok(metadata) if metadata.is_dir() => match fs::remove_dir_all(path).await {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                let owned = path.to_owned();
                // If it fails, the second attempt to remove says why.
                let _ = tokio::task::spawn_blocking(move || make_accessible(&owned)).await;
                fs::remove_dir_all(path).await
            }
            removed => removed,
        },
        Ok(_) => fs::remove_file(path).await,
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(disk_error("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// Gives us access to a directory and everything below. Links are not followed.
fn make_accessible(folder: &Path) {
    // Without recursion: an agent decides how deep its directories are.
    let mut pending = vec![folder.to_owned()];
    while let Some(path) = pending.pop() {
        if !path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
            continue;
        }
        // If it fails, the directory cannot be listed, and stays.
        let _ = std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700));
        let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
        pending.extend(entries.map(|entry| entry.path()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn inaccessible_directories_are_removed_and_links_are_not_followed() {
        let folder = tempfile::tempdir().expect("folder");
        let (tree, outside) = (folder.path().join("tree"), folder.path().join("outside"));
        for path in [tree.join("a/b"), outside.clone()] {
            std::fs::create_dir_all(&path).expect("made");
            std::fs::write(path.join("file"), "").expect("written");
        }
        std::os::unix::fs::symlink(&outside, tree.join("a/link")).expect("linked");
        let lock = std::fs::Permissions::from_mode(0o000);
        for path in [tree.join("a/b"), tree.join("a")] {
            std::fs::set_permissions(path, lock.clone()).expect("locked");
        }
        let before = std::fs::metadata(&outside).expect("there").permissions();
        make_accessible(&tree);
        let mode = std::fs::metadata(tree.join("a/b")).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert_eq!(std::fs::metadata(&outside).expect("there").permissions(), before);
        remove_path(&tree).await.expect("removed");
        assert!(!tree.exists() && outside.join("file").exists());
    }
}
