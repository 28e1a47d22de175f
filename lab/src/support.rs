//! Parts that experiments share: a stage, scripts, tools, programs and figures.

pub(crate) mod bench;
pub(crate) mod figures;
pub(crate) mod programs;
pub(crate) mod scene;
pub(crate) mod script;
pub(crate) mod stage;
pub(crate) mod tools;
pub(crate) mod verdict;
