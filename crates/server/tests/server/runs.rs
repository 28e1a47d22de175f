//! Runs, their lines and their transcripts.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tamma_core::cost::{Cost, Tokens, Usage};
use tamma_core::ids::TaskId;
use tamma_store::{
    EndedRun, LineKind, NewLine, NewRun, News, Objects, RunEnd, RunNumber, Store, transcript_key,
};

use crate::stage::{Stage, config, new_id};

const RUN: RunNumber = RunNumber { ticket: 4, attempt: 2 };
const LIMIT: Duration = Duration::from_secs(20);

async fn task(stage: &Stage) -> TaskId {
    stage.project("/nowhere").await;
    let id = new_id();
    let (status, added) = stage.post("/tasks", &json!({ "id": id, "title": "one" })).await;
    assert_eq!(status, 201, "{added}");
    TaskId(id)
}

async fn begin(store: &Store, task: TaskId) -> chrono::DateTime<chrono::Utc> {
    let at = store.task(task).await.expect("a task").machine.expect("readable").since;
    let (agent, mode) = ("claude-code".to_owned(), "implement".to_owned());
    let run = NewRun { task, number: RUN, at, agent, model: None, tier: None, mode, worker: None };
    store.begin_run(&run).await.expect("begun");
    at
}

async fn say(store: &Store, task: TaskId, lines: &[(u64, LineKind, &str)]) {
    let at = store.latest_run(task).await.expect("read").expect("a run").started_at;
    let line = |(sequence, kind, text): &(u64, LineKind, &str)| NewLine {
        sequence: *sequence,
        at,
        kind: *kind,
        text: (*text).to_owned(),
        data: None,
    };
    let tokens = Tokens { input: 100, cached: 0, output: 5 };
    let news = News {
        lines: lines.iter().map(line).collect(),
        usage: Some((Usage { tokens, cost: Cost::Unknown }, false)),
        ..News::default()
    };
    store.tell(task, RUN, &news).await.expect("told");
}

fn texts(page: &Value) -> Vec<&str> {
    let lines = page["lines"].as_array().expect("lines");
    lines.iter().filter_map(|line| line["text"].as_str()).collect()
}

#[tokio::test]
async fn runs_and_their_lines_are_told_page_by_page() {
    let stage = Stage::new().await;
    let task = task(&stage).await;
    let id = task.0;
    assert_eq!(stage.get(&format!("/tasks/{id}/runs")).await.1, json!({ "runs": [] }));
    assert_eq!(stage.get(&format!("/tasks/{id}/lines")).await.1, json!({ "lines": [] }));
    for path in ["runs", "lines", "lines/stream", "runs/4/transcript"] {
        assert_eq!(stage.get(&format!("/tasks/{}/{path}", new_id())).await.0, 404, "{path}");
    }
    begin(&stage.store, task).await;
    let lines = [
        (1, LineKind::Said, "hello"),
        (2, LineKind::Tool, "Edit a.rs: completed"),
        (3, LineKind::Thought, "hm"),
    ];
    say(&stage.store, task, &lines).await;
    let (_, runs) = stage.get(&format!("/tasks/{id}/runs")).await;
    assert_eq!(runs["runs"][0]["run"], "4.2");
    assert_eq!(runs["runs"][0]["end"], Value::Null);
    let usage = json!({ "input": 100, "cached": 0, "output": 5, "usd": null, "metered": false });
    assert_eq!(runs["runs"][0]["usage"], usage, "unknown is not zero");
    // The task says what is done at the moment.
    let (_, whole) = stage.get(&format!("/tasks/{id}")).await;
    assert_eq!(whole["run"]["agent"], "claude-code");
    assert_eq!(whole["run"]["doing"]["text"], "Edit a.rs: completed");

    let (_, first) = stage.get(&format!("/tasks/{id}/lines?limit=2")).await;
    assert_eq!(texts(&first), ["hello", "Edit a.rs: completed"]);
    let next = first["next"].as_str().expect("more");
    assert_eq!(next, "4.2.2");
    let (_, second) = stage.get(&format!("/tasks/{id}/lines?limit=2&after={next}")).await;
    assert_eq!(texts(&second), ["hm"]);
    for (query, expected) in [
        ("kinds=said,thought", vec!["hello", "hm"]),
        ("run=4&kinds=tool", vec!["Edit a.rs: completed"]),
        ("run=4.1", vec![]),
        ("after=end", vec![]),
    ] {
        let (_, page) = stage.get(&format!("/tasks/{id}/lines?{query}")).await;
        assert_eq!(texts(&page), expected, "{query}");
    }
    for bad in ["kinds=sung", "run=four", "after=yesterday", "limit=0"] {
        assert_eq!(stage.get(&format!("/tasks/{id}/lines?{bad}")).await.0, 422, "{bad}");
    }
    stage.end().await;
}

/// Reads a stream until some text has come.
async fn until(stream: &mut reqwest::Response, text: &str) -> String {
    let mut all = String::new();
    let read = async {
        while !all.contains(text) {
            let chunk = stream.chunk().await.expect("a chunk").expect("more");
            all.push_str(&String::from_utf8_lossy(&chunk));
        }
    };
    let done = tokio::time::timeout(LIMIT, read).await;
    assert!(done.is_ok(), "`{text}` does not come: {all}");
    all
}

#[tokio::test]
async fn lines_are_streamed_as_they_come_with_how_the_run_and_the_task_stand() {
    let stage = Stage::new().await;
    let task = task(&stage).await;
    begin(&stage.store, task).await;
    say(&stage.store, task, &[(1, LineKind::Said, "hello")]).await;
    let path = format!("/tasks/{}/lines/stream", task.0);
    let mut all = stage.request(Method::GET, &path).send().await.expect("an answer");
    let told = until(&mut all, "event: task").await;
    assert!(told.contains("id: 4.2.1") && told.contains("hello"), "{told}");
    assert!(told.contains("event: run"), "{told}");
    // From now on: nothing comes again, and what comes then does.
    let request = stage.request(Method::GET, &path).query(&[("after", "end")]);
    let mut live = request.send().await.expect("an answer");
    until(&mut live, "event: task").await;
    say(&stage.store, task, &[(2, LineKind::Tool, "Run the tests")]).await;
    for stream in [&mut all, &mut live] {
        // How the run stands may be told once more before it: a notice may come late.
        let told = until(stream, "id: 4.2.2").await;
        assert!(!told.contains("hello\""), "{told}");
    }
    // A stream that would never end ends with the server.
    stage.end().await;
    while let Ok(Some(_)) = live.chunk().await {}
}

#[tokio::test]
async fn a_transcript_is_read_where_it_is_kept_and_elsewhere_that_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let objects = Objects::new(folder.path().join("objects").display().to_string());
    let config = tamma_server::Config { objects: objects.clone(), ..config("127.0.0.1:0", None) };
    let stage = Stage::with(config).await;
    let task = task(&stage).await;
    let at = begin(&stage.store, task).await;
    let path = format!("/tasks/{}/runs/4/transcript", task.0);
    let (status, problem) = stage.get(&path).await;
    assert_eq!(
        (status, &problem["detail"]),
        (404, &json!("There is no transcript yet of run `4.2`."))
    );
    let key = transcript_key(task, RUN);
    let end = RunEnd::Finished;
    let ended = EndedRun { at, end, reason: None, usage: None, transcript: Some(key.clone()) };
    stage.store.end_run(task, RUN, &ended).await.expect("ended");
    let (status, problem) = stage.get(&path).await;
    assert_eq!((status, &problem["type"]), (404, &json!("tamma:elsewhere")), "{problem}");
    assert!(problem["what_to_do"].as_str().expect("a text").contains("TAMMA_OBJECTS"));
    std::fs::write(folder.path().join("spool"), "{\"said\":\"hello\"}\n").expect("written");
    objects.put_file(&key, &folder.path().join("spool")).await.expect("put");
    for run in ["4", "4.2"] {
        let path = format!("/tasks/{}/runs/{run}/transcript", task.0);
        let response = stage.request(Method::GET, &path).send().await.expect("an answer");
        assert_eq!(response.headers()["content-type"], "application/jsonl");
        assert_eq!(response.text().await.expect("a text"), "{\"said\":\"hello\"}\n");
    }
    for (run, status) in [("4.1", 404), ("5", 404), ("four", 422)] {
        let path = format!("/tasks/{}/runs/{run}/transcript", task.0);
        assert_eq!(stage.get(&path).await.0, status, "{run}");
    }
    // A run that has ended is not what is done at the moment.
    assert_eq!(stage.get(&format!("/tasks/{}", task.0)).await.1.get("run"), None);
    stage.end().await;
}
