//! Clears up after a task that has ended: its worktree, its checkout for gates, and what the project's repository keeps of
//! it beside its branch.

use tamma_core::ids::{CommitId, ProjectId, TaskId};
use tamma_core::task_loop::{State, TaskLoop};
use tamma_engine::mirror::Mirror;
use tamma_engine::worktree::{self, Worktree};

use super::Activities;
use crate::error::Error;
use crate::site::Site;

impl Activities {
    /// Clears up in the background: nobody waits for it, and what is not done now is done by
    /// `tamma workspace reclaim`, or when the disk is full.
    pub(super) fn finish(&self, project: ProjectId, ended: &TaskLoop) {
        // A task that no engine has worked on may have a worktree from planning; it has a base.
        let Some(base) = ended.pin.map(|pin| pin.base) else { return };
        let delivered = (ended.state == State::Completed).then_some(ended.commit).flatten();
        let (hands, task) = (self.clone(), ended.task);
        tokio::spawn(async move {
            if let Err(error) = hands.clear_up(project, task, base, delivered).await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(%task, error, "what an ended task has left is not cleared up");
            }
        });
    }

    async fn clear_up(
        &self,
        project: ProjectId,
        task: TaskId,
        base: CommitId,
        delivered: Option<CommitId>,
    ) -> Result<(), Error> {
        if !Mirror::is_here(&self.config.data, project).await {
            // Another host has done the work, and clears up when it needs the room.
            return Ok(());
        }
        let project = self.store.project(project).await?;
        let site = Site::of(project, &self.config.environment).await?;
        let mirror = self.mirror(&site).await?;
        if let Some(worktree) = Worktree::find(&mirror, task).await? {
            let saved = worktree.remove(delivered.is_none()).await?;
            if let Some(why) = saved.why {
                tracing::warn!(%task, why, "what is left of a task is on this machine only");
            }
        }
        if !tamma_engine::gate::clear(&self.config.data, task.0).await? {
            tracing::info!(%task, "gates of an ended task still run; their checkout stays for now");
        }
        // Everything is in the branch that was delivered. In every other case it stays, for people.
        if let Some(commit) = delivered
            && commit != base
            && let Some(why) = worktree::forget(&mirror, task, commit).await?
        {
            tracing::info!(%task, why, "the project's repository keeps what it has of the task");
        }
        Ok(())
    }
}
