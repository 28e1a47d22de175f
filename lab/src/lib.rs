#![doc = include_str!("../README.md")]

mod agents;
mod alerts;
mod audit;
mod bench_agents;
mod bench_board;
mod bench_core;
mod bench_gateway;
mod bench_loop;
mod bench_waiting;
mod browser;
mod chaos;
mod chat;
mod crash_recovery;
mod escalation;
mod eval;
mod experiment;
mod false_claims;
mod first_minute;
mod forge;
mod hostile_repositories;
mod identity;
mod knowledge;
mod learning;
mod learning_loop;
mod mcp;
mod merge_queue;
mod observe;
mod pipeline;
mod reconcile;
mod review;
mod sandbox_escape;
mod support;
mod top;

pub use crate::experiment::main;
