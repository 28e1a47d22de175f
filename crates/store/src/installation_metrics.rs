//! Values of the whole installation, for monitoring.

use crate::connection::Store;
use crate::error::Result;

/// Values of the whole installation at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct InstallationMetrics {
    /// Number of open tasks, by state.
    pub open_tasks: Vec<(String, f64)>,
    /// Number of tasks that wait for a person, and seconds since the first one asked.
    pub waiting_decisions: (f64, f64),
    /// Number of runs that wait for the limits of their project or provider, and seconds since the
    /// first one did.
    pub queued_runs: (f64, f64),
    /// Number of workers that reported within a minute, and of their agent slots.
    pub workers: (f64, f64),
    /// Tasks that ended within seven days, by state: their number, and US dollars spent on them.
    pub ended_tasks: Vec<(String, f64, f64)>,
    /// Number of audit entries that are not in the chain yet, and seconds since the first one.
    pub pending_audit: (f64, f64),
    /// Number of entries in the chain of the audit log.
    pub audit_entries: f64,
    /// Number of entries that each receiver of the audit log has not confirmed.
    pub audit_export_lags: Vec<(String, f64)>,
}

impl Store {
    /// Returns values of the whole installation. `open_states` and `ended_states` are names of states.
    pub async fn installation_metrics(
        &self,
        open_states: &[String],
        ended_states: &[String],
    ) -> Result<InstallationMetrics> {
        let open_tasks = sqlx::query!(
            r#"SELECT state, count(*)::float8 AS "count!" FROM tasks
               WHERE state = ANY($1::text []) GROUP BY state ORDER BY state"#,
            open_states,
        )
        .fetch_all(&self.lists)
        .await?;
        let ended_tasks = sqlx::query!(
            r#"SELECT state, count(*)::float8 AS "count!", sum(spent_usd)::float8 AS "usd!"
               FROM tasks
               WHERE updated_at > clock_timestamp() - interval '7 days' AND state = ANY($1::text [])
               GROUP BY state ORDER BY state"#,
            ended_states,
        )
        .fetch_all(&self.lists)
        .await?;
        let lags = sqlx::query!(
            r#"SELECT
                exports.receiver,
                greatest(head.position - exports.position, 0)::float8 AS "lag!"
               FROM audit_exports AS exports CROSS JOIN audit_head AS head
               ORDER BY exports.receiver"#
        )
        .fetch_all(&self.lists)
        .await?;
        let one = sqlx::query!(
            r#"SELECT
                (SELECT count(*)::float8 FROM tasks WHERE asked_at IS NOT NULL) AS "asking!",
                (
                    SELECT coalesce(extract(EPOCH FROM clock_timestamp() - min(asked_at)), 0)::float8
                    FROM tasks WHERE asked_at IS NOT NULL
                ) AS "asking_seconds!",
                (
                    SELECT count(DISTINCT holder)::float8 FROM run_queue
                    WHERE kind IN ('project', 'provider')
                        AND seen_at > clock_timestamp() - interval '5 minutes'
                ) AS "queued!",
                (
                    SELECT coalesce(extract(EPOCH FROM clock_timestamp() - min(since)), 0)::float8
                    FROM run_queue
                    WHERE kind IN ('project', 'provider')
                        AND seen_at > clock_timestamp() - interval '5 minutes'
                ) AS "queued_seconds!",
                (
                    SELECT count(*)::float8 FROM workers
                    WHERE seen_at > clock_timestamp() - interval '1 minute'
                ) AS "workers!",
                (
                    SELECT coalesce(sum(slots), 0)::float8 FROM workers
                    WHERE seen_at > clock_timestamp() - interval '1 minute'
                ) AS "slots!",
                (SELECT count(*)::float8 FROM audit_pending) AS "pending!",
                (
                    SELECT coalesce(
                        extract(EPOCH FROM clock_timestamp() - min(recorded_at)), 0
                    )::float8 FROM audit_pending
                ) AS "pending_seconds!",
                (
                    SELECT coalesce(max(position), 0)::float8 FROM audit_head
                ) AS "audit_entries!""#
        )
        .fetch_one(&self.lists)
        .await?;
        Ok(InstallationMetrics {
            open_tasks: open_tasks.into_iter().map(|row| (row.state, row.count)).collect(),
            waiting_decisions: (one.asking, one.asking_seconds),
            queued_runs: (one.queued, one.queued_seconds),
            workers: (one.workers, one.slots),
            ended_tasks: ended_tasks
                .into_iter()
                .map(|row| (row.state, row.count, row.usd))
                .collect(),
            pending_audit: (one.pending, one.pending_seconds),
            audit_entries: one.audit_entries,
            audit_export_lags: lags.into_iter().map(|row| (row.receiver, row.lag)).collect(),
        })
    }
}
