//! Permission checks against the rules of a project.

use std::fmt;
use std::ops::Deref;

use strum::{Display, IntoEnumIterator as _};
use tamma_core::ids::{Name, ProjectId};
use tamma_core::rules::{AgentRole, PeopleRules, Permission, PersonRole};
use tamma_policy::RolePolicy;

use super::{App, Error};
use crate::dto::{AgentPermission, EffectivePermissions, PersonPermissions, RolePermissions};

/// Person that a request acts for, with the method that identified them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Principal {
    pub(crate) name: Name,
    pub(crate) auth_method: AuthMethod,
}

/// Method that identified the person of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum AuthMethod {
    /// Personal access token.
    OwnToken,
    /// Server's token, with the name given in the request.
    ServerToken,
    /// Local request to a server without a token, with the name given in the request.
    Machine,
}

impl AuthMethod {
    /// Returns whether the caller is an operator, who can act under any name.
    pub(crate) fn is_operator(self) -> bool {
        self != Self::OwnToken
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
    /// Checks a permission in a project. The server log records the result.
    pub(crate) async fn authorize(
        &self,
        by: &Principal,
        permission: Permission,
        project: ProjectId,
    ) -> Result<(), Error> {
        let people = self.project_people(project).await?;
        if people.has_permission(by, permission) {
            tracing::info!(
                %by, auth_method = %by.auth_method, %permission, %project, "permission granted"
            );
            Ok(())
        } else {
            Err(forbidden(by, permission, people.role(by)))
        }
    }

    /// Checks that a person has a permission in at least one project.
    pub(crate) async fn authorize_in_any_project(
        &self,
        by: &Principal,
        permission: Permission,
    ) -> Result<(), Error> {
        let (mut refused, mut config_error) = (None, None);
        for project in self.store.projects().await? {
            match self.project_people(project.id).await {
                Ok(people) if people.has_permission(by, permission) => {
                    tracing::info!(
                        %by, auth_method = %by.auth_method, %permission, "permission granted"
                    );
                    return Ok(());
                }
                Ok(people) => refused = Some(people.role(by)),
                // Another project can still grant the permission.
                Err(error @ Error::PermissionsUnknown { .. }) => config_error = Some(error),
                Err(error) => return Err(error),
            }
        }
        match (refused, config_error) {
            (Some(role), _) => Err(forbidden(by, permission, role)),
            (None, Some(error)) => Err(error),
            // Without projects there is nothing to protect.
            (None, None) => Ok(()),
        }
    }

    /// Returns the effective permissions of people and agents in a project.
    pub(crate) async fn effective_permissions(
        &self,
        project: Option<&str>,
        by: Option<&Name>,
    ) -> Result<EffectivePermissions, Error> {
        let project = self.resolve_project(project).await?;
        let rules = self.project_rules(&project.repository).await?;
        let (people, mut agents) = (&rules.people, Vec::new());
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
        let permissions_of = |role: PersonRole| {
            let has = |it: &Permission| role >= it.required_role();
            Permission::iter().filter(has).map(|it| it.to_string()).collect()
        };
        Ok(EffectivePermissions {
            project: project.name,
            people: PersonPermissions {
                everybody: people.everybody.to_string(),
                named: people
                    .named
                    .iter()
                    .map(|(name, role)| (name.clone(), role.to_string()))
                    .collect(),
                roles: PersonRole::iter().map(|it| (it.to_string(), permissions_of(it))).collect(),
                you: by.map(|by| people.role(by).to_string()),
            },
            agents,
        })
    }

    /// Checks that the caller is an operator.
    pub(super) fn require_operator(by: &Principal) -> Result<(), Error> {
        if by.auth_method.is_operator() {
            return Ok(());
        }
        tracing::warn!(%by, auth_method = %by.auth_method, "operator permission denied");
        Err(Error::NotOperator)
    }

    /// Loads the roles of a project. The file is read on every call, so changes apply immediately.
    /// If it cannot be loaded, all requests are refused until it is fixed.
    pub(crate) async fn project_people(&self, project: ProjectId) -> Result<PeopleRules, Error> {
        let project = self.store.project(project).await?;
        match self.project_rules(&project.repository).await {
            Ok(rules) => Ok(rules.people),
            Err(Error::InvalidConfig { file, problems }) => {
                Err(Error::PermissionsUnknown { reason: format!("{file} has errors."), problems })
            }
            Err(Error::Invalid { detail: reason, .. }) => {
                Err(Error::PermissionsUnknown { reason, problems: Vec::new() })
            }
            Err(error) => Err(error),
        }
    }
}

fn forbidden(by: &Principal, permission: Permission, role: PersonRole) -> Error {
    tracing::warn!(%by, auth_method = %by.auth_method, %permission, %role, "permission denied");
    Error::Forbidden { by: by.to_string(), permission, role }
}
