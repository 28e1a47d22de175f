//! Checkouts for gates: one per task, and one per project for base commits.
//!
//! Gates do not run in an agent's worktree, because ignored files left by the agent could make them
//! pass. Ignored files in a gate checkout come from gates and are kept, so that installed and built
//! files are reused.

use std::path::{Path, PathBuf};

use tamma_core::ids::{CommitId, ProjectId, TaskId};
use tokio::fs;
use uuid::Uuid;

use crate::mirror::{Error, FileLock, Mirror, disk_error};

/// Exclusive access to a checkout for gates.
pub struct GateCheckout {
    mirror: Mirror,
    location: CheckoutLocation,
    _lock: FileLock,
}

/// Location of a checkout.
struct CheckoutLocation {
    id: Uuid,
    /// Directory that contains the checkout and its home.
    folder: PathBuf,
}

impl CheckoutLocation {
    fn new(data: &Path, id: Uuid) -> Self {
        Self { id, folder: data.join("gates").join(id.to_string()) }
    }

    /// Returns the directory name of the worktree. Git uses it as the worktree's ID, so it must be
    /// unique.
    fn name(&self) -> String {
        format!("gates-{}", self.id)
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
    /// Opens the checkout for the commits of a task. Waits until it is free.
    pub async fn for_task(mirror: &Mirror, task: TaskId) -> Result<Self, Error> {
        Self::open(mirror, task.0).await
    }

    /// Opens the checkout for the base commits of a project. Waits until it is free.
    pub async fn for_project(mirror: &Mirror, project: ProjectId) -> Result<Self, Error> {
        Self::open(mirror, project.0).await
    }

    async fn open(mirror: &Mirror, id: Uuid) -> Result<Self, Error> {
        let location = CheckoutLocation::new(&mirror.data, id);
        let all = mirror.data.join("gates");
        fs::create_dir_all(&all).await.map_err(disk_error("create", &all))?;
        let lock = FileLock::acquire(location.lock()).await?;
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
        if self.is_intact().await && self.reset(commit).await.is_ok() {
            return Ok(());
        }
        // A killed git, or a gate without a sandbox, damaged the checkout. Create it again.
        self.create(commit).await?;
        self.reset(commit).await
    }

    /// Replaces files with their versions at another commit.
    pub async fn overlay(&self, commit: CommitId, files: &[String]) -> Result<(), Error> {
        let names = files.join("\0");
        let commit = commit.to_string();
        let call =
            ["checkout", "--quiet", &commit, "--pathspec-from-file=-", "--pathspec-file-nul"];
        let git = self.mirror.git.in_dir(&self.path()).env("GIT_LITERAL_PATHSPECS", "1");
        git.input(names).run(call).await?;
        Ok(())
    }

    async fn reset(&self, commit: CommitId) -> Result<(), Error> {
        let path = self.path();
        let git = || self.mirror.git.in_dir(&path);
        git().run(["checkout", "--quiet", "--force", "--detach", &commit.to_string()]).await?;
        git().run(["clean", "--quiet", "-ffd"]).await?;
        Ok(())
    }

    /// Returns `true` if the links between the checkout and the mirror are as we created them.
    async fn is_intact(&self) -> bool {
        let git_dir = self.git_dir();
        let link = fs::read_to_string(self.path().join(".git")).await;
        let is_linked = link.is_ok_and(|link| link == format!("gitdir: {}\n", git_dir.display()));
        for lock in ["index.lock", "HEAD.lock"] {
            if remove_path(&git_dir.join(lock)).await.is_err() {
                return false;
            }
        }
        is_linked && fs::try_exists(git_dir.join("HEAD")).await.is_ok_and(|exists| exists)
    }

    async fn create(&self, commit: CommitId) -> Result<(), Error> {
        let path = self.path();
        let _list = self.mirror.lock().await?;
        remove_path(&path).await?;
        remove_path(&self.git_dir()).await?;
        let add = ["worktree", "add", "--quiet", "--force", "--force", "--detach", "--no-checkout"];
        let commit = commit.to_string();
        let target = [path.as_os_str(), commit.as_ref()];
        let git = self.mirror.git.in_dir(&self.mirror.path);
        git.run(add.into_iter().map(AsRef::as_ref).chain(target)).await?;
        Ok(())
    }

    /// Returns git's directory for this worktree in the mirror.
    fn git_dir(&self) -> PathBuf {
        self.mirror.path.join("worktrees").join(self.location.name())
    }
}

/// Removes the checkout of a task or project with everything in it. Returns `false` if it is in
/// use.
pub async fn remove_checkout(data: &Path, id: Uuid) -> Result<bool, Error> {
    let location = CheckoutLocation::new(data, id);
    if fs::symlink_metadata(&location.folder).await.is_err() {
        return Ok(true);
    }
    let Some(_lock) = FileLock::try_acquire(&location.lock())? else { return Ok(false) };
    for mirror in crate::workspaces::list_dirs(&data.join("mirrors")).await? {
        remove_path(&mirror.0.join("worktrees").join(location.name())).await?;
    }
    remove_path(&location.folder).await?;
    remove_path(&location.lock()).await?;
    Ok(true)
}

/// Removes a file or directory, if it exists.
pub(super) async fn remove_path(path: &Path) -> Result<(), Error> {
    crate::worktree::remove_path(path).await
}
