//! Moments.

/// A moment. It always comes from outside: the machine has no clock.
pub type Timestamp = chrono::DateTime<chrono::Utc>;
