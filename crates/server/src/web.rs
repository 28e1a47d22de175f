//! The pages: the same use cases as the API's, for people with a browser.
//!
//! A page is a template, and so is each part of it that a live update replaces: one template for both.
//! Everything can be read and decided without script; every action is a form. The handlers turn what
//! the use cases give into the words that the templates show, and nothing else.

#![expect(
    clippy::struct_field_names,
    clippy::struct_excessive_bools,
    reason = "fields are called as the templates call them, and templates have no enums"
)]

mod act;
mod assets;
mod board;
mod chat;
mod door;
mod engines;
mod fields;
mod figures;
mod inbox;
mod knowledge;
mod live;
mod new;
mod projects;
mod rights;
mod shell;
mod task;
mod words;

use askama::Template;
use axum::Router;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware;
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use tokio_util::sync::CancellationToken;

pub(crate) use door::Door;

use crate::app::{App, Error};
use crate::problem::Problem;
use shell::{Link, Shell};

/// What the pages share.
#[derive(Clone)]
pub(crate) struct Hall {
    app: App,
    /// What changes mean for the board.
    feed: live::lists::Feed,
    /// What was said in this process.
    rooms: chat::Rooms,
    /// Ends what would otherwise never end.
    stop: CancellationToken,
}

/// What a browser may do with a page: load our own files, and send forms to us.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; form-action 'self'; base-uri 'none'; \
                      frame-ancestors 'none'";

/// Every page. Who may see them is checked at the door.
pub(crate) fn router(app: App, door: Door, stop: CancellationToken) -> Router {
    let pages = Router::new()
        .route("/", get(board::page))
        .route("/inbox", get(inbox::page))
        .route("/engines", get(engines::page))
        .route("/figures", get(figures::page))
        .route("/knowledge", get(knowledge::list).post(knowledge::add))
        .route("/knowledge/new", get(knowledge::new))
        .route("/knowledge/{id}", get(knowledge::one))
        .route("/knowledge/{id}/edit", get(knowledge::edit).post(knowledge::change))
        .route("/knowledge/{id}/decisions", post(knowledge::decide))
        .route("/chat", get(chat::page).post(chat::say))
        .route("/chat/confirm", post(chat::confirm))
        .route("/projects", get(projects::page).post(projects::register))
        .route("/tasks", post(new::add))
        .route("/tasks/new", get(new::page))
        .route("/tasks/{id}", get(task::overview))
        .route("/tasks/{id}/plan", get(task::plan::compare).post(task::plan::change))
        .route("/tasks/{id}/plan/edit", get(task::plan::edit))
        .route("/tasks/{id}/change", get(task::change::page))
        .route("/tasks/{id}/review", get(task::review::page))
        .route("/tasks/{id}/log", get(task::log::page))
        .route("/tasks/{id}/events", get(task::events::page))
        .route("/tasks/{id}/actions", post(act::act))
        .route("/live/board", get(live::lists::board))
        .route("/live/inbox", get(live::lists::inbox))
        .route("/live/engines", get(live::lists::engines))
        .route("/live/tasks/{id}", get(live::task))
        .route("/preferences", post(door::preferences))
        .route("/hello", get(door::hello).post(door::enter))
        .route("/goodbye", post(door::leave))
        .with_state(Hall {
            app,
            feed: live::lists::Feed::default(),
            rooms: chat::Rooms::default(),
            stop,
        })
        .layer(middleware::from_fn_with_state(door, door::pass));
    let files = Router::new().route("/assets/{version}/{name}", get(assets::file));
    pages.merge(files).layer(middleware::map_response(secure))
}

async fn secure(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let set = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
    ];
    for (name, value) in set {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let cache = HeaderName::from_static("cache-control");
    headers.entry(cache).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// A page, or why there is none.
type Page = Result<Response, Oops>;

/// Writes a page.
fn render(page: &impl Template) -> Page {
    match page.render() {
        Ok(html) => Ok(Html(html).into_response()),
        Err(error) => Err(Oops::new(Shell::bare(), Error::Fault(error.into()))),
    }
}

/// To another page, once something is done there.
#[expect(clippy::unnecessary_wraps, reason = "it stands where a page does")]
fn see(place: &str) -> Page {
    Ok(Redirect::to(place).into_response())
}

/// What went wrong, as a page.
struct Oops {
    shell: Box<Shell>,
    problem: Box<Problem>,
    /// What the person wrote, so that it is not lost.
    kept: String,
}

impl Oops {
    fn new(shell: Shell, error: impl Into<Problem>) -> Self {
        Self { shell: Box::new(shell), problem: Box::new(error.into()), kept: String::new() }
    }

    fn keeping(mut self, text: impl Into<String>) -> Self {
        self.kept = text.into();
        self
    }
}

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage {
    shell: Shell,
    problem: Shown,
}

struct Shown {
    status: u16,
    title: String,
    detail: String,
    what_to_do: String,
    faults: Faults,
    kept: Kept,
    links: Vec<Link>,
}

struct Faults {
    any: bool,
    list: Vec<Fault>,
}

struct Fault {
    message: String,
    place: String,
    help: String,
}

struct Kept {
    any: bool,
    text: String,
}

impl IntoResponse for Oops {
    fn into_response(self) -> Response {
        let Self { shell, problem, kept } = self;
        let problem = *problem;
        let status = StatusCode::from_u16(problem.status);
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let list: Vec<_> = problem
            .problems
            .into_iter()
            .map(|fault| Fault {
                message: fault.message,
                place: fault.line.map(|line| format!("line {line}")).unwrap_or_default(),
                help: fault.help.unwrap_or_default(),
            })
            .collect();
        let page = ErrorPage {
            shell: *shell,
            problem: Shown {
                status: problem.status,
                title: problem.title,
                detail: problem.detail,
                what_to_do: problem.what_to_do.unwrap_or_default(),
                faults: Faults { any: !list.is_empty(), list },
                kept: Kept { any: !kept.is_empty(), text: kept },
                links: vec![Link::new("/", "To the board"), Link::new("/inbox", "To the inbox")],
            },
        };
        // A page that cannot even say what went wrong says so in a line.
        let html = page.render().unwrap_or_else(|_| "Something went wrong.".to_owned());
        (status, Html(html)).into_response()
    }
}

/// What is at no address of ours.
pub(crate) async fn nothing_there(uri: axum::http::Uri) -> Response {
    let detail = format!("There is nothing at {}.", uri.path());
    let title = "There is no such page";
    let problem = Problem::new(StatusCode::NOT_FOUND, "not-found", title, detail)
        .hint("The links above go to everything there is.");
    secure(Oops::new(Shell::bare(), problem).into_response()).await
}
