//! Gateway endpoint of one run.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{collections::HashMap, fmt};

use axum::Router;
use axum::http::{HeaderMap, header};
use tamma_core::prices::PriceTable;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::clock::Clock;
use super::usage_meter::UsageMeter;
use super::{GatewayStop, Ledger, RunEndpointConfig, Upstream};
use crate::process::RunId;
use crate::secret::{Redactor, Secret};

/// Time to wait for usage of calls that were cut off.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(2);

/// State of an open endpoint.
pub(super) struct EndpointState {
    pub(super) run: RunId,
    pub(super) clock: Clock,
    pub(super) upstream: Option<Upstream>,
    /// Models that the run can call. Empty: all.
    pub(super) models: Vec<String>,
    pub(super) meter: Arc<UsageMeter>,
    pub(super) tools: Option<Router>,
    /// Removes the provider's key from the provider's messages.
    pub(super) redactor: Redactor,
    /// Cancels calls in flight.
    pub(super) closed: CancellationToken,
    token: Secret,
}

impl EndpointState {
    /// Returns `true` if a request has the run's token in any of the places that agents use.
    pub(super) fn is_authorized(&self, headers: &HeaderMap, query: Option<&str>) -> bool {
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
            .any(|shown| self.token.matches(shown))
    }
}

/// Open endpoints, by the first segment of their path.
#[derive(Default)]
pub(super) struct RunEndpoints(Mutex<HashMap<String, Arc<EndpointState>>>);

impl RunEndpoints {
    /// Returns the endpoint at a path.
    pub(super) fn get(&self, path: &str) -> Option<Arc<EndpointState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned()
    }

    fn insert(&self, path: String, visit: Arc<EndpointState>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(path, visit);
    }

    fn remove(&self, path: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(path);
    }
}

/// Gateway endpoint of one run: a path and a token. Dropping it closes it.
pub struct RunEndpoint {
    url: String,
    path: String,
    token: Secret,
    state: Arc<EndpointState>,
    endpoints: Arc<RunEndpoints>,
}

impl RunEndpoint {
    /// Opens an endpoint.
    #[expect(clippy::disallowed_methods, reason = "a token must be unpredictable")]
    pub(super) fn open(
        base: &str,
        config: RunEndpointConfig,
        endpoints: Arc<RunEndpoints>,
    ) -> Self {
        let random = || Uuid::new_v4().simple().to_string();
        let token = Secret::new(random() + &random());
        let RunId { task, job_number, generation } = config.run;
        // The same run may open several endpoints.
        let path = format!("{task}-{job_number}-{generation}-{}", &random()[..8]);
        let key = config.upstream.as_ref().map(|upstream| upstream.key.clone());
        let meter = UsageMeter::new(
            PriceTable::new(config.prices, config.now.date_naive()),
            config.budget_limits,
            config.warn_percent,
            config.observer,
        );
        let state = Arc::new(EndpointState {
            run: config.run,
            clock: Clock::starting_at(config.now),
            upstream: config.upstream,
            models: config.models,
            meter: Arc::new(meter),
            tools: config.tools,
            redactor: Redactor::new(key),
            closed: CancellationToken::new(),
            token: token.clone(),
        });
        endpoints.insert(path.clone(), state.clone());
        Self { url: format!("{base}/{path}"), path, token, state, endpoints }
    }

    /// Returns the URL that the agent uses as its provider. OpenAI clients append `/v1`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the token that the agent uses as its API key.
    pub fn token(&self) -> &Secret {
        &self.token
    }

    /// Returns the usage so far. A call counts once its response has ended.
    pub fn ledger(&self) -> Ledger {
        self.state.meter.ledger()
    }

    /// Waits until further model calls are refused.
    pub async fn stopped(&self) -> GatewayStop {
        self.state.meter.stopped().await
    }

    /// Closes the endpoint, cancels calls in flight and returns the final usage.
    pub async fn close(self) -> Ledger {
        self.endpoints.remove(&self.path);
        self.state.closed.cancel();
        // A connection that is neither read nor closed can hold its call for longer.
        let _ = tokio::time::timeout(SETTLE_TIMEOUT, self.state.meter.settled()).await;
        self.state.meter.ledger()
    }
}

impl Drop for RunEndpoint {
    fn drop(&mut self) {
        self.endpoints.remove(&self.path);
        self.state.closed.cancel();
    }
}

impl fmt::Debug for RunEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunEndpoint").field("url", &self.url).finish_non_exhaustive()
    }
}
