//! Registered repositories.

use axum::Json;
use axum::extract::State;

use super::ApiState;
use super::extract::{CurrentPerson, JsonBody};
use crate::dto::{NewProject, ProjectList, RegisteredProject};
use crate::problem::Problem;

/// Lists all registered repositories, by name.
#[utoipa::path(
    get, path = "/projects", tag = "projects", operation_id = "list_projects",
    responses((status = OK, body = ProjectList))
)]
pub(super) async fn list(State(state): State<ApiState>) -> Result<Json<ProjectList>, Problem> {
    let projects = state.app.store.projects().await.map_err(crate::app::Error::from)?;
    Ok(Json(ProjectList { projects: projects.into_iter().map(RegisteredProject::from).collect() }))
}

/// Registers a repository. If its path is already registered, the project is renamed.
#[utoipa::path(
    post, path = "/projects", tag = "projects", operation_id = "register_project",
    params(("Tamma-Person" = String, Header, description = "Name of the person.")),
    request_body = NewProject,
    responses(
        (status = OK, body = RegisteredProject),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "The name is taken, or a field is empty."),
    )
)]
pub(super) async fn register(
    State(state): State<ApiState>,
    CurrentPerson(by): CurrentPerson,
    JsonBody(new): JsonBody<NewProject>,
) -> Result<Json<RegisteredProject>, Problem> {
    let project = state.app.register_project(&by, new).await?;
    Ok(Json(project.into()))
}

impl From<tamma_store::RegisteredProject> for RegisteredProject {
    fn from(project: tamma_store::RegisteredProject) -> Self {
        Self { id: project.id.0, name: project.name, repository: project.repository }
    }
}
