//! Complete tasks: request, status and state machine.

use std::collections::BTreeMap;

use tamma_core::ids::{ProjectId, TaskId};
use tamma_core::task::{Task, unnamed_branch};
use tamma_core::task_loop::TaskLoop;

use crate::connection::Store;
use crate::encoding::{read, read_word};
use crate::error::{CorruptData, Result};
use crate::steps::task_not_found;
use crate::task_cards::ListedTask;

/// Task with its status and state machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskDetail {
    /// Task as it was submitted.
    pub task: Task,
    /// Branch that the change is delivered on, named after the first title.
    pub branch: String,
    /// Status, as lists show it.
    pub card: ListedTask,
    /// State machine, or the reason why it cannot be read. The other fields stay usable.
    pub task_loop: Result<TaskLoop, CorruptData>,
    /// Number of events that the state machine has applied.
    pub step: u64,
}

impl Store {
    /// Returns a task with its status and state machine.
    pub async fn task(&self, id: TaskId) -> Result<TaskDetail> {
        let row = sqlx::query!("SELECT memory, revision, branch FROM tasks WHERE id = $1", id.0)
            .fetch_optional(&self.reads)
            .await?
            .ok_or_else(|| task_not_found(id.0))?;
        let task = self.submitted_task(id).await?;
        let listed = self.listed_task(id).await?.ok_or_else(|| task_not_found(id.0))?;
        let machine = read("machine", row.memory).map_err(|damage| damage.with_key(id.to_string()));
        Ok(TaskDetail {
            task,
            branch: row.branch.unwrap_or_else(|| unnamed_branch(id)),
            card: listed,
            task_loop: machine,
            step: row.revision.unsigned_abs(),
        })
    }

    /// Returns the state machines of tasks. Those that cannot be read are missing.
    pub async fn task_loops(&self, tasks: &[TaskId]) -> Result<BTreeMap<TaskId, TaskLoop>> {
        let ids: Vec<_> = tasks.iter().map(|task| task.0).collect();
        let rows =
            sqlx::query!("SELECT id, project, memory FROM tasks WHERE id = ANY($1::uuid [])", &ids)
                .fetch_all(&self.reads)
                .await?;
        let rows = rows.into_iter().filter(|row| self.can_read(ProjectId(row.project)));
        Ok(rows
            .filter_map(|row| Some((TaskId(row.id), read("machine", row.memory).ok()?)))
            .collect())
    }

    /// Returns the branch that the change of a task is delivered on.
    pub async fn task_branch(&self, id: TaskId) -> Result<String> {
        let branch = sqlx::query_scalar!("SELECT branch FROM tasks WHERE id = $1", id.0)
            .fetch_optional(&self.reads)
            .await?
            .ok_or_else(|| task_not_found(id.0))?;
        Ok(branch.unwrap_or_else(|| unnamed_branch(id)))
    }

    /// Returns `true` if a task or a pipeline has this ID, also in a project that this handle cannot
    /// read. Runs are stored under either.
    pub async fn is_task_id_used(&self, task: TaskId) -> Result<bool> {
        let used = sqlx::query_scalar!(
            r#"SELECT EXISTS (SELECT FROM tasks WHERE id = $1)
                OR EXISTS (SELECT FROM pipelines WHERE id = $1) AS "used!""#,
            task.0
        );
        Ok(used.fetch_one(&self.steps).await?)
    }

    /// Returns the project of a task, or of a pipeline under whose ID runs are stored.
    pub async fn task_project(&self, id: TaskId) -> Result<ProjectId> {
        let project = sqlx::query_scalar!(
            r#"SELECT project AS "project!" FROM tasks WHERE id = $1
               UNION ALL
               SELECT project FROM pipelines WHERE id = $1"#,
            id.0
        )
        .fetch_optional(&self.reads)
        .await?;
        let project = project.map(ProjectId).filter(|project| self.can_read(*project));
        project.ok_or_else(|| task_not_found(id.0))
    }

    /// Returns a task as it was submitted.
    pub async fn submitted_task(&self, id: TaskId) -> Result<Task> {
        let row = sqlx::query!(
            "SELECT
                project, title, description, type, priority, acceptance_criteria, labels,
                depends_on, suggested_agent, issue_url, issue_number, metadata
             FROM tasks WHERE id = $1",
            id.0
        )
        .fetch_optional(&self.reads)
        .await?
        .filter(|row| self.can_read(ProjectId(row.project)))
        .ok_or_else(|| task_not_found(id.0))?;
        let whose = |damage: CorruptData| damage.with_key(id.to_string());
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
            issue_number: row.issue_number.map(i64::unsigned_abs),
            metadata: read("metadata", row.metadata).map_err(whose)?,
        })
    }

    /// Returns the tasks that depend on a task and have not started, with the Temporal namespaces of
    /// their workflows.
    pub async fn waiting_dependants(&self, task: TaskId) -> Result<Vec<(TaskId, Option<String>)>> {
        let rows = sqlx::query!(
            r#"SELECT tasks.id AS "id!", w.namespace AS "namespace?"
               FROM tasks LEFT JOIN task_workflows AS w ON w.task = tasks.id
               WHERE tasks.state = 'pending' AND tasks.live AND $1 = ANY(tasks.depends_on)"#,
            task.0
        )
        .fetch_all(&self.reads)
        .await?;
        Ok(rows.into_iter().map(|row| (TaskId(row.id), row.namespace)).collect())
    }

    /// Returns how many of these tasks are not completed. An unknown task counts as not completed.
    pub async fn count_incomplete(&self, tasks: &[TaskId]) -> Result<u64> {
        let ids: Vec<_> = tasks.iter().map(|task| task.0).collect();
        let count = sqlx::query_scalar!(
            r#"SELECT count(*) AS "count!" FROM unnest($1::uuid []) AS wanted (id)
             WHERE NOT EXISTS (
                SELECT FROM tasks WHERE tasks.id = wanted.id AND tasks.state = 'completed'
             )"#,
            &ids
        )
        .fetch_one(&self.reads)
        .await?;
        Ok(count.unsigned_abs())
    }
}
