//! The store on a real PostgreSQL, driven by the real machine.
#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::allow_attributes, dead_code, reason = "the world is shared with other tests")]

mod deliveries;
mod growth;
mod knowledge;
mod leases;
mod lessons;
mod lists;
mod once;
mod query_plans;
mod restart;
mod runs;
mod tape;
mod vectors;
#[path = "../../../core/tests/spec/world.rs"]
mod world;
