//! Tasks of a story as child workflows.
//!
//! A child outlives the pipeline: cancelling the run leaves its tasks to the people who see them.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{FutureExt as _, LocalBoxFuture};
use tamma_core::actor::Actor;
use tamma_core::ids::TaskId;
use tamma_core::pipeline::StoryTask;
use tamma_core::state::State;
use tamma_core::task::Task;
use tamma_core::task_loop::{TaskReceived, begin};
use temporalio_common::search_attributes::SearchAttributes;
use temporalio_workflow::{
    ChildWorkflowOptions, LocalActivityOptions, ParentClosePolicy, WorkflowCancellationToken,
    WorkflowContext,
};

use super::activities::{StoryTasksActivity, StoryTasksRequest};
use super::{EndedTask, PipelineWorkflow, now};
use crate::search_attributes;
use crate::task::{TaskWorkflow, WorkflowInput, WorkflowOrigin};

/// Workflow task timeout of a task's workflow.
const TASK_TIMEOUT: Duration = Duration::from_secs(5);

/// Running tasks, in the order of their start.
#[derive(Default)]
pub(super) struct TaskChildren {
    running: Vec<LocalBoxFuture<'static, EndedTask>>,
}

impl TaskChildren {
    /// Waits for the next task to end; forever if none runs.
    pub(super) async fn next(&mut self) -> EndedTask {
        // Polled in order, so that a replay takes the same one.
        poll_fn(|cx| {
            for index in 0..self.running.len() {
                if let Poll::Ready(ended) = self.running[index].poll_unpin(cx) {
                    drop(self.running.remove(index));
                    return Poll::Ready(ended);
                }
            }
            Poll::Pending
        })
        .await
    }
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
            ("pipeline", it.input.pipeline.to_string()),
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
            labels: vec![format!("story:{}", request.story_id)],
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
        .workflow_id(crate::workflow_id(id))
        .task_queue(crate::TASK_QUEUE.to_owned())
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
