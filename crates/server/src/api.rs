//! JSON API: maps HTTP requests to use cases and their results to JSON.

mod access;
mod actions;
mod alerts;
mod audit;
mod chat;
mod extract;
mod forges;
mod history;
mod knowledge;
mod maintenance;
mod merge_queues;
mod organisations;
mod overview;
mod people;
mod pipelines;
mod projects;
mod runs;
mod tasks;
mod tokens;

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequestParts};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::routing::{any, get};
use axum::{Json, middleware};
use tokio_util::sync::CancellationToken;
use utoipa::OpenApi as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::alert_dispatcher::AlertDispatcher;
use crate::app::App;
use crate::audit::record_request;
use crate::auth::{self, Authenticator};
use crate::mcp;
use crate::problem::Problem;
use crate::route_access::{self, CallerRights};

/// Maximum size of a request body, in bytes.
const MAX_BODY_BYTES: usize = 256 * 1024;

const BASE_PATH: &str = "/api/v1";

/// State of the router. It gives handlers an [`ApiState`], and nothing else.
#[derive(Clone)]
pub(crate) struct ApiServices {
    unlimited: ApiState,
}

/// State that a handler gets: its use cases read nothing that the caller cannot read.
#[derive(Clone)]
pub(crate) struct ApiState {
    app: App,
    alert_dispatcher: AlertDispatcher,
    /// Cancelled at shutdown, to end open streams.
    stop: CancellationToken,
}

impl FromRequestParts<ApiServices> for ApiState {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        services: &ApiServices,
    ) -> Result<Self, Problem> {
        let caller = parts.extensions.get::<CallerRights>().ok_or_else(auth::not_authenticated)?;
        let all = services.unlimited.clone();
        Ok(Self { app: all.app.limited_to(&caller.rights), ..all })
    }
}

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Tamma",
        description = "Run coding agents on development tasks, with plans, approvals, gates and \
            budgets.\n\n\
            Errors are problem documents (RFC 9457) of the media type \
            `application/problem+json`, with the schema `Problem`.",
    ),
    components(schemas(Problem)),
    tags(
        (name = "tasks", description = "Tasks and the actions on them."),
        (name = "log", description = "Task history and live events."),
        (name = "runs", description = "Agent runs, logs and transcripts."),
        (name = "knowledge", description = "Knowledge base."),
        (name = "alerts", description = "Alerts and their deliveries."),
        (name = "chat", description = "Chat."),
        (name = "forges", description = "Forges and pull requests."),
        (name = "people", description = "Access tokens, sessions, accounts and roles."),
        (name = "pipelines", description = "Pipelines of stories."),
        (name = "merge-queues", description = "Merge queues of branches."),
        (name = "projects", description = "Registered repositories."),
        (name = "overview", description = "Health, metrics and maintenance."),
    )
)]
struct ApiDocument;

fn routes() -> OpenApiRouter<ApiServices> {
    let api = OpenApiRouter::new()
        .routes(routes!(tasks::list, tasks::add))
        .routes(routes!(tasks::overdue))
        .routes(routes!(tasks::failing))
        .routes(routes!(tasks::show))
        .routes(routes!(tasks::plan))
        .routes(routes!(tasks::diff))
        .routes(routes!(tasks::report))
        .routes(routes!(tasks::bundle))
        .routes(routes!(tasks::verdict))
        .routes(routes!(actions::perform_bulk))
        .routes(routes!(actions::perform))
        .routes(routes!(actions::restart))
        .routes(routes!(history::list))
        .routes(routes!(history::events))
        .routes(routes!(history::export))
        .routes(routes!(audit::verify))
        .routes(routes!(audit::list))
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
        .routes(routes!(chat::send_message))
        .routes(routes!(alerts::list))
        .routes(routes!(alerts::test))
        .routes(routes!(people::list, people::add))
        .routes(routes!(people::revoke))
        .routes(routes!(people::deactivate))
        .routes(routes!(people::activate))
        .routes(routes!(people::link_identity))
        .routes(routes!(people::create_sign_in_link))
        .routes(routes!(tokens::list, tokens::create))
        .routes(routes!(tokens::revoke))
        .routes(routes!(tokens::list_sessions))
        .routes(routes!(tokens::revoke_session))
        .routes(routes!(access::list, access::change))
        .routes(routes!(access::import))
        .routes(routes!(access::check))
        .routes(routes!(organisations::list, organisations::add))
        .routes(routes!(organisations::change_access))
        .routes(routes!(organisations::transfer_project))
        .routes(routes!(pipelines::list, pipelines::start))
        .routes(routes!(pipelines::show))
        .routes(routes!(pipelines::output))
        .routes(routes!(pipelines::perform))
        .routes(routes!(merge_queues::list))
        .routes(routes!(merge_queues::pause))
        .routes(routes!(merge_queues::resume))
        .routes(routes!(forges::list))
        .routes(routes!(forges::pull_requests))
        .routes(routes!(projects::list, projects::register))
        .routes(routes!(projects::apply_rules))
        .routes(routes!(overview::permissions))
        .routes(routes!(overview::agents))
        .routes(routes!(overview::health))
        .routes(routes!(overview::metrics))
        .routes(routes!(maintenance::show, maintenance::start))
        .routes(routes!(maintenance::end));
    OpenApiRouter::with_openapi(ApiDocument::openapi()).nest(BASE_PATH, api)
}

/// Returns the `OpenAPI` document, generated from the handlers.
pub fn openapi() -> utoipa::openapi::OpenApi {
    let mut document = routes().split_for_parts().1;
    "1".clone_into(&mut document.info.version);
    document
}

/// Builds the router of the API and the MCP server, behind authentication.
pub(crate) fn router(
    app: App,
    alert_dispatcher: AlertDispatcher,
    authenticator: Authenticator,
    stop: CancellationToken,
) -> Router {
    let (router, _) = routes().split_for_parts();
    let (store, log) = (app.store.clone(), app.audit.clone());
    router
        .with_state(ApiServices {
            unlimited: ApiState { app: app.clone(), alert_dispatcher, stop },
        })
        .merge(mcp::router(app))
        .route(&format!("{BASE_PATH}/openapi.json"), get(|| async { Json(openapi()) }))
        .route(&format!("{BASE_PATH}/{{*path}}"), any(not_found))
        .method_not_allowed_fallback(method_not_allowed)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn_with_state(store, route_access::check_api_route))
        .layer(middleware::from_fn_with_state(log, record_request))
        .layer(middleware::from_fn_with_state(authenticator, auth::require_auth))
}

async fn not_found(uri: axum::http::Uri) -> Problem {
    let detail = format!("Cannot find {}.", uri.path());
    Problem::new(StatusCode::NOT_FOUND, "not-found", "Not found", detail)
        .hint(format!("{BASE_PATH}/openapi.json lists all paths."))
}

async fn method_not_allowed(method: axum::http::Method, uri: axum::http::Uri) -> Problem {
    let detail = format!("{} does not support {method}.", uri.path());
    let title = "Method not allowed";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", title, detail)
        .hint(format!("{BASE_PATH}/openapi.json lists the methods of each path."))
}
