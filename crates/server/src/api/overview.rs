//! How well it goes.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::Desk;
use super::extract::Asked;
use crate::app::Error;
use crate::problem::Problem;
use crate::shape::{Health, Metrics};

/// Says whether what the server needs can be reached.
#[utoipa::path(
    get, path = "/health", tag = "overview", operation_id = "health",
    responses(
        (status = OK, body = Health, description = "Everything can be reached."),
        (status = SERVICE_UNAVAILABLE, body = Health, description = "Something cannot."),
    )
)]
pub(super) async fn health(State(desk): State<Desk>) -> (StatusCode, Json<Health>) {
    let health = desk.app.health().await;
    let status = if health.healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(health))
}

/// Which figures are wanted.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// The id or the name of a project.
    project: Option<String>,
    /// How many days back, 1 to 366. Thirty, unless told otherwise.
    days: Option<u32>,
}

/// Gives the figures that Tamma is judged by, computed from the log.
#[utoipa::path(
    get, path = "/metrics", tag = "overview", operation_id = "metrics", params(Wanted),
    responses((status = OK, body = Metrics))
)]
pub(super) async fn metrics(
    State(desk): State<Desk>,
    Asked(wanted): Asked<Wanted>,
) -> Result<Json<Metrics>, Problem> {
    let days = wanted.days.unwrap_or(30);
    if !(1..=366).contains(&days) {
        let detail = format!("The figures of {days} days cannot be given.");
        return Err(Error::invalid(detail, "Ask for 1 to 366 days.").into());
    }
    let project = match &wanted.project {
        Some(project) => Some(desk.app.project(Some(project)).await?.id),
        None => None,
    };
    Ok(Json(desk.app.metrics(project, days).await?))
}
