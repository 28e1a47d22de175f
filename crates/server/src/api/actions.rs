//! Actions on tasks.

use axum::Json;
use axum::http::HeaderMap;

use super::ApiState;
use super::extract::{CurrentPerson, JsonBody, TaskPath};
use crate::IDEMPOTENCY_KEY_HEADER;
use crate::app::Error;
use crate::dto::{BulkRequest, BulkResponse, TaskAction, TaskStatus};
use crate::problem::Problem;

/// Maximum length of an idempotency key.
const MAX_KEY_LENGTH: usize = 200;

/// Performs an action on a task, such as approve, pause or reply.
///
/// The response is sent once the task has accepted the action. A repeated `Idempotency-Key` returns
/// the response of the first request.
#[utoipa::path(
    post, path = "/tasks/{id}/actions", tag = "tasks", operation_id = "ask_task",
    params(
        ("id" = uuid::Uuid, Path, description = "Task ID."),
        ("Tamma-Person" = String, Header, description = "Name of the person."),
        ("Idempotency-Key" = Option<String>, Header,
            description = "Identifies the request, so that it can be retried safely."),
    ),
    request_body = TaskAction,
    responses(
        (status = OK, body = TaskStatus, description = "Action accepted."),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "Task not found."),
        (status = CONFLICT, body = Problem, content_type = "application/problem+json",
            description = "Action not allowed in this state, or the plan or commit was replaced."),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "Invalid action."),
        (status = SERVICE_UNAVAILABLE, body = Problem, content_type = "application/problem+json",
            description = "No worker responded in time."),
    )
)]
pub(super) async fn perform(
    state: ApiState,
    TaskPath(task): TaskPath,
    CurrentPerson(by): CurrentPerson,
    headers: HeaderMap,
    JsonBody(action): JsonBody<TaskAction>,
) -> Result<Json<TaskStatus>, Problem> {
    let key = idempotency_key(&headers)?;
    Ok(Json(state.app.perform_action(task, by, action, key).await?))
}

/// Performs an action on several tasks: pause, resume, cancel, or edit priority and labels.
///
/// Each task accepts or refuses it for itself, with the permissions that the single action needs.
#[utoipa::path(
    post, path = "/tasks/actions", tag = "tasks", operation_id = "ask_tasks",
    params(
        ("Tamma-Person" = String, Header, description = "Name of the person."),
        ("Idempotency-Key" = Option<String>, Header,
            description = "Identifies the request, so that it can be retried safely."),
    ),
    request_body = BulkRequest,
    responses(
        (status = OK, body = BulkResponse, description = "Result of each task."),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "Action that needs a decision for each task, or no tasks."),
    )
)]
pub(super) async fn perform_bulk(
    state: ApiState,
    CurrentPerson(by): CurrentPerson,
    headers: HeaderMap,
    JsonBody(request): JsonBody<BulkRequest>,
) -> Result<Json<BulkResponse>, Problem> {
    let key = idempotency_key(&headers)?;
    let BulkRequest { tasks, action } = request;
    let results = state.app.perform_bulk_action(&tasks, &by, &action, key.as_deref()).await?;
    Ok(Json(BulkResponse { results }))
}

/// Returns the idempotency key of a request.
fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Error> {
    let Some(key) = headers.get(IDEMPOTENCY_KEY_HEADER) else { return Ok(None) };
    let key = key.to_str().ok().filter(|key| (1..=MAX_KEY_LENGTH).contains(&key.len()));
    Ok(Some(key.ok_or_else(invalid_key)?.to_owned()))
}

/// Restarts an open task from the database, for operators.
///
/// Terminates the task's workflow, if there is one, and starts another one from the last stored step.
#[utoipa::path(
    post, path = "/tasks/{id}/restart", tag = "tasks", operation_id = "restart_task",
    params(
        ("id" = uuid::Uuid, Path, description = "Task ID."),
        ("Tamma-Person" = String, Header, description = "Name of the person."),
    ),
    responses(
        (status = OK, body = TaskStatus, description = "Task restarted."),
        (status = FORBIDDEN, body = Problem, content_type = "application/problem+json",
            description = "The caller is not an operator."),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "Task not found."),
        (status = CONFLICT, body = Problem, content_type = "application/problem+json",
            description = "The task is closed."),
        (status = SERVICE_UNAVAILABLE, body = Problem, content_type = "application/problem+json",
            description = "The database or Temporal is unreachable."),
    )
)]
pub(super) async fn restart(
    state: ApiState,
    TaskPath(task): TaskPath,
    CurrentPerson(by): CurrentPerson,
) -> Result<Json<TaskStatus>, Problem> {
    Ok(Json(Box::pin(state.app.restart_task(task, &by)).await?))
}

fn invalid_key() -> Error {
    Error::invalid(
        format!("`Idempotency-Key` must have 1 to {MAX_KEY_LENGTH} ASCII characters."),
        "Use a UUID.",
    )
}
