//! Clock of the worker.

use chrono::Utc;
use tamma_core::task_loop::Timestamp;

/// Returns the current time.
#[expect(clippy::disallowed_methods, reason = "workers are allowed to read the clock")]
pub(crate) fn now() -> Timestamp {
    Utc::now()
}
