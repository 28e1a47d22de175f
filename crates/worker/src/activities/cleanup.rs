//! Cleanup after a task has ended: its worktree, its gate checkout, and its refs in the project's
//! repository except the branch.

use tamma_core::ids::{CommitId, ProjectId, TaskId};
use tamma_core::task_loop::{State, TaskLoop};
use tamma_engine::mirror::Mirror;
use tamma_engine::worktree::{self, Worktree};

use super::Activities;
use crate::error::Error;
use crate::project_context::ProjectContext;

impl Activities {
    /// Cleans up in the background. `tamma workspace reclaim`, or a full disk, removes the rest
    /// later.
    pub(super) fn start_cleanup(&self, project: ProjectId, ended: &TaskLoop) {
        // A task without runs may have a worktree from planning; then it has a base commit.
        let Some(base) = ended.pin.map(|pin| pin.base) else { return };
        let delivered = (ended.state == State::Completed).then_some(ended.commit).flatten();
        let (hands, task) = (self.clone(), ended.task);
        tokio::spawn(async move {
            if let Err(error) = hands.clean_up(project, task, base, delivered).await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(%task, error, "failed to clean up after task");
            }
        });
    }

    async fn clean_up(
        &self,
        project: ProjectId,
        task: TaskId,
        base: CommitId,
        delivered: Option<CommitId>,
    ) -> Result<(), Error> {
        if !Mirror::exists(&self.config.data_dir, project).await {
            // Another host did the work, and cleans up when it needs disk space.
            return Ok(());
        }
        let project = self.store.project(project).await?;
        let site = ProjectContext::load(project, &self.config.environment).await?;
        let mirror = self.mirror(&site).await?;
        if let Some(worktree) = Worktree::find(&mirror, task).await? {
            let saved = worktree.remove(delivered.is_none()).await?;
            if let Some(why) = saved.push_error {
                tracing::warn!(%task, why, "failed to push checkpoint; work is on this worker only");
            }
        }
        if !tamma_engine::gate::remove_checkout(&self.config.data_dir, task.0).await? {
            tracing::info!(%task, "gate checkout kept; gates are still running");
        }
        // The delivered branch contains everything. Otherwise the refs stay, for people.
        if let Some(commit) = delivered
            && commit != base
            && let Some(why) = worktree::remove_remote_refs(&mirror, task, commit).await?
        {
            tracing::info!(%task, why, "task refs kept in the project's repository");
        }
        Ok(())
    }
}
