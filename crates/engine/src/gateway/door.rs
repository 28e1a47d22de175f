//! The door of one run.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{collections::HashMap, fmt};

use axum::Router;
use axum::http::{HeaderMap, header};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::clock::Clock;
use super::meter::Meter;
use super::{Ledger, Stop, Upstream, Visitor};
use crate::process::RunId;
use crate::secret::{Redactor, Secret};

/// How long it is waited for the books of calls that were cut off.
const SETTLE: Duration = Duration::from_secs(2);

/// A run that is inside.
pub(super) struct Visit {
    pub(super) run: RunId,
    pub(super) clock: Clock,
    pub(super) upstream: Option<Upstream>,
    pub(super) meter: Arc<Meter>,
    pub(super) tools: Option<Router>,
    /// Takes the provider's key out of what the provider says.
    pub(super) redactor: Redactor,
    /// Ends what is on its way.
    pub(super) closed: CancellationToken,
    token: Secret,
}

impl Visit {
    /// Whether a request shows the token of this run, in any of the ways that agents have.
    pub(super) fn knows(&self, headers: &HeaderMap, query: Option<&str>) -> bool {
        let header = |name: &str| headers.get(name)?.to_str().ok();
        let bearer = header(header::AUTHORIZATION.as_str())
            .and_then(|value| value.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, token)| token.trim());
        let query =
            query.and_then(|query| query.split('&').find_map(|part| part.strip_prefix("key=")));
        [bearer, header("x-api-key"), header("x-goog-api-key"), query]
            .into_iter()
            .flatten()
            .any(|shown| self.token.is(shown))
    }
}

/// The doors that are open, by the first part of their path.
#[derive(Default)]
pub(super) struct Doors(Mutex<HashMap<String, Arc<Visit>>>);

impl Doors {
    /// Who is inside.
    pub(super) fn visit(&self, path: &str) -> Option<Arc<Visit>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned()
    }

    fn set(&self, path: String, visit: Arc<Visit>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(path, visit);
    }

    fn shut(&self, path: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(path);
    }
}

/// The way of one run through the gateway: a path and a token. It is shut when it is dropped.
pub struct Door {
    url: String,
    path: String,
    token: Secret,
    visit: Arc<Visit>,
    doors: Arc<Doors>,
}

impl Door {
    /// Opens a door.
    #[expect(
        clippy::disallowed_methods,
        reason = "a token is good because nobody can know it before"
    )]
    pub(super) fn open(base: &str, visitor: Visitor, doors: Arc<Doors>) -> Self {
        let random = || Uuid::new_v4().simple().to_string();
        let token = Secret::new(random() + &random());
        let RunId { task, ticket, generation } = visitor.run;
        // The same run may come twice, and each time is one of its own.
        let path = format!("{task}-{ticket}-{generation}-{}", &random()[..8]);
        let key = visitor.upstream.as_ref().map(|upstream| upstream.key.clone());
        let meter =
            Meter::new(visitor.prices, visitor.bounds, visitor.warn_percent, visitor.observer);
        let visit = Arc::new(Visit {
            run: visitor.run,
            clock: Clock::at(visitor.at),
            upstream: visitor.upstream,
            meter: Arc::new(meter),
            tools: visitor.tools,
            redactor: Redactor::new(key),
            closed: CancellationToken::new(),
            token: token.clone(),
        });
        doors.set(path.clone(), visit.clone());
        Self { url: format!("{base}/{path}"), path, token, visit, doors }
    }

    /// The address that the agent is given as that of its provider. Formats of OpenAI add `/v1`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What the agent is given as its key.
    pub fn token(&self) -> &Secret {
        &self.token
    }

    /// What the run has used so far. A call counts when its response is over.
    pub fn ledger(&self) -> Ledger {
        self.visit.meter.ledger()
    }

    /// Resolves when the run calls no model any more.
    pub async fn stopped(&self) -> Stop {
        self.visit.meter.stopped().await
    }

    /// Shuts the door, cuts off what is on its way, and gives the books with all of it in them.
    pub async fn close(self) -> Ledger {
        self.doors.shut(&self.path);
        self.visit.closed.cancel();
        // A connection that nobody reads and nobody closes may keep its call for longer.
        let _ = tokio::time::timeout(SETTLE, self.visit.meter.settled()).await;
        self.visit.meter.ledger()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.doors.shut(&self.path);
        self.visit.closed.cancel();
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("url", &self.url).finish_non_exhaustive()
    }
}
