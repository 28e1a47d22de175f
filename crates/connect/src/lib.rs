#![doc = include_str!("../README.md")]

pub mod acme;
pub mod audit_export;
pub mod forge;
pub mod message;
pub mod model;
pub mod oidc;
pub mod otlp;
