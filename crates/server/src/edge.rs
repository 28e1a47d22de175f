//! Edge of the HTTP server: request IDs, time limits, panics and throttled sign-in.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::RequestExt as _;
use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use chrono::TimeDelta;
use futures_util::FutureExt as _;
use tamma_core::ids::Digest;
use tamma_core::task_loop::Timestamp;
use tamma_telemetry::{names, registry};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::clock;
use crate::problem::Problem;
use crate::route_access::audit_kind;

/// Header that identifies a request in responses and logs.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// ID of a request, stored in its extensions.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub(crate) String);

/// Maximum length of a request ID from a client.
const MAX_REQUEST_ID: usize = 64;

/// Time for a response to start. Streams can then last as long as they need.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_mins(2);

/// Failed attempts per address in [`FAILURE_PERIOD`].
const MAX_FAILURES: u32 = 10;

/// Period in which failed attempts are counted.
const FAILURE_PERIOD: TimeDelta = TimeDelta::minutes(1);

/// Maximum number of addresses and tokens that are remembered.
const MAX_REMEMBERED: usize = 10_000;

/// Adds a request ID, and turns panics and slow requests into problems.
pub(crate) async fn guard_request(
    State(limit): State<Duration>,
    mut request: Request,
    next: Next,
) -> Response {
    let id = request_id(&request);
    let id_text = id.to_str().unwrap_or_default().to_owned();
    request.extensions_mut().insert(RequestId(id_text.clone()));
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let span = tracing::info_span!("request", id = id_text);
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let started = Instant::now();
    let respond = AssertUnwindSafe(next.run(request.with_limited_body())).catch_unwind();
    let respond = async {
        match tokio::time::timeout(limit, respond).await {
            Ok(Ok(response)) => response,
            // The panic hook has logged the message.
            Ok(Err(_)) => {
                tracing::error!(%method, path, "request panicked");
                internal_error(&id).into_response()
            }
            Err(_) => {
                tracing::warn!(%method, path, "request timed out");
                timed_out(limit).into_response()
            }
        }
    };
    let mut response = respond.instrument(span).await;
    count_request(&method, route.as_deref(), response.status(), started.elapsed());
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// Tells browsers to use HTTPS only, if this server has TLS.
pub(crate) async fn require_https(State(has_tls): State<bool>, mut response: Response) -> Response {
    if has_tls {
        let value = HeaderValue::from_static("max-age=31536000");
        response.headers_mut().insert(header::STRICT_TRANSPORT_SECURITY, value);
    }
    response
}

/// Adds a request to the metrics. Labels are names from the table of routes.
fn count_request(method: &Method, route: Option<&str>, status: StatusCode, duration: Duration) {
    let route = route.unwrap_or("none");
    let kind = audit_kind(method, route).map_or_else(|| "read".to_owned(), |kind| kind.to_string());
    // Clients can invent methods.
    let known = [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE];
    let method = if known.contains(method) { method.as_str() } else { "other" };
    let class = match status.as_u16() {
        100..=199 => "1xx",
        200..=299 => "2xx",
        300..=399 => "3xx",
        400..=499 => "4xx",
        _ => "5xx",
    };
    let labels = [("method", method), ("route", route), ("status", class)];
    registry().add(&names::HTTP_REQUESTS, &labels, 1.0);
    let seconds = duration.as_secs_f64();
    registry().observe(&names::HTTP_DURATION, &[("kind", kind.as_str())], seconds);
}

/// Returns the ID that the client or a proxy gave the request, or a new one.
fn request_id(request: &Request) -> HeaderValue {
    let is_plain = |value: &&HeaderValue| {
        let bytes = value.as_bytes();
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
        (1..=MAX_REQUEST_ID).contains(&bytes.len()) && bytes.iter().all(plain)
    };
    let given = request.headers().get(&REQUEST_ID).filter(is_plain).cloned();
    given.unwrap_or_else(|| {
        HeaderValue::from_str(&clock::new_id().to_string())
            .unwrap_or_else(|_| HeaderValue::from_static("unknown"))
    })
}

fn internal_error(id: &HeaderValue) -> Problem {
    let detail = format!("Request {} failed.", id.to_str().unwrap_or_default());
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "Internal error", detail)
        .hint("This is a bug. The server log has the request ID and the cause.")
}

fn timed_out(limit: Duration) -> Problem {
    let detail = format!("The server did not finish the request within {} s.", limit.as_secs());
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "timeout", "Request timed out", detail)
        .hint("Try again. If it repeats, request less at once, or check `tamma doctor`.")
}

/// Returns the address of the client, or of the last proxy before the server.
pub(crate) fn client_address(extensions: &axum::http::Extensions) -> Option<IpAddr> {
    extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip())
}

/// Counts failed tokens by address, so that tokens cannot be guessed.
///
/// Tokens that were accepted before are not throttled: everybody behind the same proxy has the same
/// address.
#[derive(Debug)]
pub(crate) struct SignInThrottle {
    /// Attempts per address in [`FAILURE_PERIOD`].
    limit: u32,
    state: Mutex<ThrottleState>,
}

impl Default for SignInThrottle {
    fn default() -> Self {
        Self::new(MAX_FAILURES)
    }
}

#[derive(Debug, Default)]
struct ThrottleState {
    failures: BTreeMap<IpAddr, FailureCount>,
    accepted: BTreeSet<Digest>,
}

#[derive(Debug, Clone, Copy)]
struct FailureCount {
    since: Timestamp,
    count: u32,
}

impl SignInThrottle {
    /// Creates a throttle that counts up to `limit` attempts of an address.
    pub(crate) fn new(limit: u32) -> Self {
        Self { limit, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, ThrottleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the seconds to wait if an address has failed too often.
    pub(crate) fn wait_seconds(
        &self,
        address: Option<IpAddr>,
        token: Digest,
        now: Timestamp,
    ) -> Option<u64> {
        let state = self.state();
        let failed = state.failures.get(&network(address?))?;
        let wait = failed.since + FAILURE_PERIOD - now;
        let is_throttled = failed.count >= self.limit && wait > TimeDelta::zero();
        (is_throttled && !state.accepted.contains(&token))
            .then(|| u64::try_from(wait.num_seconds()).unwrap_or_default() + 1)
    }

    pub(crate) fn record_failure(&self, address: Option<IpAddr>, now: Timestamp) {
        let Some(address) = address.map(network) else { return };
        let mut state = self.state();
        let failures = &mut state.failures;
        if failures.len() >= MAX_REMEMBERED && !failures.contains_key(&address) {
            failures.retain(|_, failed| failed.since + FAILURE_PERIOD > now);
            if failures.len() >= MAX_REMEMBERED {
                failures.clear();
            }
        }
        let failed = failures.entry(address).or_insert(FailureCount { since: now, count: 0 });
        if failed.since + FAILURE_PERIOD <= now {
            *failed = FailureCount { since: now, count: 0 };
        }
        failed.count = failed.count.saturating_add(1);
    }

    pub(crate) fn record_success(&self, token: Digest) {
        let mut state = self.state();
        if state.accepted.len() < MAX_REMEMBERED {
            state.accepted.insert(token);
        }
    }
}

/// Returns the network that an address belongs to: one customer has all addresses of an IPv6 /64.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::extract::DefaultBodyLimit;
    use axum::routing::{get, post};
    use axum::{Router, middleware};
    use futures_util::StreamExt as _;
    use tower::ServiceExt as _;

    use super::*;

    fn app(limit: Duration) -> Router {
        async fn panics() -> &'static str {
            panic!("a bug")
        }
        // Reads the body without an extractor, as the MCP server does.
        async fn reads(request: Request) -> StatusCode {
            match to_bytes(request.into_body(), usize::MAX).await {
                Ok(_) => StatusCode::OK,
                Err(_) => StatusCode::PAYLOAD_TOO_LARGE,
            }
        }
        let endless = || async {
            let chunks = futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>();
            Body::from_stream(chunks)
        };
        Router::new()
            .route("/panic", get(panics))
            .route("/slow", get(std::future::pending::<StatusCode>))
            .route("/stream", get(endless))
            .route("/read", post(reads))
            .route("/fine", get(|| async { "fine" }))
            .layer(middleware::from_fn_with_state(limit, guard_request))
            .layer(DefaultBodyLimit::max(10))
    }

    async fn send(request: axum::http::request::Builder, body: &'static str) -> Response {
        let request = request.body(Body::from(body)).expect("a request");
        app(Duration::from_millis(50)).oneshot(request).await.expect("a response")
    }

    async fn problem(response: Response) -> Problem {
        let kind = response.headers().get(header::CONTENT_TYPE).expect("a type").clone();
        assert_eq!(kind, crate::PROBLEM);
        let body = to_bytes(response.into_body(), 10_000).await.expect("a body");
        serde_json::from_slice(&body).expect("a problem")
    }

    #[tokio::test]
    async fn panic_is_answered_with_a_problem() {
        let response = send(Request::get("/panic"), "").await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(problem(response).await.kind, "tamma:internal");
    }

    #[tokio::test]
    async fn slow_request_is_answered_with_a_problem_and_a_stream_is_not_limited() {
        let response = send(Request::get("/slow"), "").await;
        assert_eq!(problem(response).await.kind, "tamma:timeout");
        let stream = send(Request::get("/stream"), "").await;
        assert_eq!(stream.status(), StatusCode::OK);
        let mut body = stream.into_body().into_data_stream();
        let waited = tokio::time::timeout(Duration::from_millis(200), body.next()).await;
        assert!(waited.is_err(), "the stream stays open");
    }

    #[tokio::test]
    async fn response_has_the_id_of_the_request() {
        let id =
            |response: Response| response.headers()[&REQUEST_ID].to_str().expect("text").to_owned();
        let given = send(Request::get("/fine").header(&REQUEST_ID, "abc-1"), "").await;
        assert_eq!(id(given), "abc-1");
        for bad in ["", "a b", "a\"b", &"x".repeat(65)] {
            let response = send(Request::get("/fine").header(&REQUEST_ID, bad), "").await;
            assert_eq!(id(response).len(), 36, "{bad}");
        }
    }

    #[tokio::test]
    async fn body_is_limited_for_handlers_without_an_extractor() {
        let short = send(Request::post("/read"), "short").await;
        assert_eq!(short.status(), StatusCode::OK);
        let long = send(Request::post("/read"), "longer than ten bytes").await;
        assert_eq!(long.status(), StatusCode::PAYLOAD_TOO_LARGE);
    }

    #[test]
    fn address_with_too_many_failures_waits_unless_its_token_is_known() {
        let throttle = SignInThrottle::default();
        let start = Timestamp::UNIX_EPOCH;
        let address: Option<IpAddr> = "192.0.2.1".parse().ok();
        let (unknown, known) = (Digest::of(b"a"), Digest::of(b"b"));
        throttle.record_success(known);
        for _ in 0..MAX_FAILURES {
            assert_eq!(throttle.wait_seconds(address, unknown, start), None);
            throttle.record_failure(address, start);
        }
        let later = start + TimeDelta::seconds(20);
        assert_eq!(throttle.wait_seconds(address, unknown, later), Some(41));
        assert_eq!(throttle.wait_seconds(address, known, later), None);
        assert_eq!(throttle.wait_seconds("192.0.2.2".parse().ok(), unknown, later), None);
        assert_eq!(throttle.wait_seconds(address, unknown, start + FAILURE_PERIOD), None);
        throttle.record_failure(address, start + FAILURE_PERIOD);
        assert_eq!(throttle.wait_seconds(address, unknown, start + FAILURE_PERIOD), None);
    }

    #[test]
    fn network_of_one_customer_counts_as_one_address() {
        let throttle = SignInThrottle::default();
        let (start, token) = (Timestamp::UNIX_EPOCH, Digest::of(b"a"));
        for host in 0..MAX_FAILURES {
            throttle.record_failure(format!("2001:db8::{host:x}").parse().ok(), start);
        }
        assert!(throttle.wait_seconds("2001:db8::ffff".parse().ok(), token, start).is_some());
        assert!(throttle.wait_seconds("2001:db8:0:1::1".parse().ok(), token, start).is_none());
        for host in 0..=20_000_u32 {
            throttle.record_failure(Some(IpAddr::V4(host.into())), start);
        }
        assert!(throttle.state().failures.len() <= MAX_REMEMBERED);
    }
}
