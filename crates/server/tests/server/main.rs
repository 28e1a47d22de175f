//! The server with a real database and a real durable engine, as its clients meet it.
#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::allow_attributes, dead_code, reason = "the world is shared with other tests")]

mod door;
mod knowledge;
mod lists;
mod runs;
mod stage;
mod tasks;
#[path = "../../../core/tests/spec/world.rs"]
mod world;
