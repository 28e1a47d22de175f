//! Browser sessions and sign-in.
//!
//! The server asks for an access token once: a person's own, or the server's together with a name. A
//! sign-in link, which `tamma up` and `tamma sign-in` print, or an identity provider replaces the
//! token. The session lasts no longer than the token, or the login at the provider. Every browser gets
//! a secret cookie that other sites cannot send, and every form carries its hash.

use std::net::IpAddr;

use askama::Template;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Redirect, Response};
use chrono::TimeDelta;
use tamma_core::access::AccessRights;
use tamma_core::actor::{AuthMethod, Authentication, RequestInterface};
use tamma_core::ids::{Digest, Name};
use tamma_core::operator::IdentityProvider;
use tamma_store::{NewSession, SessionKind, SessionProof, Store};

use super::form_fields::FormFields;
use super::layout::{EditorChoice, Layout, Link, Notice};
use super::{PageError, PageResult, WebState, redirect, render};
use crate::app::{App, Error, Principal};
use crate::audit::{judge_result, sign_in_request};
use crate::auth::{self, Authenticator, Caller, CredentialKey, PersonCaller};
use crate::clock;
use crate::edge::client_address;
use crate::problem::Problem;
use crate::route_access::CallerRights;
use crate::security_events::{SecurityEvent, record};

/// Time within which a sign-in link must be used.
const LINK_DURATION: TimeDelta = TimeDelta::minutes(10);

/// Duration of a session.
const SESSION_DURATION: TimeDelta = TimeDelta::days(30);

/// Lifetime of cookies, in seconds.
const COOKIE_MAX_AGE: u32 = 400 * 24 * 60 * 60;

const SESSION_COOKIE: &str = "tamma";
const THEME_COOKIE: &str = "tamma-theme";
const SHORTCUTS_COOKIE: &str = "tamma-keys";
const EDITOR_COOKIE: &str = "tamma-editor";
const NOTICE_COOKIE: &str = "tamma-notice";

/// State of the session middleware.
#[derive(Clone)]
pub(crate) struct SessionLayer {
    pub(crate) authenticator: Authenticator,
    /// Set if browsers reach the server by HTTPS.
    pub(crate) secure_cookies: bool,
}

/// Session of a browser.
#[derive(Debug, Clone)]
pub(super) struct Session {
    /// Name of the person; `None` before they sign in.
    pub(super) person: Option<Name>,
    /// Method by which the person was authenticated.
    auth_method: AuthMethod,
    /// Rights of the person; none before they sign in.
    pub(super) rights: AccessRights,
    /// Set if the person can manage their own tokens and sessions.
    manages_credentials: bool,
    /// Secret in the browser's cookie.
    cookie_secret: String,
    pub(super) theme: &'static str,
    pub(super) shortcuts: &'static str,
    pub(super) editor: &'static EditorChoice,
    /// Notice to show on the next page.
    pub(super) notice: Option<Notice>,
}

impl Session {
    /// Returns the CSRF token for forms of this session.
    pub(super) fn csrf_token(&self) -> String {
        Digest::of(format!("form {}", self.cookie_secret).as_bytes()).to_string()
    }

    /// Returns the hash under which the session is stored.
    pub(super) fn hash(&self) -> Digest {
        Digest::of(self.cookie_secret.as_bytes())
    }

    /// Returns the person in whose name the session acts.
    pub(super) fn acting_person(&self) -> Result<Principal, Error> {
        let nobody = || Error::invalid("You are not signed in.", "Sign in at /hello.");
        let name = self.person.clone().ok_or_else(nobody)?;
        Ok(Principal {
            name,
            auth_method: self.auth_method,
            interface: RequestInterface::Web,
            rights: self.rights.clone(),
            manages_credentials: self.manages_credentials,
        })
    }
}

/// Authenticates the request, or redirects to the sign-in page.
pub(super) async fn require_session(
    State(layer): State<SessionLayer>,
    mut request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let cookie = read_cookie(headers, SESSION_COOKIE).filter(|secret| secret.len() == 64);
    let is_new = cookie.is_none();
    let secret = cookie.map_or_else(clock::new_secret, str::to_owned);
    let hash = Digest::of(secret.as_bytes());
    let stored = if is_new { Ok(None) } else { layer.authenticator.session(hash).await };
    let stored = match stored {
        Ok(stored) => stored,
        Err(error) => return PageError::new(Layout::anonymous(), error).into_response(),
    };
    let credential = stored.as_ref().and_then(|stored| stored.credential.clone());
    let person_caller =
        credential.map(|credential| PersonCaller { credential, key: CredentialKey::Session(hash) });
    let person = stored.map(|stored| stored.person);
    let rights = match (&person, &person_caller) {
        (None, _) => Ok(AccessRights::NONE),
        (Some(_), None) => Ok(AccessRights::Operator),
        (Some(_), Some(caller)) => {
            layer.authenticator.record_use(caller).await;
            layer.authenticator.rights_of_credential(&caller.credential).await
        }
    };
    let rights = match rights {
        Ok(rights) => rights,
        Err(error) => return PageError::new(Layout::anonymous(), error).into_response(),
    };
    let caller = CallerRights {
        person: person.clone().filter(|_| person_caller.is_some()),
        rights: rights.clone(),
    };
    let session = Session {
        manages_credentials: person_caller
            .as_ref()
            .is_none_or(|caller| auth::manages_credentials(&caller.credential)),
        person,
        rights: rights.clone(),
        auth_method: person_caller
            .as_ref()
            .map_or(AuthMethod::ServerToken, |caller| caller.credential.method),
        cookie_secret: secret.clone(),
        theme: known_or_default(read_cookie(headers, THEME_COOKIE), ["auto", "light", "dark"]),
        shortcuts: known_or_default(read_cookie(headers, SHORTCUTS_COOKIE), ["on", "off"]),
        editor: EditorChoice::find(read_cookie(headers, EDITOR_COOKIE)),
        notice: read_cookie(headers, NOTICE_COOKIE).and_then(Notice::from_cookie),
    };
    let had_notice = session.notice.is_some();
    // Other sites cannot send our cookie, but pages on another port of this machine can.
    if request.method() != Method::GET
        && let Some(problem) = crate::auth::foreign_origin_problem(headers)
    {
        return PageError::new(Layout::for_session(&session), problem).into_response();
    }
    let is_sign_in = request.uri().path() == "/hello";
    let mut response = if session.person.is_none() && !is_sign_in {
        let path = request.uri().path_and_query().map_or("/", |it| it.as_str());
        let path: String = form_urlencoded::byte_serialize(path.as_bytes()).collect();
        Redirect::to(&format!("/hello?to={path}")).into_response()
    } else {
        if let Ok(by) = session.acting_person() {
            request.extensions_mut().insert(by);
        }
        let is_signed_in = session.person.is_some();
        request.extensions_mut().insert(session);
        request.extensions_mut().insert(caller);
        request.extensions_mut().insert(layer.authenticator.clone());
        let response = next.run(request).await;
        if is_signed_in {
            let key = CredentialKey::Session(hash);
            layer.authenticator.end_stream_on_revocation(key, rights, response)
        } else {
            response
        }
    };
    if is_new {
        set_cookie(&mut response, SESSION_COOKIE, &secret, COOKIE_MAX_AGE);
    }
    if had_notice {
        set_cookie(&mut response, NOTICE_COOKIE, "", 0);
    }
    if layer.secure_cookies {
        make_cookies_secure(&mut response);
    }
    response
}

/// Returns the person who has signed in with a browser, for requests that are not pages.
pub(crate) async fn session_principal(
    authenticator: &Authenticator,
    headers: &HeaderMap,
) -> Result<Option<(CallerRights, Principal)>, Error> {
    let Some(secret) = read_cookie(headers, SESSION_COOKIE).filter(|secret| secret.len() == 64)
    else {
        return Ok(None);
    };
    let Some(stored) = authenticator.session(Digest::of(secret.as_bytes())).await? else {
        return Ok(None);
    };
    let credential = stored.credential;
    let rights = match &credential {
        Some(credential) => authenticator.rights_of_credential(credential).await?,
        None => AccessRights::Operator,
    };
    let person = credential.as_ref().map(|_| stored.person.clone());
    let principal = Principal {
        name: stored.person,
        auth_method: credential.map_or(AuthMethod::ServerToken, |credential| credential.method),
        interface: RequestInterface::Web,
        rights: rights.clone(),
        manages_credentials: false,
    };
    Ok(Some((CallerRights { person, rights }, principal)))
}

/// Adds `Secure` to all cookies, so that browsers never send them without TLS.
pub(super) fn make_cookies_secure(response: &mut Response) {
    let header::Entry::Occupied(mut cookies) = response.headers_mut().entry(header::SET_COOKIE)
    else {
        return;
    };
    for cookie in cookies.iter_mut() {
        let secure = [cookie.as_bytes(), b"; Secure"].concat();
        if let Ok(secure) = HeaderValue::from_bytes(&secure) {
            *cookie = secure;
        }
    }
}

fn known_or_default<const N: usize>(
    value: Option<&str>,
    allowed: [&'static str; N],
) -> &'static str {
    allowed.into_iter().find(|one| Some(*one) == value).unwrap_or(allowed[0])
}

/// Returns the value of a cookie.
pub(super) fn read_cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs =
        lines.flat_map(|line| line.split(';')).filter_map(|it| it.trim().split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// Sets a cookie; 0 seconds removes it.
fn set_cookie(response: &mut Response, name: &str, value: &str, seconds: u32) {
    let text = format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict");
    if let Ok(value) = HeaderValue::from_str(&text) {
        response.headers_mut().append(header::SET_COOKIE, value);
    }
}

/// Redirects to a page that shows a notice.
#[expect(clippy::unnecessary_wraps, reason = "same return type as other pages")]
pub(super) fn redirect_with_notice(path: &str, notice: &Notice) -> PageResult {
    let mut response = Redirect::to(path).into_response();
    set_cookie(&mut response, NOTICE_COOKIE, &notice.to_cookie(), 60);
    Ok(response)
}

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInPage {
    layout: Layout,
    /// Code of a sign-in link; empty without one.
    code: String,
    /// Identity providers, with the addresses at which their sign-in begins.
    providers: Vec<Link>,
    name: String,
    return_to: String,
    error: String,
}

/// Renders the sign-in page.
pub(super) async fn sign_in_page(state: WebState, request: Request) -> PageResult {
    let Some(session) = request.extensions().get::<Session>() else { return redirect("/") };
    let query = request.uri().query().unwrap_or_default();
    let value = |wanted: &str| {
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        pairs.find(|(name, _)| name == wanted).map(|(_, value)| value.into_owned())
    };
    let to = value("to").map_or_else(|| "/".to_owned(), |path| local_path(&path));
    render(&SignInPage {
        layout: Layout::for_session(session),
        code: value("code").unwrap_or_default(),
        providers: provider_links(&state.app, &to),
        name: String::new(),
        return_to: to,
        error: String::new(),
    })
}

/// Returns the links of the sign-in page to the identity providers.
fn provider_links(app: &App, return_to: &str) -> Vec<Link> {
    let to: String = form_urlencoded::byte_serialize(return_to.as_bytes()).collect();
    let link = |provider: &IdentityProvider| {
        Link::new(format!("/sign-in/{}?to={to}", provider.name), provider.label())
    };
    app.identity.providers().map(link).collect()
}

/// Returns the path if it is local, else `/`. This prevents redirects to other sites.
pub(super) fn local_path(path: &str) -> String {
    // Browsers drop tabs and line breaks from addresses, which would leave two slashes.
    let is_odd = |letter: char| letter == '\\' || letter.is_control();
    let is_local = path.starts_with('/') && !path.starts_with("//") && !path.contains(is_odd);
    if is_local { path.to_owned() } else { "/".to_owned() }
}

/// Signs a person in.
pub(super) async fn sign_in(
    state: WebState,
    axum::Extension(session): axum::Extension<Session>,
    axum::Extension(authenticator): axum::Extension<Authenticator>,
    address: ClientAddress,
    headers: HeaderMap,
    fields: FormFields,
) -> PageResult {
    let page_error = |error: Error| PageError::new(Layout::for_session(&session), error);
    let to = local_path(&fields.text("to"));
    let client = address.0;
    let authenticated = authenticate(&state.app, &authenticator, address, &fields).await;
    let (name, proof) = match authenticated.map_err(page_error)? {
        Ok(credentials) => credentials,
        Err(message) => {
            let page = SignInPage {
                layout: Layout::for_session(&session),
                code: String::new(),
                providers: provider_links(&state.app, &to),
                name: fields.text("name"),
                return_to: to,
                error: message.to_owned(),
            };
            let mut response = render(&page)?;
            *response.status_mut() = StatusCode::FORBIDDEN;
            return Ok(response);
        }
    };
    // A new secret, so that a cookie planted before sign-in is worthless.
    let store = &state.app.store;
    let closed = store.close_session(session.hash()).await;
    closed.map_err(|error| page_error(error.into()))?;
    let is_operator = proof == SessionProof::Token(authenticator.operator_token());
    let method = match proof {
        SessionProof::Login(_) => AuthMethod::IdentityProvider,
        SessionProof::Token(_) if is_operator => AuthMethod::ServerToken,
        SessionProof::Token(_) => AuthMethod::OwnToken,
    };
    let auth = Authentication { method, via: RequestInterface::Web };
    let audited = sign_in_request(&name, auth, "POST /hello", client);
    let opening = open_web_session(store, &name, proof, &headers);
    let opened = state.app.audit.record(&audited, opening, judge_result).await;
    let secret = opened.flatten().map_err(page_error)?;
    let how = if is_operator { "server token" } else { "own token or link" };
    record(SecurityEvent::SignedIn, name.as_str(), "web", how);
    let mut response = Redirect::to(&to).into_response();
    set_cookie(&mut response, SESSION_COOKIE, &secret, COOKIE_MAX_AGE);
    Ok(response)
}

/// Opens the session of a browser, and returns the secret for its cookie.
pub(super) async fn open_web_session(
    store: &Store,
    person: &Name,
    proof: SessionProof,
    headers: &HeaderMap,
) -> Result<String, Error> {
    let secret = clock::new_secret();
    let agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
    let agent = agent.map(|agent| agent.chars().take(200).collect::<String>());
    let new = NewSession {
        hash: Digest::of(secret.as_bytes()),
        person,
        proof,
        kind: SessionKind::Web,
        client: agent.as_deref(),
        until: clock::now() + SESSION_DURATION,
    };
    store.open_session(new).await?;
    Ok(secret)
}

/// Sets the cookie of a session.
pub(super) fn set_session_cookie(response: &mut Response, secret: &str) {
    set_cookie(response, SESSION_COOKIE, secret, COOKIE_MAX_AGE);
}

/// Authenticates the submitted code, or name and token; the inner error is shown on the page.
async fn authenticate(
    app: &App,
    authenticator: &Authenticator,
    ClientAddress(address): ClientAddress,
    fields: &FormFields,
) -> Result<Result<(Name, SessionProof), &'static str>, Error> {
    if let Some(code) = fields.non_empty("code") {
        let hash = sign_in_hash(&code);
        let link = authenticator.session(hash).await?;
        // The link works once, also if two browsers use it at the same time.
        let is_first = app.store.close_session(hash).await?;
        let link = link.filter(|_| is_first);
        let credentials = link.map(|link| (link.person, link.proof));
        return Ok(credentials.ok_or(
            "This link has expired or has already been used. Run `tamma sign-in` for a new one.",
        ));
    }
    let caller = match fields.non_empty("token") {
        Some(token) => authenticator.caller_for_token(token.as_bytes(), address).await?,
        None => None,
    };
    Ok(match caller {
        None => Err("Invalid, expired or revoked token."),
        Some(Caller::Person(person)) if person.credential.method == AuthMethod::ServiceToken => {
            Err("Service accounts cannot sign in.")
        }
        Some(Caller::Person(person)) => Ok((person.credential.person.clone(), person.proof())),
        Some(Caller::Operator(_)) => match fields.text("name").parse() {
            Ok(name) => Ok((name, SessionProof::Token(authenticator.operator_token()))),
            Err(_) => Err("A name must have 1 to 100 characters."),
        },
    })
}

/// Returns the key under which a sign-in link is stored. No cookie has the same one.
fn sign_in_hash(code: &str) -> Digest {
    Digest::of(format!("sign-in link {code}").as_bytes())
}

/// Stores a sign-in link for the owner of a token or login, and returns its path.
pub(crate) async fn create_sign_in_link(
    store: &Store,
    person: &Name,
    proof: SessionProof,
) -> Result<String, tamma_store::Error> {
    let code = clock::new_secret();
    let new = NewSession {
        hash: sign_in_hash(&code),
        person,
        proof,
        kind: SessionKind::Link,
        client: None,
        until: clock::now() + LINK_DURATION,
    };
    store.open_session(new).await?;
    Ok(format!("/hello?code={code}"))
}

/// Signs the person out.
pub(super) async fn sign_out(
    state: WebState,
    axum::Extension(session): axum::Extension<Session>,
    _fields: FormFields,
) -> PageResult {
    let closed = state.app.store.close_session(session.hash()).await;
    closed.map_err(|error| PageError::new(Layout::for_session(&session), Error::from(error)))?;
    let person = session.person.as_ref().map(Name::as_str).unwrap_or_default();
    record(SecurityEvent::SignedOut, person, "web", "");
    let mut response = Redirect::to("/hello").into_response();
    set_cookie(&mut response, SESSION_COOKIE, "", 0);
    Ok(response)
}

/// Saves the theme, keyboard shortcut and editor preferences.
pub(super) async fn save_preferences(headers: HeaderMap, fields: FormFields) -> PageResult {
    let back = headers
        .get(header::REFERER)
        .and_then(|value| value.to_str().ok())
        .and_then(|uri| uri.parse::<axum::http::Uri>().ok())
        .and_then(|uri| uri.path_and_query().map(ToString::to_string));
    let mut response = Redirect::to(&local_path(back.as_deref().unwrap_or("/"))).into_response();
    let theme = fields.text("theme");
    let keys = fields.text("keys");
    set_cookie(
        &mut response,
        THEME_COOKIE,
        known_or_default(Some(&theme), ["auto", "light", "dark"]),
        COOKIE_MAX_AGE,
    );
    set_cookie(
        &mut response,
        SHORTCUTS_COOKIE,
        known_or_default(Some(&keys), ["on", "off"]),
        COOKIE_MAX_AGE,
    );
    let editor = EditorChoice::find(Some(&fields.text("editor")));
    set_cookie(&mut response, EDITOR_COOKIE, editor.value, COOKIE_MAX_AGE);
    Ok(response)
}

impl<S: Sync> axum::extract::FromRequestParts<S> for Session {
    type Rejection = PageError;

    async fn from_request_parts(
        parts: &mut axum::http::request::Parts,
        _: &S,
    ) -> Result<Self, PageError> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| {
            let title = "Not signed in";
            let problem = Problem::new(StatusCode::UNAUTHORIZED, "browser", title, "");
            PageError::new(Layout::anonymous(), problem)
        })
    }
}

/// Address of the client.
pub(super) struct ClientAddress(pub(super) Option<IpAddr>);

impl<S: Sync> axum::extract::FromRequestParts<S> for ClientAddress {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut axum::http::request::Parts,
        _: &S,
    ) -> Result<Self, Self::Rejection> {
        Ok(Self(client_address(&parts.extensions)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_local_paths_are_returned_to() {
        for path in ["/", "/tasks/1?a=b", "/a//b"] {
            assert_eq!(local_path(path), path);
        }
        for path in ["", "//evil", "/\\evil", "https://evil", "/\t/evil", "/\n/evil", "tasks"] {
            assert_eq!(local_path(path), "/", "{path:?}");
        }
    }

    #[test]
    fn cookies_are_secure_if_the_public_address_is_https() {
        let mut response = StatusCode::OK.into_response();
        make_cookies_secure(&mut response);
        assert!(response.headers().get(header::SET_COOKIE).is_none());
        set_cookie(&mut response, SESSION_COOKIE, "a", 1);
        set_cookie(&mut response, NOTICE_COOKIE, "", 0);
        make_cookies_secure(&mut response);
        let cookies: Vec<_> = response
            .headers()
            .get_all(header::SET_COOKIE)
            .iter()
            .filter_map(|it| it.to_str().ok())
            .collect();
        assert_eq!(
            cookies,
            [
                "tamma=a; Path=/; Max-Age=1; HttpOnly; SameSite=Strict; Secure",
                "tamma-notice=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict; Secure",
            ]
        );
    }
}
