//! Budgets: spend, limits and reservations.
//!
//! The cost of each job is estimated and reserved before the job starts. When it ends, its real
//! cost replaces the reservation; an unknown cost is charged as the reservation. So unknown cost
//! never counts as zero, and work stops before the limit is exceeded.
//!
//! Runs of several tasks share the budgets of their project and of the day. Before a run starts, the
//! store reserves its maximum for it, by [`grant_run`].

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

/// Use of one budget, before a run starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BudgetUse {
    /// Limit of the budget.
    pub limit: SpendLimit,
    /// Amount spent by jobs that have ended, and by earlier attempts of this one.
    pub spent: Spend,
    /// Amount reserved for other runs that have not ended.
    pub reserved: Spend,
}

impl BudgetUse {
    /// Returns the amount that the run cannot spend: spent, or reserved for others.
    pub fn taken(&self) -> Spend {
        let Self { spent, reserved, .. } = self;
        Spend {
            usd: spent.usd + reserved.usd,
            tokens: spent.tokens.saturating_add(reserved.tokens),
            estimated: spent.estimated || reserved.estimated,
        }
    }

    fn is_spent(&self) -> bool {
        let SpendLimit { usd, tokens } = self.limit;
        usd.is_some_and(|usd| self.spent.usd >= usd)
            || tokens.is_some_and(|tokens| self.spent.tokens >= tokens)
    }

    /// Returns `true` if other runs have reserved so much that a run with this cost cannot start.
    fn is_reserved(&self, estimate: Usd) -> bool {
        let (left, free) = (remaining(&self.spent, &self.limit), self.free());
        let needed = left.usd.map(|left| left.min(estimate));
        let has_dollars = free.usd.is_none_or(|free| free > Usd::ZERO && Some(free) >= needed);
        let has_tokens = free.tokens.is_none_or(|free| free > 0);
        !has_dollars || !has_tokens
    }

    fn free(&self) -> SpendLimit {
        remaining(&self.taken(), &self.limit)
    }
}

/// Decision about the money of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunGrant {
    /// The run can spend up to this limit, which must be reserved for it.
    Granted(SpendLimit),
    /// Other runs have reserved what is left. Some of it may be free once they end.
    Waiting,
    /// A budget is spent.
    Exhausted,
}

/// Decides how much a run can spend: whatever is neither spent nor reserved, in all its budgets.
///
/// It waits for other runs if that is less than its estimated cost, and if they may leave more.
pub fn grant_run(budgets: &[BudgetUse], estimate: Usd) -> RunGrant {
    if budgets.iter().any(BudgetUse::is_spent) {
        return RunGrant::Exhausted;
    }
    if budgets.iter().any(|budget| budget.is_reserved(estimate)) {
        return RunGrant::Waiting;
    }
    let free = budgets.iter().map(BudgetUse::free);
    RunGrant::Granted(SpendLimit {
        usd: free.clone().filter_map(|free| free.usd).min(),
        tokens: free.filter_map(|free| free.tokens).min(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn dollars(cents: u32) -> Spend {
        Spend { usd: Usd::from_cents(cents), ..Spend::default() }
    }

    fn limit(cents: u32) -> SpendLimit {
        SpendLimit { usd: Some(Usd::from_cents(cents)), tokens: None }
    }

    fn budget(limit_cents: u32, spent: u32, reserved: u32) -> BudgetUse {
        let limit = limit(limit_cents);
        BudgetUse { limit, spent: dollars(spent), reserved: dollars(reserved) }
    }

    #[test]
    fn a_run_gets_what_is_neither_spent_nor_reserved() {
        let (task, day) = (budget(5_000, 1_000, 0), budget(10_000, 2_000, 5_000));
        let estimate = Usd::from_cents(100);
        assert_eq!(grant_run(&[task, day], estimate), RunGrant::Granted(limit(3_000)));
        assert_eq!(grant_run(&[task], estimate), RunGrant::Granted(limit(4_000)));
        let unlimited = SpendLimit::default();
        let other = BudgetUse { limit: unlimited, ..day };
        assert_eq!(grant_run(&[other], estimate), RunGrant::Granted(unlimited));
    }

    #[test]
    fn a_run_waits_for_reservations_and_not_for_spent_money() {
        let estimate = Usd::from_cents(200);
        assert_eq!(grant_run(&[budget(1_000, 0, 900)], estimate), RunGrant::Waiting);
        assert_eq!(grant_run(&[budget(1_000, 0, 1_000)], Usd::ZERO), RunGrant::Waiting);
        // Nobody can leave more, so the run starts with less than its estimate.
        let last = grant_run(&[budget(1_000, 900, 0)], estimate);
        assert_eq!(last, RunGrant::Granted(limit(100)));
        assert_eq!(grant_run(&[budget(1_000, 1_000, 0)], estimate), RunGrant::Exhausted);
        assert_eq!(grant_run(&[budget(1_000, 1_000, 500)], estimate), RunGrant::Exhausted);
    }

    #[test]
    fn tokens_are_reserved_too() {
        let spend = |tokens| Spend { tokens, ..Spend::default() };
        let tokens = |limit, spent, reserved| BudgetUse {
            limit: SpendLimit { usd: None, tokens: Some(limit) },
            spent: spend(spent),
            reserved: spend(reserved),
        };
        let granted = SpendLimit { usd: None, tokens: Some(50) };
        assert_eq!(grant_run(&[tokens(100, 30, 20)], Usd::ZERO), RunGrant::Granted(granted));
        assert_eq!(grant_run(&[tokens(100, 30, 70)], Usd::ZERO), RunGrant::Waiting);
        assert_eq!(grant_run(&[tokens(100, 100, 0)], Usd::ZERO), RunGrant::Exhausted);
    }

    proptest! {
        #[test]
        fn runs_that_keep_to_their_grants_never_exceed_a_shared_budget(
            total in 1_u32..10_000,
            estimate in 0_u32..500,
            runs in proptest::collection::vec((1_u32..5_000, 0_u32..=100, any::<bool>()), 1..30),
        ) {
            let total = Usd::from_cents(total);
            let (mut spent, mut live) = (Usd::ZERO, Vec::<(Usd, u32)>::new());
            for (allowance, percent, ends_first) in runs {
                if ends_first && !live.is_empty() {
                    let (granted, percent) = live.remove(0);
                    spent += granted.percent(percent);
                }
                let reserved = live.iter().fold(Usd::ZERO, |sum, (granted, _)| sum + *granted);
                let task = BudgetUse { limit: limit(allowance), ..BudgetUse::default() };
                let day = BudgetUse {
                    limit: SpendLimit { usd: Some(total), tokens: None },
                    spent: Spend { usd: spent, ..Spend::default() },
                    reserved: Spend { usd: reserved, ..Spend::default() },
                };
                match grant_run(&[task, day], Usd::from_cents(estimate)) {
                    RunGrant::Granted(SpendLimit { usd: Some(granted), .. }) => {
                        prop_assert!(granted > Usd::ZERO);
                        prop_assert!(spent + reserved + granted <= total);
                        live.push((granted, percent));
                    }
                    RunGrant::Granted(_) => return Err(TestCaseError::fail("a limit is lost")),
                    RunGrant::Waiting => prop_assert!(!live.is_empty(), "waits for nobody"),
                    RunGrant::Exhausted => prop_assert!(spent >= total),
                }
            }
        }
    }
}
