//! A mirror: our own bare copy of a project's repository.
//!
//! Worktrees hang on the mirror, so an agent never has the user's own checkout under its hands.
//! The project's branches are kept as `refs/remotes/origin/*`; ours are `refs/heads/tamma/*`, and
//! saved work is `refs/tamma/salvage/*`. Whatever is done here can be done again: a caller that was
//! interrupted simply calls once more.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tamma_core::ids::{self, CommitId, ProjectId, TaskId};
use tokio::fs;

use crate::git::{self, Git};

/// What can go wrong with a mirror or a worktree.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Git failed.
    #[error(transparent)]
    Git(#[from] git::Error),
    /// The file system failed.
    #[error("cannot {what} `{}`", path.display())]
    Disk {
        /// What was to be done.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// Why it could not.
        source: io::Error,
    },
    /// Git named something that is no commit.
    #[error("git named a commit that cannot be read")]
    NotACommit(#[from] ids::Error),
    /// A commit or a name that the project's repository does not have.
    #[error("`{repository}` has no commit `{revision}`: commit or push it there, or name another")]
    Unknown {
        /// What was looked for.
        revision: String,
        /// Where.
        repository: String,
    },
    /// A commit of a task that is on another host only, which could not push it.
    #[error("{commit} of task {task} is neither here nor in the project's repository yet")]
    Elsewhere {
        /// The task.
        task: TaskId,
        /// The commit.
        commit: CommitId,
    },
}

/// Gives a failure of the file system its place.
pub(crate) fn disk(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Disk { what, path, source }
}

/// Our own bare copy of a project's repository.
#[derive(Debug, Clone)]
pub struct Mirror {
    pub(crate) git: Git,
    pub(crate) data: PathBuf,
    pub(crate) path: PathBuf,
    pub(crate) source: String,
    known: Known,
}

/// The commits that a process knows its mirrors to have, so that it does not ask again. Cheap to
/// clone.
#[derive(Debug, Clone, Default)]
pub struct Known(Arc<Mutex<BTreeSet<(PathBuf, CommitId)>>>);

/// The right to change a mirror's list of worktrees, or one of them. The system takes it back if we die.
pub(crate) struct Lock(#[expect(dead_code, reason = "held for as long as it lives")] File);

impl Mirror {
    /// Opens the mirror of a project, and makes it first where there is none.
    ///
    /// `source` is the project's repository: a path, or an address that git understands.
    pub async fn open(
        git: Git,
        data: &Path,
        project: ProjectId,
        source: &str,
    ) -> Result<Self, Error> {
        Self::open_knowing(git, data, project, source, &Known::default()).await
    }

    /// The same, for a process that opens it often.
    pub async fn open_knowing(
        git: Git,
        data: &Path,
        project: ProjectId,
        source: &str,
        known: &Known,
    ) -> Result<Self, Error> {
        let mirrors = data.join("mirrors");
        fs::create_dir_all(&mirrors).await.map_err(disk("make", &mirrors))?;
        let data = fs::canonicalize(data).await.map_err(disk("find", data))?;
        let path = data.join("mirrors").join(format!("{project}.git"));
        let mirror = Self { git, data, path, source: source.to_owned(), known: known.clone() };
        // It gets this file, which says what it is of, when it is complete.
        let complete = mirror.path.join("tamma-complete");
        let of = |text: std::io::Result<String>| text.ok().filter(|text| text == source);
        if of(fs::read_to_string(&complete).await).is_some() {
            return Ok(mirror);
        }
        let _lock = mirror.lock().await?;
        if fs::try_exists(&complete).await.is_ok_and(|there| there) {
            fs::write(&complete, source).await.map_err(disk("write", &complete))?;
            return Ok(mirror);
        }
        mirror.known.forget(&mirror.path);
        // Each of these may have been done before by somebody who was interrupted.
        let folder = mirror.path.as_os_str();
        mirror
            .git
            .at(&mirror.data)
            .run(["init".as_ref(), "--quiet".as_ref(), "--bare".as_ref(), folder])
            .await?;
        // A bare repository keeps no log of its refs unless told to; it is how a lost commit is found.
        mirror.git.at(&mirror.path).run(["config", "core.logAllRefUpdates", "always"]).await?;
        mirror.bring_in().await?;
        fs::write(&complete, source).await.map_err(disk("write", &complete))?;
        Ok(mirror)
    }

    /// Whether a data folder has the mirror of a project.
    pub async fn is_here(data: &Path, project: ProjectId) -> bool {
        let complete = data.join("mirrors").join(format!("{project}.git/tamma-complete"));
        fs::try_exists(complete).await.is_ok_and(|there| there)
    }

    /// Brings in what is new in the project's repository.
    pub async fn fetch(&self) -> Result<(), Error> {
        // Two at once would stumble over each other's refs.
        let _lock = self.lock().await?;
        self.bring_in().await
    }

    async fn bring_in(&self) -> Result<(), Error> {
        self.git
            .at(&self.path)
            .run([
                "fetch",
                "--quiet",
                "--prune",
                "--no-write-fetch-head",
                &self.source,
                "+refs/heads/*:refs/remotes/origin/*",
            ])
            .await?;
        Ok(())
    }

    /// The commit that a branch of the project, or any other revision, stands for.
    pub async fn resolve(&self, revision: &str) -> Result<CommitId, Error> {
        for name in [format!("refs/remotes/origin/{revision}"), revision.to_owned()] {
            if let Some(commit) = self.commit(&name).await? {
                return Ok(commit);
            }
        }
        Err(Error::Unknown { revision: revision.to_owned(), repository: self.source.clone() })
    }

    /// Makes sure that a commit is here, and fetches where it is not.
    pub(crate) async fn require(&self, commit: CommitId) -> Result<(), Error> {
        if self.known.has(&self.path, commit) {
            return Ok(());
        }
        let name = commit.to_string();
        if self.commit(&name).await?.is_none() {
            self.fetch().await?;
            if self.commit(&name).await?.is_none() {
                return Err(Error::Unknown { revision: name, repository: self.source.clone() });
            }
        }
        self.known.add(&self.path, commit);
        Ok(())
    }

    /// Makes sure that a commit of a task is here, which another host may have made.
    pub(crate) async fn bring_work(&self, task: TaskId, commit: CommitId) -> Result<(), Error> {
        let name = commit.to_string();
        if self.commit(&name).await?.is_some() {
            return Ok(());
        }
        let work = crate::worktree::work_ref(task);
        let call = ["fetch", "--quiet", "--no-write-fetch-head", "--no-tags", &self.source, &work];
        let fetched = self.git.at(&self.path).ask(&call).await?;
        if fetched.code == Some(0) && self.commit(&name).await?.is_some() {
            return Ok(());
        }
        Err(Error::Elsewhere { task, commit })
    }

    /// The project's repository.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The commit that a name stands for, if it stands for one.
    pub(crate) async fn commit(&self, name: &str) -> Result<Option<CommitId>, Error> {
        let name = format!("{name}^{{commit}}");
        let call = ["rev-parse", "--quiet", "--verify", "--end-of-options", &name];
        let answer = self.git.at(&self.path).ask(&call).await?;
        if answer.code == Some(0) { Ok(Some(answer.stdout.parse()?)) } else { Ok(None) }
    }

    /// Waits until nobody else changes the list of worktrees.
    pub(crate) async fn lock(&self) -> Result<Lock, Error> {
        Lock::hold(self.path.with_extension("lock")).await
    }
}

impl Known {
    fn has(&self, mirror: &Path, commit: CommitId) -> bool {
        self.0.lock().is_ok_and(|known| known.contains(&(mirror.to_owned(), commit)))
    }

    fn add(&self, mirror: &Path, commit: CommitId) {
        if let Ok(mut known) = self.0.lock() {
            known.insert((mirror.to_owned(), commit));
        }
    }

    fn forget(&self, mirror: &Path) {
        if let Ok(mut known) = self.0.lock() {
            known.retain(|(path, _)| path != mirror);
        }
    }
}

impl Lock {
    /// Takes it if nobody else holds it.
    pub(crate) fn try_hold(path: &Path) -> Result<Option<Self>, Error> {
        let failed = |source| disk("lock", path)(source);
        let file = File::options().create(true).append(true).open(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(std::fs::TryLockError::WouldBlock) => Ok(None),
            Err(std::fs::TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    /// Waits until nobody else holds it.
    pub(crate) async fn hold(path: PathBuf) -> Result<Self, Error> {
        let held = path.clone();
        // The only call of this crate that blocks for longer than a disk does.
        let locked = tokio::task::spawn_blocking(move || {
            let file = File::options().create(true).append(true).open(&held)?;
            file.lock()?;
            Ok(file)
        })
        .await;
        match locked {
            Ok(file) => file.map(Self).map_err(disk("lock", &path)),
            Err(stopped) => Err(disk("lock", &path)(io::Error::other(stopped))),
        }
    }
}

/// The newest commit of a branch of a repository, or of the one that its `HEAD` is at. Nothing is
/// copied.
pub async fn newest(git: &Git, source: &str, branch: Option<&str>) -> Result<CommitId, Error> {
    let name = branch.map_or_else(|| "HEAD".to_owned(), |branch| format!("refs/heads/{branch}"));
    let listed = git.at(Path::new(".")).run(["ls-remote", "--quiet", "--", source, &name]).await?;
    let found = listed.lines().find_map(|line| {
        let (commit, found) = line.split_once('\t')?;
        (found == name).then_some(commit)
    });
    let unknown = || Error::Unknown {
        revision: branch.unwrap_or("HEAD").to_owned(),
        repository: source.to_owned(),
    };
    Ok(found.ok_or_else(unknown)?.parse()?)
}

/// The branch of a task.
pub fn branch(task: TaskId) -> String {
    format!("tamma/{task}")
}
