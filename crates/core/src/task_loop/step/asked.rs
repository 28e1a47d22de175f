//! What people's actions do.
//!
//! Who may do what is decided before an event is made. The machine only insists that it was a
//! person, that they saw what is there now, and that the answer fits the question.

use chrono::TimeDelta;

use super::Turn;
use super::moves::Why;
use crate::actor::Actor;
use crate::approval::{Approval, Binding};
use crate::budget::Grant;
use crate::cause::Cause;
use crate::ids::{CommitId, Name, Reason, Reference};
use crate::log::{EntryName, Fact};
use crate::review::Fingerprint;
use crate::rules::HaltCondition;
use crate::task_loop::next::{answers, skip_to};
use crate::task_loop::{
    Action, Answer, Command, Pause, Question, Refusal, State, StopReason, Timestamp, Trigger as On,
    table,
};

impl Turn<'_> {
    /// A person asked for something.
    pub(super) fn asked(&mut self, action: &Action) -> Result<(), Refusal> {
        let Actor::Person(person) = self.by else {
            return Err(Refusal::NotAPerson(action.to_string()));
        };
        let state = self.it.state;
        match (action, state) {
            // At any time.
            (Action::Pause, _) => self.pause(person),
            (Action::Resume, _) => self.resume(),
            (Action::Cancel { reason }, _) => {
                self.go(On::Cancelled, State::Cancelled, in_words(Some(reason)), Fact::None)
            }
            (Action::Acknowledge, _) => self.acknowledge(person),
            (Action::Modify { note }, _) => self.modify(action, note),

            // A plan that waits.
            (Action::Approve { binding, reason }, State::AwaitingApproval) => {
                self.saw(action, binding)?;
                self.approved_by(person, *binding, in_words(reason.as_ref()))
            }
            (Action::Reject { binding, reason }, State::AwaitingApproval) => {
                self.saw(action, binding)?;
                let why = in_words(Some(reason));
                self.escalate(On::Rejected, Cause::Rejected, State::Planning, why)
            }
            (Action::AskChanges { binding, changes }, State::AwaitingApproval) => {
                self.saw(action, binding)?;
                self.void_approval();
                self.it.note = Some(changes.clone());
                let kept = Fact::Kept(changes.clone());
                self.go(On::ChangesAsked, State::Planning, None, kept)
            }

            // A change that waits.
            (Action::Accept { commit, reason }, State::QualityReview) => {
                self.reviewed_by_person(action, *commit)?;
                self.pass_review(in_words(reason.as_ref()), Fact::Commit(*commit))
            }
            (Action::Rework { commit, comments }, State::QualityReview) => {
                self.reviewed_by_person(action, *commit)?;
                self.it.note = Some(comments.clone());
                let kept = Fact::Kept(comments.clone());
                self.go(On::ReviewFailed, State::Adjusting, None, kept)?;
                self.judge_failure(Fingerprint::default(), false)
            }

            // A task that waits.
            (_, State::HumanEscalation) => self.answered(action),
            (Action::Retry { .. }, _) => self.retry_now(),
            _ => Err(Refusal::not_now(state, action)),
        }
    }

    fn pause(&mut self, person: &Name) -> Result<(), Refusal> {
        if self.it.paused.is_some() {
            return Err(Refusal::Paused);
        }
        self.it.paused = Some(Pause { by: person.clone(), at: self.at });
        if let Some(work) = &mut self.it.work
            && work.kind.is_interruptible()
        {
            work.stopping = true;
            let (ticket, why) = (work.ticket, StopReason::Paused);
            self.commands.push(Command::Stop { ticket, why });
        }
        self.write(EntryName::SmTaskPaused, None, Fact::None);
        Ok(())
    }

    fn resume(&mut self) -> Result<(), Refusal> {
        let Some(pause) = self.it.paused.take() else {
            return Err(Refusal::NotPaused);
        };
        // A pause counts neither against the state nor as waiting for an answer.
        let paused = (self.at - pause.at).max(TimeDelta::zero());
        let later = |moment: Timestamp| moment.checked_add_signed(paused).unwrap_or(moment);
        self.it.clock.from = later(self.it.clock.from);
        if let Some(question) = &mut self.it.question {
            question.at = later(question.at);
        }
        self.write(EntryName::SmTaskResumed, None, Fact::None);
        Ok(())
    }

    fn acknowledge(&mut self, person: &Name) -> Result<(), Refusal> {
        let Some(question) = &mut self.it.question else {
            return Err(Refusal::NoQuestion);
        };
        question.seen_by = Some(person.clone());
        self.write(EntryName::SmAlertAcknowledged, None, Fact::None);
        Ok(())
    }

    /// What is wanted has changed: plan anew.
    fn modify(&mut self, action: &Action, note: &Reference) -> Result<(), Refusal> {
        let kept = Fact::Kept(note.clone());
        match self.it.state {
            State::Pending | State::Assigned => {
                self.it.note = Some(note.clone());
                self.write(EntryName::SmTaskModified, None, kept);
                Ok(())
            }
            state if table::allows(state, On::Modified, State::Planning) => {
                self.void_approval();
                self.start_afresh();
                self.it.note = Some(note.clone());
                self.go(On::Modified, State::Planning, None, kept)
            }
            state => Err(Refusal::not_now(state, action)),
        }
    }

    /// Makes sure that a decision is about what is there now.
    fn saw(&self, action: &Action, seen: &Binding) -> Result<(), Refusal> {
        let not_now = || Refusal::not_now(self.it.state, action);
        let now = self.it.binding().ok_or_else(not_now)?;
        if let Some(drift) = seen.drift(&now) {
            return Err(Refusal::Drifted(drift));
        }
        // Before the check has ended there is nothing to decide.
        self.it.question.as_ref().map(drop).ok_or_else(not_now)
    }

    fn approved_by(&mut self, person: &Name, binding: Binding, why: Why) -> Result<(), Refusal> {
        if self.it.approvals.iter().any(|approval| approval.by == *person) {
            return Err(Refusal::ApprovedTwice);
        }
        self.it.approvals.push(Approval { by: person.clone(), at: self.at, binding });
        let given = self.it.approvals.len();
        let level = self.it.risk().unwrap_or_default();
        if given >= usize::from(self.rules.ceremony.get(level).approvers) {
            self.approve(why)
        } else {
            let data = self.decided();
            self.write(EntryName::SmApprovalGranted, why, data);
            Ok(())
        }
    }

    fn reviewed_by_person(&self, action: &Action, seen: CommitId) -> Result<(), Refusal> {
        match self.it.commit {
            Some(now) if now != seen => Err(Refusal::OtherCommit { seen, now }),
            Some(_) if self.it.question.is_some() => Ok(()),
            _ => Err(Refusal::not_now(self.it.state, action)),
        }
    }

    /// Does not wait any longer for a quota or after a failure.
    fn retry_now(&mut self) -> Result<(), Refusal> {
        let waits_until = self.it.work.and_then(|work| work.not_before);
        if waits_until.is_none_or(|until| until <= self.at) {
            return Err(Refusal::NothingToRetry);
        }
        self.it.not_before = None;
        self.it.quota = None;
        self.leave(StopReason::Superseded);
        self.write(EntryName::SmTaskRetried, None, Fact::None);
        Ok(())
    }

    /// A person answered the question that the task was handed over with.
    fn answered(&mut self, action: &Action) -> Result<(), Refusal> {
        let not_an_answer = || Refusal::NotAnAnswer { action: action.to_string() };
        let question = self.it.question.clone().ok_or_else(not_an_answer)?;
        let given = Answer::try_from(action).map_err(|()| not_an_answer())?;
        if !answers(&question).contains(&given) {
            return Err(not_an_answer());
        }
        match action {
            Action::Continue { grant } => {
                self.grant(&question, *grant)?;
                self.go_on(On::Continued, &question, Fact::Grant(*grant))
            }
            Action::Reply { reply } => self.replied(&question, reply, None),
            Action::Retry { grant } => {
                self.grant(&question, *grant)?;
                self.it.retries = 0;
                self.go_on(On::Retried, &question, Fact::Grant(*grant))
            }
            Action::RollBack { to, reason } => {
                self.roll_back(*to, &question)?;
                self.go(On::RolledBack, *to, in_words(Some(reason)), Fact::None)
            }
            Action::Skip { reason } => {
                let to = skip_to(&question).ok_or_else(not_an_answer)?;
                if self.it.commit.is_none() {
                    return Err(not_an_answer());
                }
                self.start_afresh();
                self.go(On::Skipped, to, in_words(Some(reason)), Fact::None)
            }
            Action::Override { binding, reason } => {
                self.saw(action, binding)?;
                let data = self.decided();
                self.it.overridden = Some(binding.plan);
                self.it.check = None;
                let why = in_words(Some(reason));
                self.go(On::Overridden, State::AwaitingApproval, why, data)
            }
            Action::Abandon { reason } => {
                self.go(On::Abandoned, State::Failed, in_words(Some(reason)), Fact::None)
            }
            _ => Err(not_an_answer()),
        }
    }

    /// An agent has its answer, and the same work goes on. What failed before still counts.
    pub(super) fn replied(
        &mut self,
        question: &Question,
        reply: &Reference,
        why: Why,
    ) -> Result<(), Refusal> {
        let kept = Fact::Kept(reply.clone());
        self.write(EntryName::SmQuestionAnswered, why, kept.clone());
        let to = self.way_on(question);
        self.go(On::Continued, to, None, kept)
    }

    /// Where a question lets the task go on. A run needs an approval that still holds.
    fn way_on(&mut self, question: &Question) -> State {
        let to = match question.resume {
            State::Validated if !self.it.is_approved() => State::AwaitingApproval,
            to => to,
        };
        if to == State::AwaitingApproval {
            self.void_approval();
        }
        to
    }

    /// Gives a task more room. Where a limit stopped it, it needs some.
    fn grant(&mut self, question: &Question, grant: Grant) -> Result<(), Refusal> {
        let enough = match question.cause {
            Cause::Halted(HaltCondition::MaxIterationsReached) => grant.iterations > 0,
            Cause::Halted(HaltCondition::BudgetExceeded) => {
                grant.usd > crate::cost::Usd::ZERO || grant.tokens > 0
            }
            _ => true,
        };
        if !enough {
            return Err(Refusal::NeedsGrant);
        }
        self.it.granted = self.it.granted.and(grant);
        self.it.cost_warned = false;
        Ok(())
    }

    /// Goes on where the question says.
    fn go_on(&mut self, on: On, question: &Question, data: Fact) -> Result<(), Refusal> {
        self.start_afresh();
        let to = self.way_on(question);
        self.go(on, to, None, data)
    }

    fn roll_back(&mut self, to: State, question: &Question) -> Result<(), Refusal> {
        let why = match to {
            _ if !table::allows(State::HumanEscalation, On::RolledBack, to) => {
                "no task is rolled back there"
            }
            _ if !to.is_before(question.from) => "it has not been past it",
            State::AwaitingApproval if self.it.plan.is_none() => "it has no plan",
            State::Validated if !self.it.is_approved() => "its plan is not approved",
            State::Testing | State::QualityReview if self.it.commit.is_none() => {
                "it has no change to look at"
            }
            _ => {
                self.start_afresh();
                if matches!(to, State::Planning | State::AwaitingApproval) {
                    self.void_approval();
                }
                return Ok(());
            }
        };
        Err(Refusal::NoWayBack { to, why })
    }

    /// A person has looked: what failed before no longer counts.
    fn start_afresh(&mut self) {
        self.it.failures.clear();
        self.it.tier_failures = 0;
        self.it.timeouts = 0;
        self.it.attempts.clear();
        self.it.to_land = false;
    }
}

/// What a person gave as their reason.
fn in_words(reason: Option<&Reason>) -> Why {
    reason.map(|reason| reason.to_string().into())
}
