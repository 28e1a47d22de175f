//! Delays between attempts.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};

/// Delays that double up to a maximum. Each is between half of its value and all of it, at random,
/// so that processes that lost the same server do not return at the same moment.
#[derive(Debug)]
pub struct Backoff {
    builder: ExponentialBuilder,
    delays: ExponentialBackoff,
    maximum: Duration,
}

impl Backoff {
    /// Creates delays that start at `first`.
    pub fn new(first: Duration, maximum: Duration) -> Self {
        let builder = ExponentialBuilder::new()
            .with_min_delay(first / 2)
            .with_max_delay(maximum / 2)
            .without_max_times()
            .with_jitter()
            // The library adds up to as much again. Its own seed is the same in every process.
            .with_jitter_seed(RandomState::new().hash_one(()));
        Self { builder, delays: builder.build(), maximum }
    }

    /// Returns the next delay.
    pub fn next_delay(&mut self) -> Duration {
        self.delays.next().unwrap_or(self.maximum).min(self.maximum)
    }

    /// Starts again with the first delay, after a success.
    pub fn reset(&mut self) {
        self.delays = self.builder.build();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(100);
    const MAXIMUM: Duration = Duration::from_secs(5);

    #[test]
    fn delays_double_up_to_the_maximum_and_start_again_after_a_success() {
        let mut backoff = Backoff::new(FIRST, MAXIMUM);
        for _ in 0..2 {
            let mut expected = FIRST;
            for _ in 0..20 {
                let delay = backoff.next_delay();
                assert!(delay >= expected / 2 && delay <= expected, "{delay:?} of {expected:?}");
                expected = (expected * 2).min(MAXIMUM);
            }
            backoff.reset();
        }
    }

    #[test]
    fn processes_do_not_retry_at_the_same_moment() {
        let delays = || {
            let mut backoff = Backoff::new(FIRST, MAXIMUM);
            (0..10).map(|_| backoff.next_delay()).collect::<Vec<_>>()
        };
        assert_ne!(delays(), delays());
    }
}
