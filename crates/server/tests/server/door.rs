//! Authentication and problem documents.

use reqwest::Method;
use serde_json::json;
use tamma_server::{ApiServer, Error};
use tamma_testkit::postgres::TestDatabase;

use crate::stage::{Stage, config, engine, read};

#[tokio::test]
async fn a_public_address_needs_a_token() {
    let database = TestDatabase::fresh().await.expect("database");
    let store = database.store().await.expect("store");
    let bound = ApiServer::bind(config("0.0.0.0:0", None), store.clone(), engine().await).await;
    assert!(matches!(bound, Err(Error::MissingToken(_))));
    let weak = config("0.0.0.0:0", Some("short"));
    let bound = ApiServer::bind(weak, store.clone(), engine().await).await;
    assert!(matches!(bound, Err(Error::WeakToken(5))));
    store.close().await;
}

#[tokio::test]
async fn with_a_token_every_request_needs_it() {
    let token = "a token that nobody guesses";
    let stage = Stage::with(config("127.0.0.1:0", Some(token))).await;
    for path in ["/health", "/tasks", "/openapi.json", "/nothing"] {
        let (status, problem) = stage.get(path).await;
        assert_eq!((status, &problem["type"]), (401, &json!("tamma:token")), "{path}");
    }
    let request = stage.request(Method::GET, "/tasks").bearer_auth(token);
    assert_eq!(read(request.send().await.expect("response")).await.0, 200);
    stage.end().await;
}

#[tokio::test]
async fn without_a_token_foreign_hosts_and_origins_are_refused() {
    let stage = Stage::new().await;
    let with = |name: &'static str, value: &'static str| {
        let request = stage.request(Method::GET, "/tasks").header(name, value);
        async { read(request.send().await.expect("response")).await }
    };
    let (status, problem) = with("host", "evil.example:8622").await;
    assert_eq!((status, &problem["type"]), (403, &json!("tamma:host")));
    let (status, problem) = with("origin", "http://evil.example").await;
    assert_eq!((status, &problem["type"]), (403, &json!("tamma:origin")));
    assert_eq!(with("origin", "null").await.0, 403);
    assert_eq!(with("accept", "*/*").await.0, 200);
    stage.end().await;
}

#[tokio::test]
async fn errors_are_problem_documents() {
    let stage = Stage::new().await;
    let (status, problem) = stage.get("/tasks/0192a000-0000-7000-8000-000000000001").await;
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
    assert_eq!(stage.get("/nothing").await.0, 404);
    assert_eq!(stage.post("/health", &json!({})).await.0, 405);
    // Without a name.
    let request = stage.request(Method::POST, "/tasks").json(&json!({ "title": "x" }));
    let (status, problem) = read(request.send().await.expect("response")).await;
    assert_eq!((status, &problem["type"]), (400, &json!("tamma:person")));
    // With an unknown field.
    let (status, problem) = stage.post("/tasks", &json!({ "name": "x" })).await;
    assert_eq!((status, &problem["type"]), (422, &json!("tamma:unreadable")));
    assert!(problem["detail"].as_str().expect("text").contains("name"), "{problem}");
    // Too large.
    let (status, _) = stage.post("/tasks", &json!({ "title": "x".repeat(300_000) })).await;
    assert_eq!(status, 413);
    // Unknown filter value.
    let (status, problem) = stage.get("/tasks?state=sleeping").await;
    assert_eq!((status, &problem["detail"]), (422, &json!("Unknown state `sleeping`.")));
    stage.end().await;
}

#[tokio::test]
async fn health_reports_an_unreachable_database() {
    let stage = Stage::new().await;
    let healthy = json!({ "healthy": true, "store": true, "temporal": true });
    assert_eq!(stage.get("/health").await, (200, healthy));
    stage.store.close().await;
    let request = stage.request(Method::GET, "/health").send().await.expect("response");
    assert_eq!(request.status(), 503);
    let response = stage.request(Method::GET, "/projects").send().await.expect("response");
    assert_eq!(response.status(), 503);
    assert!(response.headers().contains_key("retry-after"));
    let (_, problem) = read(response).await;
    assert_eq!(problem["detail"], "Cannot reach the database.");
}
