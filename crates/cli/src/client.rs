//! The way to the server.
//!
//! Nothing is tried again here: a request that was not answered is told, with what to do.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{RequestBuilder, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tamma_server::shape::{Card, Page};
use tamma_server::{IDEMPOTENCY_KEY, PERSON, Problem};
use uuid::Uuid;

use crate::endpoint::{self, Endpoint};
use crate::{folders, look, output, person};

/// Which server, and how to answer.
#[derive(Debug, Clone, Args)]
pub(crate) struct Target {
    /// The server. By default `TAMMA_URL`, else the one that `tamma up` has started.
    #[arg(long, value_name = "URL", global = true, help_heading = "Connection")]
    server: Option<String>,
    /// Writes JSON to standard output, for programs.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// Who asks, for commands that change something.
#[derive(Debug, Clone, Args)]
pub(crate) struct Asker {
    /// Your name, for the log. By default `TAMMA_PERSON`, else git's `user.name`, else the login name.
    #[arg(long = "as", value_name = "NAME", help_heading = "Connection")]
    name: Option<String>,
}

impl Asker {
    /// The name.
    pub(crate) fn name(&self) -> Result<String> {
        person::name(self.name.as_deref())
    }
}

/// Why the server did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Nobody answers.
    #[error("No Tamma server answers at {url}: start one with `tamma up`")]
    Unreachable {
        /// Where.
        url: String,
    },
    /// The server says why not.
    #[error("{}", told(.0))]
    Problem(Box<Problem>),
    /// Somebody answers who is not a Tamma server of our time.
    #[error("{url} answers with {status}, and not as a Tamma server does: is the address right?")]
    Stranger {
        /// Where.
        url: String,
        /// With what.
        status: StatusCode,
    },
    /// The address makes no sense.
    #[error("`{0}` is not the address of a server: write it like http://127.0.0.1:8622")]
    Address(String),
    /// No task, or several, have such an id.
    #[error("{}", which(.said, .found))]
    Which {
        /// What was said.
        said: String,
        /// The tasks that could be meant.
        found: Vec<Card>,
    },
}

fn told(problem: &Problem) -> String {
    let mut text = output::plain(&problem.detail);
    for fault in &problem.problems {
        let place = match (fault.line, fault.column) {
            (Some(line), Some(column)) => format!("{line}:{column}: "),
            _ => String::new(),
        };
        look::add(&mut text, format_args!("\n  {place}{}", output::plain(&fault.message)));
        if let Some(help) = &fault.help {
            look::add(&mut text, format_args!(" ({})", output::plain(help)));
        }
    }
    if let Some(what) = &problem.what_to_do {
        look::add(&mut text, format_args!("\n  = help: {}", output::plain(what)));
    }
    text
}

fn which(said: &str, found: &[Card]) -> String {
    if found.is_empty() {
        return format!(
            "no task has an id that begins or ends with `{said}`: `tamma task list --all` shows \
             them"
        );
    }
    let mut text = format!("`{said}` could be one of {} tasks:", found.len());
    for card in found {
        look::add(&mut text, format_args!("\n  {}  {}", card.id, output::plain(&card.title)));
    }
    text + "\n  = help: give more digits"
}

impl Error {
    /// The same for programs.
    fn problem(&self) -> Problem {
        let of = |kind: &str, title: &str| Problem {
            kind: format!("tamma:{kind}"),
            title: title.to_owned(),
            status: 0,
            detail: self.to_string(),
            what_to_do: None,
            problems: Vec::new(),
        };
        match self {
            Self::Problem(problem) => (**problem).clone(),
            Self::Unreachable { .. } => of("unreachable", "No server answers"),
            Self::Stranger { .. } => of("stranger", "It is not a Tamma server"),
            Self::Address(_) => of("address", "The address is not valid"),
            Self::Which { found, .. } if found.is_empty() => of("not-found", "No such task"),
            Self::Which { .. } => of("ambiguous", "Several tasks could be meant"),
        }
    }
}

/// A server that can be asked.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    url: String,
    token: Option<HeaderValue>,
}

impl Client {
    /// The server that is meant.
    pub(crate) fn new(target: &Target) -> Result<Self> {
        let (url, token) = locate(target.server.as_deref());
        Self::at(url, token)
    }

    /// The server that has written down where it is.
    pub(crate) fn of(endpoint: endpoint::Endpoint) -> Result<Self> {
        Self::at(endpoint.url, endpoint.token)
    }

    fn at(url: String, token: Option<String>) -> Result<Self> {
        if !url.starts_with("http://") || url.len() == "http://".len() {
            return Err(Error::Address(url).into());
        }
        let token = token
            .map(|token| HeaderValue::try_from(format!("Bearer {token}")))
            .transpose()
            .context("the token has characters in it that cannot be sent")?
            .map(|mut token| {
                token.set_sensitive(true);
                token
            });
        // A proxy of the environment is for the world outside, and our server is not there.
        let http = reqwest::Client::builder().no_proxy().build()?;
        Ok(Self { http, url: url.trim_end_matches('/').to_owned(), token })
    }

    /// A request for a path under the API.
    pub(crate) fn request(&self, method: reqwest::Method, path: &str) -> RequestBuilder {
        self.request_at(method, &format!("/api/v1{path}"))
    }

    /// A request for a path of the server.
    pub(crate) fn request_at(&self, method: reqwest::Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.url));
        match &self.token {
            Some(token) => request.header(AUTHORIZATION, token.clone()),
            None => request,
        }
    }

    /// Sends a request, and sees to it that the answer is not a problem.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<Response, Error> {
        // Why nobody answers is seldom of use: it is refused, or it takes too long.
        let unreachable = |_| Error::Unreachable { url: self.url.clone() };
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let problem = response.json::<Problem>().await;
        Err(match problem {
            Ok(problem) => Error::Problem(Box::new(problem)),
            Err(_) => Error::Stranger { url: self.url.clone(), status },
        })
    }

    async fn read<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, Error> {
        let response = self.send(request).await?;
        let status = response.status();
        response.json().await.map_err(|_| Error::Stranger { url: self.url.clone(), status })
    }

    /// Gets what is at a path.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, Error> {
        self.read(self.request(reqwest::Method::GET, path).query(query)).await
    }

    /// Sends something in the name of a person.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        by: &str,
        key: Uuid,
        body: &impl Serialize,
    ) -> Result<T> {
        let by = HeaderValue::from_bytes(by.as_bytes())
            .context("your name has characters in it that cannot be sent")?;
        let request = self
            .request(reqwest::Method::POST, path)
            .header(PERSON, by)
            .header(IDEMPOTENCY_KEY, key.to_string())
            .json(body);
        Ok(self.read(request).await?)
    }

    /// Puts something in the place of what is there, in the name of a person.
    pub(crate) async fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        by: &str,
        body: &impl Serialize,
    ) -> Result<T> {
        let by = HeaderValue::from_bytes(by.as_bytes())
            .context("your name has characters in it that cannot be sent")?;
        let request = self.request(reqwest::Method::PUT, path).header(PERSON, by).json(body);
        Ok(self.read(request).await?)
    }

    /// The id of the task that is meant: all of it, or some digits from its beginning or end.
    pub(crate) async fn which(&self, said: &str) -> Result<Uuid, Error> {
        if let Ok(id) = said.parse() {
            return Ok(id);
        }
        let mut found: Page = self.get("/tasks", &[("short", said)]).await?;
        match found.tasks.as_slice() {
            [card] if found.damaged.is_empty() => Ok(card.id),
            [] if found.damaged.len() == 1 => Ok(found.damaged.remove(0).id),
            _ => Err(Error::Which { said: said.to_owned(), found: found.tasks }),
        }
    }
}

/// Where the server is, and its token.
fn locate(given: Option<&str>) -> (String, Option<String>) {
    let token = std::env::var("TAMMA_TOKEN").ok().filter(|token| !token.is_empty());
    let named = given
        .map(str::to_owned)
        .or_else(|| std::env::var("TAMMA_URL").ok().filter(|url| !url.is_empty()));
    let data = std::env::var_os("TAMMA_DATA").filter(|data| !data.is_empty()).map(PathBuf::from);
    let local = folders::data(data.as_deref()).ok().and_then(|data| endpoint::read(&data));
    let url = named
        .or_else(|| local.as_ref().map(|local| local.url.clone()))
        .unwrap_or_else(|| endpoint::DEFAULT.to_owned());
    // The token of this machine's server is for that server only.
    let same = |local: &Endpoint| local.url.trim_end_matches('/') == url.trim_end_matches('/');
    let token = token.or_else(|| local.filter(same)?.token);
    (url, token)
}

/// Does something that waits for the server, and tells programs in JSON why it could not be done.
pub(crate) fn run(
    target: &Target,
    work: impl Future<Output = Result<ExitCode>>,
) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(work);
    match done {
        Err(error) if target.json => match error.downcast_ref::<Error>() {
            Some(known) => {
                output::json(&known.problem())?;
                Ok(ExitCode::FAILURE)
            }
            None => Err(error),
        },
        done => done,
    }
}

/// A new id, in the order of time.
#[expect(clippy::disallowed_methods, reason = "ids of tasks and requests are drawn here")]
pub(crate) fn new_id() -> Uuid {
    Uuid::now_v7()
}
