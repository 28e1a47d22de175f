//! Who may come in, and what is said to the others.

use reqwest::Method;
use serde_json::json;
use tamma_server::{Error, Server};
use tamma_testkit::postgres::Database;

use crate::stage::{Stage, config, engine, read};

#[tokio::test]
async fn an_address_that_others_can_reach_needs_a_token() {
    let database = Database::fresh().await.expect("a database");
    let store = database.store().await.expect("a store");
    let bound = Server::bind(config("0.0.0.0:0", None), store.clone(), engine().await).await;
    assert!(matches!(bound, Err(Error::Open(_))));
    let weak = config("0.0.0.0:0", Some("short"));
    let bound = Server::bind(weak, store.clone(), engine().await).await;
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
    assert_eq!(read(request.send().await.expect("an answer")).await.0, 200);
    stage.end().await;
}

#[tokio::test]
async fn without_a_token_names_and_pages_of_others_are_refused() {
    let stage = Stage::new().await;
    let with = |name: &'static str, value: &'static str| {
        let request = stage.request(Method::GET, "/tasks").header(name, value);
        async { read(request.send().await.expect("an answer")).await }
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
async fn what_goes_wrong_is_a_problem_document_that_says_what_to_do() {
    let stage = Stage::new().await;
    let (status, problem) = stage.get("/tasks/0192a000-0000-7000-8000-000000000001").await;
    assert_eq!(status, 404);
    assert_eq!(
        problem,
        json!({
            "type": "tamma:not-found",
            "title": "There is no such thing",
            "status": 404,
            "detail": "There is no task `0192a000-0000-7000-8000-000000000001`.",
        })
    );
    assert_eq!(stage.get("/nothing").await.0, 404);
    assert_eq!(stage.post("/health", &json!({})).await.0, 405);
    // Nobody asks.
    let request = stage.request(Method::POST, "/tasks").json(&json!({ "title": "x" }));
    let (status, problem) = read(request.send().await.expect("an answer")).await;
    assert_eq!((status, &problem["type"]), (400, &json!("tamma:person")));
    // Not what a task looks like.
    let (status, problem) = stage.post("/tasks", &json!({ "name": "x" })).await;
    assert_eq!((status, &problem["type"]), (422, &json!("tamma:unreadable")));
    assert!(problem["detail"].as_str().expect("a text").contains("name"), "{problem}");
    // Too much.
    let (status, _) = stage.post("/tasks", &json!({ "title": "x".repeat(300_000) })).await;
    assert_eq!(status, 413);
    // No such filter.
    let (status, problem) = stage.get("/tasks?state=sleeping").await;
    assert_eq!((status, &problem["detail"]), (422, &json!("There is no state `sleeping`.")));
    stage.end().await;
}

#[tokio::test]
async fn a_healthy_server_says_so_and_one_whose_store_is_gone_too() {
    let stage = Stage::new().await;
    let healthy = json!({ "healthy": true, "store": true, "temporal": true });
    assert_eq!(stage.get("/health").await, (200, healthy));
    stage.store.close().await;
    let request = stage.request(Method::GET, "/health").send().await.expect("an answer");
    assert_eq!(request.status(), 503);
    let response = stage.request(Method::GET, "/projects").send().await.expect("an answer");
    assert_eq!(response.status(), 503);
    assert!(response.headers().contains_key("retry-after"));
    let (_, problem) = read(response).await;
    assert_eq!(problem["detail"], "The database cannot be reached at the moment.");
}
