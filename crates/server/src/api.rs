//! The JSON API: requests into use cases, answers into JSON.

mod actions;
mod alerts;
mod chat;
mod extract;
mod knowledge;
mod log;
mod overview;
mod people;
mod projects;
mod runs;
mod tasks;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::routing::{any, get};
use axum::{Json, middleware};
use tokio_util::sync::CancellationToken;
use utoipa::OpenApi as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::guard::{self, Gate};
use crate::mcp;
use crate::post::PostOffice;
use crate::problem::Problem;

/// How big the body of a request may be.
const BODY: usize = 256 * 1024;

const BASE: &str = "/api/v1";

/// What the handlers share.
#[derive(Clone)]
pub(crate) struct Desk {
    app: App,
    post: PostOffice,
    /// Ends what would otherwise never end.
    stop: CancellationToken,
}

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Tamma",
        description = "Runs coding agents on tasks, with plans, approval, gates and a budget.\n\n\
            Whatever goes wrong is told as a problem document (RFC 9457) of the type \
            `application/problem+json`: the schema `Problem`.",
    ),
    components(schemas(Problem)),
    tags(
        (name = "tasks", description = "Adding, finding and steering tasks."),
        (name = "log", description = "What has happened, and what happens."),
        (name = "runs", description = "What agents do, and what they did."),
        (name = "knowledge", description = "What the team knows."),
        (name = "alerts", description = "What people are told, and whether it arrives."),
        (name = "chat", description = "Talking with Tamma."),
        (name = "people", description = "Who has a token of their own."),
        (name = "projects", description = "The repositories that tasks are for."),
        (name = "overview", description = "How well it goes."),
    )
)]
struct Document;

fn routes() -> OpenApiRouter<Desk> {
    let api = OpenApiRouter::new()
        .routes(routes!(tasks::list, tasks::add))
        .routes(routes!(tasks::show))
        .routes(routes!(tasks::plan))
        .routes(routes!(tasks::diff))
        .routes(routes!(tasks::report))
        .routes(routes!(actions::ask))
        .routes(routes!(log::history))
        .routes(routes!(log::events))
        .routes(routes!(log::export))
        .routes(routes!(runs::list))
        .routes(routes!(runs::lines))
        .routes(routes!(runs::follow))
        .routes(routes!(runs::transcript))
        .routes(routes!(tasks::inbox))
        .routes(routes!(knowledge::list, knowledge::add))
        .routes(routes!(knowledge::show, knowledge::edit))
        .routes(routes!(knowledge::decide))
        .routes(routes!(knowledge::import))
        .routes(routes!(knowledge::check))
        .routes(routes!(chat::say))
        .routes(routes!(alerts::list))
        .routes(routes!(alerts::test))
        .routes(routes!(people::list, people::add))
        .routes(routes!(people::revoke))
        .routes(routes!(projects::list, projects::register))
        .routes(routes!(overview::health))
        .routes(routes!(overview::metrics));
    OpenApiRouter::with_openapi(Document::openapi()).nest(BASE, api)
}

/// The `OpenAPI` document, as the handlers have it.
pub fn openapi() -> utoipa::openapi::OpenApi {
    let mut document = routes().split_for_parts().1;
    "1".clone_into(&mut document.info.version);
    document
}

/// Everything that programs are answered.
pub(crate) fn router(app: App, post: PostOffice, gate: Gate, stop: CancellationToken) -> Router {
    let (router, _) = routes().split_for_parts();
    router
        .with_state(Desk { app: app.clone(), post, stop })
        .merge(mcp::router(app))
        .route(&format!("{BASE}/openapi.json"), get(|| async { Json(openapi()) }))
        .route(&format!("{BASE}/{{*path}}"), any(nothing_there))
        .method_not_allowed_fallback(other_verb)
        .layer(DefaultBodyLimit::max(BODY))
        .layer(middleware::from_fn_with_state(gate, guard::check))
}

async fn nothing_there(uri: axum::http::Uri) -> Problem {
    let detail = format!("There is nothing at {}.", uri.path());
    Problem::new(StatusCode::NOT_FOUND, "not-found", "There is no such thing", detail)
        .hint(format!("{BASE}/openapi.json says what there is."))
}

async fn other_verb(method: axum::http::Method, uri: axum::http::Uri) -> Problem {
    let detail = format!("{} does not take {method}.", uri.path());
    let title = "That cannot be done there";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", title, detail)
        .hint(format!("{BASE}/openapi.json says what can be done."))
}
