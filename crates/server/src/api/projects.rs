//! The repositories that tasks are for.

use axum::Json;
use axum::extract::State;

use super::Desk;
use super::extract::{Given, Person};
use crate::problem::Problem;
use crate::shape::{NewProject, Project, Projects};

/// Lists every registered repository, by name.
#[utoipa::path(
    get, path = "/projects", tag = "projects", operation_id = "list_projects",
    responses((status = OK, body = Projects))
)]
pub(super) async fn list(State(desk): State<Desk>) -> Result<Json<Projects>, Problem> {
    let projects = desk.app.store.projects().await.map_err(crate::app::Error::from)?;
    Ok(Json(Projects { projects: projects.into_iter().map(Project::from).collect() }))
}

/// Registers a repository. One that is registered at the same place gets the new name.
#[utoipa::path(
    post, path = "/projects", tag = "projects", operation_id = "register_project",
    params(("Tamma-Person" = String, Header, description = "Who registers it.")),
    request_body = NewProject,
    responses(
        (status = OK, body = Project),
        (status = UNPROCESSABLE_ENTITY, body = Problem, content_type = "application/problem+json",
            description = "The name is taken, or something is empty."),
    )
)]
pub(super) async fn register(
    State(desk): State<Desk>,
    Person(by): Person,
    Given(new): Given<NewProject>,
) -> Result<Json<Project>, Problem> {
    let project = desk.app.register(&by, new).await?;
    Ok(Json(project.into()))
}

impl From<tamma_store::Project> for Project {
    fn from(project: tamma_store::Project) -> Self {
        Self { id: project.id.0, name: project.name, repository: project.repository }
    }
}
