//! Tests of the store on a real PostgreSQL, driven by the real state machine.
#![expect(clippy::expect_used, reason = "a test that cannot continue has failed")]
#![expect(dead_code, reason = "helpers are shared with other tests")]

mod access;
mod audit;
mod conversations;
mod deliveries;
mod effects;
mod embeddings;
mod forges;
mod growth;
mod idempotency;
mod inline_jobs;
mod job_facts;
mod knowledge;
mod leases;
mod lessons;
mod line_comments;
mod lists;
mod pipelines;
mod query_plans;
mod reconciliation;
mod recorded_task;
mod reservations;
mod restart;
mod retention;
mod runs;
mod schema;
#[path = "../../../core/tests/it/world.rs"]
mod world;
