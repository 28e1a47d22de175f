//! Temporal namespaces: those of organisations, and those that workflows were started in.
//!
//! `None` stands for the namespace of the installation.

use tamma_core::ids::ProjectId;
use uuid::Uuid;

use crate::connection::Store;
use crate::error::Result;
use crate::merge_queue::MergeQueueId;

impl Store {
    /// Returns the namespaces of organisations, without that of the installation.
    pub async fn namespaces(&self) -> Result<Vec<String>> {
        let namespaces = sqlx::query_scalar!(
            r#"SELECT namespace AS "namespace!" FROM organisations
               WHERE namespace IS NOT NULL ORDER BY namespace"#
        );
        Ok(namespaces.fetch_all(&self.steps).await?)
    }

    /// Returns the namespace of the organisation that owns a project.
    pub async fn project_namespace(&self, project: ProjectId) -> Result<Option<String>> {
        let namespace = sqlx::query_scalar!(
            "SELECT organisations.namespace FROM projects
             INNER JOIN organisations ON organisations.id = projects.organisation
             WHERE projects.id = $1",
            project.0,
        );
        Ok(namespace.fetch_optional(&self.steps).await?.flatten())
    }

    /// Decides the namespace of the workflow of a task or pipeline, before it starts: that of the
    /// organisation that owns the project, unless it was decided before.
    pub async fn place_workflow(&self, id: Uuid, project: ProjectId) -> Result<Option<String>> {
        let namespace = sqlx::query_scalar!(
            r#"WITH placed AS (
                   INSERT INTO task_workflows (task, namespace)
                   SELECT $1::uuid, organisations.namespace FROM projects
                   INNER JOIN organisations ON organisations.id = projects.organisation
                   WHERE projects.id = $2 AND organisations.namespace IS NOT NULL
                   ON CONFLICT (task) DO UPDATE SET namespace = task_workflows.namespace
                   RETURNING namespace
               )
               SELECT namespace AS "namespace?" FROM placed
               UNION ALL
               SELECT namespace FROM task_workflows
               WHERE task = $1 AND NOT EXISTS (SELECT FROM placed)"#,
            id,
            project.0,
        );
        Ok(namespace.fetch_optional(&self.steps).await?.flatten())
    }

    /// Saves the namespace in which the workflow of a task runs, unless one is saved already.
    pub async fn save_workflow_namespace(&self, id: Uuid, namespace: &str) -> Result<()> {
        sqlx::query!(
            "INSERT INTO task_workflows (task, namespace) VALUES ($1, $2)
             ON CONFLICT (task) DO NOTHING",
            id,
            namespace,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Returns the namespace in which the workflow of a task or pipeline was started.
    pub async fn workflow_namespace(&self, id: Uuid) -> Result<Option<String>> {
        let namespace =
            sqlx::query_scalar!("SELECT namespace FROM task_workflows WHERE task = $1", id);
        Ok(namespace.fetch_optional(&self.steps).await?.flatten())
    }

    /// Decides the namespace of the workflow of a merge queue, and returns it: the given one, unless the
    /// queue exists.
    pub async fn place_merge_queue(
        &self,
        queue: &MergeQueueId,
        project: ProjectId,
        namespace: Option<&str>,
    ) -> Result<Option<String>> {
        let placed = sqlx::query_scalar!(
            "INSERT INTO merge_queues AS stored
                (forge, repository, branch, project, state, namespace)
             VALUES ($1, $2, $3, $4, '{}', $5)
             ON CONFLICT (forge, repository, branch) DO UPDATE SET namespace = stored.namespace
             RETURNING namespace",
            queue.forge,
            queue.repository,
            queue.branch,
            project.0,
            namespace,
        );
        Ok(placed.fetch_one(&self.steps).await?)
    }
}
