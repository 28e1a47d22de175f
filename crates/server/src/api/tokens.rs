//! Access tokens with a label, and sessions: the caller's own, and everybody's for operators.

use axum::{Extension, Json};
use serde::Deserialize;
use tamma_store::OpenSession;
use utoipa::IntoParams;

use super::ApiState;
use super::extract::{CurrentPerson, JsonBody, QueryParams};
use crate::auth::{Caller, CredentialKey};
use crate::dto::{CreatedToken, NewToken, SessionId, SessionList, TokenId, TokenList};
use crate::problem::Problem;

/// Filter by person.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct OwnerQuery {
    /// Name of the person; omitted for yourself, or for everybody if you are an operator.
    person: Option<String>,
}

/// Lists access tokens, also those that have ended.
#[utoipa::path(
    get, path = "/tokens", tag = "people", operation_id = "list_tokens", params(OwnerQuery),
    responses(
        (status = OK, body = TokenList),
        (status = FORBIDDEN, body = Problem, content_type = "application/problem+json",
            description = "Tokens of others are for operators."),
    )
)]
pub(super) async fn list(
    state: ApiState,
    CurrentPerson(by): CurrentPerson,
    QueryParams(query): QueryParams<OwnerQuery>,
) -> Result<Json<TokenList>, Problem> {
    Ok(Json(state.app.list_tokens(&by, query.person.as_deref()).await?))
}

/// Creates an access token. It never gives more than its owner has.
#[utoipa::path(
    post, path = "/tokens", tag = "people", operation_id = "create_token",
    params(("Tamma-Person" = String, Header, description = "Name of the person.")),
    request_body = NewToken,
    responses(
        (status = OK, body = CreatedToken, description = "The token. It is shown only once."),
        (status = FORBIDDEN, body = Problem, content_type = "application/problem+json",
            description = "Tokens of others are for operators."),
        (status = CONFLICT, body = Problem, content_type = "application/problem+json",
            description = "The caller's own token has a limit."),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "The owner, label, role, lifetime or a project is not valid."),
    )
)]
pub(super) async fn create(
    state: ApiState,
    CurrentPerson(by): CurrentPerson,
    JsonBody(new): JsonBody<NewToken>,
) -> Result<Json<CreatedToken>, Problem> {
    Ok(Json(state.app.create_token(&by, &new).await?))
}

/// Revokes an access token, effective immediately.
#[utoipa::path(
    post, path = "/tokens/revocations", tag = "people", operation_id = "revoke_token",
    params(("Tamma-Person" = String, Header, description = "Name of the person.")),
    request_body = TokenId,
    responses(
        (status = OK, body = TokenList, description = "Updated list of tokens."),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "No such token, or not the caller's."),
    )
)]
pub(super) async fn revoke(
    state: ApiState,
    CurrentPerson(by): CurrentPerson,
    JsonBody(token): JsonBody<TokenId>,
) -> Result<Json<TokenList>, Problem> {
    state.app.revoke_token(&by, token.id).await?;
    Ok(Json(state.app.list_tokens(&by, None).await?))
}

/// Lists open sessions of browsers and of the command line.
#[utoipa::path(
    get, path = "/sessions", tag = "people", operation_id = "list_sessions", params(OwnerQuery),
    responses(
        (status = OK, body = SessionList),
        (status = FORBIDDEN, body = Problem, content_type = "application/problem+json",
            description = "Sessions of others are for operators."),
    )
)]
pub(super) async fn list_sessions(
    state: ApiState,
    CurrentPerson(by): CurrentPerson,
    QueryParams(query): QueryParams<OwnerQuery>,
) -> Result<Json<SessionList>, Problem> {
    Ok(Json(state.app.list_sessions(&by, query.person.as_deref()).await?))
}

/// Revokes a session, effective immediately.
#[utoipa::path(
    post, path = "/sessions/revocations", tag = "people", operation_id = "revoke_session",
    params(("Tamma-Person" = String, Header, description = "Name of the person.")),
    request_body = SessionId,
    responses(
        (status = OK, body = SessionList, description = "Updated list of sessions."),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "No such session, or not the caller's."),
    )
)]
pub(super) async fn revoke_session(
    state: ApiState,
    CurrentPerson(by): CurrentPerson,
    Extension(caller): Extension<Caller>,
    JsonBody(session): JsonBody<SessionId>,
) -> Result<Json<SessionList>, Problem> {
    let id = match (session.id.as_str(), &caller) {
        ("current", Caller::Person(person)) => match person.key {
            CredentialKey::Token(hash) | CredentialKey::Session(hash) => OpenSession::id_of(hash),
        },
        _ => session.id.clone(),
    };
    state.app.revoke_session(&by, &id).await?;
    Ok(Json(state.app.list_sessions(&by, None).await?))
}
