//! Lists, history export and the event stream.

use reqwest::Method;
use serde_json::{Value, json};

use crate::test_server::{TestServer, new_id};

async fn add(server: &TestServer, title: &str) -> String {
    let (status, added) = server.post("/tasks", &json!({ "id": new_id(), "title": title })).await;
    assert_eq!(status, 201, "{added}");
    added["task"]["id"].as_str().expect("ID").to_owned()
}

fn titles(page: &Value) -> Vec<&str> {
    let tasks = page["tasks"].as_array().expect("tasks");
    tasks.iter().filter_map(|task| task["title"].as_str()).collect()
}

#[tokio::test]
async fn a_list_continues_after_the_last_page() {
    let server = TestServer::new().await;
    server.project("/nowhere").await;
    for title in ["one", "two", "three"] {
        add(&server, title).await;
    }
    let (_, first) = server.get("/tasks?limit=2").await;
    assert_eq!(titles(&first), ["three", "two"]);
    let next = first["next"].as_str().expect("more data");
    let (_, second) = server.get(&format!("/tasks?limit=2&after={next}")).await;
    assert_eq!(titles(&second), ["one"]);
    assert_eq!(second.get("next"), None);
    assert_eq!(titles(&server.get("/tasks?text=two").await.1), ["two"]);
    assert_eq!(titles(&server.get("/tasks?state=live&phase=receive").await.1).len(), 3);
    assert_eq!(titles(&server.get("/tasks?state=completed,failed").await.1).len(), 0);
    assert_eq!(titles(&server.get("/inbox").await.1).len(), 0);
    for bad in ["limit=0", "limit=501", "after=yesterday", "short=12", "short=xyzw"] {
        assert_eq!(server.get(&format!("/tasks?{bad}")).await.0, 422, "{bad}");
    }
    assert_eq!(server.get("/inbox?after=1-2").await.0, 422);
    server.end().await;
}

#[tokio::test]
async fn a_task_is_found_by_its_short_id() {
    let server = TestServer::new().await;
    server.project("/nowhere").await;
    let id = add(&server, "one").await;
    add(&server, "two").await;
    let short = &id[id.len() - 8..];
    let (_, page) = server.get(&format!("/tasks?short={}", short.to_uppercase())).await;
    assert_eq!(titles(&page), ["one"]);
    // People type the first digits of the form that lists show.
    let (_, page) = server.get(&format!("/tasks?short={}", &short[..6])).await;
    assert_eq!(titles(&page), ["one"]);
    // The first digits encode the time, which both tasks share.
    let (_, page) = server.get(&format!("/tasks?short={}", &id[..8])).await;
    assert_eq!(titles(&page).len(), 2);
    let (_, detail) = server.get(&format!("/tasks/{id}")).await;
    assert_eq!(detail["short"], short);
    assert_eq!(detail["question"], Value::Null);
    assert_eq!(server.get(&format!("/tasks/{id}/plan")).await.0, 404);
    server.end().await;
}

#[tokio::test]
async fn history_is_exported_by_task_by_project_or_in_full() {
    let server = TestServer::new().await;
    server.project("/nowhere").await;
    let id = add(&server, "one").await;
    add(&server, "two").await;
    for (path, lines) in [
        ("/export".to_owned(), 2),
        ("/export?project=greeter".to_owned(), 2),
        (format!("/export?task={id}"), 1),
    ] {
        let response = server.request(Method::GET, &path).send().await.expect("response");
        let text = response.text().await.expect("text");
        assert_eq!(text.lines().count(), lines, "{path}");
        for line in text.lines() {
            let entry: Value = serde_json::from_str(line).expect("JSON");
            assert_eq!(entry["name"], "SM_TASK_RECEIVED");
        }
    }
    assert_eq!(server.get(&format!("/export?task={}", new_id())).await.0, 404);
    assert_eq!(server.get("/metrics").await.1["figures"]["ended"], 0);
    assert_eq!(server.get("/metrics?days=0").await.0, 422);
    server.end().await;
}

#[tokio::test]
async fn the_event_stream_replays_then_follows_and_ends_with_the_server() {
    let server = TestServer::new().await;
    server.project("/nowhere").await;
    let id = add(&server, "one").await;
    let path = format!("/tasks/{id}/events");
    let mut response = server.request(Method::GET, &path).send().await.expect("response");
    let first = response.chunk().await.expect("chunk").expect("event");
    let first = String::from_utf8_lossy(&first).into_owned();
    assert!(first.contains("id: 1\n") && first.contains("SM_TASK_RECEIVED"), "{first}");
    // A client that reconnects receives only newer entries.
    let request = server.request(Method::GET, &path).header("last-event-id", "1");
    let mut live = request.send().await.expect("response");
    let stored = server.store.task(id.parse().map(tamma_core::ids::TaskId).expect("ID")).await;
    let task_loop = stored.expect("task").task_loop.expect("readable");
    let event = tamma_core::task_loop::TaskEvent {
        format: tamma_core::version::FormatVersion,
        at: task_loop.since,
        by: crate::world::person("ann"),
        auth: None,
        kind: tamma_core::task_loop::EventKind::ActionRequested(
            tamma_core::task_loop::Action::Pause,
        ),
    };
    let rules = tamma_core::rules::Rules::default();
    let step = tamma_core::step(&task_loop, &event, &rules).expect("accepted");
    let record = tamma_core::task_loop::StepRecord::new(1, event.at, step);
    server.store.save_steps(&[record], &rules).await.expect("written");
    let next = live.chunk().await.expect("chunk").expect("event");
    let next = String::from_utf8_lossy(&next).into_owned();
    assert!(next.contains("id: 2\n") && next.contains("SM_TASK_PAUSED"), "{next}");
    // An open stream ends when the server stops.
    server.end().await;
    while let Ok(Some(_)) = live.chunk().await {}
}
