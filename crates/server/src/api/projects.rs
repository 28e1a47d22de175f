//! Registered repositories.

use axum::Json;
use axum::extract::Path;
use tamma_core::repository_address::hide_url_credentials;

use super::ApiState;
use super::extract::{CurrentPerson, JsonBody};
use crate::dto::{AppliedRules, NewProject, ProjectList, RegisteredProject};
use crate::problem::Problem;

/// Lists the registered repositories that the caller can read, by name.
#[utoipa::path(
    get, path = "/projects", tag = "projects", operation_id = "list_projects",
    responses((status = OK, body = ProjectList))
)]
pub(super) async fn list(state: ApiState) -> Result<Json<ProjectList>, Problem> {
    let projects = state.app.store.projects().await.map_err(crate::app::Error::from)?;
    Ok(Json(ProjectList { projects: projects.into_iter().map(RegisteredProject::from).collect() }))
}

/// Registers a repository. Only operators can. A project with the same path is renamed.
#[utoipa::path(
    post, path = "/projects", tag = "projects", operation_id = "register_project",
    params(("Tamma-Person" = String, Header, description = "Name of the person.")),
    request_body = NewProject,
    responses(
        (status = OK, body = RegisteredProject),
        (status = FORBIDDEN, body = Problem, content_type = "application/problem+json",
            description = "The caller is not an operator."),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "The name is taken, a field is empty, or the address is not allowed."),
    )
)]
pub(super) async fn register(
    state: ApiState,
    CurrentPerson(by): CurrentPerson,
    JsonBody(new): JsonBody<NewProject>,
) -> Result<Json<RegisteredProject>, Problem> {
    let project = state.app.register_project(&by, new).await?;
    Ok(Json(project.into()))
}

/// Applies the rules in a project's `tamma.yaml` to its open tasks. Approvals under the old rules are
/// void: plans are checked and approved again, and runs stop.
#[utoipa::path(
    post, path = "/projects/{id}/rules", tag = "projects", operation_id = "apply_rules",
    params(
        ("id" = String, Path, description = "Project ID or name."),
        ("Tamma-Person" = String, Header, description = "Name of the person."),
    ),
    responses(
        (status = OK, body = AppliedRules),
        (status = NOT_FOUND, body = Problem, content_type = "application/problem+json",
            description = "Project not found."),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "The project's configuration has errors."),
    )
)]
pub(super) async fn apply_rules(
    state: ApiState,
    Path(project): Path<String>,
    CurrentPerson(by): CurrentPerson,
) -> Result<Json<AppliedRules>, Problem> {
    Ok(Json(state.app.apply_rules(&by, Some(&project)).await?))
}

impl From<tamma_store::RegisteredProject> for RegisteredProject {
    fn from(project: tamma_store::RegisteredProject) -> Self {
        let repository = hide_url_credentials(&project.repository);
        Self { id: project.id.0, name: project.name, repository }
    }
}
