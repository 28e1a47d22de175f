//! What is started next.
//!
//! This runs at the end of every step, so there is one place that decides it: a task that lives, is
//! not paused and has no job under way gets the job of its state, unless it waits for a person.

use super::Turn;
use crate::budget::{self, Reservation};
use crate::cause::Cause;
use crate::cost::Usd;
use crate::council::Place;
use crate::escalation::Verdict;
use crate::learning::occasions;
use crate::rules::HaltCondition;
use crate::task_loop::{Command, Job, Order, Severity, State, Trigger, Work};
use crate::tier::Tier;

impl Turn<'_> {
    /// Starts the job of the state, if one is due.
    pub(super) fn issue(&mut self) {
        let busy = self.it.work.is_some() || self.it.leaving.is_some();
        if busy || self.it.paused.is_some() {
            return;
        }
        let Some(job) = self.job() else { return };
        let price = self.price(&job);
        if let Some(halt) = self.hard_limit(&job, price) {
            // Every state that has a priced job has this arrow, so it is always taken; what is to
            // be landed then is issued in its turn.
            let resume = self.it.state;
            if self.escalate(Trigger::Alerted, Cause::Halted(halt), resume, None).is_ok() {
                self.issue();
            }
            return;
        }
        self.it.tickets += 1;
        let not_before = self.it.not_before.filter(|moment| *moment > self.at);
        self.it.work = Some(Work {
            ticket: self.it.tickets,
            kind: job.kind(),
            not_before,
            reserved: price.unwrap_or_default(),
            stopping: false,
        });
        self.commands.push(Command::Start { ticket: self.it.tickets, not_before, job });
    }

    /// The job of the current state, or nothing where a person has the word.
    fn job(&self) -> Option<Job> {
        let it = &self.it;
        Some(match it.state {
            State::Pending => Job::Admit,
            State::Assigned => Job::Prepare,
            State::Planning => self.plan(),
            State::AwaitingApproval if it.check.is_some() => return None,
            State::AwaitingApproval => Job::Check { plan: it.plan.clone()? },
            State::Validated => Job::Implement(self.order()?),
            // The run that is under way is the job, and it started in `validated`.
            State::InProgress => return None,
            State::Testing => Job::Test { commit: it.commit?, risk: it.risk().unwrap_or_default() },
            State::QualityReview if it.question.is_some() => return None,
            State::QualityReview => Job::Review { commit: it.commit? },
            State::Adjusting => match it.decision? {
                decision if matches!(decision.verdict, Verdict::Iterate(_)) => {
                    Job::Brief { decision, note: it.note.clone() }
                }
                _ => self.plan(),
            },
            State::CtoIntervention => self.convene(),
            State::Approved => Job::AwaitTurn,
            State::Committing => Job::Deliver { commit: it.commit? },
            State::Learning => self.learn(State::Completed),
            State::HumanEscalation if it.to_land => Job::Land,
            State::HumanEscalation | State::Completed | State::Cancelled | State::Failed => {
                return None;
            }
        })
    }

    fn plan(&self) -> Job {
        let last = self.it.plan.as_ref();
        Job::Plan {
            version: last.map_or(1, |plan| plan.version + 1),
            from: last.map(|plan| plan.kept_at.clone()).or_else(|| self.it.brought.clone()),
            note: self.it.note.clone(),
        }
    }

    /// What can be learned from the task. There is no halting for want of money here: what it was
    /// about is done, and the plain lesson costs nothing.
    pub(super) fn learn(&self, ending: State) -> Job {
        let succeeded = ending == State::Completed;
        let mended = self.it.retries.max(u8::from(self.it.iterations > 1));
        let occasion = !occasions(succeeded, mended.into(), self.rules).is_empty();
        let price = self.rules.tiers.get(Tier::Simple).typical_run_usd;
        let model = self.it.edition.asks_what_it_taught()
            && occasion
            && self.reserve(price) != Reservation::Refused;
        Job::Learn { ending, model }
    }

    /// One seat of the council after the other. What the members said is for the chair only.
    fn convene(&self) -> Job {
        let (council, seat) = (self.it.councils, self.it.place(self.rules));
        let opinions = match seat {
            Some(Place::Chair) => self.it.opinions.clone(),
            Some(Place::Member(_)) | None => Vec::new(),
        };
        Job::Convene { council, seat, opinions }
    }

    fn order(&self) -> Option<Order> {
        let limits = &self.rules.scrum_master.task_loop;
        let ceiling = u32::try_from(limits.timeout_ms / 1000).unwrap_or(u32::MAX);
        // A run that timed out gets more time, once.
        let seconds = limits.timeouts.implementation.min(ceiling);
        Some(Order {
            tier: self.it.tier,
            iteration: self.it.iterations + 1,
            plan: self.it.plan.clone()?,
            pin: self.it.pin?,
            brief: self.it.brief.clone(),
            seconds: seconds.saturating_mul(u32::from(self.it.timeouts) + 1),
            allowance: budget::left(&self.it.spend, &self.limit()),
        })
    }

    fn limit(&self) -> budget::Limit {
        budget::limit(self.it.risk(), &self.it.granted, self.rules)
    }

    /// What a job is expected to cost, if it spends: only jobs that ask a model do.
    pub(super) fn price(&self, job: &Job) -> Option<Usd> {
        let typical = |tier| Some(self.rules.tiers.get(tier).typical_run_usd);
        match job {
            Job::Plan { .. } => typical(self.it.tier),
            Job::Implement(_) => Some(self.price_of_run()),
            Job::Review { .. } | Job::Learn { model: true, .. } => typical(Tier::Simple),
            Job::Convene { seat, .. } => {
                typical(seat.map_or(Tier::TOP, |place| place.seat(&self.rules.council).tier))
            }
            _ => None,
        }
    }

    fn price_of_run(&self) -> Usd {
        budget::price_run(self.it.tier, self.it.plan.as_ref(), self.it.dearest_run, self.rules)
    }

    /// Whether the next run would not fit in the budget.
    pub(super) fn is_over_budget(&self) -> bool {
        self.reserve(self.price_of_run()) == Reservation::Refused
    }

    fn reserve(&self, price: Usd) -> Reservation {
        budget::reserve(&self.it.spend, price, &self.limit(), self.rules.budget.warn_percent)
    }

    /// The hard limit that a job would pass, if it would. People are warned before that, once.
    fn hard_limit(&mut self, job: &Job, price: Option<Usd>) -> Option<HaltCondition> {
        let is_run = matches!(job, Job::Implement(_));
        if is_run && self.it.iterations >= self.it.max_iterations(self.rules) {
            return Some(HaltCondition::MaxIterationsReached);
        }
        match self.reserve(price?) {
            Reservation::Refused => return Some(HaltCondition::BudgetExceeded),
            Reservation::Warned if !self.it.cost_warned => {
                self.it.cost_warned = true;
                self.alert(Cause::CostWarning, Severity::Warning);
            }
            Reservation::Warned | Reservation::Granted => {}
        }
        None
    }
}
