//! Oversight by people: ratings, overdue and failing tasks, the agent pool, permissions, edits of
//! plans and regular updates.

use std::pin::Pin;

use axum::body::Bytes;
use futures_util::{Stream, StreamExt as _};
use reqwest::Method;
use serde_json::{Value, json};
use tamma_core::failure::FailureKind;
use tamma_core::task_loop::{Action, State};
use tamma_store::{NewRun, RunNumber};
use uuid::Uuid;

use crate::browser::{Browser, StoredTask, local_config};
use crate::test_server::{TestServer, config, new_id, read};
use crate::world::{failure, reason};

/// Stores a completed task with the title "Greet".
pub(crate) async fn closed_task(server: &TestServer, project: Uuid) -> StoredTask {
    let mut task = StoredTask::new(server, project, json!({ "title": "Greet" })).await;
    // Text of the results that the state machine is given.
    server.store.save_text("\u{1}").await.expect("stored");
    task.add_plan("Greet them", 1).await;
    task.apply(|world| {
        world.walk(State::Completed);
    })
    .await;
    task
}

async fn act_as(server: &TestServer, person: &str, task: Uuid, action: &Value) -> (u16, Value) {
    let request = server.request(Method::POST, &format!("/tasks/{task}/actions"));
    let request = request.header("Tamma-Person", person).json(action);
    read(request.send().await.expect("response")).await
}

async fn call_tool(server: &TestServer, tool: &str, arguments: &Value) -> Value {
    let message = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": tool, "arguments": arguments },
    });
    let request = server.http.post(format!("{}/mcp", server.url)).header("Tamma-Person", "Ada");
    let request = request.header("accept", "application/json, text/event-stream");
    let answer = request.json(&message).send().await.expect("response");
    let answer: Value = answer.json().await.expect("JSON");
    let text = answer["result"]["content"][0]["text"].as_str().expect("text");
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

#[tokio::test]
async fn people_rate_closed_tasks_and_the_metrics_count_the_newest_rating() {
    let server = TestServer::with(local_config()).await;
    let project = server.project("/nowhere").await;
    let task = closed_task(&server, project).await;
    let rate = |stars: u8| json!({ "rate": { "stars": stars, "reason": "quick" } });
    for stars in [1, 4] {
        let (status, rated) = act_as(&server, "Ada", task.id, &rate(stars)).await;
        assert_eq!((status, &rated["state"]), (200, &json!("completed")), "{rated}");
    }
    let rated = call_tool(&server, "rate_task", &json!({ "task": task.id, "stars": 0 })).await;
    assert!(rated.as_str().is_some_and(|text| text.contains("use 1 to 5 stars")), "{rated}");
    let (status, _) = act_as(&server, "Bob", task.id, &rate(5)).await;
    assert_eq!(status, 200);
    let (_, detail) = server.get(&format!("/tasks/{}", task.id)).await;
    assert_eq!(detail["ratings"], json!({ "Ada": 4, "Bob": 5 }));
    let (_, metrics) = server.get("/metrics?days=366").await;
    assert_eq!(metrics["figures"]["rating_hundredths"], 450, "{metrics}");
    let (_, history) = server.get(&format!("/tasks/{}/history?limit=500", task.id)).await;
    let entries = history["entries"].as_array().expect("entries");
    let ratings: Vec<_> = entries.iter().filter(|it| it["name"] == "SM_TASK_RATED").collect();
    assert_eq!(ratings.len(), 3);
    assert_eq!(
        (&ratings[0]["reason"], &ratings[0]["actor"]["person"]),
        (&json!("quick"), &json!("Ada"))
    );
    // On the page, too.
    let mut browser = Browser::new(&server);
    let page = format!("/tasks/{}", task.id);
    assert!(browser.page(&page).await.contains("Rate task"));
    let response = browser.post(&page, &format!("{page}/actions"), "action=rate&stars=2").await;
    assert!(response.status().is_redirection(), "{response:?}");
    assert!(browser.page(&page).await.contains("2 of 5 by Ada"));
    // An open task cannot be rated.
    let open = StoredTask::new(&server, project, json!({ "title": "Greet again" })).await;
    let (status, problem) = act_as(&server, "Ada", open.id, &rate(5)).await;
    assert_eq!(status, 409, "{problem}");
    server.end().await;
}

#[tokio::test]
async fn overdue_and_failing_tasks_are_listed_on_every_interface() {
    let server = TestServer::with(local_config()).await;
    let project = server.project("/nowhere").await;
    // The task has waited since 2024, so it is overdue.
    let mut overdue = StoredTask::new(&server, project, json!({ "title": "Late" })).await;
    overdue
        .apply(|world| {
            world.walk(State::Planning);
        })
        .await;
    let mut failing = StoredTask::new(&server, project, json!({ "title": "Broken" })).await;
    failing
        .apply(|world| {
            world.walk(State::InProgress);
        })
        .await;
    for _ in 0..3 {
        failing
            .apply(|world| {
                world.done(failure(FailureKind::Crashed));
                if world.it.state == State::Validated {
                    world.start();
                }
            })
            .await;
    }
    let (_, detail) = server.get(&format!("/tasks/{}", failing.id)).await;
    assert!(detail["failures"].as_u64() >= Some(3), "{detail}");
    let titles = |page: &Value| -> Vec<String> {
        let tasks = page["tasks"].as_array().expect("tasks").iter();
        tasks.filter_map(|task| task["title"].as_str().map(str::to_owned)).collect()
    };
    let (_, page) = server.get("/tasks/overdue?project=greeter").await;
    assert!(titles(&page).contains(&"Late".to_owned()), "{page}");
    let (_, page) = server.get("/tasks/failing").await;
    assert_eq!(titles(&page), ["Broken"]);
    assert_eq!(server.get("/tasks/failing?project=other").await.0, 404);
    // After three failures, the council has it.
    let (_, page) = server.get("/tasks?state=cto_intervention").await;
    assert_eq!(titles(&page), ["Broken"]);
    let page = call_tool(&server, "list_tasks", &json!({ "failing": true })).await;
    assert_eq!(titles(&page), ["Broken"]);
    let page = call_tool(&server, "list_tasks", &json!({ "overdue": true })).await;
    assert!(titles(&page).contains(&"Late".to_owned()), "{page}");
    let html = Browser::new(&server).page("/inbox").await;
    assert!(html.contains("Overdue") && html.contains("Failing repeatedly"), "{html}");
    // Time in each state, over the API.
    let (_, detail) = server.get(&format!("/tasks/{}", overdue.id)).await;
    let states = detail["states"].as_array().expect("states");
    let names: Vec<_> = states.iter().filter_map(|it| it["state"].as_str()).collect();
    assert_eq!(names, ["pending", "assigned", "planning"]);
    assert!(states[2]["seconds"].as_u64() > Some(86_400), "{detail}");
    server.end().await;
}

#[tokio::test]
async fn maintenance_is_shown_on_every_page_until_it_ends() {
    let server = TestServer::with(local_config()).await;
    let project = server.project("/nowhere").await;
    let task = StoredTask::new(&server, project, json!({ "title": "Greet" })).await;
    let mut browser = Browser::new(&server);
    let pages = ["/".to_owned(), "/inbox".to_owned(), format!("/tasks/{}", task.id)];
    let (status, none) = server.get("/maintenance").await;
    assert_eq!((status, none), (200, json!({})));
    let reason = json!({ "reason": " new <b>disks</b> " });
    let (status, started) = server.post("/maintenance", &reason).await;
    assert_eq!((status, &started["maintenance"]["reason"]), (200, &json!("new <b>disks</b>")));
    assert!(server.store.record_heartbeat("here", 2, "bubblewrap").await.expect("stored"));
    for page in &pages {
        let html = browser.page(page).await;
        assert!(html.contains("Maintenance: new ") && !html.contains("<b>disks"), "{html}");
    }
    assert_eq!(server.post("/maintenance", &json!({ "reason": " " })).await.0, 422);
    let (status, ended) = server.post("/maintenance/end", &json!({})).await;
    assert_eq!((status, ended), (200, json!({})));
    assert!(!server.store.record_heartbeat("here", 2, "bubblewrap").await.expect("stored"));
    for page in &pages {
        assert!(!browser.page(page).await.contains("Maintenance: "), "{page}");
    }
    server.end().await;
}

#[tokio::test]
async fn the_agent_pool_is_shown_over_the_api_and_mcp() {
    let server = TestServer::with(local_config()).await;
    let project = server.project("/nowhere").await;
    let task = StoredTask::new(&server, project, json!({ "title": "Greet" })).await;
    server.store.record_heartbeat("here", 2, "bubblewrap").await.expect("stored");
    let run = NewRun {
        task: tamma_core::ids::TaskId(task.id),
        number: RunNumber { job_number: 4, attempt: 1 },
        at: task.now(),
        agent: "codex".to_owned(),
        model: None,
        tier: None,
        mode: "implement".to_owned(),
        worker: Some("here".to_owned()),
    };
    server.store.begin_run(&run).await.expect("started");
    let (_, pool) = server.get("/agents").await;
    assert_eq!((&pool["active_runs"], &pool["free_slots"]), (&json!(1), &json!(1)), "{pool}");
    let worker = &pool["workers"][0];
    assert_eq!((&worker["name"], &worker["online"]), (&json!("here"), &json!(true)));
    assert_eq!(worker["runs"][0]["title"], "Greet");
    let by_mcp = call_tool(&server, "show_agents", &json!({})).await;
    assert_eq!(by_mcp["workers"][0]["runs"], worker["runs"]);
    assert!(Browser::new(&server).page("/engines").await.contains("1 run active, 1 slot free"));
    server.end().await;
}

#[tokio::test]
async fn effective_permissions_include_defaults_and_the_rules_of_the_project() {
    let server = TestServer::new().await;
    let folder = tempfile::tempdir().expect("directory");
    let text = "people: { everybody: member, named: { Ada: approver } }\n\
                permissions: { implementer: { deny: ['write: db/**'] } }\n";
    std::fs::write(folder.path().join("tamma.yaml"), text).expect("written");
    server.project(&folder.path().display().to_string()).await;
    let ada = server.token_of("Ada").await;
    let request = server.request(Method::GET, "/permissions").bearer_auth(&ada);
    let (status, permissions) = read(request.send().await.expect("response")).await;
    assert_eq!(status, 200, "{permissions}");
    assert_eq!(permissions["people"]["you"], "approver");
    assert_eq!(permissions["people"]["roles"]["member"], json!(["read", "work"]));
    assert_eq!(permissions["people"]["named"], json!({ "Ada": "approver" }));
    let of = |role: &str| {
        let agents = permissions["agents"].as_array().expect("roles");
        let role = agents.iter().find(|it| it["role"] == role).expect("role");
        role["permissions"].as_array().expect("permissions").clone()
    };
    let rule = json!("write: db/**");
    assert!(of("implementer").iter().any(|it| it["rule"] == rule && it["default"] == false));
    assert!(of("planner").iter().all(|it| it["default"] == true));
    let by_mcp = call_tool(&server, "show_permissions", &json!({})).await;
    assert_eq!(by_mcp["people"]["you"], "operator");
    assert_eq!(by_mcp["agents"], permissions["agents"]);
    server.end().await;
}

#[tokio::test]
async fn an_edit_that_does_not_fit_the_plan_is_refused_before_it_reaches_the_task() {
    let server = TestServer::new().await;
    let project = server.project("/nowhere").await;
    let mut task = StoredTask::new(&server, project, json!({ "title": "Greet" })).await;
    let plan = task.add_plan("Greets", 7).await.plan.clone().expect("plan").hash.to_string();
    let adjust = |adjustments: Value| json!({ "adjust_plan": { "plan": plan, "adjustments": adjustments, "reason": "too much" } });
    for (adjustments, expected) in [
        (json!([]), "The plan is unchanged."),
        (json!([{ "field": "title", "new_value": "x" }]), "A plan has no field `title`"),
        (json!([{ "field": "approach", "new_value": 5 }]), "`approach` cannot have this value"),
        (
            json!([{ "field": "approach", "original_value": "other", "new_value": "x" }]),
            "`approach` has changed since you saw it",
        ),
        (json!([{ "field": "file_changes", "new_value": [] }]), "The edited plan is invalid"),
    ] {
        let (status, problem) = act_as(&server, "Ada", task.id, &adjust(adjustments)).await;
        assert_eq!(status, 422, "{problem}");
        let detail = problem["detail"].as_str().expect("text");
        let fits = detail.to_lowercase().starts_with(&expected.to_lowercase());
        assert!(fits, "{detail} is not {expected}");
    }
    server.end().await;
}

/// Stream of a task's events.
struct EventStream {
    body: Pin<Box<dyn Stream<Item = reqwest::Result<Bytes>>>>,
    text: String,
}

impl EventStream {
    async fn open(server: &TestServer, path: &str) -> Self {
        let response = server.request(Method::GET, path).send().await.expect("response");
        Self { body: Box::pin(response.bytes_stream()), text: String::new() }
    }

    /// Returns the name and data of the next event. Keep-alive comments are skipped.
    async fn next(&mut self) -> (String, Value) {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
                let name = field("event: ").map(str::to_owned);
                let data = field("data: ").map(|data| serde_json::from_str(data).expect("JSON"));
                let rest = rest.to_owned();
                self.text = rest;
                if let (Some(name), Some(data)) = (name, data) {
                    return (name, data);
                }
            } else {
                let chunk = self.body.next().await.expect("an event").expect("a chunk");
                self.text.push_str(&String::from_utf8_lossy(&chunk));
            }
        }
    }

    /// Returns the time of the next update, and skips entries.
    async fn next_update(&mut self) -> chrono::DateTime<chrono::Utc> {
        loop {
            let (name, data) = self.next().await;
            if name == "update" {
                assert_eq!(data["task"]["state"], "pending", "{data}");
                return data["at"].as_str().expect("time").parse().expect("time");
            }
        }
    }
}

#[tokio::test]
async fn updates_come_at_the_configured_interval_and_never_more_often() {
    let server = TestServer::new().await;
    let folder = tempfile::tempdir().expect("directory");
    let file = folder.path().join("tamma.yaml");
    let write = |interaction: &str| {
        let text = format!("scrum_master: {{ user_interaction: {{ {interaction} }} }}");
        std::fs::write(&file, text).expect("written");
    };
    write("");
    server.project(&folder.path().display().to_string()).await;
    let (status, added) = server.post("/tasks", &json!({ "id": new_id(), "title": "Greet" })).await;
    assert_eq!(status, 201, "{added}");
    let path = format!("/tasks/{}/events", added["task"]["id"].as_str().expect("ID"));
    // The same task with three configurations. The rules are read when a stream is opened.
    let mut by_default = EventStream::open(&server, &path).await;
    write("proactive_updates: false, update_interval_seconds: 1");
    let mut off = EventStream::open(&server, &path).await;
    write("update_interval_seconds: 1");
    let mut frequent = EventStream::open(&server, &path).await;
    for stream in [&mut by_default, &mut off] {
        let (_, entry) = stream.next().await;
        assert_eq!(entry["name"], "SM_TASK_RECEIVED", "{entry}");
    }
    // The frequent stream has five updates before the one that was opened first has any.
    let times = tokio::select! {
        update = by_default.next_update() => panic!("an update with the default interval: {update}"),
        event = off.next() => panic!("an event without updates: {event:?}"),
        times = async {
            let mut times = Vec::new();
            while times.len() < 5 {
                times.push(frequent.next_update().await);
            }
            times
        } => times,
    };
    for pair in times.windows(2) {
        assert!(pair[1] - pair[0] >= chrono::TimeDelta::seconds(1), "{times:?}");
    }
    drop((by_default, off, frequent));
    server.end().await;
}

#[tokio::test]
async fn new_rules_are_applied_by_approvers_and_reach_open_tasks() {
    let server = TestServer::with(config("127.0.0.1:0", None)).await;
    let folder = tempfile::tempdir().expect("directory");
    let people = "people: { everybody: member, named: { Ada: approver } }\n";
    std::fs::write(folder.path().join("tamma.yaml"), people).expect("written");
    let project = server.project(&folder.path().display().to_string()).await;
    // A task whose workflow does not exist keeps its rules, and the response says why.
    let mut task = StoredTask::new(&server, project, json!({ "title": "Greet" })).await;
    task.apply(|world| {
        world.walk(State::Planning);
    })
    .await;
    let mut closed = StoredTask::new(&server, project, json!({ "title": "Done" })).await;
    closed
        .apply(|world| {
            world.ask(Action::Cancel { reason: reason() });
        })
        .await;
    let (status, applied) = server.post("/projects/greeter/rules", &json!({})).await;
    assert_eq!(status, 200, "{applied}");
    let tasks = applied["tasks"].as_array().expect("tasks");
    assert_eq!(tasks.len(), 1, "{applied}");
    assert_eq!((&tasks[0]["title"], &tasks[0]["state"]), (&json!("Greet"), &json!("planning")));
    assert!(tasks[0]["error"].is_string(), "{applied}");
    let request = server.request(Method::POST, "/projects/greeter/rules");
    let request = request.bearer_auth(server.token_of("Max").await).json(&json!({}));
    assert_eq!(read(request.send().await.expect("response")).await.0, 403);
    assert_eq!(server.post("/projects/unknown/rules", &json!({})).await.0, 404);
    server.end().await;
}
