//! Code that experiments share: scripts, tools, programs and figures.

pub(crate) mod bench;
pub(crate) mod external;
pub(crate) mod figures;
pub(crate) mod programs;
pub(crate) mod scripts;
pub(crate) mod tools;
pub(crate) mod verdict;
