#![doc = include_str!("../README.md")]

pub mod agent;
pub mod model;
pub mod postgres;
pub mod repository;
mod shared_server;
pub mod tamma_process;
pub mod temporal;
