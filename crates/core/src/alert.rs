//! Alert schedule: time of delivery, and retries of failed deliveries.
//!
//! Alerts that need a decision are sent at once, with reminders until someone has seen them. Other
//! alerts wait for the daily digest. Quiet hours delay everything except critical alerts. Nothing
//! is dropped for being late; it is sent when the quiet hours end.

use chrono::{Days, NaiveTime, TimeDelta};

use crate::rules::time_zone::ZoneClock;
use crate::rules::{AlertRules, QuietHours};
use crate::task_loop::AlertSeverity;
use crate::time::Timestamp;

/// Delivery schedule of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertSchedule {
    /// Single message, sent no earlier than this time.
    Single(Timestamp),
    /// Part of the digest that is sent at this time.
    Digest(Timestamp),
}

impl AlertSchedule {
    /// Returns the earliest time of delivery.
    pub fn due_at(self) -> Timestamp {
        match self {
            Self::Single(at) | Self::Digest(at) => at,
        }
    }
}

/// Schedules an alert that was created at `now`. `asks` is `true` if it needs a decision.
pub fn schedule(
    needs_decision: bool,
    severity: AlertSeverity,
    now: Timestamp,
    rules: &AlertRules,
) -> AlertSchedule {
    if severity == AlertSeverity::Critical {
        return AlertSchedule::Single(now);
    }
    let clock = rules.time_zone.clock();
    if !needs_decision {
        let at = next_local_time(&clock, now, rules.digest_at.time());
        return AlertSchedule::Digest(after_quiet_hours(rules.quiet_hours, &clock, at));
    }
    AlertSchedule::Single(after_quiet_hours(rules.quiet_hours, &clock, now))
}

/// Returns `at`, or the end of the quiet hours around it.
fn after_quiet_hours(quiet: Option<QuietHours>, clock: &ZoneClock, at: Timestamp) -> Timestamp {
    let Some(QuietHours { from, to }) = quiet else { return at };
    let (from, to, local) = (from.time(), to.time(), clock.local(at).time());
    let inside = if from < to {
        (from..to).contains(&local)
    } else {
        // Quiet hours across midnight.
        local >= from || local < to
    };
    if inside { next_local_time(clock, at, to) } else { at }
}

/// Returns the next time after `after` at which local clocks show `time`.
fn next_local_time(clock: &ZoneClock, after: Timestamp, time: NaiveTime) -> Timestamp {
    let today = clock.local(after).date();
    let candidates = (0..3).filter_map(|days| today.checked_add_days(Days::new(days)));
    let mut times = candidates.filter_map(|day| clock.resolve(day.and_time(time)));
    times.find(|at| *at > after).unwrap_or(after)
}

/// Maximum delivery attempts, which take 3 days with these delays. Attempts are counted instead of
/// days, so that a server that was off for a week still retries.
const MAX_ATTEMPTS: u32 = 153;

/// Returns the delay after a number of failed attempts: doubled each time, up to 30 min. Returns
/// `None` after the last attempt.
pub fn retry_delay(attempts: u32) -> Option<TimeDelta> {
    const LONGEST: i64 = 30 * 60;
    if attempts >= MAX_ATTEMPTS {
        return None;
    }
    let doubled = 5_i64 << attempts.saturating_sub(1).min(20);
    Some(TimeDelta::seconds(doubled.min(LONGEST)))
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a timestamp")
    }

    fn rules(quiet: Option<(&str, &str)>, zone: &str) -> AlertRules {
        let time = |text: &str| text.parse().expect("a time of day");
        AlertRules {
            quiet_hours: quiet.map(|(from, to)| QuietHours { from: time(from), to: time(to) }),
            time_zone: zone.to_owned().try_into().expect("a time zone"),
            ..AlertRules::default()
        }
    }

    #[test]
    fn decisions_are_sent_at_once_and_other_alerts_wait_for_the_digest() {
        let (rules, now) = (rules(None, "UTC"), at("2026-11-15T12:00:00Z"));
        assert_eq!(schedule(true, AlertSeverity::Warning, now, &rules), AlertSchedule::Single(now));
        let tomorrow = AlertSchedule::Digest(at("2026-11-16T08:00:00Z"));
        assert_eq!(schedule(false, AlertSeverity::Warning, now, &rules), tomorrow);
        assert_eq!(
            schedule(false, AlertSeverity::Critical, now, &rules),
            AlertSchedule::Single(now)
        );
    }

    #[test]
    fn quiet_hours_delay_all_but_critical_alerts() {
        let rules = rules(Some(("20:00", "07:00")), "Europe/Berlin");
        // 22:30 in Berlin.
        let late = at("2026-11-15T21:30:00Z");
        let morning = at("2026-11-16T06:00:00Z");
        assert_eq!(
            schedule(true, AlertSeverity::Warning, late, &rules),
            AlertSchedule::Single(morning)
        );
        assert_eq!(
            schedule(true, AlertSeverity::Critical, late, &rules),
            AlertSchedule::Single(late)
        );
        let day = at("2026-11-15T12:00:00Z");
        assert_eq!(schedule(true, AlertSeverity::Warning, day, &rules), AlertSchedule::Single(day));
    }

    #[test]
    fn a_local_time_skipped_by_daylight_saving_is_an_hour_later() {
        let rules = rules(Some(("22:00", "02:30")), "Europe/Berlin");
        // 02:30 does not exist on this night.
        let night = at("2026-03-28T23:00:00Z");
        assert_eq!(
            schedule(true, AlertSeverity::Warning, night, &rules),
            AlertSchedule::Single(at("2026-03-29T01:30:00Z"))
        );
    }

    proptest! {
        #[test]
        fn nothing_is_sent_before_its_creation_or_in_quiet_hours(
            seconds in 1_700_000_000_i64..1_900_000_000,
            from in 0_u32..24, to in 0_u32..24,
            needs_decision: bool,
        ) {
            prop_assume!(from != to);
            let (from, to) = (format!("{from:02}:00"), format!("{to:02}:00"));
            let rules = rules(Some((&from, &to)), "America/New_York");
            let now = DateTime::from_timestamp(seconds, 0).expect("a timestamp");
            let due = schedule(needs_decision, AlertSeverity::Info, now, &rules).due_at();
            prop_assert!(due >= now);
            prop_assert!(due <= now + TimeDelta::days(3));
            let quiet = rules.quiet_hours;
            prop_assert_eq!(after_quiet_hours(quiet, &rules.time_zone.clock(), due), due);
        }

        #[test]
        fn retry_delays_grow_up_to_a_limit(attempts in 1_u32..(MAX_ATTEMPTS - 1)) {
            let (now, next) = (retry_delay(attempts), retry_delay(attempts + 1));
            prop_assert!(now <= next);
            prop_assert!(next <= Some(TimeDelta::minutes(30)));
        }
    }

    #[test]
    fn an_unreachable_receiver_is_retried_for_three_days() {
        let delays: Vec<_> = (1..).map_while(retry_delay).collect();
        assert_eq!(delays.len() + 1, MAX_ATTEMPTS as usize);
        assert_eq!(delays[..3], [5, 10, 20].map(TimeDelta::seconds));
        let total = delays.into_iter().sum::<TimeDelta>();
        assert!((TimeDelta::hours(71)..TimeDelta::hours(73)).contains(&total), "{total}");
        assert_eq!(retry_delay(u32::MAX), None);
    }
}
