#![doc = include_str!("../README.md")]

pub mod forge;
pub mod message;
pub mod model;
pub mod oidc;
