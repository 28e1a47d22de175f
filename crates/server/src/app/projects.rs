//! Registering and resolving projects.

use tamma_core::ids::ProjectId;
use tamma_core::repository_address::RepositoryAddress;
use tamma_store::{Conflict, RegisteredProject};
use uuid::Uuid;

use super::{App, Error, Principal};
use crate::clock;
use crate::dto::NewProject;

impl App {
    /// Registers a repository, or updates the project that has its path or the given ID.
    pub(crate) async fn register_project(
        &self,
        by: &Principal,
        new: NewProject,
    ) -> Result<RegisteredProject, Error> {
        // Workers execute commands from a project's configuration, so only operators register one.
        by.require_operator()?;
        let NewProject { id, name, repository, organisation } = new;
        if name.trim().is_empty() || name.chars().count() > 100 {
            return Err(Error::invalid(
                "The project name must have 1 to 100 characters.",
                "Use a short name, such as the name of its directory.",
            ));
        }
        if let Err(error) = repository.parse::<RepositoryAddress>() {
            return Err(Error::invalid(
                format!("The repository cannot be used: {error}."),
                "Give the absolute path of the repository on the server, or an https or ssh URL.",
            ));
        }
        let organisation = match &organisation {
            Some(organisation) => Some(self.resolve_organisation(organisation).await?.id),
            None => None,
        };
        let id = match id {
            Some(id) => ProjectId(id),
            None => match self.store.project_by_repository(&repository).await? {
                Some(project) => project.id,
                None => ProjectId(clock::new_id()),
            },
        };
        let project = RegisteredProject { id, name, repository };
        match self.store.register_project(&project).await {
            Ok(()) => {
                if let Some(organisation) = organisation {
                    self.store.move_project(project.id, organisation).await?;
                }
                tracing::info!(
                    %by, auth_method = %by.auth_method, project = project.name, "project registered"
                );
                Ok(project)
            }
            Err(tamma_store::Error::Conflict(Conflict::Constraint(_))) => Err(Error::invalid(
                format!("The project name `{}` is already used.", project.name),
                "Choose another name.",
            )),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the number of roles that the configuration of a project proposes. They have no effect
    /// until an operator imports them.
    pub(crate) async fn count_proposed_roles(&self, project: &RegisteredProject) -> usize {
        let rules = self.project_rules(&project.repository).await.unwrap_or_default();
        rules.people.named.len() + usize::from(rules.people.everybody.is_some())
    }

    /// Returns a project by its ID.
    pub(crate) async fn project_by_id(&self, id: ProjectId) -> Result<RegisteredProject, Error> {
        Ok(self.store.project(id).await?)
    }

    /// Returns the project of a filter; `None` stands for all projects.
    pub(crate) async fn project_filter(
        &self,
        id_or_name: Option<&str>,
    ) -> Result<Option<ProjectId>, Error> {
        match id_or_name {
            Some(id_or_name) => Ok(Some(self.resolve_project(Some(id_or_name)).await?.id)),
            None => Ok(None),
        }
    }

    /// Resolves a project by ID or name. `None` selects the only registered project.
    pub(crate) async fn resolve_project(
        &self,
        id_or_name: Option<&str>,
    ) -> Result<RegisteredProject, Error> {
        let mut all = self.store.projects().await?;
        let names = || {
            let names: Vec<_> = all.iter().map(|project| format!("`{}`", project.name)).collect();
            names.join(", ")
        };
        match id_or_name {
            Some(id_or_name) => {
                let id: Option<Uuid> = id_or_name.parse().ok();
                let index = all.iter().position(|it| it.name == id_or_name || Some(it.id.0) == id);
                index
                    .map(|at| all.swap_remove(at))
                    .ok_or_else(|| Error::NotFound { what: "project", key: id_or_name.to_owned() })
            }
            None if all.len() == 1 => Ok(all.swap_remove(0)),
            None if all.is_empty() => Err(Error::invalid(
                "No projects are registered.",
                "Run `tamma up` in the repository of the task.",
            )),
            None => Err(Error::invalid(
                format!("Several projects are registered: {}.", names()),
                "Name the project (`--project`).",
            )),
        }
    }
}
