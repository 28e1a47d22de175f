//! Attempts of a job whose worker died.
//!
//! Errors are retried for as long as they last, because a database or a network comes back. A job
//! that kills its worker, for example by using all memory, would kill one worker after another. So
//! these attempts are counted, in the heartbeats that Temporal passes to the next attempt.

use serde::{Deserialize, Serialize};

/// Number of lost attempts after which a job fails. Then a person decides.
pub(crate) const MAX_LOST_ATTEMPTS: u32 = 5;

/// Heartbeat of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AttemptHeartbeat {
    /// Attempts before this one whose worker died.
    lost: u32,
    /// The attempt returned an error, so its worker is fine.
    has_ended: bool,
}

impl AttemptHeartbeat {
    /// Returns the first heartbeat of an attempt, after the last one of the attempt before.
    pub(super) fn first(attempt: u32, previous: Option<Self>) -> Self {
        let lost = match previous {
            Some(previous) if attempt > 1 => previous.lost + u32::from(!previous.has_ended),
            // Without a heartbeat, no work was started, or the first attempt was lost at once.
            Some(_) | None => 0,
        };
        Self { lost, has_ended: false }
    }

    /// Returns the last heartbeat of an attempt that returns an error.
    pub(super) fn ended(self) -> Self {
        Self { has_ended: true, ..self }
    }

    /// Returns the number of lost attempts if the job must not be tried again.
    pub(super) fn too_many_lost(self) -> Option<u32> {
        (self.lost >= MAX_LOST_ATTEMPTS).then_some(self.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_attempts_that_ended_with_their_worker_count() {
        let mut heartbeat = AttemptHeartbeat::first(1, None);
        for attempt in 2..100 {
            heartbeat = AttemptHeartbeat::first(attempt, Some(heartbeat.ended()));
        }
        assert_eq!(heartbeat.too_many_lost(), None, "errors are retried");
        for attempt in 100..104 {
            heartbeat = AttemptHeartbeat::first(attempt, Some(heartbeat));
            assert_eq!(heartbeat.too_many_lost(), None);
        }
        let heartbeat = AttemptHeartbeat::first(104, Some(heartbeat));
        assert_eq!(heartbeat.too_many_lost(), Some(5));
        assert_eq!(AttemptHeartbeat::first(1, Some(heartbeat)).too_many_lost(), None);
        let unseen = AttemptHeartbeat::first(2, None);
        assert_eq!(unseen, AttemptHeartbeat::first(1, None), "lost before its first heartbeat");
    }
}
