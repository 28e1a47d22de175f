//! Adding tasks and acting on them.

use reqwest::Method;
use serde_json::json;
use tamma_core::actor::Actor;
use tamma_core::task_loop::{TaskReceived, begin};
use tamma_core::version::Edition;
use tamma_core::{ids::TaskId, rules::Rules};
use tamma_flow::{TaskWorkflow, workflow_id};
use temporalio_client::WorkflowDescribeOptions;

use crate::test_server::{TestServer, new_id, read, temporal_client};
use crate::world;

#[tokio::test]
async fn adding_the_same_task_twice_adds_it_once() {
    let server = TestServer::new().await;
    server.project("/nowhere").await;
    let id = new_id();
    let task = json!({ "id": id, "title": "Greet the world", "labels": ["nice"] });
    let (status, added) = server.post("/tasks", &task).await;
    assert_eq!((status, &added["new"]), (201, &json!(true)), "{added}");
    assert_eq!(added["task"]["state"], "pending");
    let (status, again) = server.post("/tasks", &task).await;
    assert_eq!((status, &again["new"]), (200, &json!(false)));
    assert_eq!(again["task"]["created_at"], added["task"]["created_at"]);
    // Its workflow is started and waits for a worker.
    let handle =
        temporal_client().await.get_workflow_handle::<TaskWorkflow>(workflow_id(TaskId(id)));
    let described = handle.describe(WorkflowDescribeOptions::default()).await.expect("workflow");
    assert_eq!(described.raw().pending_activities.len(), 0);
    // The history names the person who added it.
    let (_, history) = server.get(&format!("/tasks/{id}/history")).await;
    assert_eq!(history["entries"][0]["actor"], json!({ "person": "Ada" }));
    assert_eq!(history["entries"][0]["name"], "SM_TASK_RECEIVED");
    let how = json!({ "method": "server_token", "via": "api" });
    assert_eq!(history["entries"][0]["auth"], how);
    let (_, audit) = server.get(&format!("/audit?task={id}")).await;
    assert_eq!(audit["histories"][0]["verified"], 1, "{audit}");
    assert_eq!(audit["histories"][0].get("broken"), None, "{audit}");
    // Invalid labels are refused before a workflow starts.
    let many: Vec<_> = (0..21).map(|number| format!("l{number}")).collect();
    for labels in [json!(["a,b"]), json!([""]), json!(["x".repeat(51)]), json!(many)] {
        let task = json!({ "title": "Greet", "labels": labels });
        let (status, problem) = server.post("/tasks", &task).await;
        assert_eq!(status, 422, "{problem}");
        assert!(problem["detail"].to_string().contains("label"), "{problem}");
    }
    // A different task with the same ID is refused.
    let other = json!({ "id": id, "title": "Something else" });
    let (status, problem) = server.post("/tasks", &other).await;
    assert_eq!(status, 409);
    let detail = format!("task ID {id} is already used by `Greet the world`");
    assert_eq!(problem["detail"], json!(detail));
    server.end().await;
}

#[tokio::test]
async fn every_field_of_a_task_is_stored_and_returned() {
    let server = TestServer::new().await;
    server.project("/nowhere").await;
    let (first, id) = (new_id(), new_id());
    assert_eq!(server.post("/tasks", &json!({ "id": first, "title": "First" })).await.0, 201);
    let fields = json!({
        "title": "Greet the world",
        "description": "Kindly.",
        "type": "bugfix",
        "priority": "critical",
        "acceptance_criteria": ["it greets"],
        "labels": ["nice"],
        "depends_on": [first],
        "suggested_agent": "codex",
        "issue_url": "https://forge.example/issues/7",
        "issue_number": 7,
        "metadata": { "sprint": "12" },
    });
    let mut task = fields.clone();
    task["id"] = json!(id);
    assert_eq!(server.post("/tasks", &task).await.0, 201);
    let (_, detail) = server.get(&format!("/tasks/{id}")).await;
    for (name, value) in fields.as_object().expect("fields") {
        assert_eq!(&detail[name], value, "{name}: {detail}");
    }
    server.end().await;
}

#[tokio::test]
async fn concurrent_requests_for_one_task_start_one_workflow() {
    let server = TestServer::new().await;
    server.project("/nowhere").await;
    let task = json!({ "id": new_id(), "title": "Greet the world" });
    // The same request twice at the same time.
    let (one, two) = tokio::join!(server.post("/tasks", &task), server.post("/tasks", &task));
    assert!(one.0 <= 201 && two.0 <= 201, "{one:?} {two:?}");
    assert_eq!(one.1["task"]["id"], two.1["task"]["id"]);
    let (_, list) = server.get("/tasks").await;
    assert_eq!(list["tasks"].as_array().map(Vec::len), Some(1));
    server.end().await;
}

#[tokio::test]
async fn a_started_task_without_a_row_is_saved_from_its_workflow_input() {
    // Two databases and one Temporal server: the second database lacks the row.
    let (first, second) = (TestServer::new().await, TestServer::new().await);
    let (project, id) = (new_id(), new_id());
    for server in [&first, &second] {
        let project = json!({ "id": project, "name": "greeter", "repository": "/nowhere" });
        assert_eq!(server.post("/projects", &project).await.0, 200);
    }
    let task = json!({ "id": id, "title": "Greet the world" });
    let (status, added) = first.post("/tasks", &task).await;
    assert_eq!(status, 201, "{added}");
    let other = json!({ "id": id, "title": "Something else" });
    assert_eq!(second.post("/tasks", &other).await.0, 409);
    let (status, again) = second.post("/tasks", &task).await;
    assert_eq!((status, &again["new"]), (200, &json!(false)), "{again}");
    assert_eq!(again["task"]["created_at"], added["task"]["created_at"]);
    let history = format!("/tasks/{id}/history");
    let entry =
        async |server: &TestServer| server.get(&history).await.1["entries"][0]["at"].clone();
    assert_eq!(entry(&second).await, entry(&first).await);
    first.end().await;
    second.end().await;
}

#[tokio::test]
async fn an_invalid_task_is_refused_with_the_reason() {
    let server = TestServer::new().await;
    let refused = async |body: serde_json::Value| {
        let (status, problem) = server.post("/tasks", &body).await;
        assert_eq!(status, 422, "{problem}");
        problem["detail"].as_str().expect("text").to_owned()
    };
    assert_eq!(refused(json!({ "title": "x" })).await, "No projects are registered.");
    server.project("/nowhere").await;
    let two = json!({ "name": "other", "repository": "/elsewhere" });
    server.post("/projects", &two).await;
    let several = "Several projects are registered: `greeter`, `other`.";
    assert_eq!(refused(json!({ "title": "x" })).await, several);
    let title = "The title must be one line of 1 to 200 characters; this one has 0.";
    assert_eq!(refused(json!({ "project": "other", "title": " " })).await, title);
    let missing = new_id();
    let depends = json!({ "project": "other", "title": "x", "depends_on": [missing] });
    let text = format!("Cannot find task {missing}, which this task depends on.");
    assert_eq!(refused(depends).await, text);
    let agent = json!({ "project": "other", "title": "x", "suggested_agent": "cursor" });
    let text = "Cannot use the suggested agent: agent `cursor` is not configured; use one of \
                `claude-code`, `codex`, `gemini`, `opencode`.";
    assert_eq!(refused(agent).await, text);
    let plan = json!({ "project": "other", "title": "x", "plan": { "summary": "half" } });
    assert!(refused(plan).await.starts_with("Cannot read the plan: "));
    let (status, problem) =
        server.post("/projects", &json!({ "name": "other", "repository": "/x" })).await;
    assert_eq!(
        (status, &problem["detail"]),
        (422, &json!("The project name `other` is already used."))
    );
    server.end().await;
}

#[tokio::test]
async fn configuration_errors_are_reported_with_lines_and_nothing_starts() {
    let server = TestServer::new().await;
    let folder = tempfile::tempdir().expect("directory");
    let file = folder.path().join("tamma.yaml");
    let text = "scrum_master:\n  task_loop:\n    max_retrys: 5\n    timeout_ms: 12\n";
    std::fs::write(&file, text).expect("written");
    server.project(&folder.path().display().to_string()).await;
    let id = new_id();
    let (status, problem) = server.post("/tasks", &json!({ "id": id, "title": "x" })).await;
    assert_eq!((status, &problem["type"]), (422, &json!("tamma:configuration")));
    let problems = problem["problems"].as_array().expect("errors");
    assert_eq!(problems.len(), 2);
    assert_eq!(problems[0]["line"], 3);
    assert_eq!(problems[0]["help"], "did you mean `max_retries`?");
    assert_eq!(server.get(&format!("/tasks/{id}")).await.0, 404);
    let handle =
        temporal_client().await.get_workflow_handle::<TaskWorkflow>(workflow_id(TaskId(id)));
    assert!(handle.describe(WorkflowDescribeOptions::default()).await.is_err());
    // After the fix, the task is added.
    std::fs::write(&file, "scrum_master:\n  task_loop:\n    max_retries: 2\n").expect("written");
    assert_eq!(server.post("/tasks", &json!({ "id": id, "title": "x" })).await.0, 201);
    server.end().await;
}

#[tokio::test]
async fn a_stale_approval_is_refused_with_both_hashes() {
    let server = TestServer::new().await;
    let project = server.project("/nowhere").await;
    let id = new_id();
    // A task whose plan awaits approval, stored as its workflow would store it.
    let rules = Rules::default();
    let task = json!({
        "id": id, "project": project, "title": "Greet the world", "type": "feature",
    });
    let task = serde_json::from_value(task).expect("task");
    let received = TaskReceived {
        task: TaskId(id),
        project: tamma_core::ids::ProjectId(project),
        priority: tamma_core::task::Priority::Medium,
        at: chrono::DateTime::UNIX_EPOCH + chrono::TimeDelta::days(20_000),
        by: Actor::Tamma,
        auth: None,
        submitted_plan: None,
        edition: Edition::NEWEST,
    };
    let mut first = begin(&received, &rules);
    let path = format!("/tasks/{id}/actions");
    // Without a plan there is nothing to approve.
    server.store.insert_task(&task, &first, &rules).await.expect("written");
    let approve = json!({ "approve": { "plan": "0123456789abcdef" } });
    let (status, problem) = server.post(&path, &approve).await;
    assert_eq!(status, 409);
    assert_eq!(problem["detail"], "`approve` is not possible while the task is pending");

    let id = new_id();
    let path = format!("/tasks/{id}/actions");
    let mut task: tamma_core::task::Task = task;
    task.id = TaskId(id);
    first.next.task = TaskId(id);
    first.next.plan = Some(world::plan(1));
    first.next.pin = Some(world::pin(1));
    first.entries.iter_mut().for_each(|entry| entry.task = TaskId(id));
    server.store.insert_task(&task, &first, &rules).await.expect("written");
    let (status, problem) = server.post(&path, &approve).await;
    assert_eq!((status, &problem["type"]), (409, &json!("tamma:changed")));
    let now = world::plan(1).hash.short();
    let detail = format!("Request refused: plan {now} has replaced plan 0123456789ab.");
    assert_eq!(problem["detail"], json!(detail));
    // Too few digits do not identify a plan.
    let few = json!({ "approve": { "plan": &now[..7] } });
    assert_eq!(server.post(&path, &few).await.0, 422);
    // The current hash reaches the workflow, which does not exist and cannot be recovered without
    // rules.
    let right = json!({ "approve": { "plan": &now[..8] } });
    assert_eq!(server.post(&path, &right).await.0, 404);
    server.end().await;
}

#[tokio::test]
async fn without_a_worker_an_action_times_out_with_a_hint() {
    let server = TestServer::new().await;
    server.project("/nowhere").await;
    let id = new_id();
    let (status, _) = server.post("/tasks", &json!({ "id": id, "title": "x" })).await;
    assert_eq!(status, 201);
    let path = format!("/tasks/{id}/actions");
    let request = server
        .request(Method::POST, &path)
        .header("Tamma-Person", "Ada")
        .json(&json!({ "pause": {} }));
    let response = request.send().await.expect("response");
    assert!(response.headers().contains_key("retry-after"));
    let (status, problem) = read(response).await;
    assert_eq!((status, &problem["type"]), (503, &json!("tamma:no-answer")));
    assert!(
        problem["what_to_do"].as_str().expect("text").starts_with("Check that a worker is running")
    );
    server.end().await;
}

#[tokio::test]
async fn a_change_is_returned_once_it_has_a_review() {
    let server = TestServer::new().await;
    server.project("/nowhere").await;
    let id = new_id();
    server.post("/tasks", &json!({ "id": id, "title": "Greet the world" })).await;
    let path = format!("/tasks/{id}/diff");
    assert_eq!(server.get(&path).await.0, 404);
    let patch = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+y\n";
    let commit: tamma_core::ids::CommitId = "a".repeat(40).parse().expect("commit");
    let record =
        tamma_core::review::record::CheckRecord::Review(tamma_core::review::record::ReviewCheck {
            commit,
            verdict: tamma_core::review::evaluate(tamma_core::review::ReviewInputs::default()),
            diff: Some(server.store.save_text(patch).await.expect("stored")),
            is_diff_truncated: false,
            validator: None,
            second: None,
        });
    server.store.save_check(TaskId(id), 7, 1, &record).await.expect("stored");
    let (status, change) = server.get(&path).await;
    assert_eq!(status, 200, "{change}");
    let expected = json!({
        "commit": commit.to_string(), "passed": true, "patch": patch, "is_truncated": false,
    });
    assert_eq!(change, expected);
    assert_eq!(server.get(&format!("/tasks/{}/diff", new_id())).await.0, 404);
    server.end().await;
}
