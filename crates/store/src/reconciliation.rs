//! Comparison of stored tasks with their workflows: its progress, and the open tasks.

use tamma_core::ids::TaskId;
use tamma_core::state::State;
use tamma_core::task_loop::Timestamp;
use uuid::Uuid;

use crate::connection::Store;
use crate::encoding::word;
use crate::error::Result;

/// Progress of the comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReconcileMarks {
    /// Random ID of this database. A restored copy has the same.
    pub installation: Uuid,
    /// Workflows that were closed before this time have been compared.
    pub watermark: Timestamp,
    /// Run ID of the marker workflow.
    pub marker: Option<String>,
}

/// Task that is open in the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenTask {
    /// Task ID.
    pub id: TaskId,
    /// State of the task.
    pub state: State,
    /// Number of events that the state machine has applied.
    pub step: u64,
    /// Last change.
    pub updated_at: Timestamp,
    /// Run ID of its workflow when it was last compared.
    pub run_id: Option<String>,
    /// Temporal namespace of its workflow; `None` for that of the installation.
    pub namespace: Option<String>,
}

impl Store {
    /// Returns the progress of the comparison. The first one starts at `now`.
    pub async fn reconcile_marks(&self, now: Timestamp) -> Result<ReconcileMarks> {
        sqlx::query!(
            "INSERT INTO reconciliation (watermark) VALUES ($1) ON CONFLICT DO NOTHING",
            now
        )
        .execute(&self.steps)
        .await?;
        let row = sqlx::query!("SELECT installation, watermark, marker FROM reconciliation")
            .fetch_one(&self.steps)
            .await?;
        Ok(ReconcileMarks {
            installation: row.installation,
            watermark: row.watermark,
            marker: row.marker,
        })
    }

    /// Saves the progress of the comparison.
    pub async fn save_reconcile_marks(&self, marks: &ReconcileMarks) -> Result<()> {
        sqlx::query!(
            "UPDATE reconciliation SET watermark = $1, marker = $2",
            marks.watermark,
            marks.marker,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Returns up to `limit` open tasks of a state, in the order of their IDs.
    pub async fn open_tasks(
        &self,
        state: State,
        after: Option<TaskId>,
        limit: u32,
    ) -> Result<Vec<OpenTask>> {
        let rows = sqlx::query!(
            r#"SELECT tasks.id, tasks.revision, tasks.updated_at, w.run_id AS "run_id?",
                w.namespace AS "namespace?"
             FROM tasks LEFT JOIN task_workflows AS w ON w.task = tasks.id
             WHERE tasks.state = $1 AND ($2::uuid IS NULL OR tasks.id > $2)
             ORDER BY tasks.id LIMIT $3"#,
            word(&state),
            after.map(|task| task.0),
            i64::from(limit),
        )
        .fetch_all(&self.lists)
        .await?;
        let open = rows.into_iter().map(|row| OpenTask {
            id: TaskId(row.id),
            state,
            step: row.revision.unsigned_abs(),
            updated_at: row.updated_at,
            run_id: row.run_id,
            namespace: row.namespace,
        });
        Ok(open.collect())
    }

    /// Saves the run ID of a task's workflow, once both are known to agree.
    pub async fn save_workflow_run(&self, task: TaskId, run_id: &str) -> Result<()> {
        sqlx::query!(
            "INSERT INTO task_workflows (task, run_id) VALUES ($1, $2)
             ON CONFLICT (task) DO UPDATE SET run_id = excluded.run_id",
            task.0,
            run_id,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Forgets the run IDs of closed tasks. Returns how many there were. Those in a namespace of their
    /// organisation stay, so that their workflows can be found.
    pub async fn forget_closed_workflows(&self) -> Result<u64> {
        let forgotten = sqlx::query!(
            "DELETE FROM task_workflows USING tasks
             WHERE tasks.id = task_workflows.task AND NOT tasks.live
                AND task_workflows.namespace IS NULL"
        )
        .execute(&self.steps)
        .await?;
        Ok(forgotten.rows_affected())
    }
}
