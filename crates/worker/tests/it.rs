//! Task loop on real components: Temporal, PostgreSQL, git, and a scripted agent that speaks the
//! Agent Client Protocol.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "tests fail by panicking, and read the clock"
)]

#[path = "it/durable.rs"]
mod durable;
#[path = "it/gates.rs"]
mod gates;
#[path = "../../core/tests/support/imports.rs"]
mod imports;
#[path = "it/modules.rs"]
mod modules;
#[path = "it/people.rs"]
mod people;
#[path = "it/questions.rs"]
mod questions;
#[path = "it/stage.rs"]
mod stage;
#[path = "it/turns.rs"]
mod turns;
#[path = "it/twice.rs"]
mod twice;
#[path = "it/way.rs"]
mod way;
#[path = "it/witness.rs"]
mod witness;
