//! Alerts and their deliveries.

use axum::Json;
use serde::Deserialize;
use tamma_core::ids::TaskId;
use utoipa::IntoParams;
use uuid::Uuid;

use super::ApiState;
use super::extract::{CurrentPerson, JsonBody, QueryParams, page_request};
use crate::app::Error;
use crate::dto::{AlertDeliveries, AlertDelivery, AlertTestRequest, AlertTestResults};
use crate::problem::Problem;

/// Filter for deliveries.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct AlertQuery {
    /// Task ID.
    task: Option<Uuid>,
    /// Maximum number of items, 1 to 500; default 50.
    limit: Option<u32>,
}

/// Lists alert deliveries, newest first.
#[utoipa::path(
    get, path = "/alerts", tag = "alerts", operation_id = "list_alerts", params(AlertQuery),
    responses((status = OK, body = AlertDeliveries))
)]
pub(super) async fn list(
    state: ApiState,
    QueryParams(query): QueryParams<AlertQuery>,
) -> Result<Json<AlertDeliveries>, Problem> {
    let limit = page_request(None, query.limit)?.limit;
    let deliveries = state.app.store.deliveries(query.task.map(TaskId), limit).await;
    let deliveries =
        deliveries.map_err(Error::from)?.into_iter().map(AlertDelivery::from).collect();
    Ok(Json(AlertDeliveries { deliveries }))
}

/// Sends a test message to every channel of a project and reports the results.
#[utoipa::path(
    post, path = "/alerts/test", tag = "alerts", operation_id = "test_alerts",
    params(("Tamma-Person" = String, Header, description = "Name of the person.")),
    request_body = AlertTestRequest,
    responses((status = OK, body = AlertTestResults))
)]
pub(super) async fn test(
    state: ApiState,
    CurrentPerson(by): CurrentPerson,
    JsonBody(request): JsonBody<AlertTestRequest>,
) -> Result<Json<AlertTestResults>, Problem> {
    tracing::info!(%by, "alert test requested");
    let project = state.app.resolve_project(request.project.as_deref()).await?;
    let results = state.alert_dispatcher.send_test_alerts(&project, &by).await?;
    Ok(Json(AlertTestResults { results }))
}
