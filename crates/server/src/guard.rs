//! Who may come in.
//!
//! Whoever shows a token that was given to them is that person, whatever else they say. Whoever shows
//! the server's own runs it, and is believed whom they speak for. A server without a token of its own
//! is on a loopback address, and whoever is on this machine runs it; but a page in a browser on this
//! machine is somebody else. It can reach us under a name that it points at loopback, so the name must
//! be one of loopback; and it can send requests from another origin, so the origin, where there is
//! one, must be our own.

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

use crate::PERSON;
use crate::app::{By, Error, Known};
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

    /// Whether whoever comes in must show a token.
    pub(crate) fn wants_token(self) -> bool {
        matches!(self, Self::Token(_))
    }

    /// The hash of the server's own token.
    pub(crate) fn token(self) -> Option<Digest> {
        match self {
            Self::Token(hash) => Some(hash),
            Self::Loopback => None,
        }
    }

    /// Why a page may not be asked for, before it is known who asks: it was not made for this
    /// machine.
    pub(crate) fn refuses_page(self, headers: &HeaderMap) -> Option<Problem> {
        match self {
            Self::Token(_) => None,
            Self::Loopback => host(headers),
        }
    }

    /// Why a request may not come in, whoever it is from.
    fn refuses(self, headers: &HeaderMap) -> Option<Problem> {
        match self {
            Self::Token(_) => None,
            Self::Loopback => host(headers).or_else(|| origin(headers)),
        }
    }
}

/// Whom a request is from. The guard puts it among the request's extensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A person who has shown their own token, which has this hash.
    Person(Name, Digest),
    /// Whoever runs the server.
    Operator(Known),
}

/// The guard, with what it has to look up.
#[derive(Clone)]
pub(crate) struct Gate {
    guard: Guard,
    store: Store,
    /// Changes when a token may have been taken away.
    revoked: watch::Receiver<()>,
}

impl Gate {
    pub(crate) fn new(guard: Guard, store: Store, revoked: watch::Receiver<()>) -> Self {
        Self { guard, store, revoked }
    }

    pub(crate) fn guard(&self) -> Guard {
        self.guard
    }

    /// Whose token it is; nobody's where it was never given out, or was taken away.
    pub(crate) async fn whose(&self, token: &[u8]) -> Result<Option<Caller>, Error> {
        let hash = Digest::of(token);
        // Hashes are compared: how long that takes says nothing about the token.
        if self.guard.token() == Some(hash) {
            return Ok(Some(Caller::Operator(Known::ServerToken)));
        }
        let person = self.store.person_with(hash).await?;
        Ok(person.map(|name| Caller::Person(name, hash)))
    }

    /// Whom a request is from, or why it may not come in.
    async fn admit(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        if let Some(problem) = self.guard.refuses(headers) {
            return Err(problem);
        }
        match (bearer(headers), self.guard) {
            // A token that is not good is no reason to take somebody for whoever runs the server.
            (Some(token), _) => self.whose(token).await?.ok_or_else(|| {
                tracing::warn!("a token was refused: it is not known here");
                unknown("The token is not known here: it was never good, or it was taken away.")
            }),
            (None, Guard::Token(_)) => Err(unknown("This server needs a token.")),
            (None, Guard::Loopback) => Ok(Caller::Operator(Known::Machine)),
        }
    }

    /// Ends an answer that goes on and on when the token is taken away that it was asked for with.
    pub(crate) fn while_good(&self, token: Digest, response: Response) -> Response {
        let kind = response.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
        if !kind.is_some_and(|kind| kind.starts_with(b"text/event-stream")) {
            return response;
        }
        let (store, mut revoked) = (self.store.clone(), self.revoked.clone());
        let gone = async move {
            // A store that does not answer says nothing about the token. The sender goes with the
            // server.
            while revoked.changed().await.is_ok() {
                if matches!(store.person_with(token).await, Ok(None)) {
                    return;
                }
            }
        };
        response.map(|body| Body::from_stream(body.into_data_stream().take_until(Box::pin(gone))))
    }
}

/// Lets a request in, or answers why not.
pub(crate) async fn check(State(gate): State<Gate>, mut request: Request, next: Next) -> Response {
    let caller = match gate.admit(request.headers()).await {
        Ok(caller) => caller,
        Err(problem) => return problem.into_response(),
    };
    request.extensions_mut().insert(caller.clone());
    let response = next.run(request).await;
    match caller {
        Caller::Person(_, token) => gate.while_good(token, response),
        Caller::Operator(_) => response,
    }
}

/// In whose name something is asked: of the token's person, or of whom the operator speaks for.
pub(crate) fn by(parts: &Parts) -> Result<By, Box<Problem>> {
    let known = match parts.extensions.get::<Caller>() {
        Some(Caller::Person(name, _)) => {
            return Ok(By { name: name.clone(), known: Known::OwnToken });
        }
        Some(Caller::Operator(known)) => *known,
        None => return Err(Box::new(unknown("Nobody has looked who asks."))),
    };
    let said = parts.headers.get(PERSON).map(HeaderValue::as_bytes);
    let text = said.and_then(|bytes| std::str::from_utf8(bytes).ok()).map(str::trim);
    let name =
        text.filter(|text| !text.contains(char::is_control)).and_then(|text| text.parse().ok());
    name.map(|name| By { name, known }).ok_or_else(|| {
        let detail = match said {
            Some(_) => "The header `Tamma-Person` is not a name of 1 to 100 characters.",
            None => "The header `Tamma-Person` is missing.",
        };
        let title = "It must be known who asks";
        let problem = Problem::new(StatusCode::BAD_REQUEST, "person", title, detail)
            .hint("Send your name in the header `Tamma-Person`; it is written in the log.");
        Box::new(problem)
    })
}

/// The token that was shown.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.as_bytes().split_at_checked("Bearer ".len()))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "))
        .map(|(_, token)| token)
}

fn unknown(detail: &str) -> Problem {
    let title = "You are not known here";
    Problem::new(StatusCode::UNAUTHORIZED, "token", title, detail).hint(
        "Send your token as `Authorization: Bearer <token>` (TAMMA_TOKEN). Whoever runs the server \
         gives you one: `tamma person add`.",
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

/// Why a request that another page has made may not come in.
pub(crate) fn origin(headers: &HeaderMap) -> Option<Problem> {
    let origin = text(headers, header::ORIGIN)?;
    let host = text(headers, header::HOST);
    let own = |scheme: &str| host.as_ref().map(|host| format!("{scheme}://{host}"));
    // Behind something that speaks TLS for us, pages are of https.
    let is_own = |own: Option<String>| own.is_some_and(|own| own.eq_ignore_ascii_case(&origin));
    if is_own(own("http")) || is_own(own("https")) {
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
        for origin in ["http://localhost:3000", "ftp://localhost:8622", "null", "http://evil"] {
            assert!(refused(origin), "{origin}");
        }
    }

    #[test]
    fn a_token_is_what_stands_behind_bearer() {
        let shown = |value: &str| {
            let headers = headers(&[(header::AUTHORIZATION, value)]);
            bearer(&headers).map(<[u8]>::to_vec)
        };
        assert_eq!(shown("Bearer s3cret"), Some(b"s3cret".to_vec()));
        assert_eq!(shown("bearer s3cret"), Some(b"s3cret".to_vec()));
        for value in ["Basic s3cret", "s3cret", "Bearers3cret"] {
            assert_eq!(shown(value), None, "{value}");
        }
    }

    #[test]
    fn whoever_has_a_token_of_their_own_is_not_whom_they_say() {
        let (name, hash) = ("Ada".parse::<Name>().expect("a name"), Digest::of(b"s3cret"));
        let by = |caller: Caller| {
            let request = Request::builder().header(PERSON, "Grace").extension(caller);
            let (parts, _) = request.body(Body::empty()).expect("a request").into_parts();
            by(&parts).map(|by| (by.name.to_string(), by.known)).ok()
        };
        let grace = |known| Some(("Grace".to_owned(), known));
        assert_eq!(by(Caller::Person(name, hash)), Some(("Ada".to_owned(), Known::OwnToken)));
        assert_eq!(by(Caller::Operator(Known::ServerToken)), grace(Known::ServerToken));
        assert_eq!(by(Caller::Operator(Known::Machine)), grace(Known::Machine));
    }
}
