//! The one place of this crate that reads the clock and draws ids.

use tamma_core::task_loop::Timestamp;
use uuid::Uuid;

/// The time it is.
#[expect(clippy::disallowed_methods, reason = "requests get their time here, at the edge")]
pub(crate) fn now() -> Timestamp {
    chrono::Utc::now()
}

/// A new id, in the order of time.
#[expect(clippy::disallowed_methods, reason = "ids are drawn here, at the edge")]
pub(crate) fn new_id() -> Uuid {
    Uuid::now_v7()
}
