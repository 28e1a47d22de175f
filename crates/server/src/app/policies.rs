//! Policies of the operator: what they forbid people to do with a task, although their role allows it.

use std::collections::BTreeSet;

use tamma_core::access::AccessRole;
use tamma_core::actor::{Actor, AuthMethod};
use tamma_core::ids::Name;
use tamma_core::task_loop::TaskLoop;
use tamma_policy::{PersonAction, PolicyRefusal, PolicyTask};

use super::{App, Error, Principal};
use crate::audit;
use crate::dto::{BudgetGrant, TaskAction};

/// Action on a task, as policies name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PolicyAction {
    pub(super) name: &'static str,
    /// Set if it gives the task more budget.
    pub(super) raises_budget: bool,
}

impl From<&TaskAction> for PolicyAction {
    fn from(action: &TaskAction) -> Self {
        let name = match action {
            TaskAction::Approve { .. } => "approve",
            TaskAction::Reject { .. } => "reject",
            TaskAction::AskChanges { .. } => "revise_plan",
            TaskAction::Override { .. } => "override",
            TaskAction::Accept { .. } => "accept",
            TaskAction::Rework { .. } => "request_changes",
            TaskAction::Pause {} => "pause",
            TaskAction::Resume {} => "resume",
            TaskAction::Cancel { .. } => "cancel",
            TaskAction::Modify { .. } => "change_task",
            TaskAction::Retry { .. } => "retry",
            TaskAction::Continue { .. } => "continue",
            TaskAction::Reply { .. } => "reply",
            TaskAction::RollBack { .. } => "roll_back",
            TaskAction::Skip { .. } => "skip",
            TaskAction::Convene { .. } => "convene",
            TaskAction::Abandon { .. } => "abandon",
            TaskAction::Acknowledge {} => "acknowledge",
            TaskAction::AdjustPlan { .. } => "adjust_plan",
            TaskAction::Edit { .. } => "edit",
            TaskAction::Rate { .. } => "rate",
        };
        let raises_budget = match action {
            TaskAction::Retry { grant } | TaskAction::Continue { grant } => {
                *grant != BudgetGrant::default()
            }
            _ => false,
        };
        Self { name, raises_budget }
    }
}

impl App {
    /// Refuses an action that a policy forbids.
    pub(super) async fn check_policies(
        &self,
        by: &Principal,
        action: PolicyAction,
        task_loop: &TaskLoop,
    ) -> Result<(), Error> {
        let role = by.rights.role(task_loop.project);
        let refusals =
            self.policy_refusals(&by.name, role, by.auth_method, action, task_loop).await?;
        let Some(PolicyRefusal { policy, reason }) = refusals.into_iter().next() else {
            return Ok(());
        };
        audit::note_refusing_policy(&policy);
        tracing::warn!(
            %by, auth_method = %by.auth_method, action = action.name, policy,
            task = %task_loop.task, "action forbidden by policy"
        );
        Err(Error::PolicyForbids { policy, reason })
    }

    /// Returns the policies that forbid a person an action on a task.
    pub(super) async fn policy_refusals(
        &self,
        person: &Name,
        role: Option<AccessRole>,
        auth_method: AuthMethod,
        action: PolicyAction,
        task_loop: &TaskLoop,
    ) -> Result<Vec<PolicyRefusal>, Error> {
        if self.policies.is_empty() {
            return Ok(Vec::new());
        }
        let groups = self.identity.groups_of(person).await?;
        let role = role.map_or_else(|| "none".to_owned(), |role| role.to_string());
        let task = with_spelling(self.policy_task(task_loop).await?, person.as_str());
        Ok(self.policies.refusals(&PersonAction {
            person: person.as_str(),
            groups: &groups,
            role: &role,
            auth_method: &auth_method.to_string(),
            action: action.name,
            raises_budget: action.raises_budget,
            task: &task,
        }))
    }

    /// Collects what policies can refer to.
    async fn policy_task(&self, task_loop: &TaskLoop) -> Result<PolicyTask, Error> {
        let id = task_loop.task;
        let project = self.store.project(task_loop.project).await?;
        let organisations = self.store.organisations().await?;
        let owner = organisations
            .into_iter()
            .find(|it| it.projects.values().any(|owned| *owned == project.id));
        let submitted = self.store.submitted_task(id).await?;
        let first = self.store.history(id, 0, 1).await?;
        let author = first.first().and_then(|first| match &first.entry.actor {
            Actor::Person(name) => Some(name.to_string()),
            Actor::Tamma | Actor::Council => None,
        });
        let (mut files, mut paths_known) = (BTreeSet::new(), false);
        if let Some(plan) = &task_loop.plan {
            match self.store.plan_by_hash(id, plan.hash).await {
                Ok((_, plan)) => {
                    files.extend(plan.file_changes.into_iter().map(|change| change.path));
                    paths_known = true;
                }
                // An edited plan is saved after its approval.
                Err(tamma_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(commit) = task_loop.commit {
            let changed = self.changed_files(id, commit).await?;
            paths_known = changed.is_some();
            files.extend(changed.into_iter().flatten());
        }
        Ok(PolicyTask {
            id: id.to_string(),
            project: project.name,
            organisation: owner.map(|owner| owner.name).unwrap_or_default(),
            author,
            labels: submitted.labels,
            priority: task_loop.priority.to_string(),
            task_type: submitted.r#type.to_string(),
            files,
            paths_known,
            risk: task_loop.plan_assessment.as_ref().map(|it| it.risk.level.to_string()),
            approved_by: task_loop.approvals.iter().map(|it| it.by.to_string()).collect(),
        })
    }
}

/// Returns a task that spells the name of a person everywhere in the same way. Names ignore capitals, so
/// that one person can have credentials with several spellings, and policies compare texts.
fn with_spelling(mut task: PolicyTask, person: &str) -> PolicyTask {
    let wanted = person.to_lowercase();
    let names = task.author.iter_mut().chain(&mut task.approved_by);
    for name in names.filter(|name| name.to_lowercase() == wanted) {
        person.clone_into(name);
    }
    task
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_spelling_of_a_name_is_the_same_person() {
        let names = |names: [&str; 2]| names.map(str::to_owned).to_vec();
        let task = PolicyTask {
            author: Some("Ada".to_owned()),
            approved_by: names(["ADA", "Grace"]),
            ..PolicyTask::default()
        };
        let spelled = with_spelling(task.clone(), "ada");
        assert_eq!(spelled.author.as_deref(), Some("ada"));
        assert_eq!(spelled.approved_by, names(["ada", "Grace"]));
        assert_eq!(with_spelling(task.clone(), "Bob"), task);
    }

    #[test]
    fn more_budget_is_told_apart() {
        let action = |text: &str| {
            let action: TaskAction = serde_json::from_str(text).expect("action");
            PolicyAction::from(&action)
        };
        let retry = action(r#"{ "retry": { "grant": {} } }"#);
        assert_eq!(retry, PolicyAction { name: "retry", raises_budget: false });
        let more = action(r#"{ "continue": { "grant": { "usd": "5.00" } } }"#);
        assert_eq!(more, PolicyAction { name: "continue", raises_budget: true });
        assert_eq!(
            action(r#"{ "rework": { "commit": "a", "comments": "b" } }"#).name,
            "request_changes"
        );
    }
}
