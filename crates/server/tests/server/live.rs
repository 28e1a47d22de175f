//! Live updates of pages: no change is missed, on any server.

use std::time::Duration;

use reqwest::Response;
use serde_json::json;
use tamma_core::cost::{Cost, Tokens, Usage};
use tamma_core::ids::TaskId;
use tamma_core::task_loop::Action;
use tamma_store::{LineKind, NewLine, NewRun, RunNumber, RunUpdate, RunningCall};

use crate::browser::{Browser, StoredTask, between, local_config, session_cookie};
use crate::test_server::TestServer;

/// Time limit for an expected update.
const LIMIT: Duration = Duration::from_secs(20);

/// Event stream of a page.
struct Follower {
    stream: Response,
    all: String,
}

impl Follower {
    /// Opens a stream, or resumes it after the last known message.
    async fn new(url: &str, path: &str, last: Option<&str>) -> Self {
        let http = reqwest::Client::builder().no_proxy().build().expect("client");
        let request = http.get(format!("{url}{path}")).header("cookie", session_cookie(url).await);
        let request = match last {
            Some(last) => request.header("Last-Event-ID", last),
            None => request,
        };
        let stream = request.send().await.expect("response");
        assert_eq!(stream.status(), 200, "{path}");
        Self { stream, all: String::new() }
    }

    /// Reads until a text and the rest of its message have been received.
    async fn until(&mut self, text: &str) -> &str {
        let read = async {
            let is_complete =
                |all: &str| all.find(text).is_some_and(|at| all[at..].contains("\n\n"));
            while !is_complete(&self.all) {
                let chunk = self.stream.chunk().await.expect("chunk").expect("more data");
                self.all.push_str(&String::from_utf8_lossy(&chunk));
            }
        };
        let done = tokio::time::timeout(LIMIT, read).await;
        assert!(done.is_ok(), "`{text}` not received: {}", self.all);
        &self.all
    }

    /// Returns the sequence numbers of the received entries, in order.
    fn entries(&self) -> Vec<u64> {
        let mut all = self.all.split("<li id=\"e");
        all.next();
        all.map(|rest| rest.split('"').next().unwrap_or_default().parse().expect("number"))
            .collect()
    }

    /// Returns the ID of the last complete message.
    fn last_id(&self) -> String {
        let complete = self.all.rfind("\n\n").map_or("", |end| &self.all[..end]);
        let mut ids = complete.lines().filter_map(|line| line.strip_prefix("id: "));
        ids.next_back().expect("message").to_owned()
    }
}

/// Returns the path of a page's event stream.
fn stream_path(html: &str) -> String {
    between(html, "hx-sse:connect=\"", "\"").replace("&#38;", "&")
}

/// Pauses and resumes the task `times` times: two entries each, in one step.
async fn pause_and_resume(stored: &mut StoredTask, times: usize) {
    stored
        .apply(|world| {
            for _ in 0..times {
                world.ask(Action::Pause).ask(Action::Resume);
            }
        })
        .await;
}

#[tokio::test]
async fn every_entry_arrives_once_in_order_across_server_restarts() {
    let mut server = TestServer::with(local_config()).await;
    let project = server.project("/nowhere").await;
    let mut stored = StoredTask::new(&server, project, json!({ "title": "Greet" })).await;
    let page = format!("/tasks/{}/events", stored.id);
    let html = Browser::new(&server).page(&page).await;
    let path = stream_path(&html);
    assert!(html.contains("id=\"e1\""), "{html}");
    // Entries between the page load and the connection are not missed.
    pause_and_resume(&mut stored, 1).await;
    let mut first = Follower::new(&server.url, &path, None).await;
    first.until("id=\"e3\"").await;
    // Two servers on the same database both send it.
    let second = server.start_another(local_config()).await;
    let mut other = Follower::new(&second.url, &path, Some(&first.last_id())).await;
    pause_and_resume(&mut stored, 2).await;
    first.until("id=\"e7\"").await;
    other.until("id=\"e7\"").await;
    assert_eq!(first.entries(), (2..=7).collect::<Vec<_>>());
    assert_eq!(other.entries(), (4..=7).collect::<Vec<_>>());
    let last = first.last_id();
    second.end().await;
    server.stop().await;
    // While no server runs, more entries are stored than fit into one message.
    pause_and_resume(&mut stored, 250).await;
    stored.add_plan("Kindly", 7).await;
    let newest = stored.task_loop().entry_count;
    let again = server.start_another(local_config()).await;
    let mut after = Follower::new(&again.url, &path, Some(&last)).await;
    after.until(&format!("id=\"e{newest}\"")).await;
    // New entries follow.
    pause_and_resume(&mut stored, 1).await;
    after.until(&format!("id=\"e{}\"", newest + 2)).await;
    assert_eq!(after.entries(), (8..=newest + 2).collect::<Vec<_>>());
    again.end().await;
    server.end().await;
}

#[tokio::test]
async fn the_board_moves_cards_counts_them_and_catches_up() {
    let mut server = TestServer::with(local_config()).await;
    let project = server.project("/nowhere").await;
    let mut browser = Browser::new(&server);
    // An empty board is updated too.
    let path = stream_path(&browser.page("/").await);
    let mut empty = Follower::new(&server.url, &path, None).await;
    let mut stored =
        StoredTask::new(&server, project, json!({ "title": "Greet <b>all</b>" })).await;
    let id = stored.id;
    let all = empty.until("Greet").await;
    assert!(all.contains("hx-target=\"#board\"") && all.contains("&#60;b&#62;all"), "{all}");
    // A card moves into its column and out of the others.
    let path = stream_path(&browser.page("/").await);
    stored.add_plan("Kindly", 7).await;
    let mut board = Follower::new(&server.url, &path, None).await;
    let all = board.until("Needs you").await.to_owned();
    let target =
        format!("hx-target=\".cards:not(#cards-approve) > #card-{id}\" hx-swap=\"delete\"");
    assert!(all.contains(&target), "{all}");
    assert!(all.contains("id=\"count-approve\" class=\"count\">1<"), "{all}");
    assert!(all.contains("id=\"count-receive\" class=\"count\">0<"), "{all}");
    assert!(all.contains("1 open · 1 decision waiting"), "{all}");
    assert!(all.contains("class=\"badge\">1<"), "{all}");
    // A filtered board shows matching tasks only.
    let narrow = stream_path(&browser.page("/?text=nothing").await);
    let mut narrow = Follower::new(&server.url, &narrow, None).await;
    let last = board.last_id();
    pause_and_resume(&mut stored, 1).await;
    let all = narrow.until("hx-target=\"#board\"").await;
    assert!(!all.contains("Greet"), "{all}");
    // After a restart, the missed changes are sent.
    server.stop().await;
    let mut later = StoredTask::new(&server, project, json!({ "title": "Thank" })).await;
    later
        .apply(|world| {
            world.ask(Action::Pause);
        })
        .await;
    let again = server.start_another(local_config()).await;
    let mut after = Follower::new(&again.url, &path, Some(&last)).await;
    let all = after.until("Thank").await;
    assert!(all.contains("id=\"count-receive\" class=\"count\">1<"), "{all}");
    again.end().await;
    server.end().await;
}

#[tokio::test]
async fn the_inbox_adds_and_removes_items() {
    let server = TestServer::with(local_config()).await;
    let project = server.project("/nowhere").await;
    let mut stored =
        StoredTask::new(&server, project, json!({ "title": "Greet <i>all</i>" })).await;
    let id = stored.id;
    let path = stream_path(&Browser::new(&server).page("/inbox").await);
    let mut inbox = Follower::new(&server.url, &path, None).await;
    stored.add_plan("Kindly", 7).await;
    // Each step causes an update; the last one is complete.
    let all = inbox.until("Plan 1: 7 files").await;
    let item = format!("id=\"ask-{id}\"");
    assert!(all.contains("Greet &#60;i&#62;all") && all.contains(&item), "{all}");
    stored
        .apply(|world| {
            let scope = world.binding();
            world.ask(Action::Approve { scope, reason: None });
        })
        .await;
    let gone = format!("hx-target=\"#inbox > #ask-{id}\" hx-swap=\"delete\"");
    inbox.all.clear();
    inbox.until(&gone).await;
    assert!(inbox.all.contains("badge none"), "{}", inbox.all);
    server.end().await;
}

#[tokio::test]
async fn the_stream_of_a_missing_task_is_not_found() {
    let server = TestServer::with(local_config()).await;
    let (status, html) = Browser::new(&server)
        .get(&format!("/live/tasks/{}?seen=1+1.1.1", crate::test_server::new_id()))
        .await;
    assert_eq!(status, 404);
    assert!(html.contains("Cannot find task"), "{html}");
    server.end().await;
}

#[tokio::test]
async fn the_log_of_a_run_grows_and_its_tokens_and_cost_with_it() {
    let server = TestServer::with(local_config()).await;
    let project = server.project("/nowhere").await;
    let stored = StoredTask::new(&server, project, json!({ "title": "Greet" })).await;
    let (task, at) = (TaskId(stored.id), stored.now());
    let number = RunNumber { job_number: 4, attempt: 1 };
    let (agent, mode) = ("claude-code".to_owned(), "implement".to_owned());
    let run = NewRun { task, number, at, agent, model: None, tier: None, mode, worker: None };
    server.store.begin_run(&run).await.expect("started");
    let mut browser = Browser::new(&server);
    let mut followers = Vec::new();
    for page in [format!("/tasks/{}/log", stored.id), format!("/runs/{}-4", stored.id)] {
        let path = stream_path(&browser.page(&page).await);
        followers.push(Follower::new(&server.url, &path, None).await);
    }
    let usage = |input| {
        let tokens = Tokens { input, output: 234, ..Tokens::default() };
        Some((Usage { tokens, cost: Cost::Known("0.42".parse().expect("money")) }, true))
    };
    let call = json!({ "status": "completed", "kind": "execute", "output": "all green" });
    let text = "cargo test".to_owned();
    let line = NewLine { sequence: 1, at, kind: LineKind::Tool, text, data: Some(call) };
    let running = RunningCall { title: "npm install".to_owned(), kind: None, since: at };
    let update = RunUpdate {
        lines: vec![line],
        usage: usage(1000),
        running: Some(vec![running]),
        ..RunUpdate::default()
    };
    server.store.append_run_update(task, number, &update).await.expect("stored");
    for follower in &mut followers {
        follower.until("npm install").await;
        let all = follower.until("all green").await;
        for expected in ["hx-target=\"#log\"", "Run commands", "1,234 tokens", "$0.42"] {
            assert!(all.contains(expected), "`{expected}` is missing: {all}");
        }
    }
    // Tokens grow without a line.
    let update = RunUpdate { usage: usage(2000), ..RunUpdate::default() };
    server.store.append_run_update(task, number, &update).await.expect("stored");
    for follower in &mut followers {
        follower.until("2,234 tokens").await;
    }
    server.end().await;
}
