//! Checkouts for gates: one per task, and one per project for base commits. Agents that judge a
//! commit get a disposable one.
//!
//! Gates do not run in an agent's worktree, because ignored files left by the agent could make them
//! pass. Ignored files in a gate checkout come from gates and are kept, so that installed and built
//! files are reused.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tamma_core::ids::{CommitId, ProjectId, TaskId};
use tamma_core::rules::is_instruction_file;
use tamma_core::task_loop::Timestamp;
use tokio::fs;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::files::FileLock;
use crate::git::GitCommand;
use crate::mirror::{Error, Mirror, disk_error, lock_file, try_lock_file};
use crate::private_git::{PrivateGit, PrivateGitSource};
use crate::process::{ProcessRecords, RunId};
use crate::setup::{self, SetupCommand, SetupOutcome, SetupPlace, SetupRecord};
use crate::sparse::SparseFolders;
use crate::special_files::{read_git_link, remove_special_files};

/// Exclusive access to a checkout for gates.
pub struct GateCheckout {
    mirror: Mirror,
    location: CheckoutLocation,
    _lock: FileLock,
}

/// Users of checkouts. Each has a folder in the data directory.
const GATES: &str = "gates";
const JUDGES: &str = "judges";

/// Time limit for removing leftover files. After it, the checkout is created again, which is faster
/// for very deep folders.
const CLEAN_LIMIT: Duration = Duration::from_mins(1);

/// Branch of a disposable checkout, as an agent sees it.
const JUDGED_BRANCH: &str = "change";

/// Location of a checkout.
struct CheckoutLocation {
    user: &'static str,
    id: Uuid,
    /// Directory that contains the checkout and its home.
    folder: PathBuf,
}

impl CheckoutLocation {
    fn new(data: &Path, user: &'static str, id: Uuid) -> Self {
        Self { user, id, folder: data.join(user).join(id.to_string()) }
    }

    /// Returns the directory name of the worktree. Git uses it as the worktree's ID, so it must be
    /// unique.
    fn name(&self) -> String {
        format!("{}-{}", self.user, self.id)
    }

    fn worktree(&self) -> PathBuf {
        self.folder.join(self.name())
    }

    fn home(&self) -> PathBuf {
        self.folder.join("home")
    }

    fn lock(&self) -> PathBuf {
        self.folder.with_extension("lock")
    }
}

impl GateCheckout {
    /// Returns the mirror that the checkout belongs to.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// Opens the checkout for the commits of a task. Waits until it is free.
    pub async fn for_task(mirror: &Mirror, task: TaskId) -> Result<Self, Error> {
        Self::open(mirror, GATES, task.0).await
    }

    /// Opens the checkout for the base commits of a project. Waits until it is free.
    pub async fn for_project(mirror: &Mirror, project: ProjectId) -> Result<Self, Error> {
        Self::open(mirror, GATES, project.0).await
    }

    /// Creates an empty checkout for agents that judge commits of a task. Waits until it is free.
    pub async fn for_judging(mirror: &Mirror, task: TaskId) -> Result<Self, Error> {
        let checkout = Self::open(mirror, JUDGES, task.0).await?;
        // An earlier one may be left after a crash.
        checkout.empty().await?;
        Ok(checkout)
    }

    /// Removes all files, and everything in the home directory.
    pub async fn empty(&self) -> Result<(), Error> {
        self.clear().await?;
        let home = self.home();
        fs::create_dir_all(&home).await.map_err(disk_error("create", &home))
    }

    /// Removes the checkout with everything in it.
    pub async fn remove(self) -> Result<(), Error> {
        self.clear().await
    }

    async fn clear(&self) -> Result<(), Error> {
        let _list = self.mirror.lock().await?;
        remove_path(&self.location.folder).await?;
        remove_path(&self.git_dir()).await
    }

    /// Replaces the files that instruct agents with those of the base commit, or removes them, so
    /// that a change cannot instruct its judge.
    pub async fn restore_instructions(&self, base: CommitId) -> Result<(), Error> {
        let (base_files, files) = (self.instructions(base).await?, self.own_instructions().await?);
        let added: Vec<&str> =
            files.iter().filter(|file| !base_files.contains(*file)).map(String::as_str).collect();
        if !added.is_empty() {
            let call = ["rm", "--quiet", "--force", "--ignore-unmatch"];
            let call = call.into_iter().chain(["--pathspec-from-file=-", "--pathspec-file-nul"]);
            let git = self.own_git().env("GIT_LITERAL_PATHSPECS", "1");
            git.input(added.join("\0")).run(call).await?;
        }
        // A setup runs code of the change, and could have created some.
        let untracked = self.own_git().run(["ls-files", "-z", "--others"]).await?;
        let is_instruction = |path: &&str| is_instruction_file(path.trim_end_matches('/'));
        for path in untracked.split('\0').filter(is_instruction) {
            remove_path(&self.path().join(path)).await?;
        }
        if !base_files.is_empty() {
            let files: Vec<String> = base_files.into_iter().collect();
            self.overlay(base, &files).await?;
        }
        Ok(())
    }

    async fn own_instructions(&self) -> Result<BTreeSet<String>, Error> {
        let listed = self.own_git().run(["ls-files", "-z", "--stage"]).await?;
        // Removing a submodule would make git look into it, and use its settings.
        let files = listed
            .split('\0')
            .filter(|entry| !entry.starts_with("160000"))
            .filter_map(|entry| entry.split_once('\t'))
            .map(|(_, path)| path)
            .filter(|path| is_instruction_file(path));
        Ok(files.map(str::to_owned).collect())
    }

    /// Returns the instruction files of a commit, with the files that links among them lead to.
    async fn instructions(&self, commit: CommitId) -> Result<BTreeSet<String>, Error> {
        let listed = self.own_git().run(["ls-tree", "-r", "-z", &commit.to_string()]).await?;
        let entries: BTreeMap<&str, &str> = listed
            .split('\0')
            .filter_map(|line| line.split_once('\t'))
            .map(|(about, path)| (path, about))
            .collect();
        let mut files = BTreeSet::new();
        for (path, about) in entries.iter().filter(|(path, _)| is_instruction_file(path)) {
            files.insert((*path).to_owned());
            if !about.starts_with("120000") {
                continue;
            }
            let call = ["cat-file", "blob", &format!("{commit}:{path}")];
            let target = link_target(path, &self.own_git().run(call).await?);
            let below = format!("{target}/");
            let reached = entries.keys().filter(|it| **it == target || it.starts_with(&below));
            files.extend(reached.map(|path| (*path).to_owned()));
        }
        Ok(files)
    }

    /// Opens a fresh private git directory for an agent, at the commit that is checked out.
    pub async fn private_git(&self, folder: &Path) -> Result<PrivateGit, Error> {
        let (worktree, git_dir) = (self.path(), self.git_dir());
        let commit = self.own_git().run(["rev-parse", "--verify", "HEAD^{commit}"]).await?;
        let source = PrivateGitSource {
            mirror: &self.mirror,
            worktree: &worktree,
            git_dir: &git_dir,
            commit: commit.parse()?,
            branch: JUDGED_BRANCH,
            exclude: SetupRecord::read(&git_dir).await.ignore_patterns().collect(),
        };
        PrivateGit::open(folder, &source, true).await
    }

    async fn open(mirror: &Mirror, user: &'static str, id: Uuid) -> Result<Self, Error> {
        let location = CheckoutLocation::new(&mirror.data, user, id);
        let all = mirror.data.join(user);
        fs::create_dir_all(&all).await.map_err(disk_error("create", &all))?;
        let lock = lock_file(location.lock()).await?;
        let home = location.home();
        fs::create_dir_all(&home).await.map_err(disk_error("create", &home))?;
        Ok(Self { mirror: mirror.clone(), location, _lock: lock })
    }

    /// Returns the path of the files.
    pub fn path(&self) -> PathBuf {
        self.location.worktree()
    }

    /// Returns the home directory for gates.
    pub fn home(&self) -> PathBuf {
        self.location.home()
    }

    /// Returns the repository that the checkout belongs to.
    pub fn repository(&self) -> &Path {
        &self.mirror.path
    }

    /// Checks out a commit, which must be in the mirror. Ignored files are kept.
    pub async fn check_out(&self, commit: CommitId) -> Result<(), Error> {
        remove_special_files(&self.path()).await?;
        if self.is_intact().await && self.reset(commit).await.is_ok() && self.clean().await.is_ok()
        {
            return Ok(());
        }
        // A killed git, or a gate without a sandbox, damaged the checkout. Create it again. Then it
        // has no other files.
        self.create(commit).await?;
        self.reset(commit).await
    }

    /// Replaces files with their versions at another commit.
    pub async fn overlay(&self, commit: CommitId, files: &[String]) -> Result<(), Error> {
        let names = files.join("\0");
        let commit = commit.to_string();
        let call =
            ["checkout", "--quiet", &commit, "--pathspec-from-file=-", "--pathspec-file-nul"];
        let git = self.own_git().env("GIT_LITERAL_PATHSPECS", "1");
        git.input(names).run(call).await?;
        Ok(())
    }

    /// Restores the files of a commit. Other files stay.
    async fn reset(&self, commit: CommitId) -> Result<(), Error> {
        let git = || self.own_git();
        let commit = commit.to_string();
        let sparse = &self.mirror.sparse;
        if sparse.is_empty() {
            git().run(["checkout", "--quiet", "--force", "--detach", &commit]).await?;
        } else {
            git().run(["update-ref", "--no-deref", "HEAD", &commit]).await?;
            sparse.check_out(git, &self.path(), &commit).await?;
        }
        Ok(())
    }

    /// Removes files that belong to no commit. Files of the setup stay, like ignored ones.
    async fn clean(&self) -> Result<(), Error> {
        let mut clean = ["clean", "--quiet", "-ffd"].map(str::to_owned).to_vec();
        for pattern in SetupRecord::read(&self.git_dir()).await.ignore_patterns() {
            clean.extend(["-e".to_owned(), pattern]);
        }
        self.own_git().time_limit(CLEAN_LIMIT).run(clean).await?;
        Ok(())
    }

    /// Runs the setup, unless the checkout is already prepared for its lock files. A commit must be
    /// checked out.
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
        let (path, git_dir) = (self.path(), self.git_dir());
        let index = git_dir.join("index");
        let git = &self.mirror.git;
        let place = SetupPlace { git, path: &path, git_dir: &git_dir, index: &index };
        setup.run(&place, which, records, cancel).await
    }

    /// Returns `true` if the checkout is prepared for its lock files. A commit must be checked out.
    pub async fn is_set_up(&self, setup: &SetupCommand) -> Result<bool, setup::Error> {
        let (path, git_dir) = (self.path(), self.git_dir());
        let index = git_dir.join("index");
        let git = &self.mirror.git;
        let place = SetupPlace { git, path: &path, git_dir: &git_dir, index: &index };
        Ok(!setup.is_needed(&place).await?)
    }

    /// Starts a git command that does not read the link in the checkout, which gates could change.
    fn own_git(&self) -> GitCommand<'_> {
        self.mirror.git.in_worktree(&self.git_dir(), &self.path())
    }

    /// Returns `true` if the links between the checkout and the mirror are as we created them.
    async fn is_intact(&self) -> bool {
        let git_dir = self.git_dir();
        let link = read_git_link(&self.path().join(".git")).await;
        let is_linked = link.is_some_and(|link| link == format!("gitdir: {}\n", git_dir.display()));
        for lock in ["index.lock", "HEAD.lock"] {
            if remove_path(&git_dir.join(lock)).await.is_err() {
                return false;
            }
        }
        let is_same = SparseFolders::read(&git_dir).await == self.mirror.sparse;
        is_linked
            && is_same
            && fs::try_exists(git_dir.join("HEAD")).await.is_ok_and(|exists| exists)
    }

    async fn create(&self, commit: CommitId) -> Result<(), Error> {
        let path = self.path();
        let _list = self.mirror.lock().await?;
        remove_path(&path).await?;
        remove_path(&self.git_dir()).await?;
        let add = ["worktree", "add", "--quiet", "--force", "--force", "--detach", "--no-checkout"];
        let commit = commit.to_string();
        let target = [path.as_os_str(), commit.as_ref()];
        let git = self.mirror.git.bare(&self.mirror.path);
        git.run(add.into_iter().map(AsRef::as_ref).chain(target)).await?;
        self.mirror.sparse.save(&self.git_dir()).await
    }

    /// Returns git's directory for this worktree in the mirror.
    fn git_dir(&self) -> PathBuf {
        self.mirror.path.join("worktrees").join(self.location.name())
    }
}

/// Removes the checkout of a task or project with everything in it. Returns `false` if it is in
/// use.
pub async fn remove_checkout(data: &Path, id: Uuid) -> Result<bool, Error> {
    for user in [JUDGES, GATES] {
        let location = CheckoutLocation::new(data, user, id);
        if fs::symlink_metadata(&location.lock()).await.is_err() {
            continue;
        }
        let Some(_lock) = try_lock_file(&location.lock())? else { return Ok(false) };
        for mirror in crate::workspaces::list_dirs(&data.join("mirrors")).await? {
            remove_path(&mirror.0.join("worktrees").join(location.name())).await?;
        }
        remove_path(&location.folder).await?;
        remove_path(&location.lock()).await?;
    }
    Ok(true)
}

/// Removes a file or directory, if it exists.
pub(super) async fn remove_path(path: &Path) -> Result<(), Error> {
    crate::worktree::remove_path(path).await
}

/// Returns the path that a link in the repository leads to, from the root, judged by its text.
fn link_target(link: &str, target: &str) -> String {
    let mut parts: Vec<&str> = link.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_target_is_relative_to_the_folder_of_the_link() {
        assert_eq!(link_target("CLAUDE.md", "AGENTS.md"), "AGENTS.md");
        assert_eq!(link_target("web/CLAUDE.md", "../docs/./guide.md"), "docs/guide.md");
    }
}
