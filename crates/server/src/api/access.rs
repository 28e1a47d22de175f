//! Roles of people, for operators and administrators of the organisation.

use axum::{Extension, Json};
use serde::Deserialize;
use tamma_core::ids::TaskId;
use utoipa::IntoParams;

use super::ApiState;
use super::extract::{CurrentPerson, JsonBody, QueryParams};
use crate::dto::{AccessCheck, AccessGrant, AccessImport, AccessList};
use crate::problem::Problem;
use crate::route_access::CallerRights;

/// Filter for roles.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct AccessQuery {
    /// Project ID or name.
    project: Option<String>,
}

/// Lists roles by project, and the newest changes of them.
#[utoipa::path(
    get, path = "/access", tag = "people", operation_id = "list_access", params(AccessQuery),
    responses(
        (status = OK, body = AccessList),
        (status = FORBIDDEN, body = Problem, content_type = "application/problem+json",
            description = "The caller administers no organisation."),
    )
)]
pub(super) async fn list(
    state: ApiState,
    Extension(caller): Extension<CallerRights>,
    QueryParams(query): QueryParams<AccessQuery>,
) -> Result<Json<AccessList>, Problem> {
    let project = match &query.project {
        Some(project) => Some(state.app.resolve_project(Some(project)).await?),
        None => None,
    };
    Ok(Json(state.app.access_list(project, &caller.rights).await?))
}

/// Grants a role in a project, or takes it away, effective immediately.
#[utoipa::path(
    post, path = "/access", tag = "people", operation_id = "change_access",
    params(("Tamma-Person" = String, Header, description = "Name of the operator.")),
    request_body = AccessGrant,
    responses(
        (status = OK, body = AccessList, description = "Updated roles of the project."),
        (status = FORBIDDEN, body = Problem, content_type = "application/problem+json",
            description = "The caller administers no organisation."),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "Project not found, or no role to revoke."),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "Unknown role, or the name is not valid."),
    )
)]
pub(super) async fn change(
    state: ApiState,
    CurrentPerson(by): CurrentPerson,
    JsonBody(grant): JsonBody<AccessGrant>,
) -> Result<Json<AccessList>, Problem> {
    Ok(Json(state.app.change_access(&by, grant).await?))
}

/// Imports the roles in a project's `tamma.yaml`. Other people keep theirs.
#[utoipa::path(
    post, path = "/access/import", tag = "people", operation_id = "import_access",
    params(("Tamma-Person" = String, Header, description = "Name of the operator.")),
    request_body = AccessImport,
    responses(
        (status = OK, body = AccessList, description = "Updated roles of the project."),
        (status = FORBIDDEN, body = Problem, content_type = "application/problem+json",
            description = "The caller administers no organisation."),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "The project's configuration has errors."),
    )
)]
pub(super) async fn import(
    state: ApiState,
    CurrentPerson(by): CurrentPerson,
    JsonBody(request): JsonBody<AccessImport>,
) -> Result<Json<AccessList>, Problem> {
    Ok(Json(state.app.import_access(&by, request.project.as_deref()).await?))
}

/// Person, action and task of a check.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct CheckQuery {
    /// Name of the person.
    person: String,
    /// Action, such as `approve`, `pause` or `read`.
    action: String,
    /// ID of the task.
    task: uuid::Uuid,
}

/// Decides what a person can do with a task, and explains the decision. Nothing changes.
#[utoipa::path(
    get, path = "/access/check", tag = "people", operation_id = "check_access", params(CheckQuery),
    responses(
        (status = OK, body = AccessCheck),
        (status = FORBIDDEN, body = Problem, content_type = "application/problem+json",
            description = "The caller administers no organisation."),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "Task not found."),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "Unknown action, or the name is not valid."),
    )
)]
pub(super) async fn check(
    state: ApiState,
    CurrentPerson(by): CurrentPerson,
    QueryParams(query): QueryParams<CheckQuery>,
) -> Result<Json<AccessCheck>, Problem> {
    let CheckQuery { person, action, task } = query;
    Ok(Json(state.app.check_access(&by, &person, &action, TaskId(task)).await?))
}
