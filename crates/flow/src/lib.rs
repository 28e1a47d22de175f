#![doc = include_str!("../README.md")]

pub mod attributes;
pub mod port;
mod task;

pub use task::{Answered, Ask, Begun, Carried, Input, Origin, Pace, Standing, TaskFlow};

/// The queue of the workflows, and of every activity that needs no engine.
pub const QUEUE: &str = "tamma";

/// The queue of the engine pool: whoever has a free slot takes the next run.
pub const ENGINES: &str = "tamma-engines";

/// The id of the workflow of a task. One that is started twice is started once.
pub fn workflow_id(task: tamma_core::ids::TaskId) -> String {
    format!("task-{task}")
}
