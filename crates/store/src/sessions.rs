//! Browser sessions of people who signed in.

use tamma_core::ids::{Digest, Name};
use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::encoding::read_word;
use crate::error::Result;

/// Owner of a browser session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    /// Name of the person.
    pub person: Name,
    /// Hash of the personal token used to sign in; `None` with the server's token.
    pub own_token: Option<Digest>,
}

impl Store {
    /// Opens a session until a time. It also ends when its token stops being valid.
    ///
    /// Only the hash of the session cookie is stored.
    pub async fn open_session(
        &self,
        hash: Digest,
        person: &Name,
        token: Digest,
        until: Timestamp,
    ) -> Result<()> {
        sqlx::query!(
            "WITH old AS (DELETE FROM sessions WHERE expires_at < clock_timestamp())
             INSERT INTO sessions (hash, person, token, expires_at) VALUES ($1, $2, $3, $4)",
            hash.to_string(),
            person.to_string(),
            token.to_string(),
            until,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Returns the owner of an unexpired session.
    ///
    /// The token used to sign in must still be valid: a personal token that is not revoked, or the
    /// server's current token.
    pub async fn session(
        &self,
        hash: Digest,
        servers_own: Digest,
        now: Timestamp,
    ) -> Result<Option<SessionRecord>> {
        let row = sqlx::query!(
            r#"SELECT session.person, people.hash AS "own_token?"
               FROM sessions AS session
               LEFT JOIN people ON people.hash = session.token AND people.revoked_at IS NULL
               WHERE session.hash = $1 AND session.expires_at > $2
                 AND (people.hash IS NOT NULL OR session.token = $3)"#,
            hash.to_string(),
            now,
            servers_own.to_string(),
        )
        .fetch_optional(&self.steps)
        .await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(SessionRecord {
            person: read_word("session", row.person)?,
            own_token: row.own_token.map(|hash| read_word("session", hash)).transpose()?,
        }))
    }

    /// Closes a session. Returns `false` if there was none.
    pub async fn close_session(&self, hash: Digest) -> Result<bool> {
        let closed = sqlx::query!("DELETE FROM sessions WHERE hash = $1", hash.to_string())
            .execute(&self.steps)
            .await?;
        Ok(closed.rows_affected() > 0)
    }
}
