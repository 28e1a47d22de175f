//! Alerts: what people are told, where, and when they want to be left alone.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use chrono::{NaiveTime, Timelike as _};
use garde::Validate;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

use super::is_default;

/// What people are told, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own in the file")]
pub struct Alerts {
    /// When a plan is blocked by what the team has forbidden.
    #[garde(skip)]
    pub on_block: bool,
    /// When a task has used up its retries.
    #[garde(skip)]
    pub on_max_retries: bool,
    /// When a plan needs a person's approval.
    #[garde(skip)]
    pub on_approval_needed: bool,
    /// When a review fails.
    #[garde(skip)]
    pub on_review_failed: bool,
    /// Where alerts go.
    #[garde(dive)]
    pub channels: Vec<Channel>,
    /// The hours in which only what is critical is sent. The rest is sent when they are over.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(dive)]
    pub quiet_hours: Option<QuietHours>,
    /// When what needs no decision is sent, in one message for the day.
    #[serde(skip_serializing_if = "is_default")]
    #[garde(skip)]
    pub digest_at: TimeOfDay,
    /// The time zone of these hours, such as `Europe/Berlin`.
    #[serde(skip_serializing_if = "is_default")]
    #[garde(skip)]
    pub time_zone: TimeZone,
}

impl Default for Alerts {
    fn default() -> Self {
        Self {
            on_block: true,
            on_max_retries: true,
            on_approval_needed: true,
            on_review_failed: true,
            channels: vec![Channel {
                r#type: ChannelType::Cli,
                enabled: true,
                config: BTreeMap::new(),
            }],
            quiet_hours: None,
            digest_at: TimeOfDay::default(),
            time_zone: TimeZone::default(),
        }
    }
}

/// One place alerts go to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct Channel {
    /// What kind of place it is.
    #[garde(skip)]
    pub r#type: ChannelType,
    /// Whether it is used.
    #[serde(default = "yes")]
    #[garde(skip)]
    pub enabled: bool,
    /// What that kind of place needs: `url` and `secret` for a webhook, `url` of an incoming webhook
    /// for Slack, `smtp`, `from` and `to` for e-mail; nothing for the terminal and the desktop.
    #[serde(default)]
    #[garde(skip)]
    pub config: BTreeMap<String, String>,
}

fn yes() -> bool {
    true
}

/// A kind of place alerts go to.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    Display,
    EnumString,
    EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ChannelType {
    /// The terminal.
    Cli,
    /// An HTTP endpoint, signed.
    Webhook,
    /// A Slack channel.
    Slack,
    /// A mail address.
    Email,
    /// A notification on the desktop of the machine that `tamma up` runs on.
    Desktop,
}

/// From when to when people want to be left alone; over midnight where the end comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct QuietHours {
    /// When they begin.
    #[garde(custom(|from: &TimeOfDay, (): &()| apart(*from, self.to)))]
    pub from: TimeOfDay,
    /// When they are over.
    #[garde(skip)]
    pub to: TimeOfDay,
}

fn apart(from: TimeOfDay, to: TimeOfDay) -> garde::Result {
    if from == to {
        return Err(garde::Error::new(
            "quiet hours that end when they begin are either none or all: name two times",
        ));
    }
    Ok(())
}

/// A time of day, such as `08:00`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TimeOfDay(NaiveTime);

impl TimeOfDay {
    /// On the clock.
    pub fn time(self) -> NaiveTime {
        self.0
    }
}

impl Default for TimeOfDay {
    fn default() -> Self {
        // A number that is an hour.
        Self(NaiveTime::from_hms_opt(8, 0, 0).unwrap_or(NaiveTime::MIN))
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0.hour(), self.0.minute())
    }
}

impl FromStr for TimeOfDay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once(':').filter(|(hour, minute)| {
            let digits = |part: &str| part.len() == 2 && part.bytes().all(|it| it.is_ascii_digit());
            digits(hour) && digits(minute)
        });
        parts
            .and_then(|(hour, minute)| {
                NaiveTime::from_hms_opt(hour.parse().ok()?, minute.parse().ok()?, 0)
            })
            .map(Self)
            .ok_or_else(|| format!("`{text}` is not a time of day such as 08:00"))
    }
}

impl TryFrom<String> for TimeOfDay {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<TimeOfDay> for String {
    fn from(time: TimeOfDay) -> Self {
        time.to_string()
    }
}

impl JsonSchema for TimeOfDay {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TimeOfDay".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A time of day, such as `08:00`.",
            "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$",
        })
    }
}

/// A time zone by its name, such as `Europe/Berlin`, with its summer times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TimeZone(pub(crate) chrono_tz::Tz);

impl Default for TimeZone {
    fn default() -> Self {
        Self(chrono_tz::Tz::UTC)
    }
}

impl TryFrom<String> for TimeZone {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let zone = text.parse().map(Self);
        zone.map_err(|_| format!("`{text}` is not a time zone such as Europe/Berlin or UTC"))
    }
}

impl From<TimeZone> for String {
    fn from(zone: TimeZone) -> Self {
        zone.0.name().to_owned()
    }
}

impl JsonSchema for TimeZone {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TimeZone".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A time zone by its name, such as `Europe/Berlin`.",
        })
    }
}
