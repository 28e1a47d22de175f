#![doc = include_str!("../README.md")]

pub mod activities;
pub mod merge_queue;
pub mod pipeline;
mod project_turn;
mod retries;
#[cfg(test)]
mod sample_task;
pub mod search_attributes;
mod task;

pub use activities::failure_message;
pub use task::{
    ActionRequest, ActionResponse, CarriedState, ForgeSignal, QuestionOpened, RulesChanged,
    RunStarted, TaskStatus, TaskWorkflow, WorkflowInput, WorkflowOrigin, WorkflowTuning,
};

/// Temporal namespace of the installation: that of every organisation without its own.
pub const NAMESPACE: &str = "default";

/// Task queue of workflows, and of all activities except implementation runs.
pub const TASK_QUEUE: &str = "tamma";

/// Task queue of the agent pool. Workers with a free slot take the next run.
pub const AGENT_TASK_QUEUE: &str = "tamma-engines";

/// Returns the workflow ID of a merge queue. Only one can be open.
pub fn merge_queue_workflow_id(queue: &tamma_core::merge_queue::QueueAddress) -> String {
    format!("merge-queue/{queue}")
}

/// Returns the workflow ID of a story's pipeline. Only one run of it can be open.
pub fn pipeline_workflow_id(pipeline: tamma_core::ids::PipelineId) -> String {
    format!("pipeline-{pipeline}")
}

/// Returns the workflow ID of a task. Starting it twice has no effect.
pub fn workflow_id(task: tamma_core::ids::TaskId) -> String {
    format!("task-{task}")
}
