//! Talking with Tamma.

use axum::Json;
use axum::extract::State;

use super::Desk;
use super::extract::{Given, Person};
use crate::problem::Problem;
use crate::shape::{Reply, Said};

/// Takes a message and answers it. What changes something is proposed, and done after a yes.
#[utoipa::path(
    post, path = "/chat", tag = "chat", operation_id = "chat",
    params(("Tamma-Person" = String, Header, description = "Who says it.")),
    request_body = Said,
    responses(
        (status = OK, body = Reply),
        (status = FORBIDDEN, body = Problem, content_type = "application/problem+json",
            description = "They may not do what they said yes to."),
    )
)]
pub(super) async fn say(
    State(desk): State<Desk>,
    Person(by): Person,
    Given(said): Given<Said>,
) -> Result<Json<Reply>, Problem> {
    Ok(Json(desk.app.chat(&by, said).await?))
}
