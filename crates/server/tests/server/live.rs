//! Live updates of pages: no change is missed, on any server.

use std::time::Duration;

use reqwest::Response;
use serde_json::json;
use tamma_core::task_loop::Action;

use crate::browser::{Browser, Told, between, mine};
use crate::stage::Stage;

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
        let request = http.get(format!("{url}{path}"));
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
            let is_whole = |all: &str| all.find(text).is_some_and(|at| all[at..].contains("\n\n"));
            while !is_whole(&self.all) {
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
        let whole = self.all.rfind("\n\n").map_or("", |end| &self.all[..end]);
        let mut ids = whole.lines().filter_map(|line| line.strip_prefix("id: "));
        ids.next_back().expect("message").to_owned()
    }
}

/// Returns the stream URL of a page.
fn followed(html: &str) -> String {
    between(html, "hx-sse:connect=\"", "\"").replace("&#38;", "&")
}

/// Pauses and resumes the task `times` times: two entries each, in one step.
async fn to_and_fro(told: &mut Told, times: usize) {
    told.happens(|world| {
        for _ in 0..times {
            world.ask(Action::Pause).ask(Action::Resume);
        }
    })
    .await;
}

#[tokio::test]
async fn every_entry_arrives_once_in_order_across_server_restarts() {
    let mut stage = Stage::with(mine()).await;
    let project = stage.project("/nowhere").await;
    let mut told = Told::new(&stage, project, json!({ "title": "Greet" })).await;
    let page = format!("/tasks/{}/events", told.id);
    let html = Browser::new(&stage).page(&page).await;
    let path = followed(&html);
    assert!(html.contains("id=\"e1\""), "{html}");
    // Entries between the page load and the connection are not missed.
    to_and_fro(&mut told, 1).await;
    let mut first = Follower::new(&stage.url, &path, None).await;
    first.until("id=\"e3\"").await;
    // Two servers on the same database both send it.
    let second = stage.beside(mine()).await;
    let mut other = Follower::new(&second.url, &path, Some(&first.last_id())).await;
    to_and_fro(&mut told, 2).await;
    first.until("id=\"e7\"").await;
    other.until("id=\"e7\"").await;
    assert_eq!(first.entries(), (2..=7).collect::<Vec<_>>());
    assert_eq!(other.entries(), (4..=7).collect::<Vec<_>>());
    let last = first.last_id();
    second.end().await;
    stage.stop().await;
    // While no server runs, more entries are stored than fit into one message.
    to_and_fro(&mut told, 250).await;
    told.plan_waits("Kindly", 7).await;
    let newest = told.machine().entry_count;
    let again = stage.beside(mine()).await;
    let mut after = Follower::new(&again.url, &path, Some(&last)).await;
    after.until(&format!("id=\"e{newest}\"")).await;
    // New entries follow.
    to_and_fro(&mut told, 1).await;
    after.until(&format!("id=\"e{}\"", newest + 2)).await;
    assert_eq!(after.entries(), (8..=newest + 2).collect::<Vec<_>>());
    again.end().await;
    stage.end().await;
}

#[tokio::test]
async fn the_board_moves_cards_counts_them_and_catches_up() {
    let mut stage = Stage::with(mine()).await;
    let project = stage.project("/nowhere").await;
    let mut browser = Browser::new(&stage);
    // An empty board is updated too.
    let path = followed(&browser.page("/").await);
    let mut empty = Follower::new(&stage.url, &path, None).await;
    let mut told = Told::new(&stage, project, json!({ "title": "Greet <b>all</b>" })).await;
    let id = told.id;
    let all = empty.until("Greet").await;
    assert!(all.contains("hx-target=\"#board\"") && all.contains("&#60;b&#62;all"), "{all}");
    // A card moves into its column and out of the others.
    let path = followed(&browser.page("/").await);
    told.plan_waits("Kindly", 7).await;
    let mut board = Follower::new(&stage.url, &path, None).await;
    let all = board.until("Needs you").await.to_owned();
    let target =
        format!("hx-target=\".cards:not(#cards-approve) > #card-{id}\" hx-swap=\"delete\"");
    assert!(all.contains(&target), "{all}");
    assert!(all.contains("id=\"count-approve\" class=\"count\">1<"), "{all}");
    assert!(all.contains("id=\"count-receive\" class=\"count\">0<"), "{all}");
    assert!(all.contains("1 open · 1 needs a decision"), "{all}");
    assert!(all.contains("class=\"badge\">1<"), "{all}");
    // A filtered board shows matching tasks only.
    let narrow = followed(&browser.page("/?text=nothing").await);
    let mut narrow = Follower::new(&stage.url, &narrow, None).await;
    let last = board.last_id();
    to_and_fro(&mut told, 1).await;
    let all = narrow.until("hx-target=\"#board\"").await;
    assert!(!all.contains("Greet"), "{all}");
    // After a restart, the missed changes are sent.
    stage.stop().await;
    let mut later = Told::new(&stage, project, json!({ "title": "Thank" })).await;
    later
        .happens(|world| {
            world.ask(Action::Pause);
        })
        .await;
    let again = stage.beside(mine()).await;
    let mut after = Follower::new(&again.url, &path, Some(&last)).await;
    let all = after.until("Thank").await;
    assert!(all.contains("id=\"count-receive\" class=\"count\">1<"), "{all}");
    again.end().await;
    stage.end().await;
}

#[tokio::test]
async fn the_inbox_adds_and_removes_items() {
    let stage = Stage::with(mine()).await;
    let project = stage.project("/nowhere").await;
    let mut told = Told::new(&stage, project, json!({ "title": "Greet <i>all</i>" })).await;
    let id = told.id;
    let path = followed(&Browser::new(&stage).page("/inbox").await);
    let mut inbox = Follower::new(&stage.url, &path, None).await;
    told.plan_waits("Kindly", 7).await;
    // Each step causes an update; the last one is complete.
    let all = inbox.until("Plan 1: 7 files").await;
    let item = format!("id=\"ask-{id}\"");
    assert!(all.contains("Greet &#60;i&#62;all") && all.contains(&item), "{all}");
    told.happens(|world| {
        let scope = world.binding();
        world.ask(Action::Approve { scope, reason: None });
    })
    .await;
    let gone = format!("hx-target=\"#inbox > #ask-{id}\" hx-swap=\"delete\"");
    inbox.all.clear();
    inbox.until(&gone).await;
    assert!(inbox.all.contains("badge none"), "{}", inbox.all);
    stage.end().await;
}

#[tokio::test]
async fn the_stream_of_a_missing_task_is_not_found() {
    let stage = Stage::with(mine()).await;
    let (status, html) = Browser::new(&stage)
        .get(&format!("/live/tasks/{}?seen=1+1.1.1", crate::stage::new_id()))
        .await;
    assert_eq!(status, 404);
    assert!(html.contains("Cannot find task"), "{html}");
    stage.end().await;
}
