//! Authentication of API requests.
//!
//! Every request carries a token, also on a laptop: agents and gates on the same machine can reach the
//! server, too. A personal access token, or a login with an identity provider, identifies its person,
//! even if the request names another one. The server's token identifies an operator, who can act under
//! any name.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use chrono::TimeDelta;
use futures_util::StreamExt as _;
use tamma_core::access::AccessRights;
use tamma_core::actor::{AuthMethod, RequestInterface};
use tamma_core::ids::Digest;
use tamma_store::{Credential, SessionProof, SessionRecord, Store};
use tamma_telemetry::{names, registry};
use tokio::sync::watch;

use crate::PERSON_HEADER;
use crate::app::{Error, Principal};
use crate::clock;
use crate::edge::{SignInThrottle, client_address};
use crate::identity::IdentityService;
use crate::problem::Problem;
use crate::route_access::CallerRights;

/// Time after which the last use of a credential is recorded again.
const USE_INTERVAL: TimeDelta = TimeDelta::minutes(1);

/// Authenticated caller, stored in the request's extensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Person, and the credential that identified them.
    Person(PersonCaller),
    /// Operator of the server.
    Operator(AuthMethod),
}

/// Person with a valid credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PersonCaller {
    pub(crate) credential: Credential,
    pub(crate) key: CredentialKey,
}

impl PersonCaller {
    /// Returns the proof with which a session of the same person can be opened. It ends with theirs.
    pub(crate) fn proof(&self) -> SessionProof {
        match (self.credential.login, self.key) {
            (Some(login), _) => SessionProof::Login(login),
            (None, CredentialKey::Token(hash) | CredentialKey::Session(hash)) => {
                SessionProof::Token(hash)
            }
        }
    }
}

/// Hash of the secret that a client sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CredentialKey {
    /// Token in a header.
    Token(Digest),
    /// Cookie of a browser.
    Session(Digest),
}

/// Authenticates requests against the server's token and the stored credentials.
#[derive(Clone)]
pub(crate) struct Authenticator {
    /// Hash of the server's token.
    operator_token: Digest,
    store: Store,
    identity: Arc<IdentityService>,
    /// Signals that somebody may have lost a right.
    revoked: watch::Receiver<()>,
    throttle: Arc<SignInThrottle>,
}

impl Authenticator {
    pub(crate) fn new(
        token: &str,
        store: Store,
        identity: Arc<IdentityService>,
        revoked: watch::Receiver<()>,
    ) -> Self {
        let operator_token = Digest::of(token.as_bytes());
        let throttle = SignInThrottle::default();
        // Nobody can lock operators out by sending invalid tokens from their address.
        throttle.record_success(operator_token);
        Self { operator_token, store, identity, revoked, throttle: Arc::new(throttle) }
    }

    /// Returns the hash of the server's token.
    pub(crate) fn operator_token(&self) -> Digest {
        self.operator_token
    }

    /// Returns the caller of a token, or `None` if it is unknown, expired or revoked; that is counted
    /// and logged. Fails if the client's address has sent too many such tokens.
    pub(crate) async fn caller_for_token(
        &self,
        token: &[u8],
        address: Option<IpAddr>,
    ) -> Result<Option<Caller>, Error> {
        let hash = Digest::of(token);
        if let Some(seconds) = self.throttle.wait_seconds(address, hash, clock::now()) {
            return Err(Error::TooManyAttempts { seconds });
        }
        let caller = self.find_caller(hash).await?;
        if caller.is_some() {
            self.throttle.record_success(hash);
        } else {
            self.throttle.record_failure(address, clock::now());
            registry().add(&names::REFUSED_TOKENS, &[], 1.0);
            tracing::warn!(address = address.map(tracing::field::display), "token refused");
        }
        Ok(caller)
    }

    async fn find_caller(&self, hash: Digest) -> Result<Option<Caller>, Error> {
        // Comparing hashes leaks no timing information about the token.
        if self.operator_token == hash {
            return Ok(Some(Caller::Operator(AuthMethod::ServerToken)));
        }
        let key = CredentialKey::Token(hash);
        let credential = self.token_credential(hash).await?;
        Ok(credential.map(|credential| Caller::Person(PersonCaller { credential, key })))
    }

    /// Returns the owner of a browser session, if it is still valid.
    pub(crate) async fn session(&self, hash: Digest) -> Result<Option<SessionRecord>, Error> {
        let session = self.store.session(hash, self.operator_token, clock::now()).await?;
        let credential = session.as_ref().and_then(|session| session.credential.as_ref());
        if self.has_changed(credential).await? {
            return Ok(self.store.session(hash, self.operator_token, clock::now()).await?);
        }
        Ok(session)
    }

    /// Checks the groups behind a credential. Returns `true` if it must be read again.
    async fn has_changed(&self, credential: Option<&Credential>) -> Result<bool, Error> {
        match credential {
            Some(credential) => self.identity.check_due(credential).await,
            None => Ok(false),
        }
    }

    /// Returns the credential of a valid token. Groups behind it are checked first, if the last check
    /// is too old.
    async fn token_credential(&self, hash: Digest) -> Result<Option<Credential>, Error> {
        let credential = self.store.credential(hash, clock::now()).await?;
        if self.has_changed(credential.as_ref()).await? {
            return Ok(self.store.credential(hash, clock::now()).await?);
        }
        Ok(credential)
    }

    /// Records the use of a credential, at most once a minute.
    pub(crate) async fn record_use(&self, caller: &PersonCaller) {
        let now = clock::now();
        if caller.credential.last_used_at.is_some_and(|used| used + USE_INTERVAL > now) {
            return;
        }
        let (CredentialKey::Token(hash) | CredentialKey::Session(hash)) = caller.key;
        if let Err(error) = self.store.touch_credential(hash, now).await {
            tracing::warn!(%error, "failed to record the use of a credential");
        }
    }

    /// Authenticates a request, or returns the problem to respond with.
    async fn authenticate(
        &self,
        headers: &HeaderMap,
        address: Option<IpAddr>,
    ) -> Result<Caller, Problem> {
        let token = bearer_token(headers);
        let token = token.ok_or_else(|| unauthorized("The request has no token."))?;
        let caller = self.caller_for_token(token, address).await?;
        caller.ok_or_else(|| unauthorized("Invalid, expired or revoked token."))
    }

    /// Loads the rights of a caller. The store is asked for every request, so changes apply at once.
    pub(crate) async fn rights_of(&self, caller: &Caller) -> Result<AccessRights, Error> {
        match caller {
            Caller::Operator(_) => Ok(AccessRights::Operator),
            Caller::Person(person) => self.rights_of_credential(&person.credential).await,
        }
    }

    /// Loads the rights of a credential: those of its owner, within its limit.
    pub(crate) async fn rights_of_credential(
        &self,
        credential: &Credential,
    ) -> Result<AccessRights, Error> {
        let rights = self.identity.rights_of(&credential.person).await?;
        Ok(match &credential.limit {
            Some(limit) => rights.limited_by(limit),
            None => rights,
        })
    }

    /// Ends an event stream when the credential that opened it stops being valid, or when the rights
    /// of its owner change. The client reconnects with those it has left.
    pub(crate) fn end_stream_on_revocation(
        &self,
        key: CredentialKey,
        rights: AccessRights,
        response: Response,
    ) -> Response {
        let kind = response.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
        if !kind.is_some_and(|kind| kind.starts_with(b"text/event-stream")) {
            return response;
        }
        let authenticator = self.clone();
        let interval = self.identity.stream_check();
        let rights_lost = async move {
            let mut revoked = authenticator.revoked.clone();
            loop {
                // Groups change without a signal, and tokens expire.
                match tokio::time::timeout(interval, revoked.changed()).await {
                    Ok(Ok(())) | Err(_) => {}
                    // The sender is dropped when the server stops.
                    Ok(Err(_)) => return,
                }
                // Rights that cannot be read are lost.
                if authenticator.rights_of_key(key).await.ok().flatten().as_ref() != Some(&rights) {
                    return;
                }
            }
        };
        response.map(|body| {
            Body::from_stream(body.into_data_stream().take_until(Box::pin(rights_lost)))
        })
    }

    /// Returns the rights behind a token or session; `None` if it is not valid.
    async fn rights_of_key(&self, key: CredentialKey) -> Result<Option<AccessRights>, Error> {
        let credential = match key {
            CredentialKey::Token(hash) => self.token_credential(hash).await?,
            CredentialKey::Session(hash) => match self.session(hash).await? {
                // The session of an operator.
                Some(SessionRecord { credential: None, .. }) => {
                    return Ok(Some(AccessRights::Operator));
                }
                Some(session) => session.credential,
                None => None,
            },
        };
        match credential {
            Some(credential) => Ok(Some(self.rights_of_credential(&credential).await?)),
            None => Ok(None),
        }
    }
}

/// Middleware that authenticates a request or responds with a problem.
pub(crate) async fn require_auth(
    State(authenticator): State<Authenticator>,
    mut request: Request,
    next: Next,
) -> Response {
    let address = client_address(request.extensions());
    let caller = match authenticator.authenticate(request.headers(), address).await {
        Ok(caller) => caller,
        Err(problem) => return problem.into_response(),
    };
    let rights = match authenticator.rights_of(&caller).await {
        Ok(rights) => rights,
        Err(error) => return Problem::from(error).into_response(),
    };
    let person = match &caller {
        Caller::Person(person) => {
            authenticator.record_use(person).await;
            Some(person.credential.person.clone())
        }
        Caller::Operator(_) => None,
    };
    request.extensions_mut().insert(caller.clone());
    request.extensions_mut().insert(authenticator.clone());
    request.extensions_mut().insert(CallerRights { person, rights: rights.clone() });
    let response = next.run(request).await;
    match caller {
        Caller::Person(person) => {
            authenticator.end_stream_on_revocation(person.key, rights, response)
        }
        Caller::Operator(_) => response,
    }
}

/// Returns the person of a request: the owner of the token, or the person that an operator names.
pub(crate) fn principal(parts: &Parts) -> Result<Principal, Box<Problem>> {
    let rights = parts.extensions.get::<CallerRights>();
    let rights = rights.ok_or_else(|| Box::new(not_authenticated()))?;
    let rights = rights.rights.clone();
    // The MCP server and the chat say so themselves.
    let interface = RequestInterface::Api;
    let auth_method = match parts.extensions.get::<Caller>() {
        Some(Caller::Person(person)) => {
            let manages_credentials = manages_credentials(&person.credential);
            let Credential { person: name, method, .. } = person.credential.clone();
            let auth_method = method;
            return Ok(Principal { name, auth_method, interface, rights, manages_credentials });
        }
        Some(Caller::Operator(auth_method)) => *auth_method,
        None => return Err(Box::new(not_authenticated())),
    };
    let header_value = parts.headers.get(PERSON_HEADER).map(HeaderValue::as_bytes);
    let text = header_value.and_then(|bytes| std::str::from_utf8(bytes).ok()).map(str::trim);
    let name =
        text.filter(|text| !text.contains(char::is_control)).and_then(|text| text.parse().ok());
    let principal =
        |name| Principal { name, auth_method, interface, rights, manages_credentials: true };
    name.map(principal).ok_or_else(|| {
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

/// Returns `true` if the owner of a credential can manage their tokens and sessions with it.
pub(crate) fn manages_credentials(credential: &Credential) -> bool {
    credential.limit.is_none() && credential.method != AuthMethod::ServiceToken
}

/// Returns the token of the `Authorization` header.
fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.as_bytes().split_at_checked("Bearer ".len()))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "))
        .map(|(_, token)| token)
}

/// Returns the problem of a request that no middleware has authenticated.
pub(crate) fn not_authenticated() -> Problem {
    unauthorized("The request was not authenticated.")
}

fn unauthorized(detail: &str) -> Problem {
    let title = "Authentication failed";
    Problem::new(StatusCode::UNAUTHORIZED, "token", title, detail).hint(
        "Send your token as `Authorization: Bearer <token>` (TAMMA_TOKEN). Operators create tokens \
         with `tamma person add`; with an identity provider, run `tamma login`. On the server's machine, the command line finds the token in \
         the data folder (TAMMA_DATA) if you are the server's user.",
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

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(header::HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().expect("valid"))).collect()
    }

    #[test]
    fn cross_origin_requests_are_refused() {
        let refused = |origin: &str| {
            let headers = headers(&[(header::HOST, "localhost:8622"), (header::ORIGIN, origin)]);
            foreign_origin_problem(&headers).is_some()
        };
        assert!(!refused("http://localhost:8622"));
        for origin in ["http://localhost:3000", "ftp://localhost:8622", "null", "http://evil"] {
            assert!(refused(origin), "{origin}");
        }
    }

    #[test]
    fn repeated_host_headers_are_refused() {
        let own = [(header::HOST, "localhost"), (header::ORIGIN, "http://localhost")];
        let mut headers = headers(&own);
        headers.append(header::HOST, "evil.example".parse().expect("valid"));
        assert!(foreign_origin_problem(&headers).is_some());
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
        let person = |method| {
            let person = "Ada".parse().expect("name");
            let credential =
                Credential { person, method, limit: None, login: None, last_used_at: None };
            Caller::Person(PersonCaller {
                credential,
                key: CredentialKey::Token(Digest::of(b"s3cret")),
            })
        };
        let by = |caller: Caller| {
            let rights = CallerRights { person: None, rights: AccessRights::NONE };
            let request = Request::builder().header(PERSON_HEADER, "Grace").extension(caller);
            let request = request.extension(rights);
            let (parts, _) = request.body(Body::empty()).expect("request").into_parts();
            principal(&parts).map(|by| (by.name.to_string(), by.auth_method)).ok()
        };
        let grace = |auth_method| Some(("Grace".to_owned(), auth_method));
        for method in [AuthMethod::OwnToken, AuthMethod::IdentityProvider] {
            assert_eq!(by(person(method)), Some(("Ada".to_owned(), method)));
        }
        assert_eq!(by(Caller::Operator(AuthMethod::ServerToken)), grace(AuthMethod::ServerToken));
    }
}
