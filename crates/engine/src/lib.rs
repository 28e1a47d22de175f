#![doc = include_str!("../README.md")]

pub mod agent;
pub mod confine;
pub mod delivery;
pub mod desk;
pub mod gate;
pub mod gateway;
pub mod git;
pub mod mirror;
mod output;
pub mod patterns;
pub mod permission;
pub mod plain;
pub mod process;
pub mod secret;
pub mod submission;
pub mod workspaces;
pub mod worktree;
