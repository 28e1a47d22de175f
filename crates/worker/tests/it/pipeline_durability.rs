//! Durability of pipelines: histories to keep, and waits of weeks.

use std::time::Duration;

use tamma_core::pipeline::{GateAnswer, PipelineRun, PipelineState};
use tamma_core::task_loop::{Action, State};
use tamma_flow::pipeline::{PipelineAction, PipelineWorkflow};
use tamma_flow::{TaskWorkflow, pipeline_workflow_id, workflow_id};
use tamma_store::{StoredPhase, StoryPipeline};
use tamma_testkit::agent::{AgentStep, PromptCase, Script};
use tamma_testkit::sample::{sample_plan, sample_work};
use temporalio_client::tonic::Request;
use temporalio_client::{Client, WorkflowFetchHistoryOptions, WorkflowGetResultOptions};
use temporalio_common::protos::temporal::api::common::v1::{
    FastForwardConfig, TimeSkippingConfig, WorkflowExecution,
};
use temporalio_common::protos::temporal::api::enums::v1::{EventType, FastForwardPollingResult};
use temporalio_common::protos::temporal::api::history::v1::HistoryEvent;
use temporalio_common::protos::temporal::api::workflow::v1::WorkflowExecutionOptions;
use temporalio_common::protos::temporal::api::workflowservice::v1::{
    PollWorkflowExecutionTimeSkippingRequest, UpdateWorkflowExecutionOptionsRequest,
};

use crate::cluster::{Cluster, until};
use crate::durability::store_history;
use crate::pipelines::{
    act, cluster, commands, pipeline_id, start, start_pipeline, successful_script, until_delivered,
    until_run,
};

pub(crate) const WEEK: Duration = Duration::from_hours(24 * 7);

/// Pipeline with only tasks.
const TASKS: &str = "pipelines:\n  own:\n    phases:\n      - { id: tasks, runner: tasks }\n";

/// Returns the script of an agent that splits the story into these tasks, plans changes of `files`
/// files, and implements each task with these steps.
fn split_script(tasks: &[(&str, &[&str])], files: usize, work: Vec<AgentStep>) -> Script {
    let task = |(key, depends_on): &(&str, &[&str])| {
        serde_json::json!({
            "key": key, "title": format!("Greet {key}"), "description": "Add the name.",
            "acceptance_criteria": ["The name is greeted."], "depends_on": depends_on,
            "estimated_lines": 1,
        })
    };
    let split = serde_json::json!({ "tasks": tasks.iter().map(task).collect::<Vec<_>>() });
    let mut script = Script::planned(sample_plan(files), work);
    script.cases.insert(0, PromptCase::new("Split the story", [AgentStep::Submit(split)]));
    script
}

fn answer(answer: GateAnswer) -> PipelineAction {
    PipelineAction::Answer(answer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_to_keep() {
    // One history of each kind, stored by `just gen-histories`.
    let history = WorkflowFetchHistoryOptions::default;
    let (cluster, _) = cluster(successful_script).await;
    let client = cluster.client().await;
    cluster
        .with_worker(async {
            let handle = start(&cluster, &client, (1, 6), &[3]).await;
            until_run(&cluster, |run| run.state == PipelineState::AtGate(3)).await;
            settled_events(&handle).await;
            store_history(handle.fetch_history(history()), "pipeline-at-a-gate.json").await;
            act(&handle, answer(GateAnswer::Continue)).await.unwrap();
            let run = handle.get_result(WorkflowGetResultOptions::default()).await.unwrap();
            assert_eq!(run.state, PipelineState::Complete, "{:?}", run.records);
            store_history(handle.fetch_history(history()), "pipeline-complete.json").await;
            let handle = start(&cluster, &client, (2, 4), &[2, 3]).await;
            let is_at = |phase| move |run: &PipelineRun| run.state == PipelineState::AtGate(phase);
            until_run(&cluster, is_at(2)).await;
            act(&handle, answer(GateAnswer::Skip)).await.unwrap();
            until_run(&cluster, is_at(3)).await;
            act(&handle, answer(GateAnswer::Stop)).await.unwrap();
            handle.get_result(WorkflowGetResultOptions::default()).await.unwrap();
            store_history(handle.fetch_history(history()), "pipeline-stopped.json").await;
        })
        .await;

    let tasks: [(&str, &[&str]); 2] = [("second", &["first"]), ("first", &[])];
    let name = AgentStep::Append { path: "names.txt".into(), line: "cy".to_owned() };
    let cluster = Cluster::start_with(&split_script(&tasks, 1, vec![name]), TASKS).await;
    let client = cluster.client().await;
    cluster
        .with_worker(async {
            let handle = start_pipeline(&cluster, &client, "own", (1, 1), &[]).await;
            until_run(&cluster, |run| run.state == PipelineState::AtSplit(1)).await;
            act(&handle, answer(GateAnswer::Continue)).await.unwrap();
            let run = handle.get_result(WorkflowGetResultOptions::default()).await.unwrap();
            assert_eq!(run.state, PipelineState::Complete, "{:?}", run.records);
            store_history(handle.fetch_history(history()), "pipeline-tasks.json").await;
        })
        .await;
}

/// Moves the clock of a workflow forward. Timers that are due on the way fire.
pub(crate) async fn fast_forward(client: &Client, workflow_id: &str, duration: Duration) {
    let fast_forward_id = format!("{} s", duration.as_secs());
    let namespace = "default".to_owned();
    let execution = WorkflowExecution { workflow_id: workflow_id.to_owned(), ..Default::default() };
    let config = TimeSkippingConfig {
        enabled: true,
        fast_forward_config: Some(FastForwardConfig {
            id: fast_forward_id.clone(),
            duration: duration.try_into().ok(),
        }),
        ..Default::default()
    };
    let mut update = UpdateWorkflowExecutionOptionsRequest {
        namespace: namespace.clone(),
        workflow_execution: Some(execution.clone()),
        workflow_execution_options: Some(WorkflowExecutionOptions {
            time_skipping_config: Some(config),
            ..Default::default()
        }),
        ..Default::default()
    };
    update.update_mask.get_or_insert_default().paths.push("time_skipping_config".to_owned());
    let mut service = client.connection().workflow_service();
    service.update_workflow_execution_options(Request::new(update)).await.unwrap();
    let poll = PollWorkflowExecutionTimeSkippingRequest {
        namespace,
        workflow_execution: Some(execution),
        fast_forward_id,
    };
    let mut result = FastForwardPollingResult::PollTimeout;
    while result == FastForwardPollingResult::PollTimeout {
        let poll = service.poll_workflow_execution_time_skipping(Request::new(poll.clone()));
        // A poll that begins just before the end can miss it, and would wait for its own timeout.
        if let Ok(polled) = tokio::time::timeout(Duration::from_secs(2), poll).await {
            result = polled.unwrap().into_inner().fast_forward_polling_result();
        }
    }
    assert_eq!(result, FastForwardPollingResult::FastForwardCompleted);
}

/// Waits until no workflow task is open, and returns the types of the events, without those of the
/// fast-forward itself.
pub(crate) async fn settled_events<W: temporalio_common::HasWorkflowDefinition>(
    handle: &temporalio_client::WorkflowHandle<Client, W>,
) -> Vec<EventType> {
    // A description cannot be read if the workflow has a sealed summary.
    let events = until(async || {
        let history = handle.fetch_history(WorkflowFetchHistoryOptions::default());
        let events = history.into_events().await.ok()?;
        let is_open = events.iter().fold(false, |is_open, event| match event.event_type() {
            EventType::WorkflowTaskScheduled => true,
            EventType::WorkflowTaskCompleted => false,
            _ => is_open,
        });
        (!is_open).then_some(events)
    })
    .await;
    let is_of_the_test = |kind: &EventType| {
        matches!(
            kind,
            EventType::WorkflowExecutionOptionsUpdated
                | EventType::WorkflowExecutionTimeSkippingTransitioned
        )
    };
    events.iter().map(HistoryEvent::event_type).filter(|kind| !is_of_the_test(kind)).collect()
}

/// Everything that Temporal and the database have about the pipeline. The stored row counts its writes.
async fn pipeline_facts(
    cluster: &Cluster,
    client: &Client,
) -> (Vec<EventType>, StoryPipeline, Vec<StoredPhase>) {
    let handle =
        client.get_workflow_handle::<PipelineWorkflow>(pipeline_workflow_id(pipeline_id()));
    let events = settled_events(&handle).await;
    let story = cluster.store.pipeline(pipeline_id()).await.unwrap();
    (events, story, cluster.store.pipeline_phases(pipeline_id()).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_month_at_a_gate_adds_no_events_and_no_writes() {
    let (cluster, log) = cluster(successful_script).await;
    let client = cluster.client().await;
    cluster
        .with_worker(async {
            let handle = start(&cluster, &client, (1, 1), &[1]).await;
            until_run(&cluster, |run| run.state == PipelineState::AtGate(1)).await;
            let before = pipeline_facts(&cluster, &client).await;
            for duration in [WEEK, 3 * WEEK] {
                fast_forward(&client, &pipeline_workflow_id(pipeline_id()), duration).await;
                assert_eq!(pipeline_facts(&cluster, &client).await, before);
            }
            assert!(commands(&log).is_empty(), "nothing starts without an answer");
            act(&handle, answer(GateAnswer::Continue)).await.unwrap();
            let (_, run) = until_delivered(&cluster, 1).await;
            assert_eq!(run.state, PipelineState::Complete, "{:?}", run.records);
            assert_eq!(commands(&log), ["/pm-story generate"]);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_month_of_waiting_for_a_task_adds_no_events_and_no_writes() {
    let work = sample_work(&sample_plan(7)).collect();
    let cluster = Cluster::start_with(&split_script(&[("only", &[])], 7, work), TASKS).await;
    let client = cluster.client().await;
    cluster
        .with_worker(async {
            let handle = start_pipeline(&cluster, &client, "own", (1, 1), &[]).await;
            until_run(&cluster, |run| run.state == PipelineState::AtSplit(1)).await;
            act(&handle, answer(GateAnswer::Continue)).await.unwrap();
            let task = until(async || {
                let story = cluster.store.pipeline(pipeline_id()).await.ok()?;
                story.run?.graphs.get(&1)?.nodes[0].task
            })
            .await;
            let scope = cluster.until_state(task, State::AwaitingApproval).await.current_scope();
            let scope =
                until(async || cluster.task_loop(task).await.open_question.and(scope)).await;
            let child = client.get_workflow_handle::<TaskWorkflow>(workflow_id(task));
            // A question that somebody has seen sends no reminders.
            cluster.request_action(&child, "Ann", Action::Acknowledge).await.unwrap();
            let before = pipeline_facts(&cluster, &client).await;
            let open_timers = before.0.iter().fold(0, |open, kind| match kind {
                EventType::TimerStarted => open + 1,
                EventType::TimerFired | EventType::TimerCanceled => open - 1,
                _ => open,
            });
            assert_eq!(open_timers, 0, "the pipeline waits with a timer");

            // The first week has the alerts of the task's timeout; then nothing happens any more.
            fast_forward(&client, &workflow_id(task), WEEK).await;
            assert_eq!(pipeline_facts(&cluster, &client).await, before);
            let task_facts = async || {
                let events = settled_events(&child).await;
                (events, cluster.store.task(task).await.unwrap().step)
            };
            let task_before = task_facts().await;
            fast_forward(&client, &workflow_id(task), 3 * WEEK).await;
            assert_eq!(task_facts().await, task_before);
            assert_eq!(pipeline_facts(&cluster, &client).await, before);

            let approve = Action::Approve { scope, reason: None };
            cluster.request_action(&child, "Ann", approve).await.unwrap();
            let (_, run) = until_delivered(&cluster, 1).await;
            assert_eq!(run.state, PipelineState::Complete, "{:?}", run.records);
        })
        .await;
}
