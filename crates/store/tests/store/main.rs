//! Tests of the store on a real PostgreSQL, driven by the real state machine.
#![expect(clippy::expect_used, reason = "a test that cannot continue has failed")]
#![expect(clippy::disallowed_methods, reason = "the caller of a test's transaction is not dropped")]
#![expect(dead_code, reason = "helpers are shared with other tests")]

mod access;
mod audit;
mod audit_log;
mod conversations;
mod credentials;
mod deliveries;
mod effects;
mod embeddings;
mod forges;
mod growth;
mod idempotency;
mod inline_jobs;
mod installation_metrics;
mod job_facts;
mod knowledge;
mod leases;
mod lessons;
mod line_comments;
mod lists;
mod namespaces;
mod pipelines;
mod plans;
mod query_plans;
mod reconciliation;
mod recorded_task;
mod reservations;
mod restart;
mod retention;
mod row_security;
mod runs;
mod schema;
mod tls;
#[path = "../../../core/tests/it/world.rs"]
mod world;
