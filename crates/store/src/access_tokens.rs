//! Access tokens with a label, a limit and an end. A person or service account can have several.

use tamma_core::access::TokenLimit;
use tamma_core::ids::{Digest, Name};
use tamma_core::task_loop::Timestamp;
use uuid::Uuid;

use crate::connection::Store;
use crate::credentials::read_limit;
use crate::encoding::{read_word, word};
use crate::error::{CorruptData, Result};
use crate::people::CHANNEL;

/// Token to add.
#[derive(Debug, Clone)]
pub struct NewAccessToken {
    /// ID of the token, which is not secret.
    pub id: Uuid,
    /// Owner.
    pub person: Name,
    /// Label, for the owner's list.
    pub label: String,
    /// Hash of the token. The token is not stored.
    pub hash: Digest,
    /// Limit; `None` for all rights of the owner.
    pub limit: Option<TokenLimit>,
    /// End; `None` if it has none.
    pub expires_at: Option<Timestamp>,
    /// Person who created it.
    pub by: Name,
}

/// Access token in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessToken {
    /// ID of the token, which is not secret.
    pub id: Uuid,
    /// Owner.
    pub person: Name,
    /// Label.
    pub label: String,
    /// Limit; `None` for all rights of the owner.
    pub limit: Option<TokenLimit>,
    /// Person who created it.
    pub created_by: Name,
    /// Time of its creation.
    pub created_at: Timestamp,
    /// End; `None` if it has none.
    pub expires_at: Option<Timestamp>,
    /// Time of the last request, to the minute.
    pub last_used_at: Option<Timestamp>,
    /// Person who revoked it, and the time.
    pub revoked: Option<(Name, Timestamp)>,
}

impl Store {
    /// Adds a token.
    pub async fn add_access_token(&self, new: &NewAccessToken) -> Result<()> {
        let projects = new.limit.as_ref().and_then(|limit| limit.projects.as_ref());
        let projects: Option<Vec<Uuid>> =
            projects.map(|projects| projects.iter().map(|project| project.0).collect());
        sqlx::query!(
            "INSERT INTO access_tokens
             (id, person, label, hash, role, projects, created_by, expires_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            new.id,
            new.person.to_string(),
            new.label,
            new.hash.to_string(),
            new.limit.as_ref().map(|limit| word(&limit.role)),
            projects.as_deref(),
            new.by.to_string(),
            new.expires_at,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Returns current and former tokens of a person, or of everybody, newest first.
    pub async fn access_tokens(&self, person: Option<&Name>) -> Result<Vec<AccessToken>> {
        let rows = sqlx::query!(
            "SELECT id, person, label, role, projects, created_by, created_at, expires_at,
                 last_used_at, revoked_by, revoked_at
             FROM access_tokens WHERE $1::text IS NULL OR lower(person) = lower($1)
             ORDER BY created_at DESC LIMIT 1000",
            person.map(ToString::to_string),
        )
        .fetch_all(&self.steps)
        .await?;
        let read = |name: String| read_word("person", name);
        let tokens = rows.into_iter().map(|row| {
            Ok(AccessToken {
                id: row.id,
                person: read(row.person)?,
                label: row.label,
                limit: read_limit(row.role, row.projects)?,
                created_by: read(row.created_by)?,
                created_at: row.created_at,
                expires_at: row.expires_at,
                last_used_at: row.last_used_at,
                revoked: row.revoked_by.map(read).transpose()?.zip(row.revoked_at),
            })
        });
        Ok(tokens.collect::<Result<_, CorruptData>>()?)
    }

    /// Revokes a token and notifies all listeners. Returns its owner, or `None` if there is no such
    /// token, or not of this person.
    pub async fn revoke_access_token(
        &self,
        id: Uuid,
        owner: Option<&Name>,
        by: &Name,
    ) -> Result<Option<Name>> {
        let person = sqlx::query_scalar!(
            r#"WITH revoked AS (
                   UPDATE access_tokens SET revoked_at = clock_timestamp(), revoked_by = $3
                   WHERE id = $1 AND revoked_at IS NULL
                     AND ($2::text IS NULL OR lower(person) = lower($2))
                   RETURNING person
               )
               SELECT revoked.person AS "person!"
               FROM revoked CROSS JOIN pg_notify($4, 'token') AS told"#,
            id,
            owner.map(ToString::to_string),
            by.to_string(),
            CHANNEL,
        )
        .fetch_optional(&self.steps)
        .await?;
        Ok(person.map(|person| read_word("person", person)).transpose()?)
    }
}
