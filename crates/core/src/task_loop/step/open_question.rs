//! Questions of running agents: the run waits for the answer, and the state does not change.
//!
//! If the run ends first, the same question stays open as the task's decision (see
//! `agent_question`), and the answer goes into the next run.

use super::StepBuilder;
use super::transitions::EntryReason;
use crate::cause::AlertCause;
use crate::history::{EntryData, EntryName};
use crate::ids::Reference;
use crate::task_loop::{JobKind, Outcome, Refusal, State, Trigger};

impl StepBuilder<'_> {
    /// Opens a question of the active run. The same question of another attempt changes nothing.
    pub(super) fn question_opened(
        &mut self,
        job_number: u32,
        question: &Reference,
        default_answer: Option<&Reference>,
    ) -> Result<(), Refusal> {
        let active = self.task_loop.active_job;
        let expected = active.map(|job| job.job_number);
        let Some(job) = active.filter(|job| job.job_number == job_number && !job.stopping) else {
            return Err(Refusal::StaleResult { found: job_number, expected });
        };
        let can_ask = matches!(
            (self.task_loop.state, job.kind),
            (State::Planning | State::Adjusting, JobKind::Plan)
                | (State::InProgress, JobKind::Implement)
                | (State::QualityReview, JobKind::Review)
                | (State::CtoIntervention, JobKind::Convene)
        );
        if !can_ask {
            let outcome = "question_opened".to_owned();
            return Err(Refusal::WrongOutcome { job: job.kind, outcome });
        }
        let is_open = self
            .task_loop
            .open_question
            .as_ref()
            .is_some_and(|open| open.live && open.agent_question.as_ref() == Some(question));
        if is_open {
            return Ok(());
        }
        self.close_question();
        self.task_loop.answered_live = None;
        let from = self.task_loop.state;
        let resume = if from == State::InProgress { State::Validated } else { from };
        let cause = AlertCause::AgentQuestion;
        self.ask_stored_question(cause, from, resume, Some(question), default_answer);
        Ok(())
    }

    /// Returns `true` while a run waits for an answer.
    pub(super) fn has_live_question(&self) -> bool {
        self.task_loop.open_question.as_ref().is_some_and(|question| question.live)
    }

    /// Records the answer for the waiting run, which reads it from the history.
    pub(super) fn answer_live_question(&mut self, reply: &Reference, reason: EntryReason) {
        let question = self.task_loop.open_question.as_ref();
        self.task_loop.answered_live = question.and_then(|it| it.agent_question.clone());
        let data = EntryData::Stored(reply.clone());
        self.record_entry(EntryName::SmQuestionAnswered, reason, data);
        self.close_question();
    }

    /// Ends the wait of a finished run. Only a run that gave up waiting leaves its question open.
    pub(super) fn end_live_question(&mut self, outcome: &Outcome) {
        let Some(open) = self.task_loop.open_question.as_mut().filter(|open| open.live) else {
            if !matches!(outcome, Outcome::QuestionAsked { .. }) {
                self.task_loop.answered_live = None;
            }
            return;
        };
        open.live = false;
        let is_unanswered = matches!(
            outcome,
            Outcome::QuestionAsked { question, .. } if open.agent_question.as_ref() == Some(question)
        );
        if !is_unanswered {
            self.close_question();
        }
    }

    /// Continues the work of a run that gave up waiting just before its question was answered.
    pub(super) fn continue_after_late_answer(&mut self) -> Result<(), Refusal> {
        self.task_loop.answered_live = None;
        if self.task_loop.state == State::InProgress {
            return self.transition(
                Trigger::RunInterrupted,
                State::Validated,
                None,
                EntryData::None,
            );
        }
        Ok(())
    }
}
