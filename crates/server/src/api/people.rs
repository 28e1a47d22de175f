//! People who have a token of their own. Only whoever runs the server has to do with them.

use axum::Json;
use axum::extract::State;

use super::Desk;
use super::extract::{Given, Operator, Person};
use crate::problem::Problem;
use crate::shape::{NewPerson, Persons, Revocation, Welcome};

/// Lists everybody who has a token or had one, by name.
#[utoipa::path(
    get, path = "/people", tag = "people", operation_id = "list_people",
    responses(
        (status = OK, body = Persons),
        (status = FORBIDDEN, body = Problem, content_type = "application/problem+json",
            description = "Only whoever has the server's own token may."),
    )
)]
pub(super) async fn list(State(desk): State<Desk>, _: Operator) -> Result<Json<Persons>, Problem> {
    Ok(Json(Persons { people: desk.app.persons().await? }))
}

/// Gives somebody a token. A request that shows it is theirs, whatever else it says.
#[utoipa::path(
    post, path = "/people", tag = "people", operation_id = "add_person",
    params(("Tamma-Person" = String, Header, description = "Who gives it.")),
    request_body = NewPerson,
    responses(
        (status = OK, body = Welcome, description = "The token, which is shown this once."),
        (status = FORBIDDEN, body = Problem, content_type = "application/problem+json",
            description = "Only whoever has the server's own token may."),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "They have one already, or it is no name."),
    )
)]
pub(super) async fn add(
    State(desk): State<Desk>,
    Person(by): Person,
    Given(new): Given<NewPerson>,
) -> Result<Json<Welcome>, Problem> {
    Ok(Json(desk.app.add_person(&by, new).await?))
}

/// Takes somebody's token away, at once.
#[utoipa::path(
    post, path = "/people/revocations", tag = "people", operation_id = "revoke_person",
    params(("Tamma-Person" = String, Header, description = "Who takes it.")),
    request_body = Revocation,
    responses(
        (status = OK, body = Persons, description = "Everybody, as it is now."),
        (status = FORBIDDEN, body = Problem, content_type = "application/problem+json",
            description = "Only whoever has the server's own token may."),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "They have none."),
    )
)]
pub(super) async fn revoke(
    State(desk): State<Desk>,
    Person(by): Person,
    Given(whose): Given<Revocation>,
) -> Result<Json<Persons>, Problem> {
    desk.app.revoke_person(&by, &whose.name).await?;
    Ok(Json(Persons { people: desk.app.persons().await? }))
}
