//! Integration tests of the engine with real git, real processes, and a scripted agent that speaks
//! the real protocol.
#![expect(clippy::expect_used, reason = "a failed expectation fails the test")]
#![expect(clippy::unwrap_used, reason = "a failed expectation fails the test")]

#[path = "it/aftercare.rs"]
mod aftercare;
#[path = "it/agents.rs"]
mod agents;
#[path = "it/fixture.rs"]
mod fixture;
#[path = "it/gates.rs"]
mod gates;
#[path = "it/gateway.rs"]
mod gateway;
#[path = "it/given.rs"]
mod given;
#[path = "it/hostile.rs"]
mod hostile;
#[path = "it/hostile_kit.rs"]
mod hostile_kit;
#[path = "it/hosts.rs"]
mod hosts;
#[path = "it/merges.rs"]
mod merges;
#[path = "it/processes.rs"]
mod processes;
#[path = "it/sandboxes.rs"]
mod sandboxes;
#[path = "it/sessions.rs"]
mod sessions;
#[path = "it/workspaces.rs"]
mod workspaces;
#[path = "it/worktrees.rs"]
mod worktrees;
