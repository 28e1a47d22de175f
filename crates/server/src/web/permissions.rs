//! Permissions that decide which actions a page offers. The use cases check them again.

use std::collections::BTreeMap;
use std::fmt;

use tamma_core::access::{AccessRights, AccessRole, Permission};
use tamma_core::ids::ProjectId;
use tamma_core::knowledge::EntryScope;
use tamma_store::ProjectRoles;
use uuid::Uuid;

use super::session::Session;
use crate::app::App;
use crate::dto;

/// People that a task waits on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WaitingOn {
    /// The viewer of the page can decide.
    Viewer,
    /// Names or role of others who can decide.
    Others(String),
}

impl fmt::Display for WaitingOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Viewer => f.write_str("Needs you"),
            Self::Others(people) => write!(f, "Waiting on {people}"),
        }
    }
}

/// Permissions of one person. The roles of others are read once for each project.
#[derive(Clone)]
pub(super) struct PagePermissions {
    app: App,
    rights: AccessRights,
    /// Roles by project; `None` if they cannot be read.
    roles_by_project: BTreeMap<Uuid, Option<ProjectRoles>>,
}

impl PagePermissions {
    pub(super) fn for_session(app: &App, session: &Session) -> Self {
        let rights = session.rights.clone();
        Self { app: app.clone(), rights, roles_by_project: BTreeMap::new() }
    }

    async fn load_roles(&mut self, project: Uuid) -> Option<&ProjectRoles> {
        if !self.roles_by_project.contains_key(&project) {
            let roles = self.app.store.project_roles(ProjectId(project)).await.ok();
            self.roles_by_project.insert(project, roles);
        }
        self.roles_by_project.get(&project).and_then(Option::as_ref)
    }

    /// Returns whether the person has a permission in a project.
    pub(super) fn allows(&self, project: Uuid, permission: Permission) -> bool {
        self.rights.allows(permission, ProjectId(project))
    }

    /// Returns whether the person can decide on a knowledge entry of a scope.
    pub(super) fn can_decide_on(&self, scope: EntryScope) -> bool {
        match scope {
            EntryScope::Project(project) => self.rights.allows(Permission::Decide, project),
            EntryScope::Organisation => self.rights.allows_anywhere(Permission::Operate),
        }
    }

    /// Returns the people that a task waits on; `None` if it waits on nobody.
    pub(super) async fn waiting_on(&mut self, card: &dto::TaskCard) -> Option<WaitingOn> {
        // The first answer is the one requested; the others are always available.
        let answer = card.answers.first().filter(|_| card.waits_for_person)?;
        Some(self.responsible(card.project, Permission::from(*answer)).await)
    }

    /// Returns the people that a pipeline waits on; `None` if it waits on nobody.
    pub(super) async fn pipeline_waiting_on(
        &mut self,
        view: &dto::PipelineView,
    ) -> Option<WaitingOn> {
        if !view.needs_person {
            return None;
        }
        let needed = if view.question.is_some() { Permission::Decide } else { Permission::Work };
        Some(self.responsible(view.project_id, needed).await)
    }

    /// Returns the people that a merge queue waits on; `None` if it waits on nobody.
    pub(super) async fn queue_waiting_on(
        &mut self,
        view: &dto::MergeQueueView,
    ) -> Option<WaitingOn> {
        view.question.as_ref()?;
        Some(self.responsible(view.project, Permission::Decide).await)
    }

    async fn responsible(&mut self, project: Uuid, permission: Permission) -> WaitingOn {
        if self.allows(project, permission) {
            return WaitingOn::Viewer;
        }
        responsible_people(self.load_roles(project).await, permission)
    }
}

/// Names the people who can act: those with the role, or the role itself.
fn responsible_people(roles: Option<&ProjectRoles>, permission: Permission) -> WaitingOn {
    let Some(roles) = roles else { return WaitingOn::Others("a person".to_owned()) };
    let required = permission.required_role();
    let named = roles.named.iter().filter(|(_, role)| AccessRole::from(**role) >= required);
    let names: Vec<&str> = named.map(|(name, _)| name.as_str()).collect();
    WaitingOn::Others(match names.as_slice() {
        [] if matches!(
            required,
            AccessRole::Approver | AccessRole::Administrator | AccessRole::Operator
        ) =>
        {
            format!("an {required}")
        }
        [] => format!("a {required}"),
        names @ ([_] | [_, _] | [_, _, _]) => names.join(" or "),
        [one, two, rest @ ..] => format!("{one}, {two} or {} others", rest.len()),
    })
}

#[cfg(test)]
mod tests {
    use tamma_core::access::PersonRole;

    use super::*;

    #[test]
    fn responsible_people_are_named_when_they_are_few() {
        let approvers = |names: &[&str]| ProjectRoles {
            everybody: Some(PersonRole::Member),
            named: names.iter().map(|name| ((*name).to_owned(), PersonRole::Approver)).collect(),
        };
        for (roles, permission, expected) in [
            (approvers(&["Ada"]), Permission::Decide, "Waiting on Ada"),
            (approvers(&["Ada", "Grace"]), Permission::Decide, "Waiting on Ada or Grace"),
            (approvers(&["A", "B", "C", "D"]), Permission::Decide, "Waiting on A, B or 2 others"),
            (approvers(&[]), Permission::Decide, "Waiting on an approver"),
            (approvers(&[]), Permission::Work, "Waiting on a member"),
        ] {
            assert_eq!(responsible_people(Some(&roles), permission).to_string(), expected);
        }
        let waiting_on = responsible_people(None, Permission::Decide);
        assert_eq!(waiting_on.to_string(), "Waiting on a person");
    }
}
