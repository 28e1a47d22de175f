//! What the workers of a pool share: places that few may have at once, and providers that nobody
//! may ask for a while.
//!
//! A lease holds until a time that its holder names and renews. One that is over counts no more, so
//! a worker that dies gives its places back by doing nothing. All times come from the callers; a
//! pool whose clocks differ by less than the length of a lease shares well enough.

use strum::Display;
use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::error::Result;

/// What a place is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Display)]
#[strum(serialize_all = "snake_case")]
pub enum Kind {
    /// Runs of a project, by its id.
    Project,
    /// Runs on a provider, by its name.
    Provider,
}

impl Store {
    /// Takes one of the places of a key, if fewer than `limit` are taken at the time `at`. Returns
    /// whether it has one; a holder that has one already keeps it for longer.
    pub async fn acquire(
        &self,
        (kind, key): (Kind, &str),
        holder: &str,
        limit: u32,
        (at, until): (Timestamp, Timestamp),
    ) -> Result<bool> {
        let kind = kind.to_string();
        let mut transaction = self.steps.begin().await?;
        // Whoever comes second waits here, so two never count the same free place.
        sqlx::query!(
            "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))",
            format!("{kind} {key}")
        )
        .execute(&mut *transaction)
        .await?;
        let taken = sqlx::query_scalar!(
            "WITH over AS (
                DELETE FROM leases
                WHERE kind = $1 AND key = $2 AND holder <> $3 AND until <= $5
             )
             INSERT INTO leases (kind, key, holder, until)
             SELECT $1, $2, $3, $6
             WHERE (
                SELECT count(*) FROM leases
                WHERE kind = $1 AND key = $2 AND holder <> $3 AND until > $5
             ) < $4
             ON CONFLICT (kind, key, holder) DO UPDATE SET until = excluded.until
             RETURNING holder",
            kind,
            key,
            holder,
            i64::from(limit),
            at,
            until,
        )
        .fetch_optional(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(taken.is_some())
    }

    /// Keeps all places of a holder for longer. Returns how many it still had.
    pub async fn renew(&self, holder: &str, until: Timestamp) -> Result<u64> {
        let renewed = sqlx::query!("UPDATE leases SET until = $2 WHERE holder = $1", holder, until)
            .execute(&self.steps)
            .await?;
        Ok(renewed.rows_affected())
    }

    /// Gives all places of a holder back.
    pub async fn release(&self, holder: &str) -> Result<()> {
        sqlx::query!("DELETE FROM leases WHERE holder = $1", holder).execute(&self.steps).await?;
        Ok(())
    }

    /// Lets nobody ask a provider until a time. A later time that is known already stays.
    pub async fn hold(&self, provider: &str, until: Timestamp) -> Result<()> {
        sqlx::query!(
            "INSERT INTO holds (provider, until) VALUES ($1, $2)
             ON CONFLICT (provider) DO UPDATE SET until = greatest(holds.until, excluded.until)",
            provider,
            until,
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Until when nobody may ask a provider, if that is after the time `at`.
    pub async fn held(&self, provider: &str, at: Timestamp) -> Result<Option<Timestamp>> {
        Ok(sqlx::query_scalar!(
            "SELECT until FROM holds WHERE provider = $1 AND until > $2",
            provider,
            at,
        )
        .fetch_optional(&self.steps)
        .await?)
    }
}
