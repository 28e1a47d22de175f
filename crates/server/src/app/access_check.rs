//! Simulation of a decision: what a person can do with a task, and why.
//!
//! The rights come from the same function as those of a request, and the same function of the core
//! decides.

use tamma_core::access::{AccessAction, Permission};
use tamma_core::ids::TaskId;
use tamma_core::task_loop::AnswerKind;
use tamma_store::{AccountKind, Organisation};

use super::people::parse_name;
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
        let mut permission = parse_permission(action)?;
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
        if decision.role.is_none() {
            reasons.push(format!("{name} has no role in {project_name}."));
        }
        let is_deactivated = self.is_deactivated(&person).await?;
        if is_deactivated {
            reasons.push(format!("The account of {name} is deactivated."));
        }
        if self.store.account_kind(&person).await? == AccountKind::Service {
            reasons.push(format!("{name} is a service account, which uses tokens only."));
        }
        let required = decision.required;
        reasons
            .push(format!("The action needs the {permission} permission: {required} or higher."));
        Ok(AccessCheck {
            person: person.to_string(),
            action: action.to_owned(),
            project: project.name.clone(),
            allowed: decision.is_allowed() && !is_deactivated,
            permission: permission.to_string(),
            required_role: required.to_string(),
            role: decision.role.map(|role| role.to_string()),
            reasons,
        })
    }
}

/// Returns the permission of an answer such as `approve`, of an action such as `pause`, or of an
/// access action such as `read_content`.
fn parse_permission(text: &str) -> Result<Permission, Error> {
    let word = text.trim().replace('-', "_");
    if let Ok(answer) = word.parse::<AnswerKind>() {
        return Ok(Permission::from(answer));
    }
    match word.as_str() {
        "read" => Ok(Permission::Read),
        "add" => Ok(AccessAction::AddTask.permission()),
        "pause" | "resume" | "edit" | "rate" => Ok(AccessAction::ControlTask.permission()),
        _ => word.parse::<AccessAction>().map(AccessAction::permission).map_err(|_| {
            let text: String = text.chars().take(40).collect();
            Error::invalid(
                format!("Unknown action `{text}`."),
                "Use an action such as approve, reject, accept, reply, pause, cancel or read.",
            )
        }),
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
            assert_eq!(parse_permission(text).ok(), Some(permission), "{text}");
        }
        assert!(parse_permission("fly").is_err());
    }
}
