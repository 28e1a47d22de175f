//! GitLab of our own: the REST operations of our client, as GitLab documents them, over real bare
//! repositories that `git http-backend` serves.
//!
//! Merge requests and issues have their own numbers, a status that is under way is changed in place, the
//! same status twice is refused, and events are notes of the system.

mod merge_requests;
mod rest;
mod state;

use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, Method, Uri};
use axum::response::Response;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use self::state::{GitlabState, JobRecord};
use super::fake_github::{decode, git, lock};
use super::git_backend::{self, GitBackend};

/// Token that the fake accepts.
const TOKEN: &str = "glpat-token-of-the-fake-gitlab";

/// Account of the token.
const BOT: &str = "tamma-bot";

/// Fake GitLab. Dropping it ends it and removes its data.
#[derive(Debug)]
pub struct FakeGitlab {
    shared: Arc<GitlabServer>,
    server: JoinHandle<()>,
}

#[derive(Debug)]
struct GitlabServer {
    folder: TempDir,
    url: String,
    state: Mutex<GitlabState>,
}

/// Parts of a request.
struct GitlabCall {
    method: Method,
    /// Decoded parts of the path below `/api/v4`.
    parts: Vec<String>,
    query: Vec<(String, String)>,
    body: Value,
}

impl GitlabCall {
    fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn text(&self, key: &str) -> String {
        self.body[key].as_str().unwrap_or_default().to_owned()
    }
}

impl GitlabServer {
    /// Runs git in a repository.
    fn git(&self, repository: &str, arguments: &[&str]) -> Result<String> {
        git(&self.folder.path().join(format!("{repository}.git")), arguments)
    }

    /// Returns the commit of a branch.
    fn tip(&self, repository: &str, branch: &str) -> Option<String> {
        let reference = format!("refs/heads/{branch}");
        self.git(repository, &["rev-parse", "--verify", "--quiet", &reference]).ok()
    }
}

impl FakeGitlab {
    /// Starts it on a loopback address.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let state = Mutex::default();
        let shared = Arc::new(GitlabServer { folder: tempfile::tempdir()?, url, state });
        let app = Router::new()
            .fallback(handle)
            .layer(DefaultBodyLimit::disable())
            .with_state(shared.clone());
        let server = tokio::spawn(async move {
            // Ends with the process, or when the fake is dropped.
            let _ = axum::serve(listener, app).await;
        });
        Ok(Self { shared, server })
    }

    /// Returns its address.
    pub fn url(&self) -> String {
        self.shared.url.clone()
    }

    /// Returns the token of Tamma's account.
    pub fn token(&self) -> &'static str {
        TOKEN
    }

    /// Creates a project, `group/name`, with the commits of a folder.
    pub fn create_repository(&self, name: &str, from: &Path) -> Result<()> {
        let bare = self.shared.folder.path().join(format!("{name}.git"));
        let (bare, from) = (bare.display().to_string(), from.display().to_string());
        git(self.shared.folder.path(), &["clone", "--quiet", "--bare", &from, &bare])?;
        git(Path::new(&bare), &["config", "http.receivepack", "true"])?;
        lock(&self.shared.state).repositories.insert(name.to_owned());
        Ok(())
    }

    /// Gives an account the role Developer.
    pub fn add_writer(&self, account: &str) {
        let mut state = lock(&self.shared.state);
        let id = state.user_id(account);
        state.developers.insert(id);
    }

    /// Adds a job to a commit. `passed` is `None` while it runs.
    pub fn add_check(&self, commit: &str, name: &str, passed: Option<bool>, log: &str) {
        let mut state = lock(&self.shared.state);
        let status = match passed {
            None => "running",
            Some(true) => "success",
            Some(false) => "failed",
        };
        let job = JobRecord {
            id: state.new_id(),
            commit: commit.to_owned(),
            name: name.to_owned(),
            status: status.to_owned(),
            description: String::new(),
            target_url: None,
            trace: Some(log.to_owned()),
            by: "gitlab-ci".to_owned(),
            replaced: false,
        };
        state.jobs.push(job);
    }

    /// Adds a thread on a line of a merge request.
    pub fn add_thread(&self, number: u64, by: &str, path: &str, line: u32, text: &str) {
        let position = json!({
            "position_type": "text", "new_path": path, "old_path": path, "new_line": line,
            "old_line": null,
        });
        lock(&self.shared.state).add_discussion(number, by, text, Some(position));
    }

    /// Adds an issue, whose labels its author set, and returns its number.
    pub fn add_issue(&self, by: &str, title: &str, body: &str, labels: &[&str]) -> u64 {
        lock(&self.shared.state).add_issue(by, title, body, labels)
    }

    /// Adds a note of an account to an issue.
    pub fn add_comment(&self, number: u64, by: &str, text: &str) {
        lock(&self.shared.state).add_issue_note(number, by, text);
    }

    /// Returns the number of merge requests, notes and commit statuses of Tamma: what a repeated effect
    /// would double.
    pub fn effects(&self) -> [usize; 3] {
        lock(&self.shared.state).effects(BOT)
    }
}

impl Drop for FakeGitlab {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn handle(
    State(shared): State<Arc<GitlabServer>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if uri.path().contains(".git/") {
        let users = ["oauth2", BOT];
        let backend = GitBackend { folder: shared.folder.path(), users: &users, token: TOKEN };
        return git_backend::serve(&backend, &method, &uri, &headers, &body).await;
    }
    let token = headers.get("private-token").and_then(|value| value.to_str().ok());
    if token != Some(TOKEN) {
        return respond(401, &json!({ "message": "401 Unauthorized" }));
    }
    let Some(path) = uri.path().strip_prefix("/api/v4/") else {
        return respond(404, &json!({ "error": "404 Not Found" }));
    };
    let query = uri.query().unwrap_or_default();
    let query = query.split('&').filter_map(|pair| pair.split_once('='));
    let call = GitlabCall {
        method,
        parts: path.split('/').map(decode).collect(),
        query: query.map(|(key, value)| (decode(key), decode(value))).collect(),
        body: serde_json::from_slice(&body).unwrap_or_default(),
    };
    let (status, answer) = rest::answer(&shared, &call);
    if let Value::String(text) = &answer {
        // The trace of a job, which is plain text.
        return Response::new(Body::from(text.clone()));
    }
    respond(status, &answer)
}

fn respond(status: u16, body: &Value) -> Response {
    let builder = Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .header("ratelimit-limit", 2_000)
        .header("ratelimit-remaining", 1_999)
        .header("x-next-page", "");
    builder.body(Body::from(body.to_string())).unwrap_or_default()
}
