//! What changes while somebody looks: nothing is missed, whatever server they look at.

use std::time::Duration;

use reqwest::Response;
use serde_json::json;
use tamma_core::task_loop::Action;

use crate::browser::{Browser, Told, between, mine};
use crate::stage::Stage;

/// How long something may take that is under way.
const LIMIT: Duration = Duration::from_secs(20);

/// What a browser follows.
struct Follower {
    stream: Response,
    all: String,
}

impl Follower {
    /// Follows what a page says, or goes on after the last message that is known.
    async fn new(url: &str, path: &str, last: Option<&str>) -> Self {
        let http = reqwest::Client::builder().no_proxy().build().expect("a client");
        let request = http.get(format!("{url}{path}"));
        let request = match last {
            Some(last) => request.header("Last-Event-ID", last),
            None => request,
        };
        let stream = request.send().await.expect("an answer");
        assert_eq!(stream.status(), 200, "{path}");
        Self { stream, all: String::new() }
    }

    /// Reads until a text has come, and the rest of its message.
    async fn until(&mut self, text: &str) -> &str {
        let read = async {
            let is_whole = |all: &str| all.find(text).is_some_and(|at| all[at..].contains("\n\n"));
            while !is_whole(&self.all) {
                let chunk = self.stream.chunk().await.expect("a chunk").expect("more");
                self.all.push_str(&String::from_utf8_lossy(&chunk));
            }
        };
        let done = tokio::time::timeout(LIMIT, read).await;
        assert!(done.is_ok(), "`{text}` does not come: {}", self.all);
        &self.all
    }

    /// The numbers of the entries that have come, in the order in which they came.
    fn entries(&self) -> Vec<u64> {
        let mut all = self.all.split("<li id=\"e");
        all.next();
        all.map(|rest| rest.split('"').next().unwrap_or_default().parse().expect("a number"))
            .collect()
    }

    /// The id of the last message that has come whole.
    fn last_id(&self) -> String {
        let whole = self.all.rfind("\n\n").map_or("", |end| &self.all[..end]);
        let mut ids = whole.lines().filter_map(|line| line.strip_prefix("id: "));
        ids.next_back().expect("a message").to_owned()
    }
}

/// What a page follows.
fn followed(html: &str) -> String {
    between(html, "hx-sse:connect=\"", "\"").replace("&#38;", "&")
}

/// Paused and resumed, again and again: two entries each time, in one step.
async fn to_and_fro(told: &mut Told, times: usize) {
    told.happens(|world| {
        for _ in 0..times {
            world.ask(Action::Pause).ask(Action::Resume);
        }
    })
    .await;
}

#[tokio::test]
async fn every_entry_comes_once_and_in_its_order_though_the_server_starts_again() {
    let mut stage = Stage::with(mine()).await;
    let project = stage.project("/nowhere").await;
    let mut told = Told::new(&stage, project, json!({ "title": "Greet" })).await;
    let page = format!("/tasks/{}/events", told.id);
    let html = Browser::new(&stage).page(&page).await;
    let path = followed(&html);
    assert!(html.contains("id=\"e1\""), "{html}");
    // What happens between the page and the first word after it is not missed.
    to_and_fro(&mut told, 1).await;
    let mut first = Follower::new(&stage.url, &path, None).await;
    first.until("id=\"e3\"").await;
    // Two servers on the same store both tell it.
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
    // While nobody is there a lot happens: more than one message holds.
    to_and_fro(&mut told, 250).await;
    told.plan_waits("Kindly", 7).await;
    let newest = told.machine().entries;
    let again = stage.beside(mine()).await;
    let mut after = Follower::new(&again.url, &path, Some(&last)).await;
    after.until(&format!("id=\"e{newest}\"")).await;
    // And what happens then.
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
    // An empty board fills, too.
    let path = followed(&browser.page("/").await);
    let mut empty = Follower::new(&stage.url, &path, None).await;
    let mut told = Told::new(&stage, project, json!({ "title": "Greet <b>all</b>" })).await;
    let id = told.id;
    let all = empty.until("Greet").await;
    assert!(all.contains("hx-target=\"#board\"") && all.contains("&#60;b&#62;all"), "{all}");
    // A card comes into its column, and out of every other one.
    let path = followed(&browser.page("/").await);
    told.plan_waits("Kindly", 7).await;
    let mut board = Follower::new(&stage.url, &path, None).await;
    let all = board.until("Waits for you").await.to_owned();
    let target =
        format!("hx-target=\".cards:not(#cards-approve) > #card-{id}\" hx-swap=\"delete\"");
    assert!(all.contains(&target), "{all}");
    assert!(all.contains("id=\"count-approve\" class=\"count\">1<"), "{all}");
    assert!(all.contains("id=\"count-receive\" class=\"count\">0<"), "{all}");
    assert!(all.contains("1 under way, 1 waits for a person"), "{all}");
    assert!(all.contains("class=\"badge\">1<"), "{all}");
    // A board that was narrowed shows what belongs to it, and nothing else.
    let narrow = followed(&browser.page("/?text=nothing").await);
    let mut narrow = Follower::new(&stage.url, &narrow, None).await;
    let last = board.last_id();
    to_and_fro(&mut told, 1).await;
    let all = narrow.until("hx-target=\"#board\"").await;
    assert!(!all.contains("Greet"), "{all}");
    // The server starts again: what has changed meanwhile comes.
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
async fn the_inbox_gets_what_waits_and_loses_what_does_not() {
    let stage = Stage::with(mine()).await;
    let project = stage.project("/nowhere").await;
    let mut told = Told::new(&stage, project, json!({ "title": "Greet <i>all</i>" })).await;
    let id = told.id;
    let path = followed(&Browser::new(&stage).page("/inbox").await);
    let mut inbox = Follower::new(&stage.url, &path, None).await;
    told.plan_waits("Kindly", 7).await;
    // Each of the steps is told, and the last one has all of it.
    let all = inbox.until("Plan 1: 7 files").await;
    let item = format!("id=\"ask-{id}\"");
    assert!(all.contains("Greet &#60;i&#62;all") && all.contains(&item), "{all}");
    told.happens(|world| {
        let binding = world.binding();
        world.ask(Action::Approve { binding, reason: None });
    })
    .await;
    let gone = format!("hx-target=\"#inbox > #ask-{id}\" hx-swap=\"delete\"");
    inbox.all.clear();
    inbox.until(&gone).await;
    assert!(inbox.all.contains("badge none"), "{}", inbox.all);
    stage.end().await;
}

#[tokio::test]
async fn a_task_that_is_not_there_has_nothing_to_follow() {
    let stage = Stage::with(mine()).await;
    let (status, html) = Browser::new(&stage)
        .get(&format!("/live/tasks/{}?seen=1+1.1.1", crate::stage::new_id()))
        .await;
    assert_eq!(status, 404);
    assert!(html.contains("There is no task"), "{html}");
    stage.end().await;
}
