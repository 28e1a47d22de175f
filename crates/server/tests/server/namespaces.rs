//! Temporal namespaces of organisations.

use std::time::Duration;

use futures_util::TryStreamExt as _;
use serde_json::{Value, json};
use tamma_core::ids::TaskId;
use tamma_flow::{NAMESPACE, TaskWorkflow, workflow_id};
use tamma_server::ServerConfig;
use tamma_testkit::wait::wait_until;
use temporalio_client::{
    Client, WorkflowDescribeOptions, WorkflowExecution, WorkflowListOptions,
    WorkflowTerminateOptions,
};
use uuid::Uuid;

use crate::test_server::{TestServer, config, new_id, temporal_client};

/// Time limit of what Temporal or the reconciler do by themselves.
const TIMEOUT: Duration = Duration::from_secs(30);

async fn client_in(namespace: &str) -> Client {
    let mut client = temporal_client().await;
    namespace.clone_into(&mut client.options_mut().namespace);
    client
}

/// Returns a namespace that no other test uses.
fn new_namespace() -> String {
    format!("test-{}", new_id())
}

async fn operate(server: &TestServer, path: &str, body: Value) -> Value {
    let (status, answer) = server.post(path, &body).await;
    assert_eq!(status, 200, "{path}: {answer}");
    answer
}

/// Adds an organisation with a namespace and a project, both named after it.
async fn add_organisation(server: &TestServer, name: &str, namespace: &str) {
    let new = json!({ "name": name, "namespace": namespace });
    let added = operate(server, "/organisations", new).await;
    assert_eq!(added["namespace"], namespace);
    let project = format!("of-{name}");
    let repository = format!("/{project}");
    let project = json!({ "name": project, "repository": repository, "organisation": name });
    operate(server, "/projects", project).await;
}

async fn add_task(server: &TestServer, project: &str) -> Uuid {
    let id = new_id();
    let task = json!({ "id": id, "title": "Greet", "project": project });
    let (status, added) = server.post("/tasks", &task).await;
    assert_eq!(status, 201, "{added}");
    id
}

/// Returns the run ID of a task's workflow in a namespace.
async fn run_id(namespace: &str, task: Uuid) -> Option<String> {
    let client = client_in(namespace).await;
    let handle = client.get_workflow_handle::<TaskWorkflow>(workflow_id(TaskId(task)));
    let described = handle.describe(WorkflowDescribeOptions::default()).await;
    described.ok().map(|found| found.run_id().to_owned())
}

/// Waits until a task is among the workflows of a namespace, and returns the IDs of all.
async fn listed_with(namespace: &str, task: Uuid) -> Vec<String> {
    let client = client_in(namespace).await;
    let expected = workflow_id(TaskId(task));
    let listed = wait_until("the list of workflows", TIMEOUT, async || {
        let query = "WorkflowType = 'task'";
        let listed = client.list_workflows(query, WorkflowListOptions::default());
        let listed: Vec<WorkflowExecution> = listed.try_collect().await?;
        let ids: Vec<_> = listed.iter().map(|workflow| workflow.id().to_owned()).collect();
        Ok(ids.contains(&expected).then_some(ids))
    });
    listed.await.expect("listed")
}

#[tokio::test]
async fn workflows_of_one_organisation_are_not_in_the_namespace_of_another() {
    let reconcile_interval = Duration::from_millis(200);
    let quick = ServerConfig { reconcile_interval, ..config("127.0.0.1:0", None) };
    let server = TestServer::with(quick).await;
    let (acme, globex) = (new_namespace(), new_namespace());
    add_organisation(&server, "acme", &acme).await;
    add_organisation(&server, "globex", &globex).await;
    let of_acme = add_task(&server, "of-acme").await;
    let of_globex = add_task(&server, "of-globex").await;
    // The owner finds it, so the others would find it, too.
    assert_eq!(listed_with(&acme, of_acme).await, [workflow_id(TaskId(of_acme))]);
    assert_eq!(listed_with(&globex, of_globex).await, [workflow_id(TaskId(of_globex))]);
    for (namespace, task) in [(&globex, of_acme), (&acme, of_globex)] {
        assert_eq!(run_id(namespace, task).await, None);
        assert_eq!(run_id(NAMESPACE, task).await, None);
    }
    // Nobody has lost them.
    let first = run_id(&acme, of_acme).await.expect("workflow");
    let (_, detail) = server.get(&format!("/tasks/{of_acme}")).await;
    assert_eq!(detail["state"], "pending", "{detail}");
    // The reconciler looks into each namespace, and a replacement starts there.
    let client = client_in(&acme).await;
    let handle = client.get_workflow_handle::<TaskWorkflow>(workflow_id(TaskId(of_acme)));
    let options = WorkflowTerminateOptions::builder().reason("runaway").build();
    handle.terminate(options).await.expect("terminated");
    let recovered = wait_until("the reconciler", TIMEOUT, async || {
        let (_, detail) = server.get(&format!("/tasks/{of_acme}")).await;
        Ok((detail["state"] == "human_escalation").then_some(()))
    });
    recovered.await.expect("recovered");
    let second = run_id(&acme, of_acme).await.expect("workflow");
    assert_ne!(first, second);
    assert_eq!(run_id(NAMESPACE, of_acme).await, None);
    server.end().await;
}

#[tokio::test]
async fn a_task_stays_in_its_namespace_when_its_project_is_transferred() {
    let server = TestServer::new().await;
    server.project("/nowhere").await;
    let acme = new_namespace();
    add_organisation(&server, "acme", &acme).await;
    let early = add_task(&server, "greeter").await;
    let first = run_id(NAMESPACE, early).await.expect("workflow");
    let transfer = json!({ "project": "greeter", "organisation": "acme" });
    operate(&server, "/organisations/projects", transfer).await;
    let late = add_task(&server, "greeter").await;
    assert!(run_id(&acme, late).await.is_some());
    assert_eq!(run_id(NAMESPACE, late).await, None);
    // Another workflow of the earlier task starts where the first one was.
    operate(&server, &format!("/tasks/{early}/restart"), json!({})).await;
    let second = run_id(NAMESPACE, early).await.expect("workflow");
    assert_ne!(first, second);
    assert_eq!(run_id(&acme, early).await, None);
    server.end().await;
}

#[tokio::test]
async fn a_namespace_that_exists_is_used_only_if_it_is_named() {
    let (first, second) = (TestServer::new().await, TestServer::new().await);
    let name = format!("t{}", new_id().simple());
    let namespace = format!("tamma-{name}");
    let added = operate(&first, "/organisations", json!({ "name": name })).await;
    assert_eq!(added["namespace"], namespace);
    // Another installation with an organisation of the same name must not get its tasks.
    let (status, problem) = second.post("/organisations", &json!({ "name": name })).await;
    let detail = format!("The Temporal namespace `{namespace}` exists already.");
    assert_eq!((status, &problem["detail"]), (422, &json!(detail)), "{problem}");
    let listed = second.get("/organisations").await.1;
    assert_eq!(listed["organisations"].as_array().map(Vec::len), Some(1), "{listed}");
    let named = json!({ "name": name, "namespace": namespace });
    operate(&second, "/organisations", named).await;
    // Two organisations never share one of their own, and can share that of the installation.
    let other = json!({ "name": "other", "namespace": namespace });
    assert_eq!(second.post("/organisations", &other).await.0, 422);
    let shared = json!({ "name": "other", "namespace": NAMESPACE });
    let added = operate(&second, "/organisations", shared).await;
    assert_eq!(added.get("namespace"), None, "{added}");
    first.end().await;
    second.end().await;
}
