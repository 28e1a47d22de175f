//! Projects: the repositories that are registered.

use tamma_core::ids::ProjectId;

use crate::connection::Store;
use crate::error::{Error, Result};

/// A registered repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// Its identity.
    pub id: ProjectId,
    /// What people call it; no two have the same name.
    pub name: String,
    /// Where its repository is: a path or an address.
    pub repository: String,
}

impl Store {
    /// Registers a project, or gives one that is there its new name and place.
    pub async fn register(&self, project: &Project) -> Result<()> {
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

    /// Every project, by name.
    pub async fn projects(&self) -> Result<Vec<Project>> {
        let rows = sqlx::query!("SELECT id, name, repository FROM projects ORDER BY name")
            .fetch_all(&self.steps)
            .await?;
        let project = |id, name, repository| Project { id: ProjectId(id), name, repository };
        Ok(rows.into_iter().map(|row| project(row.id, row.name, row.repository)).collect())
    }

    /// The project of an id.
    pub async fn project(&self, id: ProjectId) -> Result<Project> {
        let row = sqlx::query!("SELECT name, repository FROM projects WHERE id = $1", id.0)
            .fetch_optional(&self.steps)
            .await?
            .ok_or_else(|| Error::NotFound { what: "project", key: id.to_string() })?;
        Ok(Project { id, name: row.name, repository: row.repository })
    }

    /// The project at a place, if one is registered there.
    pub async fn project_at(&self, repository: &str) -> Result<Option<Project>> {
        let row = sqlx::query!(
            "SELECT id, name, repository FROM projects WHERE repository = $1 ORDER BY id LIMIT 1",
            repository
        )
        .fetch_optional(&self.steps)
        .await?;
        Ok(row.map(|row| Project {
            id: ProjectId(row.id),
            name: row.name,
            repository: row.repository,
        }))
    }
}
