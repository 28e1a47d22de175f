//! How hard a plan is: a score from 0 to 14, the sum of named factors.
//!
//! The score chooses the tier of the first run, and its level is one of the factors of risk.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

use crate::tier::Tier;

/// What makes a plan hard, as the planner saw it. Each factor is capped, so the sum ends at 14.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Signals {
    /// Files to create, change or delete.
    pub files: u16,
    /// Modules or packages whose boundary the change crosses.
    pub modules: u16,
    /// How new it is to this codebase.
    pub novelty: Grade,
    /// How much has to be tested anew.
    pub tests: Grade,
    /// How close it comes to authentication, secrets, permissions or personal data.
    pub security: Grade,
    /// How much the description leaves open.
    pub ambiguity: Grade,
}

/// None, some or much of something.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    Display,
    EnumString,
    EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Grade {
    /// Not at all.
    #[default]
    None,
    /// To a degree.
    Some,
    /// To a high degree.
    Much,
}

impl Grade {
    fn points(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Some => 1,
            Self::Much => 2,
        }
    }
}

/// One of the named factors.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Display, EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Factor {
    /// Up to 3 points.
    Files,
    /// Up to 3 points.
    Modules,
    /// Up to 2 points.
    Novelty,
    /// Up to 2 points.
    Tests,
    /// Up to 2 points.
    Security,
    /// Up to 2 points.
    Ambiguity,
}

/// A score with the points that make it up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Complexity {
    /// The sum of the points, 0 to 14.
    pub score: u8,
    /// What the score amounts to.
    pub level: Level,
    /// Every factor that gave points, with them.
    pub factors: Vec<(Factor, u8)>,
}

/// What a score amounts to.
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
pub enum Level {
    /// 0 to 4.
    #[default]
    Low,
    /// 5 to 8.
    Medium,
    /// 9 to 14.
    High,
}

impl Level {
    /// The level of a score.
    pub fn of(score: u8) -> Self {
        match score {
            0..=4 => Self::Low,
            5..=8 => Self::Medium,
            _ => Self::High,
        }
    }

    /// The tier that a plan of this level starts with.
    pub fn tier(self) -> Tier {
        match self {
            Self::Low => Tier::Simple,
            Self::Medium => Tier::Moderate,
            Self::High => Tier::Complex,
        }
    }
}

/// Scores a plan by its signals.
pub fn assess(signals: &Signals) -> Complexity {
    let files = match signals.files {
        0..=1 => 0,
        2..=5 => 1,
        6..=10 => 2,
        _ => 3,
    };
    let modules = match signals.modules {
        0..=1 => 0,
        2 => 1,
        3..=4 => 2,
        _ => 3,
    };
    let factors: Vec<_> = [
        (Factor::Files, files),
        (Factor::Modules, modules),
        (Factor::Novelty, signals.novelty.points()),
        (Factor::Tests, signals.tests.points()),
        (Factor::Security, signals.security.points()),
        (Factor::Ambiguity, signals.ambiguity.points()),
    ]
    .into_iter()
    .filter(|(_, points)| *points > 0)
    .collect();
    let score = factors.iter().map(|(_, points)| points).sum();
    Complexity { score, level: Level::of(score), factors }
}
