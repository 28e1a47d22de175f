//! Workflow that was reset: it repeats steps of the past, and the database is right.

use tamma_core::task_loop::State;
use tamma_flow::activities::DIVERGED;
use tamma_testkit::sample::sample_script;
use temporalio_client::tonic::Request;
use temporalio_client::{
    WorkflowDescribeOptions, WorkflowExecutionStatus, WorkflowFetchHistoryOptions,
};
use temporalio_common::protos::temporal::api::common::v1::WorkflowExecution;
use temporalio_common::protos::temporal::api::failure::v1::failure::FailureInfo;
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use temporalio_common::protos::temporal::api::workflowservice::v1::ResetWorkflowExecutionRequest;

use crate::cluster::{Cluster, until};

/// Number of the event that completes the first workflow task.
const FIRST_TASK_COMPLETED: i64 = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_workflow_ends_and_leaves_the_stored_history_alone() {
    let cluster = Cluster::start(&sample_script(7)).await;
    let client = cluster.client().await;
    let task = cluster.task(1);
    let id = task.id;
    let handle = cluster.start_task(&client, task).await;
    cluster
        .with_worker(async {
            cluster.until_state(id, State::AwaitingApproval).await;
            until(async || cluster.task_loop(id).await.open_question).await;
        })
        .await;
    let before = (cluster.task_loop(id).await, cluster.history(id).await);
    let reset = ResetWorkflowExecutionRequest {
        namespace: "default".to_owned(),
        workflow_execution: Some(WorkflowExecution {
            workflow_id: tamma_flow::workflow_id(id),
            run_id: String::new(),
        }),
        reason: "try again".to_owned(),
        workflow_task_finish_event_id: FIRST_TASK_COMPLETED,
        request_id: "reset".to_owned(),
        ..Default::default()
    };
    let mut service = client.connection().workflow_service();
    service.reset_workflow_execution(Request::new(reset)).await.unwrap();
    cluster
        .with_worker(until(async || {
            let described = handle.describe(WorkflowDescribeOptions::default()).await.unwrap();
            (described.status() == WorkflowExecutionStatus::Failed).then_some(())
        }))
        .await;
    let events = handle.fetch_history(WorkflowFetchHistoryOptions::default());
    let last = events.into_events().await.unwrap().pop().unwrap();
    let Some(Attributes::WorkflowExecutionFailedEventAttributes(failed)) = last.attributes else {
        panic!("the workflow did not fail");
    };
    let info = failed.failure.unwrap().failure_info.unwrap();
    assert!(matches!(info, FailureInfo::ApplicationFailureInfo(info) if info.r#type == DIVERGED));
    assert_eq!((cluster.task_loop(id).await, cluster.history(id).await), before);
}
