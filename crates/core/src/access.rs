//! Rights of people: which role lets a person do what, and in which projects.
//!
//! This is the only place that decides. Callers authenticate a person, load the roles that the store
//! has for them, and ask [`AccessRights`]. A person without a role in a project has no right there,
//! not even to know that it exists. Whoever holds the operator token has every right everywhere.
//!
//! Projects belong to organisations. A role in an organisation applies to all of its projects;
//! [`Membership`] adds up the roles of a person.

mod membership;

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

use crate::ids::{OrganisationId, ProjectId};

pub use membership::{GrantSource, Membership, RoleGrant};

/// Role that a person can be granted in a project. Each role includes the ones before it.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    Display,
    EnumString,
    EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum PersonRole {
    /// Read only.
    Viewer,
    /// Add and control tasks, and answer agents' questions.
    Member,
    /// Decide on plans, changes, prohibitions, budgets and knowledge.
    Approver,
}

/// Role that a person can be granted in an organisation, and with it in all of its projects. Each role
/// includes the ones before it.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum OrganisationRole {
    /// Read only.
    Viewer,
    /// Add and control tasks, and answer agents' questions.
    Member,
    /// Decide on plans, changes, prohibitions, budgets and knowledge.
    Approver,
    /// Grant and revoke roles in the organisation and its projects.
    Administrator,
}

impl From<PersonRole> for OrganisationRole {
    fn from(role: PersonRole) -> Self {
        match role {
            PersonRole::Viewer => Self::Viewer,
            PersonRole::Member => Self::Member,
            PersonRole::Approver => Self::Approver,
        }
    }
}

/// Role of a caller in a project, with the one that nobody can be granted. Each role includes the
/// ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Display, EnumIter)]
#[strum(serialize_all = "snake_case")]
pub enum AccessRole {
    /// Reads the project.
    Viewer,
    /// Works in the project.
    Member,
    /// Decides in the project.
    Approver,
    /// Administers the organisation of the project.
    Administrator,
    /// Operates the installation: holds the operator token.
    Operator,
}

impl From<PersonRole> for AccessRole {
    fn from(role: PersonRole) -> Self {
        match role {
            PersonRole::Viewer => Self::Viewer,
            PersonRole::Member => Self::Member,
            PersonRole::Approver => Self::Approver,
        }
    }
}

impl From<OrganisationRole> for AccessRole {
    fn from(role: OrganisationRole) -> Self {
        match role {
            OrganisationRole::Viewer => Self::Viewer,
            OrganisationRole::Member => Self::Member,
            OrganisationRole::Approver => Self::Approver,
            OrganisationRole::Administrator => Self::Administrator,
        }
    }
}

/// Permission that a use case requires: a group of actions that the same roles can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display, EnumIter)]
#[strum(serialize_all = "snake_case")]
pub enum Permission {
    /// Read everything of a project.
    Read,
    /// Add and control tasks.
    Work,
    /// Make decisions.
    Decide,
    /// Change who can do what in an organisation.
    Administer,
    /// Change accounts, organisations and which repositories there are, and repair tasks.
    Operate,
}

impl Permission {
    /// Returns the lowest role that has this permission.
    pub fn required_role(self) -> AccessRole {
        match self {
            Self::Read => AccessRole::Viewer,
            Self::Work => AccessRole::Member,
            Self::Decide => AccessRole::Approver,
            Self::Administer => AccessRole::Administrator,
            Self::Operate => AccessRole::Operator,
        }
    }
}

/// Everything that a person can ask of the installation.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Display, EnumString, EnumIter,
)]
#[strum(serialize_all = "snake_case")]
pub enum AccessAction {
    /// See a project, its tasks, pipelines, knowledge, alerts, metrics and people.
    ReadProject,
    /// Read plans, changes, logs, transcripts and outputs, which quote the repository.
    ReadContent,
    /// Export history or everything about a task.
    Export,
    /// Add a task, or start the pipeline of a story.
    AddTask,
    /// Pause, resume, cancel, modify or rate a task, or request changes.
    ControlTask,
    /// Reply to an agent's question.
    AnswerQuestion,
    /// Decide on a plan, a change, a prohibition, a budget, a retry or a gate.
    Decide,
    /// Propose knowledge.
    ProposeKnowledge,
    /// Approve, reject, retire or edit knowledge.
    DecideKnowledge,
    /// Send a test message to a project's alert channels.
    TestAlerts,
    /// Apply new rules to open tasks.
    ChangeRules,
    /// Register a repository, or change a registered one.
    RegisterProject,
    /// Restart a task from the database, whatever its workflow does.
    RestartTask,
    /// Start and end maintenance.
    Maintain,
    /// Issue and revoke personal access tokens.
    ManagePeople,
    /// Grant and revoke roles.
    ManageAccess,
    /// Add organisations, and give projects to them.
    ManageOrganisations,
    /// Read the audit log.
    ReadAudit,
    /// Open sealed payloads of Temporal, which belong to no project.
    OpenPayloads,
}

impl AccessAction {
    /// Returns the permission that the action requires.
    pub fn permission(self) -> Permission {
        match self {
            Self::ReadProject | Self::ReadContent | Self::Export => Permission::Read,
            Self::AddTask
            | Self::ControlTask
            | Self::AnswerQuestion
            | Self::ProposeKnowledge
            | Self::TestAlerts => Permission::Work,
            Self::Decide | Self::DecideKnowledge | Self::ChangeRules => Permission::Decide,
            Self::ManageAccess => Permission::Administer,
            Self::RegisterProject
            | Self::RestartTask
            | Self::Maintain
            | Self::ManagePeople
            | Self::ManageOrganisations
            | Self::ReadAudit
            | Self::OpenPayloads => Permission::Operate,
        }
    }
}

/// Projects whose data a caller can read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProjectScope {
    /// Every project, also future ones: the operator, and Tamma's own services.
    All,
    /// These projects; none if it is empty.
    Only(BTreeSet<ProjectId>),
}

impl ProjectScope {
    /// Returns true if data of this project can be read.
    pub fn includes(&self, project: ProjectId) -> bool {
        match self {
            Self::All => true,
            Self::Only(projects) => projects.contains(&project),
        }
    }
}

/// Rights of one caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessRights {
    /// Holder of the operator token.
    Operator,
    /// Person with roles in projects and organisations.
    Person(Membership),
}

/// Limit of an access token. It never gives more than its owner has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenLimit {
    /// Highest role that the token can use.
    pub role: PersonRole,
    /// Projects in which it can be used; `None` for all.
    pub projects: Option<BTreeSet<ProjectId>>,
}

/// Decision about an action, with its reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessDecision {
    /// Role of the caller in the project; `None` without one.
    pub role: Option<AccessRole>,
    /// Lowest role that can do it.
    pub required: AccessRole,
}

impl AccessDecision {
    /// Returns `true` if the caller can do it.
    pub fn is_allowed(&self) -> bool {
        self.role.is_some_and(|role| role >= self.required)
    }
}

impl AccessRights {
    /// Rights of somebody whose roles are unknown: none.
    pub const NONE: Self = Self::Person(Membership::NONE);

    /// Returns the rights of somebody with a role in each of these projects, and nothing else.
    pub fn in_projects(roles: impl IntoIterator<Item = (ProjectId, PersonRole)>) -> Self {
        let roles = roles.into_iter().map(|(project, role)| (project, role.into()));
        Self::Person(Membership { roles: roles.collect(), ..Membership::NONE })
    }

    /// Returns the role in a project; `None` if there is none.
    pub fn role(&self, project: ProjectId) -> Option<AccessRole> {
        match self {
            Self::Operator => Some(AccessRole::Operator),
            Self::Person(person) => person.roles.get(&project).copied().map(AccessRole::from),
        }
    }

    /// Returns the highest role in any project; `None` without a role.
    pub fn highest_role(&self) -> Option<AccessRole> {
        match self {
            Self::Operator => Some(AccessRole::Operator),
            // An administrator of an organisation without projects has a role, too.
            Self::Person(person) if !person.administered.is_empty() => {
                Some(AccessRole::Administrator)
            }
            Self::Person(person) => person.roles.values().copied().map(AccessRole::from).max(),
        }
    }

    /// Returns true if the caller administers an organisation.
    pub fn administers(&self, organisation: OrganisationId) -> bool {
        match self {
            Self::Operator => true,
            Self::Person(person) => person.administered.contains(&organisation),
        }
    }

    /// Returns the organisations in which the caller has a role; `None` for all, also future ones.
    pub fn organisations(&self) -> Option<&BTreeSet<OrganisationId>> {
        match self {
            Self::Operator => None,
            Self::Person(person) => Some(&person.organisations),
        }
    }

    /// Decides whether the caller has a permission in a project.
    pub fn decide(&self, permission: Permission, project: ProjectId) -> AccessDecision {
        AccessDecision { role: self.role(project), required: permission.required_role() }
    }

    /// Returns true if the caller has a permission in a project.
    pub fn allows(&self, permission: Permission, project: ProjectId) -> bool {
        self.decide(permission, project).is_allowed()
    }

    /// Returns true if the caller has a permission in at least one project.
    pub fn allows_anywhere(&self, permission: Permission) -> bool {
        self.highest_role().is_some_and(|role| role >= permission.required_role())
    }

    /// Returns true if the caller can do an action in a project.
    pub fn can(&self, action: AccessAction, project: ProjectId) -> bool {
        self.allows(action.permission(), project)
    }

    /// Returns the rights of a token with a limit. A token is never an operator's.
    #[must_use]
    pub fn limited_by(self, limit: &TokenLimit) -> Self {
        let Self::Person(Membership { roles, organisations, administered: _ }) = self else {
            return Self::NONE;
        };
        let is_included = |project: &ProjectId| {
            limit.projects.as_ref().is_none_or(|projects| projects.contains(project))
        };
        let highest = OrganisationRole::from(limit.role);
        let roles = roles.into_iter().filter(|(project, _)| is_included(project));
        let roles = roles.map(|(project, role)| (project, role.min(highest))).collect();
        Self::Person(Membership { roles, organisations, administered: BTreeSet::new() })
    }

    /// Returns the projects that the caller can read.
    pub fn scope(&self) -> ProjectScope {
        match self {
            Self::Operator => ProjectScope::All,
            Self::Person(person) => {
                let projects = person.roles.keys();
                let readable = projects.filter(|it| self.can(AccessAction::ReadProject, **it));
                ProjectScope::Only(readable.copied().collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use strum::IntoEnumIterator as _;

    use super::*;

    fn project(number: u8) -> ProjectId {
        ProjectId(uuid::Uuid::from_u128(number.into()))
    }

    /// One column per role: the actions that the role adds to the ones before it.
    #[test]
    fn each_role_adds_these_actions() {
        let mut before = BTreeSet::new();
        let table: Vec<String> = AccessRole::iter()
            .map(|role| {
                let is_allowed =
                    |action: &AccessAction| role >= action.permission().required_role();
                let all: BTreeSet<_> = AccessAction::iter().filter(is_allowed).collect();
                let new: Vec<_> = all.difference(&before).map(ToString::to_string).collect();
                before.clone_from(&all);
                format!("{role}: {}", new.join(", "))
            })
            .collect();
        assert_eq!(
            table,
            [
                "viewer: read_project, read_content, export",
                "member: add_task, control_task, answer_question, propose_knowledge, test_alerts",
                "approver: decide, decide_knowledge, change_rules",
                "administrator: manage_access",
                "operator: register_project, restart_task, maintain, manage_people, \
                 manage_organisations, read_audit, open_payloads",
            ]
        );
        assert_eq!(before.len(), AccessAction::iter().count(), "an operator can do everything");
    }

    fn any_role() -> impl Strategy<Value = PersonRole> {
        prop::sample::select(PersonRole::iter().collect::<Vec<_>>())
    }

    fn any_action() -> impl Strategy<Value = AccessAction> {
        prop::sample::select(AccessAction::iter().collect::<Vec<_>>())
    }

    proptest! {
        #[test]
        fn a_higher_role_can_do_everything_that_a_lower_one_can(
            action in any_action(), one in any_role(), other in any_role(), at in 0..4_u8,
        ) {
            let (lower, higher) = (one.min(other), one.max(other));
            let rights = |role| AccessRights::in_projects([(project(at), role)]);
            if rights(lower).can(action, project(at)) {
                prop_assert!(rights(higher).can(action, project(at)));
            }
            prop_assert!(AccessRights::Operator.can(action, project(at)));
        }

        #[test]
        fn a_token_with_a_limit_has_no_more_than_its_owner_and_its_limit(
            action in any_action(), limit in any_role(), named in prop::option::of(0..4_u8),
            roles in prop::collection::btree_map((0..4_u8).prop_map(project), any_role(), 0..4),
            at in 0..4_u8,
        ) {
            let projects = named.map(|named| BTreeSet::from([project(named)]));
            let limit = TokenLimit { role: limit, projects };
            let owner = AccessRights::in_projects(roles);
            let token = owner.clone().limited_by(&limit);
            let is_named = named.is_none_or(|named| named == at);
            let within = AccessRole::from(limit.role) >= action.permission().required_role();
            prop_assert_eq!(
                token.can(action, project(at)),
                owner.can(action, project(at)) && is_named && within
            );
            prop_assert_eq!(AccessRights::Operator.limited_by(&limit), AccessRights::NONE);
        }

        #[test]
        fn rights_end_at_the_project_they_were_granted_in(
            action in any_action(),
            roles in prop::collection::btree_map((0..4_u8).prop_map(project), any_role(), 0..4),
            at in 0..8_u8,
        ) {
            let rights = AccessRights::in_projects(roles.clone());
            prop_assert!(!AccessRights::NONE.can(action, project(at)));
            prop_assert!(!AccessRights::NONE.allows_anywhere(action.permission()));
            if !roles.contains_key(&project(at)) {
                prop_assert!(!rights.can(action, project(at)));
            }
            // Neither is granted in a project, whatever the roles.
            if matches!(action.permission(), Permission::Administer | Permission::Operate) {
                prop_assert!(!rights.can(action, project(at)));
                prop_assert!(!rights.allows_anywhere(action.permission()));
            }
            prop_assert_eq!(
                rights.scope().includes(project(at)),
                rights.can(AccessAction::ReadProject, project(at))
            );
            prop_assert_eq!(rights.scope(), ProjectScope::Only(roles.into_keys().collect()));
        }
    }
}
