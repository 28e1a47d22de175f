//! What people were told, and whether it arrives.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use tamma_core::ids::TaskId;
use utoipa::IntoParams;
use uuid::Uuid;

use super::Desk;
use super::extract::{Asked, Given, Person, window};
use crate::app::Error;
use crate::problem::Problem;
use crate::shape::{Deliveries, Delivery, Receipts, TestAlerts};

/// Which messages are wanted.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// Of this task only.
    task: Option<Uuid>,
    /// How many at most: 1 to 500.
    limit: Option<u32>,
}

/// Lists messages to people, the newest first, with what came of each.
#[utoipa::path(
    get, path = "/alerts", tag = "alerts", operation_id = "list_alerts", params(Wanted),
    responses((status = OK, body = Deliveries))
)]
pub(super) async fn list(
    State(desk): State<Desk>,
    Asked(wanted): Asked<Wanted>,
) -> Result<Json<Deliveries>, Problem> {
    let limit = window(None, wanted.limit)?.limit;
    let found = desk.app.store.deliveries(wanted.task.map(TaskId), limit).await;
    let deliveries = found.map_err(Error::from)?.into_iter().map(Delivery::from).collect();
    Ok(Json(Deliveries { deliveries }))
}

/// Sends a test to every channel of a project, and says whether it arrived.
#[utoipa::path(
    post, path = "/alerts/test", tag = "alerts", operation_id = "test_alerts",
    params(("Tamma-Person" = String, Header, description = "Who tries it.")),
    request_body = TestAlerts,
    responses((status = OK, body = Receipts))
)]
pub(super) async fn test(
    State(desk): State<Desk>,
    Person(by): Person,
    Given(whose): Given<TestAlerts>,
) -> Result<Json<Receipts>, Problem> {
    tracing::info!(%by, "tries where alerts arrive");
    Ok(Json(Receipts { receipts: desk.post.test(whose.project.as_deref(), &by).await? }))
}
