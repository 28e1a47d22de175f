//! Roles of people: granted, revoked and imported by operators, and by administrators of the
//! organisation.

use std::collections::BTreeMap;

use tamma_core::access::{AccessRights, Permission, PersonRole};
use tamma_core::ids::{Name, ProjectId};
use tamma_core::repository_address::hide_url_credentials;
use tamma_core::rules::PeopleRules;
use tamma_store::{AccessChange, AccessSource, ProjectRoles, RegisteredProject};

use super::people::parse_name;
use super::{App, Error, Principal};
use crate::audit;
use crate::clock;
use crate::dto::{AccessGrant, AccessList, AccessRecord, ProjectAccess};

/// Maximum number of changes in a list.
const MAX_CHANGES: u32 = 200;

impl App {
    /// Grants a role in a project, or takes it away.
    pub(crate) async fn change_access(
        &self,
        by: &Principal,
        grant: AccessGrant,
    ) -> Result<AccessList, Error> {
        let project = self.resolve_project(grant.project.as_deref()).await?;
        by.require_administrator(project.id)?;
        let person = grant.person.as_deref().map(parse_name).transpose()?;
        let role = grant.role.as_deref().map(parse_role).transpose()?;
        let roles = self.store.project_roles(project.id).await?;
        let held = held_roles(&roles, person.as_ref());
        if role.is_none() && held.is_empty() {
            let key = person.map_or_else(|| "everybody".to_owned(), |person| person.to_string());
            return Err(Error::NotFound { what: "the role of", key });
        }
        let changes = if held.is_empty() {
            vec![(person, role)]
        } else {
            let other = held.into_iter().filter(|(_, current)| Some(*current) != role);
            other.map(|(person, _)| (person, role)).collect()
        };
        let source = if role.is_some() { AccessSource::Granted } else { AccessSource::Revoked };
        self.save_access(by, project.id, changes, source).await?;
        self.access_list(Some(project), &by.rights).await
    }

    /// Imports the roles in a repository's configuration. They replace those of the same people;
    /// others keep theirs.
    pub(crate) async fn import_access(
        &self,
        by: &Principal,
        project: Option<&str>,
    ) -> Result<AccessList, Error> {
        let project = self.resolve_project(project).await?;
        by.require_administrator(project.id)?;
        let people = self.project_rules(&project.repository).await?.people;
        if people == PeopleRules::default() && !self.has_config(&project.repository).await? {
            let place = hide_url_credentials(&project.repository);
            return Err(Error::invalid(
                format!("No tamma.yaml at {place}."),
                "Use `tamma access grant`.",
            ));
        }
        // Nothing is imported if one name is not valid.
        let named = people.named.iter().map(|(name, role)| Ok((Some(parse_name(name)?), *role)));
        let everybody = people.everybody.map(|role| Ok((None, role)));
        let proposed = named.chain(everybody).collect::<Result<Vec<_>, Error>>()?;
        let roles = self.store.project_roles(project.id).await?;
        let mut changes = Vec::new();
        for (person, role) in proposed {
            let held = held_roles(&roles, person.as_ref());
            if held.is_empty() {
                changes.push((person, Some(role)));
            }
            changes.extend(held.into_iter().map(|(person, _)| (person, Some(role))));
        }
        self.save_access(by, project.id, changes, AccessSource::Imported).await?;
        self.access_list(Some(project), &by.rights).await
    }

    /// Saves new roles, all or none. A file grants `approver` at most.
    async fn save_access(
        &self,
        by: &Principal,
        project: ProjectId,
        roles: Vec<(Option<Name>, Option<PersonRole>)>,
        source: AccessSource,
    ) -> Result<(), Error> {
        let change = |(person, role)| AccessChange {
            project,
            person,
            role,
            by: by.name.clone(),
            auth_method: by.auth_method.to_string(),
            source,
            at: clock::now(),
        };
        let changes: Vec<AccessChange> = roles.into_iter().map(change).collect();
        self.store.change_access(&changes).await?;
        for AccessChange { person, role, .. } in &changes {
            let person = person.as_ref().map_or("everybody", Name::as_str);
            let role = role.map_or_else(|| "none".to_owned(), |role| role.to_string());
            audit::note_action("grant", format_args!("{role} to {person}"));
            tracing::info!(
                %by, auth_method = %by.auth_method, person, role, %project, %source,
                "access changed"
            );
        }
        Ok(())
    }

    /// Returns the roles in a project, or in all that the caller administers, with the newest changes.
    pub(crate) async fn access_list(
        &self,
        project: Option<RegisteredProject>,
        rights: &AccessRights,
    ) -> Result<AccessList, Error> {
        let id = project.as_ref().map(|project| project.id);
        let mut projects = match project {
            Some(project) => vec![project],
            None => self.store.projects().await?,
        };
        projects.retain(|project| rights.allows(Permission::Administer, project.id));
        let names: BTreeMap<ProjectId, String> =
            projects.iter().map(|project| (project.id, project.name.clone())).collect();
        let mut access = Vec::new();
        for project in projects {
            let roles = self.store.project_roles(project.id).await?;
            let named = roles.named.into_iter().map(|(name, role)| (name, role.to_string()));
            access.push(ProjectAccess {
                project: project.name,
                everybody: roles.everybody.map(|role| role.to_string()),
                named: named.collect(),
            });
        }
        let changes = self.store.access_changes(id, MAX_CHANGES).await?;
        let record = |change: AccessChange| {
            Some(AccessRecord {
                project: names.get(&change.project)?.clone(),
                person: change.person.map(|person| person.to_string()),
                role: change.role.map(|role| role.to_string()),
                by: change.by.to_string(),
                auth_method: change.auth_method,
                source: change.source.to_string(),
                at: change.at,
            })
        };
        let changes = changes.into_iter().filter_map(record).collect();
        Ok(AccessList { projects: access, changes })
    }
}

/// Returns the own role of a person under each spelling that it is stored under, or the role of
/// everybody. The database compares letters outside of ASCII exactly, so a change must repeat the
/// stored spelling.
fn held_roles(roles: &ProjectRoles, person: Option<&Name>) -> Vec<(Option<Name>, PersonRole)> {
    let Some(person) = person else {
        return roles.everybody.map(|role| (None, role)).into_iter().collect();
    };
    let wanted = person.as_str().to_lowercase();
    let held = roles.named.iter().filter(|(name, _)| name.to_lowercase() == wanted);
    held.filter_map(|(name, role)| Some((Some(name.parse().ok()?), *role))).collect()
}

pub(super) fn parse_role(text: &str) -> Result<PersonRole, Error> {
    text.trim().parse().map_err(|_| {
        let text: String = text.chars().take(40).collect();
        Error::invalid(
            format!("Unknown role `{text}`."),
            "Use viewer, member or approver. `tamma organisation grant` makes an administrator. \
             Nobody can be granted operator: operators hold the server token.",
        )
    })
}
