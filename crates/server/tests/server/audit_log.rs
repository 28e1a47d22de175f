//! Audit log: what its entries say, and who gets them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use reqwest::Method;
use serde_json::{Value, json};
use tamma_core::operator::AuditWebhook;
use tamma_testkit::wait::{wait_until, wait_until_true};
use tokio::net::TcpListener;

use crate::browser::StoredTask;
use crate::people::Team;
use crate::test_server::{TestServer, config, read};

/// Returns all entries that have a result.
async fn entries(server: &TestServer) -> Vec<Value> {
    let abandoned_before = chrono::DateTime::UNIX_EPOCH;
    server.store.append_audit_entries(abandoned_before, 1000).await.expect("appended");
    let page = server.store.audit_log(0, 1000).await.expect("page");
    let read = |content: &String| serde_json::from_str(content).expect("JSON");
    page.entries.iter().map(|entry| read(&entry.content)).collect()
}

#[tokio::test]
async fn an_entry_says_who_asked_how_they_were_authenticated_and_under_which_policy() {
    let team = Team::new().await;
    let server = &team.server;
    let mut task = StoredTask::new(server, team.project, json!({ "title": "Greet" })).await;
    task.add_plan("Greet", 7).await;
    let vera = team.add("Vera").await;
    let path = format!("/tasks/{}/plan", task.id);
    let request = server.request(Method::GET, &path).bearer_auth(&vera);
    // The owner of the token counts, not the name in the request.
    let request = request.header("Tamma-Person", "Mallory").header("x-request-id", "abc-1");
    let (status, _) = read(request.send().await.expect("response")).await;
    assert_eq!(status, 200);
    let path = format!("/tasks/{}/actions", task.id);
    let request = server.request(Method::POST, &path).bearer_auth(&vera);
    let request = request.json(&json!({ "pause": {} }));
    let (status, _) = read(request.send().await.expect("response")).await;
    assert_eq!(status, 403);

    let mut all = entries(server).await;
    let (mut refused, mut granted) = (all.pop().expect("entry"), all.pop().expect("entry"));
    for entry in [&mut granted, &mut refused] {
        let fields = entry.as_object_mut().expect("fields");
        assert!(fields.remove("at").is_some_and(|at| at.is_string()));
        assert!(fields.remove("id").is_some_and(|id| id.is_u64()));
    }
    assert_eq!(
        granted,
        json!({
            "kind": "access",
            "route": "GET /api/v1/tasks/{id}/plan",
            "subject": format!("/api/v1/tasks/{}/plan", task.id),
            "person": "Vera",
            "auth": { "method": "own_token", "via": "api" },
            "address": "127.0.0.1",
            "request_id": "abc-1",
            "outcome": {
                "result": "granted", "status": 200, "policy": "role viewer: read",
                "project": team.project,
            },
        })
    );
    let outcome = json!({
        "result": "refused", "status": 403, "policy": "role viewer: work", "project": team.project,
    });
    assert_eq!((&refused["kind"], &refused["outcome"]), (&json!("decision"), &outcome));
}

#[tokio::test]
async fn nobody_can_make_an_entry_too_large_for_a_receiver() {
    let server = TestServer::new().await;
    let path = format!("/tasks/{}/plan", "a".repeat(30_000));
    assert_eq!(server.get(&path).await.0, 404);
    let all = entries(&server).await;
    let subject = all.last().and_then(|entry| entry["subject"].as_str()).expect("a subject");
    assert!(subject.starts_with("/api/v1/tasks/aaa"), "{subject}");
    assert_eq!(subject.len(), 1000);
    server.end().await;
}

#[tokio::test]
async fn entries_of_a_request_are_in_the_log_without_waiting_for_another_one() {
    let server = TestServer::new().await;
    server.token_of("Ada").await;
    let issued = |log: &Value| {
        let all = log["entries"].as_array().expect("entries").iter();
        all.filter(|entry| {
            entry["content"].as_str().is_some_and(|it| it.contains("token_created Ada"))
        })
        .count()
    };
    let mut found = 0;
    // The server appends entries when they are complete.
    for _ in 0..100 {
        let (status, log) = server.get("/audit/log").await;
        assert_eq!(status, 200, "{log}");
        found = issued(&log);
        if found > 0 {
            break;
        }
    }
    assert_eq!(found, 1);
    let (status, problem) = server.get("/audit/log?limit=5001").await;
    assert_eq!(status, 422, "{problem}");
    server.end().await;
}

/// Requests of a receiver: IDs and bodies. It fails to accept the first two.
type ReceivedBatches = Arc<Mutex<Vec<(String, Value)>>>;

async fn receive(
    State(received): State<ReceivedBatches>,
    headers: HeaderMap,
    body: String,
) -> StatusCode {
    let header = |name: &str| headers[name].to_str().expect("text").to_owned();
    assert!(header("webhook-signature").starts_with("v1,"));
    let mut received = received.lock().expect("not poisoned");
    received.push((header("webhook-id"), serde_json::from_str(&body).expect("JSON")));
    if received.len() <= 2 { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::NO_CONTENT }
}

#[tokio::test]
async fn monitoring_knows_a_receiver_that_has_never_accepted_anything() {
    let mut settings = config("127.0.0.1:0", None);
    settings.operator.audit.syslog = Some("unix:///nowhere/log".to_owned());
    let server = TestServer::with(settings).await;
    server.token_of("Ada").await;
    wait_until("the entries that wait for the receiver", Duration::from_secs(30), async || {
        let values = server.store.installation_metrics(&[], &[]).await?;
        let [(receiver, lag)] = values.audit_export_lags.as_slice() else { return Ok(None) };
        assert_eq!(receiver, "syslog unix:///nowhere/log");
        Ok((*lag > 0.0).then_some(()))
    })
    .await
    .expect("known");
    server.end().await;
}

#[tokio::test]
async fn a_receiver_gets_every_entry_in_order_from_where_it_was() {
    let received = ReceivedBatches::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let url = format!("http://{}/", listener.local_addr().expect("address"));
    let app = Router::new().route("/", post(receive)).with_state(received.clone());
    tokio::spawn(async move { axum::serve(listener, app).await });
    let config = || {
        let mut config = config("127.0.0.1:0", None);
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned();
        config.operator.audit.webhook = Some(AuditWebhook { url: url.clone(), secret });
        config
    };
    let accepted = || {
        let received = received.lock().expect("not poisoned");
        let batches = received.iter().skip(2).flat_map(|(_, body)| {
            let entries = body["data"].as_array().expect("entries");
            entries.iter().map(|entry| entry["position"].as_u64().expect("position"))
        });
        batches.collect::<Vec<_>>()
    };
    let limit = Duration::from_secs(30);
    let mut server = TestServer::with(config()).await;
    for name in ["Ada", "Max"] {
        server.token_of(name).await;
    }
    let has_both = || accepted().last() == Some(&2);
    wait_until_true("two exported entries", limit, has_both).await.expect("exported");
    let refused: Vec<_> =
        received.lock().expect("not poisoned").iter().take(2).map(|(id, _)| id.clone()).collect();
    assert!(refused.iter().all(|id| id.starts_with("audit-1-")), "{refused:?}");
    server.stop().await;
    let another = server.start_another(config()).await;
    let http = reqwest::Client::builder().no_proxy().build().expect("client");
    let response = http
        .post(format!("{}/api/v1/people", another.url))
        .bearer_auth(crate::test_server::OPERATOR_TOKEN)
        .header("Tamma-Person", "Ada")
        .json(&json!({ "name": "Vera" }));
    assert!(response.send().await.expect("response").status().is_success());
    wait_until_true("the third entry", limit, || accepted().last() == Some(&3))
        .await
        .expect("exported");
    let mut positions = accepted();
    assert_eq!(positions.first(), Some(&1), "{positions:?}");
    // A server that stops between an answer and its record sends a batch again.
    positions.sort_unstable();
    positions.dedup();
    assert_eq!(positions, [1, 2, 3]);
    another.end().await;
}
