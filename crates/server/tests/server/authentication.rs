//! Authentication and problem documents.

use reqwest::Method;
use serde_json::json;
use tamma_server::{ApiServer, Error};
use tamma_testkit::postgres::TestDatabase;

use crate::test_server::{TestServer, config, read, temporal_client};

#[tokio::test]
async fn a_public_address_needs_a_token() {
    let database = TestDatabase::fresh().await.expect("database");
    let store = database.store().await.expect("store");
    let bound =
        ApiServer::bind(config("0.0.0.0:0", None), store.clone(), temporal_client().await).await;
    assert!(matches!(bound, Err(Error::MissingToken(_))));
    let weak = config("0.0.0.0:0", Some("short"));
    let bound = ApiServer::bind(weak, store.clone(), temporal_client().await).await;
    assert!(matches!(bound, Err(Error::WeakToken(5))));
    store.close().await;
}

#[tokio::test]
async fn with_a_token_every_request_needs_it() {
    let token = "a token that nobody guesses";
    let server = TestServer::with(config("127.0.0.1:0", Some(token))).await;
    for path in ["/health", "/tasks", "/openapi.json", "/nothing"] {
        let (status, problem) = server.get(path).await;
        assert_eq!((status, &problem["type"]), (401, &json!("tamma:token")), "{path}");
    }
    let request = server.request(Method::GET, "/tasks").bearer_auth(token);
    assert_eq!(read(request.send().await.expect("response")).await.0, 200);
    server.end().await;
}

#[tokio::test]
async fn without_a_token_foreign_hosts_and_origins_are_refused() {
    let server = TestServer::new().await;
    let with = |name: &'static str, value: &'static str| {
        let request = server.request(Method::GET, "/tasks").header(name, value);
        async { read(request.send().await.expect("response")).await }
    };
    let (status, problem) = with("host", "evil.example:8622").await;
    assert_eq!((status, &problem["type"]), (403, &json!("tamma:host")));
    let (status, problem) = with("origin", "http://evil.example").await;
    assert_eq!((status, &problem["type"]), (403, &json!("tamma:origin")));
    assert_eq!(with("origin", "null").await.0, 403);
    assert_eq!(with("accept", "*/*").await.0, 200);
    server.end().await;
}

#[tokio::test]
async fn errors_are_problem_documents() {
    let server = TestServer::new().await;
    let (status, problem) = server.get("/tasks/0192a000-0000-7000-8000-000000000001").await;
    assert_eq!(status, 404);
    assert_eq!(
        problem,
        json!({
            "type": "tamma:not-found",
            "title": "Not found",
            "status": 404,
            "detail": "Cannot find task `0192a000-0000-7000-8000-000000000001`.",
        })
    );
    assert_eq!(server.get("/nothing").await.0, 404);
    assert_eq!(server.post("/health", &json!({})).await.0, 405);
    // Without a name.
    let request = server.request(Method::POST, "/tasks").json(&json!({ "title": "x" }));
    let (status, problem) = read(request.send().await.expect("response")).await;
    assert_eq!((status, &problem["type"]), (400, &json!("tamma:person")));
    // With an unknown field.
    let (status, problem) = server.post("/tasks", &json!({ "name": "x" })).await;
    assert_eq!((status, &problem["type"]), (422, &json!("tamma:unreadable")));
    assert!(problem["detail"].as_str().expect("text").contains("name"), "{problem}");
    // Too large.
    let (status, _) = server.post("/tasks", &json!({ "title": "x".repeat(300_000) })).await;
    assert_eq!(status, 413);
    // Unknown filter value.
    let (status, problem) = server.get("/tasks?state=sleeping").await;
    assert_eq!((status, &problem["detail"]), (422, &json!("Unknown state `sleeping`.")));
    server.end().await;
}

#[tokio::test]
async fn health_reports_an_unreachable_database() {
    let server = TestServer::new().await;
    let healthy = json!({ "healthy": true, "store": true, "temporal": true });
    assert_eq!(server.get("/health").await, (200, healthy));
    server.store.close().await;
    let request = server.request(Method::GET, "/health").send().await.expect("response");
    assert_eq!(request.status(), 503);
    let response = server.request(Method::GET, "/projects").send().await.expect("response");
    assert_eq!(response.status(), 503);
    assert!(response.headers().contains_key("retry-after"));
    let (_, problem) = read(response).await;
    assert_eq!(problem["detail"], "Cannot reach the database.");
}
