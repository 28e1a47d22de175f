//! Alert messages to real receivers on real ports.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::http::HeaderMap;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tamma_connect::message::{AlertMessage, Error, MessageSender, Receiver};
use tamma_core::operator::OperatorConfig;
use tamma_core::rules::{self, AlertChannel, ConfigFile};
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

/// Sender of an operator who lists some hosts.
fn sender(hosts: &[&str]) -> MessageSender {
    let alert_hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
    let operator = OperatorConfig { alert_hosts, ..OperatorConfig::default() };
    MessageSender::new(&BTreeMap::new(), &operator).unwrap()
}

#[tokio::test]
async fn an_alert_reaches_a_private_host_only_if_the_operator_lists_it() {
    let (url, received) = serve(json!({})).await;
    let named = url.replace("127.0.0.1", "localhost");
    // A name is refused for the address that it resolves to, whatever the scheme.
    let secure = named.replace("http:", "https:");
    for (url, reason) in [
        (&url, "only sent over https"),
        (&named, "only sent over https"),
        (&secure, "not a public one"),
        (&url.replace("http:", "https:"), "not a public one"),
    ] {
        for receiver in [
            Receiver::Webhook { url: url.clone(), secret: None },
            Receiver::Slack { url: url.clone(), channel: None, token: None },
        ] {
            let error = sender(&[]).send(&receiver, &message()).await.unwrap_err();
            assert!(matches!(error, Error::Rejected(_)), "{url}: {error:?}");
            assert!(error.to_string().contains(reason), "{url}: {error}");
        }
    }
    let mail = Receiver::Email {
        smtp: named.replace("http:", "smtp:"),
        from: "a@b.example".to_owned(),
        to: "c@d.example".to_owned(),
    };
    let error = sender(&[]).send(&mail, &message()).await.unwrap_err();
    assert!(error.to_string().contains("not a public one"), "{error}");
    assert!(received.lock().unwrap().is_empty());
    let receiver = Receiver::Webhook { url: named, secret: None };
    sender(&["localhost"]).send(&receiver, &message()).await.unwrap();
    assert_eq!(received.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_webhook_without_a_secret_gets_unsigned_messages() {
    let (url, received) = serve(json!({})).await;
    let sender = sender(&["127.0.0.1"]);
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
    let sender = sender(&["127.0.0.1"]);
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

/// Channels of the founding file, with one text in it replaced.
fn founding_channels(from: &str, to: &str) -> Vec<AlertChannel> {
    const FILE: &str = include_str!("../../core/tests/fixtures/founding/implementation-plan.yaml");
    assert!(FILE.contains(from), "{from}");
    let text = FILE.replacen(from, to, 1);
    let file = ConfigFile { name: "implementation-plan.yaml", text: &text };
    let variables = [
        ("TAMMA_ALERT_WEBHOOK_URL", "https://hooks.example.com/tamma"),
        ("TAMMA_ALERT_SLACK_CHANNEL", "#tamma-alerts"),
    ];
    // A variable that the file does not refer to would override it.
    let variables = variables.into_iter().filter(|(name, _)| text.contains(name));
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let loaded = rules::load(Some(file), &variables, &OperatorConfig::default()).unwrap();
    loaded.rules.scrum_master.alerts.channels
}

#[test]
fn the_type_of_a_founding_channel_selects_its_receiver() {
    let receiver = |channels: &[AlertChannel]| Receiver::from_channel(&channels[0]).unwrap();
    let file = founding_channels("type: cli", "type: cli");
    assert_eq!(receiver(&file).label(), "terminal");
    let changed = founding_channels("type: cli", "type: desktop");
    assert_eq!(receiver(&changed).label(), "desktop");
}

#[test]
fn the_url_of_a_founding_webhook_is_its_address() {
    let url = |channels: &[AlertChannel]| match Receiver::from_channel(&channels[1]).unwrap() {
        Receiver::Webhook { url, .. } => url,
        other => panic!("{}", other.label()),
    };
    let key = "url: ${TAMMA_ALERT_WEBHOOK_URL}";
    assert_eq!(url(&founding_channels(key, key)), "https://hooks.example.com/tamma");
    let changed = founding_channels(key, "url: https://hooks.example.com/other");
    assert_eq!(url(&changed), "https://hooks.example.com/other");
}

#[test]
fn the_channel_of_a_founding_slack_is_where_its_messages_go() {
    let channel = |channels: &[AlertChannel]| {
        let mut slack = channels[2].clone();
        // Slack takes messages for a channel only from a bot, so the file alone is refused.
        assert!(Receiver::from_channel(&slack).is_err());
        slack.config.insert("token".to_owned(), "xoxb-s3cret".to_owned());
        match Receiver::from_channel(&slack).unwrap() {
            Receiver::Slack { channel, .. } => channel,
            other => panic!("{}", other.label()),
        }
    };
    let key = "channel: ${TAMMA_ALERT_SLACK_CHANNEL}";
    assert_eq!(channel(&founding_channels(key, key)).as_deref(), Some("#tamma-alerts"));
    let changed = founding_channels(key, "channel: '#other'");
    assert_eq!(channel(&changed).as_deref(), Some("#other"));
}
