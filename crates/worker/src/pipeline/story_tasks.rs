//! Tasks of a story: load, merge and cancel.

use tamma_core::ids::{Reason, TaskId};
use tamma_core::pipeline::{StoryTask, TaskSplit};
use tamma_core::task_loop::Action;
use tamma_engine::worktree::MergeOutcome;
use tamma_flow::pipeline::{CancelTasksRequest, MergeRequest, MergedTask, StoryTasksRequest};
use tamma_flow::{ActionRequest, TaskWorkflow, workflow_id};
use temporalio_client::errors::WorkflowUpdateError;
use temporalio_client::{Client, WorkflowExecuteUpdateOptions};
use tokio_util::sync::CancellationToken;

use super::{PipelineActivities, publish};
use crate::clock::now;
use crate::error::Error;
use crate::repositories::author;

impl PipelineActivities {
    /// Loads tasks of a split.
    pub async fn story_tasks(&self, request: StoryTasksRequest) -> Result<Vec<StoryTask>, Error> {
        let text = self.services.store.text(&request.split).await?;
        let split: TaskSplit = serde_json::from_str(&text)
            .map_err(|error| Error::Internal(format!("cannot read the stored split: {error}")))?;
        let wanted = |task: &StoryTask| request.keys.contains(&task.key);
        Ok(split.tasks.into_iter().filter(wanted).collect())
    }

    /// Merges a completed task into its story's branch, and pushes the branch. Tasks that depend on
    /// it, and later phases, start from there.
    pub async fn merge_task(
        &self,
        request: MergeRequest,
        attempt: u32,
        stop: CancellationToken,
    ) -> Result<MergedTask, Error> {
        let MergeRequest { story, task } = request;
        let ctx = self.context(story, attempt, stop).await?;
        let stored = self.services.store.task(task).await?;
        let task_loop = stored.task_loop.map_err(tamma_store::Error::Corrupt)?;
        // A task without changes has nothing to merge.
        let Some(commit) = task_loop.commit else { return Ok(MergedTask::default()) };
        let worktree = self.worktree(&ctx).await?;
        // People may have added commits to the story's branch.
        worktree.adopt_delivered().await?;
        let message = format!("{}: {}", ctx.pipeline_request().story_id, stored.task.title);
        let merged = worktree.merge(commit, &message, &author()).await?;
        ctx.job.fault_point("committed")?;
        let refused = match merged {
            MergeOutcome::Merged(commit) => publish(&ctx, &worktree, commit).await?,
            MergeOutcome::Refused(reason) => Some(reason),
        };
        ctx.job.fault_point("handed over")?;
        let refused = refused.map(|reason| format!("not merged into the story's branch: {reason}"));
        Ok(MergedTask { refused })
    }

    /// Cancels the tasks of a story that are still open. Their histories name the person and the
    /// story.
    pub async fn cancel_tasks(
        &self,
        client: &Client,
        request: CancelTasksRequest,
        stop: CancellationToken,
    ) -> Result<(), Error> {
        let CancelTasksRequest { pipeline, story_id, tasks, by } = request;
        let reason = format!("the pipeline of {story_id} was cancelled");
        let reason: Reason =
            reason.parse().map_err(|_| Error::Internal("invalid reason".to_owned()))?;
        for task in tasks {
            let action = Action::Cancel { reason: reason.clone() };
            let request = ActionRequest { at: now(), by: by.clone(), auth: None, action };
            let id = format!("cancel-{pipeline}");
            let options = WorkflowExecuteUpdateOptions::builder().update_id(id).build();
            let handle = client.get_workflow_handle::<TaskWorkflow>(workflow_id(task));
            let update = handle.execute_update(TaskWorkflow::ask, request, options);
            let updated = tokio::select! {
                updated = update => updated,
                () = stop.cancelled() => return Err(Error::Stopped),
            };
            match updated {
                // A task that refuses it is closed.
                Ok(_) | Err(WorkflowUpdateError::Failed(_)) => {}
                Err(WorkflowUpdateError::NotFound(_)) if self.is_closed(task).await? => {}
                // Also if its workflow has not started yet.
                Err(error) => return Err(Error::Temporal(error.to_string())),
            }
        }
        Ok(())
    }

    async fn is_closed(&self, task: TaskId) -> Result<bool, Error> {
        match self.services.store.task(task).await {
            Ok(stored) => Ok(stored.task_loop.is_ok_and(|it| it.state.is_terminal())),
            Err(tamma_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
