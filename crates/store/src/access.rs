//! Roles of people in projects, and the changes that led to them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use strum::Display;
use tamma_core::access::PersonRole;
use tamma_core::ids::{Name, ProjectId};
use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::encoding::{read_word, word};
use crate::error::{CorruptData, Result};
use crate::people::CHANNEL;

/// Reason for a change of access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum AccessSource {
    /// An operator granted a role.
    Granted,
    /// An operator took a role away.
    Revoked,
    /// An operator imported the roles in the repository's configuration.
    Imported,
}

/// Change of a role in a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessChange {
    /// Project in which the role applies.
    pub project: ProjectId,
    /// Person; `None` for everybody without a role of their own.
    pub person: Option<Name>,
    /// New role; `None` if it was taken away.
    pub role: Option<PersonRole>,
    /// Operator who made the change.
    pub by: Name,
    /// Method that identified the operator.
    pub auth_method: String,
    /// Reason for the change.
    pub source: AccessSource,
    /// Time of the change.
    pub at: Timestamp,
}

/// Roles in one project.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProjectRoles {
    /// Role of everybody who is not named; `None` if they have none.
    pub everybody: Option<PersonRole>,
    /// Roles by name.
    pub named: BTreeMap<String, PersonRole>,
}

impl Store {
    /// Adds changes of access, all or none, and notifies all listeners. Their time is the
    /// database's.
    pub async fn change_access(&self, changes: &[AccessChange]) -> Result<()> {
        let mut writing = self.begin_writing().await?;
        for change in changes {
            sqlx::query_scalar!(
                r#"WITH changed AS (
                       INSERT INTO access_changes
                       (project, person, role, changed_by, auth_method, source)
                       VALUES ($1, $2, $3, $4, $5, $6)
                       RETURNING id
                   )
                   SELECT pg_notify($7, id::text)::text AS "told" FROM changed"#,
                change.project.0,
                change.person.as_ref().map(ToString::to_string),
                change.role.as_ref().map(word),
                change.by.to_string(),
                change.auth_method,
                word(&change.source),
                CHANNEL,
            )
            .fetch_all(&mut *writing)
            .await?;
        }
        writing.commit().await?;
        Ok(())
    }

    /// Returns the roles in a project.
    pub async fn project_roles(&self, project: ProjectId) -> Result<ProjectRoles> {
        let rows = sqlx::query!(
            r#"SELECT DISTINCT ON (lower(person)) person, role
               FROM access_changes WHERE project = $1 AND ($2::bool OR project = ANY($3::uuid []))
               ORDER BY lower(person), id DESC"#,
            project.0,
            self.reads_all(),
            self.readable_projects(),
        )
        .fetch_all(&self.reads)
        .await?;
        let mut roles = ProjectRoles::default();
        for row in rows {
            let Some(role) = row.role else { continue };
            let role = read_word("role", role)?;
            match row.person {
                Some(person) => {
                    roles.named.insert(person, role);
                }
                None => roles.everybody = Some(role),
            }
        }
        Ok(roles)
    }

    /// Returns the newest changes of access in a project, or in all projects, newest first.
    pub async fn access_changes(
        &self,
        project: Option<ProjectId>,
        limit: u32,
    ) -> Result<Vec<AccessChange>> {
        let rows = sqlx::query!(
            "SELECT project, person, role, changed_by, auth_method, source, at
             FROM access_changes
             WHERE ($1::uuid IS NULL OR project = $1)
                AND ($3::bool OR project = ANY($4::uuid []))
             ORDER BY id DESC LIMIT $2",
            project.map(|project| project.0),
            i64::from(limit),
            self.reads_all(),
            self.readable_projects(),
        )
        .fetch_all(&self.lists)
        .await?;
        let changes = rows.into_iter().map(|row| {
            Ok(AccessChange {
                project: ProjectId(row.project),
                person: row.person.map(|person| read_word("person", person)).transpose()?,
                role: row.role.map(|role| read_word("role", role)).transpose()?,
                by: read_word("person", row.changed_by)?,
                auth_method: row.auth_method,
                source: read_word("change of access", row.source)?,
                at: row.at,
            })
        });
        Ok(changes.collect::<Result<_, CorruptData>>()?)
    }
}
