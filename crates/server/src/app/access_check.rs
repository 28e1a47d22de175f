//! Simulation of a decision: what a person can do with a task, and why.
//!
//! The rights come from the same function as those of a request, and the same function of the core
//! decides.

use tamma_core::access::{AccessAction, Permission};
use tamma_core::actor::AuthMethod;
use tamma_core::ids::TaskId;
use tamma_core::task_loop::AnswerKind;
use tamma_policy::PolicyRefusal;
use tamma_store::{AccountKind, Organisation};

use super::people::parse_name;
use super::policies::PolicyAction;
use super::{App, Error, Principal};
use crate::dto::AccessCheck;

impl App {
    /// Decides about an action of a person on a task, and explains the decision.
    pub(crate) async fn check_access(
        &self,
        by: &Principal,
        person: &str,
        action: &str,
        task: TaskId,
    ) -> Result<AccessCheck, Error> {
        let project = self.store.task_project(task).await?;
        let project = self.store.project(project).await?;
        by.require_administrator(project.id)?;
        let person = parse_name(person)?;
        let SimulatedAction { mut permission, policy_action } = parse_action(action)?;
        let mut reasons = Vec::new();
        if action == "reply"
            && self.reply_permission(&self.task_loop(task).await?).await? == Permission::Decide
        {
            permission = Permission::Decide;
            reasons
                .push("The reply can grant the agent permissions, so it is a decision.".to_owned());
        }
        let rights = self.identity.rights_of(&person).await?;
        let decision = rights.decide(permission, project.id);
        let roles = self.store.project_roles(project.id).await?;
        let wanted = person.as_str().to_lowercase();
        let own = roles.named.iter().find(|(name, _)| name.to_lowercase() == wanted);
        let (name, project_name) = (person.as_str(), project.name.as_str());
        if let Some((_, role)) = own {
            reasons.push(format!("{name} was made {role} of {project_name}."));
        }
        let organisations = self.store.organisations().await?;
        let is_owner = |it: &&Organisation| it.projects.values().any(|id| *id == project.id);
        if let Some(organisation) = organisations.iter().find(is_owner) {
            let of = &organisation.name;
            if let (None, Some(role)) = (own, roles.everybody) {
                reasons.push(format!(
                    "Everybody in the organisation {of} is {role} of {project_name}."
                ));
            }
            let held = self.store.organisation_roles(organisation.id).await?;
            let held = held.into_iter().find(|(name, _)| name.to_lowercase() == wanted);
            if let Some((_, role)) = held {
                reasons.push(format!("{name} is {role} of the organisation {of}."));
            }
        }
        for (grant, provider) in self.identity.group_roles(&person).await? {
            if let (Some(of), Some(role)) = (grant.project, grant.role)
                && of == project.id
            {
                reasons.push(format!("A group at {provider} gives {name} the role {role}."));
            }
        }
        if self.identity.has_lost_provider(&person).await? {
            reasons.push(format!(
                "The identity provider of {name} was removed: what groups and everybody can do does \
                 not count for them."
            ));
        }
        if decision.role.is_none() {
            reasons.push(format!("{name} has no role in {project_name}."));
        }
        let is_deactivated = self.is_deactivated(&person).await?;
        if is_deactivated {
            reasons.push(format!("The account of {name} is deactivated."));
        }
        let has_lost_groups = self.store.has_lost_groups(&person).await?;
        if has_lost_groups {
            reasons.push(format!("No group of {name} at an identity provider lets them in."));
        }
        let is_service = self.store.account_kind(&person).await? == AccountKind::Service;
        if is_service {
            reasons.push(format!("{name} is a service account, which uses tokens only."));
        }
        let mut is_forbidden = false;
        if let Some(action) = policy_action {
            // Policies can tell a token from a sign-in. The check assumes a token.
            let method = if is_service { AuthMethod::ServiceToken } else { AuthMethod::OwnToken };
            let task_loop = self.task_loop(task).await?;
            let refusals = self.policy_refusals(&person, decision.role, method, action, &task_loop);
            let refusals = Box::pin(refusals).await?;
            is_forbidden = !refusals.is_empty();
            for PolicyRefusal { policy, reason } in refusals {
                reasons.push(format!("The policy `{policy}` forbids it: {reason}"));
            }
        }
        let required = decision.required;
        reasons
            .push(format!("The action needs the {permission} permission: {required} or higher."));
        Ok(AccessCheck {
            person: person.to_string(),
            action: action.to_owned(),
            project: project.name.clone(),
            allowed: decision.is_allowed() && !is_deactivated && !has_lost_groups && !is_forbidden,
            permission: permission.to_string(),
            required_role: required.to_string(),
            role: decision.role.map(|role| role.to_string()),
            reasons,
        })
    }
}

/// Action of a simulation.
#[derive(Debug, PartialEq, Eq)]
struct SimulatedAction {
    permission: Permission,
    /// Action that policies can forbid; `None` for all others.
    policy_action: Option<PolicyAction>,
}

/// Parses an answer such as `approve`, an action such as `pause`, or an access action such as
/// `read_content`.
fn parse_action(text: &str) -> Result<SimulatedAction, Error> {
    let word = text.trim().replace('-', "_");
    let (permission, name) = match word.as_str() {
        "read" => (Permission::Read, None),
        "add" => (AccessAction::AddTask.permission(), None),
        "pause" => (AccessAction::ControlTask.permission(), Some("pause")),
        "resume" => (AccessAction::ControlTask.permission(), Some("resume")),
        "edit" => (AccessAction::ControlTask.permission(), Some("edit")),
        "rate" => (AccessAction::ControlTask.permission(), Some("rate")),
        _ => {
            if let Some(answer) = parse_answer(&word) {
                (Permission::from(answer), Some(policy_name(answer)))
            } else if let Ok(action) = word.parse::<AccessAction>() {
                (action.permission(), None)
            } else {
                let text: String = text.chars().take(40).collect();
                return Err(Error::invalid(
                    format!("Unknown action `{text}`."),
                    "Use an action such as approve, reject, accept, reply, pause, cancel, \
                     raise-budget or read.",
                ));
            }
        }
    };
    let raises_budget = word == "raise_budget";
    let policy_action = name.map(|name| PolicyAction { name, raises_budget });
    Ok(SimulatedAction { permission, policy_action })
}

/// Parses the name of an answer, as the command line or the API has it.
fn parse_answer(word: &str) -> Option<AnswerKind> {
    match word {
        "raise_budget" => Some(AnswerKind::Continue),
        "revise_plan" => Some(AnswerKind::RevisePlan),
        "request_changes" => Some(AnswerKind::RequestChanges),
        "change_task" => Some(AnswerKind::ChangeTask),
        _ => word.parse().ok(),
    }
}

/// Returns the name that policies have for an answer.
fn policy_name(answer: AnswerKind) -> &'static str {
    match answer {
        AnswerKind::Approve => "approve",
        AnswerKind::Reject => "reject",
        AnswerKind::RevisePlan => "revise_plan",
        AnswerKind::Accept => "accept",
        AnswerKind::RequestChanges => "request_changes",
        AnswerKind::Override => "override",
        AnswerKind::Reply => "reply",
        AnswerKind::Continue => "continue",
        AnswerKind::ChangeTask => "change_task",
        AnswerKind::Retry => "retry",
        AnswerKind::RollBack => "roll_back",
        AnswerKind::Skip => "skip",
        AnswerKind::Convene => "convene",
        AnswerKind::Cancel => "cancel",
        AnswerKind::Abandon => "abandon",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_named_as_on_the_command_line() {
        for (text, permission) in [
            ("approve", Permission::Decide),
            ("request-changes", Permission::Work),
            ("pause", Permission::Work),
            ("read", Permission::Read),
            ("read_content", Permission::Read),
            ("manage-access", Permission::Administer),
            ("manage-organisations", Permission::Operate),
        ] {
            assert_eq!(parse_action(text).ok().map(|it| it.permission), Some(permission), "{text}");
        }
        assert!(parse_action("fly").is_err());
        let raise = parse_action("raise-budget").expect("known").policy_action;
        assert_eq!(raise, Some(PolicyAction { name: "continue", raises_budget: true }));
        assert_eq!(parse_action("read").expect("known").policy_action, None);
    }
}
