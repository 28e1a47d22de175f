//! Health and metrics endpoints.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::ApiState;
use super::extract::QueryParams;
use crate::app::Error;
use crate::dto::{Health, MetricsReport};
use crate::problem::Problem;

/// Reports whether the database and Temporal are reachable.
#[utoipa::path(
    get, path = "/health", tag = "overview", operation_id = "health",
    responses(
        (status = OK, body = Health, description = "All services are reachable."),
        (status = SERVICE_UNAVAILABLE, body = Health, description = "A service is unreachable."),
    )
)]
pub(super) async fn health(State(state): State<ApiState>) -> (StatusCode, Json<Health>) {
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
    State(state): State<ApiState>,
    QueryParams(query): QueryParams<MetricsQuery>,
) -> Result<Json<MetricsReport>, Problem> {
    let days = query.days.unwrap_or(30);
    if !(1..=366).contains(&days) {
        let detail = format!("The period of {days} days is out of range.");
        return Err(Error::invalid(detail, "Use 1 to 366 days.").into());
    }
    let project = match &query.project {
        Some(project) => Some(state.app.resolve_project(Some(project)).await?.id),
        None => None,
    };
    Ok(Json(state.app.metrics(project, days).await?))
}
