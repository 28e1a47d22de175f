//! Choice of the next job.
//!
//! This runs at the end of every step. An open task without a pause, a running job or a pending
//! decision gets the job of its state.

use super::StepBuilder;
use crate::budget::{self, Reservation};
use crate::cause::AlertCause;
use crate::cost::Usd;
use crate::council::CouncilSeat;
use crate::escalation::EscalationAction;
use crate::learning::lesson_triggers;
use crate::pull_request::PullRequestDecision;
use crate::rules::HaltCondition;
use crate::task_loop::{ActiveJob, AlertSeverity, Command, Job, RunSpec, State, Trigger};
use crate::tier::Tier;

impl StepBuilder<'_> {
    /// Starts the job of the state, if one is due.
    pub(super) fn start_next_job(&mut self) {
        let busy = self.task_loop.active_job.is_some() || self.task_loop.stopping_job.is_some();
        if busy || self.task_loop.paused.is_some() {
            return;
        }
        let Some(job) = self.next_job() else { return };
        let cost = self.estimate_cost(&job);
        if let Some(halt) = self.exceeded_hard_limit(&job, cost) {
            // Every state with a job that costs money has this transition, so it always succeeds.
            // Then start the job that saves the work.
            let resume = self.task_loop.state;
            if self
                .escalate_to_person(Trigger::Alerted, AlertCause::Halted(halt), resume, None)
                .is_ok()
            {
                self.start_next_job();
            }
            return;
        }
        self.task_loop.last_job_number += 1;
        let not_before = self.task_loop.not_before.filter(|time| *time > self.now);
        self.task_loop.active_job = Some(ActiveJob {
            job_number: self.task_loop.last_job_number,
            kind: job.kind(),
            not_before,
            reserved_cost: cost.unwrap_or_default(),
            stopping: false,
        });
        if let Job::PullRequest(job) = &job {
            self.pull_request_job_started(job);
        }
        self.commands.push(Command::StartJob {
            job_number: self.task_loop.last_job_number,
            not_before,
            job,
        });
    }

    /// Returns the job of the current state, or `None` while a person decides.
    fn next_job(&self) -> Option<Job> {
        let task_loop = &self.task_loop;
        Some(match task_loop.state {
            State::Pending => Job::Admit,
            State::Assigned => Job::Prepare,
            State::Planning => self.plan_job(),
            State::AwaitingApproval if task_loop.plan_assessment.is_some() => return None,
            State::AwaitingApproval => Job::Check { plan: task_loop.plan.clone()? },
            State::Validated => Job::Implement(Box::new(self.run_spec()?)),
            // The active run is the job; it was started in `validated`.
            State::InProgress => return None,
            State::Testing => Job::Test {
                commit: task_loop.commit?,
                risk: task_loop.risk_level().unwrap_or_default(),
            },
            State::QualityReview if task_loop.open_question.is_some() => return None,
            State::QualityReview => Job::Review {
                commit: task_loop.commit?,
                unconfirmed: task_loop.unconfirmed.clone(),
            },
            State::Adjusting => match task_loop.decision? {
                decision if matches!(decision.action, EscalationAction::Iterate(_)) => {
                    Job::Brief { decision, note: task_loop.note.clone() }
                }
                _ => self.plan_job(),
            },
            State::CtoIntervention => self.council_job(),
            State::Approved => Job::AwaitDelivery,
            State::Committing => Job::Deliver { commit: task_loop.commit? },
            State::AwaitingMerge => match self.pull_request_decision()? {
                PullRequestDecision::Start(job) => Job::PullRequest(job),
                _ => return None,
            },
            State::Learning => self.learn_job(State::Completed),
            State::HumanEscalation if task_loop.must_save_work => Job::SaveWork,
            State::HumanEscalation | State::Completed | State::Cancelled | State::Failed => {
                return None;
            }
        })
    }

    fn plan_job(&self) -> Job {
        let last = self.task_loop.plan.as_ref();
        Job::Plan {
            version: last.map_or(1, |plan| plan.version + 1),
            from: last
                .map(|plan| plan.stored_at.clone())
                .or_else(|| self.task_loop.submitted_plan.clone()),
            note: self.task_loop.note.clone(),
        }
    }

    /// Returns the learning job. A missing budget does not stop the task here: its work is done,
    /// and recording failures costs nothing.
    pub(super) fn learn_job(&self, ending: State) -> Job {
        let succeeded = ending == State::Completed;
        let retries = self.task_loop.retries.max(u8::from(self.task_loop.iterations > 1));
        let has_trigger = !lesson_triggers(succeeded, retries.into(), self.rules).is_empty();
        let cost = self.rules.tiers.get(Tier::Simple).typical_run_usd;
        let use_model = self.task_loop.edition.uses_model_for_learning()
            && has_trigger
            && self.reserve(cost) != Reservation::Refused;
        Job::Learn { ending, use_model }
    }

    /// Returns the job of the next council seat. Only the chair sees the members' opinions.
    fn council_job(&self) -> Job {
        let (council_number, seat) =
            (self.task_loop.councils, self.task_loop.current_seat(self.rules));
        let opinions = match seat {
            Some(CouncilSeat::Chair) => self.task_loop.opinions.clone(),
            Some(CouncilSeat::Member(_)) | None => Vec::new(),
        };
        Job::Convene { council_number, seat, opinions }
    }

    fn run_spec(&self) -> Option<RunSpec> {
        // A run that timed out gets more time, once.
        let seconds = self.rules.scrum_master.task_loop.implementation_seconds();
        Some(RunSpec {
            tier: self.task_loop.tier,
            iteration: self.task_loop.iterations + 1,
            plan: self.task_loop.plan.clone()?,
            pin: self.task_loop.pin?,
            brief: self.task_loop.brief.clone(),
            timeout_seconds: seconds.saturating_mul(u32::from(self.task_loop.timeouts) + 1),
            allowance: budget::remaining(&self.task_loop.spend, &self.spend_limit()),
        })
    }

    fn spend_limit(&self) -> budget::SpendLimit {
        budget::task_limit(self.task_loop.risk_level(), &self.task_loop.granted, self.rules)
    }

    /// Estimates the cost of a job. Jobs that do not call a model have no cost.
    pub(super) fn estimate_cost(&self, job: &Job) -> Option<Usd> {
        let typical = |tier| Some(self.rules.tiers.get(tier).typical_run_usd);
        match job {
            Job::Plan { .. } => typical(self.task_loop.tier),
            Job::Implement(_) => Some(self.estimate_run_cost()),
            Job::Review { unconfirmed, .. } if self.task_loop.edition.reserves_validator_tier() => {
                let implementer = self.task_loop.tier.into();
                let first = self.rules.validator(&implementer);
                typical(match unconfirmed {
                    Some(_) => self.rules.second_validator(first, &implementer),
                    None => first,
                })
            }
            Job::Review { .. } | Job::Learn { use_model: true, .. } => typical(Tier::Simple),
            Job::Convene { seat, .. } => {
                typical(seat.map_or(Tier::TOP, |seat| seat.member(&self.rules.council).tier))
            }
            _ => None,
        }
    }

    fn estimate_run_cost(&self) -> Usd {
        budget::estimate_run_cost(
            self.task_loop.tier,
            self.task_loop.plan.as_ref(),
            self.task_loop.max_run_cost,
            self.rules,
        )
    }

    /// Returns `true` if the next run would exceed the budget.
    pub(super) fn is_over_budget(&self) -> bool {
        self.reserve(self.estimate_run_cost()) == Reservation::Refused
    }

    fn reserve(&self, cost: Usd) -> Reservation {
        budget::reserve(
            &self.task_loop.spend,
            cost,
            &self.spend_limit(),
            self.rules.budget.warn_percent,
        )
    }

    /// Returns the hard limit that a job would exceed. Sends the budget warning once.
    fn exceeded_hard_limit(&mut self, job: &Job, cost: Option<Usd>) -> Option<HaltCondition> {
        let is_run = matches!(job, Job::Implement(_));
        if is_run && self.task_loop.iterations >= self.task_loop.max_iterations(self.rules) {
            return Some(HaltCondition::MaxIterationsReached);
        }
        match self.reserve(cost?) {
            Reservation::Refused => return Some(HaltCondition::BudgetExceeded),
            Reservation::Warned if !self.task_loop.cost_warned => {
                self.task_loop.cost_warned = true;
                self.send_alert(AlertCause::CostWarning, AlertSeverity::Warning);
            }
            Reservation::Warned | Reservation::Granted => {}
        }
        None
    }
}
