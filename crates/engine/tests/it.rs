//! The engine on a real machine: real git, real processes, and an agent that follows a script over
//! the real protocol.
#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "it/agents.rs"]
mod agents;
#[path = "it/cages.rs"]
mod cages;
#[path = "it/gates.rs"]
mod gates;
#[path = "it/gateway.rs"]
mod gateway;
#[path = "it/hosts.rs"]
mod hosts;
#[path = "it/processes.rs"]
mod processes;
#[path = "it/sessions.rs"]
mod sessions;
#[path = "it/stage.rs"]
mod stage;
#[path = "it/workspaces.rs"]
mod workspaces;
#[path = "it/worktrees.rs"]
mod worktrees;
