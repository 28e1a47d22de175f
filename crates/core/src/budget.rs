//! Budgets: spend, limits and reservations.
//!
//! The cost of each job is estimated and reserved before the job starts. When it ends, its real
//! cost replaces the reservation; an unknown cost is charged as the reservation. So unknown cost
//! never counts as zero, and work stops before the limit is exceeded.

use serde::{Deserialize, Serialize};

use crate::cost::{Cost, Usage, Usd};
use crate::level::RiskLevel;
use crate::plan::PlanSummary;
use crate::rules::Rules;
use crate::tier::Tier;

/// Spend of a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spend {
    /// US dollars, metered where possible and estimated otherwise.
    pub usd: Usd,
    /// Total tokens.
    pub tokens: u64,
    /// Part of the dollars is an estimate.
    pub estimated: bool,
}

impl Spend {
    /// Records the cost of a job, or `reserved` if its cost is unknown.
    pub fn record(&mut self, usage: Option<&Usage>, reserved: Usd) {
        let cost = match usage.map(|usage| usage.cost) {
            Some(Cost::Known(cost)) => cost,
            Some(Cost::Unknown) | None => {
                self.estimated |= reserved > Usd::ZERO;
                reserved
            }
        };
        self.usd += cost;
        let tokens = usage.map_or(0, |usage| usage.tokens.total());
        self.tokens = self.tokens.saturating_add(tokens);
    }
}

/// Amounts that people allow a task beyond its rules.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Grant {
    /// Extra runs.
    pub iterations: u16,
    /// Extra dollars.
    pub usd: Usd,
    /// Extra tokens.
    pub tokens: u64,
}

impl Grant {
    /// Returns the sum of two grants.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self {
            iterations: self.iterations.saturating_add(more.iterations),
            usd: self.usd + more.usd,
            tokens: self.tokens.saturating_add(more.tokens),
        }
    }
}

/// Spending limit. `None` means unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpendLimit {
    /// US dollars.
    pub usd: Option<Usd>,
    /// Tokens.
    pub tokens: Option<u64>,
}

/// Returns the limit of a task: the budget of its risk level or the general one, plus grants.
pub fn task_limit(level: Option<RiskLevel>, granted: &Grant, rules: &Rules) -> SpendLimit {
    let usd = level
        .and_then(|level| rules.ceremony.get(level).budget_usd)
        .or(rules.budget.task_usd)
        .filter(|_| rules.scrum_master.task_loop.cost_tracking);
    SpendLimit {
        usd: usd.map(|usd| usd + granted.usd),
        tokens: rules.budget.task_tokens.map(|tokens| tokens.saturating_add(granted.tokens)),
    }
}

/// Returns the part of a limit that is not spent yet.
pub fn remaining(spend: &Spend, limit: &SpendLimit) -> SpendLimit {
    SpendLimit {
        usd: limit.usd.map(|usd| usd.saturating_sub(spend.usd)),
        tokens: limit.tokens.map(|tokens| tokens.saturating_sub(spend.tokens)),
    }
}

/// Estimates the cost of the next run: the highest of the tier's typical cost, the planner's
/// estimate and the most expensive run so far.
pub fn estimate_run_cost(
    tier: Tier,
    plan: Option<&PlanSummary>,
    max_run_cost: Option<Usd>,
    rules: &Rules,
) -> Usd {
    let typical = rules.tiers.get(tier).typical_run_usd;
    let planned = plan.and_then(|plan| plan.estimated_cost);
    [planned, max_run_cost].into_iter().flatten().fold(typical, Usd::max)
}

/// Result of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reservation {
    /// The amount fits.
    Granted,
    /// The amount fits, and spending reaches the warning threshold.
    Warned,
    /// The amount does not fit.
    Refused,
}

/// Checks whether an amount fits within a limit.
///
/// The budgets of tasks, projects and days use the same check, each with its own spend and limit.
pub fn reserve(spend: &Spend, cost: Usd, limit: &SpendLimit, warn_percent: u8) -> Reservation {
    let percent = u32::from(warn_percent);
    let with_cost = spend.usd + cost;
    let is_exceeded = limit.usd.is_some_and(|usd| with_cost > usd)
        || limit.tokens.is_some_and(|tokens| spend.tokens >= tokens);
    let reaches_warning = limit.usd.is_some_and(|usd| with_cost >= usd.percent(percent))
        || limit.tokens.is_some_and(|tokens| {
            u128::from(spend.tokens) * 100 >= u128::from(tokens) * u128::from(percent)
        });
    if is_exceeded {
        Reservation::Refused
    } else if reaches_warning {
        Reservation::Warned
    } else {
        Reservation::Granted
    }
}
