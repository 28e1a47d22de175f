//! One action on several tasks.
//!
//! Every task gets the action as if it were the only one: with the same permissions, checks and
//! history. One refusal does not affect the others.

use futures_util::future::join_all;
use tamma_core::ids::TaskId;
use uuid::Uuid;

use super::{App, Error, Principal};
use crate::dto::{BulkResult, TaskAction};
use crate::problem::Problem;

/// Maximum number of tasks in one request.
const MAX_TASKS: usize = 100;

/// Number of tasks that get the action at the same time.
const BATCH: usize = 8;

impl App {
    /// Performs an action on each of these tasks, and returns the results in their order.
    pub(crate) async fn perform_bulk_action(
        &self,
        tasks: &[Uuid],
        by: &Principal,
        action: &TaskAction,
        key: Option<&str>,
    ) -> Result<Vec<BulkResult>, Error> {
        check_bulk_action(action)?;
        let mut unique: Vec<Uuid> = Vec::new();
        for task in tasks {
            if !unique.contains(task) {
                unique.push(*task);
            }
        }
        if unique.is_empty() || unique.len() > MAX_TASKS {
            return Err(Error::invalid(
                format!("Cannot act on {} tasks at once.", unique.len()),
                format!("Select 1 to {MAX_TASKS} tasks."),
            ));
        }
        let mut results: Vec<BulkResult> = Vec::new();
        let mut is_responding = true;
        for batch in unique.chunks(BATCH) {
            if !is_responding {
                results.extend(batch.iter().map(|task| failed(*task, Error::WorkflowTimeout)));
                continue;
            }
            let requests = batch.iter().map(|task| {
                let key = key.map(|key| format!("{key}-{task}"));
                Box::pin(self.perform_action(TaskId(*task), by.clone(), action.clone(), key))
            });
            for (task, done) in batch.iter().zip(join_all(requests).await) {
                // Without a worker, each of the remaining tasks would wait for the time limit.
                is_responding &= !matches!(done, Err(Error::WorkflowTimeout));
                results.push(match done {
                    Ok(status) => BulkResult { task: *task, status: Some(status), problem: None },
                    Err(error) => failed(*task, error),
                });
            }
        }
        Ok(results)
    }
}

fn failed(task: Uuid, error: Error) -> BulkResult {
    BulkResult { task, status: None, problem: Some(Problem::from(error)) }
}

/// Refuses actions that are a decision about one plan, one change or one question.
fn check_bulk_action(action: &TaskAction) -> Result<(), Error> {
    let is_allowed = match action {
        TaskAction::Pause {} | TaskAction::Resume {} | TaskAction::Cancel { .. } => true,
        TaskAction::Edit { title, .. } => title.is_none(),
        _ => false,
    };
    if is_allowed {
        return Ok(());
    }
    Err(Error::invalid(
        format!("`{action}` needs a decision for each task."),
        "Pause, resume or cancel several tasks, or change their priority or labels.",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(title: Option<&str>) -> TaskAction {
        TaskAction::Edit {
            title: title.map(str::to_owned),
            priority: None,
            labels: None,
            add_labels: vec!["ui".to_owned()],
            remove_labels: Vec::new(),
        }
    }

    #[test]
    fn nothing_is_approved_or_accepted_for_several_tasks_at_once() {
        let plan = "01234567".to_owned();
        for action in [
            TaskAction::Approve { plan: plan.clone(), reason: None },
            TaskAction::Accept { commit: plan, reason: None },
            TaskAction::Reply { text: "yes".to_owned() },
            edit(Some("One title for all")),
        ] {
            assert!(matches!(check_bulk_action(&action), Err(Error::Invalid { .. })), "{action}");
        }
        let cancel = TaskAction::Cancel { reason: "obsolete".to_owned() };
        for action in [TaskAction::Pause {}, TaskAction::Resume {}, cancel, edit(None)] {
            assert!(check_bulk_action(&action).is_ok(), "{action}");
        }
    }
}
