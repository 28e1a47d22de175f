//! Refs of a task, in the mirror and in the project's repository.
//!
//! | mirror | project's repository | content |
//! | --- | --- | --- |
//! | `refs/heads/tamma/<task>` | `refs/tamma/work/<task>` | commits of runs |
//! | `refs/tamma/checkpoints/<task>` | the same | checkpoint, with earlier ones as ancestors |
//! | `refs/tamma/aside/<task>/<commit>` | the same | work that newer work replaced, or that an outdated host overtook |
//!
//! None of the remote refs is a branch, so they are hidden by default. A delivery adds a branch, whose
//! name the caller gives. The last known remote values are kept in a file of the mirror. They are the
//! lease for pushes, so an outdated host cannot overwrite newer work.

use std::path::PathBuf;

use tamma_core::ids::{CommitId, TaskId};
use tokio::fs;

use crate::git::{GitOutput, QUERY_LIMIT, TRANSFER_LIMIT, remote_arguments};
use crate::mirror::{Error, Mirror, disk_error, task_branch};

/// Trailer that names the run of a commit.
pub(crate) const RUN_TRAILER: &str = "Tamma-Run";

/// Trailer that names the branch's commit at the time of a checkpoint.
pub(crate) const BRANCH_TRAILER: &str = "Tamma-Branch";

/// Commit of a ref, with its metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RefTip {
    pub(crate) commit: CommitId,
    pub(crate) tree: String,
    pub(crate) parents: Vec<CommitId>,
    /// Run that made the commit.
    pub(crate) run: String,
    /// Commit of the branch when the checkpoint was saved.
    pub(crate) branch: Option<CommitId>,
}

/// Commits of a task in the project's repository.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RemoteWork {
    pub(crate) work: Option<CommitId>,
    pub(crate) checkpoint: Option<CommitId>,
}

/// Refs of a task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TaskRefs {
    pub(crate) branch: Option<RefTip>,
    pub(crate) checkpoint: Option<RefTip>,
    /// Last known values in the project's repository.
    pub(crate) remote: RemoteWork,
}

/// Returns the full ref name of a task's branch.
pub(crate) fn branch_ref(task: TaskId) -> String {
    format!("refs/heads/{}", task_branch(task))
}

/// Returns the ref of a task's commits in the project's repository.
pub(crate) fn work_ref(task: TaskId) -> String {
    format!("refs/tamma/work/{task}")
}

/// Returns the ref of a task's checkpoint, local and remote.
pub(crate) fn checkpoint_ref(task: TaskId) -> String {
    format!("refs/tamma/checkpoints/{task}")
}

/// Returns the ref for work that newer work replaced.
pub(crate) fn aside_ref(task: TaskId, commit: CommitId) -> String {
    let name: String = commit.to_string().chars().take(12).collect();
    format!("refs/tamma/aside/{task}/{name}")
}

impl TaskRefs {
    /// Reads the local refs with one git command.
    pub(crate) async fn read(mirror: &Mirror, task: TaskId) -> Result<Self, Error> {
        let format = format!(
            "--format=%(refname)%00%(objectname)%00%(tree)%00%(parent)%00\
             %(trailers:key={RUN_TRAILER},valueonly,separator=%2C)%00\
             %(trailers:key={BRANCH_TRAILER},valueonly,separator=%2C)"
        );
        let (branch, checkpoint) = (branch_ref(task), checkpoint_ref(task));
        let call = ["for-each-ref", &format, &branch, &checkpoint];
        let listed = mirror.git.bare(&mirror.path).run(call).await?;
        let mut refs = Self { remote: RemoteWork::load(mirror, task).await?, ..Self::default() };
        for line in listed.lines() {
            let mut parts = line.split('\0');
            let mut next = || parts.next().unwrap_or_default();
            let (name, commit, tree, parents, run, branch_commit) =
                (next(), next(), next(), next(), next(), next());
            let parents = parents.split(' ').filter(|parent| !parent.is_empty());
            let tip = RefTip {
                commit: commit.parse()?,
                tree: tree.to_owned(),
                parents: parents.map(str::parse).collect::<Result<_, _>>()?,
                run: run.trim().to_owned(),
                branch: branch_commit.trim().parse().ok(),
            };
            if name == branch {
                refs.branch = Some(tip);
            } else if name == checkpoint {
                refs.checkpoint = Some(tip);
            }
        }
        Ok(refs)
    }

    /// Returns the commit of the branch.
    pub(crate) fn head(&self) -> Option<CommitId> {
        self.branch.as_ref().map(|tip| tip.commit)
    }

    /// Returns the tree of uncommitted files, if the checkpoint belongs to the branch's commit.
    pub(crate) fn uncommitted(&self) -> Option<&str> {
        let saved = self.checkpoint.as_ref()?;
        (saved.branch.is_some() && saved.branch == self.head()).then_some(saved.tree.as_str())
    }

    /// Returns the values that the project's repository should have.
    pub(crate) fn expected_remote(&self, task: TaskId) -> RemoteWork {
        let prefix = format!("{task}/");
        // Without a commit of a run, the branch is at the base, which already exists there.
        let ours = self.branch.as_ref().filter(|tip| tip.run.starts_with(&prefix));
        RemoteWork {
            work: ours.map(|tip| tip.commit).or(self.remote.work),
            checkpoint: self.checkpoint.as_ref().map(|tip| tip.commit).or(self.remote.checkpoint),
        }
    }
}

impl RemoteWork {
    /// Queries the project's repository with one command.
    pub(crate) async fn query(mirror: &Mirror, task: TaskId) -> Result<Self, Error> {
        let (work, checkpoint) = (work_ref(task), checkpoint_ref(task));
        let refs = [work.as_str(), &checkpoint];
        let call = ["ls-remote", "--quiet"].into_iter();
        let call = call.chain(remote_arguments(&mirror.source, refs));
        let listed = mirror.remote(QUERY_LIMIT).run(call).await?;
        let mut remote = Self::default();
        for line in listed.lines() {
            match line.split_once('\t') {
                Some((commit, name)) if name == work => remote.work = Some(commit.parse()?),
                Some((commit, name)) if name == checkpoint => {
                    remote.checkpoint = Some(commit.parse()?);
                }
                _ => {}
            }
        }
        Ok(remote)
    }

    /// Loads the last known values.
    pub(crate) async fn load(mirror: &Mirror, task: TaskId) -> Result<Self, Error> {
        let path = Self::file(mirror, task);
        let text = match fs::read_to_string(&path).await {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            read => read.map_err(disk_error("read", &path))?,
        };
        let commit =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.parse().ok());
        Ok(Self { work: commit("work "), checkpoint: commit("checkpoint ") })
    }

    /// Saves the values as the last known ones.
    pub(crate) async fn save(self, mirror: &Mirror, task: TaskId) -> Result<(), Error> {
        let path = Self::file(mirror, task);
        let folder = mirror.path.join("tamma-seen");
        fs::create_dir_all(&folder).await.map_err(disk_error("create", &folder))?;
        let line = |name: &str, commit: Option<CommitId>| {
            commit.map(|commit| format!("{name} {commit}\n")).unwrap_or_default()
        };
        let text = line("work", self.work) + &line("checkpoint", self.checkpoint);
        let unfinished = path.with_extension("new");
        fs::write(&unfinished, text).await.map_err(disk_error("write", &unfinished))?;
        fs::rename(&unfinished, &path).await.map_err(disk_error("rename", &path))
    }

    fn file(mirror: &Mirror, task: TaskId) -> PathBuf {
        mirror.path.join("tamma-seen").join(task.to_string())
    }
}

/// Pushes refs atomically, each only if it has the expected remote value. A new value of `None`
/// deletes the ref.
pub(crate) async fn push(
    mirror: &Mirror,
    changes: &[(String, Option<CommitId>, Option<CommitId>)],
) -> Result<GitOutput, Error> {
    let text = |commit: &Option<CommitId>| commit.map(|it| it.to_string()).unwrap_or_default();
    let mut call = ["push", "--quiet", "--atomic", "--no-verify"].map(str::to_owned).to_vec();
    for (name, from, _) in changes {
        call.push(format!("--force-with-lease={name}:{}", text(from)));
    }
    let refs: Vec<_> = changes.iter().map(|(name, _, to)| format!("{}:{name}", text(to))).collect();
    let refs = refs.iter().map(String::as_str);
    call.extend(remote_arguments(&mirror.source, refs).map(str::to_owned));
    Ok(mirror.remote(TRANSFER_LIMIT).output(&call).await?)
}
