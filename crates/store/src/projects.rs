//! Registered projects.

use tamma_core::ids::ProjectId;

use crate::connection::Store;
use crate::error::{Error, Result};

/// Repository that is registered as a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredProject {
    /// ID of the project.
    pub id: ProjectId,
    /// Unique name.
    pub name: String,
    /// Path or URL of its repository.
    pub repository: String,
}

impl Store {
    /// Registers a project, or updates the name and repository of a registered one.
    pub async fn register_project(&self, project: &RegisteredProject) -> Result<()> {
        sqlx::query!(
            "INSERT INTO projects (id, name, repository) VALUES ($1, $2, $3)
             ON CONFLICT (id) DO UPDATE SET name = excluded.name, repository = excluded.repository",
            project.id.0,
            project.name,
            project.repository,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Returns all readable projects by name.
    pub async fn projects(&self) -> Result<Vec<RegisteredProject>> {
        let rows = sqlx::query!("SELECT id, name, repository FROM projects ORDER BY name")
            .fetch_all(&self.reads)
            .await?;
        let project =
            |id, name, repository| RegisteredProject { id: ProjectId(id), name, repository };
        let all = rows.into_iter().map(|row| project(row.id, row.name, row.repository));
        Ok(all.filter(|project| self.can_read(project.id)).collect())
    }

    /// Returns a project by its ID.
    pub async fn project(&self, id: ProjectId) -> Result<RegisteredProject> {
        let row = sqlx::query!("SELECT name, repository FROM projects WHERE id = $1", id.0)
            .fetch_optional(&self.reads)
            .await?
            .filter(|_| self.can_read(id))
            .ok_or_else(|| Error::NotFound { what: "project", key: id.to_string() })?;
        Ok(RegisteredProject { id, name: row.name, repository: row.repository })
    }

    /// Returns the project of a repository, if it is registered.
    pub async fn project_by_repository(
        &self,
        repository: &str,
    ) -> Result<Option<RegisteredProject>> {
        let row = sqlx::query!(
            "SELECT id, name, repository FROM projects WHERE repository = $1 ORDER BY id LIMIT 1",
            repository
        )
        .fetch_optional(&self.reads)
        .await?;
        let row = row.filter(|row| self.can_read(ProjectId(row.id)));
        Ok(row.map(|row| RegisteredProject {
            id: ProjectId(row.id),
            name: row.name,
            repository: row.repository,
        }))
    }
}
