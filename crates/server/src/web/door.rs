//! The door: who a browser belongs to.
//!
//! Where the server has no token it is for whoever is on this machine, and they act in the name that
//! the server was started with. Where it has one, a person shows their own once, or whoever runs the
//! server shows the server's with a name, and the browser gets a session that lasts no longer than the
//! token. Everybody gets a secret cookie that no other site's page can send along, and every form
//! carries its hash.

use askama::Template;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Redirect, Response};
use chrono::TimeDelta;
use tamma_core::ids::{Digest, Name};

use super::fields::Fields;
use super::shell::{Notice, Shell};
use super::{Hall, Oops, Page, render, see};
use crate::app::{App, By, Error, Known};
use crate::clock;
use crate::guard::{Caller, Gate};
use crate::problem::Problem;

/// How long a session lasts.
const SESSION: TimeDelta = TimeDelta::days(30);

/// How long a browser keeps our cookies, in seconds.
const KEPT: u32 = 400 * 24 * 60 * 60;

const BROWSER: &str = "tamma";
const THEME: &str = "tamma-theme";
const KEYS: &str = "tamma-keys";
const NOTICE: &str = "tamma-notice";

/// What is checked at the door.
#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) app: App,
    pub(crate) gate: Gate,
    /// In whose name people of this machine act.
    pub(crate) person: Option<Name>,
}

/// Somebody with a browser.
#[derive(Debug, Clone)]
pub(super) struct Visitor {
    /// Their name; nothing where they have not said it yet.
    pub(super) person: Option<Name>,
    /// How it is known who they are.
    known: Known,
    /// The secret of their browser.
    secret: String,
    pub(super) theme: &'static str,
    pub(super) keys: &'static str,
    /// What they are told on the next page.
    pub(super) notice: Option<Notice>,
    /// Whether the server wants a token.
    wants_token: bool,
}

impl Visitor {
    /// What a form of theirs has in it.
    pub(super) fn csrf(&self) -> String {
        Digest::of(format!("form {}", self.secret).as_bytes()).to_string()
    }

    /// Who they are, for the log.
    pub(super) fn name(&self) -> Result<By, Error> {
        let nobody = || Error::invalid("It is not known who you are.", "Say your name at /hello.");
        let name = self.person.clone().ok_or_else(nobody)?;
        Ok(By { name, known: self.known })
    }
}

/// Finds out who it is, and lets them in or asks.
pub(super) async fn pass(State(door): State<Door>, mut request: Request, next: Next) -> Response {
    let headers = request.headers();
    if let Some(problem) = door.gate.guard().refuses_page(headers) {
        return Oops::new(Shell::bare(), problem).into_response();
    }
    let known = cookie(headers, BROWSER).filter(|secret| secret.len() == 64);
    let is_new = known.is_none();
    let secret = known.map_or_else(clock::new_secret, str::to_owned);
    let hash = Digest::of(secret.as_bytes());
    let guard = door.gate.guard();
    let wants_token = guard.wants_token();
    let session = if is_new {
        Ok(None)
    } else {
        door.app.store.session(hash, guard.token(), clock::now()).await
    };
    let session = match session {
        Ok(session) => session,
        Err(error) => {
            return Oops::new(Shell::bare(), Error::from(error)).into_response();
        }
    };
    let own_token = session.as_ref().and_then(|session| session.own_token);
    let person = session.map(|session| session.person);
    let person = person.or_else(|| door.person.clone().filter(|_| !wants_token));
    let visitor = Visitor {
        person,
        known: match (own_token, wants_token) {
            (Some(_), _) => Known::OwnToken,
            (None, true) => Known::ServerToken,
            (None, false) => Known::Machine,
        },
        secret: secret.clone(),
        theme: one_of(cookie(headers, THEME), ["auto", "light", "dark"]),
        keys: one_of(cookie(headers, KEYS), ["on", "off"]),
        notice: cookie(headers, NOTICE).and_then(Notice::read),
        wants_token,
    };
    let told = visitor.notice.is_some();
    // A page of another site sends no cookie of ours; one of another port of this machine might.
    if request.method() != Method::GET
        && let Some(problem) = crate::guard::origin(headers)
    {
        return Oops::new(Shell::of(&visitor), problem).into_response();
    }
    let is_hello = request.uri().path() == "/hello";
    let mut response = if visitor.person.is_none() && !is_hello {
        let place = request.uri().path_and_query().map_or("/", |it| it.as_str());
        let place: String = form_urlencoded::byte_serialize(place.as_bytes()).collect();
        Redirect::to(&format!("/hello?to={place}")).into_response()
    } else {
        request.extensions_mut().insert(visitor);
        request.extensions_mut().insert(door.gate.clone());
        let response = next.run(request).await;
        match own_token {
            Some(token) => door.gate.while_good(token, response),
            None => response,
        }
    };
    if is_new {
        set(&mut response, BROWSER, &secret, KEPT);
    }
    if told {
        set(&mut response, NOTICE, "", 0);
    }
    response
}

fn one_of<const N: usize>(said: Option<&str>, known: [&'static str; N]) -> &'static str {
    known.into_iter().find(|one| Some(*one) == said).unwrap_or(known[0])
}

/// The value of a cookie.
fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs =
        lines.flat_map(|line| line.split(';')).filter_map(|it| it.trim().split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// Gives a browser a cookie; one of no seconds is taken away.
fn set(response: &mut Response, name: &str, value: &str, seconds: u32) {
    let text = format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict");
    if let Ok(value) = HeaderValue::from_str(&text) {
        response.headers_mut().append(header::SET_COOKIE, value);
    }
}

/// Another page, which says what was done.
#[expect(clippy::unnecessary_wraps, reason = "it stands where a page does")]
pub(super) fn done(place: &str, notice: &Notice) -> Page {
    let mut response = Redirect::to(place).into_response();
    set(&mut response, NOTICE, &notice.write(), 60);
    Ok(response)
}

#[derive(Template)]
#[template(path = "hello.html")]
struct Hello {
    shell: Shell,
    wants_token: bool,
    name: String,
    to: String,
    fault: String,
}

/// Asks who it is.
pub(super) async fn hello(request: Request) -> Page {
    let Some(visitor) = request.extensions().get::<Visitor>() else { return see("/") };
    let query = request.uri().query().unwrap_or_default();
    let to = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "to");
    let to = to.map_or_else(|| "/".to_owned(), |(_, place)| inside(&place));
    render(&Hello {
        shell: Shell::of(visitor),
        wants_token: visitor.wants_token,
        name: String::new(),
        to,
        fault: String::new(),
    })
}

/// A place of ours, whatever was said: nobody is sent elsewhere.
fn inside(place: &str) -> String {
    let is_ours = place.starts_with('/') && !place.starts_with("//") && !place.contains('\\');
    if is_ours { place.to_owned() } else { "/".to_owned() }
}

/// Lets somebody in who has shown a token, or needs none.
pub(super) async fn enter(
    State(hall): State<Hall>,
    axum::Extension(visitor): axum::Extension<Visitor>,
    axum::Extension(gate): axum::Extension<Gate>,
    fields: Fields,
) -> Page {
    let oops = |error: Error| Oops::new(Shell::of(&visitor), error);
    let to = inside(&fields.text("to"));
    let (name, token) = match who(&gate, &fields).await.map_err(oops)? {
        Ok(known) => known,
        Err(fault) => {
            let page = Hello {
                shell: Shell::of(&visitor),
                wants_token: visitor.wants_token,
                name: fields.text("name"),
                to,
                fault: fault.to_owned(),
            };
            let mut response = render(&page)?;
            *response.status_mut() = StatusCode::FORBIDDEN;
            return Ok(response);
        }
    };
    // Another secret: nobody who knew the old one, or has put it there, comes in with it.
    let store = &hall.app.store;
    let old = Digest::of(visitor.secret.as_bytes());
    store.close_session(old).await.map_err(|error| oops(error.into()))?;
    let secret = clock::new_secret();
    let (hash, until) = (Digest::of(secret.as_bytes()), clock::now() + SESSION);
    let opened = store.open_session(hash, &name, token, until).await;
    opened.map_err(|error| oops(error.into()))?;
    let own = token.is_some() && token != gate.guard().token();
    tracing::info!(%name, own_token = own, "came in with a browser");
    let mut response = Redirect::to(&to).into_response();
    set(&mut response, BROWSER, &secret, KEPT);
    Ok(response)
}

/// Who somebody is by what they have written, with the token they have shown; or what is wrong with it.
async fn who(
    gate: &Gate,
    fields: &Fields,
) -> Result<Result<(Name, Option<Digest>), &'static str>, Error> {
    let token = fields.given("token");
    let caller = match &token {
        Some(token) => gate.whose(token.as_bytes()).await?,
        None if gate.guard().wants_token() => None,
        None => Some(Caller::Operator(Known::Machine)),
    };
    Ok(match caller {
        None => Err("That token is not known here: it was never good, or it was taken away."),
        Some(Caller::Person(name, hash)) => Ok((name, Some(hash))),
        Some(Caller::Operator(_)) => match fields.text("name").parse() {
            Ok(name) => Ok((name, gate.guard().token())),
            Err(_) => Err("A name has 1 to 100 characters."),
        },
    })
}

/// Shows somebody out.
pub(super) async fn leave(
    State(hall): State<Hall>,
    axum::Extension(visitor): axum::Extension<Visitor>,
    _fields: Fields,
) -> Page {
    let closed = hall.app.store.close_session(Digest::of(visitor.secret.as_bytes())).await;
    closed.map_err(|error| Oops::new(Shell::of(&visitor), Error::from(error)))?;
    let mut response = Redirect::to("/hello").into_response();
    set(&mut response, BROWSER, "", 0);
    Ok(response)
}

/// Keeps how somebody likes the pages.
pub(super) async fn preferences(headers: HeaderMap, fields: Fields) -> Page {
    let back = headers
        .get(header::REFERER)
        .and_then(|value| value.to_str().ok())
        .and_then(|place| place.parse::<axum::http::Uri>().ok())
        .and_then(|place| place.path_and_query().map(ToString::to_string));
    let mut response = Redirect::to(&inside(back.as_deref().unwrap_or("/"))).into_response();
    let theme = fields.text("theme");
    let keys = fields.text("keys");
    set(&mut response, THEME, one_of(Some(&theme), ["auto", "light", "dark"]), KEPT);
    set(&mut response, KEYS, one_of(Some(&keys), ["on", "off"]), KEPT);
    Ok(response)
}

impl<S: Sync> axum::extract::FromRequestParts<S> for Visitor {
    type Rejection = Oops;

    async fn from_request_parts(
        parts: &mut axum::http::request::Parts,
        _: &S,
    ) -> Result<Self, Oops> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| {
            let title = "You are not known here";
            let problem = Problem::new(StatusCode::UNAUTHORIZED, "browser", title, "");
            Oops::new(Shell::bare(), problem)
        })
    }
}
