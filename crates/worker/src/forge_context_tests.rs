//! Tests of effects against a small fake of Gitea's API.

use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use axum::{Json, Router};
use serde_json::{Value, json};
use tamma_connect::forge::{ForgeCredential, ForgeSettings};
use tamma_core::forge::ForgeKind;
use tamma_store::RegisteredProject;
use tamma_testkit::postgres::TestDatabase;
use tamma_testkit::sample::{project_id, task_id};

use super::*;

/// State of the fake forge.
#[derive(Default)]
struct FakeForge {
    pulls: Vec<Value>,
    statuses: Vec<Value>,
    /// Requests that had, or would have, an effect.
    writes: Vec<String>,
    /// Applies the next write, and loses its answer.
    loses_answer: bool,
    /// Refuses writes with this status.
    refuses: Option<StatusCode>,
}

type SharedFake = Arc<Mutex<FakeForge>>;

impl FakeForge {
    fn write(&mut self, path: &str, body: &Value) -> (StatusCode, Json<Value>) {
        self.writes.push(path.to_owned());
        if let Some(status) = self.refuses {
            return (status, Json(json!({ "message": "token does not have the required scope" })));
        }
        let created = if path == "/pulls" {
            let number = self.pulls.len() + 1;
            let pull = json!({
                "number": number, "html_url": format!("https://forge.example/acme/app/pulls/{number}"),
                "state": "open", "title": body["title"], "body": body["body"],
                "head": { "ref": body["head"], "label": body["head"], "sha": "1".repeat(40) },
                "base": { "ref": body["base"], "sha": "0".repeat(40) },
            });
            self.pulls.push(pull.clone());
            pull
        } else {
            let status = json!({
                "id": self.statuses.len() + 1, "status": body["state"], "context": body["context"],
                "description": body["description"], "target_url": "",
            });
            self.statuses.push(status.clone());
            status
        };
        if std::mem::take(&mut self.loses_answer) {
            return (StatusCode::BAD_GATEWAY, Json(Value::Null));
        }
        (StatusCode::CREATED, Json(created))
    }

    fn read(&self, path: &str) -> (StatusCode, Json<Value>) {
        if path == "/pulls" {
            return (StatusCode::OK, Json(json!(self.pulls)));
        }
        if path.starts_with("/pulls/main/") {
            return match self.pulls.last() {
                Some(pull) => (StatusCode::OK, Json(pull.clone())),
                None => (StatusCode::NOT_FOUND, Json(json!({ "message": "not found" }))),
            };
        }
        if path.starts_with("/commits/") {
            let (statuses, total) = (&self.statuses, self.statuses.len());
            return (StatusCode::OK, Json(json!({ "statuses": statuses, "total_count": total })));
        }
        (StatusCode::NOT_FOUND, Json(json!({ "message": "not found" })))
    }
}

async fn answer(
    State(fake): State<SharedFake>,
    method: Method,
    uri: Uri,
    body: Bytes,
) -> (StatusCode, Json<Value>) {
    let path = uri.path().strip_prefix("/api/v1/repos/acme/app").unwrap_or_default().to_owned();
    let mut fake = fake.lock().unwrap();
    if method == Method::GET {
        return fake.read(&path);
    }
    let body = serde_json::from_slice(&body).unwrap_or_default();
    fake.write(&path, &body)
}

/// Starts a fake forge, and returns a context for it.
async fn forge(store: &Store) -> (ForgeContext, SharedFake) {
    let project = project_id(1);
    let (name, repository) = ("app".to_owned(), "/app".to_owned());
    store.register_project(&RegisteredProject { id: project, name, repository }).await.unwrap();
    let fake = SharedFake::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = Router::new().fallback(answer).with_state(fake.clone());
    tokio::spawn(async move { axum::serve(listener, app).await });
    let settings = ForgeSettings {
        name: "acme".to_owned(),
        kind: ForgeKind::Gitea,
        url,
        api: None,
        credential: ForgeCredential::Token("t0ken".to_owned()),
        webhook_secret: None,
    };
    let context = ForgeContext {
        store: store.clone(),
        forge: Forge::open(&settings).unwrap(),
        repository: "acme/app".to_owned(),
        project,
        task: task_id(1),
    };
    (context, fake)
}

fn commit(digit: &str) -> CommitId {
    digit.repeat(40).parse().unwrap()
}

fn change() -> NewChange {
    NewChange {
        branch: "tamma/1".to_owned(),
        base: "main".to_owned(),
        title: "Greet Cy".to_owned(),
        body: "Cy is greeted.".to_owned(),
        labels: Vec::new(),
        reviewers: Vec::new(),
    }
}

#[tokio::test]
async fn a_pull_request_is_opened_once_even_if_the_answer_is_lost() {
    let database = TestDatabase::fresh().await.unwrap();
    let store = database.store().await.unwrap();
    let (context, fake) = forge(&store).await;
    fake.lock().unwrap().loses_answer = true;
    for generation in ["1", "1", "2"] {
        let found = context.open_change(commit(generation), &change()).await.unwrap();
        assert_eq!((found.number, found.open), (1, true));
    }
    assert_eq!(fake.lock().unwrap().writes, ["/pulls"]);
    let found = context.find("tamma/1", "main").await.unwrap().unwrap();
    context.save(&found, ("tamma/1", "main")).await.unwrap();
    let stored = store.pull_request(task_id(1)).await.unwrap().unwrap();
    assert_eq!((stored.number, stored.is_dirty), (1, true));
}

#[tokio::test]
async fn a_check_is_published_once_for_each_job() {
    let database = TestDatabase::fresh().await.unwrap();
    let (context, fake) = forge(&database.store().await.unwrap()).await;
    let report = CheckReport {
        name: "tamma".to_owned(),
        commit: commit("1"),
        passed: Some(true),
        title: "Passed".to_owned(),
        summary: String::new(),
        details_url: None,
        annotations: Vec::new(),
    };
    for _ in 0..2 {
        context.publish_check(7, &report).await.unwrap();
    }
    assert_eq!(fake.lock().unwrap().statuses.len(), 1);
}

#[tokio::test]
async fn a_missing_permission_is_a_reason_for_people_and_can_be_repaired() {
    let database = TestDatabase::fresh().await.unwrap();
    let (context, fake) = forge(&database.store().await.unwrap()).await;
    fake.lock().unwrap().refuses = Some(StatusCode::FORBIDDEN);
    let refused = context.open_change(commit("1"), &change()).await.unwrap_err();
    let ForgeFailure::Refused(reason) = refused else { panic!("{refused:?}") };
    assert!(reason.contains("scope") && reason.contains("tamma forge check acme"), "{reason}");
    fake.lock().unwrap().refuses = None;
    assert_eq!(context.open_change(commit("1"), &change()).await.unwrap().number, 1);
}

#[test]
fn a_rate_limit_delays_a_job_for_at_most_an_hour() {
    let at = Timestamp::UNIX_EPOCH;
    let delay = |seconds: i64| {
        let until = at + chrono::TimeDelta::seconds(seconds);
        let limited = ForgeError::RateLimited { forge: "acme".to_owned(), until };
        match ForgeFailure::from_request(limited, at) {
            ForgeFailure::Later(seconds) => seconds,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!([-5, 90, 90_000].map(delay), [60, 90, 3_600]);
}

#[test]
fn a_project_without_a_forge_is_told_how_to_add_one() {
    let folder = tempfile::tempdir().unwrap();
    let forges = Forges::open(folder.path());
    let found = forges.for_repository("https://git.acme.example/acme/app").unwrap();
    assert!(found.is_none());
    let text = no_forge_text("https://me:secret@git.acme.example/acme/app");
    assert!(text.contains("tamma forge add") && !text.contains("secret"), "{text}");
}

#[test]
fn another_attempt_of_a_check_is_newer() {
    let check = |id: &str, result| CheckFact {
        name: "ci".to_owned(),
        id: id.to_owned(),
        required: true,
        result,
    };
    assert!(!has_newer_attempt(&[check("1", CheckResult::Failed)], "ci", "1"));
    assert!(has_newer_attempt(&[check("1", CheckResult::Pending)], "ci", "1"));
    assert!(has_newer_attempt(&[check("2", CheckResult::Failed)], "ci", "1"));
    assert!(!has_newer_attempt(&[check("2", CheckResult::Failed)], "lint", "1"));
}
