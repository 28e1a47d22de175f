#![doc = include_str!("../README.md")]

pub mod actor;
pub mod alert;
pub mod approval;
pub mod budget;
pub mod cause;
pub mod complexity;
pub mod cost;
pub mod council;
pub mod escalation;
pub mod failure;
pub mod format;
pub mod gate;
pub mod history;
pub mod ids;
pub mod issue;
pub mod knowledge;
pub mod learning;
pub mod level;
pub mod metrics;
pub mod operator;
pub mod pipeline;
pub mod plan;
pub mod report;
pub mod review;
pub mod risk;
pub mod rules;
pub mod state;
pub mod state_diagram;
pub mod stuck;
pub mod task;
pub mod task_loop;
pub mod tier;
pub mod time;
pub mod version;

pub use task_loop::{begin, step};
