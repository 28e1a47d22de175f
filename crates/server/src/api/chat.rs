//! Chat endpoint.

use axum::Json;

use super::ApiState;
use super::extract::{CurrentPerson, JsonBody};
use crate::dto::{ChatReply, NewChatMessage};
use crate::problem::Problem;

/// Handles a chat message. Actions are proposed first, and run after confirmation.
#[utoipa::path(
    post, path = "/chat", tag = "chat", operation_id = "chat",
    params(("Tamma-Person" = String, Header, description = "Name of the person.")),
    request_body = NewChatMessage,
    responses(
        (status = OK, body = ChatReply),
        (status = FORBIDDEN, body = Problem, content_type = "application/problem+json",
            description = "No permission for the confirmed action."),
    )
)]
pub(super) async fn send_message(
    state: ApiState,
    CurrentPerson(by): CurrentPerson,
    JsonBody(message): JsonBody<NewChatMessage>,
) -> Result<Json<ChatReply>, Problem> {
    Ok(Json(state.app.chat(&by, message).await?))
}
