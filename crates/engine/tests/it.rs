//! The engine on a real machine: real git, real processes, and an agent that follows a script over
//! the real protocol.
#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "it/agents.rs"]
mod agents;
#[path = "it/gates.rs"]
mod gates;
#[path = "it/processes.rs"]
mod processes;
#[path = "it/stage.rs"]
mod stage;
#[path = "it/worktrees.rs"]
mod worktrees;
