//! Runs, log lines and transcripts.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tamma_core::cost::{Cost, Tokens, Usage};
use tamma_core::ids::TaskId;
use tamma_store::{
    EndedRun, LineKind, NewLine, NewRun, ObjectStorage, RunEnd, RunNumber, RunUpdate, RunningCall,
    Store, transcript_key,
};

use crate::browser::{Browser, local_config};
use crate::test_server::{TestServer, config, new_id};

const RUN: RunNumber = RunNumber { job_number: 4, attempt: 2 };
const LIMIT: Duration = Duration::from_secs(20);

async fn add_task(server: &TestServer) -> TaskId {
    server.project("/nowhere").await;
    let id = new_id();
    let (status, added) = server.post("/tasks", &json!({ "id": id, "title": "one" })).await;
    assert_eq!(status, 201, "{added}");
    TaskId(id)
}

async fn begin(store: &Store, task: TaskId) -> chrono::DateTime<chrono::Utc> {
    let at = store.task(task).await.expect("task").task_loop.expect("readable").since;
    let (agent, mode) = ("claude-code".to_owned(), "implement".to_owned());
    let run = NewRun { task, number: RUN, at, agent, model: None, tier: None, mode, worker: None };
    store.begin_run(&run).await.expect("started");
    at
}

async fn append_lines(store: &Store, task: TaskId, lines: &[(u64, LineKind, &str)]) {
    let at = store.latest_run(task).await.expect("read").expect("run").started_at;
    let line = |(sequence, kind, text): &(u64, LineKind, &str)| NewLine {
        sequence: *sequence,
        at,
        kind: *kind,
        text: (*text).to_owned(),
        data: None,
    };
    let tokens = Tokens { input: 100, output: 5, ..Tokens::default() };
    let update = RunUpdate {
        lines: lines.iter().map(line).collect(),
        usage: Some((Usage { tokens, cost: Cost::Unknown }, false)),
        ..RunUpdate::default()
    };
    store.append_run_update(task, RUN, &update).await.expect("stored");
}

fn texts(page: &Value) -> Vec<&str> {
    let lines = page["lines"].as_array().expect("lines");
    lines.iter().filter_map(|line| line["text"].as_str()).collect()
}

#[tokio::test]
async fn runs_and_log_lines_are_paged_and_filtered() {
    let server = TestServer::new().await;
    let task = add_task(&server).await;
    let id = task.0;
    assert_eq!(server.get(&format!("/tasks/{id}/runs")).await.1, json!({ "runs": [] }));
    assert_eq!(server.get(&format!("/tasks/{id}/lines")).await.1, json!({ "lines": [] }));
    for path in ["runs", "lines", "lines/stream", "runs/4/transcript"] {
        assert_eq!(server.get(&format!("/tasks/{}/{path}", new_id())).await.0, 404, "{path}");
    }
    begin(&server.store, task).await;
    let lines = [
        (1, LineKind::Said, "hello"),
        (2, LineKind::Tool, "Edit a.rs: completed"),
        (3, LineKind::Thought, "hm"),
    ];
    append_lines(&server.store, task, &lines).await;
    let (_, runs) = server.get(&format!("/tasks/{id}/runs")).await;
    assert_eq!(runs["runs"][0]["run"], "4.2");
    assert_eq!(runs["runs"][0]["end"], Value::Null);
    let usage = json!({
        "input": 100, "cached": 0, "cached_percent": 0, "output": 5, "usd": null, "metered": false
    });
    assert_eq!(runs["runs"][0]["usage"], usage, "an unknown cost is not zero");
    // The task shows the current activity.
    let (_, detail) = server.get(&format!("/tasks/{id}")).await;
    assert_eq!(detail["run"]["agent"], "claude-code");
    assert_eq!(detail["run"]["doing"]["text"], "Edit a.rs: completed");

    let (_, first) = server.get(&format!("/tasks/{id}/lines?limit=2")).await;
    assert_eq!(texts(&first), ["hello", "Edit a.rs: completed"]);
    let next = first["next"].as_str().expect("more data");
    assert_eq!(next, "4.2.2");
    let (_, second) = server.get(&format!("/tasks/{id}/lines?limit=2&after={next}")).await;
    assert_eq!(texts(&second), ["hm"]);
    for (query, expected) in [
        ("kinds=said,thought", vec!["hello", "hm"]),
        ("run=4&kinds=tool", vec!["Edit a.rs: completed"]),
        ("run=4.1", vec![]),
        ("after=end", vec![]),
    ] {
        let (_, page) = server.get(&format!("/tasks/{id}/lines?{query}")).await;
        assert_eq!(texts(&page), expected, "{query}");
    }
    // Backwards from the end, and by text.
    let (_, last) = server.get(&format!("/tasks/{id}/lines?limit=2&before=end")).await;
    assert_eq!(texts(&last), ["Edit a.rs: completed", "hm"]);
    assert_eq!(last["previous"], "4.2.2");
    let (_, first) = server.get(&format!("/tasks/{id}/lines?limit=2&before=4.2.2")).await;
    assert_eq!((texts(&first), first.get("previous")), (vec!["hello"], None));
    let (_, found) = server.get(&format!("/tasks/{id}/lines?text=EDIT")).await;
    assert_eq!(texts(&found), ["Edit a.rs: completed"]);
    let strange = ["before=yesterday", "before=end&after=4.2.1"];
    for bad in ["kinds=sung", "run=four", "after=yesterday", "limit=0"].into_iter().chain(strange) {
        assert_eq!(server.get(&format!("/tasks/{id}/lines?{bad}")).await.0, 422, "{bad}");
    }
    server.end().await;
}

/// Reads a stream until it contains a text.
async fn until(stream: &mut reqwest::Response, text: &str) -> String {
    let mut all = String::new();
    let read = async {
        while !all.contains(text) {
            let chunk = stream.chunk().await.expect("chunk").expect("more data");
            all.push_str(&String::from_utf8_lossy(&chunk));
        }
    };
    let done = tokio::time::timeout(LIMIT, read).await;
    assert!(done.is_ok(), "`{text}` not received: {all}");
    all
}

#[tokio::test]
async fn the_log_stream_sends_new_lines_and_the_state_of_run_and_task() {
    let server = TestServer::new().await;
    let task = add_task(&server).await;
    begin(&server.store, task).await;
    append_lines(&server.store, task, &[(1, LineKind::Said, "hello")]).await;
    let path = format!("/tasks/{}/lines/stream", task.0);
    let mut all = server.request(Method::GET, &path).send().await.expect("response");
    let received = until(&mut all, "event: task").await;
    assert!(received.contains("id: 4.2.1") && received.contains("hello"), "{received}");
    assert!(received.contains("event: run"), "{received}");
    // With `after=end`, only new lines are sent.
    let request = server.request(Method::GET, &path).query(&[("after", "end")]);
    let mut live = request.send().await.expect("response");
    until(&mut live, "event: task").await;
    append_lines(&server.store, task, &[(2, LineKind::Tool, "Run the tests")]).await;
    for stream in [&mut all, &mut live] {
        // A late notification can cause one more `run` event first.
        let received = until(stream, "id: 4.2.2").await;
        assert!(!received.contains("hello\""), "{received}");
    }
    // An open stream ends when the server stops.
    server.end().await;
    while let Ok(Some(_)) = live.chunk().await {}
}

#[tokio::test]
async fn a_transcript_is_served_and_an_unreachable_one_is_reported() {
    let folder = tempfile::tempdir().expect("directory");
    let objects = ObjectStorage::new(folder.path().join("objects").display().to_string());
    let config =
        tamma_server::ServerConfig { objects: objects.clone(), ..config("127.0.0.1:0", None) };
    let server = TestServer::with(config).await;
    let task = add_task(&server).await;
    let at = begin(&server.store, task).await;
    let path = format!("/tasks/{}/runs/4/transcript", task.0);
    let (status, problem) = server.get(&path).await;
    assert_eq!(
        (status, &problem["detail"]),
        (404, &json!("Cannot find transcript for run `4.2`."))
    );
    let key = transcript_key(task, RUN);
    let end = RunEnd::Finished;
    let ended = EndedRun { at, end, reason: None, usage: None, transcript: Some(key.clone()) };
    server.store.end_run(task, RUN, &ended).await.expect("ended");
    let (status, problem) = server.get(&path).await;
    assert_eq!((status, &problem["type"]), (404, &json!("tamma:elsewhere")), "{problem}");
    assert!(problem["what_to_do"].as_str().expect("text").contains("TAMMA_OBJECTS"));
    std::fs::write(folder.path().join("spool"), "{\"said\":\"hello\"}\n").expect("written");
    objects.put_file(&key, &folder.path().join("spool")).await.expect("put");
    for run in ["4", "4.2"] {
        let path = format!("/tasks/{}/runs/{run}/transcript", task.0);
        let response = server.request(Method::GET, &path).send().await.expect("response");
        assert_eq!(response.headers()["content-type"], "application/jsonl");
        assert_eq!(response.text().await.expect("text"), "{\"said\":\"hello\"}\n");
    }
    for (run, status) in [("4.1", 404), ("5", 404), ("four", 422)] {
        let path = format!("/tasks/{}/runs/{run}/transcript", task.0);
        assert_eq!(server.get(&path).await.0, status, "{run}");
    }
    // A finished run is not the current run.
    assert_eq!(server.get(&format!("/tasks/{}", task.0)).await.1.get("run"), None);
    server.end().await;
}

#[tokio::test]
async fn a_bundle_has_everything_about_a_task_and_no_secrets() {
    let folder = tempfile::tempdir().expect("directory");
    let objects = ObjectStorage::new(folder.path().join("objects").display().to_string());
    // One secret is known by its variable, the other by its form.
    let (known, token) = ("open sesame".to_owned(), format!("ghp_{}", "a1B2".repeat(9)));
    let config = tamma_server::ServerConfig {
        objects: objects.clone(),
        environment: [("WIDGET_API_KEY".to_owned(), known.clone())].into(),
        ..config("127.0.0.1:0", None)
    };
    let server = TestServer::with(config).await;
    let missing = server.get(&format!("/tasks/{}/bundle", new_id())).await;
    assert_eq!(missing.0, 404);
    let repository = folder.path().join("repository");
    std::fs::create_dir(&repository).expect("created");
    server.project(&repository.display().to_string()).await;
    let task = TaskId(new_id());
    let description = format!("Use {token}, or {known}.");
    let new = json!({ "id": task.0, "title": "one", "description": description });
    assert_eq!(server.post("/tasks", &new).await.0, 201);
    let at = begin(&server.store, task).await;
    append_lines(&server.store, task, &[(1, LineKind::Said, token.as_str())]).await;

    let all_files = |answer: &Value| -> std::collections::BTreeMap<String, String> {
        let text = |file: &Value, key: &str| file[key].as_str().expect("text").to_owned();
        let files = answer["files"].as_array().expect("files").iter();
        files.map(|file| (text(file, "path"), text(file, "text"))).collect()
    };
    let path = format!("/tasks/{}/bundle", task.0);
    // A run without a transcript is represented by its log.
    let (status, answer) = server.get(&path).await;
    assert_eq!(status, 200, "{answer}");
    assert!(all_files(&answer)["runs/4.2/log.jsonl"].contains("[redacted]"), "{answer}");

    let key = transcript_key(task, RUN);
    let line = json!({ "at": at, "said": format!("{token} {known}") });
    // Longer than what is kept, with the secret at both ends.
    let filler = format!("{}\n", json!({ "said": "x".repeat(1000) })).repeat(1000);
    std::fs::write(folder.path().join("spool"), format!("{line}\n{filler}{line}\n"))
        .expect("written");
    objects.put_file(&key, &folder.path().join("spool")).await.expect("put");
    let end = RunEnd::Finished;
    let ended = EndedRun { at, end, reason: None, usage: None, transcript: Some(key) };
    server.store.end_run(task, RUN, &ended).await.expect("ended");
    let (_, answer) = server.get(&path).await;
    let files = all_files(&answer);
    for name in ["task.json", "state.json", "report.json", "checks.json", "history.jsonl"] {
        assert!(files.contains_key(name), "{name}: {:?}", files.keys());
    }
    for name in ["rules.json", "runs.json", "server.json"] {
        assert!(files.contains_key(name), "{name}: {:?}", files.keys());
    }
    for (name, text) in &files {
        assert!(!text.contains(&token) && !text.contains(&known), "{name}: {text}");
    }
    assert!(files["task.json"].contains("Use [redacted], or [secret]."), "{files:?}");
    let transcript = &files["runs/4.2/transcript.jsonl"];
    assert!(transcript.len() < 600 * 1024 && transcript.contains(" bytes left out here]"));
    assert_eq!(transcript.matches("[redacted] [secret]").count(), 2);
    assert_eq!(files.get("problems.txt"), None);

    // Without the configuration, its secrets are unknown. The bundle says so.
    std::fs::write(repository.join("tamma.yaml"), "agents: [").expect("written");
    let (_, answer) = server.get(&path).await;
    let problems = all_files(&answer).remove("problems.txt").expect("problems");
    assert!(problems.contains("values from tamma.yaml were not redacted"), "{problems}");
    server.end().await;
}

/// Line of a failed command.
fn failed_call(sequence: u64, at: chrono::DateTime<chrono::Utc>) -> NewLine {
    let data = json!({
        "status": "failed", "kind": "execute", "exit_code": 101, "ms": 1200,
        "input": "cargo test", "output": "error: it does not greet",
    });
    let text = "cargo test: failed (exit code 101)".to_owned();
    NewLine { sequence, at, kind: LineKind::Tool, text, data: Some(data) }
}

#[tokio::test]
async fn the_page_of_a_run_is_a_transcript_without_javascript() {
    let server = TestServer::with(local_config()).await;
    let task = add_task(&server).await;
    let at = begin(&server.store, task).await;
    let plan = json!({ "document": "plan", "content": { "summary": "Greet everybody." } });
    let text = "plan: Greet everybody.".to_owned();
    let document = NewLine { sequence: 2, at, kind: LineKind::Document, text, data: Some(plan) };
    let tokens = Tokens { input: 1000, output: 234, ..Tokens::default() };
    let usd = Cost::Known("0.42".parse().expect("money"));
    let since = at;
    let running = vec![RunningCall { title: "npm install".to_owned(), kind: None, since }];
    let update = RunUpdate {
        lines: vec![failed_call(1, at), document],
        usage: Some((Usage { tokens, cost: usd }, true)),
        running: Some(running),
        ..RunUpdate::default()
    };
    server.store.append_run_update(task, RUN, &update).await.expect("stored");
    let mut browser = Browser::new(&server);
    let html = browser.page(&format!("/runs/{}-4.2", task.0)).await;
    for expected in [
        // A failure is shown as one, with its input and output.
        "l-failed",
        "cargo test: failed (exit code 101)",
        "error: it does not greet",
        // Groups have their purpose, and documents their sections.
        "Run commands",
        "<h4>Summary</h4><p>Greet everybody.</p>",
        // Running calls, tokens and cost.
        "npm install",
        "1,234 tokens",
        "$0.42",
    ] {
        assert!(html.contains(expected), "`{expected}` is missing: {html}");
    }
    // The activity is the running call.
    let (_, detail) = server.get(&format!("/tasks/{}", task.0)).await;
    assert_eq!(detail["run"]["doing"]["text"], "npm install");
    let page = format!("/runs/{}-4.2?kinds=messages", task.0);
    assert!(!browser.page(&page).await.contains("exit code 101"), "filtered by kind");
    let page = format!("/runs/{}-4.2?text=GREET+EVERY", task.0);
    let found = browser.page(&page).await;
    assert!(found.contains("Greet everybody.") && !found.contains("exit code 101"), "{found}");
    for missing in [format!("{}-9", task.0), format!("{}-4", new_id()), "four".to_owned()] {
        assert_eq!(browser.get(&format!("/runs/{missing}")).await.0, 404, "{missing}");
    }
    server.end().await;
}

/// Adds a task with a run of this many lines, and returns the paths of its log pages.
async fn task_with_log(server: &TestServer, lines: u64) -> [String; 2] {
    let task = add_task(server).await;
    let at = begin(&server.store, task).await;
    for first in (1..=lines).step_by(1_000) {
        let line = |sequence| {
            if sequence % 10 == 0 {
                return failed_call(sequence, at);
            }
            let text = format!("line {sequence}");
            NewLine { sequence, at, kind: LineKind::Said, text, data: None }
        };
        let lines = (first..first + 1_000).map(line).collect();
        let update = RunUpdate { lines, ..RunUpdate::default() };
        server.store.append_run_update(task, RUN, &update).await.expect("stored");
    }
    [format!("/tasks/{}/log", task.0), format!("/runs/{}-4.2", task.0)]
}

/// How fast a page opens in a browser is for `lab browser`; query plans of long logs are tested with
/// the store.
#[tokio::test]
async fn a_long_log_opens_at_its_end() {
    let server = TestServer::with(local_config()).await;
    let mut browser = Browser::new(&server);
    for path in task_with_log(&server, 3_000).await {
        let html = browser.page(&path).await;
        assert!(html.contains("line 2999") && !html.contains("line 1<"), "the last page is first");
        assert!(html.contains("data-log-earlier"), "earlier lines are a page away");
    }
    server.end().await;
}
