#![doc = include_str!("../README.md")]

pub mod agent;
pub mod model;
pub mod postgres;
pub mod repository;
pub mod role;
mod shared;
pub mod temporal;
