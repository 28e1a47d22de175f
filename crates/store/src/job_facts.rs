//! Facts that a job needs before it starts, in one read.

use serde::Deserialize;
use serde_json::Value;
use tamma_core::ids::TaskId;
use tamma_core::task::Task;
use tamma_core::task_loop::TaskLoop;

use crate::connection::Store;
use crate::encoding::read;
use crate::error::{CorruptData, Result};
use crate::inline_jobs::UnendedStarts;
use crate::projects::RegisteredProject;
use crate::steps::task_not_found;

/// Facts that a job needs before it starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFacts {
    /// Task as it was submitted.
    pub task: Task,
    /// Project of the task, if it is registered.
    pub project: Option<RegisteredProject>,
    /// Revision of the knowledge that applies to the project, as in
    /// [`Store::knowledge_revision`].
    pub knowledge_revision: u64,
    /// Starts of the job inside a workflow task that have not ended; `None` if this one was not recorded.
    pub unended_starts: Option<UnendedStarts>,
}

/// Job whose steps were stored before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredJob {
    /// Facts for the job.
    pub facts: JobFacts,
    /// Stored state machine of the task.
    pub task_loop: TaskLoop,
}

/// Result of the function `job_facts`.
#[derive(Deserialize)]
struct Row {
    task: Task,
    project: Option<ProjectColumns>,
    knowledge_revision: u64,
}

#[derive(Deserialize)]
struct ProjectColumns {
    name: String,
    repository: String,
}

impl JobFacts {
    /// Decodes the facts that a statement returned.
    pub(crate) fn decode(
        task: TaskId,
        facts: Value,
        unended_starts: Option<UnendedStarts>,
    ) -> Result<Self> {
        let whose = |damage: CorruptData| damage.with_key(task.to_string());
        let Row { task, project, knowledge_revision } = read("task", facts).map_err(whose)?;
        let id = task.project;
        let project = project.map(|ProjectColumns { name, repository }| RegisteredProject {
            id,
            name,
            repository,
        });
        Ok(Self { task, project, knowledge_revision, unended_starts })
    }
}

impl Store {
    /// Returns the facts for a job whose steps are stored, with the state machine of its task.
    pub async fn stored_job(&self, task: TaskId) -> Result<StoredJob> {
        let row = sqlx::query!(
            r#"SELECT memory, job_facts(tasks.*) AS "facts!" FROM tasks WHERE id = $1"#,
            task.0
        )
        .fetch_optional(&self.steps)
        .await?
        .ok_or_else(|| task_not_found(task.0))?;
        let facts = JobFacts::decode(task, row.facts, None)?;
        if !self.can_read(facts.task.project) {
            return Err(task_not_found(task.0));
        }
        let machine = read("machine", row.memory);
        let task_loop = machine.map_err(|damage| damage.with_key(task.to_string()))?;
        Ok(StoredJob { facts, task_loop })
    }
}
