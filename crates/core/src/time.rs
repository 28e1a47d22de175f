//! Points in time.

/// Point in time. It is always an input; this crate has no clock.
pub type Timestamp = chrono::DateTime<chrono::Utc>;
