//! Passes a request on to the provider, and its response back.

use std::sync::Arc;
use std::time::Instant;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::{Stream, StreamExt as _, stream};
use serde_json::Value;
use tamma_core::cost::Cost;

use super::clock::{later, watch};
use super::dialect::{Dialect, Errand, errand};
use super::door::Visit;
use super::meter::{Hold, Outcome};
use super::reading::Reader;
use super::{Failed, ModelCall, Stop, Upstream, quota};

/// The longest request that is taken. Providers take less.
const LONGEST_REQUEST: usize = 100 * 1024 * 1024;

/// The longest error that is read.
const LONGEST_ERROR: usize = 256 * 1024;

/// How much of an error is remembered.
const LONGEST_TEXT: usize = 500;

/// The status of a call whose agent did not wait for its response.
const HUNG_UP: u16 = 499;

/// What is between two neighbours only, and what is ours to say.
const OURS: [HeaderName; 14] = [
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

/// Where an agent can have put its token.
const TOKENS: [HeaderName; 3] = [
    header::AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("x-goog-api-key"),
];

/// One request on its way.
pub(super) struct Forward {
    pub(super) visit: Arc<Visit>,
    pub(super) client: reqwest::Client,
}

/// What is sent to the provider.
struct Outgoing {
    method: Method,
    url: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Forward {
    /// Passes a request on, if it is one that an agent may make.
    pub(super) async fn pass(self, path: &str, request: Request) -> Response {
        let dialect = Dialect::guess(path);
        let get = request.method() == Method::GET;
        let Some(errand) = errand(get, path).filter(|_| get || request.method() == Method::POST)
        else {
            return dialect.error(StatusCode::NOT_FOUND, "the gateway does not pass this on");
        };
        let Some(upstream) = self.visit.upstream.clone() else {
            let message = "this run may not call a model through the gateway";
            return dialect.error(StatusCode::FORBIDDEN, message);
        };
        let packed = request.headers().get(header::CONTENT_ENCODING).is_some();
        if packed {
            let message = "the gateway reads requests, so they must not be compressed";
            return dialect.error(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
        }
        let url = address(&upstream.base, path, request.uri().query());
        let (parts, body) = request.into_parts();
        let Ok(body) = axum::body::to_bytes(body, LONGEST_REQUEST).await else {
            let message = "the request cannot be read to its end, or is too long";
            return dialect.error(StatusCode::PAYLOAD_TOO_LARGE, message);
        };
        let headers = outgoing(&parts.headers);
        let outgoing = Outgoing { method: parts.method, url, headers, body };
        match errand {
            Errand::Free(dialect) => self.free(&upstream, dialect, outgoing, &parts.headers).await,
            Errand::Call(dialect) => self.call(upstream, dialect, path, outgoing).await,
        }
    }

    /// Something that costs nothing.
    async fn free(
        &self,
        upstream: &Upstream,
        dialect: Dialect,
        outgoing: Outgoing,
        shown: &HeaderMap,
    ) -> Response {
        // A list of models looks alike everywhere; how the token was shown says whose agent asks.
        let dialect = match dialect {
            Dialect::Chat if shown.contains_key("x-api-key") => Dialect::Anthropic,
            Dialect::Chat if shown.contains_key("x-goog-api-key") => Dialect::Gemini,
            dialect => dialect,
        };
        match self.send(upstream, dialect, outgoing).await {
            Ok(response) if response.status().is_success() => {
                let (status, headers) = (response.status(), incoming(response.headers()));
                (status, headers, Body::from_stream(response.bytes_stream())).into_response()
            }
            Ok(response) => {
                let (status, mut headers) = (response.status(), incoming(response.headers()));
                headers.remove(header::CONTENT_LENGTH);
                let text = read_error(response).await;
                (status, headers, self.visit.redactor.redact(&text).into_owned()).into_response()
            }
            Err(error) => dialect.error(StatusCode::BAD_GATEWAY, &unreachable(&error)),
        }
    }

    /// A call of a model.
    async fn call(
        self,
        upstream: Upstream,
        dialect: Dialect,
        path: &str,
        mut outgoing: Outgoing,
    ) -> Response {
        let started = watch();
        let body = serde_json::from_slice::<Value>(&outgoing.body).ok();
        let named = body.and_then(|body| Some((dialect.model(path, &body)?, body)));
        let Some((model, mut body)) = named else {
            return dialect.error(StatusCode::BAD_REQUEST, "the request does not name a model");
        };
        let most_output = dialect.most_output(&body);
        if dialect.ask_for_usage(&mut body)
            && let Ok(changed) = serde_json::to_vec(&body)
        {
            outgoing.body = changed.into();
        }
        drop(body);

        let mut call = ModelCall {
            run: self.visit.run,
            model,
            dialect,
            status: HUNG_UP,
            tokens: None,
            cost: Cost::Unknown,
            first_byte: None,
            took: std::time::Duration::ZERO,
            at: self.visit.clock.now(),
            note: None,
        };
        let (meter, closed) = (self.visit.meter.clone(), self.visit.closed.clone());
        let hold = tokio::select! {
            biased;
            () = closed.cancelled() => return over(dialect),
            hold = meter.hold(&call.model, outgoing.body.len(), most_output) => hold,
        };
        let hold = match hold {
            Ok(hold) => hold,
            Err(stop) => {
                let message = refusal(stop);
                call.status = StatusCode::FORBIDDEN.as_u16();
                call.took = started.elapsed();
                call.cost = Cost::Known(tamma_core::cost::Usd::ZERO);
                call.note = Some(message.clone());
                meter.tell(call);
                return dialect.error(StatusCode::FORBIDDEN, &message);
            }
        };
        let mut flight = Flight {
            reader: Reader::new(dialect, ""),
            visit: self.visit.clone(),
            hold: Some(hold),
            call,
            started,
            failed: None,
            left: None,
        };
        let sent = tokio::select! {
            biased;
            () = closed.cancelled() => None,
            sent = self.send(&upstream, dialect, outgoing) => Some(sent),
        };
        match sent {
            None => over(dialect),
            Some(Err(error)) => {
                let text = unreachable(&error);
                flight.fail(StatusCode::BAD_GATEWAY, text.clone());
                dialect.error(StatusCode::BAD_GATEWAY, &text)
            }
            Some(Ok(response)) if response.status().is_success() => answered(flight, response),
            Some(Ok(response)) => self.refused(&upstream, flight, response).await,
        }
    }

    async fn send(
        &self,
        upstream: &Upstream,
        dialect: Dialect,
        outgoing: Outgoing,
    ) -> Result<reqwest::Response, reqwest::Error> {
        let mut request = self
            .client
            .request(outgoing.method, outgoing.url)
            .headers(outgoing.headers)
            .header(header::ACCEPT_ENCODING, "identity");
        if let Some((name, value)) = dialect.key(&upstream.key) {
            request = request.header(name, value);
        }
        if !outgoing.body.is_empty() {
            request = request.body(outgoing.body);
        }
        request.send().await
    }

    /// The provider does not answer the call, but says why.
    async fn refused(
        &self,
        upstream: &Upstream,
        mut flight: Flight,
        response: reqwest::Response,
    ) -> Response {
        let status = response.status();
        let mut headers = incoming(response.headers());
        let text = read_error(response).await;
        let text = self.visit.redactor.redact(&text).into_owned();
        if status == StatusCode::TOO_MANY_REQUESTS {
            let now = self.visit.clock.now();
            let until = quota::reset(&headers, &text, now);
            let patience = later(now, upstream.quota_patience);
            if let Some(until) = until.filter(|until| *until > patience) {
                self.visit.meter.stop(Stop::Quota { until });
            }
        }
        flight.fail(status, message(&text));
        headers.remove(header::CONTENT_LENGTH);
        (status, headers, text).into_response()
    }
}

/// A call that was let through. Whatever happens to it, it is booked, at the latest when it is dropped.
struct Flight {
    visit: Arc<Visit>,
    hold: Option<Hold>,
    call: ModelCall,
    started: Instant,
    reader: Reader,
    failed: Option<Failed>,
    /// How much of the response is still to come, if the provider said how long it is.
    left: Option<u64>,
}

impl Flight {
    /// The call was not answered.
    fn fail(&mut self, status: StatusCode, text: String) {
        self.call.status = status.as_u16();
        self.failed = Some(Failed { status: status.as_u16(), text });
        self.book();
    }

    /// A piece of the response passes. What it says is in the books before the agent can know it.
    fn see(&mut self, piece: &Bytes) {
        if self.call.first_byte.is_none() {
            self.call.first_byte = Some(self.started.elapsed());
        }
        self.reader.take(piece);
        let length = u64::try_from(piece.len()).unwrap_or(u64::MAX);
        self.left = self.left.map(|left| left.saturating_sub(length));
        if self.reader.reading.is_over() || self.left == Some(0) {
            self.book();
        }
    }

    fn book(&mut self) {
        let Some(hold) = self.hold.take() else { return };
        self.reader.end();
        let mut call = self.call.clone();
        call.took = self.started.elapsed();
        let reading = &self.reader.reading;
        let answered = (200..300).contains(&call.status) || call.status == HUNG_UP;
        let outcome = match self.failed.take() {
            Some(failed) if !answered => Outcome::Failed(failed),
            failed => Outcome::Answered {
                tokens: reading.tokens(),
                model: reading.model.clone(),
                failed: failed.or_else(|| reading.failed.clone()),
            },
        };
        hold.book(outcome, call);
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.book();
    }
}

/// Passes a response back as it comes, and reads it beside that.
fn answered(mut flight: Flight, response: reqwest::Response) -> Response {
    let (status, headers) = (response.status(), incoming(response.headers()));
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    flight.call.status = status.as_u16();
    flight.reader = Reader::new(flight.call.dialect, content_type.unwrap_or_default());
    flight.left = response.content_length();
    let body = Body::from_stream(pieces(flight, response.bytes_stream()));
    (status, headers, body).into_response()
}

fn pieces(
    flight: Flight,
    response: impl Stream<Item = reqwest::Result<Bytes>> + Send + 'static,
) -> impl Stream<Item = reqwest::Result<Bytes>> + Send + 'static {
    let start = (flight, Box::pin(response));
    stream::unfold(start, async |(mut flight, mut response)| {
        let closed = flight.visit.closed.clone();
        let piece = tokio::select! {
            biased;
            piece = response.next() => piece?,
            () = closed.cancelled() => return None,
        };
        match &piece {
            Ok(piece) => flight.see(piece),
            Err(error) => {
                let text = format!("the response broke off: {}", said(error));
                flight.failed = Some(Failed { status: StatusCode::BAD_GATEWAY.as_u16(), text });
            }
        }
        Some((piece, (flight, response)))
    })
}

/// The address upstream. A version that both the base and the path have is in it once.
fn address(base: &str, path: &str, query: Option<&str>) -> String {
    let base = base.trim_end_matches('/');
    let versioned = base.rsplit('/').next().is_some_and(|last| {
        last.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    });
    let path = if versioned { path.strip_prefix("/v1").unwrap_or(path) } else { path };
    // The agent's token is not for the provider.
    let query: Vec<_> = query
        .into_iter()
        .flat_map(|query| query.split('&'))
        .filter(|part| !part.starts_with("key="))
        .collect();
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{base}{path}{mark}{}", query.join("&"))
}

/// The headers that go to the provider.
fn outgoing(headers: &HeaderMap) -> HeaderMap {
    let mut headers = neighbourless(headers);
    OURS.iter().chain(&TOKENS).for_each(|name| {
        headers.remove(name);
    });
    headers
}

/// The headers that go to the agent.
fn incoming(headers: &HeaderMap) -> HeaderMap {
    let length = headers.get(header::CONTENT_LENGTH).cloned();
    let mut headers = outgoing(headers);
    headers.extend(length.map(|length| (header::CONTENT_LENGTH, length)));
    headers
}

/// Without those that `Connection` names.
fn neighbourless(headers: &HeaderMap) -> HeaderMap {
    let mut left = headers.clone();
    let named = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    for name in named.flat_map(|names| names.split(',')) {
        left.remove(name.trim());
    }
    left
}

/// An error of the provider, as far as it can be read.
async fn read_error(response: reqwest::Response) -> String {
    let mut text = Vec::new();
    let mut pieces = response.bytes_stream();
    while let Some(Ok(piece)) = pieces.next().await {
        text.extend_from_slice(&piece);
        if text.len() > LONGEST_ERROR {
            break;
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// What an error says to people.
fn message(body: &str) -> String {
    let value = serde_json::from_str::<Value>(body).unwrap_or_default();
    // Gemini packs its errors into a list when it was to stream.
    let value = value.get(0).unwrap_or(&value);
    let said = [&value["error"]["message"], &value["message"], &value["error"]];
    let said = said.into_iter().find_map(Value::as_str).unwrap_or(body);
    said.chars().take(LONGEST_TEXT).collect()
}

fn unreachable(error: &reqwest::Error) -> String {
    format!("the provider cannot be reached: {}", said(error))
}

/// An error with its causes, and without the address: there may be a secret in it.
fn said(error: &reqwest::Error) -> String {
    let mut text =
        if error.is_connect() { "no connection" } else { "the connection failed" }.to_owned();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn over(dialect: Dialect) -> Response {
    dialect.error(StatusCode::GONE, "the run is over")
}

fn refusal(stop: Stop) -> String {
    match stop {
        Stop::OverBudget { whose } => {
            format!("the budget of the {whose} is spent: no more calls in this run, do not retry")
        }
        Stop::Quota { until } => format!(
            "the provider's limit is reached until {}: no more calls in this run, do not retry",
            until.format("%Y-%m-%d %H:%M UTC")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_in_the_address_once_and_the_token_never() {
        let at = |base: &str, query| address(base, "/v1/responses", query);
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
    fn what_is_between_neighbours_is_not_passed_on() {
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
        let left: Vec<_> = outgoing(&headers).into_iter().map(|(name, _)| name).collect();
        assert_eq!(left, [Some(HeaderName::from_static("anthropic-beta"))]);
    }
}
