//! Health and metrics endpoints.

use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::Deserialize;
use utoipa::IntoParams;

use super::ApiState;
use super::extract::QueryParams;
use crate::app::Error;
use crate::dto::{AgentPool, EffectivePermissions, Health, MetricsReport};
use crate::problem::Problem;
use crate::route_access::CallerRights;

/// Reports whether the database and Temporal are reachable.
#[utoipa::path(
    get, path = "/health", tag = "overview", operation_id = "health",
    responses(
        (status = OK, body = Health, description = "All services are reachable."),
        (status = SERVICE_UNAVAILABLE, body = Health, description = "A service is unreachable."),
    )
)]
pub(super) async fn health(state: ApiState) -> (StatusCode, Json<Health>) {
    let health = state.app.health().await;
    let status = if health.healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(health))
}

/// Filter for metrics.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct MetricsQuery {
    /// Project ID or name.
    project: Option<String>,
    /// Length of the period in days, 1 to 366; default 30.
    days: Option<u32>,
}

/// Returns metrics, computed from task history.
#[utoipa::path(
    get, path = "/metrics", tag = "overview", operation_id = "metrics", params(MetricsQuery),
    responses((status = OK, body = MetricsReport))
)]
pub(super) async fn metrics(
    state: ApiState,
    QueryParams(query): QueryParams<MetricsQuery>,
) -> Result<Json<MetricsReport>, Problem> {
    let days = query.days.unwrap_or(30);
    if !(1..=366).contains(&days) {
        let detail = format!("The period of {days} days is out of range.");
        return Err(Error::invalid(detail, "Use 1 to 366 days.").into());
    }
    let project = state.app.project_filter(query.project.as_deref()).await?;
    Ok(Json(state.app.metrics(project, days).await?))
}

/// Returns the status of the agent pool: workers with their runs and free slots, providers, and the
/// results of each agent.
#[utoipa::path(
    get, path = "/agents", tag = "overview", operation_id = "agents",
    responses((status = OK, body = AgentPool))
)]
pub(super) async fn agents(state: ApiState) -> Result<Json<AgentPool>, Problem> {
    Ok(Json(state.app.agent_pool().await?))
}

/// Project whose permissions are listed.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct PermissionsQuery {
    /// Project ID or name; optional if only one project is registered.
    project: Option<String>,
}

/// Returns the effective permissions of people and agents in a project.
#[utoipa::path(
    get, path = "/permissions", tag = "overview", operation_id = "permissions",
    params(PermissionsQuery),
    responses(
        (status = OK, body = EffectivePermissions),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "The project's configuration has errors."),
    )
)]
pub(super) async fn permissions(
    state: ApiState,
    Extension(caller): Extension<CallerRights>,
    QueryParams(query): QueryParams<PermissionsQuery>,
) -> Result<Json<EffectivePermissions>, Problem> {
    let project = query.project.as_deref();
    Ok(Json(state.app.effective_permissions(project, &caller.rights).await?))
}
