//! Metrics of Tamma.
//!
//! Those that start with `tamma_installation_` come from the database and are the same on every server:
//! aggregate them with `max`, times of certificates with
//! `min`, and the others with `sum`.

use std::borrow::Cow;

use crate::metrics::{Metric, MetricKind};

/// Bounds of durations of requests, in seconds.
const REQUEST_SECONDS: &[f64] =
    &[0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 120.0];

/// Bounds of durations of jobs, in seconds.
const JOB_SECONDS: &[f64] =
    &[0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 14400.0];

const fn metric(name: &'static str, help: &'static str, kind: MetricKind) -> Metric {
    Metric { name: Cow::Borrowed(name), help: Cow::Borrowed(help), kind }
}

/// Requests by method, route and class of status.
pub const HTTP_REQUESTS: Metric = metric(
    "tamma_http_requests_total",
    "Requests by method, route and class of status.",
    MetricKind::Counter,
);

/// Time until a response started, by kind of request.
pub const HTTP_DURATION: Metric = metric(
    "tamma_http_request_duration_seconds",
    "Time until a response started, by kind of request: decision, access, secret or read.",
    MetricKind::Histogram(REQUEST_SECONDS),
);

/// Requests and sign-ins with an unknown, expired or revoked token.
pub const REFUSED_TOKENS: Metric = metric(
    "tamma_refused_tokens_total",
    "Requests and sign-ins with an unknown, expired or revoked token.",
    MetricKind::Counter,
);

/// Failed attempts to append to the audit log or to export it.
pub const AUDIT_FAILURES: Metric = metric(
    "tamma_audit_failures_total",
    "Failed attempts to append to the audit log, or to export it, by step.",
    MetricKind::Counter,
);

/// Start of the certificate's validity.
pub const CERTIFICATE_START: Metric = metric(
    "tamma_certificate_start_timestamp_seconds",
    "Unix time from which the TLS certificate of this server is valid; 0 until there is one.",
    MetricKind::Gauge,
);

/// End of the certificate's validity.
pub const CERTIFICATE_EXPIRY: Metric = metric(
    "tamma_certificate_expiry_timestamp_seconds",
    "Unix time at which the TLS certificate of this server expires; 0 until there is one.",
    MetricKind::Gauge,
);

/// Jobs that ended on this worker.
pub const JOBS: Metric = metric(
    "tamma_jobs_total",
    "Jobs that ended on this worker, by kind and outcome. After an error, the job is tried again.",
    MetricKind::Counter,
);

/// Durations of jobs on this worker.
pub const JOB_DURATION: Metric = metric(
    "tamma_job_duration_seconds",
    "Time that jobs took on this worker, by kind.",
    MetricKind::Histogram(JOB_SECONDS),
);

/// Open tasks by state.
pub const OPEN_TASKS: Metric =
    metric("tamma_installation_open_tasks", "Open tasks by state.", MetricKind::Gauge);

/// Decisions that wait for a person.
pub const WAITING_DECISIONS: Metric = metric(
    "tamma_installation_waiting_decisions",
    "Tasks that wait for a decision of a person.",
    MetricKind::Gauge,
);

/// Age of the oldest decision that waits for a person.
pub const OLDEST_DECISION: Metric = metric(
    "tamma_installation_oldest_decision_seconds",
    "Age of the oldest decision that waits for a person; 0 without one.",
    MetricKind::Gauge,
);

/// Runs that wait for a slot.
pub const QUEUED_RUNS: Metric = metric(
    "tamma_installation_queued_runs",
    "Agent runs that wait for the limits of their project or provider.",
    MetricKind::Gauge,
);

/// Time for which the first run in the queue has waited.
pub const OLDEST_QUEUED_RUN: Metric = metric(
    "tamma_installation_oldest_queued_run_seconds",
    "Time for which the first run in the queue has waited; 0 without one.",
    MetricKind::Gauge,
);

/// Workers that reported within a minute.
pub const WORKERS: Metric = metric(
    "tamma_installation_workers",
    "Workers that reported within a minute.",
    MetricKind::Gauge,
);

/// Agent slots of all workers.
pub const AGENT_SLOTS: Metric = metric(
    "tamma_installation_agent_slots",
    "Agent slots of the workers that reported within a minute.",
    MetricKind::Gauge,
);

/// Tasks that ended within seven days, by state.
pub const ENDED_TASKS: Metric = metric(
    "tamma_installation_ended_tasks",
    "Tasks that ended within the last 7 days, by state.",
    MetricKind::Gauge,
);

/// Spend on tasks that ended within seven days.
pub const ENDED_TASK_SPEND: Metric = metric(
    "tamma_installation_ended_task_spend_usd",
    "US dollars spent on tasks that ended within the last 7 days, by state.",
    MetricKind::Gauge,
);

/// Audit entries that are not in the chain yet.
pub const PENDING_AUDIT: Metric = metric(
    "tamma_installation_audit_pending_entries",
    "Audit entries that are not in the hash chain yet.",
    MetricKind::Gauge,
);

/// Age of the oldest audit entry that is not in the chain yet.
pub const OLDEST_PENDING_AUDIT: Metric = metric(
    "tamma_installation_audit_oldest_pending_seconds",
    "Age of the oldest audit entry that is not in the hash chain yet; 0 without one.",
    MetricKind::Gauge,
);

/// Entries of the audit log.
pub const AUDIT_ENTRIES: Metric = metric(
    "tamma_installation_audit_entries",
    "Entries in the hash chain of the audit log.",
    MetricKind::Gauge,
);

/// Audit entries that a receiver has not confirmed.
pub const AUDIT_EXPORT_LAG: Metric = metric(
    "tamma_installation_audit_export_lag_entries",
    "Audit entries that a receiver has not confirmed yet.",
    MetricKind::Gauge,
);

/// Success of the last query of these values.
pub const INSTALLATION_UP: Metric = metric(
    "tamma_installation_up",
    "1 if the database answered the query of these values, otherwise 0.",
    MetricKind::Gauge,
);

/// Series that were dropped because their metric has too many.
pub const DROPPED_SERIES: Metric = metric(
    "tamma_dropped_series_total",
    "Values that were dropped because their metric has too many combinations of labels.",
    MetricKind::Counter,
);
