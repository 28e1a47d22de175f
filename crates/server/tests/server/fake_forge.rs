//! Gitea in this process, with one repository. It answers what the poller and the intake ask for.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, patch};
use axum::{Json, Router};
use serde_json::{Value, json};

/// Repository of the fake.
pub(crate) const REPOSITORY: &str = "acme/app";

/// Account of Tamma in the fake.
const ACCOUNT: &str = "tamma";

/// Content of the fake.
#[derive(Default)]
pub(crate) struct ForgeContent {
    pub(crate) pulls: Vec<Value>,
    pub(crate) statuses: Vec<Value>,
    pub(crate) issues: Vec<Value>,
    /// Comments on issues, each with its number in `issue`.
    pub(crate) comments: Vec<Value>,
    /// Labels that were set, each with the number of its issue in `issue`.
    pub(crate) labelled: Vec<Value>,
    /// Accounts that can push.
    pub(crate) writers: Vec<String>,
    /// Number of requests for pull requests.
    pub(crate) pulls_read: usize,
}

/// Fake forge that listens on its own address.
#[derive(Clone)]
pub(crate) struct FakeForge {
    content: Arc<Mutex<ForgeContent>>,
    address: SocketAddr,
}

impl FakeForge {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("address");
        let this = Self { content: Arc::default(), address };
        let repository = Router::new()
            .route("/pulls/{number}", get(pull))
            .route("/pulls/{number}/reviews", get(nothing))
            .route("/commits/{commit}/status", get(statuses))
            .route("/branches/{name}", get(|| async { Json(json!({})) }))
            .route("/collaborators/{account}/permission", get(permission))
            .route("/issues", get(issues))
            .route("/issues/comments", get(all_comments))
            .route("/issues/comments/{id}", patch(edit_comment))
            .route("/issues/{number}/timeline", get(timeline))
            .route("/issues/{number}/comments", get(comments).post(add_comment));
        let router = Router::new()
            .route("/api/v1/user", get(|| async { Json(json!({ "login": ACCOUNT })) }))
            .nest(&format!("/api/v1/repos/{REPOSITORY}"), repository)
            .with_state(this.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        this
    }

    /// Address of its API.
    pub(crate) fn api(&self) -> String {
        format!("http://{}/api/v1", self.address)
    }

    /// Locks the content.
    pub(crate) fn content(&self) -> MutexGuard<'_, ForgeContent> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn nothing() -> Json<Value> {
    Json(json!([]))
}

async fn pull(
    State(forge): State<FakeForge>,
    Path(number): Path<u64>,
) -> Result<Json<Value>, StatusCode> {
    let mut content = forge.content();
    content.pulls_read += 1;
    let found = content.pulls.iter().find(|pull| pull["number"] == number);
    found.cloned().map(Json).ok_or(StatusCode::NOT_FOUND)
}

async fn statuses(State(forge): State<FakeForge>) -> Json<Value> {
    let statuses = forge.content().statuses.clone();
    Json(json!({ "total_count": statuses.len(), "statuses": statuses }))
}

async fn permission(State(forge): State<FakeForge>, Path(account): Path<String>) -> Json<Value> {
    let can_write = forge.content().writers.contains(&account);
    Json(json!({ "permission": if can_write { "write" } else { "read" } }))
}

async fn issues(State(forge): State<FakeForge>) -> Json<Value> {
    Json(json!(forge.content().issues))
}

async fn all_comments(State(forge): State<FakeForge>) -> Json<Value> {
    Json(json!(forge.content().comments))
}

async fn comments(State(forge): State<FakeForge>, Path(number): Path<u64>) -> Json<Value> {
    let content = forge.content();
    let found: Vec<_> = content.comments.iter().filter(|it| it["issue"] == number).collect();
    Json(json!(found))
}

async fn timeline(State(forge): State<FakeForge>, Path(number): Path<u64>) -> Json<Value> {
    let content = forge.content();
    let found: Vec<_> = content.labelled.iter().filter(|it| it["issue"] == number).collect();
    Json(json!(found))
}

async fn add_comment(
    State(forge): State<FakeForge>,
    Path(number): Path<u64>,
    Json(body): Json<Value>,
) -> (StatusCode, Json<Value>) {
    let mut content = forge.content();
    let comment = new_comment(content.comments.len() + 1, number, ACCOUNT, &body["body"]);
    content.comments.push(comment.clone());
    (StatusCode::CREATED, Json(comment))
}

async fn edit_comment(
    State(forge): State<FakeForge>,
    Path(id): Path<u64>,
    Json(body): Json<Value>,
) -> Result<Json<Value>, StatusCode> {
    let mut content = forge.content();
    let found = content.comments.iter_mut().find(|it| it["id"] == id);
    let comment = found.ok_or(StatusCode::NOT_FOUND)?;
    comment["body"] = body["body"].clone();
    Ok(Json(comment.clone()))
}

/// Returns a comment on an issue.
pub(crate) fn new_comment(id: usize, issue: u64, by: &str, body: &Value) -> Value {
    let issue_url = format!("https://forge.example/{REPOSITORY}/issues/{issue}");
    json!({
        "id": id, "issue": issue, "issue_url": issue_url, "user": { "login": by }, "body": body,
    })
}

/// Returns the entry of a timeline that says who set a label.
pub(crate) fn new_label(issue: u64, by: &str, label: &str) -> Value {
    json!({
        "issue": issue, "type": "label", "body": "1", "user": { "login": by },
        "label": { "name": label },
    })
}

/// Returns an open pull request.
pub(crate) fn new_pull(number: u64, head: &str) -> Value {
    json!({
        "number": number, "title": "Greet", "state": "open", "mergeable": true,
        "html_url": format!("https://forge.example/{REPOSITORY}/pulls/{number}"),
        "head": { "ref": "tamma/1", "label": "tamma/1", "sha": head },
        "base": { "ref": "main", "label": "main", "sha": "b".repeat(40) },
    })
}

/// Returns an open issue with a label.
pub(crate) fn new_issue(number: u64, by: &str, label: &str) -> Value {
    json!({
        "number": number, "title": "Greet the world", "body": "Kindly.", "state": "open",
        "user": { "login": by }, "labels": [{ "name": label }],
        "html_url": format!("https://forge.example/{REPOSITORY}/issues/{number}"),
        "updated_at": "2026-11-17T09:00:00Z",
    })
}
