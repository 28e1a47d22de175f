//! Money of a run: reserved in the store before it starts, settled when it has ended.
//!
//! All workers share the budgets of a project and of the day. A reservation is renewed during the
//! run. If the worker dies, it is not, and the next run of the project settles it.

use std::time::Duration;

use chrono::TimeDelta;
use tamma_core::budget::{BudgetUse, RunGrant, SpendLimit};
use tamma_core::cost::Usd;
use tamma_core::task_loop::Timestamp;
use tamma_engine::gateway::{BudgetLimit, BudgetScope};
use tamma_engine::process::RunId;
use tamma_store::{Backoff, ReservationRequest, ReservedBudgets, RunNumber, RunRecord, Store};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::clock::now;
use crate::error::Error;
use crate::job_context::JobContext;

/// Time after which a reservation that was not renewed is settled.
const RESERVATION_DURATION: Duration = Duration::from_mins(2);

/// Renewal interval.
const RENEW_INTERVAL: Duration = Duration::from_secs(20);

/// First and maximum delay between attempts to reserve.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

/// Money that a run wants.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WantedBudget {
    /// Amount that the job can spend within its task.
    pub(crate) allowance: SpendLimit,
    /// Estimated cost of the run.
    pub(crate) estimate: Usd,
    /// Set if the gateway counts all model calls of the run.
    pub(crate) is_metered: bool,
}

impl WantedBudget {
    /// Returns `true` if a budget of the run limits dollars, so that every model needs a price.
    pub(crate) fn limits_dollars(&self, ctx: &JobContext) -> bool {
        let budget = &ctx.rules.budget;
        [self.allowance.usd, budget.project_usd, budget.day_usd].iter().any(Option::is_some)
    }
}

/// Decision about the money of a run.
pub(crate) enum BudgetReservation {
    /// Money is reserved.
    Reserved(Box<RunBudget>),
    /// A budget is spent.
    Exhausted,
    /// Provider is blocked until a time.
    ProviderBlocked(Timestamp),
}

/// Money that is reserved for a run. The recorded end of the run settles it; without one, it is
/// settled once it has not been renewed for a while.
pub(crate) struct RunBudget {
    /// Most that the run can spend.
    pub(crate) limit: SpendLimit,
    /// Budgets for the gateway. What other runs have reserved counts as spent.
    pub(crate) bounds: Vec<BudgetLimit>,
    /// Latest run of the task before this one, if any.
    pub(crate) latest_run: Option<RunRecord>,
    over: CancellationToken,
    renewal: Option<JoinHandle<()>>,
}

/// Reserves the money of a run, unless its provider is blocked. Waits while other runs have reserved
/// what is left.
pub(crate) async fn reserve_budget(
    store: &Store,
    ctx: &JobContext,
    provider: &str,
    wanted: WantedBudget,
) -> Result<BudgetReservation, Error> {
    let run = ctx.run_id();
    let WantedBudget { allowance, estimate, is_metered } = wanted;
    let request = ReservationRequest {
        task: run.task,
        run: run_number(run),
        project: ctx.project(),
        provider: provider.to_owned(),
        allowance,
        project_usd: ctx.rules.budget.project_usd,
        day_usd: ctx.rules.budget.day_usd,
        estimate,
        is_metered,
    };
    let mut backoff = Backoff::new(RETRY_DELAYS.0, RETRY_DELAYS.1);
    let mut has_waited = false;
    loop {
        let at = now();
        let reserved = store.reserve_run(&request, (at, expiry(at))).await?;
        if let Some(until) = reserved.blocked_until {
            return Ok(BudgetReservation::ProviderBlocked(until));
        }
        match reserved.grant {
            RunGrant::Granted(limit) => {
                let over = CancellationToken::new();
                let renewal = tokio::spawn(renew_until_done(store.clone(), run, over.clone()));
                return Ok(BudgetReservation::Reserved(Box::new(RunBudget {
                    limit,
                    bounds: bounds(&reserved),
                    latest_run: reserved.latest_run,
                    over,
                    renewal: Some(renewal),
                })));
            }
            RunGrant::Exhausted => return Ok(BudgetReservation::Exhausted),
            RunGrant::Waiting if !has_waited => {
                has_waited = true;
                tracing::info!(%run, "waiting for budget reserved by other runs");
            }
            RunGrant::Waiting => {}
        }
        tokio::select! {
            () = tokio::time::sleep(backoff.next_delay()) => {}
            () = ctx.stop.cancelled() => return Err(Error::Stopped),
        }
    }
}

impl RunBudget {
    /// Ends the renewal. Call it before the end of the run is recorded, which settles the
    /// reservation: a later renewal would reserve the money again.
    pub(crate) async fn stop_renewal(mut self) {
        self.over.cancel();
        if let Some(renewal) = self.renewal.take() {
            let _ = renewal.await;
        }
    }
}

impl Drop for RunBudget {
    fn drop(&mut self) {
        self.over.cancel();
    }
}

/// Returns the number of a run in the store.
pub(crate) fn run_number(run: RunId) -> RunNumber {
    RunNumber { job_number: run.job_number, attempt: run.generation }
}

fn expiry(at: Timestamp) -> Timestamp {
    at + TimeDelta::from_std(RESERVATION_DURATION).unwrap_or_default()
}

/// Returns the budgets for the gateway.
fn bounds(reserved: &ReservedBudgets) -> Vec<BudgetLimit> {
    let scopes = [
        (BudgetScope::Task, Some(reserved.task)),
        (BudgetScope::Project, reserved.project),
        (BudgetScope::Day, reserved.day),
    ];
    let bound = |(scope, budget): (BudgetScope, Option<BudgetUse>)| {
        let budget = budget?;
        Some(BudgetLimit { scope, limit: budget.limit, spent: budget.taken() })
    };
    scopes.into_iter().filter_map(bound).collect()
}

/// Renews the reservation of a run until it ends.
async fn renew_until_done(store: Store, run: RunId, over: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(RENEW_INTERVAL) => {}
            () = over.cancelled() => return,
        }
        let renewed = store.renew_reservation(run.task, run_number(run), expiry(now())).await;
        if let Err(error) = renewed {
            tracing::warn!(%error, %run, "failed to renew a reservation; retrying");
        }
    }
}

#[cfg(test)]
mod tests {
    use tamma_core::budget::Spend;

    use super::*;

    #[test]
    fn the_gateway_counts_reservations_of_other_runs_as_spent() {
        let cents = Usd::from_cents;
        let spend = |usd| Spend { usd, ..Spend::default() };
        let limit = SpendLimit { usd: Some(cents(1_000)), tokens: None };
        let day = BudgetUse { limit, spent: spend(cents(200)), reserved: spend(cents(500)) };
        let reserved = ReservedBudgets {
            grant: RunGrant::Granted(limit),
            task: BudgetUse { limit, ..BudgetUse::default() },
            project: None,
            day: Some(day),
            blocked_until: None,
            latest_run: None,
        };
        let bounds = bounds(&reserved);
        let spent: Vec<_> = bounds.iter().map(|bound| (bound.scope, bound.spent.usd)).collect();
        assert_eq!(spent, [(BudgetScope::Task, Usd::ZERO), (BudgetScope::Day, cents(700))]);
    }
}
