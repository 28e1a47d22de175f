#![doc = include_str!("../README.md")]

mod alert_dispatcher;
mod api;
mod app;
mod audit;
mod auth;
mod clock;
mod codec_endpoint;
pub mod dto;
mod edge;
mod forge_poller;
mod identity;
mod intake;
mod issue_progress;
mod live;
mod mcp;
mod monitoring;
mod problem;
mod reconciler;
mod route_access;
mod security_events;
mod server;
mod temporal_namespace;
mod tls;
mod web;
mod webhooks;
mod workflow_description;

pub use alert_dispatcher::{TerminalMessage, TerminalSender};
pub use api::openapi;
pub use clock::new_token;
pub use mcp::SCRUM_MASTER_COMMAND;
pub use monitoring::{MonitoringServer, PollerProbe};
pub use problem::{PROBLEM_MEDIA_TYPE as PROBLEM, Problem};
pub use route_access::access_routes;
pub use server::{
    ApiServer, CommitFile, CommitFileReader, Error, RemoteConfigReader, RepositoryContents,
    RepositoryInspector, ServerConfig,
};
pub use temporal_namespace::{NamespaceError, ensure_search_attributes, prepare_namespace};
pub use tls::{CertificateCheck, TlsError, check_certificate};

/// Header with the name of the person that a request acts for.
pub const PERSON_HEADER: &str = "tamma-person";

/// Header whose value identifies a request, so that a retry has no second effect.
pub const IDEMPOTENCY_KEY_HEADER: &str = "idempotency-key";
