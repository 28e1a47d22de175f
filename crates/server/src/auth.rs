//! Authentication of API requests.
//!
//! A personal access token identifies its person, even if the request names another one. The
//! server's token identifies an operator, who can act for any person. A server without a token
//! listens on a loopback address only, and every local client is an operator.
//!
//! Web pages in a local browser are not trusted. A page can reach the server through a DNS name that
//! resolves to loopback, so the `Host` header must be a loopback name. It can also send cross-origin
//! requests, so the `Origin` header, if present, must be the server's own.

use std::net::IpAddr;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use tamma_core::ids::{Digest, Name};
use tamma_store::Store;
use tokio::sync::watch;

use crate::PERSON_HEADER;
use crate::app::{AuthMethod, Error, Principal};
use crate::problem::Problem;

/// Requirement that every request must meet.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AccessMode {
    /// Valid token; the server's token has this hash.
    Token(Digest),
    /// Loopback host and own origin.
    Loopback,
}

impl AccessMode {
    pub(crate) fn new(token: Option<&str>) -> Self {
        token.map_or(Self::Loopback, |token| Self::Token(Digest::of(token.as_bytes())))
    }

    /// Returns whether requests need a token.
    pub(crate) fn requires_token(self) -> bool {
        matches!(self, Self::Token(_))
    }

    /// Returns the hash of the server's token.
    pub(crate) fn token_hash(self) -> Option<Digest> {
        match self {
            Self::Token(hash) => Some(hash),
            Self::Loopback => None,
        }
    }

    /// Returns a problem if a page request has a foreign host. Pages check the origin of forms
    /// themselves.
    pub(crate) fn page_refusal(self, headers: &HeaderMap) -> Option<Problem> {
        match self {
            Self::Token(_) => None,
            Self::Loopback => foreign_host_problem(headers),
        }
    }

    /// Returns a problem if a request has a foreign host or origin.
    fn request_refusal(self, headers: &HeaderMap) -> Option<Problem> {
        match self {
            Self::Token(_) => None,
            Self::Loopback => {
                foreign_host_problem(headers).or_else(|| foreign_origin_problem(headers))
            }
        }
    }
}

/// Authenticated caller, stored in the request's extensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Person with a personal access token, and the hash of that token.
    Person(Name, Digest),
    /// Operator of the server.
    Operator(AuthMethod),
}

/// Authenticates requests against the server's token and the stored tokens.
#[derive(Clone)]
pub(crate) struct Authenticator {
    mode: AccessMode,
    store: Store,
    /// Signals that a token may have been revoked.
    revoked: watch::Receiver<()>,
}

impl Authenticator {
    pub(crate) fn new(mode: AccessMode, store: Store, revoked: watch::Receiver<()>) -> Self {
        Self { mode, store, revoked }
    }

    pub(crate) fn mode(&self) -> AccessMode {
        self.mode
    }

    /// Returns the caller of a token, or `None` if it is unknown or revoked.
    pub(crate) async fn caller_for_token(&self, token: &[u8]) -> Result<Option<Caller>, Error> {
        let hash = Digest::of(token);
        // Comparing hashes leaks no timing information about the token.
        if self.mode.token_hash() == Some(hash) {
            return Ok(Some(Caller::Operator(AuthMethod::ServerToken)));
        }
        let person = self.store.person_by_token(hash).await?;
        Ok(person.map(|name| Caller::Person(name, hash)))
    }

    /// Authenticates a request, or returns the problem to respond with.
    async fn authenticate(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        if let Some(problem) = self.mode.request_refusal(headers) {
            return Err(problem);
        }
        match (bearer_token(headers), self.mode) {
            // An unknown token is refused even where requests without a token are accepted.
            (Some(token), _) => self.caller_for_token(token).await?.ok_or_else(|| {
                tracing::warn!("token refused");
                unauthorized("Invalid or revoked token.")
            }),
            (None, AccessMode::Token(_)) => Err(unauthorized("This server requires a token.")),
            (None, AccessMode::Loopback) => Ok(Caller::Operator(AuthMethod::Machine)),
        }
    }

    /// Ends an event stream when the token that opened it is revoked.
    pub(crate) fn end_stream_on_revocation(&self, token: Digest, response: Response) -> Response {
        let kind = response.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
        if !kind.is_some_and(|kind| kind.starts_with(b"text/event-stream")) {
            return response;
        }
        let (store, mut revoked) = (self.store.clone(), self.revoked.clone());
        let token_revoked = async move {
            // Database errors do not end the stream. The sender is dropped when the server stops.
            while revoked.changed().await.is_ok() {
                if matches!(store.person_by_token(token).await, Ok(None)) {
                    return;
                }
            }
        };
        response.map(|body| {
            Body::from_stream(body.into_data_stream().take_until(Box::pin(token_revoked)))
        })
    }
}

/// Middleware that authenticates a request or responds with a problem.
pub(crate) async fn require_auth(
    State(authenticator): State<Authenticator>,
    mut request: Request,
    next: Next,
) -> Response {
    let caller = match authenticator.authenticate(request.headers()).await {
        Ok(caller) => caller,
        Err(problem) => return problem.into_response(),
    };
    request.extensions_mut().insert(caller.clone());
    let response = next.run(request).await;
    match caller {
        Caller::Person(_, token) => authenticator.end_stream_on_revocation(token, response),
        Caller::Operator(_) => response,
    }
}

/// Returns the person of a request: the owner of the token, or the person that an operator names.
pub(crate) fn principal(parts: &Parts) -> Result<Principal, Box<Problem>> {
    let auth_method = match parts.extensions.get::<Caller>() {
        Some(Caller::Person(name, _)) => {
            return Ok(Principal { name: name.clone(), auth_method: AuthMethod::OwnToken });
        }
        Some(Caller::Operator(auth_method)) => *auth_method,
        None => return Err(Box::new(unauthorized("The request was not authenticated."))),
    };
    let header_value = parts.headers.get(PERSON_HEADER).map(HeaderValue::as_bytes);
    let text = header_value.and_then(|bytes| std::str::from_utf8(bytes).ok()).map(str::trim);
    let name =
        text.filter(|text| !text.contains(char::is_control)).and_then(|text| text.parse().ok());
    name.map(|name| Principal { name, auth_method }).ok_or_else(|| {
        let detail = match header_value {
            Some(_) => "The header `Tamma-Person` must be a name of 1 to 100 characters.",
            None => "The header `Tamma-Person` is missing.",
        };
        let title = "Name required";
        let problem = Problem::new(StatusCode::BAD_REQUEST, "person", title, detail).hint(
            "Send your name in the header `Tamma-Person`. It is recorded in the task history.",
        );
        Box::new(problem)
    })
}

/// Returns the token of the `Authorization` header.
fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.as_bytes().split_at_checked("Bearer ".len()))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "))
        .map(|(_, token)| token)
}

fn unauthorized(detail: &str) -> Problem {
    let title = "Authentication failed";
    Problem::new(StatusCode::UNAUTHORIZED, "token", title, detail).hint(
        "Send your token as `Authorization: Bearer <token>` (TAMMA_TOKEN). Operators create tokens \
         with `tamma person add`.",
    )
}

fn foreign_host_problem(headers: &HeaderMap) -> Option<Problem> {
    let host = single_header(headers, header::HOST);
    if host.as_deref().is_some_and(|host| is_loopback(strip_port(host))) {
        return None;
    }
    let host = host.unwrap_or_else(|| "missing".to_owned());
    let title = "Only local requests are accepted";
    Some(
        Problem::new(StatusCode::FORBIDDEN, "host", title, format!("The `Host` header is {host}."))
            .hint("Use http://127.0.0.1 or http://localhost, or start the server with a token."),
    )
}

/// Returns a problem if a request comes from a page of another origin.
pub(crate) fn foreign_origin_problem(headers: &HeaderMap) -> Option<Problem> {
    let origin = single_header(headers, header::ORIGIN)?;
    let host = single_header(headers, header::HOST);
    let own = |scheme: &str| host.as_ref().map(|host| format!("{scheme}://{host}"));
    // Behind a TLS proxy, our pages have https origins.
    let is_own = |own: Option<String>| own.is_some_and(|own| own.eq_ignore_ascii_case(&origin));
    if is_own(own("http")) || is_own(own("https")) {
        return None;
    }
    let title = "Cross-origin request refused";
    let detail = format!("The `Origin` header is {origin}.");
    Some(
        Problem::new(StatusCode::FORBIDDEN, "origin", title, detail)
            .hint("Use Tamma's web UI or the command line."),
    )
}

fn single_header(headers: &HeaderMap, name: header::HeaderName) -> Option<String> {
    let mut values = headers.get_all(name).iter();
    let only = values.next()?;
    // Repeated headers are an attack on the check.
    if values.next().is_some() {
        return Some("repeated".to_owned());
    }
    Some(String::from_utf8_lossy(only.as_bytes()).into_owned())
}

fn strip_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.chars().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(header::HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().expect("valid"))).collect()
    }

    #[test]
    fn without_a_token_only_loopback_hosts_are_accepted() {
        let status = |host: &str| {
            let headers = headers(&[(header::HOST, host)]);
            AccessMode::Loopback.request_refusal(&headers).map(|problem| problem.status)
        };
        for host in ["127.0.0.1:8622", "127.1.2.3", "localhost", "LOCALHOST:1", "[::1]:8622"] {
            assert_eq!(status(host), None, "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "10.0.0.1:8622", "", ":8622"] {
            assert_eq!(status(host), Some(403), "{host}");
        }
        assert!(AccessMode::Loopback.request_refusal(&HeaderMap::new()).is_some());
    }

    #[test]
    fn repeated_host_headers_are_refused() {
        let mut headers = headers(&[(header::HOST, "localhost")]);
        headers.append(header::HOST, "evil.example".parse().expect("valid"));
        assert!(AccessMode::Loopback.request_refusal(&headers).is_some());
    }

    #[test]
    fn cross_origin_requests_are_refused() {
        let refused = |origin: &str| {
            let headers = headers(&[(header::HOST, "localhost:8622"), (header::ORIGIN, origin)]);
            AccessMode::Loopback.request_refusal(&headers).is_some()
        };
        assert!(!refused("http://localhost:8622"));
        for origin in ["http://localhost:3000", "ftp://localhost:8622", "null", "http://evil"] {
            assert!(refused(origin), "{origin}");
        }
    }

    #[test]
    fn the_token_follows_the_bearer_scheme() {
        let token = |value: &str| {
            let headers = headers(&[(header::AUTHORIZATION, value)]);
            bearer_token(&headers).map(<[u8]>::to_vec)
        };
        assert_eq!(token("Bearer s3cret"), Some(b"s3cret".to_vec()));
        assert_eq!(token("bearer s3cret"), Some(b"s3cret".to_vec()));
        for value in ["Basic s3cret", "s3cret", "Bearers3cret"] {
            assert_eq!(token(value), None, "{value}");
        }
    }

    #[test]
    fn a_personal_token_overrides_the_name_in_the_request() {
        let (name, hash) = ("Ada".parse::<Name>().expect("name"), Digest::of(b"s3cret"));
        let by = |caller: Caller| {
            let request = Request::builder().header(PERSON_HEADER, "Grace").extension(caller);
            let (parts, _) = request.body(Body::empty()).expect("request").into_parts();
            principal(&parts).map(|by| (by.name.to_string(), by.auth_method)).ok()
        };
        let grace = |auth_method| Some(("Grace".to_owned(), auth_method));
        assert_eq!(by(Caller::Person(name, hash)), Some(("Ada".to_owned(), AuthMethod::OwnToken)));
        assert_eq!(by(Caller::Operator(AuthMethod::ServerToken)), grace(AuthMethod::ServerToken));
        assert_eq!(by(Caller::Operator(AuthMethod::Machine)), grace(AuthMethod::Machine));
    }
}
