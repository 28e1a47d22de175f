//! Roles that grants in projects and organisations add up to.

use std::collections::{BTreeMap, BTreeSet};

use super::OrganisationRole;
use crate::ids::{OrganisationId, ProjectId};

/// Kind of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantSource {
    /// The person has a role of their own in the project.
    Own,
    /// Everybody in the organisation has a role in the project.
    Everybody,
    /// The person has a role in the organisation.
    Organisation,
    /// A group at an identity provider gives the role.
    Group,
}

/// Role of a person in a project, from one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoleGrant {
    /// Organisation that owns the project.
    pub organisation: OrganisationId,
    /// Project; `None` if the organisation has none.
    pub project: Option<ProjectId>,
    /// Source of the role.
    pub source: GrantSource,
    /// Role; `None` if it was taken away.
    pub role: Option<OrganisationRole>,
}

/// Roles of a person in projects and organisations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// Highest role in each project.
    pub roles: BTreeMap<ProjectId, OrganisationRole>,
    /// Organisations in which the person has a role.
    pub organisations: BTreeSet<OrganisationId>,
    /// Organisations that the person administers.
    pub administered: BTreeSet<OrganisationId>,
}

impl Membership {
    /// Membership of somebody without a role.
    pub const NONE: Self = Self {
        roles: BTreeMap::new(),
        organisations: BTreeSet::new(),
        administered: BTreeSet::new(),
    };

    /// Adds up the grants of a person.
    ///
    /// A role for everybody is for the people of the organisation: those who have a role of their own
    /// in it. People who never had one in another organisation are in the default one. A role of one's
    /// own in a project replaces that of everybody, also if it is lower; of the others, the highest
    /// counts.
    pub fn from_grants(grants: &[RoleGrant]) -> Self {
        let own = grants.iter().filter(|grant| grant.source != GrantSource::Everybody);
        let held = own.clone().filter(|grant| grant.role.is_some());
        let mut belongs_to: BTreeSet<_> = held.map(|grant| grant.organisation).collect();
        // Whoever was in another organisation does not fall back to the default one.
        if own.clone().all(|grant| grant.organisation == OrganisationId::DEFAULT) {
            belongs_to.insert(OrganisationId::DEFAULT);
        }
        let is_own = |grant: &&RoleGrant| grant.source == GrantSource::Own && grant.role.is_some();
        let own_roles: BTreeSet<_> = grants.iter().filter(is_own).map(|it| it.project).collect();
        let counts = |grant: &&RoleGrant| match grant.source {
            GrantSource::Own | GrantSource::Organisation | GrantSource::Group => true,
            GrantSource::Everybody => {
                belongs_to.contains(&grant.organisation) && !own_roles.contains(&grant.project)
            }
        };
        let mut membership = Self::NONE;
        for grant in grants.iter().filter(counts) {
            let Some(role) = grant.role else { continue };
            membership.organisations.insert(grant.organisation);
            if role == OrganisationRole::Administrator {
                membership.administered.insert(grant.organisation);
            }
            if let Some(project) = grant.project {
                let held = membership.roles.entry(project).or_insert(role);
                *held = role.max(*held);
            }
        }
        membership
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::OrganisationRole::{Administrator, Approver, Member, Viewer};
    use crate::access::{AccessAction, AccessRights, Permission};

    const OTHER: OrganisationId = OrganisationId(uuid::Uuid::from_u128(2));

    fn project(number: u8) -> ProjectId {
        ProjectId(uuid::Uuid::from_u128(number.into()))
    }

    fn grant(
        organisation: OrganisationId,
        number: u8,
        source: GrantSource,
        role: Option<OrganisationRole>,
    ) -> RoleGrant {
        RoleGrant { organisation, project: Some(project(number)), source, role }
    }

    fn role(grants: &[RoleGrant], number: u8) -> Option<OrganisationRole> {
        Membership::from_grants(grants).roles.get(&project(number)).copied()
    }

    #[test]
    fn a_role_for_everybody_ends_at_the_organisation() {
        let everybody = grant(OrganisationId::DEFAULT, 1, GrantSource::Everybody, Some(Viewer));
        assert_eq!(role(&[everybody], 1), Some(Viewer), "in no organisation");
        for source in [GrantSource::Own, GrantSource::Organisation, GrantSource::Group] {
            let elsewhere = grant(OTHER, 2, source, Some(Member));
            let membership = Membership::from_grants(&[everybody, elsewhere]);
            assert_eq!(membership.roles, [(project(2), Member)].into(), "{source:?}");
            assert_eq!(membership.organisations, [OTHER].into());
            let both =
                [everybody, elsewhere, grant(OrganisationId::DEFAULT, 3, source, Some(Viewer))];
            assert_eq!(role(&both, 1), Some(Viewer));
        }
        // Whoever was in another organisation does not fall back to the default one.
        for source in [GrantSource::Own, GrantSource::Organisation, GrantSource::Group] {
            assert_eq!(role(&[everybody, grant(OTHER, 2, source, None)], 1), None, "{source:?}");
            let left = grant(OTHER, 1, GrantSource::Everybody, Some(Approver));
            assert_eq!(role(&[left, grant(OTHER, 2, source, None)], 1), None, "{source:?}");
        }
    }

    #[test]
    fn a_role_of_ones_own_replaces_that_of_everybody() {
        let everybody = grant(OTHER, 1, GrantSource::Everybody, Some(Approver));
        let own = |role| grant(OTHER, 1, GrantSource::Own, role);
        assert_eq!(role(&[everybody, own(Some(Viewer))], 1), Some(Viewer));
        let default = |source, role| grant(OrganisationId::DEFAULT, 1, source, role);
        let (everybody, taken) =
            (default(GrantSource::Everybody, Some(Approver)), default(GrantSource::Own, None));
        assert_eq!(role(&[everybody, taken], 1), Some(Approver), "it was taken away");
        let group = grant(OTHER, 1, GrantSource::Group, Some(Member));
        assert_eq!(role(&[own(Some(Viewer)), group], 1), Some(Member), "the highest counts");
    }

    #[test]
    fn administrators_manage_access_in_their_organisation_only() {
        let empty = RoleGrant {
            organisation: OTHER,
            project: None,
            source: GrantSource::Organisation,
            role: Some(Administrator),
        };
        let rights_of =
            |grants: &[RoleGrant]| AccessRights::Person(Membership::from_grants(grants));
        let of_empty = rights_of(&[empty]);
        assert!(of_empty.administers(OTHER) && !of_empty.administers(OrganisationId::DEFAULT));
        assert!(of_empty.allows_anywhere(Permission::Administer));
        assert!(!of_empty.allows_anywhere(Permission::Operate));
        let grants = [
            grant(OTHER, 1, GrantSource::Organisation, Some(Administrator)),
            grant(OrganisationId::DEFAULT, 2, GrantSource::Own, Some(Approver)),
        ];
        let rights = rights_of(&grants);
        assert!(rights.can(AccessAction::ManageAccess, project(1)));
        assert!(rights.can(AccessAction::Decide, project(1)));
        assert!(!rights.can(AccessAction::ManageAccess, project(2)));
        assert!(!rights.can(AccessAction::ManagePeople, project(1)));
        assert_eq!(AccessRights::Operator.organisations(), None);
        assert!(AccessRights::Operator.administers(OTHER));
    }
}
