//! Sign-in of a browser with an identity provider.
//!
//! These two pages are outside the session middleware: the browser comes back from another site, so
//! that it does not send the cookie of a session. A cookie of its own binds the sign-in to the browser
//! that began it.

use std::sync::Arc;

use askama::Template;
use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware;
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::get;
use tamma_core::actor::{AuthMethod, Authentication, RequestInterface};
use tamma_core::ids::Digest;
use tamma_store::SessionProof;

use super::layout::Layout;
use super::session::{
    ClientAddress, local_path, make_cookies_secure, open_web_session, read_cookie,
    set_session_cookie,
};
use super::{PageError, PageResult, add_security_headers, render};
use crate::app::{App, Error};
use crate::audit::{judge_result, sign_in_request};
use crate::clock;
use crate::edge::SignInThrottle;
use crate::identity::CallbackQuery;
use crate::route_access;
use crate::security_events::{SecurityEvent, record};

/// Cookie of a browser that is at the provider.
const FLOW_COOKIE: &str = "tamma-sign-in";

/// Lifetime of the cookie, in seconds.
const FLOW_SECONDS: u32 = 600;

/// Sign-ins that an address can begin in a minute. Everybody behind the same proxy has the same address.
const MAX_SIGN_INS: u32 = 100;

/// State of these pages.
#[derive(Clone)]
struct ProviderPages {
    app: App,
    /// Set if browsers reach the server by HTTPS.
    secure_cookies: bool,
    /// Counts browsers that begin to sign in, by address.
    throttle: Arc<SignInThrottle>,
}

/// Returns the routes of browsers that sign in with a provider.
pub(crate) fn provider_sign_in_router(app: App, secure_cookies: bool) -> Router {
    let store = app.store.clone();
    let throttle = Arc::new(SignInThrottle::new(MAX_SIGN_INS));
    Router::new()
        .route("/sign-in/{provider}", get(begin))
        .route("/sign-in/{provider}/callback", get(finish))
        .with_state(ProviderPages { app, secure_cookies, throttle })
        .layer(middleware::from_fn_with_state(store, route_access::check_api_route))
        .layer(middleware::map_response(add_security_headers))
}

/// Page that leads to the page that the person wanted. A redirect would not send the new cookie,
/// because the browser comes from another site.
#[derive(Template)]
#[template(path = "signed_in.html")]
struct SignedInPage {
    layout: Layout,
    person: String,
    return_to: String,
}

/// Sends the browser to a provider.
async fn begin(
    State(pages): State<ProviderPages>,
    Path(provider): Path<String>,
    ClientAddress(address): ClientAddress,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> PageResult {
    // Each one is stored until it ends.
    let now = clock::now();
    if let Some(seconds) = pages.throttle.wait_seconds(address, Digest::of(b""), now) {
        return Err(page_error(Error::TooManyAttempts { seconds }));
    }
    pages.throttle.record_failure(address, now);
    let to = query_value(query.as_deref(), "to").unwrap_or_default();
    // Two tabs of one browser share the cookie.
    let known = read_cookie(&headers, FLOW_COOKIE).filter(|secret| secret.len() == 64);
    let cookie = known.map_or_else(clock::new_secret, str::to_owned);
    let url = pages.app.identity.begin_browser(&provider, &cookie, &local_path(&to)).await;
    let mut response = Redirect::to(&url.map_err(page_error)?).into_response();
    set_flow_cookie(&mut response, &cookie, FLOW_SECONDS);
    Ok(pages.with_secure_cookies(response))
}

/// Signs in a browser that comes back from a provider.
async fn finish(
    State(pages): State<ProviderPages>,
    Path(provider): Path<String>,
    ClientAddress(address): ClientAddress,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> PageResult {
    let value = |name: &str| query_value(query.as_deref(), name);
    let answer = CallbackQuery {
        code: value("code"),
        state: value("state"),
        issuer: value("iss"),
        error: value("error"),
    };
    let cookie = read_cookie(&headers, FLOW_COOKIE).unwrap_or_default();
    let finished = pages.app.identity.finish_browser(&provider, cookie, &answer).await;
    let (login, return_to) = finished.map_err(page_error)?;
    let proof = SessionProof::Login(login.login);
    let auth = Authentication { method: AuthMethod::IdentityProvider, via: RequestInterface::Web };
    let route = "GET /sign-in/{provider}/callback";
    let audited = sign_in_request(&login.person, auth, route, address);
    let opening = open_web_session(&pages.app.store, &login.person, proof, &headers);
    let opened = pages.app.audit.record(&audited, opening, judge_result).await;
    let secret = opened.flatten().map_err(page_error)?;
    record(SecurityEvent::SignedIn, login.person.as_str(), &login.provider, "web");
    let person = login.person.to_string();
    let mut response = render(&SignedInPage { layout: Layout::anonymous(), person, return_to })?;
    set_session_cookie(&mut response, &secret);
    set_flow_cookie(&mut response, "", 0);
    Ok(pages.with_secure_cookies(response))
}

impl ProviderPages {
    fn with_secure_cookies(&self, mut response: Response) -> Response {
        if self.secure_cookies {
            make_cookies_secure(&mut response);
        }
        response
    }
}

/// Sets the cookie of the sign-in. The browser sends it when the provider sends it back.
fn set_flow_cookie(response: &mut Response, value: &str, seconds: u32) {
    let text =
        format!("{FLOW_COOKIE}={value}; Path=/sign-in; Max-Age={seconds}; HttpOnly; SameSite=Lax");
    if let Ok(value) = HeaderValue::from_str(&text) {
        response.headers_mut().append(header::SET_COOKIE, value);
    }
}

fn query_value(query: Option<&str>, wanted: &str) -> Option<String> {
    let mut pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    pairs.find(|(name, _)| name == wanted).map(|(_, value)| value.into_owned())
}

fn page_error(error: Error) -> PageError {
    PageError::new(Layout::anonymous(), error)
}
