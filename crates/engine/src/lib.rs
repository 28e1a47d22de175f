#![doc = include_str!("../README.md")]

pub mod aftercare;
pub mod agent;
pub mod agent_tools;
mod captured;
pub mod delivery;
pub mod egress;
pub mod files;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod gate;
pub mod gateway;
pub mod git;
pub mod merge;
pub mod mirror;
pub mod missing_content;
mod output;
pub mod patterns;
pub mod permission;
pub mod plain_checkout;
pub mod private_git;
mod private_socket;
pub mod process;
pub mod sandbox;
pub mod sanitize;
pub mod secret;
pub mod setup;
pub mod shell_command;
pub mod sparse;
mod special_files;
pub mod submission;
pub mod workspaces;
pub mod worktree;
