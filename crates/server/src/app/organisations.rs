//! Organisations: operators add them and give them projects, administrators grant roles in them.

use tamma_core::access::{AccessRights, OrganisationRole};
use tamma_core::format::capitalize;
use tamma_core::ids::OrganisationId;
use tamma_flow::NAMESPACE;
use tamma_store::{Conflict, Organisation, OrganisationChange};
use temporalio_client::tonic::Code;
use uuid::Uuid;

use super::people::parse_name;
use super::{App, Error, Principal};
use crate::audit;
use crate::clock;
use crate::dto::{
    NewOrganisation, OrganisationGrant, OrganisationList, OrganisationView, ProjectTransfer,
};
use crate::temporal_namespace::{NamespaceError, prepare_namespace};

/// Maximum length of a name, in characters.
const MAX_NAME: usize = 40;

/// Maximum length of a Temporal namespace, in characters.
const MAX_NAMESPACE: usize = 200;

impl App {
    /// Returns the organisations that a caller administers.
    pub(crate) async fn organisation_list(
        &self,
        rights: &AccessRights,
    ) -> Result<OrganisationList, Error> {
        let mut organisations = Vec::new();
        for organisation in self.store.organisations().await? {
            if rights.administers(organisation.id) {
                organisations.push(self.organisation_view(organisation).await?);
            }
        }
        Ok(OrganisationList { organisations })
    }

    /// Adds an organisation.
    pub(crate) async fn add_organisation(
        &self,
        by: &Principal,
        new: NewOrganisation,
    ) -> Result<OrganisationView, Error> {
        by.require_operator()?;
        let name = parse_organisation_name(&new.name)?;
        if !self.store.has_row_security() {
            return Err(Error::Refused(
                "The database cannot keep organisations apart: the role tamma_tenant is missing. \
                 Create it and restart the server (docs/organisations.md)."
                    .to_owned(),
            ));
        }
        if !self.store.is_upgrade_finished().await? {
            return Err(Error::Refused(
                "The upgrade is not finished, and servers of the old version do not keep \
                 organisations apart. Run `tamma migrate --finish` once only this version runs."
                    .to_owned(),
            ));
        }
        let namespace = match &new.namespace {
            Some(namespace) => parse_namespace(namespace)?,
            None => format!("tamma-{name}"),
        };
        let namespace = Some(namespace).filter(|namespace| namespace != NAMESPACE);
        // Before anything is created in Temporal; the database compares again.
        for other in self.store.organisations().await? {
            if other.name == name {
                return Err(name_taken(&name));
            }
            if namespace.is_some() && other.namespace == namespace {
                return Err(namespace_taken(&other.name));
            }
        }
        if let Some(namespace) = &namespace {
            let is_named = new.namespace.is_some();
            prepare_namespace(&self.temporal, namespace, is_named).await.map_err(not_prepared)?;
        }
        let id = OrganisationId(clock::new_id());
        match self.store.add_organisation(id, (&name, namespace.as_deref()), &by.name).await {
            Ok(()) => {}
            Err(tamma_store::Error::Conflict(Conflict::Constraint(_))) => {
                return Err(name_taken(&name));
            }
            Err(error) => return Err(error.into()),
        }
        audit::note_action("add_organisation", &name);
        tracing::info!(%by, auth_method = %by.auth_method, organisation = name, "organisation added");
        let organisation = self.resolve_organisation(&name).await?;
        self.organisation_view(organisation).await
    }

    /// Gives a project to an organisation. Roles in the project stay; those of the organisation it
    /// leaves end.
    pub(crate) async fn transfer_project(
        &self,
        by: &Principal,
        transfer: ProjectTransfer,
    ) -> Result<OrganisationView, Error> {
        by.require_operator()?;
        let project = self.resolve_project(Some(&transfer.project)).await?;
        let organisation = self.resolve_organisation(&transfer.organisation).await?;
        self.store.move_project(project.id, organisation.id).await?;
        let (name, to) = (&project.name, &organisation.name);
        audit::note_action("transfer_project", format_args!("{name} to {to}"));
        tracing::info!(
            %by, auth_method = %by.auth_method, project = name, organisation = to,
            "project transferred"
        );
        let organisation = self.resolve_organisation(to).await?;
        self.organisation_view(organisation).await
    }

    /// Grants a role in an organisation, or takes it away.
    pub(crate) async fn change_organisation_access(
        &self,
        by: &Principal,
        grant: OrganisationGrant,
    ) -> Result<OrganisationView, Error> {
        let organisation = self.resolve_organisation(&grant.organisation).await;
        // An organisation that the caller does not administer is missing, not forbidden.
        let organisation = organisation.and_then(|organisation| {
            if by.rights.administers(organisation.id) {
                Ok(organisation)
            } else {
                Err(not_found(&grant.organisation))
            }
        })?;
        let person = parse_name(&grant.person)?;
        let role = grant.role.as_deref().map(parse_organisation_role).transpose()?;
        let held = self.store.organisation_roles(organisation.id).await?;
        let wanted = person.as_str().to_lowercase();
        let held = held.into_iter().filter(|(name, _)| name.to_lowercase() == wanted);
        // The database compares letters outside of ASCII exactly, so each stored spelling changes.
        let mut people: Vec<_> = held.filter_map(|(name, _)| name.parse().ok()).collect();
        if people.is_empty() {
            if role.is_none() {
                return Err(Error::NotFound { what: "the role of", key: person.to_string() });
            }
            people.push(person);
        }
        for person in people {
            let change = OrganisationChange {
                organisation: organisation.id,
                person,
                role,
                by: by.name.clone(),
                auth_method: by.auth_method.to_string(),
            };
            self.store.change_organisation_role(&change).await?;
            let role = role.map_or_else(|| "none".to_owned(), |role| role.to_string());
            let (person, name) = (&change.person, &organisation.name);
            audit::note_action("grant", format_args!("{role} in {name} to {person}"));
            tracing::info!(
                %by, auth_method = %by.auth_method, %person, role, organisation = name,
                "organisation access changed"
            );
        }
        self.organisation_view(organisation).await
    }

    async fn organisation_view(
        &self,
        organisation: Organisation,
    ) -> Result<OrganisationView, Error> {
        let roles = self.store.organisation_roles(organisation.id).await?;
        Ok(OrganisationView {
            id: organisation.id.0,
            name: organisation.name,
            namespace: organisation.namespace,
            projects: organisation.projects.into_keys().collect(),
            roles: roles.into_iter().map(|(name, role)| (name, role.to_string())).collect(),
            created_by: organisation.created_by,
            created_at: organisation.created_at,
        })
    }

    /// Returns an organisation by its ID or name.
    pub(super) async fn resolve_organisation(
        &self,
        id_or_name: &str,
    ) -> Result<Organisation, Error> {
        let id: Option<Uuid> = id_or_name.parse().ok();
        let all = self.store.organisations().await?;
        let found = all.into_iter().find(|it| it.name == id_or_name || Some(it.id.0) == id);
        found.ok_or_else(|| not_found(id_or_name))
    }
}

fn not_found(id_or_name: &str) -> Error {
    Error::NotFound { what: "organisation", key: id_or_name.chars().take(MAX_NAME).collect() }
}

fn parse_organisation_name(text: &str) -> Result<String, Error> {
    let name = text.trim();
    let is_plain =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_plain) {
        let text: String = name.chars().take(MAX_NAME).collect();
        return Err(Error::invalid(
            format!("`{text}` cannot be the name of an organisation."),
            format!("Use 1 to {MAX_NAME} of a-z, 0-9 and `-`."),
        ));
    }
    Ok(name.to_owned())
}

fn parse_namespace(text: &str) -> Result<String, Error> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let name = text.trim();
    if name.is_empty() || name.len() > MAX_NAMESPACE || !name.chars().all(is_plain) {
        let text: String = name.chars().take(MAX_NAME).collect();
        return Err(Error::invalid(
            format!("`{text}` cannot be a Temporal namespace."),
            format!("Use 1 to {MAX_NAMESPACE} of letters, digits, `-`, `_` and `.`."),
        ));
    }
    Ok(name.to_owned())
}

fn name_taken(name: &str) -> Error {
    Error::invalid(format!("The organisation `{name}` exists already."), "Choose another name.")
}

fn namespace_taken(owner: &str) -> Error {
    Error::invalid(
        format!("The organisation `{owner}` has this Temporal namespace."),
        "Choose another namespace.",
    )
}

/// Converts the error of a namespace to one that tells the operator what to do.
fn not_prepared(error: NamespaceError) -> Error {
    let text = error.to_string();
    match error {
        NamespaceError::Exists(namespace) => Error::invalid(
            format!("The Temporal namespace `{namespace}` exists already."),
            format!("If it is meant for this organisation, add `--namespace {namespace}`."),
        ),
        NamespaceError::Refused { status, .. }
        | NamespaceError::SearchAttributes { status, .. }
            if is_passing(status.code()) =>
        {
            Error::temporal(status)
        }
        NamespaceError::Refused { .. } => Error::invalid(
            format!("{}.", capitalize(&text)),
            "Create it in Temporal, then name it with `--namespace` (docs/organisations.md).",
        ),
        NamespaceError::SearchAttributes { .. } => Error::invalid(
            format!("{}.", capitalize(&text)),
            "Create them in Temporal as Keyword: TammaPhase, TammaState, TammaProject, \
             TammaPriority and TammaRisk.",
        ),
    }
}

/// Returns `true` for an error that may be gone at the next attempt.
fn is_passing(code: Code) -> bool {
    matches!(code, Code::Unavailable | Code::DeadlineExceeded | Code::ResourceExhausted)
}

fn parse_organisation_role(text: &str) -> Result<OrganisationRole, Error> {
    text.trim().parse().map_err(|_| {
        let text: String = text.chars().take(40).collect();
        Error::invalid(
            format!("Unknown role `{text}`."),
            "Use viewer, member, approver or administrator. Nobody can be granted operator: \
             operators hold the server token.",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_organisations_are_plain_words() {
        assert_eq!(parse_organisation_name(" acme-2 ").ok().as_deref(), Some("acme-2"));
        for name in ["", " ", "Acme", "a b", "a/b", "é", &"x".repeat(41)] {
            assert!(parse_organisation_name(name).is_err(), "{name}");
        }
        assert_eq!(parse_namespace(" acme.a1b2c ").ok().as_deref(), Some("acme.a1b2c"));
        for name in ["", "a b", "a/b", "é", &"x".repeat(201)] {
            assert!(parse_namespace(name).is_err(), "{name}");
        }
        assert!(parse_organisation_role("administrator").is_ok());
        assert!(parse_organisation_role("operator").is_err());
    }
}
