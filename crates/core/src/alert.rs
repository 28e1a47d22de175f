//! When people are told something, and how often it is tried.
//!
//! Whoever has to decide something is told at once, with a reminder until somebody has seen it; what
//! only is good to know waits for the digest of the day. Quiet hours hold back everything but what is
//! critical. Nothing is ever dropped for being late: it comes when the hours are over.

use chrono::{DateTime, Days, NaiveDateTime, NaiveTime, TimeDelta, TimeZone as _};
use chrono_tz::Tz;

use crate::rules::{Alerts, QuietHours};
use crate::task_loop::Severity;
use crate::time::Timestamp;

/// How a message goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// By itself, not before this moment.
    Alone(Timestamp),
    /// With everything else that is only good to know, at this moment.
    Digest(Timestamp),
}

impl Way {
    /// The earliest moment at which it may go.
    pub fn due_at(self) -> Timestamp {
        match self {
            Self::Alone(at) | Self::Digest(at) => at,
        }
    }
}

/// How a message goes out that was written at a moment.
pub fn way(asks: bool, severity: Severity, now: Timestamp, rules: &Alerts) -> Way {
    let zone = rules.time_zone.0;
    if severity == Severity::Critical {
        return Way::Alone(now);
    }
    if !asks {
        let at = next(zone, now, rules.digest_at.time());
        return Way::Digest(after_quiet(rules.quiet_hours, zone, at));
    }
    Way::Alone(after_quiet(rules.quiet_hours, zone, now))
}

/// A moment, or the end of the quiet hours that it is in.
fn after_quiet(quiet: Option<QuietHours>, zone: Tz, at: Timestamp) -> Timestamp {
    let Some(QuietHours { from, to }) = quiet else { return at };
    let (from, to, local) = (from.time(), to.time(), at.with_timezone(&zone).time());
    let inside = if from < to {
        (from..to).contains(&local)
    } else {
        // Over midnight.
        local >= from || local < to
    };
    if inside { next(zone, at, to) } else { at }
}

/// The next moment after another at which a clock shows a time.
fn next(zone: Tz, after: Timestamp, time: NaiveTime) -> Timestamp {
    let today = after.with_timezone(&zone).date_naive();
    let candidates = (0..3).filter_map(|days| today.checked_add_days(Days::new(days)));
    let mut moments = candidates.filter_map(|day| moment(zone, day.and_time(time)));
    moments.find(|at| *at > after).unwrap_or(after)
}

/// When a clock shows something: the first time where it does so twice, and an hour later where a
/// summer time passes over it.
fn moment(zone: Tz, local: NaiveDateTime) -> Option<Timestamp> {
    let found = zone.from_local_datetime(&local).earliest();
    let found = found.or_else(|| {
        zone.from_local_datetime(&local.checked_add_signed(TimeDelta::hours(1))?).earliest()
    });
    found.map(|at: DateTime<Tz>| at.with_timezone(&chrono::Utc))
}

/// How often it is tried to deliver a message before it is given up: with these pauses, three days.
/// Attempts are counted and not days, so that a server that was off for a week gives nothing up.
const ATTEMPTS: u32 = 153;

/// How long to wait after so many attempts that have failed: twice as long each time, up to half an
/// hour. Nothing when it was tried often enough.
pub fn pause_after(attempts: u32) -> Option<TimeDelta> {
    const LONGEST: i64 = 30 * 60;
    if attempts >= ATTEMPTS {
        return None;
    }
    let doubled = 5_i64 << attempts.saturating_sub(1).min(20);
    Some(TimeDelta::seconds(doubled.min(LONGEST)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a moment")
    }

    fn rules(quiet: Option<(&str, &str)>, zone: &str) -> Alerts {
        let time = |text: &str| text.parse().expect("a time of day");
        Alerts {
            quiet_hours: quiet.map(|(from, to)| QuietHours { from: time(from), to: time(to) }),
            time_zone: zone.to_owned().try_into().expect("a time zone"),
            ..Alerts::default()
        }
    }

    #[test]
    fn a_decision_is_asked_for_at_once_and_the_rest_waits_for_the_digest() {
        let (rules, now) = (rules(None, "UTC"), at("2026-11-15T12:00:00Z"));
        assert_eq!(way(true, Severity::Warning, now, &rules), Way::Alone(now));
        let tomorrow = Way::Digest(at("2026-11-16T08:00:00Z"));
        assert_eq!(way(false, Severity::Warning, now, &rules), tomorrow);
        assert_eq!(way(false, Severity::Critical, now, &rules), Way::Alone(now));
    }

    #[test]
    fn quiet_hours_hold_back_everything_but_what_is_critical() {
        let rules = rules(Some(("20:00", "07:00")), "Europe/Berlin");
        // Half past ten in the evening in Berlin.
        let late = at("2026-11-15T21:30:00Z");
        let morning = at("2026-11-16T06:00:00Z");
        assert_eq!(way(true, Severity::Warning, late, &rules), Way::Alone(morning));
        assert_eq!(way(true, Severity::Critical, late, &rules), Way::Alone(late));
        let day = at("2026-11-15T12:00:00Z");
        assert_eq!(way(true, Severity::Warning, day, &rules), Way::Alone(day));
    }

    #[test]
    fn an_hour_that_summer_time_leaves_out_comes_an_hour_later() {
        let rules = rules(Some(("22:00", "02:30")), "Europe/Berlin");
        // On this night there is no half past two.
        let night = at("2026-03-28T23:00:00Z");
        assert_eq!(
            way(true, Severity::Warning, night, &rules),
            Way::Alone(at("2026-03-29T01:30:00Z"))
        );
    }

    proptest! {
        #[test]
        fn nothing_goes_out_before_it_is_written_nor_in_quiet_hours(
            seconds in 1_700_000_000_i64..1_900_000_000,
            from in 0_u32..24, to in 0_u32..24,
            asks: bool,
        ) {
            prop_assume!(from != to);
            let (from, to) = (format!("{from:02}:00"), format!("{to:02}:00"));
            let rules = rules(Some((&from, &to)), "America/New_York");
            let now = DateTime::from_timestamp(seconds, 0).expect("a moment");
            let due = way(asks, Severity::Info, now, &rules).due_at();
            prop_assert!(due >= now);
            prop_assert!(due <= now + TimeDelta::days(3));
            let quiet = rules.quiet_hours;
            prop_assert_eq!(after_quiet(quiet, rules.time_zone.0, due), due);
        }

        #[test]
        fn pauses_grow_and_stop_growing(attempts in 1_u32..(ATTEMPTS - 1)) {
            let (now, then) = (pause_after(attempts), pause_after(attempts + 1));
            prop_assert!(now <= then);
            prop_assert!(then <= Some(TimeDelta::minutes(30)));
        }
    }

    #[test]
    fn a_receiver_that_never_comes_back_is_tried_for_three_days() {
        let pauses: Vec<_> = (1..).map_while(pause_after).collect();
        assert_eq!(pauses.len() + 1, ATTEMPTS as usize);
        assert_eq!(pauses[..3], [5, 10, 20].map(TimeDelta::seconds));
        let all = pauses.into_iter().sum::<TimeDelta>();
        assert!((TimeDelta::hours(71)..TimeDelta::hours(73)).contains(&all), "{all}");
        assert_eq!(pause_after(u32::MAX), None);
    }
}
