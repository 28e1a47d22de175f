//! Integration tests of the server, with a real database and a real Temporal server.
#![expect(clippy::expect_used, reason = "a failed expectation fails the test")]
#![expect(dead_code, reason = "test support is shared with other crates")]

mod access_matrix;
mod alerts;
mod audit_log;
mod authentication;
mod browser;
mod chat;
mod codec_endpoint;
mod fake_forge;
mod fake_provider;
mod forge_polling;
mod forges;
mod identity;
mod knowledge;
mod lists;
mod live;
mod many_tasks;
mod monitoring;
mod namespaces;
mod organisations;
mod oversight;
mod pages;
mod people;
mod pipelines;
mod pull_request_pages;
#[path = "../../../store/tests/store/recorded_task.rs"]
mod recorded_task;
mod recovery;
mod review_pages;
mod runs;
mod tasks;
mod test_server;
mod tls;
#[path = "../../../core/tests/it/world.rs"]
mod world;
