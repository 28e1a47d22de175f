//! Tests of the store on a real PostgreSQL, driven by the real state machine.
#![expect(clippy::expect_used, reason = "a test that cannot continue has failed")]
#![expect(dead_code, reason = "helpers are shared with other tests")]

mod conversations;
mod deliveries;
mod embeddings;
mod growth;
mod idempotency;
mod knowledge;
mod leases;
mod lessons;
mod lists;
mod pipelines;
mod query_plans;
mod recorded_task;
mod restart;
mod runs;
#[path = "../../../core/tests/it/world.rs"]
mod world;
