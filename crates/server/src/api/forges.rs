//! Forges and pull requests.

use axum::Json;
use serde::Deserialize;
use tamma_store::{PullRequestFilter, StoredStatus};
use utoipa::IntoParams;

use super::ApiState;
use super::extract::{QueryParams, page_request};
use super::tasks::unknown_filter_value;
use crate::app::Error;
use crate::dto::{ForgeList, PullRequestPage};
use crate::problem::Problem;

/// Filter for pull requests.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct PullRequestQuery {
    /// Project ID or name.
    project: Option<String>,
    /// `open`, `merged` or `closed`.
    status: Option<String>,
    /// Maximum number of items, 1 to 500; default 50.
    limit: Option<u32>,
}

/// Lists pull requests of tasks, newest first, with their checks and reviews.
#[utoipa::path(
    get, path = "/pull-requests", tag = "forges", operation_id = "list_pull_requests",
    params(PullRequestQuery),
    responses(
        (status = OK, body = PullRequestPage),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "Unknown filter value."),
    )
)]
pub(super) async fn pull_requests(
    state: ApiState,
    QueryParams(query): QueryParams<PullRequestQuery>,
) -> Result<Json<PullRequestPage>, Problem> {
    let project = state.app.project_filter(query.project.as_deref()).await?;
    let status = query.status.as_deref().map(parse_status).transpose()?;
    let limit = page_request(None, query.limit)?.limit;
    let filter = PullRequestFilter { project, status };
    let pull_requests = state.app.list_pull_requests(&filter, limit).await?;
    Ok(Json(PullRequestPage { pull_requests }))
}

fn parse_status(text: &str) -> Result<StoredStatus, Error> {
    let all = [StoredStatus::Open, StoredStatus::Merged, StoredStatus::Closed];
    let found = all.into_iter().find(|status| status.to_string() == text.trim());
    found.ok_or_else(|| unknown_filter_value("status", text, all.into_iter()))
}

/// Lists the forges of the installation, with their quota. Credentials are never shown.
#[utoipa::path(
    get, path = "/forges", tag = "forges", operation_id = "list_forges",
    responses((status = OK, body = ForgeList))
)]
pub(super) async fn list(state: ApiState) -> Result<Json<ForgeList>, Problem> {
    Ok(Json(ForgeList { forges: state.app.list_forges().await? }))
}
