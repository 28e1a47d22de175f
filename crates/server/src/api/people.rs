//! Personal access tokens, for operators only.

use axum::{Extension, Json};
use tamma_core::actor::AuthMethod;
use tamma_store::SessionProof;

use super::ApiState;
use super::extract::{CurrentPerson, JsonBody};
use crate::app::Error;
use crate::auth::{Authenticator, Caller};
use crate::dto::{
    AccountName, IdentityLink, IssuedToken, NewPerson, PersonList, SignInLink, TokenRevocation,
};
use crate::problem::Problem;
use crate::web;

/// Lists everyone who has or had a token, by name.
#[utoipa::path(
    get, path = "/people", tag = "people", operation_id = "list_people",
    responses(
        (status = OK, body = PersonList),
        (status = FORBIDDEN, body = Problem, content_type = "application/problem+json",
            description = "The caller is not an operator."),
    )
)]
pub(super) async fn list(state: ApiState) -> Result<Json<PersonList>, Problem> {
    Ok(Json(state.app.list_people().await?))
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
    state: ApiState,
    CurrentPerson(by): CurrentPerson,
    JsonBody(new): JsonBody<NewPerson>,
) -> Result<Json<IssuedToken>, Problem> {
    Ok(Json(state.app.add_person(&by, new).await?))
}

/// Revokes all tokens and sessions of a person, effective immediately.
#[utoipa::path(
    post, path = "/people/revocations", tag = "people", operation_id = "revoke_person",
    params(("Tamma-Person" = String, Header, description = "Name of the operator.")),
    request_body = TokenRevocation,
    responses(
        (status = OK, body = PersonList, description = "Updated list of people."),
        (status = FORBIDDEN, body = Problem, content_type = "application/problem+json",
            description = "The caller is not an operator."),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "The person has no token and no session."),
    )
)]
pub(super) async fn revoke(
    state: ApiState,
    CurrentPerson(by): CurrentPerson,
    JsonBody(revocation): JsonBody<TokenRevocation>,
) -> Result<Json<PersonList>, Problem> {
    state.app.revoke_person(&by, &revocation.name).await?;
    Ok(Json(state.app.list_people().await?))
}

/// Deactivates an account. Its tokens, sessions and streams end immediately.
#[utoipa::path(
    post, path = "/people/deactivations", tag = "people", operation_id = "deactivate_account",
    params(("Tamma-Person" = String, Header, description = "Name of the operator.")),
    request_body = AccountName,
    responses(
        (status = OK, body = PersonList, description = "Updated list of people."),
        (status = FORBIDDEN, body = Problem, content_type = "application/problem+json",
            description = "The caller is not an operator."),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "Nobody has this name."),
        (status = CONFLICT, body = Problem, content_type = "application/problem+json",
            description = "The account is already deactivated."),
    )
)]
pub(super) async fn deactivate(
    state: ApiState,
    CurrentPerson(by): CurrentPerson,
    JsonBody(account): JsonBody<AccountName>,
) -> Result<Json<PersonList>, Problem> {
    state.app.deactivate_account(&by, &account.name).await?;
    Ok(Json(state.app.list_people().await?))
}

/// Activates an account again. Its tokens count again; sessions stay closed.
#[utoipa::path(
    post, path = "/people/activations", tag = "people", operation_id = "activate_account",
    params(("Tamma-Person" = String, Header, description = "Name of the operator.")),
    request_body = AccountName,
    responses(
        (status = OK, body = PersonList, description = "Updated list of people."),
        (status = FORBIDDEN, body = Problem, content_type = "application/problem+json",
            description = "The caller is not an operator."),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "The account is not deactivated."),
    )
)]
pub(super) async fn activate(
    state: ApiState,
    CurrentPerson(by): CurrentPerson,
    JsonBody(account): JsonBody<AccountName>,
) -> Result<Json<PersonList>, Problem> {
    state.app.activate_account(&by, &account.name).await?;
    Ok(Json(state.app.list_people().await?))
}

/// Links a subject at an identity provider to a person.
#[utoipa::path(
    post, path = "/people/identities", tag = "people", operation_id = "link_identity",
    params(("Tamma-Person" = String, Header, description = "Name of the operator.")),
    request_body = IdentityLink,
    responses(
        (status = OK, body = PersonList, description = "Updated list of people."),
        (status = FORBIDDEN, body = Problem, content_type = "application/problem+json",
            description = "The caller is not an operator."),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "Unknown identity provider."),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "The subject is not valid, or the name is that of a service account."),
    )
)]
pub(super) async fn link_identity(
    state: ApiState,
    CurrentPerson(by): CurrentPerson,
    JsonBody(link): JsonBody<IdentityLink>,
) -> Result<Json<PersonList>, Problem> {
    state.app.link_identity(&by, &link).await?;
    Ok(Json(state.app.list_people().await?))
}

/// Creates a link that signs the caller in to the web UI, once and within 10 min.
#[utoipa::path(
    post, path = "/sign-in-links", tag = "people", operation_id = "create_sign_in_link",
    params(("Tamma-Person" = String, Header, description = "Name of the person.")),
    responses((status = OK, body = SignInLink))
)]
pub(super) async fn create_sign_in_link(
    state: ApiState,
    CurrentPerson(by): CurrentPerson,
    Extension(caller): Extension<Caller>,
    Extension(authenticator): Extension<Authenticator>,
) -> Result<Json<SignInLink>, Problem> {
    if by.auth_method == AuthMethod::ServiceToken {
        return Err(Error::Refused("Service accounts cannot sign in.".to_owned()).into());
    }
    let proof = match caller {
        Caller::Person(person) => person.proof(),
        Caller::Operator(_) => SessionProof::Token(authenticator.operator_token()),
    };
    let path = web::create_sign_in_link(&state.app.store, &by.name, proof).await;
    let path = path.map_err(Error::from)?;
    let url = state.app.public_url.as_ref().map(|public| format!("{public}{path}"));
    Ok(Json(SignInLink { path, url }))
}
