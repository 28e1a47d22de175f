//! Organisations: added by operators, administered by their administrators.

use axum::{Extension, Json};

use super::ApiState;
use super::extract::{CurrentPerson, JsonBody};
use crate::dto::{
    NewOrganisation, OrganisationGrant, OrganisationList, OrganisationView, ProjectTransfer,
};
use crate::problem::Problem;
use crate::route_access::CallerRights;

/// Lists the organisations that the caller administers, with their projects and roles.
#[utoipa::path(
    get, path = "/organisations", tag = "people", operation_id = "list_organisations",
    responses(
        (status = OK, body = OrganisationList),
        (status = FORBIDDEN, body = Problem, content_type = "application/problem+json",
            description = "The caller administers no organisation."),
    )
)]
pub(super) async fn list(
    state: ApiState,
    Extension(caller): Extension<CallerRights>,
) -> Result<Json<OrganisationList>, Problem> {
    Ok(Json(state.app.organisation_list(&caller.rights).await?))
}

/// Adds an organisation. Only operators can.
#[utoipa::path(
    post, path = "/organisations", tag = "people", operation_id = "add_organisation",
    params(("Tamma-Person" = String, Header, description = "Name of the operator.")),
    request_body = NewOrganisation,
    responses(
        (status = OK, body = OrganisationView),
        (status = FORBIDDEN, body = Problem, content_type = "application/problem+json",
            description = "The caller is not an operator."),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "The name is taken or not valid."),
    )
)]
pub(super) async fn add(
    state: ApiState,
    CurrentPerson(by): CurrentPerson,
    JsonBody(new): JsonBody<NewOrganisation>,
) -> Result<Json<OrganisationView>, Problem> {
    Ok(Json(state.app.add_organisation(&by, new).await?))
}

/// Grants a role in an organisation, or takes it away, effective immediately.
#[utoipa::path(
    post, path = "/organisations/access", tag = "people",
    operation_id = "change_organisation_access",
    params(("Tamma-Person" = String, Header, description = "Name of the person.")),
    request_body = OrganisationGrant,
    responses(
        (status = OK, body = OrganisationView, description = "Updated organisation."),
        (status = FORBIDDEN, body = Problem, content_type = "application/problem+json",
            description = "The caller administers no organisation."),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "The caller does not administer the organisation, or no role to revoke."),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "Unknown role, or the name is not valid."),
    )
)]
pub(super) async fn change_access(
    state: ApiState,
    CurrentPerson(by): CurrentPerson,
    JsonBody(grant): JsonBody<OrganisationGrant>,
) -> Result<Json<OrganisationView>, Problem> {
    Ok(Json(state.app.change_organisation_access(&by, grant).await?))
}

/// Gives a project to an organisation. Only operators can.
#[utoipa::path(
    post, path = "/organisations/projects", tag = "people", operation_id = "transfer_project",
    params(("Tamma-Person" = String, Header, description = "Name of the operator.")),
    request_body = ProjectTransfer,
    responses(
        (status = OK, body = OrganisationView, description = "New organisation of the project."),
        (status = FORBIDDEN, body = Problem, content_type = "application/problem+json",
            description = "The caller is not an operator."),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "Project or organisation not found."),
    )
)]
pub(super) async fn transfer_project(
    state: ApiState,
    CurrentPerson(by): CurrentPerson,
    JsonBody(transfer): JsonBody<ProjectTransfer>,
) -> Result<Json<OrganisationView>, Problem> {
    Ok(Json(state.app.transfer_project(&by, transfer).await?))
}
