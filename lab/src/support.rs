//! Code that experiments share: scripts, tools, programs, canaries and figures, and components that are killed.

pub(crate) mod agent_setup;
pub(crate) mod bench;
pub(crate) mod canaries;
pub(crate) mod coefficients;
pub(crate) mod components;
pub(crate) mod database_hold;
pub(crate) mod external;
pub(crate) mod figures;
pub(crate) mod fleet;
pub(crate) mod leftover;
pub(crate) mod page_times;
pub(crate) mod programs;
pub(crate) mod scripts;
pub(crate) mod tools;
pub(crate) mod verdict;
