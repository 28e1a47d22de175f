//! Sessions of people who signed in, in a browser or on the command line.

use serde::{Deserialize, Serialize};
use strum::Display;
use tamma_core::actor::AuthMethod;
use tamma_core::ids::{Digest, Name};
use tamma_core::task_loop::Timestamp;
use uuid::Uuid;

use crate::connection::Store;
use crate::encoding::{read_word, word};
use crate::error::{CorruptData, Result};
use crate::people::CHANNEL;

/// Proof that a session was opened with, and with which it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionProof {
    /// Hash of a token: a person's, or the server's.
    Token(Digest),
    /// Sign-in with an identity provider.
    Login(Uuid),
}

/// Kind of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum SessionKind {
    /// Browser.
    Web,
    /// Command line, after `tamma login`.
    Cli,
    /// Sign-in link, which becomes the session of a browser.
    Link,
}

/// Session to open.
#[derive(Debug, Clone, Copy)]
pub struct NewSession<'a> {
    /// Hash of the secret that the client keeps. The secret is not stored.
    pub hash: Digest,
    /// Person who signed in.
    pub person: &'a Name,
    /// Proof of their identity.
    pub proof: SessionProof,
    /// Kind of the session.
    pub kind: SessionKind,
    /// Program, as it calls itself.
    pub client: Option<&'a str>,
    /// End of the session.
    pub until: Timestamp,
}

/// Session in the list of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenSession {
    /// ID: the start of the hash of its secret.
    pub id: String,
    /// Person who signed in.
    pub person: Name,
    /// Kind of the session.
    pub kind: SessionKind,
    /// Method of the sign-in.
    pub method: AuthMethod,
    /// Program, as it calls itself.
    pub client: Option<String>,
    /// Time of the sign-in.
    pub created_at: Timestamp,
    /// Time of the last request, to the minute.
    pub last_used_at: Option<Timestamp>,
    /// End of the session.
    pub expires_at: Timestamp,
}

impl OpenSession {
    /// Returns the ID of the session with this hash.
    pub fn id_of(hash: Digest) -> String {
        hash.to_string().chars().take(16).collect()
    }
}

impl Store {
    /// Opens a session until a time. It also ends when its proof stops being valid.
    pub async fn open_session(&self, new: NewSession<'_>) -> Result<()> {
        let (token, login) = match new.proof {
            SessionProof::Token(token) => (Some(token.to_string()), None),
            SessionProof::Login(login) => (None, Some(login)),
        };
        sqlx::query!(
            "WITH old AS (DELETE FROM sessions WHERE expires_at < clock_timestamp())
             INSERT INTO sessions (hash, person, token, login, kind, client, expires_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
            new.hash.to_string(),
            new.person.to_string(),
            token,
            login,
            word(&new.kind),
            new.client,
            new.until,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Closes a session, and its login if no other session needs it. Returns `false` if there was
    /// none.
    pub async fn close_session(&self, hash: Digest) -> Result<bool> {
        let closed = sqlx::query_scalar!(
            r#"WITH closed AS (DELETE FROM sessions WHERE hash = $1 RETURNING hash, login),
               ended AS (
                   UPDATE logins SET ended_at = clock_timestamp(), end_reason = 'signed_out'
                   FROM closed
                   WHERE logins.id = closed.login AND logins.ended_at IS NULL
                     AND NOT EXISTS (
                         SELECT FROM sessions AS other
                         WHERE other.login = closed.login AND other.hash <> closed.hash
                     )
               )
               SELECT pg_notify($2, 'session')::text AS "told" FROM closed"#,
            hash.to_string(),
            CHANNEL,
        )
        .fetch_all(&self.steps)
        .await?;
        Ok(!closed.is_empty())
    }

    /// Closes a session by its ID, and the login behind it with all its sessions. Returns its owner,
    /// or `None` if there is no such session, or not of this person.
    pub async fn revoke_session(&self, id: &str, owner: Option<&Name>) -> Result<Option<Name>> {
        let person = sqlx::query_scalar!(
            r#"WITH closed AS (
                   DELETE FROM sessions
                   WHERE left(hash, 16) = $1 AND kind <> 'link'
                     AND ($2::text IS NULL OR lower(person) = lower($2))
                   RETURNING person, login
               ),
               ended AS (
                   UPDATE logins SET ended_at = clock_timestamp(), end_reason = 'revoked'
                   FROM closed WHERE logins.id = closed.login AND logins.ended_at IS NULL
               )
               SELECT closed.person AS "person!"
               FROM closed CROSS JOIN pg_notify($3, 'session') AS told"#,
            id,
            owner.map(ToString::to_string),
            CHANNEL,
        )
        .fetch_optional(&self.steps)
        .await?;
        Ok(person.map(|person| read_word("session", person)).transpose()?)
    }

    /// Returns the sessions of a person, or of everybody, newest first.
    pub async fn open_sessions(
        &self,
        person: Option<&Name>,
        servers_own: Digest,
        now: Timestamp,
    ) -> Result<Vec<OpenSession>> {
        let rows = sqlx::query!(
            r#"SELECT left(session.hash, 16) AS "id!", session.person, session.kind,
                   CASE WHEN login.id IS NOT NULL THEN 'identity_provider'
                        ELSE coalesce(token.method, 'server_token') END AS "method!",
                   session.client, session.created_at, session.last_used_at, session.expires_at
               FROM sessions AS session
               LEFT JOIN live_tokens AS token
                   ON token.hash = session.token
                   AND (token.expires_at IS NULL OR token.expires_at > $2)
               LEFT JOIN live_logins AS login ON login.id = session.login
               WHERE session.expires_at > $2 AND session.kind <> 'link'
                 AND ($1::text IS NULL OR lower(session.person) = lower($1))
                 AND (token.hash IS NOT NULL OR login.id IS NOT NULL OR session.token = $3)
               ORDER BY session.created_at DESC LIMIT 500"#,
            person.map(ToString::to_string),
            now,
            servers_own.to_string(),
        )
        .fetch_all(&self.steps)
        .await?;
        let sessions = rows.into_iter().map(|row| {
            Ok(OpenSession {
                id: row.id,
                person: read_word("session", row.person)?,
                kind: read_word("kind of session", row.kind)?,
                method: read_word("method of a credential", row.method)?,
                client: row.client,
                created_at: row.created_at,
                last_used_at: row.last_used_at,
                expires_at: row.expires_at,
            })
        });
        Ok(sessions.collect::<Result<_, CorruptData>>()?)
    }
}
