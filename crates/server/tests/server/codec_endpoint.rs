//! Codec server for Temporal's web UI and command line.

use reqwest::{Method, Response};
use serde_json::{Value, json};
use tamma_core::operator::OperatorConfig;
use tamma_server::ServerConfig;
use temporalio_client::NamespacedClient as _;
use temporalio_common::data_converters::SerializationContextData;

use crate::browser::Browser;
use crate::people::Team;
use crate::test_server::{OPERATOR_TOKEN, TestServer, config, read, temporal_client};

const UI: &str = "https://temporal.example.com";

/// Canary in a payload.
const CONTENT: &str = "the secret plan";

/// Returns a sealed payload as Temporal's tools send it.
async fn sealed() -> Value {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    let client = temporal_client().await;
    let (converter, content) = (client.data_converter(), CONTENT.to_owned());
    let sealed = converter.to_payload(&SerializationContextData::None, &content).await;
    let payload = sealed.expect("sealed");
    assert!(!payload.data.windows(4).any(|part| part == b"plan"));
    let metadata: serde_json::Map<String, Value> = payload
        .metadata
        .iter()
        .map(|(name, it)| (name.clone(), json!(STANDARD.encode(it))))
        .collect();
    json!({ "payloads": [{ "metadata": metadata, "data": STANDARD.encode(&payload.data) }] })
}

async fn server_with_ui() -> TestServer {
    let settings = config("127.0.0.1:0", None);
    let operator = OperatorConfig { temporal_ui: Some(UI.to_owned()), ..settings.operator.clone() };
    TestServer::with(ServerConfig { operator, ..settings }).await
}

async fn ask(
    server: &TestServer,
    method: Method,
    origin: Option<&str>,
    token: Option<&str>,
) -> Response {
    let url = format!("{}/codec/decode", server.url);
    // Without the token that the client of the tests sends by default.
    let client = reqwest::Client::builder().no_proxy().build().expect("client");
    let mut request =
        client.request(method, url).header("Tamma-Person", "Grace").json(&sealed().await);
    if let Some(origin) = origin {
        request = request.header("origin", origin);
    }
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    request.send().await.expect("response")
}

fn allowed_origin(response: &Response) -> Option<String> {
    let header = response.headers().get("access-control-allow-origin")?;
    Some(header.to_str().expect("text").to_owned())
}

#[tokio::test]
async fn an_operator_reads_payloads_and_the_audit_log_says_so() {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    let server = server_with_ui().await;
    let response = ask(&server, Method::POST, Some(UI), Some(OPERATOR_TOKEN)).await;
    assert_eq!(allowed_origin(&response).as_deref(), Some(UI));
    let (status, opened) = read(response).await;
    assert_eq!(status, 200, "{opened}");
    let data = opened["payloads"][0]["data"].as_str().expect("data");
    let data = String::from_utf8(STANDARD.decode(data).expect("base64")).expect("text");
    assert_eq!(data, format!("\"{CONTENT}\""));
    let abandoned_before = chrono::DateTime::UNIX_EPOCH;
    server.store.append_audit_entries(abandoned_before, 1000).await.expect("appended");
    let page = server.store.audit_log(0, 1000).await.expect("page");
    let entry: Value = serde_json::from_str(&page.entries[0].content).expect("JSON");
    assert_eq!((&entry["route"], &entry["kind"]), (&json!("POST /codec/decode"), &json!("access")));
    assert_eq!(entry["person"], "Grace");
    assert!(!entry.to_string().contains(CONTENT), "{entry}");
    server.end().await;
}

#[tokio::test]
async fn nobody_else_reads_payloads() {
    let team = Team::new().await;
    let approver = team.add("Ann").await;
    assert_eq!(ask(&team.server, Method::POST, None, Some(&approver)).await.status(), 403);
    assert_eq!(ask(&team.server, Method::POST, None, Some("another token")).await.status(), 401);
    assert_eq!(ask(&team.server, Method::POST, None, None).await.status(), 401);
}

#[tokio::test]
async fn pages_of_other_origins_are_refused_and_the_configured_one_is_not() {
    let server = server_with_ui().await;
    for origin in ["https://evil.example.com", "http://temporal.example.com", "null"] {
        let response = ask(&server, Method::POST, Some(origin), Some(OPERATOR_TOKEN)).await;
        assert_eq!(
            (response.status().as_u16(), allowed_origin(&response)),
            (403, None),
            "{origin}"
        );
        let response = ask(&server, Method::OPTIONS, Some(origin), None).await;
        assert_eq!(allowed_origin(&response), None, "{origin}");
    }
    let preflight = ask(&server, Method::OPTIONS, Some(UI), None).await;
    assert_eq!(
        (preflight.status().as_u16(), allowed_origin(&preflight)),
        (204, Some(UI.to_owned()))
    );
    // A browser that is signed in to Tamma needs no token.
    let mut browser = Browser::signed_in(&server, OPERATOR_TOKEN).await;
    let headers = [("origin", UI), ("content-type", "application/json")];
    let body = sealed().await.to_string();
    let response = browser.send(Method::POST, "/codec/decode", &headers, Some(&body)).await;
    assert_eq!(response.status(), 200);
    server.end().await;
}
