//! Outcomes of jobs.

use std::borrow::Cow;

use chrono::TimeDelta;

use super::StepBuilder;
use super::transitions::EntryReason;
use crate::approval::{ApprovalRequirement, approval_requirement};
use crate::cause::{AlertCause, LoopLimit};
use crate::complexity;
use crate::cost::{Cost, Usage};
use crate::council::OpinionRecord;
use crate::escalation::{
    self, EscalationAction, EscalationContext, EscalationDecision, EscalationReason,
};
use crate::failure::FailureKind;
use crate::history::{EntryData, EntryName};
use crate::ids::{CommitId, Reference};
use crate::plan::PlanSummary;
use crate::review::{FailureCount, Fingerprint, GateCounts, ReviewSummary};
use crate::rules::HaltCondition;
use crate::stuck::{self, AttemptRecord};
use crate::task_loop::{
    ActiveJob, AlertSeverity, Command, JobKind, Outcome, ProviderQuota, Refusal, State, Timestamp,
    Trigger,
};
use crate::tier::Tier;
use crate::{approval, risk};

impl StepBuilder<'_> {
    /// Handles the result of a job.
    pub(super) fn job_finished(
        &mut self,
        job_number: u32,
        usage: Option<&Usage>,
        outcome: &Outcome,
    ) -> Result<(), Refusal> {
        if let Some(job) = self.task_loop.stopping_job.take_if(|job| job.job_number == job_number) {
            // The task has moved on. The result is discarded, and its cost is recorded.
            self.record_cost(job, usage);
            self.pull_request_job_ended(None);
            return Ok(());
        }
        let expected = self.task_loop.active_job.map(|job| job.job_number);
        let Some(job) = self.task_loop.active_job.take_if(|job| job.job_number == job_number)
        else {
            return Err(Refusal::StaleResult { found: job_number, expected });
        };
        self.record_cost(job, usage);
        self.end_live_question(outcome);
        self.pull_request_job_ended(Some(outcome));
        self.apply_outcome(job, outcome)
    }

    pub(super) fn record_cost(&mut self, job: ActiveJob, usage: Option<&Usage>) {
        self.task_loop.spend.record(usage, job.reserved_cost);
        if let (JobKind::Implement, Some(Usage { cost: Cost::Known(cost), .. })) = (job.kind, usage)
        {
            self.task_loop.max_run_cost = self.task_loop.max_run_cost.max(Some(*cost));
        }
    }

    /// Applies an outcome to the current state. This is the core of the state machine.
    fn apply_outcome(&mut self, job: ActiveJob, outcome: &Outcome) -> Result<(), Refusal> {
        use State as S;
        if outcome.is_success() {
            self.task_loop.failures.remove(&self.task_loop.state);
            self.task_loop.restarts = 0;
        }
        match (self.task_loop.state, job.kind, outcome) {
            // Receive
            (S::Pending, _, Outcome::Admitted) => {
                self.transition(Trigger::Admitted, S::Assigned, None, EntryData::None)
            }
            (S::Assigned, _, Outcome::Prepared(pin)) => {
                self.task_loop.pin = Some(*pin);
                self.transition(Trigger::Prepared, S::Planning, None, EntryData::Pin(*pin))?;
                self.review_submitted_plan()
            }

            // Plan
            (S::Planning | S::Adjusting, JobKind::Plan, Outcome::Planned(plan)) => {
                self.plan_ready(plan)
            }
            (S::Planning | S::Adjusting, JobKind::Plan, Outcome::PlanInvalid(errors)) => {
                self.plan_invalid(errors)
            }

            // Approve
            (S::AwaitingApproval, _, Outcome::Checked { blockers, warnings }) => {
                self.plan_checked(*blockers, *warnings)
            }

            // Implement
            (S::InProgress, _, Outcome::RunFinished(commit)) => {
                if self.task_loop.commit != Some(*commit) {
                    // The finding is about another commit.
                    self.task_loop.unconfirmed = None;
                }
                self.task_loop.commit = Some(*commit);
                self.task_loop.iterations += 1;
                self.task_loop.timeouts = 0;
                self.transition(Trigger::RunFinished, S::Testing, None, EntryData::Commit(*commit))
            }
            (S::InProgress, _, Outcome::PlanWrong(reasons)) => self.plan_disputed(reasons),

            // Review
            (S::Testing, _, Outcome::Tested(gates)) => self.gates_finished(gates),
            (S::QualityReview, _, Outcome::Reviewed { summary, fingerprint }) => {
                self.task_loop.unconfirmed = None;
                self.review_finished(*summary, *fingerprint)
            }

            (S::QualityReview, _, Outcome::CriticalUnconfirmed(verdict))
                if self.task_loop.unconfirmed.is_none() =>
            {
                self.task_loop.unconfirmed = Some(verdict.clone());
                let data = EntryData::Stored(verdict.clone());
                self.record_entry(EntryName::SmSecondReviewRequested, None, data);
                Ok(())
            }

            // Rework
            (S::Adjusting, JobKind::Brief, Outcome::Briefed(brief)) => self.brief_ready(brief),
            (S::CtoIntervention, _, Outcome::OpinionGiven(opinion))
                if self.current_member().is_some() =>
            {
                self.act_as_council();
                self.record_opinion(OpinionRecord::Stored(opinion.clone()), None);
                Ok(())
            }
            (S::CtoIntervention, _, Outcome::CouncilConcluded(guidance))
                if self.current_member().is_none() =>
            {
                self.act_as_council();
                self.council_concluded(guidance)
            }

            // Deliver
            (S::Approved, _, Outcome::DeliveryReady) => {
                self.transition(Trigger::DeliveryReady, S::Committing, None, EntryData::None)
            }
            (S::Committing, _, Outcome::Delivered(commit)) => self.delivered(*commit),
            (S::Committing, _, Outcome::DeliveryRejected(output)) => self.delivery_rejected(output),
            (S::Committing, _, Outcome::PullRequestOpened(opened)) => {
                self.pull_request_opened(opened)
            }
            (S::AwaitingMerge, JobKind::PullRequest, Outcome::PullRequest(outcome)) => {
                self.pull_request_job_finished(outcome)
            }

            // Learn
            (S::Learning, _, Outcome::Learned(lessons)) => {
                let data = EntryData::Lessons(*lessons);
                self.record_entry(EntryName::SmLearningCaptured, None, data);
                self.transition(Trigger::Learned, S::Completed, None, EntryData::None)
            }

            // Escalation
            (
                S::Planning | S::InProgress | S::QualityReview | S::Adjusting | S::CtoIntervention,
                JobKind::Plan | JobKind::Implement | JobKind::Review | JobKind::Convene,
                Outcome::QuestionAsked { question, default_answer },
            ) => self.agent_question(question, default_answer.as_ref()),
            (S::HumanEscalation, _, Outcome::WorkSaved) => {
                self.task_loop.must_save_work = false;
                self.record_entry(EntryName::SmWorkLanded, None, EntryData::None);
                Ok(())
            }

            // Stopped on request: the pause holds, or the work starts again.
            (S::InProgress, _, Outcome::Interrupted) if job.stopping => {
                self.transition(Trigger::RunInterrupted, S::Validated, None, EntryData::None)
            }
            (_, _, Outcome::Interrupted) if job.stopping => Ok(()),
            (_, _, Outcome::Interrupted) => {
                self.job_failed(&FailureKind::Crashed, "stopped unexpectedly".into())
            }
            (_, _, Outcome::Failed(failure)) => {
                self.job_failed(&failure.kind, failure.reason.to_string().into())
            }
            (_, job, outcome) => Err(Refusal::WrongOutcome { job, outcome: outcome.to_string() }),
        }
    }

    fn plan_ready(&mut self, plan: &PlanSummary) -> Result<(), Refusal> {
        let expected = self.task_loop.plan.as_ref().map_or(1, |last| last.version + 1);
        if plan.version != expected {
            return Err(Refusal::PlanVersion { found: plan.version, expected });
        }
        self.void_approval();
        self.task_loop.overridden_plan =
            self.task_loop.overridden_plan.filter(|hash| *hash == plan.hash);
        self.task_loop.note = None;
        self.task_loop.guidance = None;
        self.task_loop.plan = Some(plan.clone());
        if expected > 1 {
            self.record_entry(EntryName::SmPlanAdjusted, None, EntryData::Plan(plan.clone()));
        }
        self.transition(
            Trigger::PlanMade,
            State::AwaitingApproval,
            None,
            EntryData::Plan(plan.clone()),
        )
    }

    /// Returns the plan to the planner with the agent's reasons. It counts as a plan revision, so an
    /// agent that disputes every plan ends with a person.
    fn plan_disputed(&mut self, reasons: &Reference) -> Result<(), Refusal> {
        self.task_loop.timeouts = 0;
        if self.task_loop.retries >= self.rules.scrum_master.task_loop.max_retries {
            let cause = AlertCause::LimitReached(LoopLimit::Retries);
            // A person who continues without changing the task gets a plan that heeds the reasons.
            self.task_loop.note = Some(reasons.clone());
            return self.escalate_to_person(Trigger::Alerted, cause, State::Planning, None);
        }
        self.task_loop.retries += 1;
        self.void_approval();
        self.task_loop.note = Some(reasons.clone());
        let data = EntryData::Stored(reasons.clone());
        self.transition(Trigger::PlanWrong, State::Planning, None, data)
    }

    fn plan_invalid(&mut self, errors: &Reference) -> Result<(), Refusal> {
        self.task_loop.note = Some(errors.clone());
        let state = self.task_loop.state;
        let failures = self.count_failure();
        let decision = escalation::decide_after_failed_job(
            failures,
            self.task_loop.councils,
            self.task_loop.tier,
            self.rules,
        );
        let data = EntryData::Stored(errors.clone());
        match decision.action {
            EscalationAction::Council => {
                self.task_loop.decision = Some(decision);
                self.call_council(state, None)
            }
            EscalationAction::AskPerson(limit) => self.escalate_to_person(
                Trigger::Alerted,
                AlertCause::LimitReached(limit),
                state,
                None,
            ),
            _ => self.transition(Trigger::PlanInvalid, state, None, data),
        }
    }

    fn plan_checked(&mut self, blockers: u16, warnings: u16) -> Result<(), Refusal> {
        let Some(plan) = &self.task_loop.plan else {
            return Err(Refusal::NotApproved);
        };
        let risk = risk::assess(plan, warnings, self.rules);
        let level = risk.level;
        let overridden = self.task_loop.overridden_plan == Some(plan.hash);
        let check = approval::PlanAssessment { risk, blockers, warnings };
        let requirement = approval_requirement(&check, overridden, self.rules);
        self.task_loop.plan_assessment = Some(check.clone());
        self.record_entry(EntryName::SmKnowledgeChecked, None, EntryData::Check(check));
        match requirement {
            ApprovalRequirement::Blocked => {
                let cause = AlertCause::Blocked(blockers);
                self.escalate_to_person(Trigger::Blocked, cause, State::AwaitingApproval, None)
            }
            ApprovalRequirement::Automatic => {
                self.record_entry(EntryName::SmApprovalAuto, None, EntryData::None);
                self.approve(None)
            }
            ApprovalRequirement::Approvers(approvers) => {
                let cause = AlertCause::ApprovalNeeded { risk: level, approvers };
                let state = State::AwaitingApproval;
                self.ask_question(cause, state, state);
                Ok(())
            }
        }
    }

    /// Approves the current scope and starts implementation.
    pub(super) fn approve(&mut self, reason: EntryReason) -> Result<(), Refusal> {
        let Some(scope) = self.task_loop.current_scope() else {
            return Err(Refusal::NotApproved);
        };
        self.task_loop.approved_scope = Some(scope);
        let tier = self.choose_tier();
        if self.task_loop.tier != tier {
            self.task_loop.tier = tier;
            self.forget_earlier_tier();
        }
        let data = self.approval_data();
        self.transition(Trigger::Approved, State::Validated, reason, data)
    }

    /// Selects the tier. The first run gets the tier of the plan's complexity or of its risk; later
    /// runs never get a weaker tier.
    fn choose_tier(&self) -> Tier {
        let score = self.task_loop.plan.as_ref().map_or(0, |plan| plan.complexity_score);
        let level = self.task_loop.risk_level().unwrap_or_default();
        let first = complexity::ComplexityLevel::from_score(score)
            .tier()
            .max(self.rules.ceremony.get(level).first_tier);
        if self.task_loop.iterations == 0 { first } else { first.max(self.task_loop.tier) }
    }

    fn gates_finished(&mut self, gates: &GateCounts) -> Result<(), Refusal> {
        if gates.failed == 0 {
            let data = EntryData::Gates(*gates);
            self.transition(Trigger::GatesPassed, State::QualityReview, None, data)?;
            // Only its base is new, so people and validators have seen the change.
            return match self.task_loop.commit.filter(|_| self.is_same_change()) {
                Some(commit) => self.pass_review(None, EntryData::Commit(commit)),
                None => Ok(()),
            };
        }
        self.transition(Trigger::GatesFailed, State::Adjusting, None, EntryData::Gates(*gates))?;
        self.handle_failed_change(gates.fingerprint, gates.failing, gates.security_critical)
    }

    fn review_finished(
        &mut self,
        summary: ReviewSummary,
        fingerprint: Fingerprint,
    ) -> Result<(), Refusal> {
        let level = self.task_loop.risk_level().unwrap_or_default();
        if !summary.passed {
            self.transition(
                Trigger::ReviewFailed,
                State::Adjusting,
                None,
                EntryData::Review(summary),
            )?;
            let failing = Some(summary.failing()).filter(|_| self.counts_failures());
            self.handle_failed_change(fingerprint, failing, summary.security_critical)
        } else if self.rules.ceremony.get(level).human_review {
            let state = State::QualityReview;
            self.ask_question(AlertCause::ReviewNeeded, state, state);
            Ok(())
        } else {
            self.pass_review(None, EntryData::Review(summary))
        }
    }

    /// Records a passed review.
    pub(super) fn pass_review(
        &mut self,
        reason: EntryReason,
        data: EntryData,
    ) -> Result<(), Refusal> {
        self.record_attempt(true, Fingerprint::default(), None);
        self.task_loop.tier_failures = 0;
        self.transition(Trigger::ReviewPassed, State::Approved, reason, data)
    }

    /// Returns `true` if the number of failures takes part in the comparison of attempts.
    fn counts_failures(&self) -> bool {
        self.task_loop.edition.forgets_earlier_tiers()
    }

    fn record_attempt(
        &mut self,
        passed: bool,
        fingerprint: Fingerprint,
        failing: Option<FailureCount>,
    ) {
        self.task_loop.attempts.push(AttemptRecord {
            tier: self.task_loop.tier,
            passed,
            fingerprint,
            failing,
        });
        let old = self
            .task_loop
            .attempts
            .len()
            .saturating_sub(self.task_loop.edition.attempt_history_len());
        self.task_loop.attempts.drain(..old);
    }

    /// Decides how to continue after a failed change, and does so.
    pub(super) fn handle_failed_change(
        &mut self,
        fingerprint: Fingerprint,
        failing: Option<FailureCount>,
        security_critical: bool,
    ) -> Result<(), Refusal> {
        self.record_attempt(false, fingerprint, failing);
        self.task_loop.tier_failures = self.task_loop.tier_failures.saturating_add(1);
        let context = EscalationContext {
            attempts: &self.task_loop.attempts,
            tier: self.task_loop.tier,
            tier_failures: self.task_loop.tier_failures,
            retries: self.task_loop.retries,
            councils: self.task_loop.councils,
            iterations: self.task_loop.iterations,
            max_iterations: self.task_loop.max_iterations(self.rules),
            security_critical,
            over_budget: self.is_over_budget(),
            edition: self.task_loop.edition,
        };
        let decision = escalation::decide_after_failed_review(&context, self.rules);
        self.apply_decision(decision)
    }

    fn apply_decision(&mut self, decision: EscalationDecision) -> Result<(), Refusal> {
        self.task_loop.decision = Some(decision);
        self.record_entry(EntryName::SmDecisionMade, None, EntryData::Decision(decision));
        let resume = State::Validated;
        match decision.action {
            EscalationAction::Halt(condition) => self.escalate_to_person(
                Trigger::Alerted,
                AlertCause::Halted(condition),
                resume,
                None,
            ),
            EscalationAction::AskPerson(limit) => self.escalate_to_person(
                Trigger::Alerted,
                AlertCause::LimitReached(limit),
                resume,
                None,
            ),
            EscalationAction::Iterate(tier) => {
                self.switch_tier(tier);
                self.send_alert(AlertCause::ReviewFailed, AlertSeverity::Info);
                Ok(())
            }
            EscalationAction::Escalate(tier) => {
                self.switch_tier(tier);
                self.task_loop.retries += 1;
                self.send_alert(AlertCause::ReviewFailed, AlertSeverity::Info);
                Ok(())
            }
            EscalationAction::Council => {
                // Only failed reviews count as retries; see `decide_after_failed_job` for the rest.
                if !matches!(decision.reason, EscalationReason::FailuresInState(_)) {
                    self.task_loop.retries += 1;
                }
                self.call_council(State::Adjusting, None)
            }
        }
    }

    fn switch_tier(&mut self, tier: Tier) {
        if self.task_loop.tier != tier {
            self.task_loop.tier = tier;
            self.task_loop.tier_failures = 0;
            self.forget_earlier_tier();
        }
    }

    /// Starts the comparison of attempts again with the one that the new tier starts from.
    fn forget_earlier_tier(&mut self) {
        if self.task_loop.edition.forgets_earlier_tiers() {
            stuck::forget_earlier_tier(&mut self.task_loop.attempts);
        }
    }

    fn brief_ready(&mut self, brief: &Reference) -> Result<(), Refusal> {
        self.task_loop.brief = Some(brief.clone());
        self.task_loop.note = None;
        let data = EntryData::Stored(brief.clone());
        if self.task_loop.is_approved() {
            self.transition(Trigger::Briefed, State::Validated, None, data)
        } else {
            self.void_approval();
            self.transition(Trigger::ApprovalVoided, State::AwaitingApproval, None, data)
        }
    }

    fn delivered(&mut self, commit: CommitId) -> Result<(), Refusal> {
        self.task_loop.commit = Some(commit);
        self.transition(Trigger::Delivered, State::Learning, None, EntryData::Commit(commit))
    }

    fn delivery_rejected(&mut self, output: &Reference) -> Result<(), Refusal> {
        let failures = self.count_failure();
        self.task_loop.note = Some(output.clone());
        self.transition(
            Trigger::DeliveryFailed,
            State::Adjusting,
            None,
            EntryData::Stored(output.clone()),
        )?;
        let decision = escalation::decide_after_failed_job(
            failures,
            self.task_loop.councils,
            self.task_loop.tier,
            self.rules,
        );
        self.apply_decision(decision)
    }

    /// Handles an agent's question. The agent's work stays in its worktree and continues after the
    /// answer, so it is not saved separately.
    fn agent_question(
        &mut self,
        question: &Reference,
        default_answer: Option<&Reference>,
    ) -> Result<(), Refusal> {
        if self.task_loop.answered_live.as_ref() == Some(question) {
            return self.continue_after_late_answer();
        }
        let from = self.task_loop.state;
        let resume = if from == State::InProgress { State::Validated } else { from };
        let cause = AlertCause::AgentQuestion;
        // People were asked while the run waited, and are not asked again.
        if let Some(open) = self.task_loop.open_question.take() {
            let data = EntryData::Cause(cause);
            self.transition(Trigger::Alerted, State::HumanEscalation, None, data)?;
            self.task_loop.open_question = Some(open);
            return Ok(());
        }
        self.transition(Trigger::Alerted, State::HumanEscalation, None, EntryData::Cause(cause))?;
        self.ask_stored_question(cause, from, resume, Some(question), default_answer);
        Ok(())
    }

    /// Counts a failure of the current state's job.
    fn count_failure(&mut self) -> u8 {
        let count = self.task_loop.failures.entry(self.task_loop.state).or_default();
        *count += 1;
        *count
    }

    /// Handles a failed job, which says nothing about the change.
    fn job_failed(&mut self, kind: &FailureKind, reason: Cow<'static, str>) -> Result<(), Refusal> {
        let state = self.task_loop.state;
        let reason = Some(reason);
        let data = EntryData::Failure(kind.clone());
        let resume = if state == State::InProgress { State::Validated } else { state };
        match (kind, state) {
            // Failing to learn never fails a task.
            (_, State::Learning) => {
                self.record_entry(EntryName::SmErrorOccurred, reason, data);
                self.transition(Trigger::Learned, State::Completed, None, EntryData::None)
            }
            (FailureKind::Quota { provider, until }, _) => {
                self.wait_for_retry(
                    Trigger::QuotaReached,
                    EntryName::SmQuotaReached,
                    reason,
                    data,
                )?;
                self.task_loop.quota =
                    Some(ProviderQuota { provider: provider.clone(), until: *until });
                self.task_loop.not_before = Some((*until).max(self.retry_time(1)));
                let (provider, until) = (provider.clone(), *until);
                self.commands.push(Command::BlockProvider { provider, until });
                Ok(())
            }
            (FailureKind::OverBudget, _) if state != State::HumanEscalation => {
                let cause = AlertCause::Halted(HaltCondition::BudgetExceeded);
                self.escalate_to_person(Trigger::Alerted, cause, resume, reason)
            }
            // Another attempt could kill another worker. A person already has the task if its work
            // could not be saved.
            (FailureKind::WorkersLost, State::HumanEscalation) => {
                self.escalate_failures(reason, data, resume)
            }
            (FailureKind::WorkersLost, _) => {
                let cause = AlertCause::WorkersLost;
                self.escalate_to_person(Trigger::Alerted, cause, resume, reason)
            }
            // The same prompt would be refused again: a stronger tier, or a person.
            (FailureKind::Refused, State::InProgress) => match self.task_loop.tier.above() {
                Some(above) => {
                    self.switch_tier(above);
                    self.transition(Trigger::AgentFailed, State::Validated, reason, data)
                }
                None => self.escalate_to_person(
                    Trigger::Alerted,
                    AlertCause::AgentRefused,
                    resume,
                    reason,
                ),
            },
            (FailureKind::TimedOut, State::InProgress) => {
                self.task_loop.timeouts += 1;
                if self.task_loop.timeouts > 1 {
                    return self.escalate_to_person(
                        Trigger::Alerted,
                        AlertCause::AgentTimedOut,
                        resume,
                        reason,
                    );
                }
                self.transition(Trigger::AgentFailed, State::Validated, reason, data)
            }
            _ if self.continue_without_member(&reason) => Ok(()),
            (FailureKind::Refused, _) if state != State::HumanEscalation => {
                let cause = AlertCause::AgentRefused;
                self.escalate_to_person(Trigger::Alerted, cause, resume, reason)
            }
            _ => {
                let failures = self.count_failure();
                if failures < self.rules.scrum_master.task_loop.max_failures_per_state {
                    self.wait_for_retry(
                        Trigger::AgentFailed,
                        EntryName::SmErrorOccurred,
                        reason,
                        data,
                    )?;
                    self.task_loop.not_before = Some(self.retry_time(failures));
                    return Ok(());
                }
                if self.can_call_council(kind) {
                    return self.call_council_after_failures(failures, reason, data, resume);
                }
                self.escalate_failures(reason, data, resume)
            }
        }
    }

    /// Returns a run to `validated`. Other jobs wait in their state.
    fn wait_for_retry(
        &mut self,
        on: Trigger,
        name: EntryName,
        reason: EntryReason,
        data: EntryData,
    ) -> Result<(), Refusal> {
        if self.task_loop.state == State::InProgress {
            self.transition(on, State::Validated, reason, data)
        } else {
            self.record_entry(name, reason, data);
            Ok(())
        }
    }

    /// Asks a person once a state has reached its failure limit.
    fn escalate_failures(
        &mut self,
        reason: EntryReason,
        data: EntryData,
        resume: State,
    ) -> Result<(), Refusal> {
        match self.task_loop.state {
            // A person already has the task. Work that could not be saved stays in the worktree.
            State::HumanEscalation => {
                self.task_loop.must_save_work = false;
                self.task_loop.failures.remove(&State::HumanEscalation);
                self.record_entry(EntryName::SmErrorOccurred, reason, data);
                self.send_alert(
                    AlertCause::JobFailed(State::HumanEscalation),
                    AlertSeverity::Critical,
                );
                Ok(())
            }
            State::Validated | State::InProgress => {
                self.escalate_to_person(Trigger::Alerted, AlertCause::AgentFailed, resume, reason)
            }
            state => self.escalate_to_person(
                Trigger::Alerted,
                AlertCause::JobFailed(state),
                resume,
                reason,
            ),
        }
    }

    /// Returns the time of the next attempt. The delay doubles with each failure.
    fn retry_time(&self, failures: u8) -> Timestamp {
        let first = i64::from(self.rules.scrum_master.task_loop.backoff_seconds);
        let seconds = first << failures.saturating_sub(1).min(16);
        self.now.checked_add_signed(TimeDelta::seconds(seconds)).unwrap_or(self.now)
    }
}

impl Outcome {
    /// Returns `true` if the job did its work, regardless of the findings.
    fn is_success(&self) -> bool {
        !matches!(
            self,
            Self::PlanInvalid(_)
                | Self::PlanWrong(_)
                | Self::DeliveryRejected(_)
                | Self::QuestionAsked { .. }
                | Self::Interrupted
                | Self::Failed(_)
        )
    }
}
