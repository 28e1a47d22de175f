//! The loop on real parts: a durable engine, PostgreSQL, git and a scripted agent that speaks the
//! real protocol.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and looks at the clock"
)]

#[path = "it/durable.rs"]
mod durable;
#[path = "it/gates.rs"]
mod gates;
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
