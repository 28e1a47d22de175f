//! Cost of work: money, tokens and prices.
//!
//! Amounts of money are decimal, never floating point. An unknown cost is not zero: `budget`
//! charges the reserved amount instead. Prices by model name are in [`crate::prices`].

use std::borrow::Cow;
use std::fmt;
use std::ops::{Add, AddAssign};
use std::str::FromStr;

use rust_decimal::Decimal;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Amount in US dollars, never negative.
///
/// It is parsed from a number or a string and serialised as a string, so that it loses no
/// precision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Usd(Decimal);

impl Usd {
    /// Zero dollars.
    pub const ZERO: Self = Self(Decimal::ZERO);

    /// Returns an amount of whole cents.
    pub fn from_cents(cents: u32) -> Self {
        Self(Decimal::new(i64::from(cents), 2))
    }

    /// Subtracts an amount; the result is at least zero.
    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0).max(Decimal::ZERO))
    }

    /// Returns a percentage of the amount.
    #[must_use]
    pub fn percent(self, percent: u32) -> Self {
        Self(self.0.saturating_mul(Decimal::new(i64::from(percent), 2)))
    }

    /// Returns the amount as a percentage of `total`, 0 to 100. Returns 0 if `total` is zero.
    pub fn percent_of(self, total: Self) -> u8 {
        let share = self.0.checked_div(total.0).unwrap_or_default();
        let share = share.saturating_mul(Decimal::ONE_HUNDRED).round();
        u8::try_from(share).map_or(100, |share| share.min(100))
    }

    /// Multiplies the amount.
    #[must_use]
    pub fn saturating_mul(self, times: u64) -> Self {
        Self(self.0.saturating_mul(Decimal::from(times)))
    }

    /// Divides the amount evenly. Returns `None` for zero parts.
    #[must_use]
    pub fn checked_div(self, parts: u64) -> Option<Self> {
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

/// Error for text that is not an amount of money.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a dollar amount; use a non-negative number such as 2.50")]
pub struct ParseUsdError(String);

impl FromStr for Usd {
    type Err = ParseUsdError;
    fn from_str(text: &str) -> Result<Self, ParseUsdError> {
        match text.trim().parse::<Decimal>() {
            Ok(amount) if !amount.is_sign_negative() || amount.is_zero() => Ok(Self(amount)),
            _ => Err(ParseUsdError(text.to_owned())),
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
        struct UsdVisitor;
        impl Visitor<'_> for UsdVisitor {
            type Value = Usd;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a dollar amount such as 2.50")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Usd, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Usd, E> {
                Ok(Usd(value.into()))
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Usd, E> {
                self.visit_str(&value.to_string())
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Usd, E> {
                self.visit_str(&number.to_string())
            }
        }
        deserializer.deserialize_any(UsdVisitor)
    }
}

impl JsonSchema for Usd {
    fn schema_name() -> Cow<'static, str> {
        "Usd".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // The upper limit is far above any budget and well within the range of a decimal.
        json_schema!({
            "description": "Amount in US dollars",
            "type": "number",
            "minimum": 0,
            "maximum": 1_000_000_000,
        })
    }
}

/// Token counts, by price category.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    /// Input tokens that were not read from the cache, including those written to it.
    pub input: u64,
    /// Input tokens read from the cache.
    pub cached: u64,
    /// Output tokens.
    pub output: u64,
    /// Part of `input` that was written to the cache for a short time.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write: u64,
    /// Part of `input` that was written to the cache for an hour.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write_1h: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature required by serde")]
pub(crate) fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Tokens {
    /// Returns the sum of input and output.
    pub fn total(&self) -> u64 {
        self.all_input().saturating_add(self.output)
    }

    /// Returns all input tokens, from the cache or not.
    pub fn all_input(&self) -> u64 {
        self.input.saturating_add(self.cached)
    }

    /// Returns the share of the input that was read from the cache, in percent. Returns `None`
    /// without input.
    pub fn cached_percent(&self) -> Option<u8> {
        let share = u128::from(self.cached) * 100;
        let share = share.checked_div(u128::from(self.all_input()))?;
        u8::try_from(share).ok()
    }
}

impl Add for Tokens {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            cached: self.cached.saturating_add(other.cached),
            output: self.output.saturating_add(other.output),
            cache_write: self.cache_write.saturating_add(other.cache_write),
            cache_write_1h: self.cache_write_1h.saturating_add(other.cache_write_1h),
        }
    }
}

/// Usage of a job, as far as it is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens, metered or as reported by the agent.
    pub tokens: Tokens,
    /// Cost, if known.
    pub cost: Cost,
}

impl Add for Usage {
    type Output = Self;

    /// The sum has a known cost only if both have one.
    fn add(self, other: Self) -> Self {
        let cost = match (self.cost, other.cost) {
            (Cost::Known(one), Cost::Known(other)) => Cost::Known(one + other),
            _ => Cost::Unknown,
        };
        Self { tokens: self.tokens + other.tokens, cost }
    }
}

/// Cost of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cost {
    /// Metered, or reported by a trusted source.
    Known(Usd),
    /// Not known. The reserved amount is charged instead.
    #[default]
    Unknown,
}

/// Prices of a model, per million tokens
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Dollars per million input tokens
    pub input: Usd,
    /// Dollars per million cached input tokens
    pub cached: Usd,
    /// Dollars per million output tokens
    pub output: Usd,
    /// Dollars per million input tokens that are written to the cache. Default: `input`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<Usd>,
    /// Dollars per million input tokens that are written to the cache for an hour. Default:
    /// `cache_write`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_1h: Option<Usd>,
    /// Prices of calls with a long input. They apply to all tokens of such a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long_context: Option<LongContextPrice>,
}

/// Prices of calls with a long input, per million tokens. A missing price is the usual one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LongContextPrice {
    /// Input tokens of a call, cached ones included, above which these prices apply
    pub above: u64,
    /// Dollars per million input tokens
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Usd>,
    /// Dollars per million cached input tokens
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached: Option<Usd>,
    /// Dollars per million output tokens
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Usd>,
    /// Dollars per million input tokens that are written to the cache
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<Usd>,
    /// Dollars per million input tokens that are written to the cache for an hour
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_1h: Option<Usd>,
}

impl Default for LongContextPrice {
    fn default() -> Self {
        Self {
            above: 200_000,
            input: None,
            cached: None,
            output: None,
            cache_write: None,
            cache_write_1h: None,
        }
    }
}

impl Price {
    /// Computes the cost of one model call.
    ///
    /// The price of a call depends on its own input, so the cost of several calls is the sum of
    /// their costs, not the cost of their sum.
    pub fn cost(&self, tokens: &Tokens) -> Usd {
        let price = match self.long_context {
            Some(long) if tokens.all_input() > long.above => self.with_long_context(&long),
            _ => *self,
        };
        let for_an_hour = tokens.cache_write_1h.min(tokens.input);
        let written = tokens.cache_write.min(tokens.input - for_an_hour);
        let plain = tokens.input - for_an_hour - written;
        let write_rate = price.cache_write.unwrap_or(price.input);
        let million = Decimal::from(1_000_000);
        let part = |count: u64, rate: Usd| rate.0.saturating_mul(Decimal::from(count)) / million;
        let parts = [
            part(plain, price.input),
            part(written, write_rate),
            part(for_an_hour, price.cache_write_1h.unwrap_or(write_rate)),
            part(tokens.cached, price.cached),
            part(tokens.output, price.output),
        ];
        Usd(parts.into_iter().fold(Decimal::ZERO, Decimal::saturating_add))
    }

    fn with_long_context(&self, long: &LongContextPrice) -> Self {
        Self {
            input: long.input.unwrap_or(self.input),
            cached: long.cached.unwrap_or(self.cached),
            output: long.output.unwrap_or(self.output),
            cache_write: long.cache_write.or(self.cache_write),
            cache_write_1h: long.cache_write_1h.or(self.cache_write_1h),
            long_context: None,
        }
    }
}
