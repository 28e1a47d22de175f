//! Clock that is based on a timestamp from the caller.

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use tamma_core::task_loop::Timestamp;

/// Clock that continues from a given time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    start_time: Timestamp,
    started: Instant,
}

impl Clock {
    /// Starts the clock at `at`.
    pub(super) fn starting_at(start_time: Timestamp) -> Self {
        Self { start_time, started: start_timer() }
    }

    /// Returns the current time.
    pub(super) fn now(&self) -> Timestamp {
        saturating_add(self.start_time, self.started.elapsed())
    }
}

/// Starts a measurement.
#[expect(clippy::disallowed_methods, reason = "a duration is measured, no time of day is read")]
pub(super) fn start_timer() -> Instant {
    Instant::now()
}

/// Adds a duration, saturating at the maximum.
pub(super) fn saturating_add(at: Timestamp, by: Duration) -> Timestamp {
    let by = TimeDelta::from_std(by).unwrap_or(TimeDelta::MAX);
    at.checked_add_signed(by).unwrap_or(Timestamp::MAX_UTC)
}
