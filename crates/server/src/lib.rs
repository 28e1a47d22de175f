#![doc = include_str!("../README.md")]

mod alert_dispatcher;
mod api;
mod app;
mod auth;
mod clock;
pub mod dto;
mod live;
mod mcp;
mod problem;
mod server;
mod web;

pub use alert_dispatcher::{TerminalMessage, TerminalSender};
pub use api::openapi;
pub use mcp::SCRUM_MASTER_COMMAND;
pub use problem::{PROBLEM_MEDIA_TYPE as PROBLEM, Problem};
pub use server::{ApiServer, Error, RepositoryContents, RepositoryInspector, ServerConfig};

/// Header with the name of the person that a request acts for.
pub const PERSON_HEADER: &str = "tamma-person";

/// Header whose value identifies a request, so that a retry has no second effect.
pub const IDEMPOTENCY_KEY_HEADER: &str = "idempotency-key";
