//! Organisations, the projects that they own, and the roles of people in them.

use std::collections::BTreeMap;

use tamma_core::access::{GrantSource, OrganisationRole, RoleGrant};
use tamma_core::ids::{Name, OrganisationId, ProjectId};
use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::encoding::{read_word, word};
use crate::error::{CorruptData, Error, Result};
use crate::people::CHANNEL;

/// Migration since which programs know organisations and their namespaces.
const KNOWN_SINCE: i64 = 35;

/// Organisation with its projects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Organisation {
    /// ID of the organisation.
    pub id: OrganisationId,
    /// Unique name.
    pub name: String,
    /// Temporal namespace of its workflows; `None` for that of the installation.
    pub namespace: Option<String>,
    /// Operator who added it; `None` for the default one.
    pub created_by: Option<String>,
    /// Time at which it was added.
    pub created_at: Timestamp,
    /// Names of its projects, in order.
    pub projects: BTreeMap<String, ProjectId>,
}

/// Change of a person's role in an organisation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrganisationChange {
    /// Organisation in which the role applies.
    pub organisation: OrganisationId,
    /// Person.
    pub person: Name,
    /// New role; `None` if it was taken away.
    pub role: Option<OrganisationRole>,
    /// Person who made the change.
    pub by: Name,
    /// Method that identified them.
    pub auth_method: String,
}

impl Store {
    /// Adds an organisation with the namespace of its workflows. From then on, programs that do not know
    /// organisations refuse to start.
    pub async fn add_organisation(
        &self,
        id: OrganisationId,
        (name, namespace): (&str, Option<&str>),
        created_by: &Name,
    ) -> Result<()> {
        sqlx::query!(
            "WITH raised AS (
                 UPDATE schema_compatibility SET oldest_version = greatest(oldest_version, $4)
             )
             INSERT INTO organisations (id, name, created_by, namespace) VALUES ($1, $2, $3, $5)",
            id.0,
            name,
            created_by.to_string(),
            KNOWN_SINCE,
            namespace,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Returns all organisations by name, also those in which the caller has no role.
    pub async fn organisations(&self) -> Result<Vec<Organisation>> {
        let rows = sqlx::query!(
            r#"SELECT organisations.id, organisations.name, organisations.namespace,
                   organisations.created_by, organisations.created_at, projects.id AS "project?",
                   projects.name AS "project_name?"
               FROM organisations
               LEFT JOIN projects ON projects.organisation = organisations.id
               ORDER BY organisations.name, projects.name"#
        )
        .fetch_all(&self.steps)
        .await?;
        let mut organisations: Vec<Organisation> = Vec::new();
        for row in rows {
            let id = OrganisationId(row.id);
            if organisations.last().is_none_or(|last| last.id != id) {
                organisations.push(Organisation {
                    id,
                    name: row.name,
                    namespace: row.namespace,
                    created_by: row.created_by,
                    created_at: row.created_at,
                    projects: BTreeMap::new(),
                });
            }
            if let (Some(last), Some(project), Some(name)) =
                (organisations.last_mut(), row.project, row.project_name)
            {
                last.projects.insert(name, ProjectId(project));
            }
        }
        Ok(organisations)
    }

    /// Gives a project to an organisation, and notifies all listeners.
    pub async fn move_project(
        &self,
        project: ProjectId,
        organisation: OrganisationId,
    ) -> Result<()> {
        let moved = sqlx::query_scalar!(
            r#"WITH moved AS (
                   UPDATE projects SET organisation = $2 WHERE id = $1 RETURNING id
               )
               SELECT pg_notify($3, id::text)::text AS "told" FROM moved"#,
            project.0,
            organisation.0,
            CHANNEL,
        )
        .fetch_all(&self.steps)
        .await?;
        if moved.is_empty() {
            return Err(Error::NotFound { what: "project", key: project.to_string() });
        }
        Ok(())
    }

    /// Adds a change of a role in an organisation, and notifies all listeners.
    pub async fn change_organisation_role(&self, change: &OrganisationChange) -> Result<()> {
        sqlx::query_scalar!(
            r#"WITH changed AS (
                   INSERT INTO organisation_access_changes
                   (organisation, person, role, changed_by, auth_method)
                   VALUES ($1, $2, $3, $4, $5)
                   RETURNING id
               )
               SELECT pg_notify($6, id::text)::text AS "told" FROM changed"#,
            change.organisation.0,
            change.person.to_string(),
            change.role.as_ref().map(word),
            change.by.to_string(),
            change.auth_method,
            CHANNEL,
        )
        .fetch_all(&self.steps)
        .await?;
        Ok(())
    }

    /// Returns the roles of people in an organisation, by name.
    pub async fn organisation_roles(
        &self,
        organisation: OrganisationId,
    ) -> Result<BTreeMap<String, OrganisationRole>> {
        let rows = sqlx::query!(
            "SELECT DISTINCT ON (lower(person)) person, role
             FROM organisation_access_changes WHERE organisation = $1
             ORDER BY lower(person), id DESC",
            organisation.0,
        )
        .fetch_all(&self.steps)
        .await?;
        let held = rows.into_iter().filter_map(|row| Some((row.person, row.role?)));
        let roles = held.map(|(person, role)| Ok((person, read_word("role", role)?)));
        Ok(roles.collect::<Result<_, CorruptData>>()?)
    }

    /// Returns the newest grant of a person from each source in each project: of their own, to
    /// everybody, and in organisations. Roles that were taken away have none.
    ///
    /// People of identity providers have no part in grants to everybody if none of `issuers`, those in
    /// use, is theirs: they would be in the default organisation, wherever their groups have put them.
    pub async fn grants_of(&self, person: &Name, issuers: &[String]) -> Result<Vec<RoleGrant>> {
        let rows = sqlx::query!(
            r#"SELECT projects.organisation AS "organisation!", projects.id AS "project?",
                   CASE WHEN newest.person IS NULL THEN 'everybody' ELSE 'own' END AS "source!",
                   newest.role AS "role?"
               FROM (
                   SELECT DISTINCT ON (project, person IS NULL) project, person, role
                   FROM access_changes
                   WHERE lower(person) = lower($1) OR (
                       person IS NULL
                       AND coalesce((
                           SELECT bool_or(identities.issuer = ANY($2::text []))
                           FROM identities WHERE lower(identities.person) = lower($1)
                       ), true)
                   )
                   ORDER BY project, person IS NULL, id DESC
               ) AS newest
               INNER JOIN projects ON projects.id = newest.project
               UNION ALL
               SELECT newest.organisation, projects.id, 'organisation', newest.role
               FROM (
                   SELECT DISTINCT ON (organisation) organisation, role
                   FROM organisation_access_changes WHERE lower(person) = lower($1)
                   ORDER BY organisation, id DESC
               ) AS newest
               LEFT JOIN projects ON projects.organisation = newest.organisation"#,
            person.to_string(),
            issuers,
        )
        .fetch_all(&self.steps)
        .await?;
        let grants = rows.into_iter().map(|row| {
            Ok(RoleGrant {
                organisation: OrganisationId(row.organisation),
                project: row.project.map(ProjectId),
                source: match row.source.as_str() {
                    "own" => GrantSource::Own,
                    "everybody" => GrantSource::Everybody,
                    _ => GrantSource::Organisation,
                },
                role: row.role.map(|role| read_word("role", role)).transpose()?,
            })
        });
        Ok(grants.collect::<Result<_, CorruptData>>()?)
    }
}
