//! HTTP client of the Tamma server.
//!
//! Requests are not retried: an error goes to the person, with its fix.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{RequestBuilder, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tamma_server::dto::{TaskCard, TaskPage};
use tamma_server::{IDEMPOTENCY_KEY_HEADER, PERSON_HEADER, Problem};
use uuid::Uuid;

use crate::endpoint::{self, Endpoint};
use crate::saved_logins::{self, SavedLogin};
use crate::{data_folder, identity, output, style};

/// Display order of options that every command has, before `--help`.
const LAST: usize = 998;

/// Server to use, and the output format.
#[derive(Debug, Clone, Args)]
pub(crate) struct ClientArgs {
    #[arg(
        long,
        value_name = "URL",
        global = true,
        help_heading = "Connection",
        help = "Server URL [default: $TAMMA_URL or the server started by `tamma up`]"
    )]
    server: Option<String>,
    /// Print JSON
    #[arg(long, global = true, display_order = LAST)]
    pub(crate) json: bool,
}

impl ClientArgs {
    /// Returns `true` if the arguments or the environment name a server.
    pub(crate) fn names_server(&self) -> bool {
        let variable = || std::env::var("TAMMA_URL").ok().filter(|url| !url.is_empty());
        self.server.is_some() || variable().is_some()
    }
}

/// Name of the person, for commands that change something.
#[derive(Debug, Clone, Args)]
pub(crate) struct IdentityArgs {
    #[arg(
        long = "as",
        value_name = "NAME",
        help_heading = "Connection",
        help = "Your name [default: $TAMMA_PERSON, git user.name or login name]"
    )]
    name: Option<String>,
}

impl IdentityArgs {
    /// Returns the name from the arguments, or the first default that is set.
    pub(crate) fn resolve_name(&self) -> Result<String> {
        identity::resolve_name(self.name.as_deref())
    }
}

/// Failure of a request to the server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No server accepts connections at the URL.
    #[error(
        "cannot reach the Tamma server at {url}: {reason}\n  help: start it with `tamma up`, or name another \
         one with --server or TAMMA_URL"
    )]
    Unreachable {
        /// Server URL.
        url: String,
        /// Cause, such as `connection refused`.
        reason: String,
    },
    /// Problem that the server returned.
    #[error("{}", format_problem(.0))]
    Problem(Box<Problem>),
    /// Response that is not from a compatible Tamma server.
    #[error("unexpected response from {url} ({status}): it is not a compatible Tamma server")]
    NotTamma {
        /// Server URL.
        url: String,
        /// HTTP status of the response.
        status: StatusCode,
    },
    /// URL that is not an HTTP URL.
    #[error("invalid server URL `{0}`\n  help: use a form such as http://127.0.0.1:8622")]
    InvalidUrl(String),
    /// Abbreviated task ID with no match, or several.
    #[error("{}", unresolved_task_message(.query, .candidates))]
    UnresolvedTask {
        /// ID as given.
        query: String,
        /// Matching tasks; empty if there are none.
        candidates: Vec<TaskCard>,
    },
}

fn format_problem(problem: &Problem) -> String {
    let mut text = output::sanitize(&problem.detail);
    for issue in &problem.problems {
        let location = match (issue.line, issue.column) {
            (Some(line), Some(column)) => format!("{line}:{column}: "),
            _ => String::new(),
        };
        style::push_fmt(
            &mut text,
            format_args!("\n  {location}{}", output::sanitize(&issue.message)),
        );
        if let Some(help) = &issue.help {
            style::push_fmt(&mut text, format_args!(" ({})", output::sanitize(help)));
        }
    }
    if let Some(what) = &problem.hint {
        style::push_fmt(&mut text, format_args!("\n  help: {}", output::sanitize(what)));
    }
    text
}

fn unresolved_task_message(query: &str, candidates: &[TaskCard]) -> String {
    if candidates.is_empty() {
        return format!(
            "no task has an ID that starts or ends with `{query}`\n  help: list all tasks with \
             `tamma task list --all`"
        );
    }
    let mut text = format!("`{query}` matches {} tasks:", candidates.len());
    for card in candidates {
        style::push_fmt(
            &mut text,
            format_args!("\n  {}  {}", card.id, output::sanitize(&card.title)),
        );
    }
    text + "\n  help: give more characters"
}

impl Error {
    /// Problem document for `--json`.
    fn to_problem(&self) -> Problem {
        let of = |kind: &str, title: &str| Problem {
            kind: format!("tamma:{kind}"),
            title: title.to_owned(),
            status: 0,
            detail: self.to_string(),
            hint: None,
            problems: Vec::new(),
        };
        match self {
            Self::Problem(problem) => (**problem).clone(),
            Self::Unreachable { .. } => of("unreachable", "Server unreachable"),
            Self::NotTamma { .. } => of("stranger", "Not a Tamma server"),
            Self::InvalidUrl(_) => of("address", "Invalid server URL"),
            Self::UnresolvedTask { candidates, .. } if candidates.is_empty() => {
                of("not-found", "Task not found")
            }
            Self::UnresolvedTask { .. } => of("ambiguous", "Ambiguous task ID"),
        }
    }
}

/// Connection settings of one server.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    url: String,
    token: Option<HeaderValue>,
}

impl Client {
    /// Creates a client for the server that the arguments or the environment name.
    pub(crate) fn new(target: &ClientArgs) -> Result<Self> {
        let (url, token) = find_server(target.server.as_deref());
        Self::connect_to(url, token)
    }

    /// Creates a client for a server found through its endpoint file.
    pub(crate) fn for_endpoint(endpoint: endpoint::Endpoint) -> Result<Self> {
        Self::connect_to(endpoint.url, endpoint.token)
    }

    fn connect_to(url: String, token: Option<String>) -> Result<Self> {
        if !is_web_url(&url) {
            return Err(Error::InvalidUrl(url).into());
        }
        let token = token
            .map(|token| HeaderValue::try_from(format!("Bearer {token}")))
            .transpose()
            .context("token contains characters that HTTP headers do not allow")?
            .map(|mut token| {
                token.set_sensitive(true);
                token
            });
        // Proxy variables are meant for the internet, not for the Tamma server.
        let http = reqwest::Client::builder().no_proxy().build()?;
        Ok(Self { http, url: url.trim_end_matches('/').to_owned(), token })
    }

    /// Returns a client of the same server with another token.
    pub(crate) fn with_token(&self, token: &str) -> Result<Self> {
        Self::connect_to(self.url.clone(), Some(token.to_owned()))
    }

    /// Returns the base URL of the server.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Builds a request to a path of the API.
    pub(crate) fn request(&self, method: reqwest::Method, path: &str) -> RequestBuilder {
        self.request_at(method, &format!("/api/v1{path}"))
    }

    /// Builds a request to a path of the server.
    pub(crate) fn request_at(&self, method: reqwest::Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.url));
        match &self.token {
            Some(token) => request.header(AUTHORIZATION, token.clone()),
            None => request,
        }
    }

    /// Sends a request and turns an error response into an [`Error`].
    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<Response, Error> {
        let unreachable = |error: reqwest::Error| Error::Unreachable {
            url: self.url.clone(),
            reason: connection_failure(&error),
        };
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let problem = response.json::<Problem>().await;
        Err(match problem {
            Ok(problem) => Error::Problem(Box::new(problem)),
            Err(_) => Error::NotTamma { url: self.url.clone(), status },
        })
    }

    async fn send_and_decode<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
    ) -> Result<T, Error> {
        let response = self.send(request).await?;
        let status = response.status();
        response.json().await.map_err(|_| Error::NotTamma { url: self.url.clone(), status })
    }

    /// Sends a GET request and decodes the JSON response.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, Error> {
        self.send_and_decode(self.request(reqwest::Method::GET, path).query(query)).await
    }

    /// Sends a GET request under the name of a person.
    pub(crate) async fn get_as<T: DeserializeOwned>(
        &self,
        path: &str,
        by: &str,
        query: &[(&str, &str)],
    ) -> Result<T> {
        let by = HeaderValue::from_bytes(by.as_bytes())
            .context("name contains characters that HTTP headers do not allow")?;
        let request = self.request(reqwest::Method::GET, path).header(PERSON_HEADER, by);
        Ok(self.send_and_decode(request.query(query)).await?)
    }

    /// Sends a POST request under the name of a person. `key` makes it idempotent.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        by: &str,
        key: Uuid,
        body: &impl Serialize,
    ) -> Result<T> {
        let by = HeaderValue::from_bytes(by.as_bytes())
            .context("name contains characters that HTTP headers do not allow")?;
        let request = self
            .request(reqwest::Method::POST, path)
            .header(PERSON_HEADER, by)
            .header(IDEMPOTENCY_KEY_HEADER, key.to_string())
            .json(body);
        Ok(self.send_and_decode(request).await?)
    }

    /// Sends a PUT request under the name of a person.
    pub(crate) async fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        by: &str,
        body: &impl Serialize,
    ) -> Result<T> {
        let by = HeaderValue::from_bytes(by.as_bytes())
            .context("name contains characters that HTTP headers do not allow")?;
        let request = self.request(reqwest::Method::PUT, path).header(PERSON_HEADER, by).json(body);
        Ok(self.send_and_decode(request).await?)
    }

    /// Resolves a task ID that is complete, or abbreviated to its start or end.
    pub(crate) async fn resolve_task(&self, query: &str) -> Result<Uuid, Error> {
        if let Ok(id) = query.parse() {
            return Ok(id);
        }
        let mut page: TaskPage = self.get("/tasks", &[("short", query)]).await?;
        match page.tasks.as_slice() {
            [card] if page.damaged.is_empty() => Ok(card.id),
            [] if page.damaged.len() == 1 => Ok(page.damaged.remove(0).id),
            _ => Err(Error::UnresolvedTask { query: query.to_owned(), candidates: page.tasks }),
        }
    }
}

/// Returns the cause of a failed request, such as `connection refused`.
fn connection_failure(error: &reqwest::Error) -> String {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |it| it.source());
    let system_error = causes.clone().find_map(|it| it.downcast_ref::<std::io::Error>());
    match system_error.map(std::io::Error::kind) {
        // Resolver errors have no kind of their own.
        None | Some(std::io::ErrorKind::Other) => {
            causes.last().map_or_else(|| error.to_string(), ToString::to_string)
        }
        Some(kind) => kind.to_string(),
    }
}

/// Returns the URL of the server and its token.
fn find_server(explicit: Option<&str>) -> (String, Option<String>) {
    let token = std::env::var("TAMMA_TOKEN").ok().filter(|token| !token.is_empty());
    let url_argument = explicit
        .map(str::to_owned)
        .or_else(|| std::env::var("TAMMA_URL").ok().filter(|url| !url.is_empty()));
    let data = std::env::var_os("TAMMA_DATA").filter(|data| !data.is_empty()).map(PathBuf::from);
    let local = data_folder::resolve(data.as_deref()).ok().and_then(|data| endpoint::read(&data));
    let is_explicit = token.is_some();
    let (url, token) = choose_server(url_argument, token, local);
    // A login counts more than the operator's token on the server's machine.
    let login = saved_login(&url).filter(|_| !is_explicit);
    let token = login.map(|login| login.token).or(token);
    (url, token)
}

/// Returns the login of `tamma login` at a server.
pub(crate) fn saved_login(url: &str) -> Option<SavedLogin> {
    saved_logins::find(url, is_same)
}

/// Saves the login at a server, or removes it.
pub(crate) fn save_login(url: &str, login: Option<SavedLogin>) -> std::io::Result<()> {
    saved_logins::save(url, login, is_same)
}

/// Returns the URL and the token to use. The token of the local server is sent to the address in its
/// endpoint file only, never to another server.
fn choose_server(
    url: Option<String>,
    token: Option<String>,
    local: Option<Endpoint>,
) -> (String, Option<String>) {
    let is_meant = |local: &Endpoint| url.as_ref().is_none_or(|url| is_same(url, &local.url));
    match (token, local.filter(is_meant)) {
        (None, Some(local)) => (local.url, local.token),
        (token, local) => {
            let url = url.or_else(|| local.map(|local| local.url));
            (url.unwrap_or_else(|| endpoint::DEFAULT_URL.to_owned()), token)
        }
    }
}

/// Returns whether a URL is one of a web server. Its name is resolved later.
fn is_web_url(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    rest.is_some_and(|rest| !rest.is_empty())
}

/// Returns whether two URLs name the same server. All names of the loopback address are the same.
fn is_same(one: &str, other: &str) -> bool {
    let parts = |url: &str| {
        let url = reqwest::Url::parse(url).ok()?;
        let host = match url.host_str()? {
            "localhost" | "127.0.0.1" | "[::1]" => "localhost".to_owned(),
            host => host.to_owned(),
        };
        let path = url.path().trim_end_matches('/').to_owned();
        Some((url.scheme().to_owned(), host, url.port_or_known_default(), path))
    };
    parts(one).is_some_and(|one| parts(other) == Some(one))
}

/// Runs a command that talks to the server. With `--json`, prints a known error as JSON.
pub(crate) fn block_on(
    target: &ClientArgs,
    work: impl Future<Output = Result<ExitCode>>,
) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(work);
    match result {
        Err(error) if target.json => match error.downcast_ref::<Error>() {
            Some(client_error) => {
                output::print_json(&client_error.to_problem())?;
                Ok(ExitCode::FAILURE)
            }
            None => Err(error),
        },
        result => result,
    }
}

/// Returns a new time-ordered ID.
#[expect(clippy::disallowed_methods, reason = "ids of tasks and requests are drawn here")]
pub(crate) fn new_id() -> Uuid {
    Uuid::now_v7()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_reached_with_and_without_tls() {
        for url in ["http://127.0.0.1:8622", "https://tamma.example.com"] {
            assert!(is_web_url(url), "{url}");
        }
        for url in ["", "localhost:8622", "http://", "https://", "ftp://tamma.example.com"] {
            assert!(!is_web_url(url), "{url}");
        }
        // A login over TLS is not sent in clear text.
        assert!(!is_same("https://tamma.example.com:80", "http://tamma.example.com"));
    }

    #[test]
    fn the_local_token_is_sent_to_the_local_server_only() {
        let local = || {
            let (url, token) = ("http://127.0.0.1:8622".to_owned(), Some("local".to_owned()));
            Some(Endpoint { url, pid: 1, token })
        };
        let choose = |url: &str| choose_server(Some(url.to_owned()), None, local());
        let own = ("http://127.0.0.1:8622".to_owned(), Some("local".to_owned()));
        assert_eq!(choose_server(None, None, local()), own);
        for alias in ["http://127.0.0.1:8622/", "http://localhost:8622", "http://[::1]:8622"] {
            assert_eq!(choose(alias), own, "{alias}");
        }
        for other in ["http://localhost:8623", "http://tamma.example:8622", "http://localhost"] {
            assert_eq!(choose(other), (other.to_owned(), None));
        }
        let token = || Some("mine".to_owned());
        let named = || "http://localhost:8622".to_owned();
        assert_eq!(choose_server(Some(named()), token(), local()), (named(), token()));
        assert_eq!(choose_server(None, token(), local()), (own.0, token()));
        assert_eq!(choose_server(None, None, None), (endpoint::DEFAULT_URL.to_owned(), None));
    }
}
