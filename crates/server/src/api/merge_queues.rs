//! Merge queues.

use axum::Json;

use super::ApiState;
use super::extract::{CurrentPerson, JsonBody};
use crate::dto::{MergeQueueActionBody, MergeQueueList, MergeQueueView};
use crate::problem::Problem;

/// Lists merge queues with their entries.
#[utoipa::path(
    get, path = "/merge-queues", tag = "merge-queues", operation_id = "list_merge_queues",
    responses((status = OK, body = MergeQueueList))
)]
pub(super) async fn list(state: ApiState) -> Result<Json<MergeQueueList>, Problem> {
    Ok(Json(MergeQueueList { queues: state.app.merge_queues().await? }))
}

/// Pauses a merge queue. The current build is stopped, unless it is landing.
#[utoipa::path(
    post, path = "/merge-queues/pause", tag = "merge-queues", operation_id = "pause_merge_queue",
    params(("Tamma-Person" = String, Header, description = "Name of the person.")),
    request_body = MergeQueueActionBody,
    responses(
        (status = OK, body = MergeQueueView),
        (status = CONFLICT, body = Problem, content_type = "application/problem+json",
            description = "The queue is paused already."),
    )
)]
pub(super) async fn pause(
    state: ApiState,
    CurrentPerson(by): CurrentPerson,
    JsonBody(body): JsonBody<MergeQueueActionBody>,
) -> Result<Json<MergeQueueView>, Problem> {
    Ok(Json(state.app.act_on_merge_queue(&by, body, true).await?))
}

/// Resumes a merge queue.
#[utoipa::path(
    post, path = "/merge-queues/resume", tag = "merge-queues", operation_id = "resume_merge_queue",
    params(("Tamma-Person" = String, Header, description = "Name of the person.")),
    request_body = MergeQueueActionBody,
    responses(
        (status = OK, body = MergeQueueView),
        (status = CONFLICT, body = Problem, content_type = "application/problem+json",
            description = "The queue is not paused."),
    )
)]
pub(super) async fn resume(
    state: ApiState,
    CurrentPerson(by): CurrentPerson,
    JsonBody(body): JsonBody<MergeQueueActionBody>,
) -> Result<Json<MergeQueueView>, Problem> {
    Ok(Json(state.app.act_on_merge_queue(&by, body, false).await?))
}
