//! New rules for open tasks.
//!
//! A task runs under the rules it was prepared with. When a person applies new ones, each open task
//! of the project gets them as an event, which voids its approval.

use strum::IntoEnumIterator as _;
use tamma_core::ids::TaskId;
use tamma_core::rules::{Permission, Rules};
use tamma_core::task_loop::State;
use tamma_flow::{RulesChanged, TaskWorkflow, workflow_id};
use tamma_store::TaskFilter;
use temporalio_client::WorkflowExecuteUpdateOptions;

use super::{App, Error, PageRequest, Principal, TEMPORAL_TIMEOUT};
use crate::clock;
use crate::dto::{AppliedRules, RulesOfTask};

impl App {
    /// Applies the rules in a project's configuration to its open tasks.
    pub(crate) async fn apply_rules(
        &self,
        by: &Principal,
        project: Option<&str>,
    ) -> Result<AppliedRules, Error> {
        let project = self.resolve_project(project).await?;
        let rules = self.project_rules(&project.repository).await?;
        self.authorize(by, Permission::Decide, project.id).await?;
        // Workers load them by their version.
        self.store.save_rules(&rules).await?;
        let policy = rules.version();
        let states = State::iter().filter(|state| !state.is_terminal()).collect();
        let filter = TaskFilter { project: Some(project.id), states, ..TaskFilter::default() };
        let (mut tasks, mut after) = (Vec::new(), None);
        loop {
            let page = self.list_tasks(&filter, &PageRequest { after, limit: 500 }).await?;
            for card in page.tasks {
                let task_loop = self.task_loop(TaskId(card.id)).await?;
                if task_loop.pin.is_some_and(|pin| pin.policy == policy) {
                    continue;
                }
                let (state, error) = match self.change_rules(TaskId(card.id), by, &rules).await {
                    Ok(state) => (state, None),
                    Err(error) => (card.state, Some(error.to_string())),
                };
                tasks.push(RulesOfTask { task: card.id, title: card.title, state, error });
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        tracing::info!(%by, project = project.name, %policy, tasks = tasks.len(), "rules applied");
        Ok(AppliedRules { project: project.name, policy: policy.to_string(), tasks })
    }

    /// Sends new rules to one task.
    async fn change_rules(
        &self,
        task: TaskId,
        by: &Principal,
        rules: &Rules,
    ) -> Result<State, Error> {
        let changed = RulesChanged { at: clock::now(), by: by.name.clone(), rules: rules.clone() };
        let options =
            WorkflowExecuteUpdateOptions::builder().update_id(clock::new_id().to_string()).build();
        let handle = self.temporal.get_workflow_handle::<TaskWorkflow>(workflow_id(task));
        let update = handle.execute_update(TaskWorkflow::change_rules, changed, options);
        match tokio::time::timeout(TEMPORAL_TIMEOUT, update).await {
            Ok(Ok(Ok(status))) => Ok(status.state),
            Ok(Ok(Err(refusal))) => Err(Error::Refused(refusal)),
            Ok(Err(error)) => Err(self.update_error(task, error).await),
            Err(_) => Err(Error::WorkflowTimeout),
        }
    }
}
