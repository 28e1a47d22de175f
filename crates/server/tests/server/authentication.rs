//! Authentication and problem documents.

use reqwest::Method;
use serde_json::json;
use tamma_server::{ApiServer, Error, ServerConfig};
use tamma_testkit::postgres::TestDatabase;

use crate::browser::Browser;
use crate::test_server::{OPERATOR_TOKEN, TestServer, config, read, temporal_client};

#[tokio::test]
async fn a_server_needs_a_token_that_cannot_be_guessed() {
    let database = TestDatabase::fresh().await.expect("database");
    let store = database.store().await.expect("store");
    for (address, token) in [("0.0.0.0:0", "short"), ("127.0.0.1:0", "short"), ("127.0.0.1:0", "")]
    {
        let weak = config(address, Some(token));
        let bound = ApiServer::bind(weak, store.clone(), temporal_client().await).await;
        assert!(matches!(bound, Err(Error::WeakToken(_))), "{address} {token}");
    }
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

/// A signed-in agent or a gate with network access can reach the loopback address.
#[tokio::test]
async fn a_local_request_without_a_token_gets_nothing() {
    let server = TestServer::new().await;
    let http = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
    let http = http.build().expect("client");
    for path in ["/api/v1/tasks", "/api/v1/export", "/api/v1/people", "/mcp"] {
        let request = http.get(format!("{}{path}", server.url)).header("Tamma-Person", "Ada");
        assert_eq!(request.send().await.expect("response").status(), 401, "{path}");
    }
    for path in ["/", "/inbox", "/live/board", "/projects"] {
        let response = http.get(format!("{}{path}", server.url)).send().await.expect("response");
        assert_eq!(response.status(), 303, "{path}");
    }
    server.end().await;
}

#[tokio::test]
async fn a_sign_in_link_works_once_and_lasts_as_long_as_its_token() {
    let server = TestServer::new().await;
    server.project("/nowhere").await;
    server.grant("greeter", "Max", "viewer").await;
    let max = server.token_of("Max").await;
    let link = async |token: &str| {
        let request = server.request(Method::POST, "/sign-in-links").bearer_auth(token);
        let request = request.header("Tamma-Person", "Ada").json(&json!({}));
        let (status, link) = read(request.send().await.expect("response")).await;
        assert_eq!(status, 200, "{link}");
        link["path"].as_str().expect("path").to_owned()
    };
    let use_link = async |path: &str| {
        let mut browser = Browser::anonymous(&server);
        let code = path.split_once("code=").expect("code").1;
        let response = browser.post(path, "/hello", &format!("code={code}&to=%2F")).await;
        (response.status().as_u16(), browser)
    };
    let path = link(OPERATOR_TOKEN).await;
    let (status, mut ada) = use_link(&path).await;
    assert_eq!(status, 303);
    assert!(ada.page("/projects").await.contains("Register"), "an operator");
    assert_eq!(use_link(&path).await.0, 403, "it works once");
    let (status, mut browser) = use_link(&link(&max).await).await;
    assert_eq!(status, 303);
    assert!(!browser.page("/projects").await.contains("Register"), "not an operator");
    let unused = link(&max).await;
    let revoke = json!({ "name": "Max" });
    assert_eq!(server.post("/people/revocations", &revoke).await.0, 200);
    assert_eq!(use_link(&unused).await.0, 403, "the token was revoked");
    assert_eq!(browser.get("/projects").await.0, 303);
    server.end().await;
}

#[tokio::test]
async fn a_sign_in_link_has_the_public_url() {
    let public_url = Some("https://tamma.example/".to_owned());
    let config = ServerConfig { public_url, ..config("127.0.0.1:0", None) };
    let server = TestServer::with(config).await;
    let (status, link) = server.post("/sign-in-links", &json!({})).await;
    assert_eq!(status, 200, "{link}");
    let path = link["path"].as_str().expect("path");
    assert_eq!(link["url"], format!("https://tamma.example{path}"));
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
async fn invalid_tokens_do_not_lock_the_operator_out() {
    let server = TestServer::new().await;
    let status = async |token: &str| {
        let request = server.request(Method::GET, "/projects").bearer_auth(token);
        read(request.send().await.expect("response")).await.0
    };
    let mut refused = Vec::new();
    for number in 0..11 {
        refused.push(status(&format!("guess-{number}")).await);
    }
    assert_eq!((refused[0], refused[10]), (401, 429));
    assert_eq!(status(OPERATOR_TOKEN).await, 200);
    server.end().await;
}

#[tokio::test]
async fn invalid_tokens_are_counted_on_the_sign_in_page_too() {
    let server = TestServer::new().await;
    let count = || {
        let text = tamma_telemetry::registry().render();
        let value = text.lines().find_map(|line| line.strip_prefix("tamma_refused_tokens_total "));
        value.map_or(0.0, |value| value.parse::<f64>().expect("number"))
    };
    let before = count();
    let mut browser = Browser::anonymous(&server);
    let response = browser.post("/hello", "/hello", "token=guess&to=%2F").await;
    assert_eq!(response.status(), 403);
    assert!(count() > before);
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
