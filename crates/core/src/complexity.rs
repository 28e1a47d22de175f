//! Complexity of a plan: a score from 0 to 14, the sum of named factors.
//!
//! The score selects the tier of the first run, and its level is a factor of the risk. A planner
//! grades most factors; the ones that it leaves out are estimated (`estimate_signals`), because an
//! unknown factor is not zero.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

use crate::tier::Tier;

/// Facts that the complexity score is computed from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Signals {
    /// Files to create, change or delete.
    pub files: u16,
    /// Modules or packages whose boundary the change crosses.
    pub modules: u16,
    /// Novelty for this codebase.
    pub novelty: Grade,
    /// Amount of new testing.
    pub tests: Grade,
    /// Closeness to authentication, secrets, permissions or personal data.
    pub security: Grade,
    /// Ambiguity of the description.
    pub ambiguity: Grade,
}

/// Planner's grades for the complexity score
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PlanSignals {
    /// Files to create, change or delete; they are counted instead
    pub files: u16,
    /// Modules or packages whose boundary the change crosses
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u16")]
    pub modules: Option<u16>,
    /// Novelty for this codebase
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Grade")]
    pub novelty: Option<Grade>,
    /// Amount of new testing
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Grade")]
    pub tests: Option<Grade>,
    /// Closeness to authentication, secrets, permissions or personal data
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Grade")]
    pub security: Option<Grade>,
    /// Ambiguity of the description
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Grade")]
    pub ambiguity: Option<Grade>,
}

impl PlanSignals {
    /// Returns the factors that the planner has not graded.
    pub fn missing(&self) -> Vec<ComplexityFactor> {
        [
            (ComplexityFactor::Modules, self.modules.is_none()),
            (ComplexityFactor::Novelty, self.novelty.is_none()),
            (ComplexityFactor::Tests, self.tests.is_none()),
            (ComplexityFactor::Security, self.security.is_none()),
            (ComplexityFactor::Ambiguity, self.ambiguity.is_none()),
        ]
        .into_iter()
        .filter_map(|(factor, is_missing)| is_missing.then_some(factor))
        .collect()
    }

    /// Returns complete signals: the planner's grades, and estimates for the rest.
    pub fn or(self, estimate: &Signals) -> Signals {
        Signals {
            files: estimate.files,
            modules: self.modules.unwrap_or(estimate.modules),
            novelty: self.novelty.unwrap_or(estimate.novelty),
            tests: self.tests.unwrap_or(estimate.tests),
            security: self.security.unwrap_or(estimate.security),
            ambiguity: self.ambiguity.unwrap_or(estimate.ambiguity),
        }
    }
}

impl From<Signals> for PlanSignals {
    fn from(signals: Signals) -> Self {
        let Signals { files, modules, novelty, tests, security, ambiguity } = signals;
        Self {
            files,
            modules: Some(modules),
            novelty: Some(novelty),
            tests: Some(tests),
            security: Some(security),
            ambiguity: Some(ambiguity),
        }
    }
}

/// Amount: none, some or much
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
    /// None
    #[default]
    None,
    /// Some
    Some,
    /// Much
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

/// Named factor of a complexity score.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Display, EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ComplexityFactor {
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

/// Complexity score with its factors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Complexity {
    /// Sum of the points, 0 to 14.
    pub score: u8,
    /// Level of the score.
    pub level: ComplexityLevel,
    /// Factors with at least one point.
    pub factors: Vec<(ComplexityFactor, u8)>,
}

/// Level of a complexity score
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
pub enum ComplexityLevel {
    /// 0 to 4
    #[default]
    Low,
    /// 5 to 8
    Medium,
    /// 9 to 14
    High,
}

impl ComplexityLevel {
    /// Returns the level of a score.
    pub fn from_score(score: u8) -> Self {
        match score {
            0..=4 => Self::Low,
            5..=8 => Self::Medium,
            _ => Self::High,
        }
    }

    /// Returns the tier of the first run of a plan of this level.
    pub fn tier(self) -> Tier {
        match self {
            Self::Low => Tier::Simple,
            Self::Medium => Tier::Moderate,
            Self::High => Tier::Complex,
        }
    }
}

/// Computes the complexity score of a plan.
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
        (ComplexityFactor::Files, files),
        (ComplexityFactor::Modules, modules),
        (ComplexityFactor::Novelty, signals.novelty.points()),
        (ComplexityFactor::Tests, signals.tests.points()),
        (ComplexityFactor::Security, signals.security.points()),
        (ComplexityFactor::Ambiguity, signals.ambiguity.points()),
    ]
    .into_iter()
    .filter(|(_, points)| *points > 0)
    .collect();
    let score = factors.iter().map(|(_, points)| points).sum();
    Complexity { score, level: ComplexityLevel::from_score(score), factors }
}
