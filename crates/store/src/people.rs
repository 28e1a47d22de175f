//! Personal access tokens, which prove a person's identity.

use tamma_core::ids::{Digest, Name};
use tamma_core::task_loop::Timestamp;
use uuid::Uuid;

use crate::connection::Store;
use crate::encoding::read_word;
use crate::error::Result;
use crate::listener::Listener;

/// Channel of changes that can end a person's rights.
pub(crate) const CHANNEL: &str = "tamma_people";

/// Current or former token of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonToken {
    /// Name of the person.
    pub name: Name,
    /// Operator who created the token.
    pub added_by: Name,
    /// Time of its creation.
    pub added_at: Timestamp,
    /// Time of the last request, to the minute.
    pub last_used_at: Option<Timestamp>,
    /// Operator who revoked it, and the time.
    pub revoked: Option<(Name, Timestamp)>,
}

/// Stream of revoked tokens and changed roles; see [`Store::revocations`].
#[derive(Debug)]
pub struct Revocations(Listener);

impl Store {
    /// Adds a token for a person. Only its hash is stored. A person has one token at a time.
    pub async fn add_person(&self, id: Uuid, name: &Name, hash: Digest, by: &Name) -> Result<()> {
        sqlx::query!(
            "INSERT INTO people (id, name, hash, added_by) VALUES ($1, $2, $3, $4)",
            id,
            name.to_string(),
            hash.to_string(),
            by.to_string(),
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Revokes a person's token and notifies all listeners. Returns `false` if there was none.
    pub async fn revoke_person(&self, name: &Name, by: &Name) -> Result<bool> {
        let notified = sqlx::query_scalar!(
            r#"WITH revoked AS (
                   UPDATE people SET revoked_at = clock_timestamp(), revoked_by = $2
                   WHERE lower(name) = lower($1) AND revoked_at IS NULL
                   RETURNING id
               )
               SELECT pg_notify($3, id::text)::text AS "told" FROM revoked"#,
            name.to_string(),
            by.to_string(),
            CHANNEL,
        )
        .fetch_all(&self.steps)
        .await?;
        Ok(!notified.is_empty())
    }

    /// Returns current and former tokens by name, newest first.
    pub async fn people(&self) -> Result<Vec<PersonToken>> {
        let rows = sqlx::query!(
            "SELECT name, added_by, added_at, last_used_at, revoked_by, revoked_at FROM people
             ORDER BY lower(name), added_at DESC",
        )
        .fetch_all(&self.steps)
        .await?;
        let mut people = Vec::new();
        for row in rows {
            let read = |name: String| read_word("person", name);
            people.push(PersonToken {
                name: read(row.name)?,
                added_by: read(row.added_by)?,
                added_at: row.added_at,
                last_used_at: row.last_used_at,
                revoked: row.revoked_by.map(read).transpose()?.zip(row.revoked_at),
            });
        }
        Ok(people)
    }

    /// Subscribes to revoked tokens and changed roles.
    pub async fn revocations(&self) -> Result<Revocations> {
        Ok(Revocations(Listener::open(&self.lists, CHANNEL).await?))
    }
}

impl Revocations {
    /// Waits until somebody may have lost a right: a token was revoked, a role was changed, or
    /// notifications were lost for a while.
    pub async fn next(&mut self) -> Result<()> {
        self.0.next().await.map(drop)
    }
}
