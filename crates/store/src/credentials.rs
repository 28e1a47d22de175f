//! Credentials that requests carry: access tokens, and sessions of browsers and of the command line.

use tamma_core::access::{PersonRole, TokenLimit};
use tamma_core::actor::AuthMethod;
use tamma_core::ids::{Digest, Name, ProjectId};
use tamma_core::task_loop::Timestamp;
use uuid::Uuid;

use crate::connection::Store;
use crate::encoding::read_word;
use crate::error::{CorruptData, Result};
use crate::sessions::SessionProof;

/// Valid credential of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// Owner.
    pub person: Name,
    /// Method that identified the owner.
    pub method: AuthMethod,
    /// Limit of the token; `None` without one.
    pub limit: Option<TokenLimit>,
    /// Sign-in with an identity provider that it ends with; `None` for a token.
    pub login: Option<Uuid>,
    /// Time of an earlier request, to the minute.
    pub last_used_at: Option<Timestamp>,
}

/// Owner of a browser session or of a sign-in link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    /// Name of the person.
    pub person: Name,
    /// Credential of the person; `None` with the server's token.
    pub credential: Option<Credential>,
    /// Proof that the session was opened with.
    pub proof: SessionProof,
}

impl Store {
    /// Returns the credential with this hash: a token, or a session of the command line. It must be
    /// unexpired and not revoked, and its owner active.
    pub async fn credential(&self, hash: Digest, now: Timestamp) -> Result<Option<Credential>> {
        let row = sqlx::query!(
            r#"SELECT person AS "person!", method AS "method!", role AS "role?",
                   projects AS "projects?", NULL::uuid AS "login?", last_used_at AS "last_used_at?"
               FROM live_tokens
               WHERE hash = $1 AND (expires_at IS NULL OR expires_at > $2)
               UNION ALL
               SELECT live_logins.person, 'identity_provider', NULL, NULL, live_logins.id,
                   session.last_used_at
               FROM sessions AS session
               INNER JOIN live_logins ON live_logins.id = session.login
               WHERE session.hash = $1 AND session.kind = 'cli' AND session.expires_at > $2
               LIMIT 1"#,
            hash.to_string(),
            now,
        )
        .fetch_optional(&self.steps)
        .await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(Credential {
            person: read_word("person", row.person)?,
            method: read_word("method of a credential", row.method)?,
            limit: read_limit(row.role, row.projects)?,
            login: row.login,
            last_used_at: row.last_used_at,
        }))
    }

    /// Returns the owner of an unexpired session.
    ///
    /// The proof used to sign in must still be valid: a token, a login, or the server's current
    /// token.
    pub async fn session(
        &self,
        hash: Digest,
        servers_own: Digest,
        now: Timestamp,
    ) -> Result<Option<SessionRecord>> {
        let row = sqlx::query!(
            r#"SELECT session.person AS "person!", session.token AS "token?",
                   session.last_used_at AS "last_used_at?", token.method AS "method?",
                   token.role AS "role?", token.projects AS "projects?", login.id AS "login?"
               FROM sessions AS session
               LEFT JOIN live_tokens AS token
                   ON token.hash = session.token
                   AND (token.expires_at IS NULL OR token.expires_at > $2)
               LEFT JOIN live_logins AS login ON login.id = session.login
               WHERE session.hash = $1 AND session.expires_at > $2 AND session.kind <> 'cli'
                 AND (token.hash IS NOT NULL OR login.id IS NOT NULL OR session.token = $3)"#,
            hash.to_string(),
            now,
            servers_own.to_string(),
        )
        .fetch_optional(&self.steps)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let person: Name = read_word("session", row.person)?;
        let method = match (&row.login, row.method) {
            (Some(_), _) => Some(AuthMethod::IdentityProvider),
            (None, Some(method)) => Some(read_word("method of a credential", method)?),
            (None, None) => None,
        };
        let proof = match (row.login, row.token) {
            (Some(login), _) => SessionProof::Login(login),
            (None, token) => SessionProof::Token(read_word("session", token.unwrap_or_default())?),
        };
        let limit = read_limit(row.role, row.projects)?;
        let credential = method.map(|method| Credential {
            person: person.clone(),
            method,
            limit,
            login: row.login,
            last_used_at: row.last_used_at,
        });
        Ok(Some(SessionRecord { person, credential, proof }))
    }

    /// Records that a credential was used.
    pub async fn touch_credential(&self, hash: Digest, now: Timestamp) -> Result<()> {
        sqlx::query!(
            "WITH first_token AS (UPDATE people SET last_used_at = $2 WHERE hash = $1),
             token AS (UPDATE access_tokens SET last_used_at = $2 WHERE hash = $1)
             UPDATE sessions SET last_used_at = $2 WHERE hash = $1",
            hash.to_string(),
            now,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }
}

/// Decodes the limit of a token.
pub(crate) fn read_limit(
    role: Option<String>,
    projects: Option<Vec<Uuid>>,
) -> Result<Option<TokenLimit>, CorruptData> {
    if role.is_none() && projects.is_none() {
        return Ok(None);
    }
    let role = role.map(|role| read_word("role", role)).transpose()?;
    let projects = projects.map(|projects| projects.into_iter().map(ProjectId).collect());
    Ok(Some(TokenLimit { role: role.unwrap_or(PersonRole::Approver), projects }))
}
