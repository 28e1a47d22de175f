//! Counts what a run uses, and says when it has used enough.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tamma_core::budget::{Limit, Spend};
use tamma_core::cost::{self, Cost, Price, Tokens, Usage, Usd};
use tokio::sync::{Notify, watch};

use super::{Bound, Event, Failed, Ledger, ModelCall, Observer, Stop, Whose};

/// The books of one run.
pub(super) struct Meter {
    prices: BTreeMap<String, Price>,
    warn_percent: u8,
    observer: Observer,
    books: Mutex<Books>,
    /// A call has ended, so that another may fit.
    ended: Notify,
    stop: watch::Sender<Option<Stop>>,
}

struct Books {
    bounds: Vec<Watched>,
    /// What is set aside for the calls on their way.
    held: Amount,
    on_their_way: u32,
    ledger: Ledger,
}

struct Watched {
    bound: Bound,
    warned: bool,
}

/// Money and tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Amount {
    usd: Usd,
    tokens: u64,
}

/// What is set aside for one call, until it is given back.
pub(super) struct Hold {
    meter: Arc<Meter>,
    /// What it can cost at most.
    most: Amount,
    /// What it probably costs.
    likely: Amount,
}

/// What came of a call.
pub(super) enum Outcome {
    /// It was answered and said what it used, or not.
    Answered {
        /// What it used.
        tokens: Option<Tokens>,
        /// The name that the model gave itself.
        model: Option<String>,
        /// A failure in the middle of the answer.
        failed: Option<Failed>,
    },
    /// It was not answered, which costs nothing.
    Failed(Failed),
}

impl Meter {
    pub(super) fn new(
        prices: BTreeMap<String, Price>,
        bounds: Vec<Bound>,
        warn_percent: u8,
        observer: Observer,
    ) -> Self {
        let ledger = Ledger {
            usage: Usage { cost: Cost::Known(Usd::ZERO), ..Usage::default() },
            charged: Spend::default(),
            calls: 0,
            unmetered: 0,
            last_failure: None,
        };
        let bounds = bounds.into_iter().map(|bound| Watched { bound, warned: false }).collect();
        let held = Amount::default();
        Self {
            prices,
            warn_percent,
            observer,
            books: Mutex::new(Books { bounds, held, on_their_way: 0, ledger }),
            ended: Notify::new(),
            stop: watch::channel(None).0,
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was used so far.
    pub(super) fn ledger(&self) -> Ledger {
        self.books().ledger.clone()
    }

    /// Resolves when the run calls no model any more.
    pub(super) async fn stopped(&self) -> Stop {
        let mut stop = self.stop.subscribe();
        loop {
            if let Some(stop) = *stop.borrow_and_update() {
                return stop;
            }
            if stop.changed().await.is_err() {
                // The sender is our own, so this is never reached.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Resolves when no call is on its way.
    pub(super) async fn settled(&self) {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            if self.books().on_their_way == 0 {
                return;
            }
            ended.await;
        }
    }

    /// Ends the run's calls. Only the first reason is told.
    pub(super) fn stop(&self, why: Stop) {
        let first = self.stop.send_if_modified(|stop| {
            let first = stop.is_none();
            stop.get_or_insert(why);
            first
        });
        if first {
            // Those who wait for money need not wait for it any more.
            self.ended.notify_waiters();
            (self.observer)(Event::Stopped(why));
        }
    }

    /// Tells of a call that was never made.
    pub(super) fn tell(&self, call: ModelCall) {
        (self.observer)(Event::Called(call));
    }

    /// Sets aside what a call can cost, and waits while it does not fit beside others on their way.
    ///
    /// A request has at most as many tokens as bytes, and about a quarter of that. A call that is alone
    /// may pass a bound that is not reached: nobody knows before what it costs.
    pub(super) async fn hold(
        self: &Arc<Self>,
        model: &str,
        bytes: usize,
        most_output: u64,
    ) -> Result<Hold, Stop> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let most = self.amount(model, Tokens { input: bytes, cached: 0, output: most_output });
        let likely = Tokens { input: bytes / 4, cached: 0, output: most_output };
        let likely = self.amount(model, likely);
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            // From here on no end is missed.
            ended.as_mut().enable();
            if let Some(stop) = *self.stop.borrow() {
                return Err(stop);
            }
            let reached = {
                let mut books = self.books();
                let reached = books.reached();
                if reached.is_none() && (books.on_their_way == 0 || books.fits(most)) {
                    books.held = books.held.and(most);
                    books.on_their_way += 1;
                    return Ok(Hold { meter: self.clone(), most, likely });
                }
                reached
            };
            if let Some(whose) = reached {
                let stop = Stop::OverBudget { whose };
                self.stop(stop);
                return Err((*self.stop.borrow()).unwrap_or(stop));
            }
            ended.await;
        }
    }

    /// Tokens of a model, and what they cost as far as that is known.
    fn amount(&self, model: &str, tokens: Tokens) -> Amount {
        let usd = match cost::price(&tokens, model, &self.prices) {
            Cost::Known(usd) => usd,
            Cost::Unknown => Usd::ZERO,
        };
        Amount { usd, tokens: tokens.total() }
    }

    /// Books what came of a call.
    fn book(&self, hold: &Hold, outcome: Outcome, mut call: ModelCall) {
        let mut warned = Vec::new();
        let reached = {
            let mut books = self.books();
            // Together with what is charged instead, so that nobody finds the room in between.
            books.release(hold.most);
            let charge = match outcome {
                Outcome::Failed(failed) => {
                    call.cost = Cost::Known(Usd::ZERO);
                    call.note.get_or_insert_with(|| failed.text.clone());
                    books.ledger.last_failure = Some(failed);
                    None
                }
                Outcome::Answered { tokens, model, failed } => {
                    books.ledger.calls += 1;
                    if let Some(failed) = &failed {
                        call.note.get_or_insert_with(|| failed.text.clone());
                    }
                    books.ledger.last_failure = failed;
                    Some(self.charge(&mut books.ledger, hold, tokens, model, &mut call))
                }
            };
            if let Some((amount, estimated)) = charge {
                books.charge(amount, estimated);
                warned = books.near(self.warn_percent);
            }
            books.reached()
        };
        self.tell(call);
        for bound in warned {
            let Bound { whose, limit, spent } = bound;
            (self.observer)(Event::Warned { whose, spent, limit });
        }
        if let Some(whose) = reached {
            self.stop(Stop::OverBudget { whose });
        }
    }

    /// What an answer is charged, and whether that is an estimate.
    fn charge(
        &self,
        ledger: &mut Ledger,
        hold: &Hold,
        tokens: Option<Tokens>,
        model: Option<String>,
        call: &mut ModelCall,
    ) -> (Amount, bool) {
        let Some(tokens) = tokens else {
            call.note.get_or_insert_with(|| {
                "the response does not say what it used, so it is charged as estimated".to_owned()
            });
            ledger.unmetered += 1;
            ledger.usage.cost = Cost::Unknown;
            return (hold.likely, true);
        };
        call.tokens = Some(tokens);
        call.cost = match cost::price(&tokens, &call.model, &self.prices) {
            // The name that the provider gives it may be the one in the table.
            Cost::Unknown => {
                model.map_or(Cost::Unknown, |model| cost::price(&tokens, &model, &self.prices))
            }
            known @ Cost::Known(_) => known,
        };
        let sum = &mut ledger.usage.tokens;
        sum.input = sum.input.saturating_add(tokens.input);
        sum.cached = sum.cached.saturating_add(tokens.cached);
        sum.output = sum.output.saturating_add(tokens.output);
        if let Cost::Known(usd) = call.cost {
            if let Cost::Known(sum) = &mut ledger.usage.cost {
                *sum += usd;
            }
            (Amount { usd, tokens: tokens.total() }, false)
        } else {
            let model = &call.model;
            call.note.get_or_insert_with(|| format!("no price is known for the model `{model}`"));
            ledger.usage.cost = Cost::Unknown;
            (Amount { usd: hold.likely.usd, tokens: tokens.total() }, true)
        }
    }
}

impl Hold {
    /// Books what came of the call.
    pub(super) fn book(self, outcome: Outcome, call: ModelCall) {
        let meter = self.meter.clone();
        meter.book(&self, outcome, call);
        // Only now, so that those who wait see what was booked.
        meter.ended.notify_waiters();
    }
}

impl Books {
    fn release(&mut self, most: Amount) {
        self.held = self.held.less(most);
        self.on_their_way = self.on_their_way.saturating_sub(1);
    }

    /// The first bound that is reached.
    fn reached(&self) -> Option<Whose> {
        let bounds = self.bounds.iter().map(|watched| &watched.bound);
        let reached = |bound: &&Bound| {
            let Bound { limit, spent, .. } = bound;
            limit.usd.is_some_and(|usd| spent.usd >= usd)
                || limit.tokens.is_some_and(|tokens| spent.tokens >= tokens)
        };
        bounds.into_iter().find(reached).map(|bound| bound.whose)
    }

    /// Whether something fits in all bounds, beside what is on its way.
    fn fits(&self, most: Amount) -> bool {
        let all = self.held.and(most);
        self.bounds.iter().all(|Watched { bound: Bound { limit, spent, .. }, .. }| {
            limit.usd.is_none_or(|usd| spent.usd + all.usd <= usd)
                && limit.tokens.is_none_or(|most| spent.tokens.saturating_add(all.tokens) <= most)
        })
    }

    fn charge(&mut self, amount: Amount, estimated: bool) {
        let spends = self.bounds.iter_mut().map(|watched| &mut watched.bound.spent);
        for spend in spends.chain([&mut self.ledger.charged]) {
            spend.usd += amount.usd;
            spend.tokens = spend.tokens.saturating_add(amount.tokens);
            spend.estimated |= estimated;
        }
    }

    /// The bounds that have come near, each once.
    fn near(&mut self, percent: u8) -> Vec<Bound> {
        let near = |Bound { limit: Limit { usd, tokens }, spent, .. }: &Bound| {
            usd.is_some_and(|usd| spent.usd >= usd.percent(percent.into()))
                || tokens.is_some_and(|tokens| {
                    u128::from(spent.tokens) * 100 >= u128::from(tokens) * u128::from(percent)
                })
        };
        let new = self.bounds.iter_mut().filter(|watched| !watched.warned && near(&watched.bound));
        new.map(|watched| {
            watched.warned = true;
            watched.bound
        })
        .collect()
    }
}

impl Amount {
    fn and(self, other: Self) -> Self {
        Self { usd: self.usd + other.usd, tokens: self.tokens.saturating_add(other.tokens) }
    }

    fn less(self, other: Self) -> Self {
        Self { usd: self.usd.less(other.usd), tokens: self.tokens.saturating_sub(other.tokens) }
    }
}
