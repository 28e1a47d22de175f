//! What people ask of a task.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;

use super::Desk;
use super::extract::{Given, Person, Which};
use crate::IDEMPOTENCY_KEY;
use crate::app::Error;
use crate::problem::Problem;
use crate::shape::{Action, Standing};

/// The longest key that is taken.
const KEY: usize = 200;

/// Asks a task for something: to approve its plan, to pause, to answer its question.
///
/// The answer comes when the task has taken it. A second request with the same `Idempotency-Key`
/// gets the first one's answer.
#[utoipa::path(
    post, path = "/tasks/{id}/actions", tag = "tasks", operation_id = "ask_task",
    params(
        ("id" = uuid::Uuid, Path, description = "The task."),
        ("Tamma-Person" = String, Header, description = "Who asks."),
        ("Idempotency-Key" = Option<String>, Header,
            description = "What makes a repeated request the same request."),
    ),
    request_body = Action,
    responses(
        (status = OK, body = Standing, description = "The task has taken it."),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "There is no such task."),
        (status = CONFLICT, body = Problem, content_type = "application/problem+json",
            description = "The task cannot do that now, or it has changed since the person saw it."),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "What was asked does not make sense."),
        (status = SERVICE_UNAVAILABLE, body = Problem, content_type = "application/problem+json",
            description = "No worker has answered in time."),
    )
)]
pub(super) async fn ask(
    State(desk): State<Desk>,
    Which(task): Which,
    Person(by): Person,
    headers: HeaderMap,
    Given(action): Given<Action>,
) -> Result<Json<Standing>, Problem> {
    let key = match headers.get(IDEMPOTENCY_KEY) {
        Some(key) => Some(
            key.to_str()
                .ok()
                .filter(|key| (1..=KEY).contains(&key.len()))
                .ok_or_else(no_key)?
                .to_owned(),
        ),
        None => None,
    };
    Ok(Json(desk.app.ask(task, by, action, key).await?))
}

fn no_key() -> Error {
    Error::invalid(format!("An `Idempotency-Key` has 1 to {KEY} plain characters."), "Use a UUID.")
}
