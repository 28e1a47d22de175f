//! Council: its calls, the opinions of its members, and the way back.
//!
//! A council returns the task to the state that it came from. After failed runs that is `validated`,
//! and after a failed change `adjusting`, where the plan is revised.

use super::StepBuilder;
use super::transitions::EntryReason;
use crate::actor::Actor;
use crate::council::{CouncilSeat, OpinionRecord};
use crate::escalation::{EscalationAction, EscalationDecision, EscalationReason};
use crate::failure::FailureKind;
use crate::history::{EntryData, EntryName};
use crate::ids::Reference;
use crate::rules::AgentSelection;
use crate::task_loop::{Action, CouncilCall, OpenQuestion, Refusal, State, Trigger, table};
use crate::tier::Tier;

/// Author of opinions and conclusions.
static COUNCIL: Actor = Actor::Council;

impl StepBuilder<'_> {
    /// Records the rest of the step in the council's name.
    pub(super) fn act_as_council(&mut self) {
        if self.task_loop.edition.has_council_for_every_state() {
            self.actor = &COUNCIL;
        }
    }

    /// Calls the council. The task returns to `return_state` afterwards.
    pub(super) fn call_council(
        &mut self,
        return_state: State,
        question: Option<Reference>,
    ) -> Result<(), Refusal> {
        self.task_loop.councils += 1;
        if self.task_loop.edition.has_council_for_every_state() {
            self.task_loop.council = Some(CouncilCall { return_state, question: question.clone() });
        }
        if !self.task_loop.council_reviews_plan() {
            self.task_loop.tier = Tier::TOP;
            self.task_loop.tier_failures = 0;
        }
        self.task_loop.failures.clear();
        self.task_loop.opinions.clear();
        let data = question.map_or(EntryData::None, EntryData::Stored);
        self.transition(Trigger::CouncilCalled, State::CtoIntervention, None, data)
    }

    /// Returns `true` if the council can help after a job of the current state has failed too often.
    /// Agents that cannot start could not form a council either.
    pub(super) fn can_call_council(&self, kind: &FailureKind) -> bool {
        self.task_loop.can_convene(self.rules)
            && *kind != FailureKind::Unavailable
            && self.task_loop.state != State::HumanEscalation
            && table::allows(self.task_loop.state, Trigger::CouncilCalled, State::CtoIntervention)
    }

    /// Calls the council after the jobs of a state have failed too often.
    pub(super) fn call_council_after_failures(
        &mut self,
        failures: u8,
        reason: EntryReason,
        data: EntryData,
        return_state: State,
    ) -> Result<(), Refusal> {
        self.record_entry(EntryName::SmErrorOccurred, reason, data);
        self.decide_council(EscalationReason::FailuresInState(failures));
        self.call_council(return_state, None)
    }

    /// Calls the council for a plan that was submitted with the task, if the rules say so.
    pub(super) fn review_submitted_plan(&mut self) -> Result<(), Refusal> {
        let is_new = self.task_loop.submitted_plan.is_some() && self.task_loop.plan.is_none();
        let wanted = self.rules.council.reviews_submitted_plans && self.task_loop.councils == 0;
        if !is_new || !wanted || !self.task_loop.can_convene(self.rules) {
            return Ok(());
        }
        self.decide_council(EscalationReason::PlanSubmitted);
        self.call_council(State::Planning, None)
    }

    /// Calls the council in a person's name.
    pub(super) fn convene(&mut self, action: &Action, question: &Reference) -> Result<(), Refusal> {
        let state = self.task_loop.state;
        let return_state = match state {
            State::Planning | State::Testing | State::QualityReview | State::Adjusting => state,
            State::Validated | State::InProgress => State::Validated,
            // The check of the plan must have finished, so that it cannot approve the plan.
            State::AwaitingApproval if self.task_loop.open_question.is_some() => state,
            _ => return Err(Refusal::wrong_state(state, action)),
        };
        self.check_council_limit(action)?;
        self.decide_council(EscalationReason::Requested);
        self.call_council(return_state, Some(question.clone()))
    }

    /// Calls the council as a person's answer. If work was tried, its plan is revised afterwards.
    pub(super) fn convene_as_answer(
        &mut self,
        action: &Action,
        open: &OpenQuestion,
        question: &Reference,
    ) -> Result<(), Refusal> {
        self.check_council_limit(action)?;
        let return_state = match open.resume_state {
            State::Validated if self.task_loop.iterations > 0 => State::Adjusting,
            State::CtoIntervention => State::Adjusting,
            State::Pending | State::Assigned => State::Planning,
            state => state,
        };
        self.reset_failures();
        self.decide_council(EscalationReason::Requested);
        self.call_council(return_state, Some(question.clone()))
    }

    fn check_council_limit(&self, action: &Action) -> Result<(), Refusal> {
        if self.task_loop.can_convene(self.rules) {
            return Ok(());
        }
        let (held, max) = (self.task_loop.councils, self.rules.scrum_master.task_loop.max_councils);
        if held >= max {
            return Err(Refusal::CouncilLimit { held, max });
        }
        Err(Refusal::wrong_state(self.task_loop.state, action))
    }

    fn decide_council(&mut self, reason: EscalationReason) {
        let decision = EscalationDecision { action: EscalationAction::Council, reason };
        self.task_loop.decision = Some(decision);
        self.record_entry(EntryName::SmDecisionMade, None, EntryData::Decision(decision));
    }

    /// Returns the task with the conclusion of the council.
    pub(super) fn council_concluded(&mut self, guidance: &Reference) -> Result<(), Refusal> {
        let reviewed_plan = self.task_loop.council_reviews_plan();
        let call = self.task_loop.council.take();
        self.task_loop.opinions.clear();
        if !reviewed_plan {
            // A new approach starts here, so it is not compared with the earlier attempts.
            self.task_loop.attempts.clear();
        }
        let to = match call.map_or(State::Adjusting, |call| call.return_state) {
            State::Validated if !self.task_loop.is_approved() => State::AwaitingApproval,
            to => to,
        };
        match to {
            // The plan is checked again and waits for the person, who can send it back.
            State::AwaitingApproval => {
                self.void_approval();
                self.task_loop.guidance = Some(guidance.clone());
            }
            // The next run gets the conclusion like a failure brief.
            State::Validated => {
                self.task_loop.brief = Some(guidance.clone());
                let action = EscalationAction::Iterate(self.task_loop.tier);
                if let Some(decision) = &mut self.task_loop.decision {
                    decision.action = action;
                }
            }
            _ => self.task_loop.note = Some(guidance.clone()),
        }
        let data = EntryData::Stored(guidance.clone());
        self.transition(Trigger::CouncilConcluded, to, None, data)
    }

    /// Returns the council member to ask next, or `None` if it is the chair.
    pub(super) fn current_member(&self) -> Option<AgentSelection> {
        match self.task_loop.current_seat(self.rules)? {
            seat @ CouncilSeat::Member(_) => Some(seat.member(&self.rules.council).clone()),
            CouncilSeat::Chair => None,
        }
    }

    /// Records an opinion, or the absence of a member.
    pub(super) fn record_opinion(&mut self, opinion: OpinionRecord, reason: EntryReason) {
        let name = match opinion {
            OpinionRecord::Stored(_) => EntryName::SmCouncilOpinion,
            OpinionRecord::Absent => EntryName::SmCouncilMemberAbsent,
        };
        if let Some(member) = self.current_member() {
            self.record_entry(
                name,
                reason,
                EntryData::Opinion { member, opinion: opinion.clone() },
            );
        }
        self.task_loop.opinions.push(opinion);
    }

    /// Continues the council without a member whose run failed. Returns `false` if no member is
    /// left to give an opinion.
    pub(super) fn continue_without_member(&mut self, reason: &EntryReason) -> bool {
        let in_council = self.task_loop.state == State::CtoIntervention;
        if !in_council || self.current_member().is_none() {
            return false;
        }
        self.record_opinion(OpinionRecord::Absent, reason.clone());
        let all_absent =
            self.task_loop.opinions.iter().all(|opinion| *opinion == OpinionRecord::Absent);
        if all_absent && self.current_member().is_none() {
            // Ask all members again.
            self.task_loop.opinions.clear();
            return false;
        }
        true
    }
}
