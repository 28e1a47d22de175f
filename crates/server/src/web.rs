//! Web pages for people with a browser, on the same use cases as the API.
//!
//! Pages and live updates are rendered from the same templates. Pages work without JavaScript, and
//! every action is a form. Handlers only turn results of the use cases into the text that templates
//! show.

#![expect(clippy::struct_field_names, reason = "field names match the templates")]

mod account;
mod action_handler;
mod agents;
mod assets;
mod board;
mod chat;
mod form_fields;
mod highlight;
mod html;
mod inbox;
mod knowledge;
mod labels;
mod layout;
mod live;
mod log_view;
mod markdown;
mod merge_queue;
mod metrics;
mod new_task;
mod permissions;
mod pipelines;
mod projects;
mod provider_sign_in;
mod pull_requests;
mod runs;
mod session;
mod task;

use askama::Template;
use axum::Router;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use tamma_store::Store;
use tokio_util::sync::CancellationToken;

pub(crate) use provider_sign_in::provider_sign_in_router;
pub(crate) use session::{SessionLayer, create_sign_in_link, session_principal};

use crate::app::{App, Error};
use crate::audit::record_request;
use crate::problem::{FileProblem, Problem};
use crate::route_access::{self, CallerRights};
use layout::{Layout, Link};
use session::Session;

/// State of the router. It gives handlers a [`WebState`], and nothing else.
#[derive(Clone)]
struct WebServices {
    unlimited: WebState,
}

/// State that a page gets: its use cases read nothing that the person cannot read.
#[derive(Clone)]
struct WebState {
    app: App,
    /// Board updates, computed once for all browsers.
    board_feed: live::lists::BoardFeed,
    /// Counts of the metrics page that took long.
    metrics_cache: metrics::MetricsCache,
    /// Cancelled on shutdown, to end the live streams.
    stop: CancellationToken,
}

impl FromRequestParts<WebServices> for WebState {
    type Rejection = PageError;

    async fn from_request_parts(
        parts: &mut Parts,
        services: &WebServices,
    ) -> Result<Self, PageError> {
        let not_authenticated =
            || PageError::new(Layout::anonymous(), crate::auth::not_authenticated());
        let caller = parts.extensions.get::<CallerRights>().ok_or_else(not_authenticated)?;
        let all = services.unlimited.clone();
        Ok(Self { app: all.app.limited_to(&caller.rights), ..all })
    }
}

/// Middleware of the pages: refuses requests that the table of routes does not allow.
async fn check_page_route(State(store): State<Store>, request: Request, next: Next) -> Response {
    let session = request.extensions().get::<Session>().cloned();
    match route_access::authorize_route(&store, request).await {
        Ok(request) => next.run(request).await,
        Err(problem) => {
            let layout = session.map_or_else(Layout::anonymous, |it| Layout::for_session(&it));
            PageError::new(layout, problem).into_response()
        }
    }
}

/// Content security policy: own files only, and forms only to this server.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; form-action 'self'; base-uri 'none'; \
                      frame-ancestors 'none'";

/// Returns the routes of all pages. [`SessionLayer`] authenticates every request.
pub(crate) fn router(app: App, session_layer: SessionLayer, stop: CancellationToken) -> Router {
    let (store, log) = (app.store.clone(), app.audit.clone());
    let unlimited = WebState {
        app,
        board_feed: live::lists::BoardFeed::default(),
        metrics_cache: metrics::MetricsCache::default(),
        stop,
    };
    let pages = Router::new()
        .route("/", get(board::page))
        .route("/inbox", get(inbox::page))
        .route("/engines", get(agents::page))
        .route("/figures", get(metrics::page))
        .route("/knowledge", get(knowledge::list).post(knowledge::add))
        .route("/knowledge/new", get(knowledge::new_form))
        .route("/knowledge/bulk", post(knowledge::decide_several))
        .route("/knowledge/{id}", get(knowledge::entry_page))
        .route("/knowledge/{id}/edit", get(knowledge::edit_form).post(knowledge::update))
        .route("/knowledge/{id}/decisions", post(knowledge::decide))
        .route("/chat", get(chat::page).post(chat::send_message))
        .route("/chat/confirm", post(chat::answer_proposal))
        .route("/projects", get(projects::page).post(projects::register))
        .route("/pull-requests", get(pull_requests::page))
        .route("/pipelines", get(pipelines::list))
        .route("/pipelines/{id}", get(pipelines::page))
        .route("/pipelines/{id}/phases/{phase}", get(pipelines::output))
        .route("/pipelines/{id}/actions", post(pipelines::submit_action))
        .route("/merge-queues", get(merge_queue::page).post(merge_queue::submit_action))
        .route("/tasks", post(new_task::add))
        .route("/tasks/bulk", post(board::bulk::submit))
        .route("/tasks/new", get(new_task::page))
        .route("/tasks/{id}", get(task::overview))
        .route("/tasks/{id}/plan", get(task::plan::compare).post(task::plan::submit_changes))
        .route("/tasks/{id}/plan/edit", get(task::plan::edit_form))
        .route("/tasks/{id}/change", get(task::change::page))
        .route("/tasks/{id}/change/files/{file}", get(task::change::file_fragment))
        .route("/tasks/{id}/change/context", get(task::change::context))
        .route("/tasks/{id}/change/image", get(task::change::image))
        .route("/tasks/{id}/change/comments", post(task::change::save_comment))
        .route("/tasks/{id}/change/viewed", post(task::change::mark_viewed))
        .route("/tasks/{id}/review", get(task::review::page))
        .route("/tasks/{id}/log", get(task::log::page))
        .route("/tasks/{id}/events", get(task::events::page))
        .route("/tasks/{id}/actions", post(action_handler::submit_action))
        .route("/runs/{id}", get(runs::page))
        .route("/live/board", get(live::lists::board_stream))
        .route("/live/inbox", get(live::lists::inbox_stream))
        .route("/live/engines", get(live::lists::agents_stream))
        .route("/live/pull-requests", get(live::lists::pull_requests_stream))
        .route("/live/pipelines/{id}", get(live::lists::pipeline_stream))
        .route("/live/merge-queues", get(live::lists::merge_queues_stream))
        .route("/live/tasks/{id}", get(live::task_stream))
        .route("/live/runs/{id}", get(live::run::run_stream))
        .route("/palette", get(board::palette::search))
        .route("/views", post(board::views::save))
        .route("/views/remove", post(board::views::remove))
        .route("/account", get(account::page))
        .route("/account/sessions", post(account::revoke_session))
        .route("/account/tokens", post(account::create_token))
        .route("/account/tokens/revoke", post(account::revoke_token))
        .route("/preferences", post(session::save_preferences))
        .route("/hello", get(session::sign_in_page).post(session::sign_in))
        .route("/goodbye", post(session::sign_out))
        .with_state(WebServices { unlimited })
        .layer(middleware::from_fn_with_state(store, check_page_route))
        .layer(middleware::from_fn_with_state(log, record_request))
        .layer(middleware::from_fn_with_state(session_layer, session::require_session));
    let files = Router::new().route("/assets/{version}/{name}", get(assets::serve_asset));
    pages.merge(files).layer(middleware::map_response(add_security_headers))
}

async fn add_security_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let set =
        [(header::X_CONTENT_TYPE_OPTIONS, "nosniff"), (header::REFERRER_POLICY, "same-origin")];
    for (name, value) in set {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // An image of a change has a stricter one.
    let policy = HeaderValue::from_static(CONTENT_SECURITY_POLICY);
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(policy);
    let cache = HeaderName::from_static("cache-control");
    headers.entry(cache).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Response, or an error page.
type PageResult = Result<Response, PageError>;

/// Renders a template.
fn render(page: &impl Template) -> PageResult {
    match page.render() {
        Ok(html) => Ok(Html(html).into_response()),
        Err(error) => Err(PageError::new(Layout::anonymous(), Error::Internal(error.into()))),
    }
}

/// Redirects to another page.
#[expect(clippy::unnecessary_wraps, reason = "same return type as other pages")]
fn redirect(path: &str) -> PageResult {
    Ok(Redirect::to(path).into_response())
}

/// Error page.
struct PageError {
    layout: Box<Layout>,
    problem: Box<Problem>,
    /// Text that the person had typed, returned so that it is not lost.
    unsent_text: Option<String>,
}

impl PageError {
    fn new(layout: Layout, error: impl Into<Problem>) -> Self {
        Self { layout: Box::new(layout), problem: Box::new(error.into()), unsent_text: None }
    }

    fn with_unsent_text(mut self, text: impl Into<String>) -> Self {
        self.unsent_text = Some(text.into()).filter(|text| !text.is_empty());
        self
    }
}

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage {
    layout: Layout,
    problem: ProblemView,
}

struct ProblemView {
    status: u16,
    title: String,
    detail: String,
    what_to_do: Option<String>,
    /// Errors in a configuration file.
    errors: Vec<FileProblem>,
    unsent_text: Option<String>,
    links: Vec<Link>,
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let Self { layout, problem, unsent_text } = self;
        let problem = *problem;
        let status = StatusCode::from_u16(problem.status);
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let page = ErrorPage {
            layout: *layout,
            problem: ProblemView {
                status: problem.status,
                title: problem.title,
                detail: problem.detail,
                what_to_do: problem.hint,
                errors: problem.problems,
                unsent_text,
                links: vec![Link::new("/", "Go to board"), Link::new("/inbox", "Go to inbox")],
            },
        };
        // Fall back to plain text if the error page itself cannot be rendered.
        let html = page.render().unwrap_or_else(|_| "Something went wrong.".to_owned());
        (status, Html(html)).into_response()
    }
}

/// Renders the page for unknown addresses.
pub(crate) async fn not_found(uri: axum::http::Uri) -> Response {
    let detail = format!("No page exists at {}.", uri.path());
    let title = "Page not found";
    let problem = Problem::new(StatusCode::NOT_FOUND, "not-found", title, detail)
        .hint("Check the address, or start from the board.");
    add_security_headers(PageError::new(Layout::anonymous(), problem).into_response()).await
}
