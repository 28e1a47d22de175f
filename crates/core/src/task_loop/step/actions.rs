//! Actions that people request.
//!
//! Callers check permissions before they create an event. Here, the actor must be a person, the
//! person must have seen the current scope, and the answer must fit the question.

use chrono::TimeDelta;

use super::StepBuilder;
use super::transitions::EntryReason;
use crate::actor::Actor;
use crate::approval::{Approval, ApprovalScope};
use crate::budget::Grant;
use crate::cause::AlertCause;
use crate::history::{EntryData, EntryName};
use crate::ids::{CommitId, Name, Reason, Reference};
use crate::plan::PlanSummary;
use crate::review::Fingerprint;
use crate::rules::HaltCondition;
use crate::task::TaskEdit;
use crate::task_loop::next_step::{allowed_answers, skip_target};
use crate::task_loop::{
    Action, AnswerKind, Command, OpenQuestion, Pause, Refusal, State, StopReason, Timestamp,
    Trigger, table,
};

impl StepBuilder<'_> {
    /// Handles an action that a person requested.
    pub(super) fn handle_action(&mut self, action: &Action) -> Result<(), Refusal> {
        let Actor::Person(person) = self.actor else {
            return Err(Refusal::PersonRequired(action.label().to_owned()));
        };
        let state = self.task_loop.state;
        match (action, state) {
            // Actions possible in any state.
            (Action::Pause, _) => self.pause(person),
            (Action::Resume, _) => self.resume(),
            (Action::Cancel { reason }, _) => self.transition(
                Trigger::Cancelled,
                State::Cancelled,
                reason_text(Some(reason)),
                EntryData::None,
            ),
            (Action::Acknowledge, _) => self.acknowledge(person),
            (Action::ChangeTask { request }, _) => self.change_task(action, request),
            (Action::Edit(edit), _) => self.edit_task(edit),

            // Plan awaiting approval.
            (Action::Approve { scope, reason }, State::AwaitingApproval) => {
                self.check_scope(action, scope)?;
                self.add_approval(person, *scope, reason_text(reason.as_ref()))
            }
            (Action::Reject { scope, reason }, State::AwaitingApproval) => {
                self.check_scope(action, scope)?;
                let reason = reason_text(Some(reason));
                self.escalate_to_person(
                    Trigger::Rejected,
                    AlertCause::Rejected,
                    State::Planning,
                    reason,
                )
            }
            (Action::RevisePlan { scope, changes }, State::AwaitingApproval) => {
                self.check_scope(action, scope)?;
                self.void_approval();
                self.task_loop.note = Some(changes.clone());
                let data = EntryData::Stored(changes.clone());
                self.transition(Trigger::RevisionRequested, State::Planning, None, data)
            }
            (Action::AdjustPlan { scope, plan, adjustments, reason }, State::AwaitingApproval) => {
                self.check_scope(action, scope)?;
                self.adjust_plan(plan, adjustments, reason)
            }

            // Change awaiting review.
            (Action::Accept { commit, reason }, State::QualityReview) => {
                self.check_reviewed_commit(action, *commit)?;
                self.pass_review(reason_text(reason.as_ref()), EntryData::Commit(*commit))
            }
            (Action::RequestChanges { commit, comments }, State::QualityReview) => {
                self.check_reviewed_commit(action, *commit)?;
                self.task_loop.note = Some(comments.clone());
                let data = EntryData::Stored(comments.clone());
                self.transition(Trigger::ReviewFailed, State::Adjusting, None, data)?;
                self.handle_failed_change(Fingerprint::default(), None, false)
            }

            // Council.
            (Action::Convene { question }, _) if state != State::HumanEscalation => {
                self.convene(action, question)
            }

            // Run waiting for an answer.
            (Action::Reply { reply }, _) if self.has_live_question() => {
                self.answer_live_question(reply, None);
                Ok(())
            }

            // Task waiting for a decision.
            (_, State::HumanEscalation) => self.handle_answer(action),
            (Action::Retry { .. }, _) => self.retry_now(),
            _ => Err(Refusal::wrong_state(state, action)),
        }
    }

    /// Replaces the plan with a person's edited version. It is checked and approved like any other.
    fn adjust_plan(
        &mut self,
        plan: &PlanSummary,
        adjustments: &Reference,
        reason: &Reason,
    ) -> Result<(), Refusal> {
        let last = self.task_loop.plan.as_ref().map(|last| (last.version, last.hash));
        let expected = last.map_or(1, |(version, _)| version + 1);
        if plan.version != expected {
            return Err(Refusal::PlanVersion { found: plan.version, expected });
        }
        if let Some((version, hash)) = last
            && hash == plan.hash
        {
            return Err(Refusal::PlanUnchanged(version));
        }
        let data = self.approval_data();
        self.record_entry(EntryName::SmChangesRequested, reason_text(Some(reason)), data);
        self.void_approval();
        self.close_question();
        self.task_loop.overridden_plan = None;
        self.task_loop.note = None;
        self.task_loop.plan = Some(plan.clone());
        let (plan, adjustments) = (plan.clone(), adjustments.clone());
        let data = EntryData::Adjusted { plan, adjustments };
        self.record_entry(EntryName::SmPlanAdjusted, None, data);
        Ok(())
    }

    /// Rates a closed task. Only the history and the ratings change.
    pub(super) fn rate(&mut self, stars: u8, reason: Option<&Reason>) -> Result<(), Refusal> {
        let Actor::Person(person) = self.actor else {
            return Err(Refusal::PersonRequired("rate".to_owned()));
        };
        if !self.task_loop.state.is_terminal() {
            return Err(Refusal::StillOpen(self.task_loop.state));
        }
        // Its workflow writes one more step.
        if self.task_loop.active_job.is_some() {
            return Err(Refusal::StillLearning);
        }
        if !(1..=5).contains(&stars) {
            return Err(Refusal::InvalidRating(stars));
        }
        self.task_loop.ratings.insert(person.clone(), stars);
        self.record_entry(EntryName::SmTaskRated, reason_text(reason), EntryData::Rating(stars));
        Ok(())
    }

    fn pause(&mut self, person: &Name) -> Result<(), Refusal> {
        if self.task_loop.paused.is_some() {
            return Err(Refusal::AlreadyPaused);
        }
        self.task_loop.paused = Some(Pause { by: person.clone(), at: self.now });
        if let Some(job) = &mut self.task_loop.active_job
            && job.kind.is_interruptible()
        {
            job.stopping = true;
            let (job_number, reason) = (job.job_number, StopReason::Paused);
            self.commands.push(Command::StopJob { job_number, reason });
        }
        self.record_entry(EntryName::SmTaskPaused, None, EntryData::None);
        Ok(())
    }

    fn resume(&mut self) -> Result<(), Refusal> {
        let Some(pause) = self.task_loop.paused.take() else {
            return Err(Refusal::NotPaused);
        };
        // A pause counts neither towards the soft timeout nor towards reminders.
        let paused = (self.now - pause.at).max(TimeDelta::zero());
        let later = |time: Timestamp| time.checked_add_signed(paused).unwrap_or(time);
        self.task_loop.clock.started_at = later(self.task_loop.clock.started_at);
        if let Some(question) = &mut self.task_loop.open_question {
            question.asked_at = later(question.asked_at);
        }
        self.record_entry(EntryName::SmTaskResumed, None, EntryData::None);
        Ok(())
    }

    fn acknowledge(&mut self, person: &Name) -> Result<(), Refusal> {
        let Some(question) = &mut self.task_loop.open_question else {
            return Err(Refusal::NoOpenQuestion);
        };
        question.seen_by = Some(person.clone());
        self.record_entry(EntryName::SmAlertAcknowledged, None, EntryData::None);
        Ok(())
    }

    /// Changes the request and replans.
    fn change_task(&mut self, action: &Action, request: &Reference) -> Result<(), Refusal> {
        let data = EntryData::Stored(request.clone());
        // A pull request that ended is never opened again.
        if self.task_loop.pull_request.as_ref().is_some_and(|memory| memory.is_over()) {
            return Err(Refusal::wrong_state(self.task_loop.state, action));
        }
        match self.task_loop.state {
            State::Pending | State::Assigned => {
                self.task_loop.note = Some(request.clone());
                self.record_entry(EntryName::SmTaskModified, None, data);
                Ok(())
            }
            state if table::allows(state, Trigger::TaskChanged, State::Planning) => {
                self.void_approval();
                self.reset_failures();
                self.task_loop.note = Some(request.clone());
                self.transition(Trigger::TaskChanged, State::Planning, None, data)
            }
            state => Err(Refusal::wrong_state(state, action)),
        }
    }

    /// Records a new title, priority or labels. Agents read the title, so it stays once a plan
    /// exists: nobody can change what was approved.
    fn edit_task(&mut self, edit: &TaskEdit) -> Result<(), Refusal> {
        edit.validate().map_err(Refusal::InvalidEdit)?;
        if edit.title.is_some() && self.task_loop.plan.is_some() {
            return Err(Refusal::TitleHasPlan);
        }
        if let Some(priority) = edit.priority {
            self.task_loop.priority = priority;
        }
        self.record_entry(EntryName::SmTaskEdited, None, EntryData::Edited(edit.clone()));
        Ok(())
    }

    /// Checks that a decision is about the current scope.
    fn check_scope(&self, action: &Action, seen: &ApprovalScope) -> Result<(), Refusal> {
        let wrong_state = || Refusal::wrong_state(self.task_loop.state, action);
        let current = self.task_loop.current_scope().ok_or_else(wrong_state)?;
        if let Some(change) = seen.first_change(&current) {
            return Err(Refusal::ScopeChanged(change));
        }
        // Nothing can be decided before the check has finished.
        self.task_loop.open_question.as_ref().map(drop).ok_or_else(wrong_state)
    }

    fn add_approval(
        &mut self,
        person: &Name,
        scope: ApprovalScope,
        reason: EntryReason,
    ) -> Result<(), Refusal> {
        if self.task_loop.approvals.iter().any(|approval| approval.by == *person) {
            return Err(Refusal::AlreadyApproved);
        }
        self.task_loop.approvals.push(Approval { by: person.clone(), at: self.now, scope });
        let approval_count = self.task_loop.approvals.len();
        let level = self.task_loop.risk_level().unwrap_or_default();
        if approval_count >= usize::from(self.rules.ceremony.get(level).approvers) {
            self.approve(reason)
        } else {
            let data = self.approval_data();
            self.record_entry(EntryName::SmApprovalGranted, reason, data);
            Ok(())
        }
    }

    fn check_reviewed_commit(&self, action: &Action, seen: CommitId) -> Result<(), Refusal> {
        match self.task_loop.commit {
            Some(now) if now != seen => Err(Refusal::CommitChanged { seen, now }),
            Some(_) if self.task_loop.open_question.is_some() && !self.has_live_question() => {
                Ok(())
            }
            _ => Err(Refusal::wrong_state(self.task_loop.state, action)),
        }
    }

    /// Skips the wait for a quota or after a failure.
    fn retry_now(&mut self) -> Result<(), Refusal> {
        let waits_until = self.task_loop.active_job.and_then(|job| job.not_before);
        if waits_until.is_none_or(|until| until <= self.now) {
            return Err(Refusal::NothingToRetry);
        }
        self.task_loop.not_before = None;
        self.task_loop.quota = None;
        self.stop_active_job(StopReason::Superseded);
        self.record_entry(EntryName::SmTaskRetried, None, EntryData::None);
        Ok(())
    }

    /// Handles the answer to the question of an escalated task.
    fn handle_answer(&mut self, action: &Action) -> Result<(), Refusal> {
        let not_an_answer = || Refusal::AnswerNotAllowed { action: action.label().to_owned() };
        let question = self.task_loop.open_question.clone().ok_or_else(not_an_answer)?;
        let answer = AnswerKind::try_from(action).map_err(|()| not_an_answer())?;
        if !allowed_answers(&question).contains(&answer) {
            return Err(not_an_answer());
        }
        match action {
            Action::Continue { grant } => {
                self.apply_grant(&question, *grant)?;
                self.answer_about_pull_request(&question, false);
                self.resume_from_question(Trigger::Continued, &question, EntryData::Grant(*grant))
            }
            Action::Reply { reply } => self.resume_with_reply(&question, reply, None),
            Action::Retry { grant } => {
                self.apply_grant(&question, *grant)?;
                self.task_loop.retries = 0;
                self.answer_about_pull_request(&question, true);
                self.resume_from_question(Trigger::Retried, &question, EntryData::Grant(*grant))
            }
            Action::RollBack { to, reason } => {
                self.prepare_roll_back(*to, &question)?;
                self.transition(
                    Trigger::RolledBack,
                    *to,
                    reason_text(Some(reason)),
                    EntryData::None,
                )
            }
            Action::Skip { reason } => {
                let to = skip_target(&question).ok_or_else(not_an_answer)?;
                if self.task_loop.commit.is_none() {
                    return Err(not_an_answer());
                }
                self.reset_failures();
                self.transition(Trigger::Skipped, to, reason_text(Some(reason)), EntryData::None)
            }
            Action::Convene { question: text } => self.convene_as_answer(action, &question, text),
            Action::Override { scope, reason } => {
                self.check_scope(action, scope)?;
                let data = self.approval_data();
                self.task_loop.overridden_plan = Some(scope.plan);
                self.task_loop.plan_assessment = None;
                let reason = reason_text(Some(reason));
                self.transition(Trigger::Overridden, State::AwaitingApproval, reason, data)
            }
            Action::Abandon { reason } => self.transition(
                Trigger::Abandoned,
                State::Failed,
                reason_text(Some(reason)),
                EntryData::None,
            ),
            _ => Err(not_an_answer()),
        }
    }

    /// Continues the same work with the answer to an agent's question. Earlier failures still
    /// count.
    pub(super) fn resume_with_reply(
        &mut self,
        question: &OpenQuestion,
        reply: &Reference,
        reason: EntryReason,
    ) -> Result<(), Refusal> {
        if question.live {
            self.answer_live_question(reply, reason);
            return Ok(());
        }
        let data = EntryData::Stored(reply.clone());
        self.record_entry(EntryName::SmQuestionAnswered, reason, data.clone());
        let to = self.prepare_resume_state(question);
        self.transition(Trigger::Continued, to, None, data)
    }

    /// Returns the state in which work continues. A run needs a valid approval.
    fn prepare_resume_state(&mut self, question: &OpenQuestion) -> State {
        let to = match question.resume_state {
            State::Validated if !self.task_loop.is_approved() => State::AwaitingApproval,
            to => to,
        };
        if to == State::AwaitingApproval {
            self.void_approval();
        }
        to
    }

    /// Adds a grant. After a hard limit, it must raise that limit.
    fn apply_grant(&mut self, question: &OpenQuestion, grant: Grant) -> Result<(), Refusal> {
        let enough = match question.cause {
            AlertCause::Halted(HaltCondition::MaxIterationsReached) => grant.iterations > 0,
            AlertCause::Halted(HaltCondition::BudgetExceeded) => {
                grant.usd > crate::cost::Usd::ZERO || grant.tokens > 0
            }
            _ => true,
        };
        if !enough {
            return Err(Refusal::NeedsGrant);
        }
        self.task_loop.granted = self.task_loop.granted.plus(grant);
        self.task_loop.cost_warned = false;
        Ok(())
    }

    /// Continues in the state that the question names.
    fn resume_from_question(
        &mut self,
        on: Trigger,
        question: &OpenQuestion,
        data: EntryData,
    ) -> Result<(), Refusal> {
        self.reset_failures();
        let to = self.prepare_resume_state(question);
        self.transition(on, to, None, data)
    }

    fn prepare_roll_back(&mut self, to: State, question: &OpenQuestion) -> Result<(), Refusal> {
        let reason = match to {
            _ if !table::allows(State::HumanEscalation, Trigger::RolledBack, to) => {
                "tasks cannot be rolled back to this state"
            }
            _ if !to.is_before(question.from_state) => "the task has not passed this state",
            State::AwaitingApproval if self.task_loop.plan.is_none() => "the task has no plan",
            State::Validated if !self.task_loop.is_approved() => "the plan is not approved",
            State::Testing | State::QualityReview if self.task_loop.commit.is_none() => {
                "the task has no change to review"
            }
            _ => {
                self.reset_failures();
                if matches!(to, State::Planning | State::AwaitingApproval) {
                    self.void_approval();
                }
                return Ok(());
            }
        };
        Err(Refusal::CannotRollBack { to, reason })
    }

    /// Resets the failure counters after a person's decision.
    pub(super) fn reset_failures(&mut self) {
        self.task_loop.failures.clear();
        self.task_loop.tier_failures = 0;
        self.task_loop.timeouts = 0;
        self.task_loop.attempts.clear();
        self.task_loop.must_save_work = false;
        self.task_loop.restarts = 0;
    }
}

/// Returns the reason that a person gave, as text.
fn reason_text(reason: Option<&Reason>) -> EntryReason {
    reason.map(|reason| reason.to_string().into())
}
