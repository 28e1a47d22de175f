//! Projects: registering a repository, and finding the one that is meant.

use tamma_core::ids::ProjectId;
use tamma_core::rules::Right;
use tamma_store::{Conflict, Project};
use uuid::Uuid;

use super::{App, By, Error};
use crate::clock;
use crate::shape::NewProject;

impl App {
    /// Registers a repository. One that is registered at the same place is found again.
    pub(crate) async fn register(&self, by: &By, new: NewProject) -> Result<Project, Error> {
        // What a project says is run on the workers' machines.
        self.permit_anywhere(by, Right::Decide).await?;
        let NewProject { id, name, repository } = new;
        if name.trim().is_empty() || name.chars().count() > 100 {
            return Err(Error::invalid(
                "The name of a project has 1 to 100 characters.",
                "Give it a short name, such as that of its folder.",
            ));
        }
        if repository.trim().is_empty() {
            return Err(Error::invalid(
                "A project needs a repository.",
                "Give the path of the repository on this machine, or its address.",
            ));
        }
        let id = match id {
            Some(id) => ProjectId(id),
            None => match self.store.project_at(&repository).await? {
                Some(project) => project.id,
                None => ProjectId(clock::new_id()),
            },
        };
        let project = Project { id, name, repository };
        match self.store.register(&project).await {
            Ok(()) => {
                tracing::info!(%by, known = %by.known, project = project.name, "registered");
                Ok(project)
            }
            Err(tamma_store::Error::Conflict(Conflict::Constraint(_))) => Err(Error::invalid(
                format!("There is another project called `{}`.", project.name),
                "Choose another name.",
            )),
            Err(error) => Err(error.into()),
        }
    }

    /// A project by its id.
    pub(crate) async fn project_by_id(&self, id: ProjectId) -> Result<Project, Error> {
        Ok(self.store.project(id).await?)
    }

    /// The project that is meant by an id or a name; or the only one, where nothing is said.
    pub(crate) async fn project(&self, said: Option<&str>) -> Result<Project, Error> {
        let mut all = self.store.projects().await?;
        let names = || {
            let names: Vec<_> = all.iter().map(|project| format!("`{}`", project.name)).collect();
            names.join(", ")
        };
        match said {
            Some(said) => {
                let id: Option<Uuid> = said.parse().ok();
                let found = all.iter().position(|it| it.name == said || Some(it.id.0) == id);
                found
                    .map(|at| all.swap_remove(at))
                    .ok_or_else(|| Error::NotFound { what: "project", key: said.to_owned() })
            }
            None if all.len() == 1 => Ok(all.swap_remove(0)),
            None if all.is_empty() => Err(Error::invalid(
                "No project is registered yet.",
                "Run `tamma up` in the repository that the task is for.",
            )),
            None => Err(Error::invalid(
                format!("There are several projects: {}.", names()),
                "Say which one the task is for: `--project` with its name.",
            )),
        }
    }
}
