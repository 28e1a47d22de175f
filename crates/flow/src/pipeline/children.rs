//! Tasks of a story as child workflows.
//!
//! A completed task is merged into the story's branch, one after the other, before its dependants
//! start. A child outlives the pipeline, so a run that is cancelled cancels its tasks first.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{FutureExt as _, LocalBoxFuture};
use tamma_core::actor::Actor;
use tamma_core::ids::{Name, TaskId};
use tamma_core::pipeline::{PIPELINE_METADATA_KEY, PipelineEvent, StoryTask};
use tamma_core::state::State;
use tamma_core::task::{MAX_LABEL_CHARS, Task};
use tamma_core::task_loop::{TaskReceived, begin};
use temporalio_common::search_attributes::SearchAttributes;
use temporalio_workflow::{
    ChildWorkflowOptions, LocalActivityOptions, ParentClosePolicy, WorkflowCancellationToken,
    WorkflowContext,
};

use super::activities::{
    CancelTasksActivity, CancelTasksRequest, MergeRequest, MergeTaskActivity, StoryTasksActivity,
    StoryTasksRequest,
};
use super::{PipelineWorkflow, activity_options, now};
use crate::activities::root_message;
use crate::search_attributes;
use crate::task::{TaskWorkflow, WorkflowInput, WorkflowOrigin};
use crate::{TASK_QUEUE, workflow_id};

/// Workflow task timeout of a task's workflow.
const TASK_TIMEOUT: Duration = Duration::from_secs(5);

/// Ended task of a phase: whether it was completed.
type EndedTask = (u8, TaskId, bool);

/// Tasks of the run that have not ended.
#[derive(Default)]
pub(super) struct TaskChildren {
    /// Workflows, in the order of their start.
    running: Vec<LocalBoxFuture<'static, EndedTask>>,
    /// Completed tasks that wait for their merge, with their phase.
    unmerged: VecDeque<(u8, TaskId)>,
    /// Merge in progress.
    merge: Option<LocalBoxFuture<'static, PipelineEvent>>,
    /// Cancellation of the tasks in progress, and how to stop it.
    cancelling: Option<(WorkflowCancellationToken, LocalBoxFuture<'static, ()>)>,
}

impl TaskChildren {
    /// Waits until the next task has ended and is merged; forever if there is none.
    pub(super) async fn next(&mut self, ctx: &WorkflowContext<PipelineWorkflow>) -> PipelineEvent {
        poll_fn(|cx| self.poll_next(ctx, cx)).await
    }

    /// Polls everything in order, so that a replay takes the same one.
    fn poll_next(
        &mut self,
        ctx: &WorkflowContext<PipelineWorkflow>,
        cx: &mut Context<'_>,
    ) -> Poll<PipelineEvent> {
        if let Some((_, cancelling)) = &mut self.cancelling
            && cancelling.poll_unpin(cx).is_ready()
        {
            self.cancelling = None;
        }
        let mut index = 0;
        while index < self.running.len() {
            let Poll::Ready((phase, task, completed)) = self.running[index].poll_unpin(cx) else {
                index += 1;
                continue;
            };
            drop(self.running.remove(index));
            if completed {
                self.unmerged.push_back((phase, task));
            } else {
                let event =
                    PipelineEvent::TaskEnded { phase, task, completed: false, reason: None };
                return Poll::Ready(event);
            }
        }
        if self.merge.is_none() {
            let next = self.unmerged.pop_front();
            self.merge = next.map(|(phase, task)| merge_task(ctx.clone(), phase, task));
        }
        let Some(merge) = &mut self.merge else { return Poll::Pending };
        let merged = merge.poll_unpin(cx);
        if merged.is_ready() {
            self.merge = None;
        }
        merged
    }

    /// Starts to cancel tasks in the name of a person.
    pub(super) fn cancel(
        &mut self,
        ctx: &WorkflowContext<PipelineWorkflow>,
        tasks: Vec<TaskId>,
        by: Name,
    ) {
        let request = ctx.state(|it| CancelTasksRequest {
            pipeline: it.input.pipeline,
            story_id: it.run.request.story_id.clone(),
            tasks,
            by,
        });
        let (ctx, stop) = (ctx.clone(), WorkflowCancellationToken::new());
        let options = activity_options(&ctx, TASK_QUEUE, stop.clone());
        let cancelling = async move {
            // A task that cannot be cancelled ends by itself; the run waits for it.
            let _ = ctx.execute_activity(CancelTasksActivity, request, options).await;
        };
        self.cancelling = Some((stop, cancelling.boxed_local()));
    }

    /// Stops the cancellation, once no task is left.
    pub(super) async fn finish(&mut self) {
        if let Some((stop, cancelling)) = self.cancelling.take() {
            stop.cancel_with_reason("the tasks have ended".to_owned());
            cancelling.await;
        }
    }
}

/// Merges a completed task into the story's branch. A task that cannot be merged has failed.
fn merge_task(
    ctx: WorkflowContext<PipelineWorkflow>,
    phase: u8,
    task: TaskId,
) -> LocalBoxFuture<'static, PipelineEvent> {
    let story = ctx.state(|it| it.phase_request(phase, it.run.last_job_number));
    let options = activity_options(&ctx, TASK_QUEUE, WorkflowCancellationToken::new());
    let request = MergeRequest { story, task };
    async move {
        let merged = ctx.execute_activity(MergeTaskActivity, request, options).await;
        let reason = merged.map_or_else(|error| Some(root_message(&error)), |it| it.refused);
        PipelineEvent::TaskEnded { phase, task, completed: reason.is_none(), reason }
    }
    .boxed_local()
}

/// Starts tasks of a phase and returns their IDs by key.
pub(super) async fn start_tasks(
    ctx: &WorkflowContext<PipelineWorkflow>,
    children: &mut TaskChildren,
    phase: u8,
    keys: Vec<String>,
) -> BTreeMap<String, TaskId> {
    let Some(split) = ctx.state(|it| it.run.graphs.get(&phase).map(|graph| graph.split.clone()))
    else {
        return BTreeMap::new();
    };
    let options = LocalActivityOptions::builder()
        .start_to_close_timeout(Duration::from_secs(30))
        .cancellation_token(WorkflowCancellationToken::new())
        .build();
    let request = StoryTasksRequest { split, keys: keys.clone() };
    let found = ctx.execute_local_activity(StoryTasksActivity, request, options).await;
    let mut started: BTreeMap<String, TaskId> = BTreeMap::new();
    // A task that cannot be loaded still gets an ID, and fails at once.
    let missing = keys.iter().map(|key| (key.clone(), None));
    let mut tasks: BTreeMap<String, Option<StoryTask>> = missing.collect();
    for task in found.unwrap_or_default() {
        tasks.insert(task.key.clone(), Some(task));
    }
    for key in keys {
        let random = ctx.random::<u128>();
        let id = TaskId::from_parts(now(ctx), random);
        let child = match tasks.remove(&key).flatten() {
            Some(task) => run_task(ctx.clone(), phase, id, &task, &started),
            None => async move { (phase, id, false) }.boxed_local(),
        };
        children.running.push(child);
        started.insert(key, id);
    }
    started
}

/// Starts a task's workflow and waits for its end.
fn run_task(
    ctx: WorkflowContext<PipelineWorkflow>,
    phase: u8,
    id: TaskId,
    story_task: &StoryTask,
    started: &BTreeMap<String, TaskId>,
) -> LocalBoxFuture<'static, EndedTask> {
    let depends_on = ctx.state(|it| {
        let nodes = it.run.graphs.get(&phase).map(|graph| graph.nodes.as_slice());
        let id_of = |key: &String| {
            let node = nodes.unwrap_or_default().iter().find(|node| node.key == *key);
            node.and_then(|node| node.task).or_else(|| started.get(key).copied())
        };
        story_task.depends_on.iter().filter_map(id_of).collect()
    });
    let at = now(&ctx);
    let (input, initial) = ctx.state(|it| {
        let request = &it.run.request;
        let metadata = [
            (PIPELINE_METADATA_KEY, it.input.pipeline.to_string()),
            ("story", request.story_id.clone()),
            ("story_task", story_task.key.clone()),
        ];
        let task = Task {
            id,
            project: it.input.project,
            title: story_task.title.trim().to_owned(),
            description: story_task.description.clone(),
            r#type: story_task.r#type,
            priority: story_task.priority,
            acceptance_criteria: story_task.acceptance_criteria.clone(),
            labels: vec![story_label(&request.story_id)],
            depends_on,
            suggested_agent: None,
            issue_url: None,
            issue_number: None,
            metadata: metadata.map(|(key, value)| (key.to_owned(), value)).into_iter().collect(),
        };
        let received = TaskReceived {
            task: id,
            project: task.project,
            priority: task.priority,
            at,
            by: Actor::Person(it.input.started_by.clone()),
            auth: None,
            submitted_plan: None,
            edition: it.input.edition,
        };
        let first = begin(&received, &it.input.rules);
        let initial = search_attributes::initial_values(&first.next);
        let origin = WorkflowOrigin::New { received, task: Box::new(task) };
        let rules = it.input.rules.clone();
        (WorkflowInput { rules, tuning: it.input.tuning, origin }, initial)
    });
    let options = ChildWorkflowOptions::builder()
        .workflow_id(workflow_id(id))
        .task_queue(TASK_QUEUE.to_owned())
        .parent_close_policy(ParentClosePolicy::Abandon)
        .cancellation_token(WorkflowCancellationToken::new())
        .task_timeout(TASK_TIMEOUT)
        .search_attributes(SearchAttributes::new(initial))
        .static_summary(story_task.title.clone())
        .build();
    async move {
        let completed = match ctx.start_child_workflow(TaskWorkflow::run, input, options).await {
            Ok(child) => child.result().await.is_ok_and(|end| end.state == State::Completed),
            Err(_) => false,
        };
        (phase, id, completed)
    }
    .boxed_local()
}

/// Returns the label of the tasks of a story. An ID can be longer than a label.
fn story_label(story_id: &str) -> String {
    format!("story:{story_id}").chars().take(MAX_LABEL_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use tamma_core::task::is_label;

    use super::*;

    #[test]
    fn every_story_has_a_label() {
        assert_eq!(story_label("checkout"), "story:checkout");
        assert!(is_label(&story_label(&"x".repeat(100))));
    }
}
