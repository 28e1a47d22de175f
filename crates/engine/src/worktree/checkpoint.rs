//! Checkpoints: saving a worktree's work to refs, and restoring it on any host.

use std::time::Duration;

use tamma_core::ids::{CommitId, TaskId};
use tokio::fs;

use super::refs::{self, BRANCH_TRAILER, RemoteWork, TaskRefs};
use super::snapshot::FileTimes;
use super::{Author, SnapshotMode, Worktree, exists, remove_path};
use crate::git::{self, TRANSFER_LIMIT, remote_arguments};
use crate::mirror::{Error, Mirror, disk_error};

/// Time limit for a push. The next checkpoint retries it.
const PUSH_TIMEOUT: Duration = Duration::from_secs(20);

/// Result of saving a worktree's work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Commit with the uncommitted work, new or from an earlier checkpoint; `None` if everything is
    /// committed.
    pub commit: Option<CommitId>,
    /// The project's repository has all commits and all uncommitted work.
    pub pushed: bool,
    /// Error output of git, if the push failed.
    pub push_error: Option<String>,
}

/// Checkpoints of a run so far.
#[derive(Debug, Default)]
pub struct CheckpointProgress {
    /// The last one was pushed.
    is_pushed: bool,
    /// Commit of the last one; `None` if everything was committed.
    commit: Option<CommitId>,
    /// Times of all files that the last one contains, if the one before it contained the same files.
    times: Option<FileTimes>,
}

/// Location of a task's latest work, as known to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LatestWork {
    /// Nobody has worked on the task yet.
    NoWork,
    /// A run ended with this commit, and nobody has worked on the task since.
    Commit(CommitId),
    /// Unknown, so the project's repository is queried.
    Unknown,
}

/// Work in a worktree.
pub(crate) struct WorktreeContents {
    /// Latest commit of a run, if any.
    pub(crate) committed: Option<CommitId>,
    /// State of uncommitted work.
    pub(crate) uncommitted: UncommittedWork,
}

/// State of a worktree's uncommitted work.
pub(crate) enum UncommittedWork {
    Clean,
    /// Saved in this checkpoint, at least locally.
    Checkpointed(CommitId),
    Unsaved,
}

impl Worktree {
    /// Inspects the work in the worktree without changing it.
    pub(crate) async fn contents(&self) -> Result<WorktreeContents, Error> {
        let _lock = self.lock().await?;
        self.relink().await?;
        let refs = self.refs().await?;
        let branch = refs.branch.clone().ok_or_else(|| self.missing_branch_error())?;
        let head = self.detached_head().await?;
        let tree = self.snapshot(head.unwrap_or(branch.commit), SnapshotMode::BestEffort).await?;
        let saved = refs.checkpoint.as_ref().filter(|_| refs.uncommitted() == Some(&tree));
        let is_clean = head.is_none() && tree == branch.tree;
        Ok(WorktreeContents {
            committed: refs.expected_remote(self.task).work,
            uncommitted: match saved {
                _ if is_clean => UncommittedWork::Clean,
                Some(tip) => UncommittedWork::Checkpointed(tip.commit),
                None => UncommittedWork::Unsaved,
            },
        })
    }

    /// Saves uncommitted work under `refs/tamma/checkpoints/<task>`, and pushes it with the branch.
    ///
    /// Earlier checkpoints stay reachable from the new one. A failed push is reported, but not an
    /// error; the next checkpoint retries it.
    pub async fn checkpoint(&self) -> Result<Checkpoint, Error> {
        match self.try_checkpoint().await {
            Err(Error::Git(git::Error::Failed { .. })) => {
                self.check_disk(0).await?;
                self.try_checkpoint().await
            }
            saved => saved,
        }
    }

    async fn try_checkpoint(&self) -> Result<Checkpoint, Error> {
        let _lock = self.lock().await?;
        let (commit, mut refs) = self.save_uncommitted().await?;
        let push_error = push_refs(&self.mirror, self.task, &mut refs).await?;
        Ok(Checkpoint { commit, pushed: push_error.is_none(), push_error })
    }

    /// Saves uncommitted work like [`Worktree::checkpoint`]. Returns `None` if no file has changed since
    /// the last checkpoint, which is cheap to find out once an agent only waits.
    pub async fn next_checkpoint(
        &self,
        progress: &mut CheckpointProgress,
    ) -> Result<Option<Checkpoint>, Error> {
        let _lock = self.lock().await?;
        if progress.times.is_some() && progress.times == self.file_times(None).await? {
            return Ok(None);
        }
        progress.times = None;
        let started = self.file_clock().await?;
        let (commit, mut refs) = self.save_uncommitted().await?;
        let push_error = push_refs(&self.mirror, self.task, &mut refs).await?;
        let is_same = progress.is_pushed && progress.commit == commit;
        (progress.is_pushed, progress.commit) = (push_error.is_none(), commit);
        // While files change, their times would be of no use.
        if is_same && progress.is_pushed {
            progress.times = self.file_times(Some(started)).await?;
        }
        Ok(Some(Checkpoint { commit, pushed: push_error.is_none(), push_error }))
    }

    /// Saves uncommitted work locally. Returns its commit and the updated refs.
    pub(super) async fn save_uncommitted(&self) -> Result<(Option<CommitId>, TaskRefs), Error> {
        let mut refs = self.refs().await?;
        let branch = refs.branch.clone().ok_or_else(|| self.missing_branch_error())?;
        let (head, head_tree) = match self.detached_head().await? {
            None => (branch.commit, branch.tree.clone()),
            Some(head) => (head, self.tree_of(head).await?),
        };
        let tree = self.snapshot(head, SnapshotMode::BestEffort).await?;
        let is_clean = head == branch.commit && tree == head_tree;
        let same = refs.uncommitted() == Some(&tree);
        if let Some(before) = refs.checkpoint.as_ref().filter(|_| same) {
            if is_clean {
                return Ok((None, refs));
            }
            if before.parents.first() == Some(&head) {
                return Ok((Some(before.commit), refs));
            }
        }
        // Record a clean state too, so that deleted files do not reappear on another host.
        if is_clean && refs.uncommitted().is_none() {
            return Ok((None, refs));
        }
        let before = refs.checkpoint.as_ref().map(|tip| tip.commit);
        let parents: Vec<_> = [head].into_iter().chain(before).collect();
        let message =
            format!("Uncommitted work of {}\n\n{BRANCH_TRAILER}: {}\n", self.task, branch.commit);
        let tamma = Author { name: "Tamma".to_owned(), email: "tamma@localhost".to_owned() };
        let commit = self.create_commit(&tree, &parents, &message, &tamma).await?;
        self.move_ref(&refs::checkpoint_ref(self.task), commit, before).await?;
        let (run, branch) = (String::new(), Some(branch.commit));
        refs.checkpoint = Some(refs::RefTip { commit, tree, parents, run, branch });
        Ok(((!is_clean).then_some(commit), refs))
    }

    /// Updates the local refs from the project's repository, and sets aside local work that newer
    /// work replaced.
    pub(super) async fn catch_up(&self, refs: TaskRefs, base: CommitId) -> Result<TaskRefs, Error> {
        let remote = RemoteWork::query(&self.mirror, self.task).await?;
        if remote == refs.remote {
            return Ok(refs);
        }
        let fetched: Vec<_> = [
            (refs::work_ref(self.task), remote.work),
            (refs::checkpoint_ref(self.task), remote.checkpoint),
        ]
        .into_iter()
        .filter(|(_, commit)| commit.is_some())
        .map(|(name, _)| name)
        .collect();
        if !fetched.is_empty() {
            // Fetch the objects only. Refs move after local work is safe.
            let call = ["fetch", "--quiet", "--no-write-fetch-head", "--no-tags"].into_iter();
            let refs = fetched.iter().map(String::as_str);
            let call = call.chain(remote_arguments(&self.mirror.source, refs));
            let git = self.mirror.remote(TRANSFER_LIMIT);
            git.run(call).await?;
        }
        let checkpoint = refs.checkpoint.as_ref().map(|tip| tip.commit);
        let is_ours = self.is_ancestor(remote.work, refs.head()).await?
            && self.is_ancestor(remote.checkpoint, checkpoint).await?;
        if is_ours {
            // We pushed this ourselves, but died before recording it.
            remote.save(&self.mirror, self.task).await?;
            return Ok(TaskRefs { remote, ..refs });
        }
        let _lock = self.lock().await?;
        self.set_aside(&remote).await?;
        let (branch, checkpoint_ref) =
            (refs::branch_ref(self.task), refs::checkpoint_ref(self.task));
        let to = remote.work.unwrap_or(base);
        let mut moves = format!("update {branch} {to}\n");
        if let Some(checkpoint) = remote.checkpoint {
            moves = format!("{moves}update {checkpoint_ref} {checkpoint}\n");
        } else if refs.checkpoint.is_some() {
            moves = format!("{moves}delete {checkpoint_ref}\n");
        }
        let call = ["update-ref", "--stdin"];
        self.mirror.git.bare(&self.mirror.path).input(moves).run(call).await?;
        remote.save(&self.mirror, self.task).await?;
        self.refs().await
    }

    /// Moves the branch to the commit of a job that its host could only push beside the task's work,
    /// because an outdated host was faster. The next push replaces `remote`, which the outdated host
    /// made.
    pub(super) async fn switch_to(
        &self,
        commit: CommitId,
        remote: RemoteWork,
    ) -> Result<TaskRefs, Error> {
        self.mirror.fetch_work(self.task, commit).await?;
        let _lock = self.lock().await?;
        self.set_aside(&RemoteWork { work: Some(commit), ..remote }).await?;
        let call = ["update-ref", &refs::branch_ref(self.task), &commit.to_string()];
        self.mirror.git.bare(&self.mirror.path).run(call).await?;
        self.refs().await
    }

    /// Saves local work under separate refs, pushes them, and removes the directory.
    async fn set_aside(&self, remote: &RemoteWork) -> Result<(), Error> {
        let mut refs = self.refs().await?;
        if exists(&self.path).await? {
            self.relink().await?;
            refs = self.save_uncommitted().await?.1;
        }
        let checkpoint = refs.checkpoint.as_ref().map(|tip| tip.commit);
        let mut set_aside = Vec::new();
        for (local, remote_commit) in [(refs.head(), remote.work), (checkpoint, remote.checkpoint)]
        {
            let Some(local) = local else { continue };
            let is_base =
                Some(local) == refs.head() && refs.expected_remote(self.task).work.is_none();
            if !is_base && !self.is_ancestor(Some(local), remote_commit).await? {
                let name = refs::aside_ref(self.task, local);
                self.mirror
                    .git
                    .bare(&self.mirror.path)
                    .run(["update-ref", &name, &local.to_string()])
                    .await?;
                set_aside.push((name, None, Some(local)));
            }
        }
        if !set_aside.is_empty() {
            let names: Vec<_> = set_aside.iter().map(|(name, ..)| name.as_str()).collect();
            tracing::warn!(task = %self.task, set_aside = names.join(" "), "local work set aside; another host has newer work");
            if let Some(reason) = try_push(&self.mirror, &set_aside).await? {
                tracing::warn!(task = %self.task, reason, "failed to push set-aside work; it is on this worker only");
            }
        }
        self.remove_folder().await
    }

    /// Removes the directory, which must be saved. It is renamed first.
    pub(super) async fn remove_folder(&self) -> Result<(), Error> {
        let old = self.mirror.data.join("worktrees").join("old");
        let removed = old.join(self.task.to_string());
        if exists(&self.path).await? {
            // Left over from an interrupted removal, so it was saved.
            remove_path(&removed).await?;
            fs::create_dir_all(&old).await.map_err(disk_error("create", &old))?;
            fs::rename(&self.path, &removed).await.map_err(disk_error("rename", &self.path))?;
        }
        remove_path(&removed).await?;
        remove_path(&self.git_dir()).await
    }

    /// Returns `true` if `older` is `newer`, an ancestor of it, or `None`.
    async fn is_ancestor(
        &self,
        older: Option<CommitId>,
        newer: Option<CommitId>,
    ) -> Result<bool, Error> {
        let (Some(older), Some(newer)) = (older, newer) else { return Ok(older.is_none()) };
        if older == newer {
            return Ok(true);
        }
        let call = ["merge-base", "--is-ancestor", &older.to_string(), &newer.to_string()];
        Ok(self.mirror.git.bare(&self.mirror.path).output(&call).await?.code == Some(0))
    }
}

/// Pushes missing commits to the project's repository. Returns the error if it failed.
pub(super) async fn push_refs(
    mirror: &Mirror,
    task: TaskId,
    refs: &mut TaskRefs,
) -> Result<Option<String>, Error> {
    let expected = refs.expected_remote(task);
    push_expected(mirror, task, refs, expected).await
}

/// Pushes a commit as the task's work, whoever made it. Returns the error if it failed.
pub(super) async fn push_work(
    mirror: &Mirror,
    task: TaskId,
    refs: &mut TaskRefs,
    commit: CommitId,
) -> Result<Option<String>, Error> {
    let expected = RemoteWork { work: Some(commit), ..refs.expected_remote(task) };
    push_expected(mirror, task, refs, expected).await
}

/// Pushes a commit beside the task's work, where [`Mirror::fetch_work`] finds it. Returns the error if it
/// failed.
pub(super) async fn push_aside(
    mirror: &Mirror,
    task: TaskId,
    commit: CommitId,
) -> Result<Option<String>, Error> {
    try_push(mirror, &[(refs::aside_ref(task, commit), None, Some(commit))]).await
}

async fn push_expected(
    mirror: &Mirror,
    task: TaskId,
    refs: &mut TaskRefs,
    expected: RemoteWork,
) -> Result<Option<String>, Error> {
    if expected == refs.remote {
        return Ok(None);
    }
    let changes: Vec<_> = [
        (refs::work_ref(task), refs.remote.work, expected.work),
        (refs::checkpoint_ref(task), refs.remote.checkpoint, expected.checkpoint),
    ]
    .into_iter()
    .filter(|(_, from, to)| from != to)
    .collect();
    let push_error = try_push(mirror, &changes).await?;
    if push_error.is_none() {
        expected.save(mirror, task).await?;
        refs.remote = expected;
    }
    Ok(push_error)
}

/// Pushes changes with a time limit. Returns the error if it failed.
async fn try_push(
    mirror: &Mirror,
    changes: &[(String, Option<CommitId>, Option<CommitId>)],
) -> Result<Option<String>, Error> {
    match tokio::time::timeout(PUSH_TIMEOUT, refs::push(mirror, changes)).await {
        Ok(Ok(output)) if output.code == Some(0) => Ok(None),
        Ok(Ok(output)) => Ok(Some(output.stderr)),
        Ok(Err(Error::Git(error @ git::Error::Start { .. }))) => Err(error.into()),
        Ok(Err(error)) => Ok(Some(error.to_string())),
        Err(_) => Ok(Some(format!("no response within {} s", PUSH_TIMEOUT.as_secs()))),
    }
}

/// Removes the hidden refs of a delivered task from the project's repository. The mirror keeps
/// them. Returns the reason if it failed.
pub async fn remove_remote_refs(
    mirror: &Mirror,
    task: TaskId,
    delivered: CommitId,
) -> Result<Option<String>, Error> {
    let mut remote = RemoteWork::load(mirror, task).await?;
    if remote.work != Some(delivered) {
        remote = RemoteWork::query(mirror, task).await?;
    }
    if remote.work.is_some_and(|work| work != delivered) {
        return Ok(Some(format!("the task's work is not at the delivered commit {delivered}")));
    }
    let changes: Vec<_> = [
        (refs::work_ref(task), remote.work, None),
        (refs::checkpoint_ref(task), remote.checkpoint, None),
    ]
    .into_iter()
    .filter(|(_, from, _)| from.is_some())
    .collect();
    if changes.is_empty() {
        return Ok(None);
    }
    let push_error = try_push(mirror, &changes).await?;
    if push_error.is_none() {
        RemoteWork::default().save(mirror, task).await?;
    }
    Ok(push_error)
}
