//! Leases that limit concurrent runs, and provider blocks. Both are shared by all workers.
//!
//! A lease expires unless its holder renews it, so a crashed worker frees its capacity without any
//! cleanup. Only the database's clock counts, so a machine with a wrong clock neither ends the leases of
//! others nor keeps its own for too long.

use std::time::Duration;

use strum::Display;
use tamma_core::run_queue::{WaitingRun, runs_ahead};
use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::encoding::{read_word, word};
use crate::error::Result;
use crate::steps::to_i64;

/// Resource that limits concurrent runs, or that one process has at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Display)]
#[strum(serialize_all = "snake_case")]
pub enum LeaseResource {
    /// Project, identified by its ID.
    Project,
    /// Model provider, identified by its name.
    Provider,
    /// Comparison of tasks with their workflows, done by one server at a time.
    Reconciler,
    /// Poller of a forge, identified by the forge's name. One server polls at a time.
    ForgePoller,
    /// Tracing of what happens to merged changes, done by one worker at a time.
    Aftercare,
    /// Export of the audit log to a receiver, done by one server at a time.
    AuditExport,
}

impl Store {
    /// Acquires a lease, or extends the one that the run already has. It expires after `duration`.
    ///
    /// Returns `false` if the other holders of an unexpired lease, and the waiting runs that come
    /// first, use up the limit. The run then waits in the queue of the resource: while it asks
    /// again at least once per lease duration, it keeps its place.
    pub async fn acquire_lease(
        &self,
        (kind, key): (LeaseResource, &str),
        run: &WaitingRun,
        limit: u32,
        duration: Duration,
    ) -> Result<bool> {
        let kind = kind.to_string();
        let mut transaction = self.begin_writing().await?;
        // Serialise per key, so that two workers never count the same free slot.
        let at: Timestamp = sqlx::query_scalar!(
            r#"SELECT clock_timestamp() AS "at!"
               FROM pg_advisory_xact_lock(hashtextextended($1, 0))"#,
            format!("{kind} {key}")
        )
        .fetch_one(&mut *transaction)
        .await?;
        let (oldest, until) = (at - duration, at + duration);
        let rows = sqlx::query!(
            "WITH over AS (
                DELETE FROM run_queue WHERE kind = $1 AND key = $2 AND seen_at < $3
             )
             SELECT holder, priority, since FROM run_queue
             WHERE kind = $1 AND key = $2 AND seen_at >= $3",
            kind,
            key,
            oldest,
        )
        .fetch_all(&mut *transaction)
        .await?;
        let mut waiting = Vec::with_capacity(rows.len());
        for row in rows {
            let priority = read_word("priority", row.priority)?;
            waiting.push(WaitingRun { holder: row.holder, priority, since: row.since });
        }
        let ahead = runs_ahead(run, &waiting, at);
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
             ) + $7 < $4
             OR EXISTS (SELECT FROM leases WHERE kind = $1 AND key = $2 AND holder = $3)
             ON CONFLICT (kind, key, holder) DO UPDATE SET until = excluded.until
             RETURNING holder",
            kind,
            key,
            run.holder,
            i64::from(limit),
            at,
            until,
            to_i64(ahead as u64),
        )
        .fetch_optional(&mut *transaction)
        .await?;
        if acquired.is_some() {
            sqlx::query!("DELETE FROM run_queue WHERE holder = $1", run.holder)
                .execute(&mut *transaction)
                .await?;
        } else {
            sqlx::query!(
                "INSERT INTO run_queue (kind, key, holder, priority, since, seen_at)
                 VALUES ($1, $2, $3, $4, $5, $6)
                 ON CONFLICT (kind, key, holder) DO UPDATE SET seen_at = excluded.seen_at",
                kind,
                key,
                run.holder,
                word(&run.priority),
                run.since,
                at,
            )
            .execute(&mut *transaction)
            .await?;
        }
        transaction.commit().await?;
        Ok(acquired.is_some())
    }

    /// Extends all leases of `holder`, which then expire after `duration`. Returns how many it still has.
    pub async fn renew_leases(&self, holder: &str, duration: Duration) -> Result<u64> {
        let renewed = sqlx::query!(
            "UPDATE leases SET until = clock_timestamp() + make_interval(secs => $2)
             WHERE holder = $1",
            holder,
            duration.as_secs_f64(),
        )
        .execute(&self.steps)
        .await?;
        Ok(renewed.rows_affected())
    }

    /// Releases one lease of `holder`. It keeps its places in queues.
    pub async fn release_lease(
        &self,
        (kind, key): (LeaseResource, &str),
        holder: &str,
    ) -> Result<()> {
        sqlx::query!(
            "DELETE FROM leases WHERE kind = $1 AND key = $2 AND holder = $3",
            kind.to_string(),
            key,
            holder
        )
        .execute(&self.steps)
        .await?;
        Ok(())
    }

    /// Releases all leases of `holder`, and its places in queues.
    pub async fn release_leases(&self, holder: &str) -> Result<()> {
        sqlx::query!(
            "WITH waiting AS (DELETE FROM run_queue WHERE holder = $1)
             DELETE FROM leases WHERE holder = $1",
            holder
        )
        .execute(&self.steps)
        .await?;
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
