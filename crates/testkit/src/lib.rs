#![doc = include_str!("../README.md")]

pub mod agent;
pub mod postgres;
pub mod repository;
mod shared;
pub mod temporal;
