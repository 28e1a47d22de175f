//! Alert messages to real receivers on real ports.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::http::HeaderMap;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tamma_connect::message::{AlertMessage, MessageSender, Receiver};
use tamma_core::task_loop::AlertSeverity;
use tokio::net::TcpListener;
use uuid::Uuid;

type Received = Arc<Mutex<Vec<(HeaderMap, Value)>>>;

/// Serves a receiver that keeps every message and returns `reply`.
async fn serve(reply: Value) -> (String, Received) {
    let received = Received::default();
    let kept = received.clone();
    let app = Router::new().route(
        "/",
        post(move |headers: HeaderMap, Json(body): Json<Value>| async move {
            kept.lock().unwrap().push((headers, body));
            Json(reply)
        }),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, received)
}

fn message() -> AlertMessage {
    AlertMessage {
        id: Uuid::from_u128(7),
        at: chrono::DateTime::UNIX_EPOCH,
        severity: AlertSeverity::Warning,
        subject: "Plan needs approval".to_owned(),
        items: Vec::new(),
    }
}

#[tokio::test]
async fn a_webhook_without_a_secret_gets_unsigned_messages() {
    let (url, received) = serve(json!({})).await;
    let sender = MessageSender::new(&BTreeMap::new()).unwrap();
    let secret = Some("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned());
    for secret in [None, secret] {
        let receiver = Receiver::Webhook { url: url.clone(), secret };
        sender.send(&receiver, &message()).await.unwrap();
    }
    let received = received.lock().unwrap();
    let signed: Vec<_> =
        received.iter().map(|(headers, _)| headers.contains_key("webhook-signature")).collect();
    assert_eq!(signed, [false, true]);
    assert!(received.iter().all(|(headers, _)| headers.contains_key("webhook-id")));
    assert_eq!(received[0].1["data"]["subject"], "Plan needs approval");
}

#[tokio::test]
async fn a_slack_channel_gets_messages_from_a_bot() {
    let sender = MessageSender::new(&BTreeMap::new()).unwrap();
    let to = |url: String| Receiver::Slack {
        url,
        channel: Some("#tamma-alerts".to_owned()),
        token: Some("xoxb-s3cret".to_owned()),
    };
    let (url, received) = serve(json!({ "ok": true })).await;
    sender.send(&to(url), &message()).await.unwrap();
    let (headers, body) = received.lock().unwrap().remove(0);
    assert_eq!(headers["authorization"], "Bearer xoxb-s3cret");
    assert_eq!(body["channel"], "#tamma-alerts");
    for (error, expected) in [
        ("not_in_channel", "invite it"),
        ("invalid_auth", "create a new one"),
        ("ratelimited", "ratelimited"),
        ("something_new", "something_new"),
    ] {
        let padding = "x".repeat(1_000);
        let (url, _) = serve(json!({ "ok": false, "error": error, "padding": padding })).await;
        let error = sender.send(&to(url), &message()).await.unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains("s3cret"), "{error}");
    }
}
