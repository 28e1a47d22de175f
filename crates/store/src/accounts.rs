//! Accounts: service accounts, people from identity providers, and everybody who was deactivated.

use serde::{Deserialize, Serialize};
use strum::Display;
use tamma_core::ids::Name;
use tamma_core::task_loop::Timestamp;
use uuid::Uuid;

use crate::connection::Store;
use crate::encoding::{read_word, word};
use crate::error::{CorruptData, Result};
use crate::people::CHANNEL;

/// Kind of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum AccountKind {
    /// Person.
    Person,
    /// Program, which has tokens and cannot sign in.
    Service,
}

/// Account of a person or a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Name.
    pub name: Name,
    /// Kind.
    pub kind: AccountKind,
    /// Operator who created it, or the person at their first sign-in.
    pub created_by: Name,
    /// Time of its creation.
    pub created_at: Timestamp,
    /// Operator who deactivated it, and the time.
    pub deactivated: Option<(Name, Timestamp)>,
    /// Identity providers' issuers, with the subject at each.
    pub identities: Vec<(String, String)>,
}

impl Store {
    /// Returns `true` if a name belongs to somebody: a token, an account, an identity or a role.
    pub async fn is_name_used(&self, name: &Name) -> Result<bool> {
        let used = sqlx::query_scalar!(
            r#"SELECT EXISTS (SELECT FROM people WHERE lower(name) = lower($1))
                   OR EXISTS (SELECT FROM accounts WHERE lower(name) = lower($1))
                   OR EXISTS (SELECT FROM access_tokens WHERE lower(person) = lower($1))
                   OR EXISTS (SELECT FROM identities WHERE lower(person) = lower($1))
                   OR EXISTS (SELECT FROM access_changes WHERE lower(person) = lower($1))
                   OR EXISTS (
                       SELECT FROM organisation_access_changes WHERE lower(person) = lower($1)
                   )
                   AS "used!""#,
            name.to_string(),
        )
        .fetch_one(&self.steps)
        .await?;
        Ok(used)
    }

    /// Adds a service account. The name must be new.
    pub async fn add_service_account(&self, id: Uuid, name: &Name, by: &Name) -> Result<()> {
        sqlx::query!(
            "INSERT INTO accounts (id, name, kind, created_by) VALUES ($1, $2, $3, $4)",
            id,
            name.to_string(),
            word(&AccountKind::Service),
            by.to_string(),
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Returns the kind of an account; a person, if nothing else is recorded.
    pub async fn account_kind(&self, name: &Name) -> Result<AccountKind> {
        let kind = sqlx::query_scalar!(
            "SELECT kind FROM accounts WHERE lower(name) = lower($1)",
            name.to_string(),
        )
        .fetch_optional(&self.steps)
        .await?;
        let kind = kind.map(|kind| read_word("kind of account", kind)).transpose()?;
        Ok(kind.unwrap_or(AccountKind::Person))
    }

    /// Returns `true` if a person came from an identity provider and has no group there any more that
    /// lets them in. Their tokens count for nothing.
    pub async fn has_lost_groups(&self, name: &Name) -> Result<bool> {
        let lost = sqlx::query_scalar!(
            r#"SELECT EXISTS (SELECT FROM lost_people WHERE name = lower($1)) AS "lost!""#,
            name.to_string(),
        )
        .fetch_one(&self.steps)
        .await?;
        Ok(lost)
    }

    /// Deactivates an account, ends its logins and sessions, and notifies all listeners. Its tokens
    /// count for nothing until it is activated again. Returns `false` if it was deactivated before.
    pub async fn deactivate_account(&self, id: Uuid, name: &Name, by: &Name) -> Result<bool> {
        let notified = sqlx::query_scalar!(
            r#"WITH deactivated AS (
                   INSERT INTO accounts
                   (id, name, kind, created_by, deactivated_by, deactivated_at)
                   VALUES ($1, $2, 'person', $3, $3, clock_timestamp())
                   ON CONFLICT (lower(name)) DO UPDATE
                   SET deactivated_by = $3, deactivated_at = clock_timestamp()
                   WHERE accounts.deactivated_at IS NULL
                   RETURNING id
               ),
               ended AS (
                   UPDATE logins SET ended_at = clock_timestamp(), end_reason = 'deactivated'
                   FROM identities, deactivated
                   WHERE identities.id = logins.identity AND logins.ended_at IS NULL
                     AND lower(identities.person) = lower($2)
               ),
               closed AS (
                   DELETE FROM sessions USING deactivated
                   WHERE lower(person) = lower($2) AND login IS NOT NULL
               )
               SELECT pg_notify($4, 'account')::text AS "told" FROM deactivated"#,
            id,
            name.to_string(),
            by.to_string(),
            CHANNEL,
        )
        .fetch_all(&self.steps)
        .await?;
        Ok(!notified.is_empty())
    }

    /// Activates an account again. Returns `false` if it was not deactivated.
    pub async fn activate_account(&self, name: &Name) -> Result<bool> {
        let activated = sqlx::query!(
            "UPDATE accounts SET deactivated_by = NULL, deactivated_at = NULL
             WHERE lower(name) = lower($1) AND deactivated_at IS NOT NULL",
            name.to_string(),
        )
        .execute(&self.steps)
        .await?;
        Ok(activated.rows_affected() > 0)
    }

    /// Returns all accounts by name.
    pub async fn accounts(&self) -> Result<Vec<Account>> {
        let rows = sqlx::query!(
            r#"SELECT name, kind, created_by, created_at, deactivated_by, deactivated_at,
                   array(
                       SELECT issuer FROM identities
                       WHERE lower(identities.person) = lower(accounts.name) ORDER BY id
                   ) AS "issuers!",
                   array(
                       SELECT subject FROM identities
                       WHERE lower(identities.person) = lower(accounts.name) ORDER BY id
                   ) AS "subjects!"
               FROM accounts ORDER BY lower(name)"#,
        )
        .fetch_all(&self.steps)
        .await?;
        let read = |name: String| read_word("person", name);
        let accounts = rows.into_iter().map(|row| {
            Ok(Account {
                name: read(row.name)?,
                kind: read_word("kind of account", row.kind)?,
                created_by: read(row.created_by)?,
                created_at: row.created_at,
                deactivated: row.deactivated_by.map(read).transpose()?.zip(row.deactivated_at),
                identities: row.issuers.into_iter().zip(row.subjects).collect(),
            })
        });
        Ok(accounts.collect::<Result<_, CorruptData>>()?)
    }
}
