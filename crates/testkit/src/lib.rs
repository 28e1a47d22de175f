#![doc = include_str!("../README.md")]

pub mod agent;
pub mod certificates;
pub mod cluster;
pub mod forge;
pub mod hostile;
pub mod keys;
pub mod model;
pub mod network;
pub mod operator;
pub mod postgres;
pub mod programs;
pub mod project;
pub mod repository;
pub mod sample;
mod shared_server;
pub mod tamma_process;
pub mod temporal;
pub mod wait;

pub use cluster::{Cluster, ClusterBuilder};
pub use sample::sample_plan;
pub use wait::wait_until;
