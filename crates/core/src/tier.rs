//! Tiers of models: how strong an engine a task gets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

/// How strong a model is. The configuration maps each to an agent and a model of any vendor.
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
    /// Quick and cheap.
    #[default]
    Simple,
    /// The everyday one.
    Moderate,
    /// The strongest there is.
    Complex,
}

impl Tier {
    /// The strongest tier.
    pub const TOP: Self = Self::Complex;

    /// The tier above, if there is one.
    pub fn above(self) -> Option<Self> {
        match self {
            Self::Simple => Some(Self::Moderate),
            Self::Moderate => Some(Self::Complex),
            Self::Complex => None,
        }
    }
}
