//! Checkouts for gates: one for each task, and one for each project's base commits.
//!
//! Gates do not run where an agent works, because what an agent leaves there that git does not see
//! could make them pass. Ignored files in a checkout for gates come from gates, and stay there, so
//! that what was installed or built once is there for the next commit.

use std::path::{Path, PathBuf};

use tamma_core::ids::{CommitId, ProjectId, TaskId};
use tokio::fs;
use uuid::Uuid;

use crate::mirror::{Error, Lock, Mirror, disk};

/// A checkout for gates, which nobody else uses as long as this lives.
pub struct Checkout {
    mirror: Mirror,
    place: Place,
    _lock: Lock,
}

/// Where a checkout is.
struct Place {
    id: Uuid,
    /// The folder of all of it.
    folder: PathBuf,
}

impl Place {
    fn new(data: &Path, id: Uuid) -> Self {
        Self { id, folder: data.join("gates").join(id.to_string()) }
    }

    /// Git names what it keeps of a checkout after the folder, so no other one may be called so.
    fn name(&self) -> String {
        format!("gates-{}", self.id)
    }

    fn tree(&self) -> PathBuf {
        self.folder.join(self.name())
    }

    fn home(&self) -> PathBuf {
        self.folder.join("home")
    }

    fn lock(&self) -> PathBuf {
        self.folder.with_extension("lock")
    }
}

impl Checkout {
    /// The one for a task's commits. Waits until nobody else uses it.
    pub async fn of_task(mirror: &Mirror, task: TaskId) -> Result<Self, Error> {
        Self::open(mirror, task.0).await
    }

    /// The one for a project's commits that work starts from. Waits until nobody else uses it.
    pub async fn of_project(mirror: &Mirror, project: ProjectId) -> Result<Self, Error> {
        Self::open(mirror, project.0).await
    }

    async fn open(mirror: &Mirror, id: Uuid) -> Result<Self, Error> {
        let place = Place::new(&mirror.data, id);
        let all = mirror.data.join("gates");
        fs::create_dir_all(&all).await.map_err(disk("make", &all))?;
        let lock = Lock::hold(place.lock()).await?;
        let home = place.home();
        fs::create_dir_all(&home).await.map_err(disk("make", &home))?;
        Ok(Self { mirror: mirror.clone(), place, _lock: lock })
    }

    /// Where the files are.
    pub fn path(&self) -> PathBuf {
        self.place.tree()
    }

    /// The home of the gates that run here.
    pub fn home(&self) -> PathBuf {
        self.place.home()
    }

    /// The repository that it hangs on.
    pub fn repository(&self) -> &Path {
        &self.mirror.path
    }

    /// Makes it exactly a commit, which the mirror must have. What is ignored stays.
    pub async fn put(&self, commit: CommitId) -> Result<(), Error> {
        if self.is_whole().await && self.reset(commit).await.is_ok() {
            return Ok(());
        }
        // Something killed a git, or a gate without a cage has been at it. It can all be made again.
        self.make(commit).await?;
        self.reset(commit).await
    }

    /// Lays files of another commit over those that are here.
    pub async fn overlay(&self, commit: CommitId, files: &[String]) -> Result<(), Error> {
        let names = files.join("\0");
        let commit = commit.to_string();
        let call =
            ["checkout", "--quiet", &commit, "--pathspec-from-file=-", "--pathspec-file-nul"];
        let git = self.mirror.git.at(&self.path()).env("GIT_LITERAL_PATHSPECS", "1");
        git.input(names).run(call).await?;
        Ok(())
    }

    async fn reset(&self, commit: CommitId) -> Result<(), Error> {
        let path = self.path();
        let git = || self.mirror.git.at(&path);
        git().run(["checkout", "--quiet", "--force", "--detach", &commit.to_string()]).await?;
        git().run(["clean", "--quiet", "-ffd"]).await?;
        Ok(())
    }

    /// Whether git finds its way from the folder to what it keeps of it, as we have made it.
    async fn is_whole(&self) -> bool {
        let kept = self.kept();
        let link = fs::read_to_string(self.path().join(".git")).await;
        let is_linked = link.is_ok_and(|link| link == format!("gitdir: {}\n", kept.display()));
        for lock in ["index.lock", "HEAD.lock"] {
            if clear_path(&kept.join(lock)).await.is_err() {
                return false;
            }
        }
        is_linked && fs::try_exists(kept.join("HEAD")).await.is_ok_and(|there| there)
    }

    async fn make(&self, commit: CommitId) -> Result<(), Error> {
        let path = self.path();
        let _list = self.mirror.lock().await?;
        clear_path(&path).await?;
        clear_path(&self.kept()).await?;
        let add = ["worktree", "add", "--quiet", "--force", "--force", "--detach", "--no-checkout"];
        let commit = commit.to_string();
        let place = [path.as_os_str(), commit.as_ref()];
        let git = self.mirror.git.at(&self.mirror.path);
        git.run(add.into_iter().map(AsRef::as_ref).chain(place)).await?;
        Ok(())
    }

    /// What git keeps of it in the mirror.
    fn kept(&self) -> PathBuf {
        self.mirror.path.join("worktrees").join(self.place.name())
    }
}

/// Removes the checkout of a task or a project with all that gates have left there. Says whether it
/// could: somebody may use it.
pub async fn clear(data: &Path, id: Uuid) -> Result<bool, Error> {
    let place = Place::new(data, id);
    if fs::symlink_metadata(&place.folder).await.is_err() {
        return Ok(true);
    }
    let Some(_lock) = Lock::try_hold(&place.lock())? else { return Ok(false) };
    for mirror in crate::workspaces::folders(&data.join("mirrors")).await? {
        clear_path(&mirror.0.join("worktrees").join(place.name())).await?;
    }
    clear_path(&place.folder).await?;
    clear_path(&place.lock()).await?;
    Ok(true)
}

/// Removes a file or a folder with all that is in it, if it is there.
pub(super) async fn clear_path(path: &Path) -> Result<(), Error> {
    crate::worktree::clear(path).await
}
