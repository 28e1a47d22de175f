//! Task loop on real components: Temporal, PostgreSQL, git, and a scripted agent that speaks the
//! Agent Client Protocol.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "tests fail by panicking, and read the clock"
)]

#[path = "it/admission.rs"]
mod admission;
#[path = "it/agent_tools.rs"]
mod agent_tools;
#[path = "it/cluster.rs"]
mod cluster;
#[path = "it/complete_task.rs"]
mod complete_task;
#[path = "it/dependencies.rs"]
mod dependencies;
#[path = "it/durability.rs"]
mod durability;
#[path = "it/fault_injection.rs"]
mod fault_injection;
#[path = "it/forge_signals.rs"]
mod forge_signals;
#[path = "it/gates.rs"]
mod gates;
#[path = "../../core/tests/support/imports.rs"]
mod imports;
#[path = "it/large_changes.rs"]
mod large_changes;
#[path = "it/modules.rs"]
mod modules;
#[path = "it/namespaces.rs"]
mod namespaces;
#[path = "it/people.rs"]
mod people;
#[path = "it/pipeline_durability.rs"]
mod pipeline_durability;
#[path = "it/pipelines.rs"]
mod pipelines;
#[path = "it/pull_requests.rs"]
mod pull_requests;
#[path = "it/questions.rs"]
mod questions;
#[path = "it/reset.rs"]
mod reset;
#[path = "it/results.rs"]
mod results;
#[path = "it/run_recorder.rs"]
mod run_recorder;
#[path = "it/story_tasks.rs"]
mod story_tasks;
