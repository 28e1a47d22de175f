//! Who may come in.
//!
//! With a token, whoever knows it. Without one, the server is on a loopback address, and whoever
//! is on this machine; but a page in a browser on this machine is somebody else. It can reach us
//! under a name that it points at loopback, so the name must be one of loopback; and it can send
//! requests from another origin, so the origin, where there is one, must be our own.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tamma_core::ids::Digest;

use crate::problem::Problem;

/// What a request is checked for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Guard {
    /// The token with this hash.
    Token(Digest),
    /// That it was made for this machine.
    Loopback,
}

impl Guard {
    pub(crate) fn new(token: Option<&str>) -> Self {
        token.map_or(Self::Loopback, |token| Self::Token(Digest::of(token.as_bytes())))
    }

    /// Why a request may not come in.
    fn refuses(self, headers: &HeaderMap) -> Option<Problem> {
        match self {
            Self::Token(expected) => token(headers, expected),
            Self::Loopback => host(headers).or_else(|| origin(headers)),
        }
    }
}

/// Lets a request in, or answers why not.
pub(crate) async fn check(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    match guard.refuses(request.headers()) {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    }
}

fn token(headers: &HeaderMap, expected: Digest) -> Option<Problem> {
    let given = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.as_bytes().split_at_checked("Bearer ".len()))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "))
        .map(|(_, token)| token);
    // Hashes are compared: how long that takes says nothing about the token.
    if given.map(Digest::of) == Some(expected) {
        return None;
    }
    let detail = match given {
        Some(_) => "The token is not the one of this server.",
        None => "This server needs a token.",
    };
    let title = "You are not known here";
    Some(
        Problem::new(StatusCode::UNAUTHORIZED, "token", title, detail)
            .hint("Send the server's token as `Authorization: Bearer <token>`."),
    )
}

fn host(headers: &HeaderMap) -> Option<Problem> {
    let host = text(headers, header::HOST);
    if host.as_deref().is_some_and(|host| is_loopback(without_port(host))) {
        return None;
    }
    let host = host.unwrap_or_else(|| "nothing".to_owned());
    let title = "This server is for its own machine only";
    Some(
        Problem::new(StatusCode::FORBIDDEN, "host", title, format!("It was asked for as {host}."))
            .hint("Use http://127.0.0.1 or http://localhost, or start the server with a token."),
    )
}

fn origin(headers: &HeaderMap) -> Option<Problem> {
    let origin = text(headers, header::ORIGIN)?;
    let own = text(headers, header::HOST).map(|host| format!("http://{host}"));
    if own.is_some_and(|own| own.eq_ignore_ascii_case(&origin)) {
        return None;
    }
    let title = "Another web page may not use this server";
    let detail = format!("The request comes from a page of {origin}.");
    Some(
        Problem::new(StatusCode::FORBIDDEN, "origin", title, detail)
            .hint("Use Tamma's own pages or the command line."),
    )
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<String> {
    let mut values = headers.get_all(name).iter();
    let only = values.next()?;
    // Two of them are a trick.
    if values.next().is_some() {
        return Some("several at once".to_owned());
    }
    Some(String::from_utf8_lossy(only.as_bytes()).into_owned())
}

fn without_port(host: &str) -> &str {
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
    fn without_a_token_only_names_of_this_machine_are_answered() {
        let status = |host: &str| {
            let headers = headers(&[(header::HOST, host)]);
            Guard::Loopback.refuses(&headers).map(|problem| problem.status)
        };
        for host in ["127.0.0.1:8622", "127.1.2.3", "localhost", "LOCALHOST:1", "[::1]:8622"] {
            assert_eq!(status(host), None, "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "10.0.0.1:8622", "", ":8622"] {
            assert_eq!(status(host), Some(403), "{host}");
        }
        assert!(Guard::Loopback.refuses(&HeaderMap::new()).is_some());
    }

    #[test]
    fn two_hosts_are_no_host() {
        let mut headers = headers(&[(header::HOST, "localhost")]);
        headers.append(header::HOST, "evil.example".parse().expect("valid"));
        assert!(Guard::Loopback.refuses(&headers).is_some());
    }

    #[test]
    fn a_page_of_another_origin_is_refused() {
        let refused = |origin: &str| {
            let headers = headers(&[(header::HOST, "localhost:8622"), (header::ORIGIN, origin)]);
            Guard::Loopback.refuses(&headers).is_some()
        };
        assert!(!refused("http://localhost:8622"));
        for origin in ["http://localhost:3000", "https://localhost:8622", "null", "http://evil"] {
            assert!(refused(origin), "{origin}");
        }
    }

    #[test]
    fn a_token_must_be_the_same_to_the_letter() {
        let refused = |value: &str| {
            let headers = headers(&[(header::AUTHORIZATION, value)]);
            Guard::new(Some("s3cret")).refuses(&headers).is_some()
        };
        assert!(!refused("Bearer s3cret"));
        assert!(!refused("bearer s3cret"));
        for value in ["Bearer s3cre", "Bearer s3crett", "Bearer ", "Basic s3cret", "s3cret"] {
            assert!(refused(value), "{value}");
        }
        assert!(Guard::new(Some("s3cret")).refuses(&HeaderMap::new()).is_some());
    }
}
