//! People who have a token of their own, and so are who they say.

use tamma_core::ids::{Digest, Name};
use tamma_core::task_loop::Timestamp;
use uuid::Uuid;

use crate::connection::Store;
use crate::ear::Ear;
use crate::error::Result;
use crate::spelling::read_word;

const CHANNEL: &str = "tamma_people";

/// Somebody who has a token, or had one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// Their name.
    pub name: Name,
    /// Who gave it to them.
    pub added_by: Name,
    /// When.
    pub added_at: Timestamp,
    /// Who took it away, and when.
    pub revoked: Option<(Name, Timestamp)>,
}

/// Tokens that are taken away, as they are. See [`Store::revocations`].
#[derive(Debug)]
pub struct Revocations(Ear);

impl Store {
    /// Gives somebody a token, of which only the hash is kept. A person has one at a time.
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

    /// Takes somebody's token away. Returns whether they had one. Every listener is told.
    pub async fn revoke_person(&self, name: &Name, by: &Name) -> Result<bool> {
        let told = sqlx::query_scalar!(
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
        Ok(!told.is_empty())
    }

    /// Whose token has this hash, if it was not taken away.
    pub async fn person_with(&self, hash: Digest) -> Result<Option<Name>> {
        let name = sqlx::query_scalar!(
            "SELECT name FROM people WHERE hash = $1 AND revoked_at IS NULL",
            hash.to_string(),
        )
        .fetch_optional(&self.steps)
        .await?;
        Ok(name.map(|name| read_word("person", name)).transpose()?)
    }

    /// Everybody who has a token or had one, by name and the newest token first.
    pub async fn people(&self) -> Result<Vec<Person>> {
        let rows = sqlx::query!(
            "SELECT name, added_by, added_at, revoked_by, revoked_at FROM people
             ORDER BY lower(name), added_at DESC",
        )
        .fetch_all(&self.lists)
        .await?;
        let mut people = Vec::new();
        for row in rows {
            let read = |name: String| read_word("person", name);
            people.push(Person {
                name: read(row.name)?,
                added_by: read(row.added_by)?,
                added_at: row.added_at,
                revoked: row.revoked_by.map(read).transpose()?.zip(row.revoked_at),
            });
        }
        Ok(people)
    }

    /// Listens for tokens that are taken away.
    pub async fn revocations(&self) -> Result<Revocations> {
        Ok(Revocations(Ear::open(&self.lists, CHANNEL).await?))
    }
}

impl Revocations {
    /// Waits until a token may have been taken away: one was, or it could not be heard for a while.
    pub async fn next(&mut self) -> Result<()> {
        self.0.next().await.map(drop)
    }
}
