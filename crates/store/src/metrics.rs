//! Metrics, counted by the database.

use tamma_core::cost::Usd;
use tamma_core::ids::ProjectId;
use tamma_core::metrics::{MetricCounts, Metrics};
use tamma_core::task_loop::Timestamp;

use crate::connection::Store;
use crate::error::{CorruptData, Error, Result};

#[derive(sqlx::FromRow)]
struct Row {
    ended: i64,
    completed: i64,
    plan_revisions: i64,
    with_lessons: i64,
    cost: String,
    latency: Option<i64>,
    councils: i64,
    turnaround: Option<i64>,
    rated: i64,
    stars: i64,
    resolved: i64,
    unresolved: i64,
}

impl Store {
    /// Returns the metrics of one project or of all projects, from the entries between two times.
    /// Only the counts leave the database.
    pub async fn metrics(
        &self,
        project: Option<ProjectId>,
        since: Timestamp,
        before: Option<Timestamp>,
    ) -> Result<Metrics> {
        let row: Row = sqlx::query_as(include_str!("../queries/metrics.sql"))
            .bind(project.map(|project| project.0))
            .bind(since)
            .bind(before)
            .bind(self.reads_all())
            .bind(self.readable_projects())
            .fetch_one(&self.lists)
            .await?;
        let cost: Usd = row.cost.parse().map_err(|_| {
            let reason = format!("`{}` is not an amount", row.cost);
            Error::from(CorruptData { what: "cost", key: String::new(), reason })
        })?;
        Ok(Metrics::from(MetricCounts {
            ended: row.ended.unsigned_abs(),
            completed: row.completed.unsigned_abs(),
            plan_revisions: row.plan_revisions.unsigned_abs(),
            with_lessons: row.with_lessons.unsigned_abs(),
            cost,
            approval_turnaround_ms: row.turnaround.map(i64::unsigned_abs),
            transition_latency_ms: row.latency.map(i64::unsigned_abs),
            rated: row.rated.unsigned_abs(),
            stars: row.stars.unsigned_abs(),
            councils: row.councils.unsigned_abs(),
            councils_resolved: row.resolved.unsigned_abs(),
            councils_unresolved: row.unresolved.unsigned_abs(),
        }))
    }
}
