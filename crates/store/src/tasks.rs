//! One task, whole: what is wanted, how it stands, and its machine.

use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::task::Task;
use tamma_core::task_loop::TaskLoop;

use crate::cards::Listed;
use crate::connection::Store;
use crate::error::{Damage, Result};
use crate::record::no_task;
use crate::spelling::{read, read_word};

/// One task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whole {
    /// What is wanted.
    pub task: Task,
    /// How it stands.
    pub listed: Listed,
    /// Its machine; or why that cannot be read, which hides nothing else.
    pub machine: Result<TaskLoop, Damage>,
    /// How many events the machine has taken.
    pub step: u64,
}

impl Store {
    /// One task.
    pub async fn task(&self, id: TaskId) -> Result<Whole> {
        let row = sqlx::query!("SELECT memory, revision FROM tasks WHERE id = $1", id.0)
            .fetch_optional(&self.steps)
            .await?
            .ok_or_else(|| no_task(id.0))?;
        let task = self.wanted(id).await?;
        let listed = self.listed(id).await?.ok_or_else(|| no_task(id.0))?;
        let machine = read("machine", row.memory).map_err(|damage| damage.of(id.to_string()));
        Ok(Whole { task, listed, machine, step: row.revision.unsigned_abs() })
    }

    /// What is wanted of a task, in its author's words.
    pub async fn wanted(&self, id: TaskId) -> Result<Task> {
        let row = sqlx::query!(
            "SELECT
                project, title, description, type, priority, acceptance_criteria, labels,
                depends_on, suggested_agent, issue_url, metadata
             FROM tasks WHERE id = $1",
            id.0
        )
        .fetch_optional(&self.steps)
        .await?
        .ok_or_else(|| no_task(id.0))?;
        let whose = |damage: Damage| damage.of(id.to_string());
        Ok(Task {
            id,
            project: ProjectId(row.project),
            title: row.title,
            description: row.description,
            r#type: read_word("type", row.r#type).map_err(whose)?,
            priority: read_word("priority", row.priority).map_err(whose)?,
            acceptance_criteria: read("criteria", row.acceptance_criteria).map_err(whose)?,
            labels: row.labels,
            depends_on: row.depends_on.into_iter().map(TaskId).collect(),
            suggested_agent: row.suggested_agent,
            issue_url: row.issue_url,
            metadata: read("metadata", row.metadata).map_err(whose)?,
        })
    }

    /// How many of these tasks are not completed. One that is not there is not.
    pub async fn incomplete(&self, tasks: &[TaskId]) -> Result<u64> {
        let ids: Vec<_> = tasks.iter().map(|task| task.0).collect();
        let count = sqlx::query_scalar!(
            r#"SELECT count(*) AS "count!" FROM unnest($1::uuid []) AS wanted (id)
             WHERE NOT EXISTS (
                SELECT FROM tasks WHERE tasks.id = wanted.id AND tasks.state = 'completed'
             )"#,
            &ids
        )
        .fetch_one(&self.steps)
        .await?;
        Ok(count.unsigned_abs())
    }
}
