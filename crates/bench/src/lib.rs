#![doc = include_str!("../README.md")]

pub mod bare;
pub mod figures;
pub mod history;
pub mod load;
pub mod meter;
pub mod rest;
pub mod stage;
pub mod work;
