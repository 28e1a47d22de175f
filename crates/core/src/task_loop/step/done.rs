//! What a job's end does.

use std::borrow::Cow;

use chrono::TimeDelta;

use super::Turn;
use super::moves::Why as Reason;
use crate::approval::{Ruling, rule};
use crate::cause::Cause;
use crate::complexity;
use crate::cost::{Cost, Usage};
use crate::council::{Opinion, Place};
use crate::escalation::{self, Decision, Situation, Verdict, Why};
use crate::failure::FailureKind;
use crate::ids::Reference;
use crate::log::{EntryName, Fact};
use crate::plan::Outline;
use crate::review::{Fingerprint, Gates, Summary};
use crate::rules::{HaltCondition, Seat};
use crate::stuck::Attempt;
use crate::task_loop::{
    Command, JobKind, Outcome, Quota, Refusal, Severity, State, Timestamp, Trigger as On, Work,
};
use crate::tier::Tier;
use crate::{approval, risk};

impl Turn<'_> {
    /// A job ended.
    pub(super) fn done(
        &mut self,
        ticket: u32,
        usage: Option<&Usage>,
        outcome: &Outcome,
    ) -> Result<(), Refusal> {
        if let Some(left) = self.it.leaving.take_if(|left| left.ticket == ticket) {
            // The task has gone elsewhere: what the job made is no longer wanted, but it is paid.
            self.pay(left, usage);
            return Ok(());
        }
        let expected = self.it.work.map(|work| work.ticket);
        let Some(work) = self.it.work.take_if(|work| work.ticket == ticket) else {
            return Err(Refusal::Stale { found: ticket, expected });
        };
        self.pay(work, usage);
        self.take(work, outcome)
    }

    fn pay(&mut self, work: Work, usage: Option<&Usage>) {
        self.it.spend.book(usage, work.reserved);
        if let (JobKind::Implement, Some(Usage { cost: Cost::Known(cost), .. })) =
            (work.kind, usage)
        {
            self.it.dearest_run = self.it.dearest_run.max(Some(*cost));
        }
    }

    /// The heart of the loop: where the task is, what came of its work, and what that means.
    fn take(&mut self, work: Work, outcome: &Outcome) -> Result<(), Refusal> {
        use State as S;
        if outcome.is_success() {
            self.it.failures.remove(&self.it.state);
        }
        match (self.it.state, work.kind, outcome) {
            // Receive.
            (S::Pending, _, Outcome::Admitted) => {
                self.go(On::Admitted, S::Assigned, None, Fact::None)
            }
            (S::Assigned, _, Outcome::Prepared(pin)) => {
                self.it.pin = Some(*pin);
                self.go(On::Prepared, S::Planning, None, Fact::Pin(*pin))
            }

            // Plan.
            (S::Planning | S::Adjusting, JobKind::Plan, Outcome::Planned(plan)) => {
                self.planned(plan)
            }
            (S::Planning | S::Adjusting, JobKind::Plan, Outcome::PlanInvalid(flaws)) => {
                self.plan_invalid(flaws)
            }

            // Approve.
            (S::AwaitingApproval, _, Outcome::Checked { blockers, warnings }) => {
                self.checked(*blockers, *warnings)
            }

            // Implement.
            (S::InProgress, _, Outcome::RunFinished(commit)) => {
                self.it.commit = Some(*commit);
                self.it.iterations += 1;
                self.it.timeouts = 0;
                self.go(On::RunFinished, S::Testing, None, Fact::Commit(*commit))
            }

            // Review.
            (S::Testing, _, Outcome::Tested(gates)) => self.tested(gates),
            (S::QualityReview, _, Outcome::Reviewed { summary, fingerprint }) => {
                self.reviewed(*summary, *fingerprint)
            }

            // Adjust.
            (S::Adjusting, JobKind::Brief, Outcome::Briefed(brief)) => self.briefed(brief),
            (S::CtoIntervention, _, Outcome::Opined(opinion)) if self.member().is_some() => {
                self.opined(Opinion::Said(opinion.clone()), None);
                Ok(())
            }
            (S::CtoIntervention, _, Outcome::Concluded(guidance)) if self.member().is_none() => {
                self.it.note = Some(guidance.clone());
                self.it.opinions.clear();
                // What comes now is a new approach: it is not compared with the old one.
                self.it.attempts.clear();
                let kept = Fact::Kept(guidance.clone());
                self.go(On::CouncilConcluded, S::Adjusting, None, kept)
            }

            // Deliver.
            (S::Approved, _, Outcome::TurnCame) => {
                self.go(On::TurnCame, S::Committing, None, Fact::None)
            }
            (S::Committing, _, Outcome::Delivered(commit)) => {
                self.it.commit = Some(*commit);
                self.go(On::Delivered, S::Learning, None, Fact::Commit(*commit))
            }
            (S::Committing, _, Outcome::DeliveryRejected(text)) => self.delivery_rejected(text),

            // Learn.
            (S::Learning, _, Outcome::Learned(lessons)) => {
                self.write(EntryName::SmLearningCaptured, None, Fact::Lessons(*lessons));
                self.go(On::Learned, S::Completed, None, Fact::None)
            }

            // Alert.
            (
                S::Planning | S::InProgress | S::QualityReview | S::Adjusting | S::CtoIntervention,
                JobKind::Plan | JobKind::Implement | JobKind::Review | JobKind::Convene,
                Outcome::Asked { question, default },
            ) => self.agent_asked(question, default.as_ref()),
            (S::HumanEscalation, _, Outcome::Landed) => {
                self.it.to_land = false;
                self.write(EntryName::SmWorkLanded, None, Fact::None);
                Ok(())
            }

            // It stopped because it was told to: the pause goes on, or the work starts anew.
            (S::InProgress, _, Outcome::Interrupted) if work.stopping => {
                self.go(On::RunInterrupted, S::Validated, None, Fact::None)
            }
            (_, _, Outcome::Interrupted) if work.stopping => Ok(()),
            (_, _, Outcome::Interrupted) => {
                self.failed(&FailureKind::Crashed, "it stopped without being told to".into())
            }
            (_, _, Outcome::Failed(failure)) => {
                self.failed(&failure.kind, failure.reason.to_string().into())
            }
            (_, job, outcome) => Err(Refusal::WrongOutcome { job, outcome: outcome.to_string() }),
        }
    }

    fn planned(&mut self, plan: &Outline) -> Result<(), Refusal> {
        let expected = self.it.plan.as_ref().map_or(1, |last| last.version + 1);
        if plan.version != expected {
            return Err(Refusal::PlanVersion { found: plan.version, expected });
        }
        self.void_approval();
        self.it.overridden = self.it.overridden.filter(|hash| *hash == plan.hash);
        self.it.note = None;
        self.it.plan = Some(plan.clone());
        if expected > 1 {
            self.write(EntryName::SmPlanAdjusted, None, Fact::Plan(plan.clone()));
        }
        self.go(On::PlanMade, State::AwaitingApproval, None, Fact::Plan(plan.clone()))
    }

    fn plan_invalid(&mut self, flaws: &Reference) -> Result<(), Refusal> {
        self.it.note = Some(flaws.clone());
        let here = self.it.state;
        let failures = self.count_failure();
        let decision =
            escalation::after_failed_work(failures, self.it.councils, self.it.tier, self.rules);
        let kept = Fact::Kept(flaws.clone());
        match decision.verdict {
            Verdict::Council => {
                self.it.decision = Some(decision);
                self.call_council()
            }
            Verdict::AskPerson(limit) => {
                self.escalate(On::Alerted, Cause::LimitReached(limit), here, None)
            }
            _ => self.go(On::PlanInvalid, here, None, kept),
        }
    }

    fn checked(&mut self, blockers: u16, warnings: u16) -> Result<(), Refusal> {
        let Some(plan) = &self.it.plan else {
            return Err(Refusal::NotApproved);
        };
        let risk = risk::assess(plan, warnings, self.rules);
        let level = risk.level;
        let overridden = self.it.overridden == Some(plan.hash);
        let check = approval::Check { risk, blockers, warnings };
        let ruling = rule(&check, overridden, self.rules);
        self.it.check = Some(check.clone());
        self.write(EntryName::SmKnowledgeChecked, None, Fact::Check(check));
        match ruling {
            Ruling::Blocked => {
                let cause = Cause::Blocked(blockers);
                self.escalate(On::Blocked, cause, State::AwaitingApproval, None)
            }
            Ruling::Automatic => {
                self.write(EntryName::SmApprovalAuto, None, Fact::None);
                self.approve(None)
            }
            Ruling::Ask(approvers) => {
                let cause = Cause::ApprovalNeeded { risk: level, approvers };
                let here = State::AwaitingApproval;
                self.ask(cause, here, here);
                Ok(())
            }
        }
    }

    /// The plan may run, as it is now and nothing else.
    pub(super) fn approve(&mut self, why: Reason) -> Result<(), Refusal> {
        let Some(binding) = self.it.binding() else {
            return Err(Refusal::NotApproved);
        };
        self.it.approved = Some(binding);
        self.it.tier = self.choose_tier();
        let data = self.decided();
        self.go(On::Approved, State::Validated, why, data)
    }

    /// The first run gets the tier of the plan's complexity, or the one its risk asks for. Later
    /// ones never get a weaker one than they had.
    fn choose_tier(&self) -> Tier {
        let score = self.it.plan.as_ref().map_or(0, |plan| plan.complexity);
        let level = self.it.risk().unwrap_or_default();
        let first =
            complexity::Level::of(score).tier().max(self.rules.ceremony.get(level).first_tier);
        if self.it.iterations == 0 { first } else { first.max(self.it.tier) }
    }

    fn tested(&mut self, gates: &Gates) -> Result<(), Refusal> {
        if gates.failed == 0 {
            return self.go(On::GatesPassed, State::QualityReview, None, Fact::Gates(*gates));
        }
        self.go(On::GatesFailed, State::Adjusting, None, Fact::Gates(*gates))?;
        self.judge_failure(gates.fingerprint, gates.security_critical)
    }

    fn reviewed(&mut self, summary: Summary, fingerprint: Fingerprint) -> Result<(), Refusal> {
        let level = self.it.risk().unwrap_or_default();
        if !summary.passed {
            self.go(On::ReviewFailed, State::Adjusting, None, Fact::Review(summary))?;
            self.judge_failure(fingerprint, summary.security_critical)
        } else if self.rules.ceremony.get(level).human_review {
            let here = State::QualityReview;
            self.ask(Cause::ReviewNeeded, here, here);
            Ok(())
        } else {
            self.pass_review(None, Fact::Review(summary))
        }
    }

    /// The change is good.
    pub(super) fn pass_review(&mut self, why: Reason, data: Fact) -> Result<(), Refusal> {
        self.remember(true, Fingerprint::default());
        self.it.tier_failures = 0;
        self.go(On::ReviewPassed, State::Approved, why, data)
    }

    fn remember(&mut self, passed: bool, fingerprint: Fingerprint) {
        self.it.attempts.push(Attempt { tier: self.it.tier, passed, fingerprint });
        let old = self.it.attempts.len().saturating_sub(self.it.edition.remembers());
        self.it.attempts.drain(..old);
    }

    /// Decides what follows a change that failed, and begins it.
    pub(super) fn judge_failure(
        &mut self,
        fingerprint: Fingerprint,
        security_critical: bool,
    ) -> Result<(), Refusal> {
        self.remember(false, fingerprint);
        self.it.tier_failures = self.it.tier_failures.saturating_add(1);
        let situation = Situation {
            attempts: &self.it.attempts,
            tier: self.it.tier,
            tier_failures: self.it.tier_failures,
            retries: self.it.retries,
            councils: self.it.councils,
            iterations: self.it.iterations,
            max_iterations: self.it.max_iterations(self.rules),
            security_critical,
            over_budget: self.is_over_budget(),
            edition: self.it.edition,
        };
        let decision = escalation::after_failed_review(&situation, self.rules);
        self.follow(decision)
    }

    fn follow(&mut self, decision: Decision) -> Result<(), Refusal> {
        self.it.decision = Some(decision);
        self.write(EntryName::SmDecisionMade, None, Fact::Decision(decision));
        let resume = State::Validated;
        match decision.verdict {
            Verdict::Halt(condition) => {
                self.escalate(On::Alerted, Cause::Halted(condition), resume, None)
            }
            Verdict::AskPerson(limit) => {
                self.escalate(On::Alerted, Cause::LimitReached(limit), resume, None)
            }
            Verdict::Iterate(tier) => {
                self.use_tier(tier);
                self.alert(Cause::ReviewFailed, Severity::Info);
                Ok(())
            }
            Verdict::Escalate(tier) => {
                self.use_tier(tier);
                self.it.retries += 1;
                self.alert(Cause::ReviewFailed, Severity::Info);
                Ok(())
            }
            Verdict::Council => {
                // Only what fails its review is a retry: see `after_failed_work` for the rest.
                if !matches!(decision.why, Why::FailuresInState(_)) {
                    self.it.retries += 1;
                }
                self.call_council()
            }
        }
    }

    fn use_tier(&mut self, tier: Tier) {
        if self.it.tier != tier {
            self.it.tier = tier;
            self.it.tier_failures = 0;
        }
    }

    fn call_council(&mut self) -> Result<(), Refusal> {
        self.it.councils += 1;
        self.it.tier = Tier::TOP;
        self.it.tier_failures = 0;
        self.it.failures.clear();
        self.it.opinions.clear();
        self.go(On::CouncilCalled, State::CtoIntervention, None, Fact::None)
    }

    /// The member of the council whose turn it is, if it is a member's.
    fn member(&self) -> Option<Seat> {
        match self.it.place(self.rules)? {
            place @ Place::Member(_) => Some(place.seat(&self.rules.council).clone()),
            Place::Chair => None,
        }
    }

    /// A member of the council has said something, or is not there.
    fn opined(&mut self, opinion: Opinion, why: Reason) {
        let name = match opinion {
            Opinion::Said(_) => EntryName::SmCouncilOpinion,
            Opinion::Absent => EntryName::SmCouncilMemberAbsent,
        };
        if let Some(seat) = self.member() {
            self.write(name, why, Fact::Opinion { seat, opinion: opinion.clone() });
        }
        self.it.opinions.push(opinion);
    }

    /// A member's run failed: the council goes on without it, if anybody is left to say something.
    /// Returns whether it does.
    fn goes_on_without(&mut self, why: &Reason) -> bool {
        let in_council = self.it.state == State::CtoIntervention;
        if !in_council || self.member().is_none() {
            return false;
        }
        self.opined(Opinion::Absent, why.clone());
        let nobody = self.it.opinions.iter().all(|opinion| *opinion == Opinion::Absent);
        if nobody && self.member().is_none() {
            // All of them are asked again.
            self.it.opinions.clear();
            return false;
        }
        true
    }

    fn briefed(&mut self, brief: &Reference) -> Result<(), Refusal> {
        self.it.brief = Some(brief.clone());
        self.it.note = None;
        let kept = Fact::Kept(brief.clone());
        if self.it.is_approved() {
            self.go(On::Briefed, State::Validated, None, kept)
        } else {
            self.void_approval();
            self.go(On::ApprovalVoided, State::AwaitingApproval, None, kept)
        }
    }

    fn delivery_rejected(&mut self, text: &Reference) -> Result<(), Refusal> {
        let failures = self.count_failure();
        self.it.note = Some(text.clone());
        self.go(On::DeliveryFailed, State::Adjusting, None, Fact::Kept(text.clone()))?;
        let decision =
            escalation::after_failed_work(failures, self.it.councils, self.it.tier, self.rules);
        self.follow(decision)
    }

    /// An agent wants to know something. What it has made stays where it is, and is saved there: the
    /// same work goes on when the answer comes, so nothing is landed.
    fn agent_asked(
        &mut self,
        question: &Reference,
        default: Option<&Reference>,
    ) -> Result<(), Refusal> {
        let from = self.it.state;
        let resume = if from == State::InProgress { State::Validated } else { from };
        let cause = Cause::AgentAsked;
        self.go(On::Alerted, State::HumanEscalation, None, Fact::Cause(cause))?;
        self.ask_about(cause, from, resume, Some(question), default);
        Ok(())
    }

    /// Counts a failure of the current state's own work.
    fn count_failure(&mut self) -> u8 {
        let count = self.it.failures.entry(self.it.state).or_default();
        *count += 1;
        *count
    }

    /// A job failed, which says nothing about the change.
    fn failed(&mut self, kind: &FailureKind, why: Cow<'static, str>) -> Result<(), Refusal> {
        let state = self.it.state;
        let why = Some(why);
        let data = Fact::Failure(kind.clone());
        let resume = if state == State::InProgress { State::Validated } else { state };
        match (kind, state) {
            // Failing to learn never fails a task.
            (_, State::Learning) => {
                self.write(EntryName::SmErrorOccurred, why, data);
                self.go(On::Learned, State::Completed, None, Fact::None)
            }
            (FailureKind::Quota { provider, until }, _) => {
                self.step_back(On::QuotaReached, EntryName::SmQuotaReached, why, data)?;
                self.it.quota = Some(Quota { provider: provider.clone(), until: *until });
                self.it.not_before = Some((*until).max(self.backed_off(1)));
                let (provider, until) = (provider.clone(), *until);
                self.commands.push(Command::HoldProvider { provider, until });
                Ok(())
            }
            (FailureKind::OverBudget, _) if state != State::HumanEscalation => {
                let cause = Cause::Halted(HaltCondition::BudgetExceeded);
                self.escalate(On::Alerted, cause, resume, why)
            }
            (FailureKind::TimedOut, State::InProgress) => {
                self.it.timeouts += 1;
                if self.it.timeouts > 1 {
                    return self.escalate(On::Alerted, Cause::EngineTimedOut, resume, why);
                }
                self.go(On::EngineFailed, State::Validated, why, data)
            }
            _ if self.goes_on_without(&why) => Ok(()),
            _ => {
                let failures = self.count_failure();
                if failures < self.rules.scrum_master.task_loop.max_failures_per_state {
                    self.step_back(On::EngineFailed, EntryName::SmErrorOccurred, why, data)?;
                    self.it.not_before = Some(self.backed_off(failures));
                    return Ok(());
                }
                self.give_up(why, data, resume)
            }
        }
    }

    /// A run goes back to wait for an engine; any other job waits where it is.
    fn step_back(
        &mut self,
        on: On,
        name: EntryName,
        why: Reason,
        data: Fact,
    ) -> Result<(), Refusal> {
        if self.it.state == State::InProgress {
            self.go(on, State::Validated, why, data)
        } else {
            self.write(name, why, data);
            Ok(())
        }
    }

    /// A state has failed as often as it may.
    fn give_up(&mut self, why: Reason, data: Fact, resume: State) -> Result<(), Refusal> {
        match self.it.state {
            // A person has the task already. What could not be landed stays where it is.
            State::HumanEscalation => {
                self.it.to_land = false;
                self.it.failures.remove(&State::HumanEscalation);
                self.write(EntryName::SmErrorOccurred, why, data);
                self.alert(Cause::WorkFailed(State::HumanEscalation), Severity::Critical);
                Ok(())
            }
            State::Validated | State::InProgress => {
                self.escalate(On::Alerted, Cause::EngineFailed, resume, why)
            }
            state => self.escalate(On::Alerted, Cause::WorkFailed(state), resume, why),
        }
    }

    /// When to try again after so many failures: later each time.
    fn backed_off(&self, failures: u8) -> Timestamp {
        let first = i64::from(self.rules.scrum_master.task_loop.backoff_seconds);
        let seconds = first << failures.saturating_sub(1).min(16);
        self.at.checked_add_signed(TimeDelta::seconds(seconds)).unwrap_or(self.at)
    }
}

impl Outcome {
    /// Whether the job did what it was for, whatever it found.
    fn is_success(&self) -> bool {
        !matches!(
            self,
            Self::PlanInvalid(_)
                | Self::DeliveryRejected(_)
                | Self::Asked { .. }
                | Self::Interrupted
                | Self::Failed(_)
        )
    }
}
