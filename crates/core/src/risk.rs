//! How risky a plan is, computed and explained factor by factor.
//!
//! The score makes the level; the configured thresholds can raise it and never lower it. The level
//! then chooses the ceremony: who approves, who reviews, which gates run, which tier starts and
//! what may be spent.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter};

use crate::complexity;
use crate::level::Level;
use crate::plan::Outline;
use crate::rules::{Rules, Threshold};

/// Why a plan is risky.
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
pub enum Factor {
    /// More than five files: 1 point; more than ten: 2.
    Files,
    /// Medium complexity: 1 point; high: 2.
    Complexity,
    /// The knowledge check had warnings: 1 point.
    Warnings,
    /// It touches files that the configuration calls critical: 2 points.
    CriticalFiles,
    /// More files than the configuration has for a lower level: raises the level.
    FilesThreshold,
    /// More complex than the configuration has for a lower level: raises the level.
    ComplexityThreshold,
    /// Dearer than the configuration has for a lower level: raises the level.
    CostThreshold,
}

/// What one factor did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// It added points.
    Points(u8),
    /// It raised the level to at least this one.
    AtLeast(Level),
}

/// A level of risk with its explanation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Risk {
    /// How risky it is.
    pub level: Level,
    /// The sum of the points.
    pub score: u8,
    /// Every factor that counted, with what it did.
    pub factors: Vec<(Factor, Weight)>,
}

/// Judges a plan by its outline and the number of warnings the knowledge check gave.
pub fn assess(plan: &Outline, warnings: u16, rules: &Rules) -> Risk {
    let complexity = complexity::Level::of(plan.complexity);
    let points = [
        (
            Factor::Files,
            match plan.files {
                0..=5 => 0,
                6..=10 => 1,
                _ => 2,
            },
        ),
        (
            Factor::Complexity,
            match complexity {
                complexity::Level::Low => 0,
                complexity::Level::Medium => 1,
                complexity::Level::High => 2,
            },
        ),
        (Factor::Warnings, u8::from(warnings > 0)),
        (Factor::CriticalFiles, if plan.critical_files > 0 { 2 } else { 0 }),
    ];
    let score = points.iter().map(|(_, points)| points).sum();
    let by_score = match score {
        0..=1 => Level::Low,
        2..=3 => Level::Medium,
        _ => Level::High,
    };

    let thresholds = &rules.scrum_master.risk_thresholds;
    let floor = |beyond: fn(&Outline, &Threshold) -> bool| {
        if beyond(plan, &thresholds.medium) {
            Level::High
        } else if beyond(plan, &thresholds.low) {
            Level::Medium
        } else {
            Level::Low
        }
    };
    let floors = [
        (Factor::FilesThreshold, floor(|plan, limit| plan.files > limit.max_files)),
        (
            Factor::ComplexityThreshold,
            floor(|plan, limit| complexity::Level::of(plan.complexity) > limit.max_complexity),
        ),
        (
            Factor::CostThreshold,
            floor(|plan, limit| {
                plan.estimated_cost.is_some_and(|cost| cost > limit.max_estimated_cost_usd)
            }),
        ),
    ];

    let level = floors.iter().map(|(_, level)| *level).fold(by_score, Level::max);
    let factors = points
        .into_iter()
        .filter(|(_, points)| *points > 0)
        .map(|(factor, points)| (factor, Weight::Points(points)))
        .chain(
            floors
                .into_iter()
                .filter(|(_, level)| *level > by_score)
                .map(|(factor, level)| (factor, Weight::AtLeast(level))),
        )
        .collect();
    Risk { level, score, factors }
}
