#![doc = include_str!("../README.md")]

mod agents;
mod alerts;
mod bench_agents;
mod bench_board;
mod bench_core;
mod bench_gateway;
mod bench_loop;
mod bench_store;
mod bench_waiting;
mod browser;
mod chaos;
mod chat;
mod cluster;
mod crash_recovery;
mod docs;
mod escalation;
mod eval;
mod experiment;
mod false_claims;
mod first_minute;
mod forge;
mod hostile_repositories;
mod knowledge;
mod learning;
mod learning_loop;
mod mcp;
mod merge_queue;
mod pipeline;
mod reconcile;
mod review;
mod sandbox_escape;
mod support;
mod task_cost;
mod top;

pub use crate::experiment::main;
