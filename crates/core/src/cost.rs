//! What work costs: money, tokens, prices.
//!
//! Money is decimal, never floating point. A cost that nobody could tell is *unknown*, which is
//! not zero: `budget` charges what was reserved for it instead.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Add, AddAssign};
use std::str::FromStr;

use rust_decimal::Decimal;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An amount of US dollars, never negative.
///
/// Read from a number or a text, written as a text, so that no cent is lost on the way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Usd(Decimal);

impl Usd {
    /// Nothing.
    pub const ZERO: Self = Self(Decimal::ZERO);

    /// A whole number of cents.
    pub fn cents(cents: u32) -> Self {
        Self(Decimal::new(i64::from(cents), 2))
    }

    /// The amount less another, and nothing where the other is more.
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0).max(Decimal::ZERO))
    }

    /// This share of the amount, in hundredths.
    #[must_use]
    pub fn percent(self, percent: u32) -> Self {
        Self(self.0.saturating_mul(Decimal::new(i64::from(percent), 2)))
    }

    /// What share of another amount this is, in percent: 0 to 100, and 0 where the other is nothing.
    pub fn share_of(self, whole: Self) -> u8 {
        let share = self.0.checked_div(whole.0).unwrap_or_default();
        let share = share.saturating_mul(Decimal::ONE_HUNDRED).round();
        u8::try_from(share).map_or(100, |share| share.min(100))
    }

    /// With at least two digits after the point, and at most four.
    pub fn with_cents(self) -> String {
        let text = self.to_string();
        match text.split_once('.').map(|(_, cents)| cents.len()) {
            None => format!("{text}.00"),
            Some(1) => format!("{text}0"),
            Some(_) => text,
        }
    }

    /// The amount divided evenly, or nothing when there is nothing to divide by.
    #[must_use]
    pub fn shared_by(self, parts: u64) -> Option<Self> {
        self.0.checked_div(Decimal::from(parts)).map(Self)
    }
}

impl Add for Usd {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Usd {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl fmt::Display for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${}", self.0.round_dp(4).normalize())
    }
}

/// An amount of money that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an amount of dollars: write a number such as 2.50, not negative")]
pub struct NotMoney(String);

impl FromStr for Usd {
    type Err = NotMoney;
    fn from_str(text: &str) -> Result<Self, NotMoney> {
        match text.trim().parse::<Decimal>() {
            Ok(amount) if !amount.is_sign_negative() || amount.is_zero() => Ok(Self(amount)),
            _ => Err(NotMoney(text.to_owned())),
        }
    }
}

impl Serialize for Usd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Usd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Amount;
        impl Visitor<'_> for Amount {
            type Value = Usd;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an amount of dollars such as 2.50")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Usd, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, whole: u64) -> Result<Usd, E> {
                Ok(Usd(whole.into()))
            }
            fn visit_i64<E: de::Error>(self, whole: i64) -> Result<Usd, E> {
                self.visit_str(&whole.to_string())
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Usd, E> {
                self.visit_str(&number.to_string())
            }
        }
        deserializer.deserialize_any(Amount)
    }
}

impl JsonSchema for Usd {
    fn schema_name() -> Cow<'static, str> {
        "Usd".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // The upper limit is far beyond any budget and well within what a decimal can hold.
        json_schema!({
            "description": "An amount of US dollars.",
            "type": "number",
            "minimum": 0,
            "maximum": 1_000_000_000,
        })
    }
}

/// Tokens by the way they are priced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    /// Read by the model at the full price.
    pub input: u64,
    /// Read by the model from its cache.
    pub cached: u64,
    /// Written by the model.
    pub output: u64,
}

impl Tokens {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.cached).saturating_add(self.output)
    }
}

/// What a piece of work used, as far as anybody knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// The tokens, as metered or as the agent reported them.
    pub tokens: Tokens,
    /// The money, if it could be told.
    pub cost: Cost,
}

/// A cost, or the admission that it is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cost {
    /// Metered, or reported by somebody we believe.
    Known(Usd),
    /// Nobody could tell. It is charged as what was reserved, never as nothing.
    #[default]
    Unknown,
}

/// What a million tokens of one model cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Dollars for a million tokens read.
    pub input: Usd,
    /// Dollars for a million tokens read from the cache.
    pub cached: Usd,
    /// Dollars for a million tokens written.
    pub output: Usd,
}

/// Prices a number of tokens of a model, from the table in the configuration.
///
/// A model that is not in the table has an unknown cost.
pub fn price(tokens: &Tokens, model: &str, table: &BTreeMap<String, Price>) -> Cost {
    let Some(price) = table.get(model) else {
        return Cost::Unknown;
    };
    let million = Decimal::from(1_000_000);
    let part = |count: u64, rate: Usd| rate.0.saturating_mul(Decimal::from(count)) / million;
    Cost::Known(Usd(part(tokens.input, price.input)
        .saturating_add(part(tokens.cached, price.cached))
        .saturating_add(part(tokens.output, price.output))))
}
