//! What the trials share: a stage to play on, and scripts for whoever plays.

pub mod scene;
pub mod stage;
