//! New rules for open tasks.
//!
//! A task runs under the rules it was prepared with. When a person applies new ones, each open task
//! of the project gets them as an event, which voids its approval.

use futures_util::{StreamExt as _, stream};
use strum::IntoEnumIterator as _;
use tamma_core::access::Permission;
use tamma_core::ids::TaskId;
use tamma_core::rules::Rules;
use tamma_core::task_loop::State;
use tamma_flow::{RulesChanged, TaskWorkflow, workflow_id};
use tamma_store::TaskFilter;
use temporalio_client::WorkflowExecuteUpdateOptions;

use super::{App, Error, PageRequest, Principal, TEMPORAL_TIMEOUT};
use crate::clock;
use crate::dto::{AppliedRules, RulesOfTask, TaskCard};

/// Number of tasks that are updated at the same time. A task that does not respond delays the others
/// by its timeout at most.
const MAX_CONCURRENT_UPDATES: usize = 32;

impl App {
    /// Applies the rules in a project's configuration to its open tasks.
    pub(crate) async fn apply_rules(
        &self,
        by: &Principal,
        project: Option<&str>,
    ) -> Result<AppliedRules, Error> {
        let project = self.resolve_project(project).await?;
        by.authorize(Permission::Decide, project.id)?;
        let rules = self.project_rules(&project.repository).await?;
        // Workers load them by their version.
        self.store.save_rules(&rules).await?;
        let policy = rules.version();
        let states = State::iter().filter(|state| !state.is_terminal()).collect();
        let filter = TaskFilter { project: Some(project.id), states, ..TaskFilter::default() };
        let (mut tasks, mut damaged, mut after) = (Vec::new(), Vec::new(), None);
        loop {
            let page = self.list_tasks(&filter, &PageRequest { after, limit: 500 }).await?;
            let updates = page.tasks.into_iter().map(|card| self.update_task(card, by, &rules));
            let updated: Vec<_> =
                stream::iter(updates).buffered(MAX_CONCURRENT_UPDATES).collect().await;
            tasks.extend(updated.into_iter().flatten());
            damaged.extend(page.damaged);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        tracing::info!(%by, project = project.name, %policy, tasks = tasks.len(), "rules applied");
        Ok(AppliedRules { project: project.name, policy: policy.to_string(), tasks, damaged })
    }

    /// Updates one task, unless it has these rules. A failure concerns this task only.
    async fn update_task(
        &self,
        card: TaskCard,
        by: &Principal,
        rules: &Rules,
    ) -> Option<RulesOfTask> {
        let (task, policy) = (TaskId(card.id), rules.version());
        let changed = match self.task_loop(task).await {
            Ok(it) if it.pin.is_some_and(|pin| pin.policy == policy) => return None,
            Ok(_) => self.change_rules(task, by, rules).await,
            Err(error) => Err(error),
        };
        let (state, error) = match changed {
            Ok(state) => (state, None),
            Err(error) => (card.state, Some(error.to_string())),
        };
        Some(RulesOfTask { task: card.id, title: card.title, state, error })
    }

    /// Sends new rules to one task.
    async fn change_rules(
        &self,
        task: TaskId,
        by: &Principal,
        rules: &Rules,
    ) -> Result<State, Error> {
        let changed = RulesChanged {
            at: clock::now(),
            by: by.name.clone(),
            auth: Some(by.authentication()),
            rules: rules.clone(),
        };
        let options =
            WorkflowExecuteUpdateOptions::builder().update_id(clock::new_id().to_string()).build();
        let client = self.workflow_client(task.0).await?;
        let handle = client.get_workflow_handle::<TaskWorkflow>(workflow_id(task));
        let update = handle.execute_update(TaskWorkflow::change_rules, changed, options);
        match tokio::time::timeout(TEMPORAL_TIMEOUT, update).await {
            Ok(Ok(Ok(status))) => Ok(status.state),
            Ok(Ok(Err(refusal))) => Err(Error::Refused(refusal)),
            Ok(Err(error)) => Err(self.update_error(task, error).await),
            Err(_) => Err(Error::WorkflowTimeout),
        }
    }
}
