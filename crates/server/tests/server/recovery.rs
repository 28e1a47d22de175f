//! Tasks whose workflow was lost.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tamma_core::ids::TaskId;
use tamma_core::task_loop::Action;
use tamma_flow::{TaskWorkflow, workflow_id};
use tamma_server::ServerConfig;
use tamma_testkit::wait::wait_until;
use temporalio_client::tonic::Request;
use temporalio_client::{
    NamespacedClient as _, WorkflowDescribeOptions, WorkflowExecutionStatus,
    WorkflowTerminateOptions,
};
use temporalio_common::protos::temporal::api::common::v1::{Payload, WorkflowType};
use temporalio_common::protos::temporal::api::sdk::v1::UserMetadata;
use temporalio_common::protos::temporal::api::taskqueue::v1::TaskQueue;
use temporalio_common::protos::temporal::api::workflowservice::v1::StartWorkflowExecutionRequest;
use uuid::Uuid;

use crate::browser::StoredTask;
use crate::test_server::{TestServer, config, new_id, read, temporal_client};

/// Returns a server that compares tasks with their workflows all the time.
async fn quick_server() -> TestServer {
    let reconcile_interval = Duration::from_millis(200);
    TestServer::with(ServerConfig { reconcile_interval, ..config("127.0.0.1:0", None) }).await
}

async fn add_task(server: &TestServer) -> Uuid {
    server.project("/nowhere").await;
    let id = new_id();
    let (status, added) = server.post("/tasks", &json!({ "id": id, "title": "Greet" })).await;
    assert_eq!(status, 201, "{added}");
    id
}

/// Returns the status and the run ID of a task's workflow.
async fn workflow(task: Uuid) -> (WorkflowExecutionStatus, String) {
    let handle =
        temporal_client().await.get_workflow_handle::<TaskWorkflow>(workflow_id(TaskId(task)));
    let described = handle.describe(WorkflowDescribeOptions::default()).await.expect("workflow");
    (described.status(), described.run_id().to_owned())
}

async fn terminate(task: Uuid) {
    let handle =
        temporal_client().await.get_workflow_handle::<TaskWorkflow>(workflow_id(TaskId(task)));
    let options = WorkflowTerminateOptions::builder().reason("runaway").build();
    handle.terminate(options).await.expect("terminated");
}

/// Returns the entries that explain a recovery.
async fn explanations(server: &TestServer, task: Uuid) -> Vec<Value> {
    let (_, history) = server.get(&format!("/tasks/{task}/history")).await;
    let entries = history["entries"].as_array().expect("entries").clone();
    entries.into_iter().filter(|entry| entry["name"] == "SM_TASK_RECONCILED").collect()
}

#[tokio::test]
async fn a_person_decides_about_a_task_whose_workflow_was_terminated() {
    let server = quick_server().await;
    let task = add_task(&server).await;
    let (_, first) = workflow(task).await;
    terminate(task).await;
    let explained = wait_until("the reconciler", Duration::from_secs(30), async || {
        let found = explanations(&server, task).await;
        Ok((!found.is_empty()).then_some(found))
    });
    let explained = explained.await.expect("an explanation");
    assert_eq!(explained.len(), 1, "{explained:?}");
    let reason = "the workflow was terminated by test: runaway; a person decides how to continue";
    assert_eq!(explained[0]["reason"], reason);
    let (status, now) = workflow(task).await;
    assert_eq!(status, WorkflowExecutionStatus::Running);
    assert_ne!(first, now, "another run");
    let (_, detail) = server.get(&format!("/tasks/{task}")).await;
    assert_eq!(detail["state"], "human_escalation", "{detail}");
    server.end().await;
}

#[tokio::test]
async fn a_task_id_of_another_project_is_not_used_again() {
    let server = TestServer::new().await;
    let project = server.project("/nowhere").await;
    // As if its workflow had passed the retention period.
    let mut task = StoredTask::new(&server, project, json!({ "title": "Secret" })).await;
    task.apply(|world| {
        world.ask(Action::Cancel { reason: "no".parse().expect("reason") });
    })
    .await;
    let other = json!({ "name": "other", "repository": "/other" });
    assert_eq!(server.post("/projects", &other).await.0, 200);
    server.grant("other", "Zoe", "member").await;
    let zoe = server.token_of("Zoe").await;
    let new = json!({ "id": task.id, "title": "Greet", "project": "other" });
    let request = server.request(Method::POST, "/tasks").bearer_auth(&zoe).json(&new);
    let (status, problem) = read(request.send().await.expect("response")).await;
    let detail = format!("task ID {} is already used", task.id);
    assert_eq!((status, &problem["detail"]), (409, &json!(detail)));
    let handle =
        temporal_client().await.get_workflow_handle::<TaskWorkflow>(workflow_id(TaskId(task.id)));
    assert!(handle.describe(WorkflowDescribeOptions::default()).await.is_err(), "no workflow");
    let stored = server.store.task(TaskId(task.id)).await.expect("task");
    assert_eq!(stored.task.title, "Secret");
    server.end().await;
}

#[tokio::test]
async fn an_operator_restarts_a_task_from_the_database_alone() {
    let server = TestServer::new().await;
    let task = add_task(&server).await;
    terminate(task).await;
    let (status, restarted) = server.post(&format!("/tasks/{task}/restart"), &json!({})).await;
    assert_eq!((status, &restarted["state"]), (200, &json!("pending")), "{restarted}");
    assert_eq!(workflow(task).await.0, WorkflowExecutionStatus::Running);
    let explained = explanations(&server, task).await;
    assert_eq!(explained.len(), 1);
    assert_eq!(explained[0]["reason"], "restarted by Ada from step 0 of the database");
    assert_eq!(explained[0]["actor"], json!({ "person": "Ada" }));
    // Also while its workflow runs.
    let (_, run) = workflow(task).await;
    assert_eq!(server.post(&format!("/tasks/{task}/restart"), &json!({})).await.0, 200);
    assert_ne!(workflow(task).await.1, run);
    server.end().await;
}

#[tokio::test]
async fn a_task_of_a_story_is_restarted_although_its_summary_is_sealed() {
    let server = TestServer::new().await;
    let task = add_task(&server).await;
    terminate(task).await;
    let client = temporal_client().await;
    let encoding = ("encoding".to_owned(), b"binary/encrypted".to_vec());
    let summary = Payload { metadata: [encoding].into(), ..Payload::default() };
    let sealed = StartWorkflowExecutionRequest {
        namespace: client.namespace(),
        workflow_id: workflow_id(TaskId(task)),
        request_id: new_id().to_string(),
        workflow_type: Some(WorkflowType { name: "task".to_owned() }),
        task_queue: Some(TaskQueue { name: "nobody-polls".to_owned(), ..TaskQueue::default() }),
        user_metadata: Some(UserMetadata { summary: Some(summary), details: None }),
        ..StartWorkflowExecutionRequest::default()
    };
    let mut service = client.connection().workflow_service();
    let started = service.start_workflow_execution(Request::new(sealed)).await.expect("started");
    let (status, restarted) = server.post(&format!("/tasks/{task}/restart"), &json!({})).await;
    assert_eq!((status, &restarted["state"]), (200, &json!("pending")), "{restarted}");
    assert_ne!(workflow(task).await.1, started.into_inner().run_id);
    server.end().await;
}

#[tokio::test]
async fn only_one_of_two_servers_recovers_a_task() {
    let server = quick_server().await;
    let reconcile_interval = Duration::from_millis(200);
    let other = ServerConfig { reconcile_interval, ..config("127.0.0.1:0", None) };
    let other = server.start_another(other).await;
    let task = add_task(&server).await;
    terminate(task).await;
    wait_until("the reconciler", Duration::from_secs(30), async || {
        Ok((!explanations(&server, task).await.is_empty()).then_some(()))
    })
    .await
    .expect("an explanation");
    assert_eq!(explanations(&server, task).await.len(), 1);
    other.end().await;
    server.end().await;
}
