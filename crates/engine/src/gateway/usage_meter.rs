//! Usage metering of a run, and enforcement of its budgets.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tamma_core::budget::{Spend, SpendLimit};
use tamma_core::cost::{Cost, Tokens, Usage, Usd};
use tamma_core::prices::PriceTable;
use tokio::sync::{Notify, watch};

use super::{
    BudgetLimit, BudgetScope, CallFailure, GatewayEvent, GatewayObserver, GatewayStop, Ledger,
    ModelCall,
};

/// Tokens of models without a price that a run can use if no budget limits them, in dollars or in
/// tokens.
const MAX_UNPRICED_TOKENS: u64 = 20_000_000;

/// Usage meter of one run.
pub(super) struct UsageMeter {
    prices: PriceTable,
    /// A budget limits dollars, so every model needs a price.
    limits_dollars: bool,
    /// A budget limits tokens, with or without a price.
    limits_tokens: bool,
    warn_percent: u8,
    observer: GatewayObserver,
    state: Mutex<MeterState>,
    /// Signals the end of a call, after which another one may fit.
    call_ended: Notify,
    stop: watch::Sender<Option<GatewayStop>>,
}

struct MeterState {
    limits: Vec<TrackedLimit>,
    /// Amount reserved for calls in flight.
    reserved: Amount,
    in_flight: u32,
    /// Tokens of models without a price.
    unpriced_tokens: u64,
    ledger: Ledger,
}

struct TrackedLimit {
    budget: BudgetLimit,
    warned: bool,
}

/// Dollars and tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Amount {
    usd: Usd,
    tokens: u64,
}

/// Reservation for one call.
pub(super) struct CallReservation {
    meter: Arc<UsageMeter>,
    /// Maximum cost of the call.
    maximum: Amount,
    /// Estimated cost of the call.
    estimate: Amount,
}

/// Outcome of a call.
pub(super) enum CallOutcome {
    /// Response was received.
    Answered {
        /// Usage, if reported.
        tokens: Option<Tokens>,
        /// Model name in the response.
        model: Option<String>,
        /// Failure during the response.
        failure: Option<CallFailure>,
    },
    /// Call failed without a response, which costs nothing.
    Failed(CallFailure),
}

impl UsageMeter {
    pub(super) fn new(
        prices: PriceTable,
        limits: Vec<BudgetLimit>,
        warn_percent: u8,
        observer: GatewayObserver,
    ) -> Self {
        let ledger = Ledger {
            usage: Usage { cost: Cost::Known(Usd::ZERO), ..Usage::default() },
            charged: Spend::default(),
            calls: 0,
            unmetered: 0,
            last_failure: None,
        };
        let limits_dollars = limits.iter().any(|budget| budget.limit.usd.is_some());
        let limits_tokens = limits.iter().any(|budget| budget.limit.tokens.is_some());
        let limits =
            limits.into_iter().map(|budget| TrackedLimit { budget, warned: false }).collect();
        let state = MeterState {
            limits,
            reserved: Amount::default(),
            in_flight: 0,
            unpriced_tokens: 0,
            ledger,
        };
        Self {
            prices,
            limits_dollars,
            limits_tokens,
            warn_percent,
            observer,
            state: Mutex::new(state),
            call_ended: Notify::new(),
            stop: watch::channel(None).0,
        }
    }

    fn state(&self) -> MutexGuard<'_, MeterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the usage so far.
    pub(super) fn ledger(&self) -> Ledger {
        self.state().ledger.clone()
    }

    /// Waits until further calls are refused.
    pub(super) async fn stopped(&self) -> GatewayStop {
        let mut stop = self.stop.subscribe();
        loop {
            if let Some(stop) = stop.borrow_and_update().clone() {
                return stop;
            }
            if stop.changed().await.is_err() {
                // Unreachable, because `self` owns the sender.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until no call is in flight.
    pub(super) async fn settled(&self) {
        loop {
            let mut ended = std::pin::pin!(self.call_ended.notified());
            ended.as_mut().enable();
            if self.state().in_flight == 0 {
                return;
            }
            ended.await;
        }
    }

    /// Refuses further calls of the run. Only the first reason is reported.
    pub(super) fn stop(&self, reason: GatewayStop) {
        let first = self.stop.send_if_modified(|stop| {
            let first = stop.is_none();
            stop.get_or_insert_with(|| reason.clone());
            first
        });
        if first {
            // Wake calls that wait for budget.
            self.call_ended.notify_waiters();
            (self.observer)(GatewayEvent::Stopped(reason));
        }
    }

    /// Reports a call that was refused.
    pub(super) fn report_call(&self, call: ModelCall) {
        (self.observer)(GatewayEvent::ModelCalled(call));
    }

    /// Reserves the maximum cost of a call, and waits while it does not fit beside calls in flight.
    /// A model without a price is refused if a budget limits dollars, and after many tokens if no
    /// budget limits those.
    ///
    /// A request has at most as many tokens as bytes, and typically a quarter of that. A single
    /// call may exceed a budget that is not spent yet, because its cost is unknown in advance.
    pub(super) async fn reserve(
        self: &Arc<Self>,
        model: &str,
        bytes: usize,
        max_output: u64,
    ) -> Result<CallReservation, GatewayStop> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let estimate = Tokens { input: bytes / 4, output: max_output, ..Tokens::default() };
        // Writing all of it to the cache for an hour costs the most.
        let maximum =
            Tokens { input: bytes, output: max_output, cache_write_1h: bytes, ..Tokens::default() };
        let unpriced = || GatewayStop::Unpriced { model: model.to_owned() };
        let is_priced = self.prices.cost(&maximum, model) != Cost::Unknown;
        let (Some(maximum), Some(estimate)) =
            (self.amount(model, maximum), self.amount(model, estimate))
        else {
            return Err(self.refuse(unpriced()));
        };
        let is_bounded = is_priced || self.limits_tokens;
        if !is_bounded && self.state().unpriced_tokens >= MAX_UNPRICED_TOKENS {
            return Err(self.refuse(unpriced()));
        }
        loop {
            let mut ended = std::pin::pin!(self.call_ended.notified());
            // From here on, no signal is missed.
            ended.as_mut().enable();
            if let Some(stop) = self.stop.borrow().clone() {
                return Err(stop);
            }
            let reached = {
                let mut state = self.state();
                let reached = state.exhausted_scope();
                if reached.is_none() && (state.in_flight == 0 || state.fits(maximum)) {
                    state.reserved = state.reserved.plus(maximum);
                    state.in_flight += 1;
                    return Ok(CallReservation { meter: self.clone(), maximum, estimate });
                }
                reached
            };
            if let Some(scope) = reached {
                return Err(self.refuse(GatewayStop::OverBudget { scope }));
            }
            ended.await;
        }
    }

    /// Returns tokens and their cost, or `None` without a price. If no budget limits dollars,
    /// nothing is compared with the cost, so it is zero then.
    fn amount(&self, model: &str, tokens: Tokens) -> Option<Amount> {
        let usd = match self.prices.cost(&tokens, model) {
            Cost::Known(usd) => usd,
            Cost::Unknown if self.limits_dollars => return None,
            Cost::Unknown => Usd::ZERO,
        };
        Some(Amount { usd, tokens: tokens.total() })
    }

    /// Refuses further calls of the run, and returns the first reason.
    fn refuse(&self, reason: GatewayStop) -> GatewayStop {
        self.stop(reason.clone());
        self.stop.borrow().clone().unwrap_or(reason)
    }

    /// Records the outcome of a call.
    fn record_outcome(
        &self,
        reservation: &CallReservation,
        outcome: CallOutcome,
        mut call: ModelCall,
    ) {
        let mut warned = Vec::new();
        let reached = {
            let mut state = self.state();
            // Release and charge under one lock, so that no other call takes the budget in between.
            state.release(reservation.maximum);
            let charge = match outcome {
                CallOutcome::Failed(failure) => {
                    call.cost = Cost::Known(Usd::ZERO);
                    call.note.get_or_insert_with(|| failure.message.clone());
                    state.ledger.last_failure = Some(failure);
                    None
                }
                CallOutcome::Answered { tokens, model, failure } => {
                    state.ledger.calls += 1;
                    if let Some(failure) = &failure {
                        call.note.get_or_insert_with(|| failure.message.clone());
                    }
                    state.ledger.last_failure = failure;
                    Some(self.charge(&mut state.ledger, reservation, tokens, model, &mut call))
                }
            };
            if let Some((amount, estimated)) = charge {
                if call.cost == Cost::Unknown {
                    state.unpriced_tokens = state.unpriced_tokens.saturating_add(amount.tokens);
                }
                state.charge(amount, estimated);
                warned = state.take_new_warnings(self.warn_percent);
            }
            state.exhausted_scope()
        };
        self.report_call(call);
        for bound in warned {
            let BudgetLimit { scope, limit, spent } = bound;
            (self.observer)(GatewayEvent::BudgetWarning { scope, spent, limit });
        }
        if let Some(scope) = reached {
            self.stop(GatewayStop::OverBudget { scope });
        }
    }

    /// Charges a response. The second value is `true` for an estimate.
    fn charge(
        &self,
        ledger: &mut Ledger,
        reservation: &CallReservation,
        tokens: Option<Tokens>,
        model: Option<String>,
        call: &mut ModelCall,
    ) -> (Amount, bool) {
        let Some(tokens) = tokens else {
            call.note.get_or_insert_with(|| {
                "the response reports no usage; an estimate is charged".to_owned()
            });
            ledger.unmetered += 1;
            ledger.usage.cost = Cost::Unknown;
            return (reservation.estimate, true);
        };
        call.tokens = Some(tokens);
        call.cost = match self.prices.cost(&tokens, &call.model) {
            // The price table may list the provider's name of the model.
            Cost::Unknown => model.map_or(Cost::Unknown, |model| self.prices.cost(&tokens, &model)),
            known @ Cost::Known(_) => known,
        };
        ledger.usage.tokens = ledger.usage.tokens + tokens;
        if let Cost::Known(usd) = call.cost {
            if let Cost::Known(sum) = &mut ledger.usage.cost {
                *sum += usd;
            }
            (Amount { usd, tokens: tokens.total() }, false)
        } else {
            let model = &call.model;
            call.note.get_or_insert_with(|| format!("unknown price for model `{model}`"));
            ledger.usage.cost = Cost::Unknown;
            (Amount { usd: reservation.estimate.usd, tokens: tokens.total() }, true)
        }
    }
}

impl CallReservation {
    /// Records the outcome of the call and releases the reservation.
    pub(super) fn settle(self, outcome: CallOutcome, call: ModelCall) {
        let meter = self.meter.clone();
        meter.record_outcome(&self, outcome, call);
        // Notify last, so that waiting calls see the recorded amount.
        meter.call_ended.notify_waiters();
    }
}

impl MeterState {
    fn release(&mut self, amount: Amount) {
        self.reserved = self.reserved.minus(amount);
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Returns the scope of the first budget that is spent.
    fn exhausted_scope(&self) -> Option<BudgetScope> {
        let bounds = self.limits.iter().map(|watched| &watched.budget);
        let reached = |bound: &&BudgetLimit| {
            let BudgetLimit { limit, spent, .. } = bound;
            limit.usd.is_some_and(|usd| spent.usd >= usd)
                || limit.tokens.is_some_and(|tokens| spent.tokens >= tokens)
        };
        bounds.into_iter().find(reached).map(|bound| bound.scope)
    }

    /// Returns `true` if an amount fits into all budgets, beside calls in flight.
    fn fits(&self, amount: Amount) -> bool {
        let all = self.reserved.plus(amount);
        self.limits.iter().all(
            |TrackedLimit { budget: BudgetLimit { limit, spent, .. }, .. }| {
                limit.usd.is_none_or(|usd| spent.usd + all.usd <= usd)
                    && limit
                        .tokens
                        .is_none_or(|limit| spent.tokens.saturating_add(all.tokens) <= limit)
            },
        )
    }

    fn charge(&mut self, amount: Amount, estimated: bool) {
        let spends = self.limits.iter_mut().map(|watched| &mut watched.budget.spent);
        for spend in spends.chain([&mut self.ledger.charged]) {
            spend.usd += amount.usd;
            spend.tokens = spend.tokens.saturating_add(amount.tokens);
            spend.estimated |= estimated;
        }
    }

    /// Returns budgets that have newly reached the warning threshold.
    fn take_new_warnings(&mut self, percent: u8) -> Vec<BudgetLimit> {
        let near = |BudgetLimit { limit: SpendLimit { usd, tokens }, spent, .. }: &BudgetLimit| {
            usd.is_some_and(|usd| spent.usd >= usd.percent(percent.into()))
                || tokens.is_some_and(|tokens| {
                    u128::from(spent.tokens) * 100 >= u128::from(tokens) * u128::from(percent)
                })
        };
        let new = self.limits.iter_mut().filter(|watched| !watched.warned && near(&watched.budget));
        new.map(|watched| {
            watched.warned = true;
            watched.budget
        })
        .collect()
    }
}

impl Amount {
    fn plus(self, other: Self) -> Self {
        Self { usd: self.usd + other.usd, tokens: self.tokens.saturating_add(other.tokens) }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            usd: self.usd.saturating_sub(other.usd),
            tokens: self.tokens.saturating_sub(other.tokens),
        }
    }
}
