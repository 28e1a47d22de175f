//! Leases that limit concurrent runs, and provider blocks. Both are shared by all workers.
//!
//! A lease expires unless its holder renews it, so a crashed worker frees its capacity without any
//! cleanup. Callers supply all timestamps; their clocks must agree to within one lease duration.

use strum::Display;
use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::error::Result;

/// Resource that limits concurrent runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Display)]
#[strum(serialize_all = "snake_case")]
pub enum LeaseResource {
    /// Project, identified by its ID.
    Project,
    /// Model provider, identified by its name.
    Provider,
}

impl Store {
    /// Acquires a lease, or extends the one that `holder` already has.
    ///
    /// Returns `false` if at least `limit` other holders have an unexpired lease at `at`.
    pub async fn acquire_lease(
        &self,
        (kind, key): (LeaseResource, &str),
        holder: &str,
        limit: u32,
        (at, until): (Timestamp, Timestamp),
    ) -> Result<bool> {
        let kind = kind.to_string();
        let mut transaction = self.steps.begin().await?;
        // Serialise per key, so that two workers never count the same free slot.
        sqlx::query!(
            "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))",
            format!("{kind} {key}")
        )
        .execute(&mut *transaction)
        .await?;
        let acquired = sqlx::query_scalar!(
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
        Ok(acquired.is_some())
    }

    /// Extends all leases of `holder` and returns how many it still has.
    pub async fn renew_leases(&self, holder: &str, until: Timestamp) -> Result<u64> {
        let renewed = sqlx::query!("UPDATE leases SET until = $2 WHERE holder = $1", holder, until)
            .execute(&self.steps)
            .await?;
        Ok(renewed.rows_affected())
    }

    /// Releases all leases of `holder`.
    pub async fn release_leases(&self, holder: &str) -> Result<()> {
        sqlx::query!("DELETE FROM leases WHERE holder = $1", holder).execute(&self.steps).await?;
        Ok(())
    }

    /// Blocks new runs on `provider` until a time. An existing later block stays in place.
    pub async fn block_provider(&self, provider: &str, until: Timestamp) -> Result<()> {
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

    /// Returns the end of the block on `provider`, or `None` if it is not blocked at `at`.
    pub async fn blocked_until(&self, provider: &str, at: Timestamp) -> Result<Option<Timestamp>> {
        Ok(sqlx::query_scalar!(
            "SELECT until FROM holds WHERE provider = $1 AND until > $2",
            provider,
            at,
        )
        .fetch_optional(&self.steps)
        .await?)
    }
}
