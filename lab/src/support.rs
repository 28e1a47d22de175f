//! Code that experiments share: cluster, scripts, tools, programs and figures.

pub(crate) mod bench;
pub(crate) mod cluster;
pub(crate) mod external;
pub(crate) mod figures;
pub(crate) mod programs;
pub(crate) mod scripts;
pub(crate) mod tools;
pub(crate) mod verdict;
