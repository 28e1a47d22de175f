//! Personal access tokens, for operators only.

use axum::Json;
use axum::extract::State;

use super::ApiState;
use super::extract::{CurrentPerson, JsonBody, RequireOperator};
use crate::dto::{IssuedToken, NewPerson, PersonList, TokenRevocation};
use crate::problem::Problem;

/// Lists everyone who has or had a token, by name.
#[utoipa::path(
    get, path = "/people", tag = "people", operation_id = "list_people",
    responses(
        (status = OK, body = PersonList),
        (status = FORBIDDEN, body = Problem, content_type = "application/problem+json",
            description = "The caller is not an operator."),
    )
)]
pub(super) async fn list(
    State(state): State<ApiState>,
    _: RequireOperator,
) -> Result<Json<PersonList>, Problem> {
    Ok(Json(PersonList { people: state.app.list_people().await? }))
}

/// Issues a personal access token. Requests with it always act for that person.
#[utoipa::path(
    post, path = "/people", tag = "people", operation_id = "add_person",
    params(("Tamma-Person" = String, Header, description = "Name of the operator.")),
    request_body = NewPerson,
    responses(
        (status = OK, body = IssuedToken, description = "The token. It is shown only once."),
        (status = FORBIDDEN, body = Problem, content_type = "application/problem+json",
            description = "The caller is not an operator."),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "The person already has a token, or the name is not valid."),
    )
)]
pub(super) async fn add(
    State(state): State<ApiState>,
    CurrentPerson(by): CurrentPerson,
    JsonBody(new): JsonBody<NewPerson>,
) -> Result<Json<IssuedToken>, Problem> {
    Ok(Json(state.app.add_person(&by, new).await?))
}

/// Revokes a person's token, effective immediately.
#[utoipa::path(
    post, path = "/people/revocations", tag = "people", operation_id = "revoke_person",
    params(("Tamma-Person" = String, Header, description = "Name of the operator.")),
    request_body = TokenRevocation,
    responses(
        (status = OK, body = PersonList, description = "Updated list of people."),
        (status = FORBIDDEN, body = Problem, content_type = "application/problem+json",
            description = "The caller is not an operator."),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "The person has no token."),
    )
)]
pub(super) async fn revoke(
    State(state): State<ApiState>,
    CurrentPerson(by): CurrentPerson,
    JsonBody(revocation): JsonBody<TokenRevocation>,
) -> Result<Json<PersonList>, Problem> {
    state.app.revoke_person(&by, &revocation.name).await?;
    Ok(Json(PersonList { people: state.app.list_people().await? }))
}
