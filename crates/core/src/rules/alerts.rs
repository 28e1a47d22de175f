//! Alert settings: events, channels, quiet hours and digest.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use chrono::{NaiveTime, Timelike as _};
use garde::Validate;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

use super::is_default;
use super::time_zone::TimeZone;

/// Events that send alerts, and the channels they go to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own in the file")]
pub struct AlertRules {
    /// Alert when the knowledge base blocks a plan.
    #[garde(skip)]
    pub on_block: bool,
    /// Alert when a task has used up its retries.
    #[garde(skip)]
    pub on_max_retries: bool,
    /// Alert when a plan needs approval.
    #[garde(skip)]
    pub on_approval_needed: bool,
    /// Alert when a review fails.
    #[garde(skip)]
    pub on_review_failed: bool,
    /// Destinations of alerts.
    #[garde(dive)]
    pub channels: Vec<AlertChannel>,
    /// Daily period in which only critical alerts are sent. Others are sent when it ends. Default:
    /// none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(dive)]
    pub quiet_hours: Option<QuietHours>,
    /// Time of day for the daily digest of alerts that need no decision, as `HH:MM`.
    #[serde(skip_serializing_if = "is_default")]
    #[garde(skip)]
    pub digest_at: TimeOfDay,
    /// Time zone of `quiet_hours` and `digest_at`, such as `Europe/Berlin`.
    #[serde(skip_serializing_if = "is_default")]
    #[garde(skip)]
    pub time_zone: TimeZone,
}

impl Default for AlertRules {
    fn default() -> Self {
        Self {
            on_block: true,
            on_max_retries: true,
            on_approval_needed: true,
            on_review_failed: true,
            channels: vec![AlertChannel {
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

/// Destination of alerts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct AlertChannel {
    /// Type of the channel.
    #[garde(skip)]
    pub r#type: ChannelType,
    /// Send alerts to this channel.
    #[serde(default = "default_enabled")]
    #[garde(skip)]
    pub enabled: bool,
    /// Settings of the channel: `url` for `webhook`, and `secret` to sign the messages; `url` of an
    /// incoming webhook, or `channel` and the `token` of a bot, for `slack`; `smtp`, `from` and `to`
    /// for `email`; none for `cli` and `desktop`.
    #[serde(default)]
    #[garde(skip)]
    pub config: BTreeMap<String, String>,
}

/// Setting that a channel lacks, or does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChannelProblem {
    /// Missing setting. Nothing can be sent without it.
    #[error("channel `{channel}` has no `{key}`: {hint}")]
    Missing {
        /// Type of the channel.
        channel: ChannelType,
        /// Name of the setting.
        key: &'static str,
        /// Way to get a value.
        hint: &'static str,
    },
    /// Setting that this type of channel does not use.
    #[error("channel `{channel}` does not use `{key}`: {hint}")]
    Unused {
        /// Type of the channel.
        channel: ChannelType,
        /// Name of the setting.
        key: String,
        /// Settings that it uses.
        hint: String,
    },
}

impl AlertChannel {
    /// Returns a setting without surrounding spaces, or `None` if it is missing or empty.
    pub fn setting(&self, key: &str) -> Option<&str> {
        self.config.get(key).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    /// Returns the first missing setting, or the first that has no effect. A channel without a
    /// problem can deliver.
    pub fn problem(&self) -> Option<ChannelProblem> {
        let channel = self.r#type;
        let known = channel.settings();
        if let Some(key) = self.config.keys().find(|key| !known.contains(&key.as_str())) {
            let hint = match known {
                [] => "it has no settings".to_owned(),
                known => format!("its settings are {}", known.join(", ")),
            };
            return Some(ChannelProblem::Unused { channel, key: key.clone(), hint });
        }
        let required: &[(&'static str, &'static str)] = match channel {
            ChannelType::Webhook => &[("url", "set it to the URL that receives the messages")],
            ChannelType::Slack if self.setting("url").is_some() => &[],
            ChannelType::Slack if self.setting("channel").is_some() => &[(
                "token",
                "Slack accepts messages to a channel only from a bot: set its token \
                 (TAMMA_ALERT_SLACK_TOKEN), or the `url` of an incoming webhook instead",
            )],
            ChannelType::Slack => &[(
                "url",
                "create an incoming webhook in Slack and set its URL, or set `channel` and the \
                 `token` of a bot",
            )],
            ChannelType::Email => &[
                ("smtp", "set the mail server, such as smtps://user:password@host"),
                ("from", "set the sender's e-mail address"),
                ("to", "set the recipient's e-mail address"),
            ],
            ChannelType::Cli | ChannelType::Desktop => &[],
        };
        let missing = required.iter().find(|(key, _)| self.setting(key).is_none());
        missing.map(|&(key, hint)| ChannelProblem::Missing { channel, key, hint })
    }
}

impl ChannelType {
    /// Returns the settings of a channel of this type.
    fn settings(self) -> &'static [&'static str] {
        match self {
            Self::Webhook => &["url", "secret"],
            Self::Slack => &["url", "channel", "token"],
            Self::Email => &["smtp", "from", "to"],
            Self::Cli | Self::Desktop => &[],
        }
    }
}

fn default_enabled() -> bool {
    true
}

/// Type of an alert channel.
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
    /// Terminal of `tamma up`.
    Cli,
    /// HTTP endpoint; messages are signed as Standard Webhooks if the channel has a secret.
    Webhook,
    /// Slack channel.
    Slack,
    /// E-mail address.
    Email,
    /// Desktop notification on the machine that runs `tamma up`.
    Desktop,
}

/// Daily period without non-critical alerts. It spans midnight if `to` is before `from`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct QuietHours {
    /// Start, as `HH:MM`.
    #[garde(custom(|from: &TimeOfDay, (): &()| must_differ(*from, self.to)))]
    pub from: TimeOfDay,
    /// End, as `HH:MM`.
    #[garde(skip)]
    pub to: TimeOfDay,
}

fn must_differ(from: TimeOfDay, to: TimeOfDay) -> garde::Result {
    if from == to {
        return Err(garde::Error::new(
            "`from` and `to` are the same time: use two different times, or remove `quiet_hours`",
        ));
    }
    Ok(())
}

/// Time of day, such as `08:00`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TimeOfDay(NaiveTime);

impl TimeOfDay {
    /// Returns the time as a `chrono` value.
    pub fn time(self) -> NaiveTime {
        self.0
    }
}

impl Default for TimeOfDay {
    fn default() -> Self {
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
            .ok_or_else(|| {
                format!("`{text}` is not a time of day: write it as HH:MM, such as 08:00")
            })
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
            "description": "Time of day, such as `08:00`.",
            "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$",
        })
    }
}
