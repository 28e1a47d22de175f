//! Times, measured from the one that came in.

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use tamma_core::task_loop::Timestamp;

/// Tells the time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    at: Timestamp,
    since: Instant,
}

impl Clock {
    /// It is this time now.
    pub(super) fn at(at: Timestamp) -> Self {
        Self { at, since: watch() }
    }

    /// The time it is.
    pub(super) fn now(&self) -> Timestamp {
        later(self.at, self.since.elapsed())
    }
}

/// Begins to measure.
#[expect(clippy::disallowed_methods, reason = "a duration is measured, no time of day is read")]
pub(super) fn watch() -> Instant {
    Instant::now()
}

/// A time that is so much later.
pub(super) fn later(at: Timestamp, by: Duration) -> Timestamp {
    let by = TimeDelta::from_std(by).unwrap_or(TimeDelta::MAX);
    at.checked_add_signed(by).unwrap_or(Timestamp::MAX_UTC)
}
