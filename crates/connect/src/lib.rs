#![doc = include_str!("../README.md")]

pub mod message;
pub mod model;
