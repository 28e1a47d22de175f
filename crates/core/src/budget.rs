//! What may be spent, and whether the next piece of work fits in it.
//!
//! The next piece of work is priced before it starts, and its price is set aside. When it ends,
//! what it really cost takes the place of the price; when nobody can tell what it cost, the price
//! stands. So unknown is never zero, and the limit is met before it is passed.

use serde::{Deserialize, Serialize};

use crate::cost::{Cost, Usage, Usd};
use crate::level::Level;
use crate::plan::Outline;
use crate::rules::Rules;
use crate::tier::Tier;

/// What a task has spent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spend {
    /// Dollars, metered where they could be and estimated where not.
    pub usd: Usd,
    /// Tokens.
    pub tokens: u64,
    /// Whether any of the dollars are an estimate.
    pub estimated: bool,
}

impl Spend {
    /// Books a piece of work for which `reserved` was set aside.
    pub fn book(&mut self, usage: Option<&Usage>, reserved: Usd) {
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

/// What people have allowed a task beyond its rules.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Grant {
    /// More runs.
    pub iterations: u16,
    /// More dollars.
    pub usd: Usd,
    /// More tokens.
    pub tokens: u64,
}

impl Grant {
    /// Both together.
    #[must_use]
    pub fn and(self, more: Self) -> Self {
        Self {
            iterations: self.iterations.saturating_add(more.iterations),
            usd: self.usd + more.usd,
            tokens: self.tokens.saturating_add(more.tokens),
        }
    }
}

/// The most that may be spent. What is `None` is not limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Dollars.
    pub usd: Option<Usd>,
    /// Tokens.
    pub tokens: Option<u64>,
}

/// The limit of one task: that of its level of risk, else the general one, and what was granted.
pub fn limit(level: Option<Level>, granted: &Grant, rules: &Rules) -> Limit {
    let usd = level
        .and_then(|level| rules.ceremony.get(level).budget_usd)
        .or(rules.budget.task_usd)
        .filter(|_| rules.scrum_master.task_loop.cost_tracking);
    Limit {
        usd: usd.map(|usd| usd + granted.usd),
        tokens: rules.budget.task_tokens.map(|tokens| tokens.saturating_add(granted.tokens)),
    }
}

/// What is left of a limit.
pub fn left(spend: &Spend, limit: &Limit) -> Limit {
    Limit {
        usd: limit.usd.map(|usd| usd.less(spend.usd)),
        tokens: limit.tokens.map(|tokens| tokens.saturating_sub(spend.tokens)),
    }
}

/// What the next run of a tier will cost, as far as can be said before it: the dearest of what such
/// a run usually costs, what the planner thinks, and what the last run did cost.
pub fn price_run(tier: Tier, plan: Option<&Outline>, last_run: Option<Usd>, rules: &Rules) -> Usd {
    let typical = rules.tiers.get(tier).typical_run_usd;
    let planned = plan.and_then(|plan| plan.estimated_cost);
    [planned, last_run].into_iter().flatten().fold(typical, Usd::max)
}

/// Whether something of a price still fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reservation {
    /// It fits.
    Granted,
    /// It fits, and with it the share that people are warned at is reached.
    Warned,
    /// It does not fit.
    Refused,
}

/// Decides whether something of a price still fits within a limit.
///
/// Task, project and day are asked alike, each with its own spend and limit.
pub fn reserve(spend: &Spend, price: Usd, limit: &Limit, warn_percent: u8) -> Reservation {
    let percent = u32::from(warn_percent);
    let with_price = spend.usd + price;
    let spent_out = limit.usd.is_some_and(|usd| with_price > usd)
        || limit.tokens.is_some_and(|tokens| spend.tokens >= tokens);
    let near = limit.usd.is_some_and(|usd| with_price >= usd.percent(percent))
        || limit.tokens.is_some_and(|tokens| {
            u128::from(spend.tokens) * 100 >= u128::from(tokens) * u128::from(percent)
        });
    if spent_out {
        Reservation::Refused
    } else if near {
        Reservation::Warned
    } else {
        Reservation::Granted
    }
}
