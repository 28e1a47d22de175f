//! Maintenance of the installation.

use axum::Json;

use super::ApiState;
use super::extract::{CurrentPerson, JsonBody};
use crate::dto::{MaintenanceStatus, NewMaintenance};
use crate::problem::Problem;

/// Returns the maintenance that is under way.
#[utoipa::path(
    get, path = "/maintenance", tag = "overview", operation_id = "show_maintenance",
    responses((status = OK, body = MaintenanceStatus))
)]
pub(super) async fn show(state: ApiState) -> Result<Json<MaintenanceStatus>, Problem> {
    Ok(Json(state.app.maintenance().await?))
}

/// Starts maintenance: no runs start until it ends. Running agents are not stopped.
#[utoipa::path(
    post, path = "/maintenance", tag = "overview", operation_id = "start_maintenance",
    params(("Tamma-Person" = String, Header, description = "Name of the person.")),
    request_body = NewMaintenance,
    responses((status = OK, body = MaintenanceStatus))
)]
pub(super) async fn start(
    state: ApiState,
    CurrentPerson(by): CurrentPerson,
    JsonBody(new): JsonBody<NewMaintenance>,
) -> Result<Json<MaintenanceStatus>, Problem> {
    Ok(Json(state.app.start_maintenance(&by, new).await?))
}

/// Ends maintenance.
#[utoipa::path(
    post, path = "/maintenance/end", tag = "overview", operation_id = "end_maintenance",
    params(("Tamma-Person" = String, Header, description = "Name of the person.")),
    responses((status = OK, body = MaintenanceStatus))
)]
pub(super) async fn end(
    state: ApiState,
    CurrentPerson(by): CurrentPerson,
) -> Result<Json<MaintenanceStatus>, Problem> {
    Ok(Json(state.app.end_maintenance(&by).await?))
}
