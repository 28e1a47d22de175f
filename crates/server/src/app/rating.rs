//! Ratings of closed tasks.
//!
//! The workflow of a closed task has ended, so the server applies the rating to the stored state
//! machine itself. The write names the last stored step; if another writer was faster, nothing is
//! written, and the server tries again.

use tamma_core::access::Permission;
use tamma_core::actor::Actor;
use tamma_core::ids::{Reason, TaskId};
use tamma_core::rules::Rules;
use tamma_core::task_loop::{Action, EventKind, StepRecord, TaskEvent, TaskLoop, step};
use tamma_core::version::FormatVersion;
use tamma_store::WriteOutcome;

use super::{App, Error, Principal};
use crate::clock;
use crate::dto::TaskStatus;

/// Maximum number of writes, if other people rate the task at the same time.
const MAX_WRITES: usize = 5;

impl App {
    /// Rates a closed task.
    pub(super) async fn rate_task(
        &self,
        task: TaskId,
        by: Principal,
        stars: u8,
        reason: Option<Reason>,
    ) -> Result<TaskStatus, Error> {
        for _ in 0..MAX_WRITES {
            let stored = self.store.task(task).await?;
            let task_loop = stored.task_loop.map_err(tamma_store::Error::from)?;
            let action = Action::Rate { stars, reason: reason.clone() };
            by.authorize(Permission::from(&action), task_loop.project)?;
            // The step of a closed task does not depend on them.
            let rules = self.task_rules(&task_loop).await.unwrap_or_default();
            let event = TaskEvent {
                format: FormatVersion,
                at: clock::now(),
                by: Actor::Person(by.name.clone()),
                auth: Some(by.authentication()),
                kind: EventKind::ActionRequested(action),
            };
            let rated = step(&task_loop, &event, &rules)
                .map_err(|refusal| Error::Refused(refusal.to_string()))?;
            let record = StepRecord::new(stored.step + 1, event.at, rated);
            let next = record.next.clone();
            match self.store.save_steps(&[record], &rules).await {
                Ok(WriteOutcome::Inserted) => {
                    return Ok(TaskStatus {
                        state: next.state,
                        paused: false,
                        step: stored.step + 1,
                        plan: next.plan.map(|plan| plan.hash.to_string()),
                        by: by.to_string(),
                    });
                }
                Ok(WriteOutcome::AlreadyPresent) | Err(tamma_store::Error::Conflict(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Refused("Others rated the task at the same time. Try again.".to_owned()))
    }

    /// Returns the rules of a task: those it is pinned to, or the current ones of its project.
    pub(crate) async fn task_rules(&self, task_loop: &TaskLoop) -> Result<Rules, Error> {
        if let Some(pin) = task_loop.pin {
            return Ok(self.store.rules(pin.policy).await?);
        }
        let project = self.store.project(task_loop.project).await?;
        Ok(self.project_rules(&project.repository).await.unwrap_or_default())
    }
}
