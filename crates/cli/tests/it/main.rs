//! `tamma` as a person or a script runs it. Each module covers one command or one theme.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod answers;
mod background;
mod bundle;
mod capacity;
mod chat;
mod config;
mod doctor;
mod eval;
mod first_minute;
mod forge;
mod help;
mod init;
mod inline_questions;
mod keys;
mod knowledge;
mod machine;
mod mcp;
mod pages;
mod pipeline;
mod report;
mod restart;
mod service;
mod support;
mod task;
