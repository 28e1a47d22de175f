//! Clock of regular updates to people: progress of a run, and the status of a task.

use chrono::TimeDelta;

use crate::time::Timestamp;

/// Clock that allows one update per interval, and never two within one.
///
/// Updates that were missed, for example during an outage, are not sent later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpdateClock {
    interval: TimeDelta,
    next: Timestamp,
}

impl UpdateClock {
    /// Creates a clock whose first update is due one interval after `start`. The interval is at
    /// least 1 ms.
    pub fn new(start: Timestamp, interval: TimeDelta) -> Self {
        let interval = interval.max(TimeDelta::milliseconds(1));
        Self { interval, next: later(start, interval) }
    }

    /// Returns the time of the next update.
    pub fn next(&self) -> Timestamp {
        self.next
    }

    /// Returns `true` if an update is due, and schedules the next one.
    pub fn is_due(&mut self, now: Timestamp) -> bool {
        if now < self.next {
            return false;
        }
        self.next = later(now, self.interval);
        true
    }
}

fn later(time: Timestamp, interval: TimeDelta) -> Timestamp {
    time.checked_add_signed(interval).unwrap_or(Timestamp::MAX_UTC)
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use proptest::prelude::*;

    use super::*;

    fn at(millisecond: i64) -> Timestamp {
        DateTime::from_timestamp_millis(1_790_000_000_000 + millisecond).expect("timestamp")
    }

    proptest! {
        #[test]
        fn updates_are_at_least_one_interval_apart(
            interval in 1..100_000_i64,
            mut times in proptest::collection::vec(0..1_000_000_i64, 0..200),
        ) {
            times.sort_unstable();
            let mut clock = UpdateClock::new(at(0), TimeDelta::milliseconds(interval));
            let mut last = 0;
            for time in times {
                let due = clock.is_due(at(time));
                prop_assert_eq!(due, time - last >= interval, "at {} after {}", time, last);
                if due {
                    last = time;
                }
            }
        }
    }

    #[test]
    fn a_run_of_four_hours_has_one_update_per_interval() {
        let mut clock = UpdateClock::new(at(0), TimeDelta::seconds(30));
        let half_seconds = (1..=4 * 3600 * 2).map(|count| at(count * 500));
        assert_eq!(half_seconds.filter(|now| clock.is_due(*now)).count(), 480);
    }

    #[test]
    fn an_outage_causes_one_update_and_no_burst() {
        let mut clock = UpdateClock::new(at(0), TimeDelta::seconds(30));
        assert!(clock.is_due(at(3_600_000)));
        assert!(!clock.is_due(at(3_600_001)));
        assert_eq!(clock.next(), at(3_630_000));
    }
}
