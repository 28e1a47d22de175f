#![doc = include_str!("../README.md")]

pub mod agent;
pub mod delivery;
pub mod gate;
pub mod git;
pub mod mirror;
mod output;
pub mod permission;
pub mod process;
pub mod submission;
pub mod worktree;
