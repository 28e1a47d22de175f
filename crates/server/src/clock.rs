//! Clock, IDs and secrets. No other module of this crate reads the clock or generates random values.

use tamma_core::task_loop::Timestamp;
use uuid::Uuid;

/// Returns the current time.
#[expect(clippy::disallowed_methods, reason = "only clock of this crate")]
pub(crate) fn now() -> Timestamp {
    chrono::Utc::now()
}

/// Generates a random secret of 64 hexadecimal digits.
#[expect(clippy::disallowed_methods, reason = "only source of secrets in this crate")]
pub(crate) fn new_secret() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

/// Generates an access token. Its prefix lets secret scanners recognise it.
pub fn new_token() -> String {
    format!("tamma_{}", new_secret())
}

/// Generates an ID that sorts by creation time.
#[expect(clippy::disallowed_methods, reason = "only source of IDs in this crate")]
pub(crate) fn new_id() -> Uuid {
    Uuid::now_v7()
}
