#![doc = include_str!("../README.md")]

mod api;
mod app;
mod clock;
mod guard;
mod live;
mod mcp;
mod post;
mod problem;
mod server;
pub mod shape;
mod web;

pub use api::openapi;
pub use post::{Terminal, Told};
pub use problem::{MEDIA_TYPE as PROBLEM, Problem};
pub use server::{Config, Error, Look, Server, Sight};

/// The header that says who asks.
pub const PERSON: &str = "tamma-person";

/// The header that makes a repeated request the same request.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
