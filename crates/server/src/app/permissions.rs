//! Permission checks against the roles in the store.

use std::fmt;
use std::ops::Deref;

use strum::IntoEnumIterator as _;
use tamma_core::access::{AccessRights, AccessRole, Permission};
use tamma_core::actor::{AuthMethod, Authentication, RequestInterface};
use tamma_core::ids::{Name, ProjectId};
use tamma_core::rules::AgentRole;
use tamma_policy::RolePolicy;

use super::{App, Error};
use crate::audit;
use crate::dto::{AgentPermission, EffectivePermissions, PersonPermissions, RolePermissions};

/// Person that a request acts for, with the method that identified them and their rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Principal {
    pub(crate) name: Name,
    pub(crate) auth_method: AuthMethod,
    /// Interface that took the request.
    pub(crate) interface: RequestInterface,
    /// Rights of the token: those of its owner, or of an operator.
    pub(crate) rights: AccessRights,
    /// Set if the person can manage their own tokens and sessions. A token with a limit cannot, so
    /// that it gives nobody more than it has.
    pub(crate) manages_credentials: bool,
}

impl Principal {
    /// Returns how the person was authenticated, for the history.
    pub(crate) fn authentication(&self) -> Authentication {
        Authentication { method: self.auth_method, via: self.interface }
    }

    /// Returns the person as the author of actions that another interface took.
    #[must_use]
    pub(crate) fn through(self, interface: RequestInterface) -> Self {
        Self { interface, ..self }
    }

    /// Checks a permission in a project. The server log records the result.
    pub(crate) fn authorize(
        &self,
        permission: Permission,
        project: ProjectId,
    ) -> Result<(), Error> {
        audit::note_policy(permission, self.rights.role(project), Some(project));
        if !self.rights.allows(permission, project) {
            return Err(forbidden(&self.to_string(), permission, self.rights.role(project)));
        }
        tracing::info!(
            by = %self, auth_method = %self.auth_method, %permission, %project, "permission granted"
        );
        Ok(())
    }

    /// Checks that the person has a permission in at least one project.
    pub(crate) fn authorize_anywhere(&self, permission: Permission) -> Result<(), Error> {
        audit::note_policy(permission, self.rights.highest_role(), None);
        if !self.rights.allows_anywhere(permission) {
            return Err(forbidden(&self.to_string(), permission, self.rights.highest_role()));
        }
        tracing::info!(
            by = %self, auth_method = %self.auth_method, %permission, "permission granted"
        );
        Ok(())
    }

    /// Checks that the caller is an operator.
    pub(crate) fn require_operator(&self) -> Result<(), Error> {
        audit::note_policy(Permission::Operate, self.rights.highest_role(), None);
        if self.rights.allows_anywhere(Permission::Operate) {
            return Ok(());
        }
        tracing::warn!(by = %self, auth_method = %self.auth_method, "operator permission denied");
        Err(Error::NotOperator)
    }

    /// Checks that the caller administers the organisation of a project.
    pub(crate) fn require_administrator(&self, project: ProjectId) -> Result<(), Error> {
        let role = self.rights.role(project);
        audit::note_policy(Permission::Administer, role, Some(project));
        if self.rights.allows(Permission::Administer, project) {
            return Ok(());
        }
        tracing::warn!(
            by = %self, auth_method = %self.auth_method, %project,
            "administrator permission denied"
        );
        Err(Error::NotAdministrator)
    }
}

/// Dereferences to the name, which is all that most callers need.
impl Deref for Principal {
    type Target = Name;

    fn deref(&self) -> &Name {
        &self.name
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

impl App {
    /// Returns the effective permissions of people and agents in a project.
    pub(crate) async fn effective_permissions(
        &self,
        project: Option<&str>,
        rights: &AccessRights,
    ) -> Result<EffectivePermissions, Error> {
        let project = self.resolve_project(project).await?;
        let people = self.store.project_roles(project.id).await?;
        let rules = self.project_rules(&project.repository).await?;
        let mut agents = Vec::new();
        for role in AgentRole::iter() {
            let policy = RolePolicy::new(role, &rules.permissions)
                .map_err(|error| Error::Internal(error.into()))?;
            let permissions = policy.permissions().into_iter().map(|it| AgentPermission {
                effect: it.effect.to_string(),
                access: it.access,
                rule: it.rule,
                reason: it.reason,
                default: it.is_default,
            });
            let (role, permissions) = (role.to_string(), permissions.collect());
            agents.push(RolePermissions { role, permissions });
        }
        let permissions_of = |role: AccessRole| {
            let has = |it: &Permission| role >= it.required_role();
            Permission::iter().filter(has).map(|it| it.to_string()).collect()
        };
        Ok(EffectivePermissions {
            project: project.name,
            people: PersonPermissions {
                everybody: people
                    .everybody
                    .map_or_else(|| "none".to_owned(), |role| role.to_string()),
                named: people
                    .named
                    .into_iter()
                    .map(|(name, role)| (name, role.to_string()))
                    .collect(),
                roles: AccessRole::iter().map(|it| (it.to_string(), permissions_of(it))).collect(),
                you: rights.role(project.id).map(|role| role.to_string()),
            },
            agents,
        })
    }
}

/// Records a refusal and returns it.
pub(crate) fn forbidden(by: &str, permission: Permission, role: Option<AccessRole>) -> Error {
    let role_text = role.map_or_else(|| "none".to_owned(), |role| role.to_string());
    tracing::warn!(%by, %permission, role = %role_text, "permission denied");
    Error::Forbidden { by: by.to_owned(), permission, role }
}
