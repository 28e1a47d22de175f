#![doc = include_str!("../README.md")]

mod metrics;
pub mod names;
pub mod trace;

pub use metrics::{Metric, MetricKind, MetricsRegistry, registry, to_f64};
