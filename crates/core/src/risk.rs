//! Risk of a plan, explained factor by factor.
//!
//! The score gives a level; configured thresholds can raise it, but never lower it. The level
//! selects the ceremony: approvers, reviewers, gates, first tier and budget.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter};

use crate::complexity;
use crate::level::RiskLevel;
use crate::plan::PlanSummary;
use crate::rules::{RiskThreshold, Rules};

/// Factor of a plan's risk.
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
    Display,
    EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum RiskFactor {
    /// More than 5 files: 1 point; more than 10: 2.
    Files,
    /// Medium complexity: 1 point; high: 2.
    Complexity,
    /// The knowledge check raised warnings: 1 point.
    Warnings,
    /// The plan changes critical files: 2 points.
    CriticalFiles,
    /// More files than the threshold of a lower level: raises the level.
    FilesThreshold,
    /// Higher complexity than the threshold of a lower level: raises the level.
    ComplexityThreshold,
    /// Higher cost than the threshold of a lower level: raises the level.
    CostThreshold,
}

/// Effect of one factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FactorEffect {
    /// Points added to the score.
    Points(u8),
    /// Minimum level.
    AtLeast(RiskLevel),
}

/// Risk level with its factors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Risk {
    /// Risk level.
    pub level: RiskLevel,
    /// Sum of the points.
    pub score: u8,
    /// Factors that contributed, with their effects.
    pub factors: Vec<(RiskFactor, FactorEffect)>,
}

/// Assesses a plan by its summary and the number of warnings from the knowledge check.
pub fn assess(plan: &PlanSummary, warnings: u16, rules: &Rules) -> Risk {
    let complexity = complexity::ComplexityLevel::from_score(plan.complexity_score);
    let points = [
        (
            RiskFactor::Files,
            match plan.file_count {
                0..=5 => 0,
                6..=10 => 1,
                _ => 2,
            },
        ),
        (
            RiskFactor::Complexity,
            match complexity {
                complexity::ComplexityLevel::Low => 0,
                complexity::ComplexityLevel::Medium => 1,
                complexity::ComplexityLevel::High => 2,
            },
        ),
        (RiskFactor::Warnings, u8::from(warnings > 0)),
        (RiskFactor::CriticalFiles, if plan.critical_file_count > 0 { 2 } else { 0 }),
    ];
    let score = points.iter().map(|(_, points)| points).sum();
    let by_score = match score {
        0..=1 => RiskLevel::Low,
        2..=3 => RiskLevel::Medium,
        _ => RiskLevel::High,
    };

    let thresholds = &rules.scrum_master.risk_thresholds;
    let floor = |beyond: fn(&PlanSummary, &RiskThreshold) -> bool| {
        if beyond(plan, &thresholds.medium) {
            RiskLevel::High
        } else if beyond(plan, &thresholds.low) {
            RiskLevel::Medium
        } else {
            RiskLevel::Low
        }
    };
    let floors = [
        (RiskFactor::FilesThreshold, floor(|plan, limit| plan.file_count > limit.max_files)),
        (
            RiskFactor::ComplexityThreshold,
            floor(|plan, limit| {
                complexity::ComplexityLevel::from_score(plan.complexity_score)
                    > limit.max_complexity
            }),
        ),
        (
            RiskFactor::CostThreshold,
            floor(|plan, limit| {
                plan.estimated_cost.is_some_and(|cost| cost > limit.max_estimated_cost_usd)
            }),
        ),
    ];

    let level = floors.iter().map(|(_, level)| *level).fold(by_score, RiskLevel::max);
    let factors = points
        .into_iter()
        .filter(|(_, points)| *points > 0)
        .map(|(factor, points)| (factor, FactorEffect::Points(points)))
        .chain(
            floors
                .into_iter()
                .filter(|(_, level)| *level > by_score)
                .map(|(factor, level)| (factor, FactorEffect::AtLeast(level))),
        )
        .collect();
    Risk { level, score, factors }
}
