//! Adding tasks, and asking them for something.

use reqwest::Method;
use serde_json::json;
use tamma_core::actor::Actor;
use tamma_core::task_loop::{Received, begin};
use tamma_core::version::Edition;
use tamma_core::{ids::TaskId, rules::Rules};
use tamma_flow::{TaskFlow, workflow_id};
use temporalio_client::WorkflowDescribeOptions;

use crate::stage::{Stage, engine, new_id, read};
use crate::world;

#[tokio::test]
async fn a_task_that_is_added_twice_is_there_once() {
    let stage = Stage::new().await;
    stage.project("/nowhere").await;
    let id = new_id();
    let task = json!({ "id": id, "title": "Greet the world", "labels": ["nice"] });
    let (status, added) = stage.post("/tasks", &task).await;
    assert_eq!((status, &added["new"]), (201, &json!(true)), "{added}");
    assert_eq!(added["task"]["state"], "pending");
    let (status, again) = stage.post("/tasks", &task).await;
    assert_eq!((status, &again["new"]), (200, &json!(false)));
    assert_eq!(again["task"]["created_at"], added["task"]["created_at"]);
    // Its workflow is there, and waits for a worker.
    let handle = engine().await.get_workflow_handle::<TaskFlow>(workflow_id(TaskId(id)));
    let described = handle.describe(WorkflowDescribeOptions::default()).await.expect("a workflow");
    assert_eq!(described.raw().pending_activities.len(), 0);
    // Who added it is in the log.
    let (_, history) = stage.get(&format!("/tasks/{id}/history")).await;
    assert_eq!(history["entries"][0]["actor"], json!({ "person": "Ada" }));
    assert_eq!(history["entries"][0]["name"], "SM_TASK_RECEIVED");
    // Another task with its id is none of it.
    let other = json!({ "id": id, "title": "Something else" });
    let (status, problem) = stage.post("/tasks", &other).await;
    assert_eq!(status, 409);
    let detail = format!("there is another task with the id {id}: `Greet the world`");
    assert_eq!(problem["detail"], json!(detail));
    stage.end().await;
}

#[tokio::test]
async fn a_workflow_that_is_there_without_its_row_is_not_started_twice() {
    let stage = Stage::new().await;
    stage.project("/nowhere").await;
    let task = json!({ "id": new_id(), "title": "Greet the world" });
    // The same request at the same time: whoever comes first, there is one task.
    let (one, two) = tokio::join!(stage.post("/tasks", &task), stage.post("/tasks", &task));
    assert!(one.0 <= 201 && two.0 <= 201, "{one:?} {two:?}");
    assert_eq!(one.1["task"]["id"], two.1["task"]["id"]);
    let (_, list) = stage.get("/tasks").await;
    assert_eq!(list["tasks"].as_array().map(Vec::len), Some(1));
    stage.end().await;
}

#[tokio::test]
async fn a_workflow_that_is_there_without_its_row_is_written_as_it_was_started() {
    // Two databases and one engine: the second server is one that lost the row of the first.
    let (first, second) = (Stage::new().await, Stage::new().await);
    let (project, id) = (new_id(), new_id());
    for stage in [&first, &second] {
        let project = json!({ "id": project, "name": "greeter", "repository": "/nowhere" });
        assert_eq!(stage.post("/projects", &project).await.0, 200);
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
    let entry = async |stage: &Stage| stage.get(&history).await.1["entries"][0]["at"].clone();
    assert_eq!(entry(&second).await, entry(&first).await);
    first.end().await;
    second.end().await;
}

#[tokio::test]
async fn a_task_that_makes_no_sense_is_refused_with_what_would() {
    let stage = Stage::new().await;
    let refused = async |body: serde_json::Value| {
        let (status, problem) = stage.post("/tasks", &body).await;
        assert_eq!(status, 422, "{problem}");
        problem["detail"].as_str().expect("a text").to_owned()
    };
    assert_eq!(refused(json!({ "title": "x" })).await, "No project is registered yet.");
    stage.project("/nowhere").await;
    let two = json!({ "name": "other", "repository": "/elsewhere" });
    stage.post("/projects", &two).await;
    let several = "There are several projects: `greeter`, `other`.";
    assert_eq!(refused(json!({ "title": "x" })).await, several);
    let title = "A title is one line of 1 to 200 characters; this one has 0.";
    assert_eq!(refused(json!({ "project": "other", "title": " " })).await, title);
    let missing = new_id();
    let depends = json!({ "project": "other", "title": "x", "depends_on": [missing] });
    let text = format!("It depends on task {missing}, which is not there.");
    assert_eq!(refused(depends).await, text);
    let plan = json!({ "project": "other", "title": "x", "plan": { "summary": "half" } });
    assert!(refused(plan).await.starts_with("The plan cannot be read: "));
    let (status, problem) =
        stage.post("/projects", &json!({ "name": "other", "repository": "/x" })).await;
    assert_eq!(
        (status, &problem["detail"]),
        (422, &json!("There is another project called `other`."))
    );
    stage.end().await;
}

#[tokio::test]
async fn a_broken_configuration_is_told_line_by_line_and_nothing_is_started() {
    let stage = Stage::new().await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tamma.yaml");
    let text = "scrum_master:\n  task_loop:\n    max_retrys: 5\n    timeout_ms: 12\n";
    std::fs::write(&file, text).expect("written");
    stage.project(&folder.path().display().to_string()).await;
    let id = new_id();
    let (status, problem) = stage.post("/tasks", &json!({ "id": id, "title": "x" })).await;
    assert_eq!((status, &problem["type"]), (422, &json!("tamma:configuration")));
    let faults = problem["problems"].as_array().expect("faults");
    assert_eq!(faults.len(), 2);
    assert_eq!(faults[0]["line"], 3);
    assert_eq!(faults[0]["help"], "did you mean `max_retries`?");
    assert_eq!(stage.get(&format!("/tasks/{id}")).await.0, 404);
    let handle = engine().await.get_workflow_handle::<TaskFlow>(workflow_id(TaskId(id)));
    assert!(handle.describe(WorkflowDescribeOptions::default()).await.is_err());
    // Mended, it works.
    std::fs::write(&file, "scrum_master:\n  task_loop:\n    max_retries: 2\n").expect("written");
    assert_eq!(stage.post("/tasks", &json!({ "id": id, "title": "x" })).await.0, 201);
    stage.end().await;
}

#[tokio::test]
async fn a_plan_that_has_changed_is_not_approved_and_both_are_named() {
    let stage = Stage::new().await;
    let project = stage.project("/nowhere").await;
    let id = new_id();
    // A task whose plan waits, written as the loop would have.
    let rules = Rules::default();
    let task = json!({
        "id": id, "project": project, "title": "Greet the world", "type": "feature",
    });
    let task = serde_json::from_value(task).expect("a task");
    let received = Received {
        task: TaskId(id),
        project: tamma_core::ids::ProjectId(project),
        priority: tamma_core::task::Priority::Medium,
        at: chrono::DateTime::UNIX_EPOCH + chrono::TimeDelta::days(20_000),
        by: Actor::Tamma,
        plan: None,
        edition: Edition::NEWEST,
    };
    let mut first = begin(&received, &rules);
    let path = format!("/tasks/{id}/actions");
    // Before there is a plan there is nothing to approve.
    stage.store.receive(&task, &first, &rules).await.expect("written");
    let approve = json!({ "approve": { "plan": "0123456789abcdef" } });
    let (status, problem) = stage.post(&path, &approve).await;
    assert_eq!(status, 409);
    assert_eq!(problem["detail"], "a task that is pending cannot take `approve`");

    let id = new_id();
    let path = format!("/tasks/{id}/actions");
    let mut task: tamma_core::task::Task = task;
    task.id = TaskId(id);
    first.next.task = TaskId(id);
    first.next.plan = Some(world::plan(1));
    first.next.pin = Some(world::pin(1));
    first.entries.iter_mut().for_each(|entry| entry.task = TaskId(id));
    stage.store.receive(&task, &first, &rules).await.expect("written");
    let (status, problem) = stage.post(&path, &approve).await;
    assert_eq!((status, &problem["type"]), (409, &json!("tamma:changed")));
    let now = world::plan(1).hash.short();
    let detail =
        format!("The plan is now {now}, not 0123456789ab: it has changed since you saw it.");
    assert_eq!(problem["detail"], json!(detail));
    // Too few digits do not say which plan was seen.
    let few = json!({ "approve": { "plan": &now[..7] } });
    assert_eq!(stage.post(&path, &few).await.0, 422);
    // The right one goes on to the workflow, which is not there.
    let right = json!({ "approve": { "plan": &now[..8] } });
    assert_eq!(stage.post(&path, &right).await.0, 500);
    stage.end().await;
}

#[tokio::test]
async fn a_loop_without_a_worker_does_not_answer_and_that_is_said() {
    let stage = Stage::new().await;
    stage.project("/nowhere").await;
    let id = new_id();
    let (status, _) = stage.post("/tasks", &json!({ "id": id, "title": "x" })).await;
    assert_eq!(status, 201);
    let path = format!("/tasks/{id}/actions");
    let request = stage
        .request(Method::POST, &path)
        .header("Tamma-Person", "Ada")
        .json(&json!({ "pause": {} }));
    let response = request.send().await.expect("an answer");
    assert!(response.headers().contains_key("retry-after"));
    let (status, problem) = read(response).await;
    assert_eq!((status, &problem["type"]), (503, &json!("tamma:no-answer")));
    assert!(problem["what_to_do"].as_str().expect("a text").starts_with("Is a worker running?"));
    stage.end().await;
}

#[tokio::test]
async fn the_change_of_a_task_is_shown_once_it_was_reviewed() {
    let stage = Stage::new().await;
    stage.project("/nowhere").await;
    let id = new_id();
    stage.post("/tasks", &json!({ "id": id, "title": "Greet the world" })).await;
    let path = format!("/tasks/{id}/diff");
    assert_eq!(stage.get(&path).await.0, 404);
    let patch = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+y\n";
    let commit: tamma_core::ids::CommitId = "a".repeat(40).parse().expect("a commit");
    let record = tamma_core::review::record::Record::Review(tamma_core::review::record::Reviewed {
        commit,
        verdict: tamma_core::review::verdict(tamma_core::review::Inputs::default()),
        diff: Some(stage.store.keep(patch).await.expect("kept")),
        validator: None,
    });
    stage.store.keep_check(TaskId(id), 7, 1, &record).await.expect("kept");
    let (status, change) = stage.get(&path).await;
    assert_eq!(status, 200, "{change}");
    assert_eq!(change, json!({ "commit": commit.to_string(), "passed": true, "patch": patch }));
    assert_eq!(stage.get(&format!("/tasks/{}/diff", new_id())).await.0, 404);
    stage.end().await;
}
