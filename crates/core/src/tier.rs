//! Tiers: strength of the agent and model that a task gets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

/// Tier of a model; the configuration maps each tier to an agent and a model of any vendor
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
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
pub enum Tier {
    /// Fast and cheap
    #[default]
    Simple,
    /// For everyday work
    Moderate,
    /// Strongest
    Complex,
}

impl Tier {
    /// Strongest tier.
    pub const TOP: Self = Self::Complex;

    /// Weakest tier that can judge a change.
    pub const VALIDATOR_MINIMUM: Self = Self::Moderate;

    /// Returns the next stronger tier, or `None` for the strongest.
    pub fn above(self) -> Option<Self> {
        match self {
            Self::Simple => Some(Self::Moderate),
            Self::Moderate => Some(Self::Complex),
            Self::Complex => None,
        }
    }
}
