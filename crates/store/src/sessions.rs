//! Browsers of people who have come in by the front door.

use tamma_core::ids::{Digest, Name};
use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::error::Result;
use crate::spelling::read_word;

/// Whose browser it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Their name.
    pub person: Name,
    /// The hash of their own token, where they came in with one.
    pub own_token: Option<Digest>,
}

impl Store {
    /// Lets somebody in until a time, for as long as the token is good that they have shown. Of what
    /// their browser carries only the hash is kept.
    pub async fn open_session(
        &self,
        hash: Digest,
        person: &Name,
        token: Option<Digest>,
        until: Timestamp,
    ) -> Result<()> {
        sqlx::query!(
            "WITH old AS (DELETE FROM sessions WHERE expires_at < clock_timestamp())
             INSERT INTO sessions (hash, person, token, expires_at) VALUES ($1, $2, $3, $4)",
            hash.to_string(),
            person.to_string(),
            token.map(|token| token.to_string()),
            until,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Whose browser it is, if it has a session that is not over. The token it came in with has to be
    /// good still: a person's that was not revoked, or the server's own as it is now.
    pub async fn session(
        &self,
        hash: Digest,
        servers_own: Option<Digest>,
        now: Timestamp,
    ) -> Result<Option<Session>> {
        let row = sqlx::query!(
            r#"SELECT session.person, people.hash AS "own_token?"
               FROM sessions AS session
               LEFT JOIN people ON people.hash = session.token AND people.revoked_at IS NULL
               WHERE session.hash = $1 AND session.expires_at > $2
                 AND (people.hash IS NOT NULL OR session.token IS NOT DISTINCT FROM $3)"#,
            hash.to_string(),
            now,
            servers_own.map(|token| token.to_string()),
        )
        .fetch_optional(&self.steps)
        .await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(Session {
            person: read_word("session", row.person)?,
            own_token: row.own_token.map(|hash| read_word("session", hash)).transpose()?,
        }))
    }

    /// Shows somebody out.
    pub async fn close_session(&self, hash: Digest) -> Result<()> {
        sqlx::query!("DELETE FROM sessions WHERE hash = $1", hash.to_string())
            .execute(&self.steps)
            .await?;
        Ok(())
    }
}
