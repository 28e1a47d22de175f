//! The server with a real database and a real durable engine, as its clients meet it.
#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::allow_attributes, dead_code, reason = "the world is shared with other tests")]

mod browser;
mod chat;
mod door;
mod knowledge;
mod lists;
mod live;
mod pages;
mod people;
mod post;
mod runs;
mod stage;
#[path = "../../../store/tests/store/tape.rs"]
mod tape;
mod tasks;
#[path = "../../../core/tests/spec/world.rs"]
mod world;
