//! People at identity providers: who they are here, their groups, and their logins.

use tamma_core::ids::{Digest, Name};
use tamma_core::task_loop::Timestamp;
use uuid::Uuid;

use crate::connection::Store;
use crate::encoding::read_word;
use crate::error::Result;
use crate::people::CHANNEL;

/// Somebody at an identity provider, and the person that they are here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Person.
    pub person: Name,
    /// Set if an operator linked the two, so that the person needs no group.
    pub is_linked: bool,
    /// Set if the account is deactivated.
    pub is_deactivated: bool,
}

/// Sign-in with an identity provider, after all checks.
#[derive(Debug, Clone)]
pub struct NewLogin<'a> {
    /// ID of the login, and those of the identity and the account if they are new.
    pub ids: [Uuid; 3],
    /// Issuer of the provider.
    pub issuer: &'a str,
    /// Subject at the provider.
    pub subject: &'a str,
    /// Person.
    pub person: &'a Name,
    /// Groups at the provider.
    pub groups: &'a [String],
    /// Session at the provider.
    pub sid: Option<&'a str>,
    /// Sealed tokens of the provider.
    pub tokens: &'a str,
    /// Current time.
    pub now: Timestamp,
}

/// Login whose groups may have to be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedLogin {
    /// ID of the login.
    pub id: Uuid,
    /// Issuer of the provider.
    pub issuer: String,
    /// Subject at the provider.
    pub subject: String,
    /// Time of the last check.
    pub checked_at: Timestamp,
}

/// Login that has ended, with the tokens that were deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedLogin {
    /// ID of the login.
    pub id: Uuid,
    /// Issuer of the provider.
    pub issuer: String,
    /// Sealed tokens of the provider.
    pub tokens: String,
    /// Set if another login of the person belongs to the same session at the provider, and could end
    /// with these tokens.
    pub is_shared: bool,
}

/// Result of a check.
#[derive(Debug, Clone, Copy)]
pub enum LoginCheck<'a> {
    /// Person still gets in, with these groups and sealed tokens.
    Admitted {
        /// Groups at the provider.
        groups: &'a [String],
        /// Sealed tokens of the provider.
        tokens: &'a str,
    },
    /// Person has no group any more that gets in: all their logins end.
    NotAdmitted,
    /// Provider refused: this login ends.
    Refused,
    /// Provider did not answer. The next request asks again.
    Unknown {
        /// Sealed tokens, if the provider has replaced them.
        tokens: Option<&'a str>,
    },
}

impl Store {
    /// Returns the identity of a subject, if it is known.
    pub async fn identity(&self, issuer: &str, subject: &str) -> Result<Option<Identity>> {
        let row = sqlx::query!(
            r#"SELECT identities.person AS "person!",
                   identities.linked_by IS NOT NULL AS "is_linked!",
                   accounts.deactivated_at IS NOT NULL AS "is_deactivated!"
               FROM identities
               LEFT JOIN accounts ON lower(accounts.name) = lower(identities.person)
               WHERE issuer = $1 AND subject = $2"#,
            issuer,
            subject,
        )
        .fetch_optional(&self.steps)
        .await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(Identity {
            person: read_word("person", row.person)?,
            is_linked: row.is_linked,
            is_deactivated: row.is_deactivated,
        }))
    }

    /// Links a subject at a provider to a person, before or after its first sign-in. Logins of the
    /// subject as another person end, and all listeners are notified.
    pub async fn link_identity(
        &self,
        ids: [Uuid; 2],
        (issuer, subject): (&str, &str),
        person: &Name,
        by: &Name,
        now: Timestamp,
    ) -> Result<()> {
        let [identity, account] = ids;
        sqlx::query_scalar!(
            r#"WITH account AS (
                   INSERT INTO accounts (id, name, kind, created_by) VALUES ($2, $5, 'person', $6)
                   ON CONFLICT (lower(name)) DO NOTHING
               ),
               ended AS (
                   UPDATE logins SET ended_at = $7, end_reason = 'revoked'
                   FROM identities
                   WHERE identities.id = logins.identity AND logins.ended_at IS NULL
                     AND identities.issuer = $3 AND identities.subject = $4
                     AND lower(identities.person) <> lower($5)
               ),
               linked AS (
                   INSERT INTO identities
                   (id, issuer, subject, person, linked_by, admitted, checked_at)
                   VALUES ($1, $3, $4, $5, $6, true, $7)
                   ON CONFLICT (issuer, subject) DO UPDATE
                   SET person = $5, linked_by = $6, admitted = true
                   RETURNING id
               )
               SELECT pg_notify($8, 'login')::text AS "told" FROM linked"#,
            identity,
            account,
            issuer,
            subject,
            person.to_string(),
            by.to_string(),
            now,
            CHANNEL,
        )
        .fetch_all(&self.steps)
        .await?;
        Ok(())
    }

    /// Saves a login, with the identity and the account if they are new.
    pub async fn add_login(&self, new: &NewLogin<'_>) -> Result<()> {
        let [login, identity, account] = new.ids;
        sqlx::query!(
            "WITH account AS (
                 INSERT INTO accounts (id, name, kind, created_by) VALUES ($3, $6, 'person', $6)
                 ON CONFLICT (lower(name)) DO NOTHING
             ),
             identity AS (
                 INSERT INTO identities
                 (id, issuer, subject, person, groups, admitted, checked_at)
                 VALUES ($2, $4, $5, $6, $7, true, $10)
                 ON CONFLICT (issuer, subject) DO UPDATE
                 SET groups = $7, admitted = true, checked_at = $10
                 RETURNING id
             )
             INSERT INTO logins (id, identity, sid, tokens, checked_at)
             SELECT $1::uuid, identity.id, $8::text, $9::text, $10::timestamptz FROM identity",
            login,
            identity,
            account,
            new.issuer,
            new.subject,
            new.person.to_string(),
            new.groups,
            new.sid,
            new.tokens,
            new.now,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Returns the groups of a person at each issuer. They count only if they were checked after a
    /// time; there are none otherwise.
    pub async fn groups_of(
        &self,
        person: &Name,
        checked_after: Timestamp,
    ) -> Result<Vec<(String, Vec<String>)>> {
        let rows = sqlx::query!(
            r#"SELECT issuer,
                   CASE WHEN admitted AND checked_at > $2 THEN groups ELSE '{}' END AS "groups!"
               FROM identities WHERE lower(person) = lower($1) ORDER BY id"#,
            person.to_string(),
            checked_after,
        )
        .fetch_all(&self.steps)
        .await?;
        Ok(rows.into_iter().map(|row| (row.issuer, row.groups)).collect())
    }

    /// Returns a login, or the newest one of a person, with the time of the last check.
    pub async fn login_to_check(
        &self,
        person: &Name,
        login: Option<Uuid>,
    ) -> Result<Option<CheckedLogin>> {
        let row = sqlx::query!(
            r#"SELECT id AS "id!", issuer AS "issuer!", subject AS "subject!",
                   CASE WHEN $2::uuid IS NULL THEN identity_checked_at ELSE checked_at END
                   AS "checked_at!"
               FROM live_logins
               WHERE id = $2 OR ($2::uuid IS NULL AND lower(person) = lower($1))
               ORDER BY created_at DESC LIMIT 1"#,
            person.to_string(),
            login,
        )
        .fetch_optional(&self.steps)
        .await?;
        Ok(row.map(|row| CheckedLogin {
            id: row.id,
            issuer: row.issuer,
            subject: row.subject,
            checked_at: row.checked_at,
        }))
    }

    /// Claims the check of a login until a time, and returns its sealed tokens. Returns `None` if
    /// another server has claimed it.
    pub async fn claim_login_check(
        &self,
        login: Uuid,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Option<String>> {
        let tokens = sqlx::query_scalar!(
            "UPDATE logins SET checking_until = $3
             WHERE id = $1 AND ended_at IS NULL
               AND (checking_until IS NULL OR checking_until < $2)
             RETURNING tokens",
            login,
            now,
            until,
        )
        .fetch_optional(&self.steps)
        .await?;
        Ok(tokens)
    }

    /// Returns open logins after one, in the order of their IDs, whose sealed tokens do not start with a
    /// text: those that another key has sealed.
    pub async fn logins_sealed_otherwise(
        &self,
        start: &str,
        after: Uuid,
        limit: u32,
    ) -> Result<Vec<(Uuid, String)>> {
        let rows = sqlx::query!(
            "SELECT id, tokens FROM logins
             WHERE ended_at IS NULL AND id > $2 AND NOT starts_with(tokens, $1)
             ORDER BY id LIMIT $3",
            start,
            after,
            i64::from(limit),
        )
        .fetch_all(&self.steps)
        .await?;
        Ok(rows.into_iter().map(|row| (row.id, row.tokens)).collect())
    }

    /// Deletes the tokens of up to `limit` logins that have ended, and returns them. Each is returned once,
    /// to one server.
    pub async fn take_ended_logins(&self, limit: u32) -> Result<Vec<EndedLogin>> {
        let logins = sqlx::query_as!(
            EndedLogin,
            r#"WITH ended AS (
                   SELECT id, tokens FROM logins
                   WHERE ended_at IS NOT NULL AND tokens <> ''
                   ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED
               )
               UPDATE logins SET tokens = ''
               FROM ended, identities
               WHERE logins.id = ended.id AND identities.id = logins.identity
               RETURNING logins.id AS "id!", identities.issuer AS "issuer!",
                   ended.tokens AS "tokens!",
                   EXISTS (
                       SELECT FROM logins AS other
                       WHERE other.identity = logins.identity AND other.ended_at IS NULL
                         AND other.sid IS NOT DISTINCT FROM logins.sid
                   ) AS "is_shared!""#,
            i64::from(limit),
        );
        Ok(logins.fetch_all(&self.steps).await?)
    }

    /// Replaces the sealed tokens of a login, unless a check has replaced them already.
    pub async fn replace_login_tokens(&self, login: Uuid, old: &str, new: &str) -> Result<()> {
        sqlx::query!(
            "UPDATE logins SET tokens = $3 WHERE id = $1 AND tokens = $2",
            login,
            old,
            new,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Saves the result of a check, and notifies all listeners if somebody may have lost a right. A
    /// login that has ended meanwhile admits nobody again.
    pub async fn finish_login_check(
        &self,
        login: Uuid,
        check: LoginCheck<'_>,
        now: Timestamp,
    ) -> Result<()> {
        match check {
            LoginCheck::Admitted { groups, tokens } => {
                sqlx::query_scalar!(
                    r#"WITH login AS (
                           UPDATE logins SET tokens = $2, checked_at = $4, checking_until = NULL
                           WHERE id = $1 AND ended_at IS NULL RETURNING identity
                       ),
                       before AS (
                           SELECT identities.id, identities.groups FROM identities, login
                           WHERE identities.id = login.identity
                       ),
                       identity AS (
                           UPDATE identities SET groups = $3, checked_at = $4, admitted = true
                           FROM before WHERE identities.id = before.id
                           RETURNING before.groups AS groups
                       )
                       SELECT pg_notify($5, 'groups')::text AS "told"
                       FROM identity WHERE groups <> $3"#,
                    login,
                    tokens,
                    groups,
                    now,
                    CHANNEL,
                )
                .fetch_all(&self.steps)
                .await?;
            }
            LoginCheck::NotAdmitted => {
                sqlx::query_scalar!(
                    r#"WITH identity AS (
                           UPDATE identities SET groups = '{}', checked_at = $2, admitted = false
                           FROM logins WHERE logins.id = $1 AND identities.id = logins.identity
                           RETURNING identities.id
                       ),
                       ended AS (
                           UPDATE logins SET ended_at = $2, end_reason = 'not_admitted'
                           FROM identity
                           WHERE logins.identity = identity.id AND logins.ended_at IS NULL
                       )
                       SELECT pg_notify($3, 'groups')::text AS "told" FROM identity"#,
                    login,
                    now,
                    CHANNEL,
                )
                .fetch_all(&self.steps)
                .await?;
            }
            LoginCheck::Refused => {
                sqlx::query_scalar!(
                    r#"WITH ended AS (
                           UPDATE logins SET ended_at = $2, end_reason = 'refused'
                           WHERE id = $1 AND ended_at IS NULL RETURNING id
                       )
                       SELECT pg_notify($3, 'login')::text AS "told" FROM ended"#,
                    login,
                    now,
                    CHANNEL,
                )
                .fetch_all(&self.steps)
                .await?;
            }
            LoginCheck::Unknown { tokens } => {
                sqlx::query!(
                    "UPDATE logins SET checking_until = NULL, tokens = coalesce($2, tokens)
                     WHERE id = $1",
                    login,
                    tokens,
                )
                .execute(&self.steps)
                .await?;
            }
        }
        Ok(())
    }

    /// Ends the logins that a provider's logout names, by its session, its subject or both, and
    /// notifies all listeners. Returns their number.
    pub async fn end_logins(
        &self,
        issuer: &str,
        sid: Option<&str>,
        subject: Option<&str>,
    ) -> Result<u64> {
        let ended = sqlx::query_scalar!(
            r#"WITH ended AS (
                   UPDATE logins
                   SET ended_at = clock_timestamp(), end_reason = 'provider_logout'
                   FROM identities
                   WHERE identities.id = logins.identity AND identities.issuer = $1
                     AND logins.ended_at IS NULL
                     AND ($2::text IS NOT NULL OR $3::text IS NOT NULL)
                     AND ($2::text IS NULL OR logins.sid = $2)
                     AND ($3::text IS NULL OR identities.subject = $3)
                   RETURNING logins.id
               )
               SELECT pg_notify($4, 'login')::text AS "told" FROM ended"#,
            issuer,
            sid,
            subject,
            CHANNEL,
        )
        .fetch_all(&self.steps)
        .await?;
        Ok(u64::try_from(ended.len()).unwrap_or_default())
    }
}

/// Maximum number of browsers that are signing in. A new one takes the place of the oldest.
const MAX_BROWSER_FLOWS: i64 = 10_000;

/// Sign-in that has begun.
#[derive(Debug, Clone)]
pub struct NewSignInFlow<'a> {
    /// Hash of the secret that comes back.
    pub hash: Digest,
    /// Issuer of the provider.
    pub issuer: &'a str,
    /// Hash of the browser's cookie, and the page to return to; `None` for a device.
    pub browser: Option<(Digest, &'a str)>,
    /// Sealed device code, and the seconds between two polls; `None` for a browser.
    pub device: Option<(&'a str, i32)>,
    /// Program, as it calls itself.
    pub client: Option<&'a str>,
    /// End of the flow.
    pub until: Timestamp,
}

/// Device that waits for its person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingDevice {
    /// Sealed device code.
    pub device_code: String,
    /// Program, as it calls itself.
    pub client: Option<String>,
}

impl Store {
    /// Begins a sign-in, and forgets those that have expired, or are too many.
    pub async fn begin_sign_in(&self, new: &NewSignInFlow<'_>) -> Result<()> {
        sqlx::query!(
            "WITH old AS (
                 DELETE FROM sign_in_flows
                 WHERE expires_at < clock_timestamp()
                   OR hash IN (
                       SELECT hash FROM sign_in_flows WHERE browser IS NOT NULL
                       ORDER BY expires_at DESC OFFSET $9
                   )
             )
             INSERT INTO sign_in_flows
             (hash, issuer, browser, return_to, device_code, interval_seconds, client, expires_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            new.hash.to_string(),
            new.issuer,
            new.browser.map(|(cookie, _)| cookie.to_string()),
            new.browser.map(|(_, path)| path),
            new.device.map(|(code, _)| code),
            new.device.map_or(5, |(_, seconds)| seconds),
            new.client,
            new.until,
            MAX_BROWSER_FLOWS - 1,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Ends the sign-in of a browser and returns the page to return to. It works once, and only for
    /// the browser that began it.
    pub async fn take_browser_sign_in(
        &self,
        hash: Digest,
        issuer: &str,
        browser: Digest,
        now: Timestamp,
    ) -> Result<Option<String>> {
        let path = sqlx::query_scalar!(
            r#"DELETE FROM sign_in_flows
               WHERE hash = $1 AND issuer = $2 AND browser = $3 AND expires_at > $4
               RETURNING return_to AS "return_to!""#,
            hash.to_string(),
            issuer,
            browser.to_string(),
            now,
        )
        .fetch_optional(&self.steps)
        .await?;
        Ok(path)
    }

    /// Returns a device that can ask the provider now. Returns `None` if it asks too often, or if
    /// there is no such device.
    pub async fn poll_device_sign_in(
        &self,
        hash: Digest,
        issuer: &str,
        now: Timestamp,
    ) -> Result<Option<WaitingDevice>> {
        let device = sqlx::query_as!(
            WaitingDevice,
            r#"UPDATE sign_in_flows
               SET next_poll_at = $3::timestamptz + make_interval(secs => interval_seconds)
               WHERE hash = $1 AND issuer = $2 AND device_code IS NOT NULL AND expires_at > $3
                 AND (next_poll_at IS NULL OR next_poll_at <= $3)
               RETURNING device_code AS "device_code!", client"#,
            hash.to_string(),
            issuer,
            now,
        );
        Ok(device.fetch_optional(&self.steps).await?)
    }

    /// Returns `true` if a device still waits.
    pub async fn is_device_waiting(&self, hash: Digest, now: Timestamp) -> Result<bool> {
        let waits = sqlx::query_scalar!(
            r#"SELECT EXISTS (
                   SELECT FROM sign_in_flows
                   WHERE hash = $1 AND device_code IS NOT NULL AND expires_at > $2
               ) AS "waits!""#,
            hash.to_string(),
            now,
        )
        .fetch_one(&self.steps)
        .await?;
        Ok(waits)
    }

    /// Makes a device ask less often, as the provider demands.
    pub async fn slow_device_down(&self, hash: Digest) -> Result<()> {
        sqlx::query!(
            "UPDATE sign_in_flows SET interval_seconds = interval_seconds + 5 WHERE hash = $1",
            hash.to_string(),
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Ends the sign-in of a device. Returns `false` if there was none, so that it succeeds once.
    pub async fn end_device_sign_in(&self, hash: Digest) -> Result<bool> {
        let ended = sqlx::query!("DELETE FROM sign_in_flows WHERE hash = $1", hash.to_string())
            .execute(&self.steps)
            .await?;
        Ok(ended.rows_affected() > 0)
    }
}
