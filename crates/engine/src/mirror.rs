//! Mirror: bare clone of a project's repository.
//!
//! Worktrees belong to the mirror, so agents never touch the user's own checkout. The project's
//! branches are stored as `refs/remotes/origin/*`, task branches as `refs/heads/tamma/*` and
//! checkpoints as `refs/tamma/checkpoints/*`. All operations are idempotent: a caller that was
//! interrupted can call again.

mod default_branch;
mod maintenance;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tamma_core::ids::{self, CommitId, ProjectId, TaskId};
use tamma_core::repository_address::{AddressError, RepositoryAddress};
use tokio::fs;

use crate::files::FileLock;
use crate::git::{self, Git, GitCommand, QUERY_LIMIT, TRANSFER_LIMIT, remote_arguments};
use crate::missing_content::MissingContent;
use crate::sparse::SparseFolders;

pub use maintenance::{MirrorMaintenance, maintain_mirrors};

/// Error of a mirror or worktree.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Git failed.
    #[error(transparent)]
    Git(#[from] git::Error),
    /// File system operation failed.
    #[error("cannot {what} `{}`", path.display())]
    Disk {
        /// Operation that failed.
        what: &'static str,
        /// Affected path.
        path: PathBuf,
        /// Underlying error.
        source: io::Error,
    },
    /// Git returned an invalid commit ID.
    #[error("git returned an invalid commit ID")]
    NotACommit(#[from] ids::Error),
    /// Stored address of the project's repository is not allowed.
    #[error(
        "the repository's address is not allowed: {0}; register the project again with another address"
    )]
    Address(#[from] AddressError),
    /// Revision does not exist in the project's repository.
    #[error("`{repository}` has no commit `{revision}`; commit or push it, or use another")]
    Unknown {
        /// Requested revision.
        revision: String,
        /// Searched repository.
        repository: String,
    },
    /// File of a change is too large.
    #[error(
        "`{path}` has {bytes} bytes; a file of a change can have {limit}. Remove it, or add it to \
         `.gitignore`"
    )]
    FileTooLarge {
        /// Path from the root.
        path: String,
        /// Size in bytes.
        bytes: u64,
        /// Maximum size in bytes.
        limit: u64,
    },
    /// Files of a change are too large together.
    #[error("the change has {bytes} bytes of new content; at most {limit} are allowed")]
    ChangeTooLarge {
        /// Size in bytes.
        bytes: u64,
        /// Maximum size in bytes.
        limit: u64,
    },
    /// Change has too many files.
    #[error(
        "the change has {files} files; at most {limit} are allowed. Remove generated files, or add \
         them to `.gitignore`"
    )]
    TooManyFiles {
        /// Number of files.
        files: usize,
        /// Maximum number.
        limit: usize,
    },
    /// File of a change cannot be read or converted.
    #[error("`{path}` cannot be committed: {reason}")]
    NotCommittable {
        /// Path from the root.
        path: String,
        /// Error output of git.
        reason: String,
    },
    /// Commit of a task exists only on another host, which could not push it.
    #[error("commit {commit} of task {task} is neither here nor in the project's repository")]
    Elsewhere {
        /// Task of the commit.
        task: TaskId,
        /// Missing commit.
        commit: CommitId,
    },
}

impl Error {
    /// Returns `true` if the files of the change are the reason. A retry cannot help.
    pub fn is_caused_by_change(&self) -> bool {
        matches!(
            self,
            Self::FileTooLarge { .. }
                | Self::ChangeTooLarge { .. }
                | Self::TooManyFiles { .. }
                | Self::NotCommittable { .. }
                | Self::Git(git::Error::TooMuchOutput { .. })
        )
    }

    /// Returns `true` if the disk is full.
    pub fn is_disk_full(&self) -> bool {
        let is_full =
            |kind| matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        matches!(self, Self::Disk { source, .. } if is_full(source.kind()))
    }
}

/// Wraps an I/O error with the operation and its path.
pub(crate) fn disk_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Disk { what, path, source }
}

/// Bare clone of a project's repository.
#[derive(Debug, Clone)]
pub struct Mirror {
    pub(crate) git: Git,
    pub(crate) data: PathBuf,
    pub(crate) path: PathBuf,
    pub(crate) source: RepositoryAddress,
    /// Folders that new checkouts contain.
    pub(crate) sparse: SparseFolders,
    pub(crate) known_commits: KnownCommits,
}

/// Cache of commits that mirrors are known to contain, and of content that they lack. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct KnownCommits {
    commits: Arc<Mutex<BTreeSet<(PathBuf, CommitId)>>>,
    missing_content: Arc<Mutex<BTreeMap<(PathBuf, CommitId), KnownMissingContent>>>,
}

/// Content that a commit lacks, in a checkout of these folders.
type KnownMissingContent = (SparseFolders, MissingContent);

/// Maximum number of commits whose missing content is cached. They are base commits, which tasks share.
const MAX_KNOWN_CONTENT: usize = 100;

impl Mirror {
    /// Opens the mirror of a project, and creates it if needed.
    ///
    /// `source` is the project's repository.
    pub async fn open(
        git: Git,
        data: &Path,
        project: ProjectId,
        source: &RepositoryAddress,
    ) -> Result<Self, Error> {
        Self::open_with_cache(git, data, project, source, &KnownCommits::default()).await
    }

    /// Opens the mirror with a shared cache, for processes that open it often.
    pub async fn open_with_cache(
        git: Git,
        data: &Path,
        project: ProjectId,
        source: &RepositoryAddress,
        known_commits: &KnownCommits,
    ) -> Result<Self, Error> {
        let mirrors = data.join("mirrors");
        // Other users of this machine may not read code.
        let mut builder = fs::DirBuilder::new();
        let created = builder.recursive(true).mode(0o700).create(&mirrors).await;
        created.map_err(disk_error("create", &mirrors))?;
        let data = fs::canonicalize(data).await.map_err(disk_error("resolve", data))?;
        let path = data.join("mirrors").join(format!("{project}.git"));
        let mirror = Self {
            git,
            data,
            path,
            source: source.clone(),
            sparse: SparseFolders::default(),
            known_commits: known_commits.clone(),
        };
        // Marker of a complete mirror, containing its source.
        let complete = mirror.path.join("tamma-complete");
        let source = source.as_git_source();
        let same_source = |text: std::io::Result<String>| text.ok().filter(|text| text == source);
        if same_source(fs::read_to_string(&complete).await).is_some() {
            return Ok(mirror);
        }
        let _lock = mirror.lock().await?;
        if fs::try_exists(&complete).await.is_ok_and(|exists| exists) {
            fs::write(&complete, source).await.map_err(disk_error("write", &complete))?;
            return Ok(mirror);
        }
        mirror.known_commits.remove_mirror(&mirror.path);
        // An interrupted call may already have done any of these steps.
        let folder = mirror.path.as_os_str();
        mirror
            .git
            .outside(&mirror.data)
            .run(["init".as_ref(), "--quiet".as_ref(), "--bare".as_ref(), folder])
            .await?;
        // Bare repositories have no reflog by default; it helps to find lost commits.
        mirror.git.bare(&mirror.path).run(["config", "core.logAllRefUpdates", "always"]).await?;
        mirror.fetch_branches().await?;
        fs::write(&complete, source).await.map_err(disk_error("write", &complete))?;
        Ok(mirror)
    }

    /// Limits new checkouts to some folders.
    #[must_use]
    pub fn with_sparse(self, sparse: SparseFolders) -> Self {
        Self { sparse, ..self }
    }

    /// Returns `true` if a data directory has the mirror of a project.
    pub async fn exists(data: &Path, project: ProjectId) -> bool {
        let complete = data.join("mirrors").join(format!("{project}.git/tamma-complete"));
        fs::try_exists(complete).await.is_ok_and(|exists| exists)
    }

    /// Fetches new commits of the project's repository.
    pub async fn fetch(&self) -> Result<(), Error> {
        // Concurrent fetches would conflict on refs.
        let _lock = self.lock().await?;
        self.fetch_branches().await
    }

    async fn fetch_branches(&self) -> Result<(), Error> {
        let call = ["fetch", "--quiet", "--prune", "--no-write-fetch-head"].into_iter();
        let branches = ["+refs/heads/*:refs/remotes/origin/*"];
        let call = call.chain(remote_arguments(&self.source, branches));
        self.remote(TRANSFER_LIMIT).run(call).await?;
        Ok(())
    }

    /// Returns the commit of a project branch, or of any other revision.
    pub async fn resolve(&self, revision: &str) -> Result<CommitId, Error> {
        for name in [format!("refs/remotes/origin/{revision}"), revision.to_owned()] {
            if let Some(commit) = self.find_commit(&name).await? {
                return Ok(commit);
            }
        }
        Err(Error::Unknown { revision: revision.to_owned(), repository: self.source.to_string() })
    }

    /// Ensures that a commit is in the mirror, and fetches if needed.
    pub(crate) async fn ensure_commit(&self, commit: CommitId) -> Result<(), Error> {
        if self.known_commits.contains(&self.path, commit) {
            return Ok(());
        }
        let name = commit.to_string();
        if self.find_commit(&name).await?.is_none() {
            self.fetch().await?;
            if self.find_commit(&name).await?.is_none() {
                return Err(Error::Unknown { revision: name, repository: self.source.to_string() });
            }
        }
        self.known_commits.insert(&self.path, commit);
        Ok(())
    }

    /// Returns the text of a file at a commit, if it exists. Fetches the commit if needed.
    pub async fn file_text(&self, commit: CommitId, path: &str) -> Result<Option<String>, Error> {
        self.ensure_commit(commit).await?;
        let call = ["cat-file", "blob", &format!("{commit}:{path}")];
        Ok(self.git.bare(&self.path).run_if_successful(&call).await?)
    }

    /// Returns the content of a file at a commit, if the mirror has both and the file has at most
    /// `max_bytes`. Fetches nothing.
    pub async fn local_file(
        &self,
        commit: CommitId,
        path: &str,
        max_bytes: usize,
    ) -> Result<Option<Vec<u8>>, Error> {
        let call = ["cat-file", "blob", &format!("{commit}:{path}")];
        let git = self.git.bare(&self.path).max_output(max_bytes);
        let output = git.output(&call).await?;
        let is_whole = output.code == Some(0) && !output.is_truncated;
        Ok(is_whole.then_some(output.stdout))
    }

    /// Ensures that a commit of a task is in the mirror. Another host may have made it.
    pub(crate) async fn fetch_work(&self, task: TaskId, commit: CommitId) -> Result<(), Error> {
        let name = commit.to_string();
        if self.find_commit(&name).await?.is_some() {
            return Ok(());
        }
        // An outdated host may have been faster, so that the commit is beside the work.
        let places = [crate::worktree::work_ref(task), crate::worktree::aside_ref(task, commit)];
        for place in &places {
            let call = ["fetch", "--quiet", "--no-write-fetch-head", "--no-tags"].into_iter();
            let call: Vec<_> =
                call.chain(remote_arguments(&self.source, [place.as_str()])).collect();
            let fetched = self.remote(TRANSFER_LIMIT).output(&call).await?;
            if fetched.code == Some(0) && self.find_commit(&name).await?.is_some() {
                return Ok(());
            }
        }
        Err(Error::Elsewhere { task, commit })
    }

    /// Returns the commit of a revision, if it exists.
    pub(crate) async fn find_commit(&self, name: &str) -> Result<Option<CommitId>, Error> {
        let name = format!("{name}^{{commit}}");
        let call = ["rev-parse", "--quiet", "--verify", "--end-of-options", &name];
        let found = self.git.bare(&self.path).run_if_successful(&call).await?;
        Ok(found.map(|commit| commit.parse()).transpose()?)
    }

    /// Starts building a command that reaches the project's repository.
    pub(crate) fn remote(&self, limit: Duration) -> GitCommand<'_> {
        self.git.bare(&self.path).remote(&self.source, limit)
    }

    /// Locks the list of worktrees, and waits if it is locked.
    pub(crate) async fn lock(&self) -> Result<FileLock, Error> {
        lock_file(self.path.with_extension("lock")).await
    }
}

impl KnownCommits {
    fn contains(&self, mirror: &Path, commit: CommitId) -> bool {
        self.commits.lock().is_ok_and(|commits| commits.contains(&(mirror.to_owned(), commit)))
    }

    /// Returns the content that a commit lacks in a checkout of these folders, if it is known.
    pub(crate) fn missing_content(
        &self,
        mirror: &Path,
        commit: CommitId,
        sparse: &SparseFolders,
    ) -> Option<MissingContent> {
        let known = self.missing_content.lock().ok()?;
        let (folders, missing) = known.get(&(mirror.to_owned(), commit))?;
        (folders == sparse).then(|| missing.clone())
    }

    /// Remembers the content that a commit lacks.
    pub(crate) fn insert_missing_content(
        &self,
        mirror: &Path,
        commit: CommitId,
        known: KnownMissingContent,
    ) {
        if let Ok(mut all) = self.missing_content.lock() {
            if all.len() >= MAX_KNOWN_CONTENT {
                all.clear();
            }
            all.insert((mirror.to_owned(), commit), known);
        }
    }

    fn insert(&self, mirror: &Path, commit: CommitId) {
        if let Ok(mut commits) = self.commits.lock() {
            commits.insert((mirror.to_owned(), commit));
        }
    }

    fn remove_mirror(&self, mirror: &Path) {
        if let Ok(mut commits) = self.commits.lock() {
            commits.retain(|(path, _)| path != mirror);
        }
        if let Ok(mut missing) = self.missing_content.lock() {
            missing.retain(|(path, _), _| path != mirror);
        }
    }
}

/// Waits for the lock on a mirror's worktree list, or on one worktree.
pub(crate) async fn lock_file(path: PathBuf) -> Result<FileLock, Error> {
    FileLock::acquire(path.clone()).await.map_err(disk_error("lock", &path))
}

/// Acquires such a lock if it is free.
pub(crate) fn try_lock_file(path: &Path) -> Result<Option<FileLock>, Error> {
    FileLock::try_acquire(path).map_err(disk_error("lock", path))
}

/// Returns the newest commit of a branch in a remote repository, or of its `HEAD`. Fetches nothing.
pub async fn newest_commit(
    git: &Git,
    source: &RepositoryAddress,
    branch: Option<&str>,
) -> Result<CommitId, Error> {
    let name = branch.map_or_else(|| "HEAD".to_owned(), |branch| format!("refs/heads/{branch}"));
    let call = ["ls-remote", "--quiet"].into_iter();
    let call = call.chain(remote_arguments(source, [name.as_str()]));
    let listed = git.outside(Path::new("/")).remote(source, QUERY_LIMIT).run(call).await?;
    let newest = listed.lines().find_map(|line| {
        let (commit, listed_name) = line.split_once('\t')?;
        (listed_name == name).then_some(commit)
    });
    let unknown = || Error::Unknown {
        revision: branch.unwrap_or("HEAD").to_owned(),
        repository: source.to_string(),
    };
    Ok(newest.ok_or_else(unknown)?.parse()?)
}

/// Returns the branch of a task in its mirror, which is also the one that a story is delivered on.
///
/// A task is delivered on the branch that is stored with it.
pub fn task_branch(task: TaskId) -> String {
    format!("tamma/{task}")
}
