#![doc = include_str!("../README.md")]

mod metrics;
pub mod names;

pub use metrics::{Metric, MetricKind, MetricsRegistry, registry, to_f64};
