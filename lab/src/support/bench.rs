//! Code that the measurements of whole tasks share.
//!
//! - `cluster` has a cluster with a project whose agent responds at once, and worker processes with
//!   the settings of `tamma up`.
//! - `history` reads the calls and times of a real task from its history.
//! - `bare` is a workflow that makes the same calls with payloads of the same size, and does
//!   nothing else, or starts the same child processes.
//! - `children` records the child processes of a real task, and starts them again.
//! - `temporal` chooses the Temporal server.
//! - `stubs` has activities that write the same rows as Tamma's, and do no work.
//! - `work` runs worker processes with the options of Tamma's worker.
//! - `load` runs tasks at a given concurrency, and `meter` reads the CPU, memory, rows and statements
//!   they used.
//! - `git_log` counts the git processes of a worker.

pub(crate) mod bare;
pub(crate) mod children;
pub(crate) mod cluster;
pub(crate) mod git_log;
pub(crate) mod history;
pub(crate) mod load;
pub(crate) mod meter;
pub(crate) mod stubs;
pub(crate) mod temporal;
pub(crate) mod work;
