//! GitHub of our own: REST and the GraphQL queries of our client, over real bare repositories that
//! `git http-backend` serves.
//!
//! It keeps state, responds with the status codes of GitHub, counts requests against a quota, and
//! records every exchange, so that a test can compare them with GitHub's description of its API.

mod graphql;
mod rest;
mod state;

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::Response;
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub(super) use self::state::now;
use self::state::{GithubState, NewCheck};
use super::git_backend::{self, GitBackend};
use super::github_answers::{Addresses, error};

/// Token that the fake accepts.
const TOKEN: &str = "ghp_token-of-the-fake-github";

/// Account of the token.
const BOT: &str = "tamma-bot";

/// Requests of an hour.
const QUOTA: u64 = 5_000;

/// Recorded request with its response.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// Method.
    pub method: String,
    /// Path below the API's address, without the query.
    pub path: String,
    /// Body of the request; `null` without one.
    pub request: Value,
    /// Status of the response.
    pub status: u16,
    /// Body of the response; `null` if it is not JSON.
    pub response: Value,
}

/// Fake GitHub. Dropping it ends it and removes its data.
#[derive(Debug)]
pub struct FakeGithub {
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    folder: TempDir,
    addresses: Addresses,
    state: Mutex<GithubState>,
    exchanges: Mutex<Vec<Exchange>>,
    calls: Mutex<u64>,
}

/// Locks a mutex, also after a panic of another holder.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FakeGithub {
    /// Starts it on a loopback address.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let pages = format!("http://{}", listener.local_addr()?);
        let shared = Arc::new(Shared {
            folder: tempfile::tempdir()?,
            addresses: Addresses { api: format!("{pages}/api/v3"), pages },
            state: Mutex::default(),
            exchanges: Mutex::default(),
            calls: Mutex::default(),
        });
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

    /// Returns the address of its pages and repositories.
    pub fn url(&self) -> String {
        self.shared.addresses.pages.clone()
    }

    /// Returns the token of Tamma's account.
    pub fn token(&self) -> &'static str {
        TOKEN
    }

    /// Creates a repository, `owner/name`, with the commits of a folder.
    pub fn create_repository(&self, name: &str, from: &Path) -> Result<()> {
        let bare = self.bare(name);
        let (bare, from) = (bare.display().to_string(), from.display().to_string());
        git(self.shared.folder.path(), &["clone", "--quiet", "--bare", &from, &bare])?;
        let settings = ["config", "http.receivepack", "true"];
        git(Path::new(&bare), &settings)?;
        lock(&self.shared.state).repositories.insert(name.to_owned());
        Ok(())
    }

    /// Returns the folder of a repository.
    pub fn bare(&self, name: &str) -> std::path::PathBuf {
        self.shared.folder.path().join(format!("{name}.git"))
    }

    /// Lets an account push.
    pub fn add_writer(&self, account: &str) {
        lock(&self.shared.state).writers.insert(account.to_owned());
    }

    /// Adds a check run to a commit and returns its ID. `passed` is `None` while it runs.
    pub fn add_check(&self, commit: &str, name: &str, passed: Option<bool>, log: &str) -> u64 {
        let check = NewCheck { commit, name, app: "github-actions", log: Some(log) };
        lock(&self.shared.state).add_check(&check, passed)
    }

    /// Adds a thread of a review on a line, and returns its ID.
    pub fn add_thread(&self, pull: u64, by: &str, path: &str, line: u32, text: &str) -> String {
        lock(&self.shared.state).add_thread(pull, by, path, line, text)
    }

    /// Adds a review. `verdict` is `APPROVED`, `CHANGES_REQUESTED` or `COMMENTED`.
    pub fn add_review(&self, pull: u64, by: &str, verdict: &str, commit: &str) {
        lock(&self.shared.state).add_review(pull, by, verdict, commit);
    }

    /// Adds an issue of an account to a repository, and returns its number.
    pub fn add_issue(
        &self,
        (repository, by): (&str, &str),
        title: &str,
        body: &str,
        labels: &[&str],
    ) -> u64 {
        lock(&self.shared.state).add_issue((repository, by), title, body, labels)
    }

    /// Adds a comment of an account and returns its ID.
    pub fn add_comment(&self, number: u64, by: &str, body: &str) -> u64 {
        lock(&self.shared.state).add_comment(number, by, body)
    }

    /// Returns the branches of a repository's pull requests, with `true` for merged ones.
    pub fn pull_requests(&self, repository: &str) -> Vec<(String, bool)> {
        let state = lock(&self.shared.state);
        let own = state.pulls.values().filter(|it| it.repository == repository);
        own.map(|it| (it.branch.clone(), it.merged.is_some())).collect()
    }

    /// Returns the texts of Tamma's comments and replies in a repository.
    pub fn own_comments(&self, repository: &str) -> Vec<String> {
        let state = lock(&self.shared.state);
        let is_here = |number: u64| {
            let pull = state.pulls.get(&number).map(|it| &it.repository);
            let issue = state.issues.get(&number).map(|it| &it.repository);
            pull.or(issue).is_some_and(|it| it == repository)
        };
        let replies = state.threads.iter().flat_map(|it| &it.comments);
        let own = state.comments.iter().chain(replies);
        let own = own.filter(|it| it.by == BOT && is_here(it.number));
        own.map(|it| it.body.clone()).collect()
    }

    /// Returns the states of Tamma's statuses of a commit, oldest first.
    pub fn own_statuses(&self, commit: &str) -> Vec<String> {
        let state = lock(&self.shared.state);
        let own = state.statuses.iter().filter(|it| it.by == BOT && it.commit == commit);
        own.map(|it| it.content["state"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Returns `true` if an issue is open.
    pub fn is_open(&self, issue: u64) -> bool {
        lock(&self.shared.state).issues.get(&issue).is_some_and(|it| it.open)
    }

    /// Returns the number of pull requests, comments and commit statuses of Tamma: what a repeated
    /// effect would double.
    pub fn effects(&self) -> [usize; 3] {
        lock(&self.shared.state).effects(BOT)
    }

    /// Counts requests of other programs against the quota of 5,000.
    pub fn use_quota(&self, requests: u64) {
        *lock(&self.shared.calls) += requests;
    }

    /// Returns all exchanges so far.
    pub fn exchanges(&self) -> Vec<Exchange> {
        lock(&self.shared.exchanges).clone()
    }

    /// Returns the number of requests that counted against the quota.
    pub fn calls(&self) -> u64 {
        *lock(&self.shared.calls)
    }

    /// Renews the quota, as after an hour.
    pub fn renew_quota(&self) {
        *lock(&self.shared.calls) = 0;
    }
}

impl Drop for FakeGithub {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Parts of a request.
struct Incoming {
    method: Method,
    path: String,
    query: Vec<(String, String)>,
    body: Value,
}

impl Incoming {
    fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

async fn handle(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path = uri.path().to_owned();
    if path.contains(".git/") {
        let users = ["x-access-token", BOT];
        let backend = GitBackend { folder: shared.folder.path(), users: &users, token: TOKEN };
        return git_backend::serve(&backend, &method, &uri, &headers, &body).await;
    }
    let path = path.strip_prefix("/api/v3").or(path.strip_prefix("/api")).unwrap_or(&path);
    let query = uri.query().unwrap_or_default();
    let query = query.split('&').filter_map(|pair| pair.split_once('='));
    let query = query.map(|(key, value)| (decode(key), decode(value))).collect();
    let parsed = serde_json::from_slice(&body).unwrap_or_default();
    let incoming = Incoming { method, path: decode(path), query, body: parsed };
    let is_authorized = headers
        .get("authorization")
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.ends_with(TOKEN));
    if !is_authorized {
        return respond(&shared, 401, &error("Bad credentials"), None);
    }
    let (status, answer) = if incoming.path == "/graphql" {
        (200, graphql::answer(&shared, &incoming))
    } else {
        rest::answer(&shared, &incoming)
    };
    // GitHub redirects to a log; the fake sends it at once.
    let is_log = answer.is_string();
    lock(&shared.exchanges).push(Exchange {
        method: incoming.method.to_string(),
        path: incoming.path.clone(),
        request: incoming.body.clone(),
        status: if is_log { 302 } else { status },
        response: if is_log { Value::Null } else { answer.clone() },
    });
    if let Value::String(text) = &answer {
        // A log, which is plain text.
        *lock(&shared.calls) += 1;
        return Response::new(Body::from(text.clone()));
    }
    let validator = format!("\"{:x}\"", hash(&answer.to_string()));
    let known = headers.get("if-none-match").and_then(|value| value.to_str().ok());
    if status == 200 && known == Some(validator.as_str()) {
        // Costs no quota.
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return response;
    }
    *lock(&shared.calls) += 1;
    respond(&shared, status, &answer, Some(("etag", validator)))
}

fn respond(
    shared: &Shared,
    status: u16,
    body: &Value,
    header: Option<(&'static str, String)>,
) -> Response {
    let left = QUOTA.saturating_sub(*lock(&shared.calls));
    let mut builder = Response::builder()
        .status(status)
        .header("content-type", "application/json; charset=utf-8")
        .header("x-oauth-scopes", "repo, workflow")
        .header("x-ratelimit-limit", QUOTA)
        .header("x-ratelimit-remaining", left);
    if let Some((name, value)) = header {
        builder = builder.header(name, value);
    }
    let text = if body.is_null() { String::new() } else { body.to_string() };
    builder.body(Body::from(text)).unwrap_or_default()
}

fn hash(text: &str) -> u64 {
    use std::hash::{Hash as _, Hasher as _};
    let mut hasher = std::hash::DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Decodes percent-encoded text.
pub(super) fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let decoded = match byte {
            b'%' => {
                let digits: String = rest.by_ref().take(2).map(char::from).collect();
                u8::from_str_radix(&digits, 16).unwrap_or(b'?')
            }
            b'+' => b' ',
            other => other,
        };
        bytes.push(decoded);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Runs git in a folder and returns its output.
#[expect(clippy::disallowed_methods, reason = "test repositories are changed synchronously")]
pub(super) fn git(folder: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_AUTHOR_NAME", "GitHub")
        .env("GIT_AUTHOR_EMAIL", "noreply@example.org")
        .env("GIT_COMMITTER_NAME", "GitHub")
        .env("GIT_COMMITTER_EMAIL", "noreply@example.org")
        .output()
        .context("cannot start `git`")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`git {}` failed: {errors}", arguments.join(" "));
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
