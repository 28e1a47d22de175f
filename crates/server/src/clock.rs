//! The one place of this crate that reads the clock and draws ids.

use tamma_core::task_loop::Timestamp;
use uuid::Uuid;

/// The time it is.
#[expect(clippy::disallowed_methods, reason = "requests get their time here, at the edge")]
pub(crate) fn now() -> Timestamp {
    chrono::Utc::now()
}

/// A secret that nobody can guess, of 64 digits.
#[expect(clippy::disallowed_methods, reason = "secrets are drawn here, at the edge")]
pub(crate) fn new_secret() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

/// A token for a person: a secret that can be told from others where it should not be.
pub(crate) fn new_token() -> String {
    format!("tamma_{}", new_secret())
}

/// A new id, in the order of time.
#[expect(clippy::disallowed_methods, reason = "ids are drawn here, at the edge")]
pub(crate) fn new_id() -> Uuid {
    Uuid::now_v7()
}
