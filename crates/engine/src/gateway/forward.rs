//! Forwarding of requests to the provider, and of responses to the agent.

use std::sync::Arc;
use std::time::Instant;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::{Stream, StreamExt as _, stream};
use serde_json::Value;
use tamma_core::cost::Cost;
use tamma_core::prices;

use super::clock::{saturating_add, start_timer};
use super::dialect::{Dialect, RequestKind, classify_request};
use super::response_reader::ResponseReader;
use super::run_endpoint::EndpointState;
use super::usage_meter::{CallOutcome, CallReservation, UsageMeter};
use super::{CallFailure, GatewayStop, ModelCall, Upstream, quota};

/// Maximum size of a request. Providers accept less.
const MAX_REQUEST_BYTES: usize = 100 * 1024 * 1024;

/// Maximum size of an error response that is read.
const MAX_ERROR_BYTES: usize = 256 * 1024;

/// Maximum length of a stored error message.
const MAX_MESSAGE_CHARS: usize = 500;

/// Status of a call that the agent closed before its response ended.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// Hop-by-hop headers, and headers that the gateway sets itself.
const STRIPPED_HEADERS: [HeaderName; 14] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::EXPECT,
    header::HOST,
    header::CONTENT_LENGTH,
    header::ACCEPT_ENCODING,
    header::COOKIE,
    header::SET_COOKIE,
];

/// Headers that may contain the run's token.
const TOKEN_HEADERS: [HeaderName; 3] = [
    header::AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("x-goog-api-key"),
];

/// Forwarder of one request.
pub(super) struct Forwarder {
    pub(super) endpoint: Arc<EndpointState>,
    pub(super) client: reqwest::Client,
}

/// Request to the provider.
struct UpstreamRequest {
    method: Method,
    url: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Forwarder {
    /// Forwards a request, if agents are allowed to make it.
    pub(super) async fn forward(self, path: &str, request: Request) -> Response {
        let dialect = Dialect::guess(path);
        let get = request.method() == Method::GET;
        let Some(kind) =
            classify_request(get, path).filter(|_| get || request.method() == Method::POST)
        else {
            return dialect
                .error_response(StatusCode::NOT_FOUND, "the gateway does not forward this path");
        };
        let Some(upstream) = self.endpoint.upstream.clone() else {
            let message = "model calls through the gateway are not allowed in this run";
            return dialect.error_response(StatusCode::FORBIDDEN, message);
        };
        let is_compressed = request.headers().get(header::CONTENT_ENCODING).is_some();
        if is_compressed {
            let message = "compressed requests are not supported";
            return dialect.error_response(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
        }
        let url = upstream_url(&upstream.base_url, path, request.uri().query());
        let (parts, body) = request.into_parts();
        let Ok(body) = axum::body::to_bytes(body, MAX_REQUEST_BYTES).await else {
            let message = "the request is incomplete or too large";
            return dialect.error_response(StatusCode::PAYLOAD_TOO_LARGE, message);
        };
        let headers = request_headers(&parts.headers);
        let outgoing = UpstreamRequest { method: parts.method, url, headers, body };
        match kind {
            RequestKind::Free(dialect) => {
                self.forward_free(&upstream, dialect, outgoing, &parts.headers).await
            }
            RequestKind::Call(dialect) => {
                self.forward_call(upstream, dialect, path, outgoing).await
            }
        }
    }

    /// Forwards a request that costs nothing.
    async fn forward_free(
        &self,
        upstream: &Upstream,
        dialect: Dialect,
        outgoing: UpstreamRequest,
        agent_headers: &HeaderMap,
    ) -> Response {
        // Lists of models have the same path everywhere; the token's header identifies the dialect.
        let dialect = match dialect {
            Dialect::Chat if agent_headers.contains_key("x-api-key") => Dialect::Anthropic,
            Dialect::Chat if agent_headers.contains_key("x-goog-api-key") => Dialect::Gemini,
            dialect => dialect,
        };
        match self.send(upstream, dialect, outgoing).await {
            Ok(response) if response.status().is_success() => {
                let (status, headers) = (response.status(), response_headers(response.headers()));
                (status, headers, Body::from_stream(response.bytes_stream())).into_response()
            }
            Ok(response) => {
                let (status, mut headers) =
                    (response.status(), response_headers(response.headers()));
                headers.remove(header::CONTENT_LENGTH);
                let text = read_error(response).await;
                (status, headers, self.endpoint.redactor.redact(&text).into_owned()).into_response()
            }
            Err(error) => {
                dialect.error_response(StatusCode::BAD_GATEWAY, &unreachable_message(&error))
            }
        }
    }

    /// Forwards a model call.
    async fn forward_call(
        self,
        upstream: Upstream,
        dialect: Dialect,
        path: &str,
        mut outgoing: UpstreamRequest,
    ) -> Response {
        let started = start_timer();
        let body = serde_json::from_slice::<Value>(&outgoing.body).ok();
        let named = body.and_then(|body| Some((dialect.model(path, &body)?, body)));
        let Some((model, mut body)) = named else {
            return dialect
                .error_response(StatusCode::BAD_REQUEST, "the request does not name a model");
        };
        let max_output = dialect.max_output_tokens(&body);
        if dialect.request_usage(&mut body)
            && let Ok(changed) = serde_json::to_vec(&body)
        {
            outgoing.body = changed.into();
        }
        drop(body);

        let call = ModelCall {
            run: self.endpoint.run,
            model,
            dialect,
            status: CLIENT_CLOSED_REQUEST,
            tokens: None,
            cost: Cost::Unknown,
            time_to_first_byte: None,
            duration: std::time::Duration::ZERO,
            started_at: self.endpoint.clock.now(),
            note: None,
        };
        let (meter, closed) = (self.endpoint.meter.clone(), self.endpoint.closed.clone());
        let models = &self.endpoint.models;
        let is_allowed = |allowed: &String| prices::is_same_model(allowed, &call.model);
        if !models.is_empty() && !models.iter().any(is_allowed) {
            // The run goes on: agents call other models for side tasks, and can do without.
            let message = format!(
                "the operator has not allowed the model `{}`; use one of {}",
                call.model,
                models.join(", ")
            );
            return refuse_call(&meter, call, message, started.elapsed());
        }
        let reservation = tokio::select! {
            biased;
            () = closed.cancelled() => return run_over_response(dialect),
            reservation = meter.reserve(&call.model, outgoing.body.len(), max_output) => reservation,
        };
        let reservation = match reservation {
            Ok(reservation) => reservation,
            Err(stop) => {
                return refuse_call(&meter, call, stop_message(&stop), started.elapsed());
            }
        };
        let mut in_flight = InFlightCall {
            reader: ResponseReader::new(dialect, ""),
            endpoint: self.endpoint.clone(),
            reservation: Some(reservation),
            call,
            started,
            failure: None,
            remaining_bytes: None,
        };
        let sent = tokio::select! {
            biased;
            () = closed.cancelled() => None,
            sent = self.send(&upstream, dialect, outgoing) => Some(sent),
        };
        match sent {
            None => run_over_response(dialect),
            Some(Err(error)) => {
                let text = unreachable_message(&error);
                in_flight.fail(StatusCode::BAD_GATEWAY, text.clone());
                dialect.error_response(StatusCode::BAD_GATEWAY, &text)
            }
            Some(Ok(response)) if response.status().is_success() => {
                stream_response(in_flight, response)
            }
            Some(Ok(response)) => self.handle_error_response(&upstream, in_flight, response).await,
        }
    }

    async fn send(
        &self,
        upstream: &Upstream,
        dialect: Dialect,
        outgoing: UpstreamRequest,
    ) -> Result<reqwest::Response, reqwest::Error> {
        let mut request = self
            .client
            .request(outgoing.method, outgoing.url)
            .headers(outgoing.headers)
            .header(header::ACCEPT_ENCODING, "identity");
        if let Some((name, value)) = dialect.auth_header(&upstream.key) {
            request = request.header(name, value);
        }
        if !outgoing.body.is_empty() {
            request = request.body(outgoing.body);
        }
        request.send().await
    }

    /// Handles an error response of the provider.
    async fn handle_error_response(
        &self,
        upstream: &Upstream,
        mut in_flight: InFlightCall,
        response: reqwest::Response,
    ) -> Response {
        let status = response.status();
        let mut headers = response_headers(response.headers());
        let text = read_error(response).await;
        let text = self.endpoint.redactor.redact(&text).into_owned();
        if status == StatusCode::TOO_MANY_REQUESTS {
            let now = self.endpoint.clock.now();
            let until = quota::reset_time(&headers, &text, now);
            let latest_wait = saturating_add(now, upstream.max_quota_wait);
            if let Some(until) = until.filter(|until| *until > latest_wait) {
                self.endpoint.meter.stop(GatewayStop::Quota { until });
            }
        }
        in_flight.fail(status, error_message(&text));
        headers.remove(header::CONTENT_LENGTH);
        (status, headers, text).into_response()
    }
}

/// Model call in flight. Dropping it records its outcome, if that has not happened yet.
struct InFlightCall {
    endpoint: Arc<EndpointState>,
    reservation: Option<CallReservation>,
    call: ModelCall,
    started: Instant,
    reader: ResponseReader,
    failure: Option<CallFailure>,
    /// Remaining bytes of the response, if its length is known.
    remaining_bytes: Option<u64>,
}

impl InFlightCall {
    /// Records a failure.
    fn fail(&mut self, status: StatusCode, text: String) {
        self.call.status = status.as_u16();
        self.failure = Some(CallFailure { status: status.as_u16(), message: text });
        self.record();
    }

    /// Reads a chunk of the response. Usage is recorded before the agent receives the chunk.
    fn observe_chunk(&mut self, chunk: &Bytes) {
        if self.call.time_to_first_byte.is_none() {
            self.call.time_to_first_byte = Some(self.started.elapsed());
        }
        self.reader.read_chunk(chunk);
        let length = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
        self.remaining_bytes = self.remaining_bytes.map(|left| left.saturating_sub(length));
        if self.reader.usage.is_finished() || self.remaining_bytes == Some(0) {
            self.record();
        }
    }

    fn record(&mut self) {
        let Some(reservation) = self.reservation.take() else { return };
        self.reader.finish();
        let mut call = self.call.clone();
        call.duration = self.started.elapsed();
        let usage = &self.reader.usage;
        let answered = (200..300).contains(&call.status) || call.status == CLIENT_CLOSED_REQUEST;
        let outcome = match self.failure.take() {
            Some(failure) if !answered => CallOutcome::Failed(failure),
            failure => CallOutcome::Answered {
                tokens: usage.tokens(),
                model: usage.model.clone(),
                failure: failure.or_else(|| usage.failure.clone()),
            },
        };
        reservation.settle(outcome, call);
    }
}

impl Drop for InFlightCall {
    fn drop(&mut self) {
        self.record();
    }
}

/// Streams a response to the agent while reading its usage.
fn stream_response(mut in_flight: InFlightCall, response: reqwest::Response) -> Response {
    let (status, headers) = (response.status(), response_headers(response.headers()));
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    in_flight.call.status = status.as_u16();
    in_flight.reader =
        ResponseReader::new(in_flight.call.dialect, content_type.unwrap_or_default());
    in_flight.remaining_bytes = response.content_length();
    let body = Body::from_stream(metered_chunks(in_flight, response.bytes_stream()));
    (status, headers, body).into_response()
}

fn metered_chunks(
    in_flight: InFlightCall,
    response: impl Stream<Item = reqwest::Result<Bytes>> + Send + 'static,
) -> impl Stream<Item = reqwest::Result<Bytes>> + Send + 'static {
    let start = (in_flight, Box::pin(response));
    stream::unfold(start, async |(mut in_flight, mut response)| {
        let closed = in_flight.endpoint.closed.clone();
        let chunk = tokio::select! {
            biased;
            chunk = response.next() => chunk?,
            () = closed.cancelled() => return None,
        };
        match &chunk {
            Ok(chunk) => in_flight.observe_chunk(chunk),
            Err(error) => {
                let text = format!("the response was interrupted: {}", describe_error(error));
                in_flight.failure =
                    Some(CallFailure { status: StatusCode::BAD_GATEWAY.as_u16(), message: text });
            }
        }
        Some((chunk, (in_flight, response)))
    })
}

/// Builds the provider's URL. A version in both base and path is not repeated.
fn upstream_url(base: &str, path: &str, query: Option<&str>) -> String {
    let base = base.trim_end_matches('/');
    let versioned = base.rsplit('/').next().is_some_and(|last| {
        last.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    });
    let path = if versioned { path.strip_prefix("/v1").unwrap_or(path) } else { path };
    // The run's token must not reach the provider.
    let query: Vec<_> = query
        .into_iter()
        .flat_map(|query| query.split('&'))
        .filter(|part| !part.starts_with("key="))
        .collect();
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{base}{path}{mark}{}", query.join("&"))
}

/// Returns the request headers for the provider.
fn request_headers(headers: &HeaderMap) -> HeaderMap {
    let mut headers = without_connection_headers(headers);
    STRIPPED_HEADERS.iter().chain(&TOKEN_HEADERS).for_each(|name| {
        headers.remove(name);
    });
    headers
}

/// Returns the response headers for the agent.
fn response_headers(headers: &HeaderMap) -> HeaderMap {
    let length = headers.get(header::CONTENT_LENGTH).cloned();
    let mut headers = request_headers(headers);
    headers.extend(length.map(|length| (header::CONTENT_LENGTH, length)));
    headers
}

/// Removes the headers that `Connection` lists.
fn without_connection_headers(headers: &HeaderMap) -> HeaderMap {
    let mut left = headers.clone();
    let named = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    for name in named.flat_map(|names| names.split(',')) {
        left.remove(name.trim());
    }
    left
}

/// Reads the body of an error response, up to its maximum size.
async fn read_error(response: reqwest::Response) -> String {
    let mut text = Vec::new();
    let mut pieces = response.bytes_stream();
    while let Some(Ok(chunk)) = pieces.next().await {
        text.extend_from_slice(&chunk);
        if text.len() > MAX_ERROR_BYTES {
            break;
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Extracts the error message from a response body.
fn error_message(body: &str) -> String {
    let value = serde_json::from_str::<Value>(body).unwrap_or_default();
    // Gemini wraps errors in a list if streaming was requested.
    let value = value.get(0).unwrap_or(&value);
    let message = [&value["error"]["message"], &value["message"], &value["error"]];
    let message = message.into_iter().find_map(Value::as_str).unwrap_or(body);
    message.chars().take(MAX_MESSAGE_CHARS).collect()
}

fn unreachable_message(error: &reqwest::Error) -> String {
    format!("cannot reach the provider: {}", describe_error(error))
}

/// Describes an error with its causes, without the URL, which may contain a secret.
fn describe_error(error: &reqwest::Error) -> String {
    let mut text =
        if error.is_connect() { "connection failed" } else { "request failed" }.to_owned();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Reports a call that was not forwarded, and returns the response for the agent.
fn refuse_call(
    meter: &UsageMeter,
    call: ModelCall,
    message: String,
    duration: std::time::Duration,
) -> Response {
    let (dialect, status) = (call.dialect, StatusCode::FORBIDDEN);
    let response = dialect.error_response(status, &message);
    let cost = Cost::Known(tamma_core::cost::Usd::ZERO);
    let note = Some(message);
    meter.report_call(ModelCall { status: status.as_u16(), cost, note, duration, ..call });
    response
}

fn run_over_response(dialect: Dialect) -> Response {
    dialect.error_response(StatusCode::GONE, "the run has ended")
}

fn stop_message(stop: &GatewayStop) -> String {
    match stop {
        GatewayStop::OverBudget { scope } => {
            format!("the budget of this {scope} is spent; do not retry, further calls are refused")
        }
        GatewayStop::Quota { until } => format!(
            "provider quota exhausted until {}; do not retry, further calls are refused",
            until.format("%Y-%m-%d %H:%M UTC")
        ),
        GatewayStop::Unpriced { model } => {
            format!("{}; do not retry, further calls are refused", prices::unpriced_reason(model))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_has_the_version_once_and_no_token() {
        let at = |base: &str, query| upstream_url(base, "/v1/responses", query);
        assert_eq!(at("https://a.example", None), "https://a.example/v1/responses");
        assert_eq!(at("https://a.example/v1/", None), "https://a.example/v1/responses");
        assert_eq!(at("https://a.example/api/v4", None), "https://a.example/api/v4/responses");
        let query = Some("beta=true&key=token&alt=sse");
        assert_eq!(
            at("https://a.example", query),
            "https://a.example/v1/responses?beta=true&alt=sse"
        );
    }

    #[test]
    fn hop_by_hop_headers_are_removed() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, x-mine"),
            ("x-mine", "1"),
            ("authorization", "Bearer token"),
            ("anthropic-beta", "a"),
            ("accept-encoding", "gzip"),
        ] {
            headers.insert(name, value.parse().expect("a value"));
        }
        let left: Vec<_> = request_headers(&headers).into_iter().map(|(name, _)| name).collect();
        assert_eq!(left, [Some(HeaderName::from_static("anthropic-beta"))]);
    }
}
