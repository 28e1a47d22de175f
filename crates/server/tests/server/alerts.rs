//! Alerts from the state machine to real receivers, with real servers and one database.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode, Uri};
use chrono::{DateTime, TimeDelta, Utc};
use reqwest::Method;
use serde_json::{Value, json};
use tamma_connect::message::Receiver;
use tamma_core::rules::{AlertChannel, ChannelType};
use tamma_core::task_loop::{Action, Outcome, State};
use tamma_server::ApiServer;
use tamma_store::{NewDelivery, RegisteredProject, Store};
use tamma_testkit::wait_until;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::recorded_task::{PROJECT, RecordedTask, careful, quick};
use crate::test_server::{TestServer, config, fresh_database, new_id, read, temporal_client};
use crate::world::red;

const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const LIMIT: Duration = Duration::from_mins(1);

/// Message that arrived at the receiver.
struct ReceivedMessage {
    path: String,
    id: String,
    body: Value,
}

/// Receiver of messages, with configurable failures.
struct TestReceiver {
    url: String,
    received: mpsc::UnboundedReceiver<ReceivedMessage>,
    /// Responses to the next requests per path; after them, requests succeed.
    responses: Responses,
}

type Responses = Arc<Mutex<BTreeMap<String, Vec<(StatusCode, &'static str)>>>>;
type ReceiverState = (mpsc::UnboundedSender<ReceivedMessage>, Responses);

async fn receive_message(
    Shared((sender, responses)): Shared<ReceiverState>,
    uri: Uri,
    headers: HeaderMap,
    body: String,
) -> (StatusCode, &'static str) {
    let path = uri.path().to_owned();
    let response = responses.lock().expect("lock").get_mut(&path).and_then(Vec::pop);
    let response = response.unwrap_or((StatusCode::OK, "ok"));
    if response.0.is_success() {
        let id = headers.get("webhook-id").and_then(|id| id.to_str().ok()).unwrap_or_default();
        let body = serde_json::from_str(&body).expect("JSON");
        // Fails only after the end of the test.
        drop(sender.send(ReceivedMessage { path, id: id.to_owned(), body }));
    }
    response
}

impl TestReceiver {
    async fn open() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("port");
        let address = listener.local_addr().expect("address");
        let (sender, received) = mpsc::unbounded_channel();
        let responses = Responses::default();
        let router =
            Router::new().fallback(receive_message).with_state((sender, responses.clone()));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url: format!("http://{address}"), received, responses }
    }

    /// Makes the next `times` requests to a path fail.
    fn fail(&self, path: &str, times: usize, status: u16, text: &'static str) {
        let status = StatusCode::from_u16(status).expect("status");
        let mut responses = self.responses.lock().expect("lock");
        responses.insert(path.to_owned(), vec![(status, text); times]);
    }

    async fn next(&mut self) -> ReceivedMessage {
        let message = tokio::time::timeout(LIMIT, self.received.recv()).await;
        message.expect("a message arrives in time").expect("open channel")
    }

    fn webhook(&self) -> AlertChannel {
        let url = ("url".to_owned(), format!("{}/hook", self.url));
        let config = [url, ("secret".to_owned(), KEY.to_owned())].into();
        AlertChannel { r#type: ChannelType::Webhook, enabled: true, config }
    }

    /// Registers a project whose alerts go to this receiver, with additional alert rules.
    async fn project(&self, store: &Store, more: &Value) -> tempfile::TempDir {
        let mut alerts = json!({ "channels": [self.webhook()] });
        for (key, value) in more.as_object().into_iter().flatten() {
            alerts[key] = value.clone();
        }
        project(store, &json!({ "scrum_master": { "alerts": alerts } })).await
    }
}

/// Registers a project with the given rules.
async fn project(store: &Store, rules: &Value) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("directory");
    std::fs::write(folder.path().join("tamma.yaml"), rules.to_string()).expect("written");
    let repository = folder.path().display().to_string();
    let project = RegisteredProject { id: PROJECT, name: "greeter".to_owned(), repository };
    store.register_project(&project).await.expect("registered");
    folder
}

/// Stores a recorded task as its workflow would.
async fn store_task(store: &Store, recorded: &RecordedTask) {
    store
        .insert_task(&recorded.task, &recorded.steps[0].1, &recorded.rules)
        .await
        .expect("received");
    store.save_steps(&recorded.records(), &recorded.rules).await.expect("recorded");
}

/// Task that needs approval.
fn awaiting_approval(number: u128) -> RecordedTask {
    RecordedTask::new(number, careful()).until(State::Completed)
}

/// Task whose plan violates a prohibition, which causes a critical alert.
fn blocked(number: u128) -> RecordedTask {
    let mut recorded = RecordedTask::new(number, quick()).until(State::AwaitingApproval);
    assert!(recorded.done(Outcome::Checked { blockers: 1, warnings: 0 }), "{:?}", recorded.it());
    recorded
}

/// Task with a failure that needs no decision.
fn failed(number: u128) -> RecordedTask {
    let mut recorded = RecordedTask::new(number, quick()).until(State::Testing);
    assert!(recorded.done(red(1)), "{:?}", recorded.it());
    recorded
}

/// Returns all deliveries once they are closed.
async fn closed_deliveries(server: &TestServer) -> Vec<Value> {
    let poll = async || {
        let deliveries = list_deliveries(server).await;
        let are_closed = deliveries.iter().all(|one| one.get("outcome").is_some());
        Ok((!deliveries.is_empty() && are_closed).then_some(deliveries))
    };
    wait_until("the deliveries", LIMIT, poll).await.expect("all deliveries are closed")
}

async fn list_deliveries(server: &TestServer) -> Vec<Value> {
    let (status, page) = server.get("/alerts").await;
    assert_eq!(status, 200, "{page}");
    page["deliveries"].as_array().expect("list").clone()
}

#[expect(clippy::disallowed_methods, reason = "due times are relative to now")]
fn now() -> DateTime<Utc> {
    Utc::now()
}

/// Dispatches new alerts to one receiver, as a server would.
async fn dispatch_to(store: &Store, to: &AlertChannel, digest: bool) {
    let receiver = Receiver::from_channel(to).expect("receiver").key();
    for message in store.outbox(10).await.expect("read") {
        let (id, due_at) = (new_id(), now());
        let new = NewDelivery { id, receiver: receiver.clone(), digest, due_at };
        assert!(store.dispatch(&message, &[new]).await.expect("dispatched"));
    }
}

/// Starts a second server on the same database.
async fn start_second_server(server: &TestServer) -> CancellationToken {
    let config = config("127.0.0.1:0", None);
    let second = ApiServer::bind(config, server.store.clone(), temporal_client().await)
        .await
        .expect("bound");
    let _: SocketAddr = second.address();
    let stop = CancellationToken::new();
    tokio::spawn(second.run(stop.clone()));
    stop
}

#[tokio::test]
async fn two_servers_deliver_each_alert_once_and_a_failing_receiver_delays_no_other() {
    const TASKS: usize = 6;
    let (server, mut hook) = (TestServer::new().await, TestReceiver::open().await);
    let slack = json!({ "type": "slack", "config": { "url": format!("{}/slack", hook.url) } });
    let channels = json!([hook.webhook(), slack]);
    let _folder = hook.project(&server.store, &json!({ "channels": channels })).await;
    let second = start_second_server(&server).await;
    hook.fail("/hook", 3, 503, "busy");
    for number in 1..=TASKS {
        store_task(&server.store, &awaiting_approval(number as u128)).await;
    }
    let (mut ids, mut tasks, mut slacked) = (BTreeSet::new(), BTreeSet::new(), 0);
    let mut last = String::new();
    for _ in 0..2 * TASKS {
        let got = hook.next().await;
        last.clone_from(&got.path);
        if got.path == "/slack" {
            slacked += 1;
            continue;
        }
        assert_eq!(got.body["type"], "tamma.alert");
        assert_eq!(got.body["data"]["items"].as_array().map(Vec::len), Some(1));
        assert_eq!(got.body["data"]["id"], got.id);
        tasks.insert(got.body["data"]["items"][0]["task"].to_string());
        assert!(ids.insert(got.id), "duplicate message");
    }
    assert_eq!((ids.len(), tasks.len(), slacked), (TASKS, TASKS, TASKS));
    assert_eq!(last, "/hook", "Slack does not wait for the webhook");
    let deliveries = closed_deliveries(&server).await;
    assert_eq!(deliveries.len(), 2 * TASKS);
    assert!(deliveries.iter().all(|one| one["outcome"] == "delivered"), "{deliveries:#?}");
    let attempts: u64 = deliveries.iter().filter_map(|one| one["attempts"].as_u64()).sum();
    assert_eq!(attempts, 2 * TASKS as u64 + 3, "every attempt is counted once");
    assert!(hook.received.try_recv().is_err(), "no further messages");
    second.cancel();
    server.end().await;
}

#[tokio::test]
async fn a_message_of_a_killed_server_is_sent_again_with_the_same_id() {
    let ((database, store), mut hook) = (fresh_database().await, TestReceiver::open().await);
    let _folder = hook.project(&store, &json!({})).await;
    store_task(&store, &awaiting_approval(1)).await;
    // A server claims it for a second, sends it, and is killed before it records that.
    dispatch_to(&store, &hook.webhook(), false).await;
    let claimed = store.claim_deliveries(1, 10, true).await.expect("claimed").deliveries;
    let [sent] = claimed.as_slice() else { panic!("one message: {claimed:?}") };
    let server = TestServer::on_database(config("127.0.0.1:0", None), database, store).await;
    let again = hook.next().await;
    assert_eq!(again.id, sent.id.to_string(), "the receiver can deduplicate");
    assert_eq!(again.body["data"]["items"][0]["task"], sent.task.0.to_string());
    server.end().await;
}

#[tokio::test]
async fn a_digest_keeps_its_id_and_items_across_attempts() {
    let ((database, store), mut hook) = (fresh_database().await, TestReceiver::open().await);
    let _folder = hook.project(&store, &json!({})).await;
    for number in [1, 2] {
        store_task(&store, &failed(number)).await;
    }
    dispatch_to(&store, &hook.webhook(), true).await;
    // A server sends both in one digest and is killed; then a third alert follows.
    let claimed = store.claim_deliveries(0, 10, true).await.expect("claimed").deliveries;
    let [one, two] = claimed.as_slice() else { panic!("two messages: {claimed:?}") };
    store.batch_deliveries(one.id, &[one.id, two.id]).await.expect("tied");
    store_task(&store, &failed(3)).await;
    dispatch_to(&store, &hook.webhook(), true).await;
    let server = TestServer::on_database(config("127.0.0.1:0", None), database, store).await;
    let got = [hook.next().await, hook.next().await];
    let [mut first, mut last] = got;
    if last.id == one.id.to_string() {
        std::mem::swap(&mut first, &mut last);
    }
    let count = |got: &ReceivedMessage| got.body["data"]["items"].as_array().map(Vec::len);
    assert_eq!(first.id, one.id.to_string(), "the ID is the same");
    assert_eq!(count(&first), Some(2), "the items are the same");
    assert_eq!(first.body["data"]["subject"], "Digest: 2 updates");
    assert_eq!(count(&last), Some(1), "the new alert is sent separately");
    assert!(closed_deliveries(&server).await.iter().all(|one| one["outcome"] == "delivered"));
    server.end().await;
}

#[tokio::test]
async fn quiet_hours_in_another_time_zone_delay_all_but_critical_alerts() {
    let (server, mut hook) = (TestServer::new().await, TestReceiver::open().await);
    // Nine hours ahead of UTC, without daylight saving time.
    let in_tokyo = now() + TimeDelta::hours(9);
    let time = |at: DateTime<Utc>| at.format("%H:%M").to_string();
    let (from, to) = (in_tokyo - TimeDelta::hours(1), in_tokyo + TimeDelta::hours(2));
    let hours = json!({
        "quiet_hours": { "from": time(from), "to": time(to) },
        "time_zone": "Asia/Tokyo",
        "digest_at": time(in_tokyo + TimeDelta::hours(3)),
    });
    let _folder = hook.project(&server.store, &hours).await;
    store_task(&server.store, &awaiting_approval(1)).await;
    store_task(&server.store, &failed(2)).await;
    store_task(&server.store, &blocked(3)).await;
    let got = hook.next().await;
    assert_eq!(got.body["data"]["severity"], "critical");
    assert_eq!(got.body["data"]["items"][0]["title"], "task 3");
    let held = |title: u128| {
        let task = awaiting_approval(title).task.id.0.to_string();
        async {
            let task = task;
            let deliveries = list_deliveries(&server).await;
            deliveries.into_iter().find(|one| one["task"] == task).expect("stored delivery")
        }
    };
    for (task, hours, digest) in [(1, 2, false), (2, 3, true)] {
        let one = held(task).await;
        let due: DateTime<Utc> = one["due_at"].as_str().expect("due").parse().expect("timestamp");
        let wait = due - now();
        let (least, most) =
            (TimeDelta::hours(hours) - TimeDelta::minutes(2), TimeDelta::hours(hours));
        assert!((least..=most).contains(&wait), "{one}");
        assert_eq!((&one["attempts"], &one["digest"]), (&json!(0), &json!(digest)));
    }
    assert!(hook.received.try_recv().is_err(), "no further messages");
    server.end().await;
}

#[tokio::test]
async fn deliveries_are_given_up_after_three_days_with_an_error() {
    let ((database, store), hook) = (fresh_database().await, TestReceiver::open().await);
    let _folder = hook.project(&store, &json!({})).await;
    store_task(&store, &awaiting_approval(1)).await;
    dispatch_to(&store, &hook.webhook(), false).await;
    // Earlier attempts, by claims that expire immediately.
    for attempt in 1..=152 {
        let claimed = store.claim_deliveries(0, 10, true).await.expect("claimed").deliveries;
        assert_eq!(claimed.first().map(|one| one.attempt), Some(attempt));
    }
    hook.fail("/hook", 1, 503, "busy");
    let server = TestServer::on_database(config("127.0.0.1:0", None), database, store).await;
    let deliveries = closed_deliveries(&server).await;
    assert_eq!(deliveries[0]["outcome"], "given_up");
    assert_eq!(
        deliveries[0]["error"],
        "receiver returned 503 Service Unavailable busy; gave up after 153 attempts in 3 days"
    );
    server.end().await;
}

#[tokio::test]
async fn an_alert_is_not_sent_after_its_decision() {
    let ((database, store), mut hook) = (fresh_database().await, TestReceiver::open().await);
    let _folder = hook.project(&store, &json!({})).await;
    let mut recorded = awaiting_approval(1);
    let scope = recorded.it().current_scope().expect("plan");
    assert!(recorded.ask(Action::Approve { scope, reason: None }));
    store_task(&store, &recorded).await;
    store_task(&store, &awaiting_approval(2)).await;
    dispatch_to(&store, &hook.webhook(), false).await;
    let server = TestServer::on_database(config("127.0.0.1:0", None), database, store).await;
    assert_eq!(hook.next().await.body["data"]["items"][0]["title"], "task 2");
    let outcomes: BTreeSet<_> =
        closed_deliveries(&server).await.iter().map(|one| one["outcome"].to_string()).collect();
    assert_eq!(outcomes, ["\"delivered\"", "\"settled\""].map(str::to_owned).into());
    server.end().await;
}

#[tokio::test]
async fn a_channel_test_reports_each_result_without_secrets() {
    let (server, mut hook) = (TestServer::new().await, TestReceiver::open().await);
    hook.fail("/T0/s3cret", 1, 404, "no_service");
    hook.fail("/unsigned", 1, 503, "busy");
    hook.fail("/says/s3cret", 1, 500, "cannot POST /says/s3cret");
    let url = |path: &str| format!("{}{path}", hook.url);
    let channels = json!([
        hook.webhook(),
        { "type": "slack", "config": { "url": url("/T0/s3cret") } },
        { "type": "webhook", "config": { "url": url("/says/s3cret"), "secret": KEY } },
        { "type": "webhook", "config": { "url": url("/x"), "secret": "s3cret!" } },
        { "type": "webhook", "config": { "url": url("/unsigned") } },
        { "type": "email", "config": {
            "smtp": "smtp://ada:s3cret@127.0.0.1:1", "from": "a@b.example", "to": "c@d.example",
        } },
        { "type": "slack", "enabled": false },
        { "type": "cli" },
    ]);
    let _folder = hook.project(&server.store, &json!({ "channels": channels })).await;
    let (status, results) = server.post("/alerts/test", &json!({})).await;
    assert_eq!(status, 200, "{results}");
    assert!(!results.to_string().contains("s3cret"), "{results}");
    let results: Vec<_> = results["receipts"].as_array().expect("receipts").iter().collect();
    let expected = [
        ("webhook at 127.0.0.1", ""),
        ("Slack", "Slack returned no_service: the webhook no longer exists"),
        ("webhook at 127.0.0.1", "receiver returned 500 Internal Server Error cannot POST …"),
        ("webhook at 127.0.0.1", "the channel's `secret` is not `whsec_`"),
        ("webhook at 127.0.0.1", "receiver returned 503 Service Unavailable busy"),
        ("e-mail to c@d.example", "cannot reach the mail server"),
        ("slack", "the channel is disabled"),
        ("terminal", "this server has no terminal"),
    ];
    assert_eq!(results.len(), expected.len());
    for (receipt, (receiver, message)) in results.iter().zip(expected) {
        assert_eq!(receipt["receiver"], receiver);
        assert_eq!(receipt["arrived"], message.is_empty(), "{receipt}");
        let error = receipt["error"].as_str().unwrap_or_default();
        assert!(error.starts_with(message), "{error}");
    }
    assert_eq!(hook.next().await.body["data"]["items"][0]["kind"], "test");
    server.end().await;
}

#[tokio::test]
async fn a_channel_of_the_founding_file_gets_alerts_only_while_it_is_enabled() {
    const FILE: &str =
        include_str!("../../../core/tests/fixtures/founding/implementation-plan.yaml");
    for enabled in [true, false] {
        let (server, mut hook) = (TestServer::new().await, TestReceiver::open().await);
        let webhook = "type: webhook\n        enabled: true";
        assert!(FILE.contains(webhook));
        let text = FILE
            .replace(webhook, &format!("type: webhook\n        enabled: {enabled}"))
            .replace("${TAMMA_ALERT_WEBHOOK_URL}", &format!("{}/hook", hook.url))
            .replace("${TAMMA_ALERT_SLACK_CHANNEL}", "'#tamma-alerts'")
            // Another channel shows that the alert was dispatched.
            .replace(
                "channels:\n",
                &format!(
                    "channels:\n      - type: slack\n        config:\n          url: {}/slack\n",
                    hook.url
                ),
            );
        let folder = tempfile::tempdir().expect("directory");
        std::fs::write(folder.path().join("tamma.yaml"), text).expect("written");
        let repository = folder.path().display().to_string();
        let project = RegisteredProject { id: PROJECT, name: "greeter".to_owned(), repository };
        server.store.register_project(&project).await.expect("registered");
        store_task(&server.store, &awaiting_approval(1)).await;
        while hook.next().await.path != "/slack" {}
        // All deliveries of an alert are stored at once, before any is sent.
        let deliveries = list_deliveries(&server).await;
        let receivers = deliveries.iter().filter_map(|one| one["receiver"].as_str());
        let webhooks = receivers.filter(|it| it.starts_with("webhook at 127.0.0.1")).count();
        assert_eq!(webhooks, usize::from(enabled), "{deliveries:#?}");
        server.end().await;
    }
}

#[tokio::test]
async fn viewers_cannot_test_channels() {
    let (server, hook) = (TestServer::new().await, TestReceiver::open().await);
    let rules = json!({
        "scrum_master": { "alerts": { "channels": [hook.webhook()] } },
    });
    let _folder = project(&server.store, &rules).await;
    let name = server.store.projects().await.expect("projects").remove(0).name;
    server.grant(&name, "Ada", "viewer").await;
    let request = server.request(Method::POST, "/alerts/test").json(&json!({}));
    let request = request.bearer_auth(server.token_of("Ada").await);
    let (status, problem) = read(request.send().await.expect("response")).await;
    assert_eq!(status, 403, "{problem}");
    server.end().await;
}
